"""Sub-agents of Claude Code that run while the guard is restarted, and those that a message wakes."""

import os
import time
from pathlib import Path
from typing import Any

from claude_hooks import ClaudeCodeHooking, guarding, outcome, record
from remit.runtime.agent_status import delegations_of
from remit_guard.settings import GuardSettings
from remit_guard.tools.claude_code import SILENT_S

SMALL = GuardSettings(tokens=10_000, reserve=100, depth=2, at_once=2, at_limit="stop")


async def tree(folder: Path) -> list[tuple[str, str, int]]:
    """Return the sub-agents of the newest run: what they do, how they ended, and what they spent."""
    async with record(folder) as store:
        (run, *_) = await store.runs(limit=1)
        delegations = await delegations_of(store, run.run)
    return [(each.objective, str(each.status), each.usage.total if each.usage else 0) for each in delegations[1:]]


async def test_what_runs_through_a_restart_counts_for_depth_and_at_once_and_pays_for_itself(tmp_path: Path) -> None:
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        tool.says("past", "a1")
        await tool.stop("a1")
        assert await tool.spawn(2) is None
        assert await tool.spawn(3, "a2") is None
        tool.says("before", "a3")
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        tool.says("after", "a3")
        await tool.hook("SessionStart", source="compact")
        assert await tool.hook("PreToolUse", "a3", tool_name="Bash", tool_use_id="t", tool_input={}) == {}
        assert "MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2)" in str(await tool.spawn(4, "a3"))
        assert await tool.spawn(5) is None
        assert "FAN_OUT_EXCEEDED: Too many concurrent delegates (3/2)" in str(await tool.spawn(6))
        for agent in ("a3", "a2", "a5"):
            await tool.stop(agent)
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 30 * 9
    assert [each for each in await tree(tmp_path) if each[1] == "success"] == [
        ("Task 2", "success", 30 * 4),
        ("Task 3", "success", 30 * 3),
        ("Task 5", "success", 0),
    ]


async def test_what_is_at_rest_or_silent_for_long_or_of_an_earlier_process_is_not_taken_for_running(
    tmp_path: Path,
) -> None:
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        for number in (1, 2):
            assert await tool.spawn(number) is None
            tool.says("last", f"a{number}", ends=number == 1)
        before = time.time() - SILENT_S - 1
        os.utime(tool.agents / "agent-a2.jsonl", (before, before))
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert [await tool.spawn(3), await tool.spawn(4)] == [None, None]
        for agent in ("a3", "a4"):
            tool.says("working", agent)
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        await tool.hook("SessionStart", source="resume")
        assert [await tool.spawn(5), await tool.spawn(6)] == [None, None]
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 30 * 10


async def test_what_has_no_tokens_left_after_a_restart_is_ended(tmp_path: Path) -> None:
    settings = GuardSettings(tokens=100, reserve=100, at_limit="stop")
    async with guarding(tmp_path, settings) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        tool.says("one", "a1")
    for number in range(4):
        tool.says(f"meanwhile-{number}")
    (tool.agents / "agent-a9.jsonl").touch()
    (tool.agents / "agent-a9.meta.json").write_bytes(b'{"agentType": "\xff"}')  # it hides no other
    async with guarding(tmp_path, settings) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        stop = await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="t", tool_input={})
        assert "TOKEN_BUDGET_EXCEEDED" in stop["stopReason"]
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 30 * 6


async def test_a_sub_agent_that_is_woken_is_asked_for_like_a_new_one_and_pays_for_itself(tmp_path: Path) -> None:
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        tool.says("first", "a1")
        await tool.stop("a1")
        for request in ("wake-1", "wake-2"):
            assert await tool.wake("a1", request) is None, "also with the same words again"
            tool.says(request, "a1")
            await tool.stop("a1")
        assert [await tool.spawn(2), await tool.spawn(3)] == [None, None]
        assert "FAN_OUT_EXCEEDED" in str(await tool.wake("a1", "wake-3"))
        assert await tool.wake("a2", "to one that runs") is None
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 30 * 10
    woken = [each for each in await tree(tmp_path) if "woken" in each[0]]
    assert woken == [
        ("Task 1 (woken, 1)", "success", 30),
        ("Task 1 (woken, 2)", "success", 30),
        ("Task 1 (woken, 3)", "refused", 0),
    ]


async def test_a_message_that_wakes_nobody_holds_no_place(tmp_path: Path) -> None:
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        await tool.stop("a1")
        about = {"tool_name": "SendMessage", "tool_use_id": "wake-1"}
        given = {"to": "a1", "message": "Go on"}
        assert await tool.hook("PreToolUse", tool_input=given, **about) == {}
        assert await tool.hook("PostToolUse", tool_input=given, tool_response={"success": False}, **about) == {}
        assert [await tool.spawn(2), await tool.spawn(3)] == [None, None]


async def test_a_sub_agent_that_did_not_start_or_was_interrupted_holds_no_place(tmp_path: Path) -> None:
    """Another hook or the user may refuse what the guard allows, and no hook tells of it: the transcript does."""
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        tool.fails("toolu-1")  # it ran, and was interrupted
        for number in (2, 3, 4):
            given = {"description": f"Task {number}", "prompt": "Do it"}
            about: dict[str, Any] = {"tool_name": "Agent", "tool_use_id": f"toolu-{number}", "tool_input": given}
            tool.says(f"m{number}", tool=f"toolu-{number}")
            assert await tool.hook("PreToolUse", **about) == {}
            tool.fails(f"toolu-{number}")
        assert [await tool.spawn(5), await tool.spawn(6)] == [None, None]
        assert "FAN_OUT_EXCEEDED" in str(await tool.spawn(7))


async def test_what_a_sub_agent_spends_counts_once_if_the_hook_of_its_start_is_lost(tmp_path: Path) -> None:
    """A hook that only meters may fail. The next one is about a sub-agent that the tool has noted."""
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        about: dict[str, Any] = {"tool_name": "Agent", "tool_use_id": "toolu-1"}
        given = {"description": "Task 1", "prompt": "Do it"}
        assert await tool.hook("PreToolUse", tool_input=given, **about) == {}
        tool.note("a1", toolUseId="toolu-1")
        tool.says("one", "a1")
        assert await tool.hook("PreToolUse", "a1", tool_name="Read", tool_use_id="t", tool_input={}) == {}
        await tool.hook("PostToolUse", tool_input=given, tool_response={"agentId": "a1"}, **about)
        await tool.stop("a1")
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 30
    assert await tree(tmp_path) == [("Task 1", "success", 30)]


async def test_a_sub_agent_that_nobody_asked_for_takes_no_place_of_another(tmp_path: Path) -> None:
    """A skill may start one without the tool that starts sub-agents; what it spends is charged to the session."""
    async with guarding(tmp_path, SMALL) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        about: dict[str, Any] = {"tool_name": "Agent", "tool_use_id": "toolu-1"}
        assert await tool.hook("PreToolUse", tool_input={"description": "Task 1"}, **about) == {}
        tool.note("other", toolUseId="toolu-of-a-skill")
        await tool.hook("SubagentStart", "other")
        tool.says("skill", "other")
        await tool.hook("SubagentStop", "other")
        tool.note("a1", toolUseId="toolu-1")
        await tool.hook("SubagentStart", "a1")
        tool.says("one", "a1")
        tool.says("two", "a1")
        await tool.stop("a1")
        await tool.hook("SessionEnd")
    assert (await outcome(tmp_path)).usage.total == 90
    assert await tree(tmp_path) == [("Task 1", "success", 60)]
