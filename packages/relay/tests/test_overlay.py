"""A run is worked on by two agents, one turn at a time, and a person can step in at any moment."""

import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from properties import share
from remit.protocol.lifecycle import IllegalMoveError
from remit_relay.bridge.ports import Choice, ConversationTurn, Draft, DraftFailure, Mode, PermissionRequest
from remit_relay.session.moves import (
    ENDED,
    EVENTS,
    TABLE,
    Approve,
    Arrived,
    Asked,
    AskPerson,
    Attach,
    Cancel,
    Decide,
    Detach,
    Drafted,
    Effect,
    Ended,
    Event,
    HandBack,
    LocalFailed,
    Pause,
    Permit,
    Prompt,
    Prompted,
    Reject,
    RemoteFailed,
    Restarted,
    Resume,
    Revoked,
    Say,
    Send,
    Sent,
    SessionState,
    SetMode,
    SetObjective,
    Start,
    Stop,
    TakeOver,
    Tick,
    Unasked,
    as_markdown,
)
from remit_relay.session.profile import Attachment, ProfileLimits
from remit_relay.session.reducer import (
    MOST_UNANSWERED,
    MoveRefused,
    Overlay,
    PendingDraft,
    TimelineEntry,
    Transition,
    is_changed_by_restart,
    step,
)
from remit_relay.session.review import Review
from remit_relay.session.run import Person

MANUAL = Review(rule="manual", why="In manual mode you see every draft first.")
WHILE_PAUSED = Review(rule="paused", why="It came while the run was paused.")
LOST = Review(rule="lost", why="It was sent before and got no reply; it would be sent once more.")
LINKS = Review(rule="links", why="It links to example.com.")

FILE = Attachment(id="f", name="notes.txt", media_type="text/plain", size=5, at_ms=0)


def a_run(mode: Mode = "full_auto", **fields: Any) -> Overlay:
    return Overlay(
        id="r", profile="mine", device="theirs", session="s", objective="review this API", mode=mode, **fields
    )


class Host:
    """Does what a host does, as far as a test lets it: gives events to a run, and keeps what is to be done."""

    def __init__(self, run: Overlay) -> None:
        self.run = run
        self.now = 1_000

    @property
    def prompt(self) -> str:
        assert self.run.prompt is not None
        return self.run.prompt

    def after(self, ms: int) -> "Host":
        self.now += ms
        return self

    def says(self, event: Event, by: Person | None = None) -> tuple[Effect, ...]:
        taken = step(self.run, event, self.now, by)
        assert isinstance(taken, Transition), taken
        self.run = taken.overlay
        return taken.effects

    def refuses(self, event: Event) -> str:
        before = self.run
        taken = step(self.run, event, self.now)
        assert isinstance(taken, MoveRefused), taken
        assert self.run == before
        return taken.why

    def drafts(self, text: str = "hello", *reviews: Review, **fields: Any) -> tuple[Effect, ...]:
        """Let the local agent answer the prompt that is due."""
        if self.run.state is not SessionState.WAITING_LOCAL:
            assert self.says(Prompted(self.prompt)) == ()
        return self.says(Drafted(self.prompt, Draft(text=text, **fields), reviews))

    def sends(self, text: str = "hello") -> None:
        """Let a draft go out, of a run that asks nobody."""
        self.drafts(text)
        assert self.says(Sent(f"r.m{self.run.turn}")) == ()

    def turns(self, count: int) -> "Host":
        for number in range(count):
            self.sends(f"question {number}")
            self.says(Arrived(f"answer {number}"))
        return self


def started(mode: Mode = "full_auto", **fields: Any) -> Host:
    host = Host(a_run(mode, **fields))
    host.says(Start())
    return host


# ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_goes_from_draft_to_message_to_reply_to_the_next_draft() -> None:
    """S2, S9: the loop, and each state of it."""
    host = Host(a_run())
    assert host.says(Start()) == (
        Prompt(id="r.p1", turn_index=1, mode="full_auto", objective="review this API", turns=()),
    )
    assert host.run.state is SessionState.PLANNING
    assert host.says(Prompted("r.p1")) == ()
    assert host.run.state is SessionState.WAITING_LOCAL
    drafted = Drafted("r.p1", Draft(text="Which endpoints?", tokens=7, duration_ms=40), ())
    assert host.after(50).says(drafted) == (Send(id="r.m1", turn=1, text="Which endpoints?", label="auto_sent"),)
    assert host.run.state is SessionState.READY_TO_SEND
    assert host.after(2).says(Sent("r.m1")) == ()
    assert host.run.state is SessionState.WAITING_REMOTE
    assert host.after(300).says(Arrived("Three.")) == (
        Prompt(
            id="r.p2",
            turn_index=2,
            mode="full_auto",
            objective="review this API",
            turns=(
                ConversationTurn(role="local_agent", text="Which endpoints?"),
                ConversationTurn(role="remote_agent", text="Three."),
            ),
        ),
    )
    assert host.run == a_run(
        state=SessionState.PROCESSING_REMOTE,
        turn=1,
        tokens=7,
        active_ms=352,
        since_ms=1_352,
        prompts=2,
        prompt="r.p2",
        timeline=(
            TimelineEntry(
                role="local_agent",
                text="Which endpoints?",
                turn=1,
                at_ms=1_050,
                took_ms=40,
                id="r.m1",
                label="auto_sent",
                sent_ms=1_052,
                number=1,
            ),
            TimelineEntry(role="remote_agent", text="Three.", turn=1, at_ms=1_352, took_ms=302, number=2),
        ),
        entries=2,
    )
    host.says(Prompted("r.p2"))
    assert host.run.state is SessionState.WAITING_LOCAL


def test_an_agent_that_says_done_completes_the_run_and_nothing_more_is_sent() -> None:
    host = started().turns(1)
    assert host.drafts("All is reviewed.", done=True) == (Ended(state=SessionState.COMPLETED, why="done"),)
    assert (host.run.state, host.run.ended, host.run.result) == (SessionState.COMPLETED, "done", "All is reviewed.")
    assert (host.run.turn, host.run.pending, host.run.banner) == (1, None, "")


def test_a_run_without_an_objective_does_not_start() -> None:
    host = Host(msgspec.structs.replace(a_run(), objective=" \n"))
    assert host.refuses(Start()) == "a run cannot start without an objective"


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_in_manual_mode_a_person_approves_each_message() -> None:
    """S6: manual is the default."""
    assert Overlay(id="r", profile="p", device="d", session="s", objective="o").mode == "manual"
    host = started("manual")
    assert host.drafts("hello", LINKS) == (AskPerson(draft="r.p1", text="hello", reviews=(MANUAL, LINKS)),)
    assert host.run.pending == PendingDraft(id="r.p1", text="hello", reviews=(MANUAL, LINKS))
    assert host.says(Approve("r.p1")) == (Send(id="r.m1", turn=1, text="hello", label="approved"),)
    assert host.run.timeline[0].label == "approved"
    assert host.run.timeline[0].reviews == (MANUAL, LINKS)


