"""A plan of several parts and a hand-over to a person, by a team file and commands."""

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from commands import popen
from crew import REMIT, remit
from test_cli_resume import end_lease
from waiting import PATIENCE_S, wait_until

TEAM = """
name = "shop"

[store]
durability = "process"

[orchestrator]
reader = "ngrams"

[agents.desk]
run = "shop_code:work"
capabilities = ["HOURS", "ORDER", "CANCEL"]

[agents.people]
run = "shop_code:hand_over"
capabilities = ["PERSON"]

[capabilities.HOURS]
description = "Tell the opening hours"
examples = ["when do you open", "what are your opening hours"]
read_only = true

[capabilities.ORDER]
description = "Order a lamp"
examples = ["order a lamp", "I need a new lamp"]

[capabilities.CANCEL]
description = "Cancel a repair"
examples = ["cancel my repair", "I don't want the repair any more"]

[capabilities.PERSON]
description = "Talk to a person"
examples = ["I want to talk to somebody", "let me speak with a person"]
"""

CODE = """
import asyncio
from pathlib import Path

from msgspec import Struct

HERE = Path(__file__).parent


class Reply(Struct):
    answer: str


async def work(brief):
    with (HERE / "done.txt").open("a") as done:
        done.write(brief.capability + "\\n")
    while brief.capability == "CANCEL" and (HERE / "hang").exists():
        await asyncio.sleep(0.005)
    return f"{brief.capability} is done."


async def hand_over(brief):
    filled = await brief.fill(f"{brief.user} says: {brief.objective}", Reply)
    return filled["answer"] if filled else "Nobody is there."
"""

PLAN = "1) when do you open 2) order a lamp 3) cancel my repair"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "shop_code.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def start(shop: Path, text: str) -> "subprocess.Popen[bytes]":
    quiet = subprocess.DEVNULL
    return popen([REMIT, "ask", text, "--session", "s"], cwd=shop, stdin=quiet, stdout=quiet, stderr=quiet)


def executed(shop: Path) -> Counter[str]:
    file = shop / "done.txt"
    return Counter(file.read_text(encoding="utf-8").split() if file.exists() else [])


def questions(shop: Path) -> list[str]:
    """Return the lines about what waits for a person, once something does."""
    lines: list[str] = []

    def listed() -> bool:
        lines[:] = remit(shop, "pending", "list").stdout.splitlines()[1:]
        return lines != []

    wait_until(listed)
    return lines


def test_a_plan_that_was_killed_in_the_middle_goes_on_and_repeats_no_part_that_was_done(shop: Path) -> None:
    asked = remit(shop, "ask", PLAN, "--session", "s")
    assert "2. Order a lamp" in asked.stdout, asked.stderr
    assert executed(shop) == {}
    (shop / "hang").touch()
    doomed = start(shop, "yes")
    wait_until(lambda: executed(shop)["CANCEL"] == 1)
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.wait()
    end_lease(shop)
    (shop / "hang").unlink()
    # Whether the last part came to its end is not known, and it changes something: a person is asked before it is
    # done again.
    resuming = popen([REMIT, "runs", "resume", "last"], cwd=shop, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    [question] = questions(shop)
    assert "Cancel a repair" in question
    assert remit(shop, "pending", "reject", question.split()[0]).returncode == 0
    said, _ = resuming.communicate(timeout=PATIENCE_S)
    assert executed(shop) == {"HOURS": 1, "ORDER": 1, "CANCEL": 1}
    assert b"ORDER is done." in said


def test_a_person_to_whom_the_orchestrator_hands_over_answers_from_another_process(shop: Path) -> None:
    back = remit(shop, "ask", "let me speak with a person", "--session", "s")
    assert "Talk to a person" in back.stdout, back.stderr
    asking = popen([REMIT, "ask", "yes", "--session", "s"], cwd=shop, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    [question] = questions(shop)
    assert "let me speak with a person" in question
    name = question.split()[0]
    approved = remit(shop, "pending", "approve", name, "--edit", 'input={"answer": "Ada calls you at noon."}')
    assert approved.returncode == 0, approved.stderr
    said, _ = asking.communicate(timeout=PATIENCE_S)
    assert b"Ada calls you at noon." in said
