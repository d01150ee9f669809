"""The guard as a process: in the background, alone, and started by the system."""

import asyncio
import json
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession, UnixConnector

from claude_hooks import ClaudeCodeHooking, guarding, record
from command_line import document, remit
from guard_desk import Desk
from remit.ports import Decision
from remit.runtime.approvers import decide
from remit_guard import daemon
from remit_guard.install import install
from remit_guard.settings import GuardSettings
from remit_guard.tools.claude_code import ClaudeCode


def test_it_runs_in_the_background_once_and_is_stopped(tmp_path: Path) -> None:
    where = {"REMIT_GUARD": str(tmp_path / "guard")}
    assert remit("guard", "stop", folder=tmp_path, **where).stdout == "The guard does not run.\n"
    started = remit("guard", "serve", "--detach", folder=tmp_path, **where)
    try:
        assert started.stdout.startswith("The guard runs as process "), started.stderr
        process = started.stdout.split()[-1].rstrip(".")
        again = remit("guard", "serve", "--detach", folder=tmp_path, **where)
        assert again.stdout == f"The guard already runs, as process {process}.\n"
        second = remit("guard", "serve", folder=tmp_path, **where)
        assert f"the guard already runs, as process {process}" in second.stderr
        assert "→ See: remit guard status. To end it: remit guard stop" in second.stderr
    finally:
        stopped = remit("guard", "stop", folder=tmp_path, **where)
    assert stopped.stdout.startswith(f"Stopped process {process}."), stopped.stderr
    assert "The guard does not run" in remit("guard", "status", folder=tmp_path, **where).stdout


def test_what_fails_at_the_start_is_told(tmp_path: Path) -> None:
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "hub.db").write_text("this is no store, and never was one")
    done = remit("guard", "serve", "--detach", folder=tmp_path, REMIT_GUARD=str(tmp_path / "guard"))
    assert done.returncode == 1
    assert "the process of the guard exited with code" in done.stderr
    assert "not a store" in done.stderr or "not a database" in done.stderr


