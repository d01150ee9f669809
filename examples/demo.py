"""Five agents go through a month of receipts, and Remit keeps them within their remits. Run it with `make demo`."""

import asyncio
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from remit import Delegation, Hub, Record, Request, Response, Status
from remit.faces.composition import hub_of
from remit.faces.team.file import load_team
from remit.protocol.records import Approval
from remit.stores.sqlite import verify_file

TEAM = Path(__file__).parent / "receipts" / "remit.toml"
STORE = Path(".remit") / "demo.db"
MONTH = "2026-03"
ACCOUNT = "DE89 3704 0044 0532 0130 00"
WIDTH = min(shutil.get_terminal_size((100, 24)).columns, 100)
COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ
FANCY = (sys.stdout.encoding or "").lower().startswith("utf")


class Run(NamedTuple):
    """What became of one wish of the user."""

    response: Response
    delegations: list[Delegation]
    records: list[Record]


class Scene(NamedTuple):
    """One thing that the user asks for, and why it is worth watching."""

    title: str
    capability: str
    asked: str
    matters: str
    input: str = MONTH
    look: Callable[[Run], None] = lambda _: None
    """What is shown of it besides."""


async def main() -> int:
    """Show every scene, then the tree, the totals and the audit verdict; return the exit code."""
    say(bold("Remit: five agents go through a month of receipts"))
    paragraph(
        "Agents that call each other can loop, overspend, outlive their caller and pass on what they should not. Here"
        " each call carries a remit: for which user it acts, whom it may ask, and the time and tokens that it may"
        " spend. Below, five agents keep to theirs, and try not to."
    )
    say()
    hub = hub_of(load_team(TEAM), store=STORE)
    async with hub:
        field("agents", ", ".join(hub.cards))
        field("team", shown(TEAM))
        field("record", shown(STORE))
        runs = [await play(hub, number, scene) for number, scene in enumerate(SCENES, start=1)]
    delegations = [each for run in runs for each in run.delegations]
    show_tree(delegations)
    show_totals([run.response for run in runs], delegations)
    return show_verdict()


async def play(hub: Hub, number: int, scene: Scene) -> Run:
    """Let the user ask, and tell what happened."""
    response = await hub.ask("orchestrator", scene.asked, user="u-1", capability=scene.capability, input=scene.input)
    run = Run(response, await hub.delegations(response.run), await hub.store.records(run=response.run))
    say()
    say(bold(f"{number}. {scene.title}"))
    field("asked", scene.asked)
    field("calls", calls(run.delegations))
    for each in run.delegations:
        if each.fault is not None and each.status is not None:
            fault = f"{each.fault.code}: {each.fault.message}"
            field(each.status, f"{each.origin} > {each.target}, {fault}", COLOURS[each.status])
    scene.look(run)
    field("answer", str(response.result))
    field("matters", scene.matters)
    return run


def show_what_was_seen(run: Run) -> None:
    """Print what reached the specialist, which is what stands in the record."""
    for record in run.records:
        match record.body:
            case Request(target="tax-specialist", input=said):
                field("it saw", str(said), YELLOW)
            case _:
                pass


def show_approval(run: Run) -> None:
    """Print who was asked, and what was said."""
    for record in run.records:
        match record.body:
            case Approval(question=question, agreed=bool(agreed), by=by, reason=reason):
                field("question", question, YELLOW)
                field("by", f"{by}, who said {'yes' if agreed else 'no'}: {reason}")
            case _:
                pass


SCENES = (
    Scene(
        "A chain",
        "REPORT",
        "Add up my receipts by category.",
        "Each step is given the result before it; a step without a result ends the chain.",
    ),
    Scene(
        "Two at once, one answer",
        "REVIEW",
        "What did I spend, and how much tax do I get back?",
        "Both are paid for beforehand from what the orchestrator has left, so together they cannot be granted more.",
    ),
    Scene(
        "Personal data that never reaches the specialist",
        "CONTACT",
        f"Write to me at ada.weber@example.org or call +49 30 901820; my account is {ACCOUNT}.",
        "No agent was shown the address, the number or the account, and the record does not hold them. The user"
        " gets them back.",
        look=show_what_was_seen,
    ),
    Scene(
        "An approval",
        "FILE_CLAIM",
        "Claim it back, to my account.",
        "The team's rule wants a person to agree. Here its allow-list does; all else would wait for `remit pending`."
        " This capability may see the account, and only that.",
        input=f"{MONTH} {ACCOUNT}",
        look=show_approval,
    ),
    Scene(
        "A loop, refused",
        "DEDUCT",
        "What can I deduct, by category?",
        "The analyst is told no and goes on with what it has; nobody waits for themselves.",
    ),
    Scene(
        "A blown budget",
        "EXPLAIN",
        "Explain every receipt to me.",
        "The agent that spends more than its grant is stopped, and so is every later call of that run.",
    ),
    Scene(
        "A time-out with a partial answer",
        "RECONCILE",
        "Compare every receipt with the bank.",
        "The work is cancelled at its deadline, and what was finished by then is in the response.",
    ),
)


