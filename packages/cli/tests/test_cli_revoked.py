"""A device that is revoked is told so, and what the two devices were doing together ends on both sides."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from command_line import REMIT, document, remit
from shared_teams import Up, device_of, introduce, make_annas, make_bobs, relay, up
from terminals import Terminal
from waiting import wait_until

# It answers nothing until it is cancelled.
SLOW = """
import asyncio, pathlib

async def helper(brief):
    pathlib.Path("asked").touch()
    await asyncio.Event().wait()
"""


class Devices:
    """Anna's and Bob's folders, with both devices running and one of Anna's runs waiting for Bob's agent."""

    def __init__(self, annas: Path, bobs: Path, anna: Up, bob: Up, chat: Terminal) -> None:
        self.annas, self.bobs, self.anna, self.bob, self.chat = annas, bobs, anna, bob, chat


@contextmanager
def at_work(path: Path) -> Generator[Devices]:
    with relay(path) as gateway:
        annas = make_annas(path / "annas", gateway.said["address"])
        bobs = make_bobs(path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        (bobs / "bobs_code.py").write_text(SLOW)
        with (
            up("up", "--json", folder=bobs) as bob,
            up("up", "--json", folder=annas) as anna,
            Terminal([REMIT, "chat", "mine", "bob", "--objective", "it"], folder=annas) as chat,
        ):
            chat.wait_for("auto-sent")
            wait_until((bobs / "asked").exists)
            yield Devices(annas, bobs, anna, bob, chat)


def bobs_run(bobs: Path) -> dict[str, Any] | None:
    """Return Bob's run for Anna, once it has ended."""
    (run,) = document("runs", "list", folder=bobs)["runs"]
    return run if run["status"] == "cancelled" else None


@pytest.mark.parametrize("revoker", ["bob", "anna"])
def test_a_revocation_ends_the_run_on_both_sides_and_says_why(tmp_path: Path, revoker: str) -> None:
    revoked = {"bob": "anna", "anna": "bob"}[revoker]
    with at_work(tmp_path) as devices:
        folders = {"anna": devices.annas, "bob": devices.bobs}
        done = remit("devices", "revoke", revoked, folder=folders[revoker])
        assert done.returncode == 0, done.stderr
        assert "It is told when this device is connected." in done.stderr
        # Anna's chat, which is a client of her device.
        annas_words = "bob has revoked this device" if revoker == "bob" else "this device has revoked bob"
        devices.chat.wait_for(f"The run has ended: {annas_words}")
        assert devices.chat.wait() == 4
        # The work of Bob's agent.
        run = wait_until(lambda: bobs_run(devices.bobs))
        assert run is not None
        bobs_words = "this device has revoked anna" if revoker == "bob" else "anna has revoked this device"
        shown = remit("runs", "show", run["run"], folder=devices.bobs)
        assert bobs_words in shown.stdout, shown.stdout
        # The list of devices, and what a new attempt gets.
        (listed,) = document("devices", "list", folder=folders[revoked])["devices"]
        assert (listed["revoked"], listed["revoked_there"]) == (False, True)
        again = remit("chat", "mine", "bob", "--objective", "it", folder=devices.annas)
        assert again.returncode != 0
        assert annas_words in again.stderr
        assert "PERMISSION_DENIED" in devices.bob.end(signal.SIGINT)


def test_a_device_that_was_off_is_told_later_and_nothing_else_reaches_it(tmp_path: Path) -> None:
    """Bob revokes Anna while his own device is off, too; the message waits for both of them."""
    with at_work(tmp_path) as devices:
        devices.chat.type("\x03")
        devices.chat.wait_for("Paused. Nothing is sent.")
        remit("up", "--stop", folder=devices.annas)
        remit("up", "--stop", folder=devices.bobs)
        assert remit("devices", "revoke", device_of(devices.annas), folder=devices.bobs).returncode == 0
        with up("up", "--json", folder=devices.bobs), up("up", "--json", folder=devices.annas) as anna:
            assert anna.said["open_runs"] in (0, 1)
            wait_until(lambda: document("up", "--status", folder=devices.annas)["open_runs"] == 0)
            (listed,) = document("devices", "list", folder=devices.annas)["devices"]
            assert listed["revoked_there"]
