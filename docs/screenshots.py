"""Draws docs/images: what `remit` shows of the team in examples/receipts. Run it with `make screenshots`.

The runs are real ones. Only their clock is not: each record comes a fixed time after the one before it, and a run has
a fixed id, so that the pictures differ only if what they show does.
"""

import asyncio
import io
import re
import tempfile
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from remit.faces.cli.show.live import LiveTree
from remit.faces.cli.show.report import short, summary
from remit.faces.cli.show.tree import Tree
from remit.faces.composition import hub_of
from remit.faces.team.file import load_team
from remit.protocol.codec import text_of
from remit.protocol.envelope import Request, Response
from remit.protocol.records import Progress, Record

ROOT = Path(__file__).parent.parent
TEAM = ROOT / "examples" / "receipts" / "remit.toml"
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 108, 20
STEP_MS = 30
RUN = "0198f2a41c30b7d25e9a6c14"
TASK = "Look closely at every receipt"
QUESTION = "Do the receipts agree with the bank?"

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
    told: list[Record] = []
    for place, record in enumerate(records):
        at_ms, body = place * STEP_MS, record.body
        match body:
            case Request():
                started[body.id] = at_ms
            case Response():
                body = replace(body, duration_ms=at_ms - started.get(body.id, at_ms))
            case _:
                pass
        told.append(replace(record, at_ms=at_ms, body=body))
    return told


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
    reply = f'It asks you something. Reply with: remit ask --session {RUN} "…"'
    for line in ("", text_of(tree.response.result), "", *summary(tree, tree.response, plainly=True), reply):
        console.print(Text(line))
    console.print(Text(f"→ remit runs show {short(RUN)}"))
    save(console, "ask", "what a user reads")


async def main() -> None:
    """Run the team and draw what was seen."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        records, asked = [await recorded(task, Path(folder)) for task in (TASK, QUESTION)]
    draw_live(records)
    draw_end(records)
    draw_asked(asked)


if __name__ == "__main__":
    asyncio.run(main())