def test_in_semi_auto_a_person_is_asked_only_if_a_rule_asks() -> None:
    """S6: review on a rule, and each review says which."""
    assert started("semi_auto").drafts("hello") == (Send(id="r.m1", turn=1, text="hello", label="auto_sent"),)
    assert started("semi_auto").drafts("hello", LINKS) == (AskPerson(draft="r.p1", text="hello", reviews=(LINKS,)),)


def test_in_full_auto_nobody_is_asked() -> None:
    assert started().drafts("hello", LINKS) == (Send(id="r.m1", turn=1, text="hello", label="auto_sent"),)


def test_a_person_can_edit_what_is_sent() -> None:
    host = started("manual")
    host.drafts("hello")
    assert host.refuses(Approve("r.p1", "  ")) == "an empty message cannot be sent; reject the draft instead"
    assert host.says(Approve("r.p1", "hello there")) == (Send(id="r.m1", turn=1, text="hello there", label="edited"),)


def test_a_draft_that_was_not_changed_after_all_is_not_called_edited() -> None:
    host = started("manual")
    host.drafts("hello")
    assert host.says(Approve("r.p1", "hello")) == (Send(id="r.m1", turn=1, text="hello", label="approved"),)


def test_an_entry_names_the_person_who_released_it_and_holds_the_draft_that_was_edited() -> None:
    ann, bea = Person("ann", "chat"), Person("bea", "api")
    host = started("manual")
    host.drafts("hello")
    host.says(Reject("r.p1", "too short"), bea)
    host.drafts("hello there")
    host.says(Approve("r.p2", "good day"), ann)
    assert [(each.number, each.id, each.text, each.reason, each.rejected_by) for each in host.run.rejected] == [
        (1, "r.p1", "hello", "too short", bea)
    ]
    (sent,) = host.run.timeline
    assert (sent.number, sent.original, sent.edited_by, sent.released_by) == (2, "hello there", ann, ann)
    # It came back, and another person sends it as it is: it is still edited, by the first.
    host.says(Sent("r.m1"))
    host.says(RemoteFailed("gone", lost=True))
    host.says(Resume())
    assert host.says(Approve("r.m1"), bea) == (Send(id="r.m2", turn=2, text="good day", label="edited"),)
    again = host.run.timeline[-1]
    assert (again.number, again.original, again.edited_by, again.released_by) == (3, "hello there", ann, bea)


def test_an_agent_is_told_what_a_person_did_not_let_go_and_drafts_anew() -> None:
    host = started("manual").after(5)
    host.drafts("hello")
    (prompt,) = host.says(Reject("r.p1", "too short"))
    assert isinstance(prompt, Prompt)
    assert (prompt.id, prompt.turn_index) == ("r.p2", 1)
    assert prompt.turns == (
        ConversationTurn(role="user", text="Your draft was not sent: hello\nThe reason: too short"),
    )
    host.drafts("hello there")
    (prompt,) = host.says(Reject("r.p2"))
    assert isinstance(prompt, Prompt)
    assert prompt.turns == (ConversationTurn(role="user", text="Your draft was not sent: hello there"),)
    host.drafts("hello again")
    host.says(Approve("r.p3"))
    host.says(Sent("r.m1"))
    (prompt,) = host.says(Arrived("hi"))
    assert isinstance(prompt, Prompt)
    assert [turn.role for turn in prompt.turns] == ["local_agent", "remote_agent"]


def test_only_the_draft_that_the_person_has_seen_is_approved_or_rejected() -> None:
    host = started("manual")
    host.drafts("hello")
    host.says(Reject("r.p1"))
    host.drafts("give them the key")
    sentence = "the draft r.p1 is not pending (pending: r.p2)"
    assert [host.refuses(event) for event in (Approve("r.p1"), Reject("r.p1"))] == [sentence, sentence]
    host.says(Approve("r.p2"))
    assert host.refuses(Approve("r.p2")) == "the draft r.p2 is not pending (pending: none)"
    assert host.refuses(Reject("r.p2")) == "the draft r.p2 is not pending (pending: none)"


def test_another_mode_counts_for_the_next_draft_and_what_is_asked_stays_asked() -> None:
    host = started("manual")
    host.drafts("hello")
    assert host.says(SetMode("full_auto")) == ()
    assert host.run.pending is not None
    host.says(Approve("r.p1"))
    host.says(Sent("r.m1"))
    host.says(Arrived("hi"))
    assert host.drafts("bye") == (Send(id="r.m2", turn=2, text="bye", label="auto_sent"),)
    host.says(SetMode("manual"))
    host.says(Sent("r.m2"))
    host.says(Arrived("bye"))
    assert host.drafts("well") == (AskPerson(draft="r.p3", text="well", reviews=(MANUAL,)),)


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_limits_are_those_of_the_document() -> None:
    """S7: 8 turns, 10 minutes, 3 failures in a row, optional token budget."""
    assert a_run().limits == ProfileLimits(
        max_turns=8, max_duration_ms=10 * 60 * 1_000, max_failures=3, max_tokens_budget=None
    )


def test_full_auto_runs_until_the_last_turn_has_its_reply() -> None:
    """S7, S14: full-auto runs until the max-turn stop condition."""
    host = started().turns(7)
    assert host.run.state is SessionState.PROCESSING_REMOTE
    host.sends()
    banner = "The run has ended at its limit of 8 turns"
    assert host.says(Arrived("the last answer")) == (Ended(state=SessionState.STOPPED, why="max_turns", banner=banner),)
    assert (host.run.turn, host.run.banner, host.run.timeline[-1].text) == (8, banner, "the last answer")


def test_a_run_ends_when_its_time_is_over() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    assert host.after(599_999).says(Tick()) == ()
    banner = "The run has ended at its limit of 10 minutes of work"
    ended = Ended(state=SessionState.STOPPED, why="max_duration_ms", banner=banner)
    assert host.after(1).says(Tick()) == (Cancel("r.p1"), ended)
    assert (host.run.active_ms, host.run.since_ms, host.run.prompt) == (600_000, None, None)


