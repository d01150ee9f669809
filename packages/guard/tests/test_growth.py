"""What a guard that runs for months keeps of sessions that are over."""

import gc
import json
from pathlib import Path
from typing import Any

from claude_hooks import ClaudeCodeHooking, guarding
from remit import Hub, Limits
from remit_guard.service import SILENT_S, GuardService
from remit_guard.session import GuardedSession
from remit_guard.settings import GuardSettings
from remit_guard.tools.claude_code import ToolTranscript
from remit_guard.tools.known_tools import TOOLS
from remit_testing.memory import MemoryStore

USAGE = {"input_tokens": 20, "output_tokens": 10}
SPENT: dict[str, list[dict[str, Any]]] = {
    "claude-code": [{"type": "assistant", "message": {"role": "assistant", "id": "m", "usage": USAGE}}],
    "codex": [
        {"type": "session_meta", "payload": {"id": "s-1", "session_id": "s-1"}},
        {"type": "token_usage_record", "payload": {"thread_id": "s-1", "response_id": "r", "usage": USAGE}},
    ],
    "gemini-cli": [
        {"type": "user", "content": "Go"},
        {"type": "gemini", "id": "g", "tokens": {"input": 20, "output": 10}},
    ],
}


def alive(kind: type) -> int:
    """Return how many values of a kind there are in this process."""
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def test_nothing_is_kept_of_a_session_of_claude_code_that_has_ended(tmp_path: Path) -> None:
    settings = GuardSettings(at_limit="stop")
    async with guarding(tmp_path, settings) as web:
        before = alive(ToolTranscript), alive(GuardedSession)
        for number in range(5):
            tool = ClaudeCodeHooking(web, tmp_path, f"s-{number}")
            assert await tool.spawn(number) is None
            tool.says("one", f"a{number}")
            await tool.stop(f"a{number}")
            assert await tool.wake(f"a{number}", f"wake-{number}") is None
            await tool.hook("SessionEnd")
        assert (alive(ToolTranscript), alive(GuardedSession)) == before


async def test_a_session_that_is_silent_for_a_day_is_ended_and_goes_on_with_what_it_spent(
    tmp_path: Path,
) -> None:
    """No hook tells of a tool that was killed; one that was silent for long and goes on is read from its beginning."""
    now = 0.0
    settings = GuardSettings(tokens=1_000, reserve=100, at_limit="stop")
    async with Hub(store=MemoryStore(), limits=Limits(root_tokens=1_000, overrun="call")) as hub:
        service = GuardService(hub, lambda _: settings, clock=lambda: now)
        answers = {tool.name: tool.answering(service, "ada") for tool in TOOLS.values()}
        transcripts = {"claude-code": "c.jsonl", "codex": "2026/11/18/rollout-x.jsonl", "gemini-cli": "chats/g.jsonl"}
        for name, place in transcripts.items():
            path = tmp_path / name / place
            path.parent.mkdir(parents=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in SPENT[name]))

        async def hear(name: str) -> int:
            path = str(tmp_path / name / transcripts[name])
            event = {"session_id": "s-1", "hook_event_name": "Stop", "transcript_path": path}
            await answers[name](json.dumps(event).encode())
            return service.sessions[name, "s-1"].used

        assert [await hear(name) for name in transcripts] == [30, 30, 30]
        now = SILENT_S
        assert [await hear(name) for name in transcripts] == [30, 30, 30], "a day is not over yet"
        now = 2 * SILENT_S + 1
        await answers["opencode"](b'{"event": "call", "session": "top"}')
        assert list(service.sessions) == [("opencode", "top")]
        assert [await hear(name) for name in transcripts] == [30, 30, 30]
        for tool, name in list(service.sessions):
            await service.close(tool, name, "over")
