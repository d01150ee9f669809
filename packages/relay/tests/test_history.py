"""A local agent is shown the newest turns of a run whole and the older ones in short, never more than it may be."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remit_relay.bridge.ports import ConversationTurn, PromptConstraints, PromptRequest, Role
from remit_relay.session.moves import Prompt
from remit_relay.session.run import Bounded, bounded, request

ROLES: tuple[Role, ...] = ("local_agent", "remote_agent", "user")

# Emoji made of several code points, combining marks, scripts without spaces, and the marks that a summary itself uses.
PIECES = [
    "👩‍👩‍👧‍👦",
    "e\u0301\u0323",
    "\u200d",
    "漢字かな",
    "word ",
    "\n",
    "   ",
    "…",
    "[EMAIL:abcdefghijkl]",
    "[",
    "x" * 90,
]


def repeated(piece: str, times: int) -> str:
    return piece * times


texts = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.builds(repeated, st.sampled_from(PIECES), st.integers(0, 400)),
)
turns = st.lists(st.builds(ConversationTurn, role=st.sampled_from(ROLES), text=texts), max_size=14)
constraints = st.builds(
    PromptConstraints,
    max_history_turns=st.integers(0, 8),
    max_history_chars=st.one_of(st.integers(0, 200), st.integers(0, 5_000)),
)


def conversation(*texts: str) -> list[ConversationTurn]:
    """Return turns in which both sides speak by turns, the local agent first."""
    return [ConversationTurn(role=ROLES[place % 2], text=text) for place, text in enumerate(texts)]


def without_the_latest_reply(history: list[ConversationTurn]) -> list[ConversationTurn]:
    for place in reversed(range(len(history))):
        if history[place].role == "remote_agent":
            return history[:place] + history[place + 1 :]
    return history


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(turns, constraints)
@example(conversation("a" * 50_000), PromptConstraints())
@example(conversation("👩‍👩‍👧‍👦" * 10_000, "ok", "e\u0301" * 30_000), PromptConstraints())
def test_what_is_shown_is_bounded_the_newest_and_the_last_reply_verbatim(
    history: list[ConversationTurn], held: PromptConstraints
) -> None:
    """S5: by turns and by characters, the summary included; deterministically."""
    shown = bounded(history, held)
    assert len(shown.history) <= held.max_history_turns
    assert len(shown.history_summary) <= held.max_history_chars // 4
    assert sum(len(turn.text) for turn in shown.history) + len(shown.history_summary) <= held.max_history_chars
    others = without_the_latest_reply(history)
    assert list(shown.history) == others[len(others) - len(shown.history) :]
    replies = [turn.text for turn in history if turn.role == "remote_agent"]
    assert shown.remote_message == (replies[-1] if replies else "")
    left_out = len(others) - len(shown.history)
    assert left_out or not shown.history_summary
    if left_out and held.max_history_chars >= 4 * len("Left out: 10 earlier turns."):
        assert f"{left_out} earlier turn" in shown.history_summary
    assert shown == bounded(tuple(ConversationTurn(role=turn.role, text=turn.text) for turn in history), held)


@given(turns)
def test_negative_bounds_show_nothing_but_the_reply(history: list[ConversationTurn]) -> None:
    shown = bounded(history, PromptConstraints(max_history_turns=-1, max_history_chars=-1))
    assert (shown.history, shown.history_summary) == ((), "")


# ── examples ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_before_anything_was_said_there_is_nothing_to_show() -> None:
    assert bounded([], PromptConstraints()) == Bounded()


def test_what_fits_is_shown_as_it_is_and_the_reply_stands_apart() -> None:
    run = conversation("Which endpoints are there?", "Three.", "Name them.", "a, b, c")
    assert bounded(run, PromptConstraints()) == Bounded(remote_message="a, b, c", history=tuple(run[:3]))


def test_what_came_after_the_reply_is_shown_in_its_order() -> None:
    run = [*conversation("Which?", "Three."), ConversationTurn(role="user", text="Ask for their names.")]
    assert bounded(run, PromptConstraints()) == Bounded(remote_message="Three.", history=(run[0], run[2]))


def test_older_turns_are_summed_up_a_line_each_oldest_first() -> None:
    """S5: older turns become `history_summary`."""
    run = conversation("Which endpoints\nare there?", "Three.", "Name them.", "a, b, c", "Is b safe?", "Yes.")
    assert bounded(run, PromptConstraints(max_history_turns=2)) == Bounded(
        remote_message="Yes.",
        history=(run[3], run[4]),
        history_summary=(
            "3 earlier turns, the last 3 in short:\n"
            "local_agent: Which endpoints are there?\n"
            "remote_agent: Three.\n"
            "local_agent: Name them."
        ),
    )


def test_of_more_than_can_be_summed_up_the_newest_are_told() -> None:
    run = conversation(*(f"message {number} " + "and so on " * 20 for number in range(20)))
    summary = bounded(run, PromptConstraints(max_history_turns=1, max_history_chars=1_200)).history_summary
    lines = summary.splitlines()
    assert lines[0] == "18 earlier turns, the last 3 in short:"
    assert [line.partition(" and")[0] for line in lines[1:]] == [
        "remote_agent: message 15",
        "local_agent: message 16",
        "remote_agent: message 17",
    ]
    assert all(line.endswith("…") for line in lines[1:])


def test_a_turn_too_large_to_be_shown_is_told_by_its_beginning() -> None:
    run = [
        ConversationTurn(role="local_agent", text="Here is the log: " + "all is well. " * 5_000),
        *conversation("", "I see.")[1:],
    ]
    shown = bounded(run, PromptConstraints())
    assert shown.history == ()
    assert shown.history_summary.startswith("1 earlier turn, the last 1 in short:\nlocal_agent: Here is the log: all")
    assert 500 < len(shown.history_summary) < 700


def test_what_fits_exactly_is_shown_whole() -> None:
    run = conversation("x" * 50, "", "y" * 50)
    assert bounded(run, PromptConstraints(max_history_chars=100)).history == (run[0], run[2])
    assert bounded(run, PromptConstraints(max_history_chars=99)).history == (run[2],)


def test_a_summary_is_not_used_up_by_spaces() -> None:
    run = [ConversationTurn(role="local_agent", text="word" + " " * 1_000 + "another" + "x" * 30_000)]
    assert "local_agent: word another" in bounded(run, PromptConstraints()).history_summary


def test_a_text_of_spaces_is_not_taken_for_the_whole_of_it() -> None:
    run = [ConversationTurn(role="local_agent", text=" " * 40_000 + "and then this"), *conversation("", "I see.")[1:]]
    assert bounded(run, PromptConstraints()).history_summary.endswith("local_agent: …")


@pytest.mark.parametrize(("chars", "summary"), [(40, "Left out…"), (120, "Left out: 1 earlier turn."), (3, "")])
def test_where_there_is_hardly_any_room_the_summary_says_at_least_that_there_was_more(chars: int, summary: str) -> None:
    shown = bounded(conversation("x" * 200), PromptConstraints(max_history_chars=chars))
    assert shown == Bounded(history_summary=summary)


def test_a_request_holds_what_is_left_of_the_turns_and_the_bounds_that_were_kept() -> None:
    """S3, S5: the frame of the document, with the history bounded before each prompt."""
    run, held = conversation("Which?", "Three.", "Name them.", "a, b, c"), PromptConstraints(max_history_turns=1)
    prompt = Prompt(id="r.p3", turn_index=3, mode="manual", objective="review", turns=tuple(run))
    assert request(prompt, profile="p", session="s", constraints=held) == PromptRequest(
        request_id="r.p3",
        profile_id="p",
        session_id="s",
        turn_index=3,
        mode="manual",
        objective="review",
        remote_message="a, b, c",
        history=(run[2],),
        history_summary="2 earlier turns, the last 2 in short:\nlocal_agent: Which?\nremote_agent: Three.",
        constraints=held,
    )