@pytest.mark.parametrize(
    ("limit_ms", "words"),
    [(3_000, "3 seconds"), (90_000, "90 seconds"), (3_600_000, "1 hour"), (250, "250 milliseconds")],
)
def test_the_banner_says_a_time_in_a_unit_that_fits(limit_ms: int, words: str) -> None:
    host = started(limits=ProfileLimits(max_duration_ms=limit_ms))
    host.says(Prompted("r.p1"))
    host.after(limit_ms).says(Tick())
    assert host.run.banner == f"The run has ended at its limit of {words} of work"


def test_a_draft_that_comes_too_late_is_not_sent_but_can_be_seen() -> None:
    host = started().after(600_000)
    (ended,) = host.drafts("hello")
    assert isinstance(ended, Ended)
    assert ended.why == "max_duration_ms"
    assert host.run.pending == PendingDraft(id="r.p1", text="hello")
    assert host.run.timeline == ()


@pytest.mark.parametrize("waits", ["paused", "in error", "asked", "taken over"])
def test_time_in_which_no_agent_works_does_not_count(waits: str) -> None:
    """S8: paused time does not count."""
    host = started("manual" if waits == "asked" else "full_auto").after(10)
    if waits == "paused":
        host.says(Pause())
    elif waits == "in error":
        host.says(LocalFailed("r.p1", DraftFailure(reason="gone", hard=True)))
    elif waits == "asked":
        host.drafts()
    else:
        host.says(TakeOver())
    host.after(3_600_000).says(Tick())
    assert (host.run.active_ms, host.run.since_ms) == (10, None)
    host.says(Approve("r.p1") if waits == "asked" else HandBack() if waits == "taken over" else Resume())
    host.after(5).says(Tick())
    assert host.run.active_ms == 15


def test_a_clock_that_is_set_back_gives_no_time_back() -> None:
    host = started().after(10)
    host.says(Tick())
    host.after(-1_000_000).says(Tick())
    assert host.run.active_ms == 10
    host.says(Prompted("r.p1"))
    host.drafts()
    host.says(Sent("r.m1"))
    host.after(-5).says(Arrived("hi"))
    assert host.run.timeline[-1].took_ms == 0


def test_failures_that_are_not_hard_are_tried_again_until_there_are_too_many_in_a_row() -> None:
    host = started()
    (prompt,) = host.says(LocalFailed("r.p1", DraftFailure(reason="busy", hard=False)))
    assert isinstance(prompt, Prompt)
    assert (prompt.id, host.run.state, host.run.failures) == ("r.p2", SessionState.PLANNING, 1)
    host.drafts(" ")
    assert (host.run.prompt, host.run.failures, host.run.failure) == ("r.p3", 2, "the draft is empty")
    banner = "The run has ended at its limit of 3 failures in a row, the last: busy"
    assert host.says(LocalFailed("r.p3", DraftFailure(reason="busy", hard=False))) == (
        Ended(state=SessionState.STOPPED, why="max_failures", banner=banner),
    )


def test_a_success_in_between_starts_the_row_of_failures_anew() -> None:
    host = started()
    for _ in range(4):
        host.says(LocalFailed(host.prompt, DraftFailure(reason="busy", hard=False)))
        host.says(LocalFailed(host.prompt, DraftFailure(reason="busy", hard=False)))
        host.turns(1)
    assert (host.run.failures, host.run.failure, host.run.state) == (0, "", SessionState.PROCESSING_REMOTE)


def test_a_draft_ends_a_row_of_failures_also_if_it_is_not_sent() -> None:
    host = started("manual")
    for _ in range(2):
        host.says(LocalFailed(host.prompt, DraftFailure(reason="busy", hard=False)))
    host.drafts()
    assert (host.run.failures, host.run.failure) == (0, "")


def test_a_reply_ends_a_row_of_failures_too() -> None:
    host = started()
    host.sends()
    for _ in range(2):
        host.says(RemoteFailed("offline"))
        host.says(Resume())
    assert host.run.failures == 2
    host.says(Arrived("hi"))
    assert (host.run.failures, host.run.failure) == (0, "")


def test_a_budget_that_is_spent_ends_the_run_before_the_next_prompt() -> None:
    """S7: optional token budget."""
    host = started(limits=ProfileLimits(max_tokens_budget=10))
    assert host.drafts("hello", tokens=10) == (Send(id="r.m1", turn=1, text="hello", label="auto_sent"),)
    host.says(Sent("r.m1"))
    banner = "The run has ended at its limit of 10 tokens"
    assert host.says(Arrived("hi")) == (Ended(state=SessionState.STOPPED, why="max_tokens_budget", banner=banner),)


def test_a_draft_that_cost_more_than_the_budget_is_not_sent() -> None:
    host = started(limits=ProfileLimits(max_tokens_budget=10))
    (ended,) = host.drafts("hello", tokens=11)
    assert isinstance(ended, Ended)
    assert (ended.why, host.run.tokens, host.run.turn) == ("max_tokens_budget", 11, 0)
    assert host.run.pending == PendingDraft(id="r.p1", text="hello")


def test_what_an_agent_does_not_say_it_spent_is_estimated() -> None:
    host = started()
    host.drafts("hello")
    assert host.run.tokens == 2


# ── controls ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pause_takes_back_a_prompt_that_was_not_begun() -> None:
    host = started()
    assert host.says(Pause()) == (Cancel("r.p1"),)
    assert (host.run.state, host.run.back) == (SessionState.PAUSED, SessionState.PLANNING)
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert prompt.id == "r.p2"


def test_a_draft_that_comes_while_paused_is_kept_and_a_person_is_asked_about_it() -> None:
    """S8: Pause is immediate, and prevents new sends, in every mode."""
    host = started()
    host.says(Prompted("r.p1"))
    assert host.says(Pause()) == ()
    assert host.says(Drafted("r.p1", Draft(text="hello"), ())) == ()
    assert host.run.state is SessionState.PAUSED
    assert host.says(Resume()) == (AskPerson(draft="r.p1", text="hello", reviews=(WHILE_PAUSED,)),)
    assert host.says(Approve("r.p1")) == (Send(id="r.m1", turn=1, text="hello", label="approved"),)


def test_an_agent_that_is_done_while_paused_completes_the_run_when_it_is_resumed() -> None:
    host = started(limits=ProfileLimits(max_tokens_budget=1))
    host.says(Prompted("r.p1"))
    host.says(Pause())
    assert host.says(Drafted("r.p1", Draft(text="That is all.", done=True), ())) == ()
    assert host.run.state is SessionState.PAUSED
    assert host.says(Resume()) == (Ended(state=SessionState.COMPLETED, why="done"),)
    assert host.run.result == "That is all."


