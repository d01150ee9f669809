"""What a guard that runs for months keeps of sessions that are over."""

import gc
from pathlib import Path

from claude_hooks import ClaudeCodeHooking, guarding
from remit.guard.session import GuardedSession
from remit.guard.settings import GuardSettings
from remit.guard.tools.claude_transcripts import ToolTranscript


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
