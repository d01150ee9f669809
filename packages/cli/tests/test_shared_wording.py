"""How a run of two agents reads in a terminal, and what is typed there means."""

from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from remit.words.terminal import several_lines
from remit_relay.bridge.ports import Choice, PermissionRequest
from remit_relay.commands.shared.commands import COMMANDS, HELP, Do, Edit, Leave, Meaning, Show, Tell, understood
from remit_relay.commands.shared.wording import (
    able,
    cells,
    doing,
    draft_lines,
    ending,
    entry_lines,
    folded,
    footer,
    heading,
    meters,
    trouble,
    writer,
)
from remit_relay.local_api.views import EntryView, QuestionView, SharedRunView, Surroundings
from remit_relay.local_api.views import view as view_of
from remit_relay.session import moves
from remit_relay.session.moves import SessionState
from remit_relay.session.review import Review
from remit_relay.session.run import DeliveryState, MessageProgress, Overlay, PendingDraft, TimelineEntry


def view(run: Overlay) -> SharedRunView:
    """Return a run as a chat gets it."""
    return view_of(run, Surroundings(now_ms=0))


BEGUN = Overlay(id="r1", profile="mine", device="d1", session="s1", objective="review this API")
WRITTEN = PendingDraft(
    id="r1.p1", text="first\nsecond", reviews=(Review(rule="money", why="It names an amount of money."),)
)
RUN = view(BEGUN)
DRAFT = view(replace(BEGUN, pending=WRITTEN)).draft
ASKED = replace(RUN, state=SessionState.READY_TO_SEND, draft=DRAFT)


def entry(**fields: Any) -> EntryView:
    """Return a message of the timeline."""
    given: dict[str, Any] = {"text": "x", "turn": 1, "at_ms": 0}
    (turn,) = view(replace(BEGUN, timeline=(TimelineEntry(**{**given, **fields}),))).timeline
    return turn


def permission_question(**fields: Any) -> QuestionView:
    """Return a permission request of the local agent."""
    choices = (Choice(id="1", name="Once", kind="allow_once"),)
    question = PermissionRequest(session_id="s1", kind="execute", choices=choices, **fields)
    (asks,) = view(replace(BEGUN, questions=(question,))).questions
    return asks


def shown(run: SharedRunView, **changes: Any) -> list[str]:
    """Return the footer in a window of usual size."""
    given: dict[str, Any] = {"connection": "connected", "question": None, "now_ms": 0, "width": 100, "height": 30}
    return footer(run, **{**given, **changes})


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chat_begins_with_who_works_with_whom_and_on_what() -> None:
    assert list(heading(RUN, "bob\x1b[2J")) == [
        "mine works with bob: run r1",
        "Objective: review this API",
        "Mode manual: you review every draft before it is sent. /help lists commands, Ctrl-C pauses.",
    ]


@pytest.mark.parametrize(
    ("role", "label", "turn", "says"),
    [
        ("local_agent", "auto_sent", 1, "Local agent (turn 1, auto-sent)"),
        ("local_agent", "approved", 2, "Local agent (turn 2, approved)"),
        ("local_agent", "edited", 2, "Local agent (turn 2, edited)"),
        ("user", "yours", 3, "You (turn 3, yours)"),
        ("remote_agent", None, 3, "Remote agent (turn 3)"),
        ("remote_agent", None, 0, "Remote agent (before the first turn)"),
    ],
)
def test_each_line_of_the_timeline_says_who_spoke_and_who_let_it_go(
    role: Any, label: Any, turn: int, says: str
) -> None:
    """S12."""
    speaker, *text = entry_lines(entry(role=role, text="a\n\x1b[31mb\u202e", turn=turn, label=label))
    assert speaker.endswith(f"  {says}")
    assert text == ["    a", "    b\ufffd"]


def test_the_footer_holds_the_objective_the_question_with_its_rule_and_the_meters() -> None:
    """S12."""
    assert shown(ASKED) == [
        "── Objective: review this API " + "─" * 70,
        "Draft for turn 1; needs your review because of",
        "  money: It names an amount of money.",
        "  │ first",
        "  │ second",
        "a approve · e edit · r WHY reject · /pause · /take over · /stop · /help",
        "draft needs review · manual · connected · turn 0 of 8 · 0 s of 10 min",
    ]