def test_a_prompt_that_is_still_in_flight_is_awaited_after_a_pause() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.says(Pause())
    assert host.says(Resume()) == ()
    assert host.drafts() == (Send(id="r.m1", turn=1, text="hello", label="auto_sent"),)


def test_a_prompt_that_fails_while_paused_is_made_anew_on_resume() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.says(Pause())
    assert host.says(LocalFailed("r.p1", DraftFailure(reason="busy", hard=False))) == ()
    assert (host.run.state, host.run.back) == (SessionState.PAUSED, SessionState.PLANNING)
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert prompt.id == "r.p2"


def test_a_hard_failure_while_paused_is_an_error() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.says(Pause())
    host.says(LocalFailed("r.p1", DraftFailure(reason="it crashed", hard=True)))
    assert (host.run.state, host.run.failure) == (SessionState.ERROR, "it crashed")


def test_replies_that_come_while_paused_are_kept_and_answered_on_resume() -> None:
    host = started()
    host.sends()
    host.says(Pause())
    assert host.says(Arrived("one")) == ()
    assert host.says(Arrived("two")) == ()
    assert [reply.text for reply in host.run.kept] == ["one", "two"]
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert [turn.text for turn in prompt.turns] == ["hello", "one", "two"]
    assert host.run.kept == ()


def test_a_person_who_was_asked_before_a_pause_is_asked_again_after_it() -> None:
    host = started("manual")
    asked = host.drafts()
    host.says(Pause())
    assert "Approve is not possible while the run is paused" in host.refuses(Approve("r.p1"))
    host.says(Arrived("one more thing"))
    assert host.says(Resume()) == asked
    assert host.run.timeline[-1].text == "one more thing"


def test_stop_ends_a_run_wherever_it_is_and_what_came_is_not_lost() -> None:
    host = started()
    host.sends()
    host.says(Pause())
    host.says(Arrived("too late"))
    assert host.says(Stop()) == (Ended(state=SessionState.STOPPED, why="user"),)
    assert (host.run.timeline[-1].text, host.run.kept, host.run.back) == ("too late", (), None)
    assert host.refuses(Resume()) == "Resume is not possible: the run is stopped, and that is final"


def test_stop_cancels_the_prompt_in_flight() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    assert host.says(Stop()) == (Cancel("r.p1"), Ended(state=SessionState.STOPPED, why="user"))


def test_who_takes_over_types_until_the_agent_has_it_back() -> None:
    """S8: take over."""
    host = started()
    host.says(Prompted("r.p1"))
    assert host.refuses(HandBack()).startswith("HandBack is not possible while the run is waiting_local")
    assert host.says(TakeOver()) == (Cancel("r.p1"),)
    assert (host.run.state, host.run.decides) == (SessionState.PLANNING, "person")
    assert host.refuses(TakeOver()) == "a person has already taken over"
    assert host.refuses(Say(" ")) == "an empty message cannot be sent"
    assert host.says(Say("Hello, it is me.")) == (Send(id="r.m1", turn=1, text="Hello, it is me.", label="yours"),)
    host.says(Sent("r.m1"))
    assert host.says(Arrived("Oh, hello!")) == ()
    assert host.run.state is SessionState.PROCESSING_REMOTE
    (prompt,) = host.says(HandBack())
    assert isinstance(prompt, Prompt)
    assert prompt.turns == (
        ConversationTurn(role="user", text="Hello, it is me."),
        ConversationTurn(role="remote_agent", text="Oh, hello!"),
    )
    assert host.refuses(Say("And another thing")) == "the agent writes the next message; take over first"
    assert host.refuses(HandBack()) == "the agent already writes the next message"


def test_a_chat_that_a_person_begins_asks_the_agent_nothing_and_has_no_limit_until_the_agent_is_to_write() -> None:
    limits = ProfileLimits(max_turns=2, max_duration_ms=1_000)
    host = Host(a_run(decides="person", limits=limits))
    host.run = replace(host.run, objective="")
    assert host.says(Start()) == ()
    for turn in range(1, 6):
        assert host.says(Say("hello")) == (Send(id=f"r.m{turn}", turn=turn, text="hello", label="yours"),)
        host.says(Sent(f"r.m{turn}"))
        assert host.run.since_ms is None
        assert host.after(5_000).says(Tick()) == ()
        assert host.says(Arrived("hello!")) == ()
    assert host.refuses(HandBack()) == "the agent needs an objective; set one first"
    assert host.says(SetObjective("review this API")) == ()
    (prompt,) = host.says(HandBack())
    assert isinstance(prompt, Prompt)
    assert (prompt.turn_index, len(prompt.turns), host.run.counted_turns) == (6, 10, 0)
    host.turns(1)
    assert host.run.state is SessionState.PROCESSING_REMOTE
    host.sends()
    (ended,) = host.says(Arrived("the last answer"))
    assert ended == Ended(
        state=SessionState.STOPPED, why="max_turns", banner="The run has ended at its limit of 2 turns"
    )


def test_a_message_of_such_a_chat_that_was_refused_here_counts_no_more_than_another() -> None:
    host = Host(a_run(decides="person", limits=ProfileLimits(max_turns=1)))
    host.says(Start())
    host.says(Say("hello"))
    host.run = replace(host.run, unsent="too many")
    host.says(RemoteFailed("too many", lost=True))
    assert (host.run.state, host.run.turn, host.run.typed_before) == (SessionState.ERROR, 0, 0)
    host.says(HandBack())
    host.says(Resume())
    host.sends()
    (ended,) = host.says(Arrived("yes"))
    assert isinstance(ended, Ended)
    assert ended.why == "max_turns"


def test_what_the_agent_drafts_after_someone_took_over_is_refused() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.says(TakeOver())
    host.says(HandBack())
    host.says(Prompted("r.p2"))
    assert host.refuses(Drafted("r.p1", Draft(text="too late"), ())) == (
        "the prompt r.p1 is not the current one (r.p2)"
    )


def test_another_objective_cancels_the_draft_that_is_made_for_the_old_one() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    cancel, prompt = host.says(SetObjective("review its tests"))
    assert cancel == Cancel("r.p1")
    assert isinstance(prompt, Prompt)
    assert (prompt.id, prompt.objective, host.run.state) == ("r.p2", "review its tests", SessionState.PLANNING)
    assert host.refuses(SetObjective("")) == "the objective must not be empty"


def test_another_objective_sets_aside_the_draft_that_a_person_is_asked_about() -> None:
    host = started("manual")
    host.drafts()
    (prompt,) = host.says(SetObjective("review its tests"))
    assert isinstance(prompt, Prompt)
    assert host.run.pending is None


