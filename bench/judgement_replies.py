"""Gives replies to every kind of question that an orchestrator asks, and counts what they change."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Literal

from msgspec import Struct, field

from judgement_play import Conversation, PlayedTeam, Shown, TruthfulPerson
from judgement_sets import Call, lists, replies

Kind = Literal["said back", "offered", "field", "plan", "condition"]

# Numbers, which may choose an option or fill a field, and words that agree in the labelled languages.
_MAY_ANSWER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|fourteen|eins?|einer|zwei|drei|vier|uno|una|dos|tres|"
    r"yes|ja|sí|both)\b",
    re.IGNORECASE,
)


class Opening(Struct):
    """What a person says until a kind of question is asked."""

    said: list[str]
    options: list[str]


class Replied(Struct):
    """What came of the replies: by what they are, how many changed something or were understood, and of how many."""

    kinds: int = 0
    changed: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    understood: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


async def replied(played: PlayedTeam, most: int | None) -> Replied:
    """Return what comes of replies to each kind of question; at most *most* of each are tried, if that is given."""
    openings = await _openings(played)
    found = Replied(kinds=len(openings))
    tried, changed = Counter[str](), Counter[str]()
    for what, texts in _without_answer(played).items():
        tried[what], changed[what] = 0, 0
        for opening in openings.values():
            for text in islice(texts, most):
                tried[what] += 1
                changed[what] += await _changes(played, opening, text)
        found.changed[what] = changed[what], tried[what]
    if "said back" in openings:
        found.understood |= await _agreements(played, openings["said back"], most)
    if offering := openings.get("offered", openings.get("said back")):
        found.understood |= await _choices(played, offering, most)
    return found


def _without_answer(played: PlayedTeam) -> dict[str, list[str]]:
    """Return the texts that answer no question, by what they are."""
    requests, forms = played.team.requests, replies(played.team.language)
    texts = {"vague and foreign texts": [each for each in (*requests.vague, *requests.foreign) if not _answers(each)]}
    if forms is not None:
        texts |= {"refusals": forms.deny, "unrelated replies": forms.unrelated}
    return texts


def _answers(text: str) -> bool:
    return _MAY_ANSWER.search(text) is not None


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _openings(played: PlayedTeam) -> dict[Kind, Opening]:
    """Return a way to each kind of question, as far as there is one."""
    team = played.team
    vague = [*team.requests.vague, *team.requests.foreign]
    plans = [text for text, codes in lists(team) if any(code in team.changing() for code in codes)]
    conditions = [each.text for each in team.compounds() if each.conditional]
    found: dict[Kind, Opening | None] = {
        "said back": await _said_back(played),
        "offered": await _first(played, vague, lambda shown: shown.decision == "offered" and len(shown.options) > 1),
        "field": await _field(played),
        "plan": await _first(played, plans, lambda shown: shown.asks),
        "condition": await _first(played, conditions, lambda shown: shown.asks),
    }
    return {kind: opening for kind, opening in found.items() if opening is not None}


async def _first(played: PlayedTeam, texts: Iterable[str], asks: Callable[[Shown], bool]) -> Opening | None:
    """Return the first text that brings such a question."""
    for text in texts:
        shown = await played.conversation().say(text)
        if asks(shown):
            return Opening([text], shown.options)
    return None


async def _said_back(played: PlayedTeam) -> Opening | None:
    """Return what is said back before it changes something; if possible, something without fields."""
    capabilities = played.team.capabilities
    for code in sorted(played.team.changing(), key=lambda code: len(capabilities[code].fields)):
        opening = await _first(
            played,
            capabilities[code].examples,
            lambda shown: shown.decision == "said_back" and shown.options[:1] == [code],  # noqa: B023 - used at once
        )
        if opening is not None:
            return opening
    return None


async def _field(played: PlayedTeam) -> Opening | None:
    """Return what brings a question for a field that takes a number or one of a few words."""
    for code in played.team.changing():
        capability = played.team.capabilities[code]
        if not capability.fields or any(map(_is_free, capability.fields.values())):
            continue
        for text in capability.examples:
            conversation = played.conversation()
            shown = await conversation.say(text)
            said = [text]
            if shown.decision == "said_back":
                said.append(_yes(played))
                shown = await conversation.say(said[-1])
            if shown.decision == "asked" and not shown.executed:
                return Opening(said, [code])
    return None


def _is_free(described: str) -> bool:
    return described.startswith("string:")


async def _reply(played: PlayedTeam, opening: Opening, reply: str) -> tuple[Conversation, Shown]:
    """Return what comes of a reply to a question, in a conversation of its own."""
    conversation = played.conversation()
    for each in opening.said:
        await conversation.say(each)
    return conversation, await conversation.say(reply)


async def _changes(played: PlayedTeam, opening: Opening, reply: str) -> bool:
    _, shown = await _reply(played, opening, reply)
    return bool(played.changes(shown.executed))


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _yes(played: PlayedTeam) -> str:
    forms = replies(played.team.language)
    return forms.agree[0] if forms else "1"


async def _agreements(played: PlayedTeam, opening: Opening, most: int | None) -> dict[str, tuple[int, int]]:
    forms = replies(played.team.language)
    if forms is None:
        return {}
    return {"agreement": await _understood(played, opening, [(each, opening.options[0]) for each in forms.agree], most)}


async def _choices(played: PlayedTeam, opening: Opening, most: int | None) -> dict[str, tuple[int, int]]:
    """Return how many replies that name an option by its number or its words choose it."""
    forms = replies(played.team.language)
    if forms is None:
        return {}
    found: dict[str, tuple[int, int]] = {}
    for kind in ("numbers", "names"):
        texts = [
            (text, code)
            for at, code in enumerate(opening.options[:3])
            for text in forms.choosing(kind, at, played.team.capabilities[code].description)
        ]
        found[kind] = await _understood(played, opening, texts, most)
    return found


async def _understood(
    played: PlayedTeam, opening: Opening, texts: Iterable[tuple[str, str]], most: int | None
) -> tuple[int, int]:
    """Return how many replies lead to the capability that they mean, once its fields are given, and of how many."""
    understood = tried = 0
    for text, code in islice(texts, most):
        conversation, shown = await _reply(played, opening, text)
        # Its fields may be asked for now, and said back with their values; what is offered again was not understood.
        outcome = await TruthfulPerson(played.team, [Call(code)]).go_on(conversation, shown)
        understood += outcome.codes() == [code] and all(each.options == [code] for each in outcome.seen if each.asks)
        tried += 1
    return understood, tried
