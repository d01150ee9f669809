"""Ada goes through a month of receipts with a team of agents, and Remit keeps them within their remits: `make demo`."""

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from remit import Delegation, Hub, Progress, Record, Request, Response, Status, view_of
from remit.stores.sqlite import verify_file
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.show.tree_lines import plain_ascii

TEAM = Path(__file__).parents[1] / "packages/cli/src/remit_cli/templates/household/remit.toml"
# Whoever starts the demo trusts the files beside it, whichever user the clone belongs to.
os.environ["REMIT_TRUST_TEAM"] = str(TEAM.absolute())
STORE = Path(".remit") / "demo.db"
# Where the agents note what they really did, and find the tax office closed as long as there is a file that says so.
DESK = Path(".remit") / "demo-desk"
DONE, CLOSED = DESK / "done.txt", DESK / "tax-office-is-closed"
CLAIM = "Claim the tax back, to DE89 3704 0044 0532 0130 00. I am at ada.weber@example.org, +49 30 901820."
# Far more than anything takes, so that only a demo that would hang ever sees it.
LIMIT_S = 200
WIDTH = min(shutil.get_terminal_size((100, 24)).columns, 100)
COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ
FANCY = (sys.stdout.encoding or "").lower().startswith("utf")


class Run(NamedTuple):
    """What became of one thing that Ada said."""

    response: Response
    delegations: list[Delegation]
    records: list[Record]


async def main() -> int:
    """Tell the story, then show the tree, the totals and the audit verdict; return the exit code."""
    say(bold("Remit: Ada goes through a month of receipts with a team of agents"))
    paragraph(
        "Agents that call each other can loop, overspend, outlive their caller and pass on what they should not. Here"
        " each call carries a remit: for whom it acts, whom it may ask, the time and tokens that it may spend. Ada"
        " talks to one of them and reads plain words. What stands behind them is in brackets."
    )
    DESK.mkdir(parents=True, exist_ok=True)
    CLOSED.unlink(missing_ok=True)
    os.environ["RECEIPTS_DESK"] = str(DESK.absolute())
    team, session = load_team(TEAM), f"march-{os.urandom(4).hex()}"
    speakers = frozenset({"orchestrator", *team.workflows})
    async with hub_of(team, store=STORE) as hub:
        talk = Talk(hub, session, speakers)
        runs = [*await a_chain(talk), *await a_conflict(talk)]
    answer = a_kill(session)
    async with hub_of(team, store=STORE) as hub:
        talk = Talk(hub, session, speakers)
        runs += [await what_came_of_it(talk, answer), *await a_payment(talk), *await trouble(talk)]
    show_tree(runs)
    show_totals(runs)
    return show_verdict()


class Talk(NamedTuple):
    """Ada's conversation with the orchestrator."""

    hub: Hub
    session: str
    speakers: frozenset[str]
    """Those who say what she reads while others are at work."""

    async def say(self, text: str) -> Run:
        """Let Ada say something, and print what she reads."""
        field("Ada", text, BOLD)
        response = await self.hub.ask("orchestrator", text, user="ada", session=self.session)
        run = await self.run(response)
        read(" ".join(doing(run.records, self.speakers)), str(response.result))
        return run

    async def run(self, response: Response) -> Run:
        """Return what is recorded of a run."""
        run = response.run
        return Run(response, await self.hub.delegations(run), await self.hub.store.records(run=run))


def doing(records: Sequence[Record], speakers: frozenset[str]) -> Iterator[str]:
    """Yield what a user reads while others are at work."""
    for record in records:
        match record.body:
            case Progress(agent=agent, text=text) if agent in speakers:
                yield text
            case _:
                pass


# ── the story ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def a_chain(talk: Talk) -> list[Run]:
    heading("1. A wish, and a chain of agents")
    run = await talk.say("What did I spend in March?")
    behind(f"one after another, each given the result before: {callees(run)}")
    return [run]


async def a_conflict(talk: Talk) -> list[Run]:
    heading("2. An unclear wish, three agents at once, and what they disagree on")
    unclear = await talk.say("Something is wrong with my receipts.")
    chosen = await talk.say("Compare what the receipts, the bank and your diary say about the trip.")
    behind(f"all at once, and one answer from what they say: {callees(chosen)}")
    decided = await talk.say("The bank is right.")
    behind("whoever is asked later in this conversation knows it, and counts 45.00 EUR")
    return [unclear, chosen, decided]


