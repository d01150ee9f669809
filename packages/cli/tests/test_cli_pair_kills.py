"""One of two `remit pair` is killed in the middle: each side is paired whole or not at all, and says what is true."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from command_line import REMIT, environment
from commands import popen
from pairing import Between
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.team.device import using_device
from shared_teams import make_annas, make_bobs, relay, team_in
from waiting import PATIENCE_S

# Of the six notes of a pairing, the host sends 1, 3 and 5, the guest 2, 4 and 6. A side records the other one between
# what it receives and what it sends next: the host before 5, the guest before 6.
NOTHING = "nothing was paired"
UNSURE = "nothing was paired here, but it may already list this device"
UNCONFIRMED = "anna has not confirmed. If it does not list this device, pair again."
PAIRED = "bob is paired and verified."


class Case(NamedTuple):
    """Who is killed when which note has reached the way to the gateway, and whether the note goes on."""

    killed: Literal["host", "guest"]
    note: int
    passes: bool
    paired: tuple[bool, bool]
    """Whether the host has the guest afterwards, and the guest the host."""
    says: str
    """What the other side says."""


CASES = [
    Case("host", 2, passes=True, paired=(False, False), says=NOTHING),
    Case("host", 3, passes=False, paired=(False, False), says=NOTHING),
    Case("host", 3, passes=True, paired=(False, False), says=NOTHING),
    Case("host", 5, passes=False, paired=(True, False), says=UNSURE),
    Case("host", 5, passes=True, paired=(True, True), says=PAIRED),
    Case("guest", 2, passes=False, paired=(False, False), says=NOTHING),
    Case("guest", 3, passes=True, paired=(False, False), says=NOTHING),
    Case("guest", 4, passes=True, paired=(True, False), says=UNCONFIRMED),
    Case("guest", 6, passes=False, paired=(True, True), says=UNCONFIRMED),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with relay(tmp_path_factory.mktemp("relay")) as started:
        yield started.said["address"]


class Tap:
    """Counts the notes on their way to the gateway, and calls *strike* at one of them."""

    def __init__(self, note: int, strike: Callable[[], None], *, passes: bool) -> None:
        self._note = note
        self._strike = strike
        self._passes = passes
        self._count = 0

    def __call__(self, _number: int, way: str, text: str) -> list[str]:
        if way == "up" and json.loads(text)["type"] == "note":
            self._count += 1
            if self._count == self._note:
                self._strike()
                return [text] if self._passes else []
        return [text]


class Sides:
    """The processes of the two, which are started one after the other."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, side: str, *arguments: str, folder: Path) -> "subprocess.Popen[str]":
        self.processes[side] = process = popen(
            [REMIT, "pair", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        return process

    def kill(self, side: str) -> None:
        self.processes[side].kill()
        self.processes[side].wait(PATIENCE_S)

    async def code(self) -> str:
        """Return the code that the host shows."""
        out = self.processes["host"].stdout
        assert out is not None
        code = (await asyncio.to_thread(out.readline)).strip()
        assert code, self.processes["host"].communicate()[1]
        return code

    async def output(self, side: str) -> str:
        """Return what a side wrote until it ended."""
        _, output = await asyncio.to_thread(self.processes[side].communicate, timeout=PATIENCE_S)
        return output


def peers_of(folder: Path) -> list[PeerDevice]:
    with using_device(team_in(folder)) as device:
        return Peers(device.state).list()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.killed}-{case.note}-{case.passes}")
async def test_a_side_that_is_killed_is_paired_whole_or_not_at_all(gateway: str, tmp_path: Path, case: Case) -> None:
    sides = Sides()
    tap = Tap(case.note, lambda: sides.kill(case.killed), passes=case.passes)
    async with Between(tap) as between:
        url = between.before(gateway)
        annas, bobs = make_annas(tmp_path / "annas", url), make_bobs(tmp_path / "bobs", url)
        sides.start("host", "--let-ask", "helper", folder=bobs)
        sides.start("guest", await sides.code(), "--use", "mine", folder=annas)
        other = "guest" if case.killed == "host" else "host"
        output = await sides.output(other)
        await sides.output(case.killed)
        assert case.says in output
        assert sides.processes[case.killed].returncode == -9
        is_other_paired = case.paired[1 if other == "guest" else 0]
        assert (sides.processes[other].returncode == 0) is is_other_paired, output
        assert is_other_paired or "→ " in output, "it says what to do"
        check(bobs, annas, case.paired)
        # One more pairing mends whatever was left, over the same tap, which has struck.
        sides.start("host", "--let-ask", "helper", folder=bobs)
        sides.start("guest", await sides.code(), "--use", "mine", folder=annas)
        for side in ("host", "guest"):
            output = await sides.output(side)
            assert sides.processes[side].returncode == 0, output
        check(bobs, annas, (True, True))


def check(bobs: Path, annas: Path, paired: tuple[bool, bool]) -> None:
    """Make sure that each side has the other one with all that was granted, or does not know it."""
    hosts, guests = peers_of(bobs), peers_of(annas)
    assert [(each.card.name, each.verified, each.agents, each.allowed) for each in hosts] == (
        [("anna", True, {"helper"}, True)] if paired[0] else []
    )
    assert [(each.card.name, each.verified, each.profiles, each.may_talk) for each in guests] == (
        [("bob", True, {"mine"}, True)] if paired[1] else []
    )
