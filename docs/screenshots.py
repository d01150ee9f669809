"""Draws docs/images: what `remit` shows of the team of `make demo` and of examples/relay, run by `make screenshots`.

The runs are real ones. Only their clock is not: each record comes a fixed time after the one before it, and a run has
a fixed id, so that the pictures differ only if what they show does. The chat is what a host makes of what the agents in
examples/relay say, without the devices between them.
"""

import asyncio
import io
import re
import tempfile
from collections.abc import Sequence
from datetime import datetime
from inspect import signature
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from remit.protocol.codec import text_of
from remit.protocol.envelope import Request, Response
from remit.protocol.records import Progress, Record
from remit.runtime.run_tree import Tree
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.show.live import LiveTree
from remit_cli.show.runs import short, summary
from remit_relay.bridge.ports import Draft
from remit_relay.commands.shared.wording import COLOURS, entry_lines, footer, heading
from remit_relay.local_api.views import Surroundings, view
from remit_relay.session.moves import Approve, Arrived, Drafted, Effect, Event, Prompt, Prompted, Send, Sent, Start
from remit_relay.session.reducer import step
from remit_relay.session.review import ReviewFacts, ReviewRules, reviews
from remit_relay.session.run import Overlay, Transition

ROOT = Path(__file__).parent.parent
TEAM = ROOT / "packages/cli/src/remit_cli/templates/household/remit.toml"
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 108, 20
STEP_MS = 30
RUN = "0198f2a41c30b7d25e9a6c14"
TASK = "Look closely at every receipt"
QUESTION = "Do the receipts agree with the bank?"
OBJECTIVE = "Review this API for security issues"
SAID = (
    (
        "Review this API for security issues: Which of its endpoints need no login?",
        "Only /health and /login need none.",
    ),
    (
        "Review this API for security issues: What happens to a token when its user is deleted?",
        "Its tokens live on until they expire, for a day at most.",
    ),
    (
        "Review this API for security issues: do the tokens end as https://oauth.net/2/token-revocation/ says?",
        "",
    ),
)

# No font is fetched from elsewhere: a picture in the docs must not tell anyone who reads them.
SVG = re.sub(
    r"@font-face \{\{.*?\}\}\s*", "", signature(Console.export_svg).parameters["code_format"].default, flags=re.DOTALL
)


async def recorded(task: str, folder: Path) -> list[Record]:
    """Return the records of one run."""
    async with hub_of(load_team(TEAM), store=folder / "hub.db") as hub:
        return retimed([record async for record in hub.stream("orchestrator", task, user="ada")])


def retimed(records: Sequence[Record]) -> list[Record]:
    """Return the records as if each had come a step after the one before it."""
    started: dict[str, int] = {}
    new_records: list[Record] = []
    for place, record in enumerate(records):
        at_ms, body = place * STEP_MS, record.body
        match body:
            case Request():
                started[body.id] = at_ms
            case Response():
                body = replace(body, duration_ms=at_ms - started.get(body.id, at_ms))
            case _:
                pass
        new_records.append(replace(record, at_ms=at_ms, body=body))
    return new_records


def screen(command: str) -> Console:
    """Return an empty screen on which someone has typed a command."""
    nowhere = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=nowhere, force_terminal=True, color_system="truecolor"
    )
    console.print(Text(f"$ {command}", style="bold"), no_wrap=True, overflow="crop")
    return console


