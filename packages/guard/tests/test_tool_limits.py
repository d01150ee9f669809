"""Limits of single tools in place of those for all."""

from pathlib import Path

import pytest

from claude_hooks import ClaudeCodeHooking, guarding
from command_line import remit
from opencode_events import OpenCodeTelling
from remit import RemitError
from remit_cli.config.load import load_team
from remit_guard.section import GUARD
from remit_guard.settings import GuardSettings, ToolLimits

TEAM = """
[guard]
tokens = 1_000
depth = 3
reserve = 100

[guard.tools.claude-code]
depth = 1
at_once = 8
time = "5m"
at_limit = "stop"
cached = true
"""


def test_a_key_of_a_tool_stands_for_that_of_all(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(TEAM)
    guard = GUARD.of(load_team(tmp_path / "remit.toml"))
    assert guard is not None
    settings = guard.settings()
    common = GuardSettings(tokens=1_000, depth=3, reserve=100)
    assert settings.of_tool("opencode") == common
    assert settings.of_tool("claude-code") == GuardSettings(
        tokens=1_000, depth=1, at_once=8, time_ms=300_000, reserve=100, at_limit="stop", cached=True
    )


def test_a_tool_that_nobody_knows_is_an_error_that_lists_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("[guard.tools.emacs]\ndepth = 1\n")
    done = remit("validate", folder=tmp_path)
    assert done.returncode != 0
    assert "remit.toml:1 guard.tools.emacs: there is no coding tool `emacs`; known tools: claude-code, " in done.stdout
    with pytest.raises(RemitError, match="opencode"):
        load_team(tmp_path / "remit.toml", code=False)


def test_a_rule_about_answers_is_not_for_coding_tools(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[[guard.rules]]\non = "answer"\nthen = "refuse"\n', encoding="utf-8")
    done = remit("validate", folder=tmp_path)
    assert (done.returncode, "guard.rules[0].on: a coding tool's sub-agents answer" in done.stdout) == (3, True), done


async def test_each_tool_has_a_depth_and_a_number_at_once_of_its_own(tmp_path: Path) -> None:
    settings = GuardSettings(
        tokens=1_000, reserve=100, depth=2, at_once=2, tools={"claude-code": ToolLimits(depth=1, at_once=3)}
    )
    async with guarding(tmp_path, settings) as web:
        claude, opencode = ClaudeCodeHooking(web, tmp_path), OpenCodeTelling(web)
        assert [await claude.spawn(number) for number in (1, 2, 3)] == [None] * 3
        assert "FAN_OUT_EXCEEDED: Too many concurrent delegates (4/3)" in str(await claude.spawn(4))
        assert "MAX_DEPTH_EXCEEDED: Delegation depth limit reached (1/1)" in str(await claude.spawn(5, "a1"))
        await opencode.tell("created", "top", directory="/work")
        assert [await opencode.start("top", "one"), await opencode.start("top", "two")] == [None] * 2
        assert "FAN_OUT_EXCEEDED: Too many concurrent delegates (3/2)" in str(await opencode.start("top", "three"))
        assert await opencode.start("one", "below") is None
        assert "MAX_DEPTH_EXCEEDED" in str(await opencode.start("below", "deep"))
