"""The demo of shared agents, and the local agents in its folder."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from commands import run_program
from local_agents import drafted, request
from remit.agents.program import Program
from remit_relay.bridge.ndjson import NdjsonAgent
from remit_relay.bridge.ports import Draft

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "relay"
AGENTS = {"agent.py": sys.executable, "agent.mjs": shutil.which("node")}


def test_the_demo_tells_its_story_and_ends_well(tmp_path: Path) -> None:
    """Two devices, a gateway that is killed, a local agent's process: offline, in one command."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}
    done = run_program([sys.executable, str(EXAMPLES / "demo.py")], folder=tmp_path, variables=environment)
    assert (done.returncode, done.stderr) == (0, "")
    flowing = " ".join(done.stdout.split())
    codes = re.findall(r"sees the code ((?:\d{5} ?){8})", flowing)
    assert len(codes) == 2
    assert codes[0].strip() == codes[1].strip()
    for essential in (
        r"her agent would send: .* endpoints need no login\? \[it waits for Anna, because of first_contact: ",
        r"Which of your endpoints need no login\? \(edited\) his agent Only /health and /login need none\.",
        r"What happens to a token when its user is deleted\? \(auto-sent\) his agent Its tokens live on",
        r"Bob's hub judged, ran and recorded 2 requests\]",
        r"Anna Can a token be revoked before it expires\? \(yours\)",
        r"gateway is killed in the middle: kill -9 \d+ \[what is left .* [\d,]+ sealed bytes, … (?:[0-9a-f]{4} ){8}…\]",
        r"gateway a new one starts in the same folder, as process \d+",
        r"Bob comes back, and the message reaches him his agent Yes: DELETE /tokens/\{id\}, since last week\.",
        r"refused LOOP_DETECTED: the message would return to the device anna-laptop",
        r"run completed, 2 of 8 turns: edited, auto-sent run stopped, 1 of 8 turns: yours",
        r"gateway [\d,]+ bytes in its files were searched, and of the 8 texts that were said none is there",
    ):
        assert re.search(essential, flowing), f"{essential} is not in:\n{done.stdout}"
    assert len(done.stdout.splitlines()) <= 60, "it is about a screen"


@pytest.mark.parametrize("name", AGENTS)
async def test_a_local_agent_of_the_examples_does_its_turns_in_twenty_lines(name: str) -> None:
    program = AGENTS[name]
    if program is None:
        pytest.skip("there is no Node here")
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 20
    agent = NdjsonAgent("reviewer", Program(command=program, args=(str(EXAMPLES / name),)))
    try:
        drafts = [await agent.prompt(request(turn, turn_index=turn, remote_message="I see.")) for turn in (1, 2, 3)]
    finally:
        await agent.close()
    assert drafted(drafts[0]) == "Review this API: Which of its endpoints need no login?"
    last = drafts[-1]
    assert isinstance(last, Draft)
    assert (last.done, last.text) == (True, "Two things were asked. The last answer: I see.")