def test_the_system_can_start_it(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("[guard]\ntokens = 5\n")
    done = remit("guard", "serve", "--install", "--print", folder=tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done.stderr == f"# {tmp_path}/config/systemd/user/remit-guard.service\n"
    assert f'"guard" "serve" "--team" "{tmp_path}/remit.toml"\n' in done.stdout
    elsewhere = {"REMIT_GUARD": str(tmp_path / 'my "guard" 100%')}
    done = remit("guard", "serve", "--install", "--print", folder=tmp_path, **elsewhere)
    assert f'"REMIT_GUARD={tmp_path}/my \\"guard\\" 100%%"\n' in done.stdout, "where its hooks ask"
    both = remit("guard", "serve", "--install", "--detach", folder=tmp_path)
    assert "cannot be combined" in both.stderr
    assert "--print needs --install" in remit("guard", "serve", "--print", folder=tmp_path).stderr


def test_a_client_that_sends_half_an_event_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    """A tool that was suspended in the middle of a hook stays connected for as long as it likes."""
    where = {"REMIT_GUARD": str(tmp_path / "guard")}
    remit("guard", "serve", "--detach", folder=tmp_path, **where)
    with socket.socket(socket.AF_UNIX) as half:
        half.connect(str(tmp_path / "guard" / "guard.sock"))
        half.sendall(b"POST /hooks/claude-code HTTP/1.1\r\nHost: guard\r\nContent-Length: 9\r\n\r\n{")
        assert "as process" in remit("guard", "status", folder=tmp_path, **where).stdout, "it has the half"
        stopped = remit("guard", "stop", folder=tmp_path, **where)
    assert stopped.stdout.startswith("Stopped process"), stopped.stderr


def test_one_that_cannot_be_reached_is_neither_alive_nor_gone_and_can_be_stopped(tmp_path: Path) -> None:
    """Somebody has removed its socket: the tools do not reach it, and it keeps others from starting."""
    where = {"REMIT_GUARD": str(tmp_path / "guard")}
    remit("guard", "serve", "--detach", folder=tmp_path, **where)
    (tmp_path / "guard" / "guard.sock").unlink()
    status = remit("guard", "status", folder=tmp_path, **where)
    assert (status.returncode, "but does not answer" in status.stdout) == (1, True), status.stdout
    assert remit("guard", "stop", folder=tmp_path, **where).stdout.startswith("Stopped process")
    assert "The guard does not run" in remit("guard", "status", folder=tmp_path, **where).stdout


def test_a_folder_that_cannot_be_used_is_told_in_a_sentence(tmp_path: Path) -> None:
    """A path that has no room in the address of a socket, and a home that cannot be written."""
    long, closed = tmp_path / ("d" * 110), tmp_path / "file"
    closed.touch()
    commands = (["serve"], ["serve", "--detach"], ["claude-code", "--yes"])
    for folder, sentence in ((long, "is too long for a socket in it"), (closed / "guard", "cannot be written")):
        for command in commands:
            where = {"REMIT_GUARD": str(folder), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")}
            done = remit("guard", *command, folder=tmp_path, **where)
            assert done.returncode, done.stdout
            assert (sentence in done.stderr, "Traceback" in done.stderr) == (True, False), done.stderr
    assert not (tmp_path / "claude").exists()


async def test_its_socket_is_for_its_user_alone(tmp_path: Path) -> None:
    """The folder may have been made by somebody who lets others in."""
    (tmp_path / "guard").mkdir(mode=0o755)
    async with guarding(tmp_path):
        assert (tmp_path / "guard" / "guard.sock").stat().st_mode & 0o777 == 0o600


async def test_questions_of_a_guard_that_was_killed_wait_no_longer(tmp_path: Path) -> None:
    """Nobody would do anything with an answer to them."""
    desk = Desk(tmp_path)
    with desk.guard(tokens=20, reserve=100, notify="false") as process:
        connector = UnixConnector(path=str(tmp_path / "guard" / "guard.sock"))
        async with ClientSession("http://guard", connector=connector) as web, record(tmp_path) as store:
            spawn = asyncio.create_task(ClaudeCodeHooking(web, tmp_path).spawn(1))
            while not await store.pending():
                await asyncio.sleep(0.01)
            process.kill()
            with pytest.raises(ClientError):
                await spawn
            assert len(await store.pending()) == 1
    async with guarding(tmp_path), record(tmp_path) as store:
        assert await store.pending() == []


@contextmanager
def asked(tmp_path: Path, desk: Desk) -> Generator[subprocess.Popen[bytes]]:
    """Have a hook of the tool wait for a person."""
    install(ClaudeCode(), tmp_path / "settings.json", tmp_path / "guard")
    script = tmp_path / "guard" / "hook.sh"
    script.write_text(script.read_text().replace("--speed-time 60", "--speed-time 2"))
    given = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "claude -p x"}}
    event = {"session_id": "s-1", "hook_event_name": "PreToolUse", "transcript_path": str(tmp_path / "s-1.jsonl")}
    hook = subprocess.Popen(
        [script, "claude-code", "spawn", "3000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert hook.stdin is not None
    hook.stdin.write(json.dumps({**event, **given}).encode())
    hook.stdin.close()
    hook.stdin = None
    while not document("pending", "list", "--store", desk.store, folder=tmp_path)["questions"]:
        assert hook.poll() is None
        time.sleep(0.1)
    yield hook
    hook.wait()


def test_a_hook_waits_for_a_person_and_not_for_a_guard_that_hangs(tmp_path: Path) -> None:
    """Its patience is for silence: the guard is heard while it asks, and its answer is the same after a while."""
    desk = Desk(tmp_path)
    with desk.guard(shell="ask", notify="false") as guard, asked(tmp_path, desk) as hook:
        guard.send_signal(signal.SIGSTOP)
        _, error = hook.communicate()
        guard.send_signal(signal.SIGCONT)
        assert hook.returncode == 2
        assert b"the guard does not answer, so no sub-agent may start" in error


async def test_an_answer_after_a_while_is_that_of_the_person_and_one_that_breaks_off_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "BEAT_S", 0.05)
    given = {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "claude -p x"}}
    event = {"session_id": "s-1", "hook_event_name": "PreToolUse", "transcript_path": str(tmp_path / "s-1.jsonl")}
    connector = UnixConnector(path=str(tmp_path / "guard" / "guard.sock"))
    async with ClientSession("http://guard", connector=connector) as web:
        async with guarding(tmp_path, GuardSettings(shell="ask", notify=False)), record(tmp_path) as store:
            async with web.post("/hooks/claude-code", json={**event, **given}) as reply:
                assert await reply.content.readexactly(2 * len(daemon.BEAT)) == 2 * daemon.BEAT
                (question,) = await store.pending()
                await decide(store, question.id, Decision(agreed=False, by="ada"))
                answer = json.loads(await reply.read())
            assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
            late = await web.post("/hooks/claude-code", json={**event, **given, "tool_use_id": "u"})
        with pytest.raises(ClientError):
            await late.read()