def test_what_was_said_of_a_draft_for_the_old_objective_does_not_count_for_the_new_one() -> None:
    host = started("manual")
    host.drafts()
    host.says(Reject("r.p1", "too short"))
    _, prompt = host.says(SetObjective("review its tests"))
    assert isinstance(prompt, Prompt)
    assert prompt.turns == ()


def test_another_objective_while_paused_counts_when_it_is_resumed() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.says(Pause())
    assert host.says(SetObjective("review its tests")) == (Cancel("r.p1"),)
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert prompt.objective == "review its tests"


@pytest.mark.parametrize("busy", ["idle", "waiting_remote", "taken over"])
def test_another_objective_where_no_draft_is_made_only_changes_what_comes_later(busy: str) -> None:
    host = Host(a_run()) if busy == "idle" else started()
    if busy == "waiting_remote":
        host.sends()
    if busy == "taken over":
        host.says(TakeOver())
    before = host.run.state
    assert host.says(SetObjective("review its tests")) == ()
    assert (host.run.objective, host.run.state) == ("review its tests", before)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hard_failure_of_the_local_agent_halts_the_run_until_a_person_acts() -> None:
    """S4, S9: `error`, and the user must act."""
    host = started()
    host.says(Prompted("r.p1"))
    assert host.says(LocalFailed("r.p1", DraftFailure(reason="it crashed", hard=True))) == ()
    assert (host.run.state, host.run.back, host.run.failure) == (
        SessionState.ERROR,
        SessionState.PLANNING,
        "it crashed",
    )
    assert host.refuses(Drafted("r.p1", Draft(text="hello"), ())).startswith("Drafted is not possible while")
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert (prompt.id, host.run.failure) == ("r.p2", "")


def test_a_message_that_is_only_late_is_awaited_again_and_not_sent_again() -> None:
    host = started()
    host.sends()
    host.says(RemoteFailed("the gateway cannot be reached"))
    assert (host.run.state, host.run.back) == (SessionState.ERROR, SessionState.WAITING_REMOTE)
    host.says(Arrived("here I am"))
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert host.run.turn == 1


def test_a_message_that_is_lost_is_sent_again_only_if_a_person_says_so() -> None:
    host = started()
    host.sends("hello")
    host.says(RemoteFailed("refused by the other side", lost=True))
    assert host.run.timeline[0].failed == "refused by the other side"
    assert host.says(Resume()) == (AskPerson(draft="r.m1", text="hello", reviews=(LOST,)),)
    assert host.says(Approve("r.m1")) == (Send(id="r.m2", turn=2, text="hello", label="approved"),)
    host.says(Sent("r.m2"))
    (prompt,) = host.says(Arrived("hi"))
    assert isinstance(prompt, Prompt)
    assert [turn.text for turn in prompt.turns] == ["hello", "hi"]


def test_a_lost_message_counts_as_a_turn_so_that_the_limit_holds() -> None:
    host = started(limits=ProfileLimits(max_turns=1))
    host.sends()
    host.says(RemoteFailed("refused", lost=True))
    host.says(Resume())
    (ended,) = host.says(Approve("r.m1"))
    assert isinstance(ended, Ended)
    assert ended.why == "max_turns"


def test_who_typed_a_message_that_is_lost_types_again() -> None:
    host = started()
    host.says(TakeOver())
    host.says(Say("hello"))
    host.says(Sent("r.m1"))
    host.says(RemoteFailed("refused", lost=True))
    assert host.says(Resume()) == ()
    assert (host.run.state, host.run.pending) == (SessionState.PLANNING, None)
    assert host.says(Say("hello again")) == (Send(id="r.m2", turn=2, text="hello again", label="yours"),)


def test_a_message_that_was_refused_here_is_a_draft_again_and_no_turn() -> None:
    host = started(limits=ProfileLimits(max_turns=1))
    host.drafts("hello")
    host.says(RemoteFailed("too often; try again in 3 s", lost=True))
    assert (host.run.state, host.run.turn, host.run.timeline) == (SessionState.ERROR, 0, ())
    held = Review(rule="held", why="It was not sent: too often; try again in 3 s")
    assert host.says(Resume()) == (AskPerson(draft="r.m1", text="hello", reviews=(held,)),)
    assert host.says(Approve("r.m1")) == (Send(id="r.m1", turn=1, text="hello", label="approved"),)
    host.says(Sent("r.m1"))
    assert [(entry.turn, entry.failed) for entry in host.run.timeline] == [(1, "")]


def test_what_a_person_typed_and_was_refused_here_stays_to_be_read_and_is_no_turn() -> None:
    host = started()
    host.says(TakeOver())
    host.says(Say("hello"))
    host.says(RemoteFailed("too often", lost=True))
    assert [(entry.text, entry.turn, entry.failed) for entry in host.run.timeline] == [("hello", 0, "too often")]
    assert host.says(Resume()) == ()
    assert host.says(Say("hello again")) == (Send(id="r.m1", turn=1, text="hello again", label="yours"),)
    host.says(Sent("r.m1"))
    assert [entry.sent_ms is None for entry in host.run.timeline] == [True, False]


def test_a_message_that_fails_while_paused_is_an_error() -> None:
    host = started()
    host.sends()
    host.says(Pause())
    host.says(RemoteFailed("offline"))
    assert (host.run.state, host.run.back) == (SessionState.ERROR, SessionState.WAITING_REMOTE)


def test_what_is_not_under_way_cannot_fail() -> None:
    host = started("manual")
    host.drafts()
    assert host.refuses(RemoteFailed("offline")) == "no message is being sent that could have failed"


def test_too_many_failures_of_the_way_end_the_run() -> None:
    host = started(limits=ProfileLimits(max_failures=1))
    host.sends()
    (ended,) = host.says(RemoteFailed("offline"))
    assert isinstance(ended, Ended)
    assert ended.banner == "The run has ended at its limit of 1 failure in a row, the last: offline"


# ── what comes out of turn ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reply_that_is_here_before_the_message_is_known_to_be_sent_is_answered_then() -> None:
    host = started()
    host.drafts()
    assert host.says(Arrived("hi")) == ()
    assert host.run.state is SessionState.READY_TO_SEND
    (prompt,) = host.says(Sent("r.m1"))
    assert isinstance(prompt, Prompt)
    assert [turn.text for turn in prompt.turns] == ["hello", "hi"]


