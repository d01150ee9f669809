"""What a callee was not shown of its caller's conversation: each part of the filter gives its own reason."""

import pytest

from remit.protocol.envelope import ContextFilter, Message, Request, View
from remit.protocol.remit import Remit
from remit_server.delegation_detail import held_back, note_kinds_held_back
from remit_server.delegation_views import HeldBackBy

NOW_MS = 1_000_000
SAID = [
    Message(role="user", text="book a room", seq=1, tokens=3, at_ms=0),
    Message(role="assistant", text="which room?", seq=2, tokens=3, at_ms=NOW_MS - 2_000),
    Message(role="user", text="the blue Room", seq=3, tokens=3, at_ms=NOW_MS - 1_000),
]


def request(context: ContextFilter | None, view: View | None = None) -> Request:
    remit = Remit(user="anna", depth=1, max_depth=5, time_ms=1_000, tokens=100, context_tokens=40)
    return Request(version="1.0", id="r.1", origin="a", target="b", run="r", remit=remit, context=context, view=view)


def reasons(context: ContextFilter | None, view: View | None = None) -> list[tuple[int, HeldBackBy]]:
    return [(each.message.seq, each.by) for each in held_back(SAID, request(context, view), NOW_MS)]


def shown(*seqs: int, seen: tuple[int, ...] = ()) -> View:
    return View(messages=tuple(Message(role="user", text="", seq=seq) for seq in seqs), seen=seen)


@pytest.mark.parametrize(
    ("context", "view", "expected"),
    [
        (None, None, [(1, HeldBackBy.NO_FILTER), (2, HeldBackBy.NO_FILTER), (3, HeldBackBy.NO_FILTER)]),
        (ContextFilter(last_messages=0), None, [(each, HeldBackBy.NONE_WANTED) for each in (1, 2, 3)]),
        (ContextFilter(max_age_seconds=60), shown(2, 3), [(1, HeldBackBy.AGE)]),
        (ContextFilter(roles=frozenset({"user"})), shown(1, 3), [(2, HeldBackBy.ROLE)]),
        (ContextFilter(roles=frozenset()), shown(), [(each, HeldBackBy.ROLE) for each in (1, 2, 3)]),
        (ContextFilter(keywords=("blue",)), shown(3), [(1, HeldBackBy.KEYWORD), (2, HeldBackBy.KEYWORD)]),
        (ContextFilter(keywords=()), shown(), [(each, HeldBackBy.KEYWORD) for each in (1, 2, 3)]),
        (ContextFilter(last_messages=2), shown(2, 3), [(1, HeldBackBy.COUNT)]),
        (ContextFilter(), shown(3), [(1, HeldBackBy.TOKENS), (2, HeldBackBy.TOKENS)]),
        (ContextFilter(), shown(3, seen=(2,)), [(1, HeldBackBy.TOKENS), (2, HeldBackBy.SEEN_BEFORE)]),
        (ContextFilter(), shown(1, 2, 3), []),
    ],
)
def test_each_message_that_was_not_shown_has_its_reason(
    context: ContextFilter | None, view: View | None, expected: list[tuple[int, HeldBackBy]]
) -> None:
    assert reasons(context, view) == expected


def test_a_reason_names_the_setting_and_its_value() -> None:
    (first, *_) = held_back(SAID, request(ContextFilter(), shown(3)), NOW_MS)
    assert first.why == "did not fit into the 40 tokens of context (`context_tokens`)"
    (first, *_) = held_back(SAID, request(ContextFilter(roles=frozenset({"assistant"})), shown(2)), NOW_MS)
    assert first.why == "its role is user; `roles` has only assistant"


EVERY = frozenset({"fact", "decision", "constraint", "answer"})


@pytest.mark.parametrize(
    ("callers", "kinds", "first"),
    [
        ([None], frozenset[str](), -1),
        ([ContextFilter(known="all"), None], frozenset[str](), -1),
        ([ContextFilter(known="decisions"), None], frozenset({"fact", "answer"}), 0),
        ([ContextFilter(), None], EVERY, 0),
        ([None, None], EVERY, 0),
        ([ContextFilter(known="all"), ContextFilter(known="none")], EVERY, 1),
    ],
)
def test_the_first_filter_that_excludes_notes_is_the_one_that_counts(
    callers: list[ContextFilter | None], kinds: frozenset[str], first: int
) -> None:
    assert note_kinds_held_back(callers) == (kinds, first)