def save(console: Console, name: str, title: str) -> None:
    """Write what a screen shows."""
    svg = console.export_svg(title=title, theme=MONOKAI, code_format=SVG, unique_id=f"remit-{name}")
    lines = (line.rstrip() for line in svg.splitlines())
    (IMAGES / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_live(records: Sequence[Record]) -> None:
    """Draw a run when four receipts have been compared with the bank."""
    console, tree = screen(f'remit run orchestrator "{TASK}"'), Tree()
    _, _, _, fourth, *_ = (
        record for record in records if isinstance(record.body, Progress) and record.body.agent == "analyst"
    )
    for record in records[: records.index(fourth) + 1]:
        tree.feed(record)
    console.print(LiveTree(tree, lambda: fourth.at_ms, console).drawn(HEIGHT))
    save(console, "run-live", "a run under way")


def draw_end(records: Sequence[Record]) -> None:
    """Draw the run when it has ended: one call was refused, one failed, one ran out of time."""
    console, tree = screen(f'remit run orchestrator "{TASK}" > answer.md'), Tree()
    for record in records:
        tree.feed(record)
    assert tree.response is not None
    console.print(LiveTree(tree, lambda: 0, console).drawn(HEIGHT))
    for line in ("", *summary(tree, tree.response), f"→ remit runs show {short(RUN)}"):
        console.print(Text(line))
    save(console, "run-end", "a run that has ended")


def draw_asked(records: Sequence[Record]) -> None:
    """Draw what a user reads: what is being done, the answer, and what they are asked."""
    console, tree, speakers = screen(f'remit ask "{QUESTION}"'), Tree(), {"orchestrator", *load_team(TEAM).workflows}
    for record in records:
        node = tree.feed(record)
        if isinstance(record.body, Progress) and node.agent in speakers:
            console.print(Text(record.body.text))
    assert tree.response is not None
    reply = f'It asks you a question. Reply with: remit ask --session {RUN} "…"'
    for line in ("", text_of(tree.response.result), "", *summary(tree, tree.response, plainly=True), reply):
        console.print(Text(line))
    console.print(Text(f"→ remit runs show {short(RUN)}"))
    save(console, "ask", "what a user reads")


def draw_chat() -> None:
    """Draw a chat with a shared agent, when a draft waits because of a rule."""
    console, chat = screen(f'remit chat reviewer bob-desktop --objective "{OBJECTIVE}"'), chatted()
    now_ms = chat.timeline[-1].at_ms
    run = view(chat, Surroundings(now_ms=now_ms))
    for line in heading(run, "bob-desktop"):
        console.print(Text(line))
    for entry in run.timeline:
        speaker, *text = entry_lines(entry)
        console.print(Text(speaker, style=f"bold {COLOURS[entry.role]}"))
        for line in text:
            console.print(Text(line))
    first, *lines, last = footer(run, connection="connected", question=None, now_ms=now_ms, width=WIDTH - 1, height=24)
    console.print(Text(first, style="bold"))
    for line in lines:
        console.print(Text(line))
    console.print(Text(last, style="dim"))
    console.print(Text("> "))
    save(console, "chat-shared", "two agents at work, and somebody who decides")


def chatted() -> Overlay:
    """Return a run in which two messages were sent, and a third waits."""
    begun = datetime.now().astimezone().replace(hour=16, minute=40, second=39, microsecond=0)
    now_ms = int(begun.timestamp() * 1_000)
    run = Overlay(
        id=RUN, profile="reviewer", device="bob", session="s", objective=OBJECTIVE, mode="semi_auto", agent="api-expert"
    )
    run, effects = stepped(run, Start(), now_ms)
    for question, answer in SAID:
        (prompt,) = (each for each in effects if isinstance(each, Prompt))
        run, _ = stepped(run, Prompted(prompt.id), now_ms)
        draft = Draft(text=question, confidence=0.9)
        facts = ReviewFacts(objective=OBJECTIVE, remote_message="", first_contact=not run.timeline, detect=no_findings)
        now_ms += 1_000
        run, effects = stepped(run, Drafted(prompt.id, draft, reviews(draft, facts, ReviewRules())), now_ms)
        if not answer:
            break
        if run.pending is not None:
            run, effects = stepped(run, Approve(run.pending.id), now_ms)
        (send,) = (each for each in effects if isinstance(each, Send))
        run, _ = stepped(run, Sent(send.id), now_ms)
        now_ms += 1_000
        run, effects = stepped(run, Arrived(answer), now_ms)
    return run


def stepped(run: Overlay, event: Event, now_ms: int) -> tuple[Overlay, tuple[Effect, ...]]:
    """Return a run after something has happened, and what follows."""
    taken = step(run, event, now_ms)
    assert isinstance(taken, Transition), taken
    return taken.overlay, taken.effects


def no_findings(_: str) -> tuple[()]:
    """Say that a text holds nothing personal."""
    return ()


async def main() -> None:
    """Run the team and draw what was seen."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        records, question_records = [await recorded(task, Path(folder)) for task in (TASK, QUESTION)]
    draw_live(records)
    draw_end(records)
    draw_asked(question_records)
    draw_chat()


if __name__ == "__main__":
    asyncio.run(main())
