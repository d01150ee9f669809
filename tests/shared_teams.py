"""Two folders with a team and a device each, and a gateway: what tests of the relay's commands share."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import REMIT, document, environment
from commands import popen
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_relay.device.peers import Peers
from remit_relay.team.device import create_device, using_device
from waiting import PATIENCE_S

BOB = """
name = "bobs"

[store]
durability = "process"

[relay]
gateway = "{gateway}"

[agents.helper]
run = "bobs_code:helper"

[shared.helper]
devices = ["anna"]
# Many tests in a minute work with the same two devices.
rate = {{ calls = 1_000, seconds = 60 }}
"""
BOBS_CODE = """
async def helper(brief):
    return f"heard: {brief.text}"
"""
ANNA = """
name = "annas"

[store]
durability = "process"

[relay]
gateway = "{gateway}"
user = "anna@example.org"

[profiles.mine]
run = {run}
allow_shared_agent_calls = true
devices = ["bob"]
mode = "full_auto"
rate = {{ calls = 1_000, seconds = 60 }}
"""
# A local agent in a few lines: it speaks twice, and is done.
ANNAS_AGENT = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    turn = asked["turn_index"]
    answer = {
        "type": "desktop.local_prompt.response",
        "request_id": asked["request_id"],
        "status": "ok",
        "draft_message": f"message {turn} about {asked['objective']}",
        "confidence": 0.9,
        "done": turn > 2,
    }
    print(json.dumps(answer), flush=True)
"""
NOWHERE = "ws://127.0.0.1:9"


def make_annas(folder: Path, gateway: str = NOWHERE) -> Path:
    """Return a folder with the team whose local agent asks, and its device."""
    folder.mkdir()
    (folder / "agent.py").write_text(ANNAS_AGENT)
    (folder / "remit.toml").write_text(ANNA.format(gateway=gateway, run=json.dumps([sys.executable, "agent.py"])))
    create_device(team_in(folder), "anna").state.close()
    return folder


def make_bobs(folder: Path, gateway: str = NOWHERE) -> Path:
    """Return a folder with the team that shares an agent, and its device."""
    folder.mkdir()
    (folder / "bobs_code.py").write_text(BOBS_CODE)
    (folder / "remit.toml").write_text(BOB.format(gateway=gateway))
    create_device(team_in(folder), "bob").state.close()
    return folder


def team_in(folder: Path) -> Team:
    return load_team(folder / "remit.toml", secrets=False, code=False)


def link_of(folder: Path) -> str:
    with using_device(team_in(folder)) as device:
        return device.card.link()


def device_of(folder: Path) -> str:
    with using_device(team_in(folder)) as device:
        return device.id


def introduce(annas: Path, bobs: Path) -> None:
    """Have both know each other, so that Anna may ask Bob."""
    with using_device(team_in(annas)) as anna, using_device(team_in(bobs)) as bob:
        for ours, theirs in ((anna, bob), (bob, anna)):
            peers = Peers(ours.state)
            peers.verify(peers.pair(theirs.card).device)
        Peers(anna.state).share(bob.id)
        Peers(bob.state).allow(anna.id)


def introduce_by_typing(annas: Path, bobs: Path) -> None:
    """Do the same as their owners would."""
    codes = {
        document("devices", "pair", link_of(theirs), "--verified", folder=ours)["code"]
        for ours, theirs in ((annas, bobs), (bobs, annas))
    }
    assert len(codes) == 1, "both see the same code"
    assert document("devices", "allow", "bob", "--one-way", folder=annas)["device"]["shared"]
    assert document("devices", "allow", "anna", folder=bobs)["device"]["allowed"]


class Up:
    """A command that goes on until it is told to end, and what it printed first."""

    def __init__(self, process: subprocess.Popen[str], announced: dict[str, Any]) -> None:
        self.process = process
        self.said = announced

    def line(self) -> dict[str, Any]:
        """Return the next document that it prints."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self, number: int) -> str:
        """Send it a signal, make sure that it ends well, and return what it said on stderr."""
        self.process.send_signal(number)
        _, output = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, output
        return output


@contextmanager
def up(*arguments: str, folder: Path, **variables: str) -> Generator[Up]:
    """Start a command that prints a document once it is up."""
    process = popen(
        [REMIT, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield Up(process, json.loads(line))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def relay(folder: Path, *arguments: str) -> Generator[Up]:
    """Start a gateway on any port."""
    with up("relay", "--json", "--port", "0", *arguments, folder=folder) as started:
        yield started
