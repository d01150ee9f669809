"""What a callee was not shown of its caller's conversation, and which part of the filter kept it back."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from remit.policy.context import PASSED_NOTES, matches
from remit.protocol.envelope import ContextFilter, Known, Message, Request


class HeldBackBy(StrEnum):
    """What kept a message back."""

    NO_FILTER = "no_filter"
    NONE_WANTED = "none_wanted"
    SEEN_BEFORE = "seen_before"
    AGE = "age"
    ROLE = "role"
    KEYWORD = "keyword"
    COUNT = "count"
    TOKENS = "tokens"


class HeldBackMessage(NamedTuple):
    """A message that a callee was not shown, and why."""

    message: Message
    by: HeldBackBy
    why: str


def held_back(messages: Iterable[Message], request: Request, now_ms: int) -> list[HeldBackMessage]:
    """Return which of the *messages*, said before *request* was made at *now_ms*, its callee was not shown."""
    view, wanted = request.view, request.context
    shown = {each.seq for each in view.messages} if view is not None else set[int]()
    seen = frozenset(view.seen) if view is not None else frozenset[int]()
    rest = [each for each in messages if each.seq not in shown]
    if wanted is None:
        return [HeldBackMessage(each, HeldBackBy.NO_FILTER, _NO_FILTER) for each in rest]
    matching = [each.seq for each in messages if matches(each, wanted, now_ms)]
    newest = frozenset(matching if wanted.last_messages is None else matching[-wanted.last_messages :])
    return [HeldBackMessage(each, *_reason(each, wanted, now_ms, seen, newest, request)) for each in rest]


_NO_FILTER = "the call has no context filter, so nothing of the conversation is passed on"


def _reason(
    message: Message,
    wanted: ContextFilter,
    now_ms: int,
    seen: frozenset[int],
    newest: frozenset[int],
    request: Request,
) -> tuple[HeldBackBy, str]:
    if message.seq in seen:
        return HeldBackBy.SEEN_BEFORE, "its session was shown this message before"
    if wanted.last_messages == 0:
        return HeldBackBy.NONE_WANTED, "`last_messages` is 0: no message is passed on"
    if not matches(message, ContextFilter(max_age_seconds=wanted.max_age_seconds), now_ms):
        return HeldBackBy.AGE, f"older than `max_age_seconds` = {wanted.max_age_seconds}"
    if not matches(message, ContextFilter(roles=wanted.roles), now_ms):
        roles = ", ".join(sorted(wanted.roles or ()))
        return HeldBackBy.ROLE, f"its role is {message.role}; `roles` has only {roles or 'none'}"
    if not matches(message, ContextFilter(keywords=wanted.keywords), now_ms):
        return HeldBackBy.KEYWORD, f"contains none of the `keywords`: {', '.join(wanted.keywords or ()) or 'none'}"
    if message.seq not in newest:
        return HeldBackBy.COUNT, f"not among the newest {wanted.last_messages} (`last_messages`)"
    room = request.remit.context_tokens
    return HeldBackBy.TOKENS, f"did not fit into the {room:,} tokens of context (`context_tokens`)"


def note_kinds_held_back(callers: Sequence[ContextFilter | None]) -> tuple[frozenset[str], int]:
    """Return the kinds of notes that a callee may not see, and which of the filters is the first to exclude one.

    *callers* are as for `policy.context.notes_for`: the filter of its own request first, the user's last. The number
    is -1 if no kind is excluded.
    """
    everything = PASSED_NOTES["all"]
    passed, first = everything, -1
    for index, each in enumerate(callers):
        default: Known = "all" if index == len(callers) - 1 else "none"
        allowed = PASSED_NOTES[(each.known if each is not None else None) or default]
        if first < 0 and allowed != everything:
            first = index
        passed &= allowed
    return everything - passed, first
