"""What a local agent is held to: how long it may take, how much it may say, how many tools it may use."""

import re

from remit.relay.bridge.frames import PromptConstraints
from remit.relay.bridge.ports import Draft, DraftFailure

# A turn without tools is one call of a model; with tools it is several.
WITHOUT_TOOLS_MS = 60_000
WITH_TOOLS_MS = 120_000

# A sentence that stands in a banner and in a record.
MAX_REASON = 400

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def time_limit_s(constraints: PromptConstraints, ceiling_ms: int) -> float:
    """Return how long a turn may take: what the request says, within the document's limits and the host's ceiling."""
    most_ms = WITH_TOOLS_MS if constraints.allow_tool_use else WITHOUT_TOOLS_MS
    return max(0, min(constraints.local_turn_timeout_ms, most_ms, ceiling_ms)) / 1_000


def tool_rounds_allowed(constraints: PromptConstraints) -> int:
    """Return how many rounds of tools a turn may have."""
    return max(0, constraints.max_tool_rounds) if constraints.allow_tool_use else 0


def held(draft: Draft, constraints: PromptConstraints) -> Draft | DraftFailure:
    """Return the draft if it keeps to its constraints, else why it may not be sent.

    A text that is too long, or missing, spoils this turn alone. Tools that were used without leave cannot be taken
    back, so an agent that did that is not to be trusted with the next turn either.
    """
    if (rounds := draft.tool_rounds) is not None and rounds > (allowed := tool_rounds_allowed(constraints)):
        return too_many_rounds(rounds, allowed)
    if len(draft.text) > constraints.max_output_chars:
        return too_long(constraints)
    if not draft.text.strip() and not draft.done:
        return DraftFailure(reason="the local agent answered without a message", hard=False)
    return draft


def too_long(constraints: PromptConstraints) -> DraftFailure:
    """Return the failure of a draft that has more characters than it may."""
    reason = f"the local agent's message is longer than the {constraints.max_output_chars} characters it may have"
    return DraftFailure(reason=reason, hard=False)


def too_many_rounds(rounds: int, allowed: int) -> DraftFailure:
    """Return the failure of a turn in which tools were used too often."""
    may = f"at most {allowed} may be used" if allowed else "none may be used"
    return DraftFailure(reason=f"the local agent used tools {rounds} times in one turn, where {may}", hard=True)


def shown(text: str, most: int = MAX_REASON) -> str:
    """Return what an agent said as one line that can be shown anywhere: nothing in it steers a terminal."""
    plain = _TERMINAL.sub("", text[: 20 * most])
    line = " ".join("".join(char if char.isprintable() else " " for char in plain).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