def test_what_the_other_side_says_out_of_turn_is_in_the_next_prompt() -> None:
    host = started()
    assert host.says(Arrived("before you ask")) == ()
    asked = TimelineEntry(role="remote_agent", text="before you ask", turn=0, at_ms=1_000, number=1)
    assert host.run.timeline[0] == asked
    host.says(Prompted("r.p1"))
    host.says(Arrived("and also"))
    (prompt,) = host.says(LocalFailed("r.p1", DraftFailure(reason="busy", hard=False)))
    assert isinstance(prompt, Prompt)
    assert [turn.text for turn in prompt.turns] == ["before you ask", "and also"]
    assert host.run.state is SessionState.PROCESSING_REMOTE


def test_a_flood_of_messages_is_not_kept() -> None:
    host = started().turns(1)
    host.says(Pause())
    for number in range(MOST_UNANSWERED - 1):
        host.says(Arrived(str(number)))
    assert host.refuses(Arrived("more")) == (
        "the remote agent sent 100 messages without an answer; this one is dropped"
    )
    host.says(Resume())
    host.sends()
    host.says(Arrived("now it is asked"))


def test_only_the_message_that_is_being_sent_can_be_sent() -> None:
    host = started()
    host.drafts()
    assert host.refuses(Sent("r.m2")) == "the message r.m2 is not the one being sent (r.m1)"
    host.says(Pause())
    host.says(Sent("r.m1"))
    assert host.refuses(Sent("r.m1")) == "the message r.m1 is not the one being sent (none)"


# ── permission requests ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_clock_stands_still_while_a_person_is_asked_for_a_permission() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.now += 1_000
    assert host.says(Asked(LEAVE)) == ()
    assert (host.run.questions, host.run.since_ms) == ((LEAVE,), None)
    host.now += 9_000
    assert host.says(Decide("q1", "yes")) == (Permit(question="q1", choice="yes", kind="allow_once"),)
    host.now += 500
    assert (host.run.questions, host.run.spent_ms(host.now)) == ((), 1_500)


def test_an_answer_names_a_request_that_waits_and_a_choice_that_is_offered() -> None:
    host = started()
    assert "not possible while the run is planning" in host.refuses(Asked(LEAVE))
    host.says(Prompted("r.p1"))
    assert host.refuses(Decide("q1")) == "the permission request q1 does not wait for an answer"
    host.says(Asked(LEAVE))
    assert host.refuses(Decide("q1", "maybe")) == "the agent does not offer the choice maybe; it offers yes, no"
    assert host.says(Decide("q1")) == (Permit(question="q1", choice=None, kind=""),)


def test_what_was_asked_is_over_when_the_agent_has_answered_or_is_gone() -> None:
    for event in (Drafted("r.p1", Draft(text="hello"), ()), TakeOver(), Restarted()):
        host = started()
        host.says(Prompted("r.p1"))
        host.says(Asked(LEAVE))
        host.says(event)
        assert host.run.questions == ()
    host = started()
    host.says(Prompted("r.p1"))
    host.says(Pause())
    host.says(Asked(LEAVE))
    host.says(Unasked("q1"))
    assert host.run.questions == ()


# ── a restart ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_was_going_comes_back_paused_and_is_asked_anew() -> None:
    """S9: every state survives a restart of the host."""
    host = started()
    host.says(Prompted("r.p1"))
    assert host.after(1_000_000).says(Restarted()) == ()
    assert (host.run.state, host.run.back, host.run.prompt) == (SessionState.PAUSED, SessionState.PLANNING, None)
    assert host.run.active_ms == 0
    assert host.refuses(Drafted("r.p1", Draft(text="hello"), ())) == ("the prompt r.p1 is not the current one (none)")
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert prompt.id == "r.p2"


def test_a_message_that_was_committed_before_a_restart_is_not_sent_twice() -> None:
    host = started()
    host.drafts()
    host.says(Restarted())
    assert (host.run.state, host.run.back, host.run.sending) == (
        SessionState.PAUSED,
        SessionState.READY_TO_SEND,
        "r.m1",
    )
    assert host.says(Sent("r.m1")) == ()
    assert host.says(Resume()) == ()
    assert (host.run.state, host.run.turn) == (SessionState.WAITING_REMOTE, 1)


def test_a_message_that_is_not_known_to_be_sent_is_awaited_and_not_sent_again() -> None:
    host = started()
    host.drafts()
    host.says(Pause())
    assert host.says(Resume()) == ()
    assert host.run.state is SessionState.READY_TO_SEND
    host.says(Sent("r.m1"))
    assert host.run.state is SessionState.WAITING_REMOTE


def test_a_draft_that_waits_for_a_person_survives_a_restart() -> None:
    host = started("manual")
    asked = host.drafts()
    host.says(Restarted())
    assert host.says(Resume()) == asked


def test_a_run_that_was_paused_while_its_agent_drafted_asks_anew_after_a_restart() -> None:
    host = started()
    host.says(Prompted("r.p1"))
    host.says(Pause())
    host.says(Restarted())
    (prompt,) = host.says(Resume())
    assert isinstance(prompt, Prompt)
    assert prompt.id == "r.p2"


def test_a_restart_changes_nothing_for_a_run_that_was_not_going() -> None:
    idle = a_run()
    assert step(idle, Restarted(), 5) == Transition(idle)
    host = started()
    assert is_changed_by_restart(host.run)
    host.says(LocalFailed("r.p1", DraftFailure(reason="gone", hard=True)))
    assert step(host.run, Restarted(), 5) == Transition(host.run)
    assert not is_changed_by_restart(host.run)


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_states_are_those_of_the_document() -> None:
    """S9: the state machine."""
    assert " ".join(SessionState) == (
        "idle planning waiting_local ready_to_send waiting_remote processing_remote completed paused error stopped"
    )


LEAVE = PermissionRequest(
    session_id="s",
    id="q1",
    title="rm -rf",
    kind="delete",
    details="",
    choices=(Choice(id="yes", name="Allow", kind="allow_once"), Choice(id="no", name="Reject", kind="reject_once")),
)