def test_the_footer_never_takes_more_than_its_share_of_the_window() -> None:
    """S12: what was said above it can still be read."""
    assert DRAFT is not None
    long = replace(DRAFT, text="漢字" * 18 + "\nline" * 500)  # the first is folded once
    lines = shown(replace(ASKED, objective="x" * 500, draft=long), width=40, height=24)
    assert len(lines) <= 24 - 6, "six lines are left of what was said"
    assert [line for line in lines if line.startswith("  …")] == ["  … 496 more lines; /show shows all"]
    assert all(cell_len(line) <= 40 for line in lines)
    assert list(draft_lines(replace(ASKED, draft=long)))[-2] == "    line", "and /show has all of it"


def test_a_long_objective_goes_on_in_the_next_lines_where_there_is_room() -> None:
    objective = "review this API for security issues, above all its tokens and who may revoke them"
    waiting = replace(RUN, state=SessionState.WAITING_LOCAL, objective=objective)
    assert shown(waiting, width=60, height=30)[:2] == [
        "── Objective: review this API for security issues, above",
        "   all its tokens and who may revoke them " + "─" * 18,
    ]
    assert shown(waiting, width=60, height=12)[0] == "── Objective: review this API for security issues, above… ──"


@pytest.mark.parametrize("height", [8, 9, 10, 12, 16, 24])
@pytest.mark.parametrize("width", [24, 40, 80])
def test_in_a_low_window_the_draft_is_shortened_and_never_what_can_be_typed(width: int, height: int) -> None:
    """S12: nobody agrees to a draft without being told that there is more of it."""
    reviews = tuple(
        Review(rule=f"rule_{number}", why="It is a long reason, for one reason or another.") for number in range(4)
    )
    long = replace(WRITTEN, text="words and more words\n" * 100, reviews=reviews)
    waiting = replace(BEGUN, state=SessionState.READY_TO_SEND, pending=long)
    lines = shown(view(waiting), width=width, height=height)
    assert len(lines) <= height - 2
    text = " ".join(lines)
    assert "a approve · e edit · r WHY reject · /" in text
    assert "more lines; /show shows all" in text
    assert "draft needs review" in text
    assert all(cell_len(line) <= max(width, 36) for line in lines)


def test_lines_are_folded_between_words_and_stay_indented() -> None:
    assert folded("    one two  three", 12) == ["    one two", "    three"]
    assert folded("", 10) == [""]
    assert folded("  ", 10) == ["  "]
    assert folded("abcdefghij klm", 4) == ["abcd", "efgh", "ij", "klm"]
    assert folded("漢字漢字 ok", 5) == ["漢字", "漢字", "ok"]
    assert folded("see https://example.com/a/long/page now", 16) == [
        "see",
        "https://example.",
        "com/a/long/page",
        "now",
    ]


@given(st.text(), st.integers(2, 60))
@example("\x85\u0e5c", 2)
@example(" 漢", 2)
def test_nothing_is_lost_when_a_line_is_folded(text: str, width: int) -> None:
    line = several_lines(text).replace("\n", " ").expandtabs(4)
    parts = folded(line, width)
    assert "".join("".join(parts).split(" ")) == "".join(line.split(" "))
    assert all(cells(part) <= width for part in parts)


def test_a_face_of_several_parts_takes_no_more_room_than_is_kept_for_it() -> None:
    """Terminals differ: some show a thumb and its colour side by side."""
    assert cells("👍🏽") == 4
    assert cells("❤️") == 2
    assert cells("漢字") == 4
    assert cells("abc") == 3


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (replace(RUN, state=SessionState.WAITING_LOCAL), "/pause · /take over · /stop · /help"),
        (
            replace(RUN, state=SessionState.PROCESSING_REMOTE, decides="person"),
            "type to send · /hand back · /pause · /stop · /help",
        ),
        (replace(RUN, state=SessionState.WAITING_REMOTE, decides="person"), "/pause · /hand back · /stop · /help"),
        (replace(ASKED, state=SessionState.PAUSED), "/resume · /take over · /stop · Ctrl-C exits · /help"),
        (
            replace(RUN, state=SessionState.PAUSED, decides="person"),
            "/resume · /hand back · /stop · Ctrl-C exits · /help",
        ),
        (ASKED, "a approve · e edit · r WHY reject · /pause · /take over · /stop · /help"),
        (replace(RUN, state=SessionState.ERROR), ""),
    ],
)
def test_what_can_be_typed_is_always_in_sight(run: SharedRunView, says: str) -> None:
    """S8, S12."""
    assert able(run) == says
    assert not says or shown(run)[-2] == says


