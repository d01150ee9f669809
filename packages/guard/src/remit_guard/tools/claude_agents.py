"""The sub-agents of a session of Claude Code, as the tool notes them beside their transcripts."""

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from remit_guard.tools.claude_transcripts import ToolTranscript
from remit_guard.tools.json_lines import open_file

# The longest that a sub-agent waits: an hour for a person. One that wrote nothing for longer has died with its tool.
SILENT_S = 3_600


class AgentNote(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the tool notes of one sub-agent; fields that do not matter here are left out."""

    agent_type: str = "general-purpose"
    description: str = "A sub-agent"
    tool_use_id: str = ""
    """The request that started it."""
    parent_agent_id: str = ""
    """The sub-agent that started it; empty: the session itself."""
    spawn_depth: int = 1
    finished: bool = False


def note_of(folder: Path, agent: str) -> AgentNote | None:
    """Return what is noted of a sub-agent; None: nothing, or nothing that can be read."""
    try:
        with open_file(folder / f"agent-{agent}.meta.json") as file:
            return msgspec.json.decode(file.read(), type=AgentNote)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def transcripts_in(folder: Path) -> list[tuple[str, ToolTranscript]]:
    """Return the transcripts of all sub-agents as far as they are written, by the sub-agents' ids."""
    found = [(path.stem.removeprefix("agent-"), ToolTranscript(path)) for path in sorted(folder.glob("agent-*.jsonl"))]
    for _, transcript in found:
        transcript.read()
    return found


def is_running(note: AgentNote | None, transcript: ToolTranscript) -> bool:
    """Return whether a sub-agent is still at work.

    The tool notes the end of each. One that was broken off has no such note, and one that has said its last word may
    get it in a moment.
    """
    if note is None or note.finished or transcript.is_at_rest:
        return False
    try:
        return time.time() - transcript.path.stat().st_mtime < SILENT_S
    except OSError:
        return False
