"""A guard that cannot write: what cannot be recorded does not start, and the rest goes on."""

import asyncio
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from claude_hooks import ClaudeCodeHooking, guarding, outcome
from remit_guard.settings import GuardSettings

# Another process, since locks of SQLite are between processes.
HOLDING = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""
DAY = GuardSettings(tokens=100_000, reserve=100, at_once=1, day=10_000, at_limit="stop")


async def test_what_cannot_be_recorded_does_not_start_and_holds_no_place(tmp_path: Path) -> None:
    """Another process holds the store: it could as well be full."""
    async with guarding(tmp_path, DAY) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        await tool.hook("SessionStart")
        command = [sys.executable, "-c", HOLDING, str(tmp_path / "guard" / "hub.db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
            refused = await tool.spawn(1)
            holder.stdin.close()
        assert "A sub-agent that cannot be recorded may not start: " in str(refused)
        assert "another process keeps it locked" in str(refused)
        assert await tool.spawn(2) is None


async def test_tokens_of_a_day_that_cannot_be_written_count_and_stop_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarding(tmp_path, DAY) as web:
        (tmp_path / "guard" / "days" / f"{datetime.now().astimezone().date().isoformat()}.jsonl").mkdir()
        tool = ClaudeCodeHooking(web, tmp_path)
        tool.says("one")
        assert await tool.hook("Stop") == {}
        assert await tool.spawn(1) is None
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 60
    assert "the tokens of a day are not written" in caplog.text


async def test_an_event_that_is_not_understood_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A tool may change what it tells: the guard does not stop it, and says that it counts nothing."""
    async with guarding(tmp_path, DAY) as web:
        nested = b'{"tool_response": ' + b"[" * 100_000
        for body in (
            b'{"session_id": "s", "hook_event_name": "SubagentStop", "agent_id": null}',
            nested,
            b'{"cwd": "\xff"}',
        ):
            async with web.post("/hooks/claude-code", data=body) as reply:
                assert reply.status == 400
    assert caplog.text.count("an event of claude-code is not understood, and does not count") == 3