@pytest.mark.parametrize(
    ("state", "decides", "writes", "does"),
    [
        (SessionState.PLANNING, "person", "You write now: each line that you type is sent.", "your turn to write"),
        (SessionState.PAUSED, "person", "You write now: /resume first; then each line that", "paused; you write next"),
        (SessionState.ERROR, "person", "You write now: /resume first; then each line that", "stopped by an error"),
        (SessionState.PLANNING, "agent", "Your agent writes again.", "your agent is writing"),
        (SessionState.PAUSED, "agent", "Your agent writes again, once you /resume.", "paused"),
        (SessionState.ERROR, "agent", "Your agent writes again, once you /resume.", "stopped by an error"),
    ],
)
def test_who_writes_and_whether_it_goes_on_are_said_apart(
    state: SessionState, decides: Literal["agent", "person"], writes: str, does: str
) -> None:
    run = replace(RUN, state=state, decides=decides)
    assert writer(run).startswith(writes)
    assert doing(run) == does


def test_what_to_do_after_an_error_depends_on_who_writes() -> None:
    failed = replace(RUN, state=SessionState.ERROR, failure="the agent ended")
    _, todo = trouble(failed)
    assert todo == "→ /resume retries, /take over and then /resume lets you write, /stop ends it."
    _, todo = trouble(replace(failed, decides="person"))
    assert todo == ("→ /resume lets you write again, /hand back and then /resume lets your agent write, /stop ends it.")


def test_who_waits_long_is_told_for_how_long_and_what_may_be() -> None:
    sent = entry(role="local_agent", label="approved")
    run = replace(RUN, state=SessionState.WAITING_REMOTE, turn=1, timeline=(sent,))
    assert shown(run, now_ms=2_000)[-1].startswith("waiting for the other agent · manual")
    assert shown(run, now_ms=12_000)[-1].startswith("waiting for the other agent for 12 s · manual")
    assert "may be offline" not in " ".join(shown(run, now_ms=12_000))
    assert "Its device may be offline" in shown(run, now_ms=60_000)[1]
    assert "may be offline" not in " ".join(shown(run, now_ms=60_000, connection="waiting")), "then it is this one"


def test_where_nobody_can_type_nothing_is_said_that_could_be() -> None:
    assert list(heading(RUN, "bob", typed=False))[-1].endswith("it is sent. Ctrl-C pauses it and exits.")
    failed = replace(RUN, state=SessionState.ERROR, failure="the agent ended")
    assert list(trouble(failed, typed=False)) == ["Stopped by an error: the agent ended."]


def test_a_long_failure_leaves_what_can_be_typed_in_sight() -> None:
    failed = replace(RUN, state=SessionState.ERROR, failure="it said last: " + "a word " * 60)
    lines = shown(failed, width=40, height=10)
    assert len(lines) <= 8
    assert "/stop ends it." in " ".join(lines)


def test_a_failure_calls_the_other_device_by_its_name() -> None:
    failed = replace(RUN, state=SessionState.ERROR, failure="the device d1 was revoked")
    assert next(iter(trouble(failed, "bob"))) == "Stopped by an error: the device bob was revoked."
    assert shown(failed, device="bob")[1] == "Stopped by an error: the device bob was revoked."


def test_what_the_local_agent_asks_leave_for_is_shown_with_its_answers() -> None:
    asks = permission_question(title="Run tests", details='{"command": "make"}')
    lines = shown(replace(RUN, state=SessionState.WAITING_LOCAL), question=asks)
    assert lines[1:-1] == [
        "Your agent asks for permission (execute): Run tests",
        '    {"command": "make"}',
        "1 Once · n no",
    ]