SAMPLES: dict[type[Event], Event] = {
    type(event): event
    for event in (
        *(
            Start(),
            Pause(),
            Resume(),
            Stop(),
            TakeOver(),
            HandBack(),
            Tick(),
            Restarted(),
            Revoked("bob has revoked this device"),
        ),
        *(Prompted("r.p1"), Approve("r.p1"), Reject("r.p1"), Sent("r.m1"), Arrived("hi"), RemoteFailed("offline")),
        *(Drafted("r.p1", Draft(text="hello"), ()), LocalFailed("r.p1", DraftFailure(reason="busy", hard=False))),
        *(Say("hello"), SetObjective("another"), SetMode("manual")),
        *(Attach(FILE), Detach(FILE.id)),
        *(Asked(LEAVE), Decide(LEAVE.id, "yes"), Unasked(LEAVE.id)),
    )
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", SessionState)
def test_each_pair_is_in_the_table_or_refused_with_a_sentence_that_names_both(
    state: SessionState, event: type[Event]
) -> None:
    """S9: every transition checked."""
    if (state, event) in TABLE:
        assert TABLE[state, event]
        return
    refused = step(a_run(state=state), SAMPLES[event], 0)
    assert isinstance(refused, MoveRefused)
    assert refused.why.startswith(f"{event.__name__} is not possible")
    assert f"the run is {state}" in refused.why


def test_what_is_refused_says_what_is_possible() -> None:
    assert Host(a_run()).refuses(Pause()) == (
        "Pause is not possible while the run is idle; possible are Start, Stop, Attach, Detach, Tick, Restarted, "
        "Revoked, SetObjective, SetMode"
    )


def test_nothing_leads_out_of_the_ends() -> None:
    assert not any(state in ENDED for state, _ in TABLE)


def test_a_move_that_is_not_in_the_table_is_a_bug_and_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, (SessionState.IDLE, Start), frozenset({SessionState.ERROR}))
    with pytest.raises(IllegalMoveError, match=re.escape("Start cannot move a run from idle to planning")):
        step(a_run(), Start(), 0)


def test_the_table_is_printed_with_every_event_and_state() -> None:
    lines = as_markdown().splitlines()
    assert lines[0] == (
        "| event | `idle` | `planning` | `waiting_local` | `ready_to_send` | `waiting_remote` | `processing_remote`"
        " | `paused` | `error` |"
    )
    assert len(lines) == 2 + len(EVENTS)
    assert lines[2] == "| `Start` | planning | – | – | – | – | – | – | – |"
    assert "| `Approve` | – | – | – | ready_to_send, stopped | – | – | – | – |" in lines


MODES: tuple[Mode, ...] = ("manual", "semi_auto", "full_auto")


def something_for(run: Overlay, chance: random.Random) -> Event:
    """Return something that can happen to *run* where it is; that a person stops it is the rarest."""
    prompt, draft = run.prompt or "r.p0", run.pending.id if run.pending else "r.p0"
    text = chance.choice(["hello", "hello", "hello there", " "])
    done, hard, tokens = chance.random() < 0.1, chance.random() < 0.5, chance.choice([None, 1, 3])
    samples: dict[type[Event], Event] = {
        **SAMPLES,
        Prompted: Prompted(prompt),
        Drafted: Drafted(prompt, Draft(text=text, tokens=tokens, done=done), chance.choice([(), (LINKS,)])),
        LocalFailed: LocalFailed(prompt, DraftFailure(reason="it failed", hard=hard)),
        Approve: Approve(draft, chance.choice([None, text])),
        Reject: Reject(draft),
        Sent: Sent(run.sending or "r.m0"),
        RemoteFailed: RemoteFailed("offline", lost=hard),
        SetMode: SetMode(chance.choice(MODES)),
    }
    # As often as everything else together comes what moves a run on.
    moving: tuple[type[Event], ...] = (Prompted, Drafted, Sent, Arrived, Resume, Start)
    wanted: list[type[Event]] = [event for event in moving if (run.state, event) in TABLE]
    if run.questions:
        wanted.append(Decide)
    able = [event for event in EVENTS if (run.state, event) in TABLE and (event is not Stop or chance.random() < 0.1)]
    return samples[chance.choice(wanted if wanted and chance.random() < 0.5 else able)]


def walks(count: int) -> Iterator[tuple[SessionState, Event, SessionState]]:
    chance = random.Random(7)
    for _ in range(count):
        limits = ProfileLimits(
            max_turns=chance.choice([1, 2, 8]),
            max_failures=chance.choice([1, 2, 3]),
            max_duration_ms=chance.choice([20, 1_000, 600_000]),
            max_tokens_budget=chance.choice([None, 1, 2, 9]),
        )
        run, now = a_run(chance.choice(MODES), limits=limits), 0
        for _ in range(60):
            now += chance.choice([0, 1, 25])
            event = something_for(run, chance)
            taken = step(run, event, now)
            if isinstance(taken, Transition):
                yield run.state, event, taken.overlay.state
                run = taken.overlay
            if run.state in ENDED:
                break


def test_every_move_of_the_table_is_made_by_some_run() -> None:
    """S9: the table promises nothing that cannot happen, so that what it says can be relied on."""
    made = {(before, type(event), after) for before, event, after in walks(5_000)}
    promised = {(state, event, after) for (state, event), states in TABLE.items() for after in states}
    assert made == promised


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

QUIET = {SessionState.PAUSED, SessionState.ERROR, SessionState.COMPLETED, SessionState.STOPPED, SessionState.IDLE}
texts = st.sampled_from(["hello", "hello there", "", "👩‍👩‍👧 e\u0301"])
unknown = st.sampled_from(["", "r.p0", "r.p1", "r.m1"])