def a_kill(session: str) -> str:
    """Kill the process that works for Ada in the middle of its last step, and return what another one answers."""
    heading("3. A process is killed, and another goes on; personal data")
    DONE.unlink(missing_ok=True)
    CLOSED.touch()
    where = ("--user", "ada", "--session", session, "--set", f"store.path={STORE.absolute()}")
    field("Ada", CLAIM, BOLD)
    asked = subprocess.run(
        remit("ask", CLAIM, *where), capture_output=True, check=True, timeout=LIMIT_S, encoding="utf-8"
    )
    read("", asked.stdout)
    field("Ada", "Yes.", BOLD)
    asking = remit("ask", "Yes.", *where)
    with subprocess.Popen(asking, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8") as doomed:
        give_up = time.monotonic() + LIMIT_S
        while "asked the tax office" not in (DONE.read_text(encoding="utf-8") if DONE.exists() else ""):
            assert doomed.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < give_up, "it did not come to its last step"
            time.sleep(0.02)
        doomed.kill()
        assert doomed.stderr is not None
        read(" ".join(doomed.stderr.read().split("\n")))
    CLOSED.unlink()
    behind(f"kill -9 {doomed.pid}: the process that works for her is gone, in the middle of its fifth step")
    behind("remit runs resume last: another one goes on, once the first was silent for five seconds …")
    resuming = remit("runs", "resume", "last", "--store", str(STORE))
    return subprocess.run(resuming, capture_output=True, check=True, timeout=LIMIT_S, encoding="utf-8").stdout


async def what_came_of_it(talk: Talk, answer: str) -> Run:
    """Show the answer, and by what the agents noted that nothing was done twice."""
    read("", answer)
    (newest,) = await talk.hub.store.runs(limit=1)
    assert newest.response is not None, "the run was not resumed"
    run = await talk.run(newest.response)
    counted = Counter(DONE.read_text(encoding="utf-8").splitlines())
    behind("counted by who did it: " + ", ".join(f"{what} {times(count)}" for what, count in counted.items()))
    saw = ""
    for record in run.records:
        match record.body:
            case Request(target=target, capability="TAX_CONFIRM", input={"contact": str(contact)}):
                saw = f"{target} saw: “{contact}”"
            case _:
                pass
    behind(saw)
    return run


async def a_payment(talk: Talk) -> list[Run]:
    """Let a tool pay three bills: one below the limit of the team's rule, and two that Ada judges as they wait."""
    heading("4. A tool wants to pay, and a person judges it")
    before = DONE.read_text(encoding="utf-8")
    asked = await talk.say("Pay my bills.")
    field("Ada", "Yes.", BOLD)
    paying = asyncio.create_task(talk.hub.ask("orchestrator", "Yes.", user="ada", session=talk.session))
    for agreed, reason in ((True, "we ordered it"), (False, "the same again, to another account")):
        async with asyncio.timeout(LIMIT_S):
            while not (waiting := await talk.hub.pending()):
                assert not paying.done(), "it paid without a question"
                await asyncio.sleep(0.02)
        (question,) = waiting
        clear = await talk.hub.reveal(question.id, by="ada")  # the record says that she reads the account
        behind(f"{question.text} {view_of(clear).sentence}")
        behind(f"ada says {'yes' if agreed else 'no'}: {reason}")
        await talk.hub.decide(question.id, agreed=agreed, by="ada", reason=reason)
    run = await talk.run(await paying)
    read(" ".join(doing(run.records, talk.speakers)), str(run.response.result))
    done = DONE.read_text(encoding="utf-8").removeprefix(before).splitlines()
    behind(f"noted by the tool that pays: {'; '.join(done)}")
    return [asked, run]


async def trouble(talk: Talk) -> list[Run]:
    heading("5. A loop, a blown budget, a time-out, and still one answer")
    run = await talk.say("Now look closely at every receipt.")
    for each in run.delegations:
        if each.fault is not None:
            why = f"{each.origin} > {each.target}, {each.fault.code}: {each.fault.message}"
            behind(f"{each.status}: {textwrap.shorten(why, WIDTH - 2 * INDENT, placeholder=' …')}")
    return [run]


# ── the tree, the totals, the verdict ─────────────────────────────────────────────────────────────────────────────────


def show_tree(runs: Sequence[Run]) -> None:
    """Print who asked whom, how it ended, and what it took."""
    say()
    say(bold(f"{'Who asked whom':31}{'status':9}{'ms':>6}{'tokens':>8}  code"))
    for run in runs:
        root, *others = run.delegations
        if others:
            show_line(f"ada > {root.target}", root)
        for indent, each in below(root, others):
            show_line(f"  {indent}{each.target}", each)
    say(
        painted("Tokens are those of the agent and of all below it. Runs in which nobody was called are left out.", DIM)
    )


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


def show_totals(runs: Sequence[Run]) -> None:
    """Print what all runs came to."""
    delegations = [each for run in runs for each in run.delegations]
    ends = ", ".join(
        f"{count} {status}" for status in Status if (count := sum(each.status is status for each in delegations))
    )
    tokens = sum(run.response.usage.total for run in runs)
    say()
    field("runs", f"{len(runs)} of one user, with {len(delegations)} calls: {ends}")
    field("tokens", f"{tokens}, estimated: no model was called")


def show_verdict() -> int:
    """Print whether the record is as it was written, and return the exit code for it."""
    verdict = verify_file(STORE)
    result_line, *_ = str(verdict).splitlines()
    program = "remit" if shutil.which("remit") else shown(Path(sys.executable).with_name("remit"))
    field("audit", result_line, GREEN if verdict.ok else RED)
    field("look", f"{program} runs list --store {STORE}; {program} runs print last --store {STORE}")
    field("ask", f'{program} ask "How much were the meals?" --team {shown(TEAM)}')
    return 0 if verdict.ok else 1


def callees(run: Run) -> str:
    """Return who did the work: all but those who only asked others."""
    callers = {each.parent for each in run.delegations}
    return ", ".join(each.target for each in run.delegations if each.id not in callers)


def times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


# ── other processes ───────────────────────────────────────────────────────────────────────────────────────────────────


def remit(*arguments: str) -> list[str]:
    """Return the command line of `remit`, with the team."""
    return [sys.executable, "-X", "utf8", "-m", "remit_cli", *arguments, "--team", str(TEAM)]


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
INDENT = 10


def say(line: str = "") -> None:
    print(line if FANCY else plain_ascii(line), flush=True)


def heading(text: str) -> None:
    say()
    say(bold(text))


def paragraph(text: str) -> None:
    say(textwrap.fill(text, WIDTH))


def read(doing: str, answer: str = "") -> None:
    """Print what a user reads: while others are at work, and in the end."""
    if doing.strip():
        wrapped(" ".join(doing.split()), DIM)
    for line in compact(answer):
        wrapped(line)


def compact(answer: str) -> Iterator[str]:
    """Yield an answer in fewer lines: what is short stands in one, each sentence of a list in its own."""
    for section in f"\n{answer.strip()}".split("\n## "):
        title, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line]
        listed = [line for line in lines if line.startswith("- ")]
        if any(line.endswith((".", "?")) for line in listed):
            yield from (bold(title), *lines)
        elif listed:
            short = "; ".join(line[2:] for line in listed)
            rest = " ".join(line for line in lines if line not in listed)
            yield f"{bold(title)}: {short}. {rest}" if title else f"{short}. {rest}"
        else:
            yield from lines


def behind(text: str) -> None:
    """Print what a user does not see."""
    wrapped(f"[{text}]", YELLOW)


def field(name: str, text: str, colour: str = DIM) -> None:
    """Print a name, and beside it what belongs to it."""
    first, *rest = textwrap.wrap(text, WIDTH - INDENT) or [""]
    say(f"   {painted(f'{name:{INDENT - 3}}', colour)}{first}")
    for line in rest:
        say(" " * INDENT + line)


def wrapped(text: str, colour: str = "") -> None:
    for line in textwrap.wrap(text, WIDTH - INDENT):
        say(" " * INDENT + (painted(line, colour) if colour else line))


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
