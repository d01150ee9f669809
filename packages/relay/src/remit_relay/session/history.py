"""The history of a run for a prompt: the newest turns complete, the older ones as a short summary (S5)."""

from collections.abc import Sequence

from msgspec import UNSET, Struct

from remit.words.components import cut, squeezed
from remit_relay.bridge.ports import ConversationTurn, PromptConstraints, PromptRequest
from remit_relay.session.moves import Prompt

# The summary line of one turn: shorter ones say nothing, longer ones are no summary.
_SHORTEST_LINE, _LONGEST_LINE = 80, 600


class Bounded(Struct, frozen=True, kw_only=True):
    """The turns of a run that fit into a prompt, named as in a `PromptRequest`.

    `history` has at most `max_history_turns` turns, and its texts together with `history_summary` at most
    `max_history_chars` characters (code points). `remote_message` is the message to answer: it is never shortened, not
    repeated elsewhere, and does not count.
    """

    remote_message: str = ""
    history: tuple[ConversationTurn, ...] = ()
    history_summary: str = ""


def bounded(turns: Sequence[ConversationTurn], constraints: PromptConstraints) -> Bounded:
    """Return the part of *turns* (oldest first) for the next prompt; deterministic.

    A turn is included completely or not at all. If some are left out, a quarter of the characters is for the summary.
    """
    latest = next((place for place in reversed(range(len(turns))) if turns[place].role == "remote_agent"), None)
    remote_message = "" if latest is None else turns[latest].text
    others = tuple(turn for place, turn in enumerate(turns) if place != latest)
    most, chars = max(0, constraints.max_history_turns), max(0, constraints.max_history_chars)
    if _fitting(others, most, chars) == len(others):
        return Bounded(remote_message=remote_message, history=others)
    room = chars // 4
    start = len(others) - _fitting(others, most, chars - room)
    return Bounded(
        remote_message=remote_message,
        history=others[start:],
        history_summary=_summary(others[:start], room),
    )


def request(prompt: Prompt, *, profile: str, session: str, constraints: PromptConstraints) -> PromptRequest:
    """Return the prompt request for the local agent of *profile*, with a bounded history."""
    shown = bounded(prompt.turns, constraints)
    return PromptRequest(
        request_id=prompt.id,
        profile_id=profile,
        session_id=session,
        turn_index=prompt.turn_index,
        mode=prompt.mode,
        objective=prompt.objective,
        remote_message=shown.remote_message,
        history=shown.history,
        history_summary=shown.history_summary or UNSET,
        constraints=constraints,
    )


def _fitting(turns: Sequence[ConversationTurn], most: int, chars: int) -> int:
    """Return how many of the newest turns fit within both limits."""
    for count, turn in enumerate(reversed(turns)):
        chars -= len(turn.text)
        if count == most or chars < 0:
            return count
    return len(turns)


def _summary(turns: Sequence[ConversationTurn], room: int) -> str:
    """Return a line for each of the newest of *turns*, in at most *room* characters."""
    if not room:
        return ""
    count = len(turns)
    length = min(max(room // count, _SHORTEST_LINE), _LONGEST_LINE)
    left = room - len(_title(count, count))
    lines: list[str] = []
    for turn in reversed(turns):
        line = _line(turn, length)
        left -= 1 + len(line)
        if left < 0:
            break
        lines.append(line)
    if not lines:
        return cut(f"Left out: {_earlier(count)}.", room)
    return "\n".join((_title(count, len(lines)), *reversed(lines)))


def _title(count: int, shown: int) -> str:
    return f"{_earlier(count)}, the last {shown} in short:"


def _earlier(count: int) -> str:
    return f"{count} earlier turn{'s' if count > 1 else ''}"


def _line(turn: ConversationTurn, length: int) -> str:
    """Return the beginning of a turn as one line, without reading more of a long text than needed."""
    head = turn.text[: 4 * length]
    said = squeezed(head) + ("…" if len(head) < len(turn.text) else "")
    return f"{turn.role}: {cut(said, length - len(turn.role) - 2)}"
