"""Files of JSON lines that grow, break, shrink, or are no files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from claude_hooks import ClaudeCodeHooking, guarding, outcome
from remit_guard.tools.json_lines import GrowingFile


def numbers(file: GrowingFile) -> list[Any]:
    return [entry["n"] for entry in file.added() if "n" in entry]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n"')
    file = GrowingFile(path)
    assert numbers(file) == [1]
    with path.open("ab") as more:
        more.write(b": 2}\n")
    assert (numbers(file), numbers(file)) == ([2], [])


def test_a_file_that_was_cut_off_or_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Otherwise what a tool spends after it rewrote its transcript would not count."""
    path, new = tmp_path / "t.jsonl", tmp_path / "new"
    path.write_bytes(b'{"n": 1}\n{"n": 2}\n')
    file = GrowingFile(path)
    assert numbers(file) == [1, 2]
    path.write_bytes(b'{"n": 3}\n')
    assert numbers(file) == [3]
    new.write_bytes(b'{"n": 4}\n{"n": 5}\n')
    new.replace(path)
    assert numbers(file) == [4, 5]


@pytest.mark.parametrize(
    "broken", [b"\xff\xfe{", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"7", b'"' + b"x" * 5_000_000 + b'"']
)
def test_a_line_that_cannot_be_read_hides_no_other(broken: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"n": 1}\n' + broken + b'\n{"n": 2}\n')
    assert numbers(GrowingFile(path)) == [1, 2]


def test_tokens_beside_bytes_that_are_not_utf_8_count(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"n": 1, "output": "\xff\xfe"}\n\0\0\0\0{"n": 2}\n')
    assert numbers(GrowingFile(path)) == [1, 2]


@pytest.mark.timeout(60)
async def test_a_pipe_in_the_place_of_a_transcript_holds_up_nobody(tmp_path: Path) -> None:
    """The guard is one process for all tools: it must not wait for whoever writes to a pipe."""
    async with guarding(tmp_path) as web:
        stuck, other = ClaudeCodeHooking(web, tmp_path, "s-1"), ClaudeCodeHooking(web, tmp_path, "s-2")
        stuck.transcript.unlink()
        os.mkfifo(stuck.transcript)
        os.mkfifo(stuck.agents / "agent-a1.jsonl")
        os.mkfifo(stuck.agents / "agent-a1.meta.json")
        assert await stuck.hook("SessionStart") == {}
        assert await stuck.hook("SubagentStart", "a1") == {}
        assert await other.spawn(1) is None


async def test_a_transcript_that_is_written_anew_is_counted_once(tmp_path: Path) -> None:
    """The messages that it still has were charged, those that are new were not."""
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        for name in ("one", "two", "three"):
            tool.says(name)
        await tool.hook("Stop")
        kept = tool.transcript.read_text().splitlines(keepends=True)[0]
        assert json.loads(kept)["message"]["id"] == "one"
        tool.transcript.write_text(kept)
        tool.says("four")
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 30 * 4
