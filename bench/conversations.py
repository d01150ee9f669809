"""Conversations in which there is work to do, for the benchmark of what delegation adds to what models are sent."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from runpy import run_path
from types import SimpleNamespace
from typing import Any, NamedTuple

EXAMPLE = Path(__file__).resolve().parents[1] / "packages/cli/src/remit_cli/templates/household/agents.py"

receipts: Any = SimpleNamespace(**run_path(str(EXAMPLE)))

Round = Mapping[str, Sequence[dict[str, Any]]]
"""Tools that are used at once, each with the arguments of its calls."""


class Specialist(NamedTuple):
    """An agent for one part of the work."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...]


class Errand(NamedTuple):
    """What a specialist is asked to do, the tools that this takes, and what it answers."""

    specialist: str
    task: str
    rounds: tuple[Round, ...]
    answer: str
    context: dict[str, Any] | None = None
    """Which messages it may see, if the planner says so."""
    relayed: bool = False
    """Whether the user gets its answer as it is."""


class Turn(NamedTuple):
    """What the user says, what has to be done for it, and what the user is answered."""

    text: str
    errands: tuple[Errand, ...]
    answer: str


class Work(NamedTuple):
    """A conversation, and who and what it takes; every so many turns are worked on, and the others only said."""

    prompt: str
    specialists: tuple[Specialist, ...]
    tools: tuple[Callable[..., object], ...]
    turns: tuple[Turn, ...]
    every: int = 1

    @property
    def worked_on(self) -> tuple[Turn, ...]:
        return self.turns[:: self.every]


# ── a conversation about receipts ─────────────────────────────────────────────────────────────────────────────────────


def tax_rule(category: str) -> str:
    """Say which part of the value-added tax on a category of expenses can be claimed back, and on what conditions."""
    part = receipts.CLAIMABLE_PERCENT[category]
    return (
        f"{category}: {part} per cent of the tax may be claimed back if the receipt names the vendor, the date, the "
        "rate of the tax and what was bought, and the expense was for the business."
    )


def add_up(cents: list[int]) -> int:
    """Add amounts up, all of them in cents."""
    return sum(cents)


MONTH = {"open_receipts": [{"month": "2026-03"}]}