def test_what_does_not_fit_of_a_question_is_said_to_be_missing() -> None:
    """Nobody shall agree to the end of a command that they cannot see."""
    command = " ".join(f"word-{number}" for number in range(150))
    asks = permission_question(title="Run it", details=command)
    run = replace(RUN, state=SessionState.WAITING_LOCAL)
    assert "word-149" in " ".join(shown(run, question=asks, width=80, height=40))
    low = shown(run, question=asks, width=80, height=10)
    assert len(low) <= 8
    assert "word-149" not in " ".join(low)
    (notice,) = (line for line in low if "more lines" in line)
    hidden = len(shown(run, question=asks, width=80, height=40)) - len(low) + 1
    assert notice == f"… {hidden} more lines: enlarge the window to see them"
    assert low[low.index(notice) + 1] == "1 Once · n no"


def test_meters_count_working_time_and_tokens_only_against_a_budget() -> None:
    """S7."""
    run = replace(RUN, turn=2, active_ms=61_500, tokens=1_200)
    assert meters(run) == "turn 2 of 8 · 61 s of 10 min"
    assert meters(replace(run, max_tokens=5_000)) == "turn 2 of 8 · 61 s of 10 min · 1,200 of 5,000 tokens"


def test_every_state_is_said_without_jargon() -> None:
    wordings = {state: doing(replace(RUN, state=state)) for state in SessionState}
    assert all(wordings.values())
    assert not any("_" in text for text in wordings.values())
    assert doing(replace(RUN, state=SessionState.PLANNING, decides="person")) == "your turn to write"
    assert doing(replace(RUN, state=SessionState.PAUSED, kept=1)) == "paused; a reply arrived"
    assert doing(replace(RUN, state=SessionState.WAITING_REMOTE), "waiting") == "waiting to be sent"


def test_a_limit_has_a_banner_and_an_error_says_what_to_do() -> None:
    """S7, S12."""
    ended = replace(
        RUN, state=SessionState.STOPPED, ended="max_turns", banner="The run has ended at its limit of 8 turns"
    )
    first, banner, last, meter = ending(ended)
    assert (first, banner, meter) == (last, ended.banner, "turn 0 of 8 · 0 s of 10 min.")
    assert set(first) == {"═"}
    failed = replace(RUN, state=SessionState.ERROR, failure="the agent ended")
    todo = "→ /resume retries, /take over and then /resume lets you write, /stop ends it."
    assert list(trouble(failed)) == ["Stopped by an error: the agent ended.", todo]
    assert shown(failed)[1:3] == list(trouble(failed))


def test_who_has_to_say_which_agent_is_meant_can_type_it() -> None:
    unclear = replace(RUN, state=SessionState.ERROR, failure="AGENT_NOT_FOUND: several agents are shared")
    assert list(trouble(unclear))[1].startswith("→ /resume AGENT continues with that agent, ")
    assert list(trouble(replace(unclear, agent="cook")))[1].startswith("→ /resume retries, ")
    assert understood("/resume cook", unclear) == Do(moves.Resume(agent="cook"))
    assert understood("/resume", unclear) == Do(moves.Resume())


# ── what is typed ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("a", Do(moves.Approve("r1.p1"))),
        (" Y ", Do(moves.Approve("r1.p1"))),
        ("/approve", Do(moves.Approve("r1.p1"))),
        ("e", Edit()),
        ("/edit", Edit()),
        ("/edit other words", Do(moves.Approve("r1.p1", "other words"))),
        ("r", Do(moves.Reject("r1.p1"))),
        ("r too long", Do(moves.Reject("r1.p1", "too long"))),
        ("/reject too long", Do(moves.Reject("r1.p1", "too long"))),
        ("/pause", Do(moves.Pause())),
        ("/stop", Do(moves.Stop())),
        ("/take over", Do(moves.TakeOver())),
        ("/takeover", Do(moves.TakeOver())),
        ("/TAKE  over", Do(moves.TakeOver())),
        ("/objective something else", Do(moves.SetObjective("something else"))),
        ("/mode full-auto", Do(moves.SetMode("full_auto"))),
        ("/mode semi_auto", Do(moves.SetMode("semi_auto"))),
        ("/show", Show()),
        ("/quit", Leave()),
        ("/help", Tell(tuple(HELP))),
        ("  ", None),
    ],
)
def test_what_is_typed_at_a_draft_means(typed: str, means: Meaning | None) -> None:
    """S8."""
    assert understood(typed, ASKED) == means


