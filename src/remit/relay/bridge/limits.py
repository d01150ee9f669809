"""The limits of a local agent: time, length of its messages, and tool rounds."""

import re

from remit.relay.bridge.frames import PromptConstraints
from remit.relay.bridge.ports import Draft, DraftFailure

# A turn without tools is one model call; with tools it is several.
WITHOUT_TOOLS_MS = 60_000
WITH_TOOLS_MS = 120_000

# The longest reason for a banner and the record.
MAX_REASON = 400

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def time_limit_s(constraints: PromptConstraints, ceiling_ms: int) -> float:
    """Return the time limit of a turn: that of the request, within the limits above and *ceiling_ms*."""
    most_ms = WITH_TOOLS_MS if constraints.allow_tool_use else WITHOUT_TOOLS_MS
    return max(0, min(constraints.local_turn_timeout_ms, most_ms, ceiling_ms)) / 1_000


def tool_rounds_allowed(constraints: PromptConstraints) -> int:
    """Return how many tool rounds a turn may have."""
    return max(0, constraints.max_tool_rounds) if constraints.allow_tool_use else 0


def held(draft: Draft, constraints: PromptConstraints) -> Draft | DraftFailure:
    """Return the draft if it keeps its constraints, else the failure.

    A text that is too long or missing fails this turn only. Tool use that was not allowed cannot be undone, so such an
    agent is not trusted with the next turn either.
    """
    if (rounds := draft.tool_rounds) is not None and rounds > (allowed := tool_rounds_allowed(constraints)):
        return too_many_rounds(rounds, allowed)
    if len(draft.text) > constraints.max_output_chars:
        return too_long(constraints)
    if not draft.text.strip() and not draft.done:
        return DraftFailure(reason="the local agent returned no message", hard=False)
    return draft


def too_long(constraints: PromptConstraints) -> DraftFailure:
    """Return the failure of a draft that is too long."""
    reason = f"the local agent's message is longer than the limit of {constraints.max_output_chars} characters"
    return DraftFailure(reason=reason, hard=False)


def too_many_rounds(rounds: int, allowed: int) -> DraftFailure:
    """Return the failure of a turn with too many tool rounds."""
    may = f"the limit is {allowed}" if allowed else "tools are not allowed"
    times = "once" if rounds == 1 else f"{rounds} times"
    return DraftFailure(reason=f"the local agent used tools {times} in one turn; {may}", hard=True)


def shown(text: str, most: int = MAX_REASON) -> str:
    """Return a text of an agent as one line that is safe to show: without terminal control sequences."""
    plain = _TERMINAL.sub("", text[: 20 * most])
    line = " ".join("".join(char if char.isprintable() else " " for char in plain).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