RECEIPTS = Work(
    prompt=(
        "You help a self-employed consultant with the bookkeeping. Find out what is wanted, have it done, and answer "
        "in plain words and short sentences: first the result, then how it came about, then what is still open. Give "
        "amounts in euros with two decimals. Never guess an amount, and never change one: if something is missing or "
        "contradictory, say so and ask. What was settled earlier in the conversation holds until the user says "
        "otherwise. The user is no accountant: explain each technical term when you first use it."
    ),
    specialists=(
        Specialist(
            "document-reader",
            "Reads receipts, and says what each was for.",
            "You read receipts. Open those of the month in question and go through them one by one. Name for each its "
            "number, date, vendor, gross amount, rate of tax, and what was bought. Sort each into exactly one of the "
            "categories travel, meals, office, services and books; if two fit, take the one that the tax office would. "
            "A receipt that cannot be read, that names no vendor, or that lies outside the month is listed apart, with "
            "the reason. Add nothing that is not on the receipt.",
            ("open_receipts",),
        ),
        Specialist(
            "analyst",
            "Adds up, explains, and compares receipts with the bank.",
            "You are an analyst. You add up and compare; you do not judge. Work from the receipts themselves, never "
            "from what someone says they amount to, and let the tool do the sums. When you compare with the bank, look "
            "up what was booked for each receipt; report every difference with both amounts, every receipt without a "
            "booking, and every booking that came more than three days after its receipt. Say what you checked and "
            "what you did not. If the figures do not add up, say so before anything else.",
            ("open_receipts", "find_transaction", "add_up"),
        ),
        Specialist(
            "tax-specialist",
            "Works out what can be claimed back, and on what conditions.",
            "You are a specialist for value-added tax. For each receipt work out the tax that it contains from its "
            "gross amount and its rate, look up the rule for its category, and work out what can be claimed back. "
            "Round to whole cents only at the end. Name the rule that you used and its conditions. Where a receipt "
            "does not meet them, leave it out and say why. Give the sum, and below it one line for each category. You "
            "give no advice on anything but value-added tax.",
            ("open_receipts", "tax_rule", "add_up"),
        ),
    ),
    tools=(receipts.open_receipts, receipts.find_transaction, tax_rule, add_up),
    turns=(
        Turn(
            "Hello! I would like to get my receipts of March 2026 in order. What is there, and what was each for?",
            (
                Errand(
                    "document-reader",
                    "List the receipts of March 2026 with date, vendor, amount and category.",
                    (MONTH,),
                    "Nine receipts. Travel: r1 2 March Nordbahn 89.00, r2 2 March Hotel Seeblick 119.00, r7 18 March "
                    "Nordbahn 64.20. Meals: r3 3 March Trattoria Elena 54.00, r8 20 March Cafe Anton 11.90. Office: r4 "
                    "5 March Papier & Mehr 23.80, r9 27 March Elektro Voss 238.00. Services: r5 9 March Cloudhaus "
                    "47.60. Books: r6 12 March Buchhandlung Lind 32.10. All can be read, all lie within the month.",
                ),
            ),
            "You have nine receipts from March, and all of them can be read. Three are for travel (two trains with "
            "Nordbahn and a night at Hotel Seeblick), two for meals, two for the office (paper and the second "
            "monitor), one for the server and one for the handbook on contracts. Shall I add them up by category?",
        ),
        Turn(
            "Yes please. And does all of it agree with what the bank has booked?",
            (
                Errand(
                    "analyst",
                    "Add up the receipts of March 2026 by category: travel r1 r2 r7, meals r3 r8, office r4 r9, "
                    "services r5, books r6. Then compare each of the nine with the bank.",
                    (
                        MONTH,
                        {"add_up": [{"cents": [8900, 11900, 6420]}, {"cents": [5400, 1190]}, {"cents": [2380, 23800]}]},
                        {"find_transaction": [{"receipt": f"r{number}"} for number in range(1, 10)]},
                    ),
                    "Travel 272.20, meals 65.90, office 261.80, services 47.60, books 32.10; together 679.60. Seven of "
                    "nine agree with the bank. r3 says 54.00, the bank booked 45.00. For r6 nothing is booked. No "
                    "booking came more than three days after its receipt.",
                ),
            ),
            "By category: travel 272.20, meals 65.90, office 261.80, services 47.60, books 32.10, together 679.60 EUR. "
            "Seven of the nine agree with the bank. Two do not: the lunch at Trattoria Elena is 54.00 EUR on the "
            "receipt and 45.00 EUR at the bank, and for the handbook from Buchhandlung Lind nothing was booked. Do you "
            "know why?",
        ),
        Turn(
            "The lunch was 45 euros, I gave the tip in cash. The book I paid in cash too. Leave both as they are.",
            (),
            "Then both are settled: the tip explains the difference of 9.00 EUR, and the handbook needs no booking "
            "because you paid for it in cash. I leave the receipts as they are. What would you like to do next?",
        ),
        Turn(
            "How much value-added tax do I get back for March, and on what conditions?",
            (
                Errand(
                    "tax-specialist",
                    "Work out the value-added tax that can be claimed back for the receipts of March 2026, with the "
                    "conditions. Of r3 only 45.00 were for the lunch; the rest is a tip.",
                    (
                        MONTH,
                        {"tax_rule": [{"category": each} for each in receipts.CATEGORIES]},
                        {"add_up": [{"cents": [582, 779, 420]}, {"cents": [380, 3800]}, {"cents": [503, 133]}]},
                        {"add_up": [{"cents": [1781, 4180, 636, 760, 210]}]},
                    ),
                    "75.67 can be claimed back: travel 17.81, meals 6.36 (70 per cent), office 41.80, services 7.60, "
                    "books 2.10. Conditions: each receipt names vendor, date, rate of tax and what was bought, and the "
                    "expense was for the business. The tip of 9.00 on r3 is left out: it is not on the receipt's tax.",
                ),
            ),
            "You can claim 75.67 EUR of value-added tax (the tax that is contained in each price) back: travel 17.81, "
            "meals 6.36, office 41.80, services 7.60, books 2.10. Of the tax on meals only 70 per cent counts, and the "
            "tip is left out. The conditions: each receipt names the vendor, the date, the rate of the tax and what "
            "was bought, and the expense was for your business. All nine do.",
        ),
        Turn(
            "And if I keep the second monitor for myself?",
            (
                Errand(
                    "tax-specialist",
                    "Work out how much less value-added tax can be claimed back for March 2026 if r9, the second "
                    "monitor, was not for the business. With it, the sum was 75.67.",
                    (MONTH, {"add_up": [{"cents": [7567, -3800]}]}),
                    "Without r9 it is 37.67: the tax of 38.00 on the monitor cannot be claimed back if the expense was "
                    "not for the business. All else stays.",
                ),
            ),
            "Then it is 37.67 EUR instead of 75.67 EUR: the 38.00 EUR of tax on the monitor cannot be claimed back if "
            "you use it privately. Everything else stays as it was.",
        ),
        Turn(
            "No, it stays in the office. Write me two sentences for my accountant, please.",
            (),
            "The nine receipts of March 2026 come to 679.60 EUR, of which 75.67 EUR of value-added tax can be claimed "
            "back. They agree with the bank except for a tip of 9.00 EUR on the lunch of 3 March and the handbook of "
            "12 March, both paid in cash.",
        ),
    ),
)


