"""A team for tests of the command line: its agents wait at gates that a test opens."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from commands import REMIT, run

__all__ = ["REMIT", "documents", "make_crew", "remit"]

TEAM = """
name = "crew"

[store]
durability = "process"

[limits]
grace = "300ms"

[agents.lead]
run = "crew_code:lead"
may_call = ["*"]

[agents.worker]
run = "crew_code:worker"
tools = ["look"]

[agents.hello]
run = "crew_code:hello"

[agents.noisy]
run = "crew_code:noisy"

[agents.failing]
run = "crew_code:failing"

[agents.half]
run = "crew_code:half"

[agents.stubborn]
run = "crew_code:stubborn"

[agents.deaf]
run = "crew_code:deaf"

[agents.payer]
run = "crew_code:payer"

[agents.boss]
run = "crew_code:boss"
may_call = ["payer"]

[agents.speaker]
run = "crew_code:speaker"

[agents.planner]
run = "crew_code:planner"
may_call = ["worker"]

[tools.look]
run = "crew_code:look"
safe_to_repeat = true

[[rules]]
to = "payer"
then = "ask"
say = "May the payer pay?"
edit = ["objective", "input"]
"""

CODE = r'''
import asyncio
import subprocess
import time
from pathlib import Path

from remit import Answer, Brief, Call

HERE = Path(__file__).parent


async def gate(name):
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)


def look(what: str) -> int:
    return len(what)


async def lead(brief: Brief) -> Answer:
    """Asks two workers at once, and then itself, which is refused."""
    calls = [Call(target="worker", objective=which) for which in ("first", "second")]
    first, second = await brief.fan_out(calls)
    again = await brief.delegate("lead", objective="again")
    return Answer([first.result, second.result], warnings=(f"the third was {again.status}",))


async def worker(brief: Brief) -> Answer:
    """Does half at once, and the rest when the gate opens."""
    await brief.use("look", what=brief.text)
    brief.spend(prompt=100)
    half = Answer("half", finished=("one",), unfinished=("two",))
    brief.progress("half done \x1b[31mred\x1b[2J\x1b]0;title\x07\u202e", partial=half)
    await gate("go")
    return Answer(f"{brief.text} done")


async def hello(brief: Brief) -> str:
    return f"hello {brief.input or brief.text}"


async def speaker(brief: Brief) -> str:
    """Says what it answers as it goes, and waits before the last word."""
    pieces = ["One \x1b[2Jword, ", "two words,\n", *("and many more, " for _ in range(10)), f"and {brief.text}."]
    for piece in pieces:
        if piece is pieces[-1]:
            await gate("go")
        brief.say(piece)
    return "".join(pieces)


async def planner(brief: Brief) -> str:
    """Says a word, has a worker do it, and says the rest."""
    brief.say("I ask someone. ")
    reply = await brief.delegate("worker", objective=brief.text)
    brief.say("It is ")
    brief.say("done: ")
    return f"It is done: {reply.result}"


async def noisy(brief: Brief) -> dict:
    print("said by the agent")
    subprocess.run(["echo", "said by its child"])
    return {"a": 1, "b": "\x1b[31m\x9b2J"}


async def failing(brief: Brief) -> str:
    raise ValueError("no idea")


async def half(brief: Brief) -> Answer:
    return Answer("half", finished=("one",), unfinished=("two",))


def stubborn(brief: Brief) -> str:
    """Does not hear that it is cancelled."""
    (HERE / "stubborn-began").touch()
    time.sleep(120)
    return "never"


async def deaf(brief: Brief) -> str:
    """Swallows every cancellation."""
    brief.progress("hears nothing")
    while True:
        try:
            await asyncio.sleep(120)
        except asyncio.CancelledError:
            pass


async def payer(brief: Brief) -> str:
    return f"paid {brief.request.objective} {brief.input}"


async def boss(brief: Brief) -> str:
    reply = await brief.delegate("payer", objective="the invoice", input={"amount": 30})
    return str(reply.result or reply.fault.code)
'''


def make_crew(folder: Path) -> Path:
    """Write the team into a folder and return the folder."""
    (folder / "remit.toml").write_text(TEAM, encoding="utf-8")
    (folder / "crew_code.py").write_text(CODE, encoding="utf-8")
    return folder


def remit(folder: Path, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """Type a command, with neither a terminal before it nor behind it."""
    return run(arguments, folder=folder, variables={**os.environ, "PYTHONWARNINGS": "error"}, given=input or "")


def documents(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Return the JSON documents on stdout, one per line."""
    return [json.loads(line) for line in done.stdout.splitlines()]
