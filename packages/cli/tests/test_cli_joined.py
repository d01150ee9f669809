"""Several `remit chat` on one device: the first one runs it, and the others join."""

import json
import os
import re
import signal
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from command_line import REMIT, document, remit
from shared_teams import introduce, make_annas, make_bobs, relay, up
from terminals import Terminal


@pytest.fixture(scope="module")
def annas(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Return Anna's folder, while a gateway and Bob's shared agent are there."""
    path = tmp_path_factory.mktemp("joined")
    with ExitStack() as stack:
        gateway = stack.enter_context(relay(path))
        annas = make_annas(path / "annas", gateway.said["address"])
        bobs = make_bobs(path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        stack.enter_context(up("share", "--json", folder=bobs))
        yield annas


@contextmanager
def opened(annas: Path, *arguments: str) -> Generator[Terminal]:
    with Terminal([REMIT, "chat", "mine", "bob", *arguments], folder=annas) as terminal:
        terminal.wait_for("mine works with bob")
        yield terminal


def test_a_second_chat_joins_the_first_and_both_see_and_decide(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual") as first:
        first.wait_for("draft needs review")
        output = json.loads((annas / ".remit" / "up.json").read_text())
        assert (annas / ".remit" / "up.json").stat().st_mode & 0o777 == 0o600
        with opened(annas, "--continue") as second:
            second.wait_for(f"The run is executed by remit chat (process {output['pid']}).", "message 1 about it")
            second.type("a\r")
            first.wait_for("Local agent (turn 1, approved)", "heard: message 1 about it", "Draft for turn 2;")
            second.wait_for("heard: message 1 about it", "Draft for turn 2;")
            with opened(annas, "--objective", "us", "--mode", "manual") as third:
                third.wait_for("message 1 about us")
                assert "about us" not in first.screen
                third.type("/quit\r")
                assert third.wait() == 0
                run = next(each["run"] for each in drafts(annas) if each["objective"] == "us")
                hint = "→ remit chat mine bob --continue, or remit pending list"
                third.wait_for(f"The run continues in remit chat (process {output['pid']}).\n{hint}\n")
                assert run not in third.screen.rsplit("→", 1)[1], "it is the newest"
            second.type("a\r")
            assert second.wait() == 0
            assert first.wait() == 0
    assert not (annas / ".remit" / "up.json").exists()
    with opened(annas, "--continue") as again:
        again.wait_for("message 1 about us")
        again.type("/stop\r")
        assert again.wait() == 0


def drafts(folder: Path) -> list[dict[str, str]]:
    return document("pending", "list", folder=folder)["drafts"]


def test_who_has_joined_is_told_when_the_first_chat_ends_and_how_to_go_on(annas: Path) -> None:
    with (
        opened(annas, "--objective", "first", "--mode", "manual") as first,
        opened(annas, "--objective", "second", "--mode", "manual") as second,
    ):
        second.wait_for("draft needs review")
        pid = json.loads((annas / ".remit" / "up.json").read_text())["pid"]
        first.type("/stop\r")
        assert first.wait() == 0
        assert second.wait() == 7
        second.wait_for(f"remit chat (process {pid}) has ended, and the runs of this device with it. They stay paused.")
        match = re.search(r"→ remit up --detach runs the device until you stop it\. Then:\s(.*)", second.screen)
        assert match is not None
        assert match[1].startswith("remit chat mine bob --continue ")
    with opened(annas, "--continue") as again:
        again.wait_for("message 1 about second", "draft needs review")
        again.type("/stop\r")
        assert again.wait() == 0


def test_a_file_of_a_chat_that_was_killed_is_replaced(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual") as killed:
        killed.wait_for("draft needs review")
        os.kill(json.loads((annas / ".remit" / "up.json").read_text())["pid"], signal.SIGKILL)
        killed.wait()
    assert (annas / ".remit" / "up.json").exists()
    with opened(annas, "--continue") as terminal:
        terminal.wait_for("draft needs review")
        assert "The run is executed by" not in terminal.screen
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    assert not (annas / ".remit" / "up.json").exists()


def test_settings_that_a_running_device_does_not_have_are_refused(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual") as first:
        first.wait_for("draft needs review")
        limit = ("--set", "profiles.mine.limits.max_turns=1")
        refused = remit("chat", "mine", "bob", "--objective", "us", *limit, folder=annas)
        assert refused.returncode == 1, refused.stderr
        assert "STATE_CONFLICT: --set has no effect: remit chat (process " in refused.stderr
        assert "→ Leave out --set, or end that process first.\n" in refused.stderr
        first.type("/stop\r")
        assert first.wait() == 0