class OverlayMachine(RuleBasedStateMachine):
    """Lets anything happen in any order, and looks at each step from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.run = a_run("manual", limits=ProfileLimits(max_turns=3, max_tokens_budget=40, max_duration_ms=2_000))
        self.now = 0
        self.under_way: str | None = None
        """The message that was given to be sent, and is neither lost nor answered."""
        self.prompt: str | None = None
        self.sent: set[str] = set()

    def happens(self, event: Event) -> None:
        before = self.run
        taken = step(before, event, self.now)
        # What a host has committed and read again behaves as what it had.
        again = msgspec.json.decode(msgspec.json.encode(before), type=Overlay)
        assert again == before
        assert step(again, event, self.now) == taken
        if isinstance(taken, MoveRefused):
            assert type(event).__name__ in taken.why or (before.state, type(event)) in TABLE
            return
        assert before.state not in ENDED
        assert taken.overlay.state in TABLE[before.state, type(event)]
        self.run = taken.overlay
        replied = isinstance(event, Arrived) and before.state is SessionState.WAITING_REMOTE
        if replied or (before.kept and not self.run.kept) or (isinstance(event, RemoteFailed) and event.lost):
            self.under_way = None
            if isinstance(event, RemoteFailed) and before.sending is not None:
                self.sent.discard(before.sending)  # it was refused here, and is a draft again
        if isinstance(event, Restarted):
            self.prompt = None
        if isinstance(event, Drafted | LocalFailed):
            assert event.id == self.prompt
            self.prompt = None
        for effect in taken.effects:
            self.done(effect, event, before)
        assert (self.run.state in ENDED) == any(isinstance(effect, Ended) for effect in taken.effects)

    def done(self, effect: Effect, event: Event, before: Overlay) -> None:
        match effect:
            case Send():
                assert before.state not in QUIET
                assert self.under_way is None
                assert effect.id not in self.sent
                assert effect.text.strip()
                assert before.mode != "manual" or isinstance(event, Approve | Say)
                assert (effect.label == "auto_sent") == isinstance(event, Drafted)
                assert (effect.label == "yours") == isinstance(event, Say)
                if isinstance(event, Drafted):
                    assert before.mode == "full_auto" or not event.reviews
                self.sent.add(effect.id)
                self.under_way = effect.id
            case Prompt():
                assert self.prompt is None
                assert before.decides == "agent" or isinstance(event, HandBack)
                self.prompt = effect.id
            case Permit():
                assert effect.question not in {each.id for each in self.run.questions}
            case Cancel():
                assert effect.id == self.prompt
                self.prompt = None
            case AskPerson():
                assert effect.reviews
                assert self.run.pending is not None
                assert self.run.pending.id == effect.draft
            case Ended():
                assert bool(effect.banner) == (effect.why not in {"done", "user"})
                assert (effect.banner, effect.why) == (self.run.banner, self.run.ended)

    @rule(ms=st.sampled_from([0, 1, 100, 1_000, -50]))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.happens(Tick())

    @rule(event=st.sampled_from([Start(), Start(), Start(), Resume(), Resume(), Pause(), TakeOver(), HandBack()]))
    def a_person_acts(self, event: Event) -> None:
        self.happens(event)

    @rule()
    def a_person_stops_it(self) -> None:
        # Not at once, or there would be little to see.
        if self.run.turn:
            self.happens(Stop())

    @rule(mode=st.sampled_from(MODES))
    def the_mode_is_set(self, mode: Mode) -> None:
        self.happens(SetMode(mode))

    @rule(text=texts)
    def the_objective_is_set(self, text: str) -> None:
        self.happens(SetObjective(text))

    @rule()
    def the_agent_is_prompted(self) -> None:
        self.happens(Prompted(self.run.prompt or ""))

    @rule(text=texts, tokens=st.sampled_from([None, 0, 5]), reviews=st.sampled_from([(), (LINKS,)]))
    def the_agent_drafts(self, text: str, tokens: int | None, reviews: tuple[Review, ...]) -> None:
        self.happens(Prompted(self.run.prompt or ""))
        self.happens(Drafted(self.run.prompt or "", Draft(text=text, tokens=tokens), reviews))

    @rule(text=texts)
    def the_agent_is_done(self, text: str) -> None:
        if self.run.turn:
            self.happens(Drafted(self.run.prompt or "", Draft(text=text, done=True), ()))

    @rule(hard=st.booleans())
    def the_agent_fails(self, hard: bool) -> None:
        self.happens(LocalFailed(self.run.prompt or "", DraftFailure(reason="it failed", hard=hard)))

    @rule(id=unknown)
    def the_agent_asks_for_permission(self, id: str) -> None:
        self.happens(Asked(msgspec.structs.replace(LEAVE, id=id)))

    @rule(choice=st.sampled_from(["yes", "no", "maybe", None]))
    def a_person_permits(self, choice: str | None) -> None:
        self.happens(Decide(self.run.questions[0].id if self.run.questions else "q0", choice))

    @rule(id=unknown)
    def a_permission_is_no_longer_asked_for(self, id: str) -> None:
        self.happens(Unasked(id))

    @rule(text=st.one_of(st.none(), texts))
    def a_person_approves(self, text: str | None) -> None:
        self.happens(Approve(self.run.pending.id if self.run.pending else "r.p1", text))

    @rule(reason=texts)
    def a_person_rejects(self, reason: str) -> None:
        self.happens(Reject(self.run.pending.id if self.run.pending else "r.p1", reason))

    @rule(text=texts)
    def a_person_says(self, text: str) -> None:
        self.happens(Say(text))

    @rule()
    def attach(self) -> None:
        self.happens(Attach(FILE))

    @rule()
    def detach(self) -> None:
        self.happens(Detach(FILE.id))

    @rule()
    def the_message_is_on_its_way(self) -> None:
        self.happens(Sent(self.run.sending or ""))

    @rule(text=texts)
    def a_reply_arrives(self, text: str) -> None:
        self.happens(Arrived(text))

    @rule(lost=st.booleans())
    def the_way_fails(self, lost: bool) -> None:
        self.happens(RemoteFailed("offline", lost=lost))

    @rule()
    def the_host_restarts(self) -> None:
        self.happens(Restarted())
        assert self.run.state in QUIET

    @rule(id=unknown, event=st.sampled_from([Prompted, Approve, Reject, Sent]))
    def something_stale_comes(self, id: str, event: type[Prompted | Approve | Reject | Sent]) -> None:
        self.happens(event(id))

    @rule(id=unknown)
    def a_stale_draft_comes(self, id: str) -> None:
        if id != self.run.prompt:
            before = self.run
            self.happens(Drafted(id, Draft(text="stale"), ()))
            assert self.run == before

    @invariant()
    def its_parts_fit_together(self) -> None:
        run = self.run
        place = run.back or run.state
        assert run.turn <= run.limits.max_turns
        assert run.turn == len(self.sent) == sum(bool(entry.id) for entry in run.timeline)
        assert run.prompt == self.prompt
        assert (run.back is not None) == (run.state in {SessionState.PAUSED, SessionState.ERROR})
        assert (run.ended is not None) == (run.state in ENDED)
        if run.state in ENDED:
            assert (run.prompt, run.sending, run.kept, run.since_ms) == (None, None, (), None)
            return
        assert (place is SessionState.READY_TO_SEND) == (bool(run.sending) != bool(run.pending))
        assert not (run.sending and run.pending)
        assert place is not SessionState.WAITING_LOCAL or run.prompt
        assert not run.prompt or place in {
            SessionState.PLANNING,
            SessionState.WAITING_LOCAL,
            SessionState.PROCESSING_REMOTE,
        }
        assert run.decides == "agent" or not (run.prompt or run.pending)
        assert run.prompt or not run.questions
        assert run.failures < run.limits.max_failures
        assert run.state not in QUIET or run.since_ms is None


def test_whatever_happens_in_whatever_order_a_run_keeps_its_promises() -> None:
    """S6, S7, S8, S9: one turn in flight, nothing sent unasked, nothing sent while paused, the ends are final."""
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        OverlayMachine, settings=share(1.2, stateful_step_count=50)
    )
