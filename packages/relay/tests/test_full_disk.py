"""A run goes on by itself once the disk of its device has space again, whichever of its steps could not be stored."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from command_line import REMIT, document, environment
from commands import popen
from pairs import polite, together
from remit_relay.bridge.ports import Draft, PromptRequest
from remit_relay.device import state as device_files
from remit_relay.session.moves import SessionState
from shared_teams import introduce, make_annas, make_bobs, relay, up
from waiting import PATIENCE_S, eventually, wait_until

_BASE = "unix"


class FullDisk(apsw.VFS):
    """The file system of SQLite, in which one database cannot be written while `is_full` is set."""

    def __init__(self, database: str) -> None:
        super().__init__("full-disk", _BASE, makedefault=True)
        self.database = database
        self.is_full = False
        self.refused = 0

    def xOpen(self, name: Any, flags: Any) -> Any:
        return _DiskFile(self, name, flags)


class _DiskFile(apsw.VFSFile):
    def __init__(self, disk: FullDisk, name: Any, flags: Any) -> None:
        path = name if isinstance(name, str | None) else name.filename()
        super().__init__(_BASE, name, flags)
        self._disk = disk
        self._is_on_it = path is not None and f"/{disk.database}" in path

    def xWrite(self, data: Any, offset: int) -> None:
        if self._disk.is_full and self._is_on_it:
            self._disk.refused += 1
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]


def brief(request: PromptRequest) -> Draft:
    """Say one thing, and be done after its answer."""
    draft = polite(request)
    return Draft(text=draft.text, confidence=0.9, done=request.turn_index > 1, tokens=10)


# The steps of such a run: Start, Prompted, Drafted with its message, Sent, Arrived, Prompted; the next one ends it.
@pytest.mark.parametrize("steps", range(1, 7))
async def test_a_run_goes_on_whichever_step_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(device_files, "AGAIN_S", 0.01)
    disk, stored = FullDisk("anna.db"), 0

    def fill_after_the_step() -> None:
        nonlocal stored
        stored += 1
        disk.is_full = stored == steps or disk.is_full

    try:
        async with together(tmp_path, brief, recorded=fill_after_the_step, mode="full_auto") as pair:
            run = await pair.start()
            await eventually(lambda: disk.refused > 0)
            assert pair.host.runs[0].state is not SessionState.COMPLETED
            disk.is_full = False
            run = await pair.until(run, SessionState.COMPLETED)
            assert [(each.text, each.sent_ms is not None) for each in run.timeline] == [
                ("turn 1: review this API", True),
                ("heard: turn 1: review this API", False),
            ]
            assert len(await pair.hub.store.runs(limit=10)) == 1, "the other side was asked once"
    finally:
        disk.unregister()


@contextmanager
def small_disk(folder: Path) -> Generator[None]:
    """Mount a disk of a few megabytes at *folder*."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mount.returncode != 0:
        pytest.skip(f"NOT TESTED: no disk can be mounted here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 4_096):
            pass
    assert os.statvfs(ballast.parent).f_bavail == 0


# It says which objective it was asked about, and answers once it may.
AGENT = """
import json, pathlib, sys, time

for line in sys.stdin:
    asked = json.loads(line)
    pathlib.Path({marks!r}, asked["objective"]).touch()
    while not pathlib.Path({marks!r}, "go").exists():
        time.sleep(0.02)
    turn = asked["turn_index"]
    answer = {{"type": "desktop.local_prompt.response", "request_id": asked["request_id"], "status": "ok",
        "draft_message": f"message {{turn}}", "confidence": 0.9, "done": turn > 1}}
    print(json.dumps(answer), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="NOT TESTED: only root can mount a disk")
def test_runs_of_remit_up_go_on_after_its_disk_was_full(tmp_path: Path) -> None:
    marks, disk = tmp_path / "marks", tmp_path / "disk"
    marks.mkdir()
    with relay(tmp_path) as gateway, small_disk(disk):
        annas = make_annas(disk / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        (annas / "agent.py").write_text(AGENT.format(marks=str(marks)))
        with up("up", "--json", folder=bobs), up("up", "--json", folder=annas) as device:
            # The agent drafts for the first run; the second waits for it, so neither has stored its next step.
            chats = [_chat(annas, "first")]
            wait_until((marks / "first").exists)
            chats.append(_chat(annas, "second"))
            wait_until(lambda: document("up", "--status", folder=annas)["open_runs"] == 2)
            fill(disk / "ballast")
            (marks / "go").touch()
            # The draft of the first run and the turn of the second.
            log = device.process.stderr
            assert log is not None
            for _ in range(2):
                wait_until(lambda: "the disk is full" in log.readline())
            assert not (marks / "second").exists()
            assert _states(annas) == ["planning", "waiting_local"]
            (disk / "ballast").unlink()
            for chat in chats:
                out, err = chat.communicate(timeout=PATIENCE_S)
                assert (chat.returncode, "heard: message 1" in out) == (0, True), out + err


def _chat(folder: Path, objective: str) -> "subprocess.Popen[str]":
    return popen(
        [REMIT, "chat", "mine", "bob", "--objective", objective],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def _states(folder: Path) -> list[str]:
    """Return the states of the runs, as the local API shows them."""
    process = json.loads((folder / ".remit" / "up.json").read_text())
    token = (folder / ".remit" / "shared.token").read_text().strip()
    request = urllib.request.Request(
        f"{process['address']}/v1/shared/runs", headers={"authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request) as answer:
        return sorted(each["state"] for each in json.load(answer)["runs"])
