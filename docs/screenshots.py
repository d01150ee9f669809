"""Draws docs/images: what `remit run` shows of the team in examples/receipts. Run it with `make screenshots`.

The runs are real ones. Only their clock is not: each record comes a fixed time after the one before it, and the run has
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
STEP_MS = 40
RUN = "0198f2a41c30b7d25e9a6c14"
MONTH = "2026-03"
TASKS = {"RECONCILE": "Compare every receipt with the bank", "DEDUCT": "What can I deduct?"}

# No font is fetched from elsewhere: a picture in the docs must not tell anyone who reads them.
SVG = re.sub(
    r"@font-face \{\{.*?\}\}\s*", "", signature(Console.export_svg).parameters["code_format"].default, flags=re.DOTALL
)


def typed(capability: str) -> str:
    """Return the command that starts a run."""
    return f'remit run orchestrator "{TASKS[capability]}" --capability {capability} --input \'"{MONTH}"\''


async def recorded(capability: str, folder: Path) -> list[Record]:
    """Return the records of one run."""
    hub = hub_of(load_team(TEAM), store=folder / f"{capability}.db")
    async with hub:
        stream = hub.stream("orchestrator", TASKS[capability], user="ana", capability=capability, input=MONTH)
        return retimed([record async for record in stream])


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
    """Draw a run at its fourth report of progress."""
    console, tree = screen(typed("RECONCILE")), Tree()
    _, _, _, fourth, *_ = (record for record in records if isinstance(record.body, Progress))
    for record in records[: records.index(fourth) + 1]:
        tree.feed(record)
    console.print(LiveTree(tree, lambda: fourth.at_ms, console).drawn(HEIGHT))
    save(console, "run-live", "a run under way")


def draw_end(records: Sequence[Record]) -> None:
    """Draw a run that has ended, with one call in it that was refused."""
    console, tree = screen(typed("DEDUCT")), Tree()
    for record in records:
        tree.feed(record)
    assert tree.response is not None
    console.print(LiveTree(tree, lambda: 0, console).drawn(HEIGHT))
    for line in ("", *summary(tree, tree.response), f"→ remit runs show {short(RUN)}"):
        console.print(Text(line))
    console.print(Text(text_of(tree.response.result)))
    save(console, "run-end", "a run that has ended")


async def main() -> None:
    """Run the team twice and draw what was seen."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        draw_live(await recorded("RECONCILE", Path(folder)))
        draw_end(await recorded("DEDUCT", Path(folder)))


if __name__ == "__main__":
    asyncio.run(main())