# ── the tree, the totals, the verdict ─────────────────────────────────────────────────────────────────────────────────


def show_tree(delegations: Sequence[Delegation]) -> None:
    """Print who asked whom, how it ended, and what it took."""
    say()
    say(bold(f"{'Who asked whom':31}{'status':9}{'ms':>6}{'tokens':>8}  code"))
    for number, root in enumerate((each for each in delegations if each.parent is None), start=1):
        show_line(f"{number}. user > {root.target}", root)
        for indent, each in below(root, delegations):
            show_line(f"   {indent}{each.target}", each)
    say(painted("Tokens are those of the agent and of all below it.", DIM))


def show_line(name: str, each: Delegation) -> None:
    """Print one line of the tree."""
    status = f"{each.status or 'under way':9}"
    coloured = painted(status, COLOURS[each.status]) if each.status else status
    code = each.fault.code if each.fault else ""
    say(f"{name:31}{coloured}{each.duration_ms:6}{each.usage.total:8}  {code}".rstrip())


def below(parent: Delegation, delegations: Sequence[Delegation], indent: str = "") -> Iterator[tuple[str, Delegation]]:
    """Yield each delegation under *parent* with the lines that lead to it."""
    tee, corner, bar = ("├─ ", "└─ ", "│  ") if FANCY else ("|- ", "`- ", "|  ")
    children = [each for each in delegations if each.parent == parent.id]
    for each in children:
        last = each is children[-1]
        yield indent + (corner if last else tee), each
        yield from below(each, delegations, indent + ("   " if last else bar))


def show_totals(responses: Sequence[Response], delegations: Sequence[Delegation]) -> None:
    """Print what all runs came to."""
    ends = ", ".join(
        f"{count} {status}" for status in Status if (count := sum(each.status is status for each in delegations))
    )
    say()
    say(bold("Totals"))
    field("runs", f"{len(responses)} of one user")
    field("calls", f"{len(delegations)}: {ends}")
    field("tokens", f"{sum(response.usage.total for response in responses)} (estimated: no model was called)")
    field("time", f"{sum(response.duration_ms for response in responses)} ms")


def show_verdict() -> int:
    """Print whether the record is as it was written, and return the exit code for it."""
    verdict = verify_file(STORE)
    say()
    say(bold("Audit"))
    said, *details = str(verdict).splitlines()
    field("verdict", said, GREEN if verdict.ok else RED)
    for detail in details:
        field("", detail.strip())
    remit = "remit" if shutil.which("remit") else shown(Path(sys.executable).with_name("remit"))
    field("look", f"{remit} runs list --store {STORE}")
    field("", f"{remit} runs tree last --store {STORE}")
    field("", f"{remit} audit verify {STORE}")
    return 0 if verdict.ok else 1


def calls(delegations: Sequence[Delegation]) -> str:
    """Return who asked whom, in order, those that one agent asked together."""
    asked = groupby(delegations[1:], key=lambda each: each.origin)
    return "; ".join(f"{origin} > {', '.join(each.target for each in group)}" for origin, group in asked)


# ── plain text ────────────────────────────────────────────────────────────────────────────────────────────────────────

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
COLOURS = {
    Status.SUCCESS: GREEN,
    Status.PARTIAL: YELLOW,
    Status.TIMEOUT: YELLOW,
    Status.CANCELLED: YELLOW,
    Status.FAILED: RED,
    Status.REFUSED: RED,
}


def say(line: str = "") -> None:
    print(line, flush=True)


def paragraph(text: str) -> None:
    say(textwrap.fill(text, WIDTH))


def field(name: str, text: str, colour: str = DIM) -> None:
    """Print a name, and beside it what belongs to it."""
    first, *rest = textwrap.wrap(text, WIDTH - 12) or [""]
    say(f"   {painted(f'{name:9}', colour)}{first}")
    for line in rest:
        say(" " * 12 + line)


def shown(path: Path) -> str:
    """Return a path as short as it can be said."""
    full = path.absolute()
    return str(full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else full)


def bold(text: str) -> str:
    return painted(text, BOLD)


def painted(text: str, colour: str) -> str:
    return f"\033[{colour}m{text}\033[0m" if COLOURED else text


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
