"""The hooks of Claude Code as it sends them, over the socket of a running guard."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from claude_hooks import ClaudeCodeHooking, guarding, outcome
from remit.protocol.envelope import MODEL
from remit_guard.service import agent_name
from remit_guard.settings import GuardSettings
from remit_guard.status import guard_status


async def test_a_session_is_a_run_whose_total_is_that_of_all_transcripts(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        await tool.hook("SessionStart")
        await tool.hook("UserPromptSubmit", prompt="Fix the build")
        assert await tool.spawn(1) is None
        tool.says("one", "a1", cached=500)
        tool.says("one", "a1", cached=500)  # written once for each block
        assert await tool.spawn(2, "a1") is None
        tool.says("two", "a2")
        await tool.hook("SubagentStop", "a2", last_assistant_message="deep")
        await tool.hook("SubagentStop", "a1", last_assistant_message="done")
        tool.says("late", "a1")  # the transcript comes after the hook
        tool.says("end", cached=70)
        await tool.hook("Stop")
        await tool.hook("SessionEnd", reason="other")
    done = await outcome(tmp_path)
    assert (done.usage.total, done.usage.overrun) == (30 * 6, 0)
    assert done.metadata[MODEL] == {"name": "anthropic:claude-scripted", "beside": 70}, "so that its cost is known"


async def test_the_cost_of_a_published_session_is_what_its_user_paid(tmp_path: Path) -> None:
    """The session of anthropics/claude-code #39803, message by message: about nine dollars."""
    messages = 100
    counts = (6_000 // messages, 604_000 // messages, 57_000 // messages)
    async with guarding(tmp_path, GuardSettings(tokens=10_000_000, at_limit="warn")) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        await tool.hook("UserPromptSubmit", prompt="Fix the build")
        for number in range(messages):
            tool.says(f"m{number}", cached=19_500_000 // messages, model="claude-sonnet-4-6", counts=counts)
        await tool.hook("Stop")
        await tool.hook("SessionEnd", reason="other")
    usage = (await outcome(tmp_path)).usage
    assert (usage.total, usage.cache_write, usage.cache_read) == (667_000, 604_000, 19_500_000)
    assert usage.cost == pytest.approx(9_000_000, rel=0.05)
    assert usage.unpriced == 0


async def test_refusals_reach_the_model_and_who_is_out_of_tokens_is_ended(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        assert await tool.spawn(2, "a1") is None
        refused = await tool.spawn(3, "a2")
        assert refused is not None
        assert refused.startswith("Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2).")
        assert await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="t", tool_input={}) == {}
        for number in range(40):
            tool.says(f"much-{number}", "a1")
        stop = await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="u", tool_input={})
        assert stop["continue"] is False
        assert "tokens of this session are spent" in stop["stopReason"]
        assert await tool.hook("PreToolUse", tool_name="Bash", tool_use_id="v", tool_input={}) == {}, (
            "the person goes on"
        )
        assert "TOKEN_BUDGET_EXCEEDED: no tokens are left" in str(await tool.spawn(4))
        await tool.hook("SessionEnd")


@pytest.mark.parametrize(
    ("used", "again"), [("Edit", True), ("mcp__shop__sell", True), ("Bash", True), ("Read", False)]
)
async def test_the_same_task_may_be_given_again_after_a_tool_that_may_change_something(
    used: str, again: bool, tmp_path: Path
) -> None:
    given = {"description": "Run the tests", "prompt": "All of them", "subagent_type": "general-purpose"}
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)

        async def run_tests(request: str) -> dict[str, Any]:
            tool.says(request, tool=request)
            return await tool.hook("PreToolUse", tool_name="Agent", tool_use_id=request, tool_input=given)

        assert await run_tests("toolu-1") == {}
        tool.note("a1", toolUseId="toolu-1", description="Run the tests", parentAgentId="")
        await tool.hook("SubagentStart", "a1")
        await tool.stop("a1")
        assert await tool.hook("PreToolUse", tool_name=used, tool_use_id="t", tool_input={"command": "make"}) == {}
        answer = await run_tests("toolu-2")
        await tool.hook("SessionEnd")
    assert (answer == {}) is again
    assert ("CYCLE_DETECTED" in str(answer)) is not again


async def test_a_guard_that_was_restarted_knows_what_was_spent_before(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(1) is None
        for number in range(10):
            tool.says(f"much-{number}", "a1")
        await tool.hook("Stop")
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert await tool.spawn(2) is None
        await tool.hook("SessionEnd")
    done = await outcome(tmp_path)
    assert done.usage.total == 30 * 12


async def test_what_is_no_event_is_refused_and_the_status_counts_the_others(tmp_path: Path) -> None:
    async with guarding(tmp_path) as web:
        for body, status in ((b"{}", 400), (b"not json", 400), (b'{"session_id": 1, "hook_event_name": "Stop"}', 400)):
            async with web.post("/hooks/claude-code", data=body) as reply:
                assert reply.status == status
        async with web.post("/hooks/emacs", data=b"{}") as reply:
            assert reply.status == 404
        await ClaudeCodeHooking(web, tmp_path).hook("SessionStart")
        reported = await asyncio.to_thread(guard_status, tmp_path / "guard")
    assert reported is not None
    assert (reported.hooks, len(reported.sessions)) == ({"claude-code": 1}, 1)
    assert await asyncio.to_thread(guard_status, tmp_path / "nowhere") is None


async def test_a_session_that_keeps_no_transcript_starts_no_sub_agents(tmp_path: Path) -> None:
    """`claude -p --no-session-persistence` names a transcript that it never writes: nothing that it spends is known."""
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        for path in (str(tmp_path / "none.jsonl"), "", "/", "a\0b"):
            about: dict[str, Any] = {"tool_name": "Agent", "tool_use_id": "t", "tool_input": {"prompt": "Do it"}}
            answer = await tool.hook("PreToolUse", transcript_path=path, session_id=f"s {path!r}", **about)
            assert "keeps no transcript" in answer["hookSpecificOutput"]["permissionDecisionReason"]


@pytest.mark.parametrize("kind", ["Überprüfer", "代码审查", "user", "_mine", "x" * 500, "…", "claude-code"])
async def test_a_sub_agent_may_be_called_as_its_user_likes(kind: str, tmp_path: Path) -> None:
    """Names of the user's own sub-agents are no names of agents in a hub, or the names of tools there."""
    async with guarding(tmp_path) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        given = {"description": "x" * 200_000, "prompt": "Do it", "subagent_type": kind}
        about: dict[str, Any] = {"tool_name": "Agent", "tool_use_id": "t", "tool_input": given}
        assert await tool.hook("PreToolUse", **about) == {}
        await tool.hook("SubagentStart", "a1", agent_type=kind)
        for number in range(5):  # more than is set aside for it, as long as the session has some left
            tool.says(f"much-{number}", "a1")
        assert await tool.hook("PreToolUse", "a1", tool_name="Read", tool_use_id="u", tool_input={}) == {}


def test_names_of_kinds_are_told_apart() -> None:
    names = [agent_name(kind) for kind in ("Explore", "code review", "Überprüfer", "代码审查", "测试", "user", "")]
    assert names[:3] == ["Explore", "code-review", "Uberprufer"]
    assert (len(set(names)), names[-1]) == (7, "agent")