@pytest.mark.parametrize(
    ("typed", "run", "says"),
    [
        ("a", replace(RUN, state=SessionState.WAITING_LOCAL), "Your agent writes the messages."),
        ("/approve", replace(RUN, state=SessionState.WAITING_LOCAL), "No pending draft: your agent is writing."),
        ("/edit", replace(RUN, state=SessionState.WAITING_LOCAL), "No pending draft"),
        ("/reject x", replace(RUN, state=SessionState.WAITING_LOCAL), "No pending draft"),
        (
            "a",
            replace(ASKED, state=SessionState.PAUSED),
            "Not possible now: paused; a draft is pending. You can: /resume, /stop.",
        ),
        ("e", replace(ASKED, state=SessionState.PAUSED), "Not possible now: paused"),
        ("/resume", ASKED, "Not possible now: draft needs review. You can: /pause, /stop."),
        ("/pause", replace(RUN, state=SessionState.COMPLETED), "Not possible now: ended."),
        ("/approve it", ASKED, "/approve sends the draft unchanged"),
        ("a lot of words", ASKED, "Your agent writes the messages."),
        ("/stop it", ASKED, "/stop takes no argument."),
        ("/hand back", ASKED, "Your agent is already writing"),
        ("/take over", replace(RUN, decides="person", state=SessionState.PLANNING), "You are already writing"),
        ("/objective", ASKED, "Objective: review this API"),
        ("/mode", ASKED, "Mode manual: "),
        ("/mode loud", ASKED, "No such mode loud; choose from manual, semi_auto, full_auto."),
        ("/aprove", ASKED, "No such command /aprove; did you mean `/approve`?"),
        ("/", ASKED, "No such command /; see /help"),
    ],
)
def test_what_cannot_be_now_is_said_with_what_can(typed: str, run: SharedRunView, says: str) -> None:
    meaning = understood(typed, run)
    assert isinstance(meaning, Tell)
    assert meaning.lines[0].startswith(says)


def test_who_has_taken_over_sends_each_line_and_keeps_one_that_cannot_go_yet() -> None:
    """S8."""
    taken = replace(RUN, decides="person", state=SessionState.PROCESSING_REMOTE)
    assert understood("a", taken) == Do(moves.Say("a"))
    assert understood("//etc", taken) == Do(moves.Say("/etc"))
    waits = understood("too early", replace(taken, state=SessionState.WAITING_REMOTE))
    assert isinstance(waits, Tell)
    assert waits.again == "too early"
    assert waits.lines == ("Not sent: waiting for the other agent; send it afterwards.",)
    paused = understood("x", replace(taken, state=SessionState.PAUSED))
    assert isinstance(paused, Tell)
    assert "/resume first" in paused.lines[0]


def test_every_command_is_understood_and_explained() -> None:
    for name in COMMANDS:
        meaning = understood(f"/{name}", ASKED)
        unknown = isinstance(meaning, Tell) and meaning.lines[0].startswith("No such command")
        assert not unknown, name
    assert all(cell_len(line) < 120 for line in HELP)


@pytest.mark.parametrize(
    ("state", "shown"),
    [("waiting", "sent"), ("taken", "taken by the gateway"), ("delivered", "delivered"), ("read", "read")],
)
def test_a_run_that_waits_says_how_far_its_message_has_come(state: DeliveryState, shown: str) -> None:
    message = TimelineEntry(
        role="local_agent",
        text="hi",
        turn=1,
        at_ms=0,
        id="r.m1",
        delivery=MessageProgress(state=state, since_ms=0),
    )
    overlay = Overlay(
        id="r",
        profile="p",
        device="d",
        session="s",
        objective="o",
        state=SessionState.WAITING_REMOTE,
        turn=1,
        timeline=(message,),
    )
    run = view(overlay)
    assert doing(run) == f"waiting for the other agent ({shown})"
    away = "waiting to be sent" if state == "waiting" else f"waiting for the other agent ({shown})"
    assert doing(run, "waiting") == away
    lines = footer(run, connection="connected", question=None, now_ms=60_000, width=100, height=40)
    assert any("may be offline" in line for line in lines) == (state in ("waiting", "taken"))