# ── conversations of any length ───────────────────────────────────────────────────────────────────────────────────────

WORDS = " ".join(each.prompt for each in RECEIPTS.specialists).split()


def synthetic(
    messages: int,
    *,
    errands: Sequence[int] = (0, 1, 1, 2),
    rounds: Sequence[int] = (1, 2, 3, 4),
    context: dict[str, Any] | None = None,
    every: int = 1,
    specialists: int = 4,
    relayed: bool = False,
) -> Work:
    """Return a conversation of so many messages, half of them the user's.

    Users write some 25 words, and are answered with 70. For each turn *errands* are done, each in *rounds* of a tool
    that gives back 120 words. There are four *specialists*; instructions have 120 words, and each has two tools.
    """
    chance = Random(messages)

    def words(about: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(about * 2 // 3, about * 4 // 3))).capitalize() + "."

    tools = tuple(_tool(f"tool_{number}", words(18), words) for number in range(2 * specialists))
    names = [tool.__name__ for tool in tools]
    those = tuple(
        Specialist(f"specialist-{number}", words(10), words(120), tuple(names[2 * number : 2 * number + 2]))
        for number in range(specialists)
    )

    def errand() -> Errand:
        who = chance.choice(those)
        used = tuple({chance.choice(who.tools): [{"query": words(6)}]} for _ in range(chance.choice(rounds)))
        return Errand(who.name, words(30), used, words(60), context, relayed)

    def turn() -> Turn:
        text, done, answer = words(25), tuple(errand() for _ in range(chance.choice(errands))), words(70)
        return Turn(text, done, done[-1].answer if relayed else answer)

    return Work(words(120), those, tools, tuple(turn() for _ in range(messages // 2)), every)


def _tool(name: str, about: str, words: Callable[[int], str]) -> Callable[..., object]:
    text = words(120)

    def tool(query: str, limit: int = 10) -> str:  # noqa: ARG001 - what it finds is always the same
        return text

    tool.__name__ = name
    tool.__doc__ = about
    return tool


# What suits delegation least: every turn needs one specialist, for one use of a tool.
LOOKUPS = synthetic(40, errands=(1,), rounds=(1,), specialists=1)


def relayed(messages: int) -> Work:
    """Return such a conversation of so many messages in which the specialist's answers go to the user as they are."""
    return synthetic(messages, errands=(1,), rounds=(1,), specialists=1, relayed=True)
