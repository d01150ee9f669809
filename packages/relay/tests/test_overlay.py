"""A run is worked on by two agents, one turn at a time, and a person can step in at any moment."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec import Struct
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
    known: dict[str, Any] = {"objective": "review this API", "mode": mode}
    return Overlay(id="r", profile="mine", device="theirs", session="s", **{**known, **fields})


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
        if (self.run.state, Prompted) in TABLE:
            assert self.says(Prompted(self.prompt)) == ()
        return self.says(Drafted(self.prompt, Draft(text=text, **fields), reviews))

    def sends(self, text: str = "hello") -> tuple[Effect, ...]:
        """Let a draft go out, of a run that asks nobody."""
        effects = self.drafts(text)
        return (*effects, *self.says(Sent(f"r.m{self.run.turn}")))

    def turns(self, count: int) -> tuple[Effect, ...]:
        effects: tuple[Effect, ...] = ()
        for number in range(count):
            effects = (*self.sends(f"question {number}"), *self.says(Arrived(f"answer {number}")))
        return effects


def started(mode: Mode = "full_auto", **fields: Any) -> Host:
    host = Host(a_run(mode, **fields))
    host.says(Start())
    return host


# ── scenarios ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Does = Callable[[Host], tuple[Effect, ...]]
Step = Event | Does | int
"""An event, several of them, or how many milliseconds pass."""


def drafts(text: str = "hello", *reviews: Review, **fields: Any) -> Does:
    return lambda host: host.drafts(text, *reviews, **fields)


def sends(text: str = "hello") -> Does:
    return lambda host: host.sends(text)


def turns(count: int) -> Does:
    return lambda host: host.turns(count)


def by(person: Person, event: Event) -> Does:
    return lambda host: host.says(event, person)


def fails(reason: str = "busy", *, hard: bool = False) -> Does:
    """Let the prompt that is due fail."""
    return lambda host: host.says(LocalFailed(host.prompt, DraftFailure(reason=reason, hard=hard)))


def refused_here(reason: str) -> Does:
    """Let the message that is being sent be refused by this device."""

    def does(host: Host) -> tuple[Effect, ...]:
        host.run = replace(host.run, unsent=reason)
        return host.says(RemoteFailed(reason, lost=True))

    return does


ANN, BEA = Person("ann", "chat"), Person("bea", "api")
PROMPTED = (Start(), Prompted("r.p1"))
"""A run whose agent drafts."""
HARD = fails("it crashed", hard=True)
LEAVE = PermissionRequest(
    session_id="s",
    id="q1",
    title="rm -rf",
    kind="delete",
    details="",
    choices=(Choice(id="yes", name="Allow", kind="allow_once"), Choice(id="no", name="Reject", kind="reject_once")),
)
AFTER_A_PAUSE: dict[str, tuple[Mode, tuple[Step, ...], Event]] = {
    "paused": ("full_auto", (Pause(),), Resume()),
    "in error": ("full_auto", (fails("gone", hard=True),), Resume()),
    "asked": ("manual", (drafts(),), Approve("r.p1")),
    "taken over": ("full_auto", (TakeOver(),), HandBack()),
}

SCENARIOS: dict[str, tuple[Overlay, tuple[Step, ...]]] = {
    # The loop.
    "The loop, and each state of it (S2, S9)": (
        a_run(),
        (
            *PROMPTED,
            50,
            Drafted("r.p1", Draft(text="Which endpoints?", tokens=7, duration_ms=40), ()),
            2,
            Sent("r.m1"),
            300,
            Arrived("Three."),
            Prompted("r.p2"),
        ),
    ),
    "An agent that says done completes the run, and nothing more is sent": (
        a_run(),
        (Start(), turns(1), drafts("All is reviewed.", done=True)),
    ),
    "A run without an objective does not start": (a_run(objective=" \n"), (Start(),)),
    # Modes.
    "In manual mode a person approves each message (S6)": (
        a_run("manual"),
        (Start(), drafts("hello", LINKS), Approve("r.p1")),
    ),
    "In semi_auto a draft without a review is sent (S6)": (a_run("semi_auto"), (Start(), drafts())),
    "In semi_auto a person is asked if a rule asks (S6)": (a_run("semi_auto"), (Start(), drafts("hello", LINKS))),
    "In full_auto nobody is asked": (a_run(), (Start(), drafts("hello", LINKS))),
    "A person can edit what is sent, and send nothing empty": (
        a_run("manual"),
        (Start(), drafts(), Approve("r.p1", "  "), Approve("r.p1", "hello there")),
    ),
    "A draft that was not changed after all is not called edited": (
        a_run("manual"),
        (Start(), drafts(), Approve("r.p1", "hello")),
    ),
    "An entry names who released it and holds the draft that was edited, also when it is sent again by another": (
        a_run("manual"),
        (
            *(Start(), drafts(), by(BEA, Reject("r.p1", "too short"))),
            *(drafts("hello there"), by(ANN, Approve("r.p2", "good day")), Sent("r.m1")),
            *(RemoteFailed("gone", lost=True), Resume(), by(BEA, Approve("r.m1"))),
        ),
    ),
    "An agent is told what a person did not let go, and drafts anew": (
        a_run("manual"),
        (
            *(Start(), drafts(), Reject("r.p1", "too short"), drafts("hello there"), Reject("r.p2")),
            *(drafts("hello again"), Approve("r.p3"), Sent("r.m1"), Arrived("hi")),
        ),
    ),
    "Only the draft that the person has seen is approved or rejected": (
        a_run("manual"),
        (
            *(Start(), drafts(), Reject("r.p1"), drafts("give them the key")),
            *(Approve("r.p1"), Reject("r.p1"), Approve("r.p2"), Approve("r.p2"), Reject("r.p2")),
        ),
    ),
    "Another mode counts for the next draft, and what is asked stays asked": (
        a_run("manual"),
        (
            *(Start(), drafts(), SetMode("full_auto"), Approve("r.p1"), Sent("r.m1"), Arrived("hi")),
            *(drafts("bye"), SetMode("manual"), Sent("r.m2"), Arrived("bye"), drafts("well")),
        ),
    ),
    # Limits.
    "Full-auto runs until the last turn has its reply (S7, S14)": (
        a_run(),
        (Start(), turns(7), sends(), Arrived("the last answer")),
    ),
    "A run ends when its time is over": (a_run(), (*PROMPTED, 599_999, Tick(), 1, Tick())),
    **{
        f"The banner says a time in a unit that fits: {limit_ms} ms": (
            a_run(limits=ProfileLimits(max_duration_ms=limit_ms)),
            (*PROMPTED, limit_ms, Tick()),
        )
        for limit_ms in (3_000, 90_000, 3_600_000, 250)
    },
    "A draft that comes too late is not sent, but can be seen": (a_run(), (Start(), 600_000, drafts())),
    **{
        f"Time in which no agent works does not count: {name} (S8)": (
            a_run(mode),
            (Start(), 10, *waits, 3_600_000, Tick(), goes_on, 5, Tick()),
        )
        for name, (mode, waits, goes_on) in AFTER_A_PAUSE.items()
    },
    "A clock that is set back gives no time back": (
        a_run(),
        (Start(), 10, Tick(), -1_000_000, Tick(), drafts(), Sent("r.m1"), -5, Arrived("hi")),
    ),
    "Failures that are not hard are tried again until there are too many in a row": (
        a_run(),
        (Start(), fails(), drafts(" "), fails()),
    ),
    "A success in between starts the row of failures anew": (
        a_run(),
        (Start(), *(fails(), fails(), turns(1)) * 4),
    ),
    "A draft ends a row of failures also if it is not sent": (a_run("manual"), (Start(), fails(), fails(), drafts())),
    "A reply ends a row of failures too": (
        a_run(),
        (Start(), sends(), *(RemoteFailed("offline"), Resume()) * 2, Arrived("hi")),
    ),
    "A budget that is spent ends the run before the next prompt (S7)": (
        a_run(limits=ProfileLimits(max_tokens_budget=10)),
        (Start(), drafts("hello", tokens=10), Sent("r.m1"), Arrived("hi")),
    ),
    "A draft that cost more than the budget is not sent": (
        a_run(limits=ProfileLimits(max_tokens_budget=10)),
        (Start(), drafts("hello", tokens=11)),
    ),
    # Controls.
    "Pause takes back a prompt that was not begun": (a_run(), (Start(), Pause(), Resume())),
    "A draft that comes while paused is kept, and a person is asked about it (S8)": (
        a_run(),
        (*PROMPTED, Pause(), drafts(), Resume(), Approve("r.p1")),
    ),
    "An agent that is done while paused completes the run when it is resumed": (
        a_run(limits=ProfileLimits(max_tokens_budget=1)),
        (*PROMPTED, Pause(), drafts("That is all.", done=True), Resume()),
    ),
    "A prompt that is still in flight is awaited after a pause": (a_run(), (*PROMPTED, Pause(), Resume(), drafts())),
    "A prompt that fails while paused is made anew on resume": (a_run(), (*PROMPTED, Pause(), fails(), Resume())),
    "A hard failure while paused is an error": (a_run(), (*PROMPTED, Pause(), HARD)),
    "Replies that come while paused are kept and answered on resume": (
        a_run(),
        (Start(), sends(), Pause(), Arrived("one"), Arrived("two"), Resume()),
    ),
    "A person who was asked before a pause is asked again after it": (
        a_run("manual"),
        (Start(), drafts(), Pause(), Approve("r.p1"), Arrived("one more thing"), Resume()),
    ),
    "Stop ends a run wherever it is, and what came is not lost": (
        a_run(),
        (Start(), sends(), Pause(), Arrived("too late"), Stop(), Resume()),
    ),
    "Stop cancels the prompt in flight": (a_run(), (*PROMPTED, Stop())),
    "Who takes over types until the agent has it back (S8)": (
        a_run(),
        (
            *(*PROMPTED, HandBack(), TakeOver(), TakeOver(), Say(" "), Say("Hello, it is me."), Sent("r.m1")),
            *(Arrived("Oh, hello!"), HandBack(), Say("And another thing"), HandBack()),
        ),
    ),
    "A chat that a person begins has no limit until the agent is to write, for which it needs an objective": (
        a_run(decides="person", objective="", limits=ProfileLimits(max_turns=2, max_duration_ms=1_000)),
        (
            Start(),
            *(
                step
                for turn in range(1, 4)
                for step in (Say("hello"), Sent(f"r.m{turn}"), 5_000, Tick(), Arrived("hello!"))
            ),
            *(HandBack(), SetObjective("review this API"), HandBack(), turns(1), sends(), Arrived("the last answer")),
        ),
    ),
    "A message of such a chat that was refused here counts no more than another": (
        a_run(decides="person", limits=ProfileLimits(max_turns=1)),
        (Start(), Say("hello"), refused_here("too many"), HandBack(), Resume(), sends(), Arrived("yes")),
    ),
    "What the agent drafts after someone took over is refused": (
        a_run(),
        (*PROMPTED, TakeOver(), HandBack(), Prompted("r.p2"), Drafted("r.p1", Draft(text="too late"), ())),
    ),
    "Another objective cancels the draft that is made for the old one": (
        a_run(),
        (*PROMPTED, SetObjective("review its tests"), SetObjective("")),
    ),
    "Another objective sets aside the draft that a person is asked about, and what was said of the one before": (
        a_run("manual"),
        (Start(), drafts(), Reject("r.p1", "too short"), drafts(), SetObjective("review its tests")),
    ),
    "Another objective forgets why the draft before was rejected": (
        a_run("manual"),
        (Start(), drafts(), Reject("r.p1", "too short"), SetObjective("review its tests")),
    ),
    "Another objective while paused counts when it is resumed": (
        a_run(),
        (*PROMPTED, Pause(), SetObjective("review its tests"), Resume()),
    ),
    **{
        f"Another objective where no draft is made only changes what comes later: {name}": (
            a_run(),
            (*before, SetObjective("review its tests")),
        )
        for name, before in (("idle", ()), ("waiting", (Start(), sends())), ("taken over", (Start(), TakeOver())))
    },
    # Errors.
    "A hard failure of the local agent halts the run until a person acts (S4, S9)": (
        a_run(),
        (*PROMPTED, HARD, Drafted("r.p1", Draft(text="hello"), ()), Resume()),
    ),
    "A message that is only late is awaited again and not sent again": (
        a_run(),
        (Start(), sends(), RemoteFailed("the gateway cannot be reached"), Arrived("here I am"), Resume()),
    ),
    "A message that is lost is sent again only if a person says so": (
        a_run(),
        (
            *(Start(), sends(), RemoteFailed("refused by the other side", lost=True), Resume(), Approve("r.m1")),
            *(Sent("r.m2"), Arrived("hi")),
        ),
    ),
    "A lost message counts as a turn, so that the limit holds": (
        a_run(limits=ProfileLimits(max_turns=1)),
        (Start(), sends(), RemoteFailed("refused", lost=True), Resume(), Approve("r.m1")),
    ),
    "Who typed a message that is lost types again": (
        a_run(),
        (
            *(Start(), TakeOver(), Say("hello"), Sent("r.m1"), RemoteFailed("refused", lost=True), Resume()),
            Say("hello again"),
        ),
    ),
    "A message that was refused here is a draft again and no turn": (
        a_run(limits=ProfileLimits(max_turns=1)),
        (Start(), drafts(), RemoteFailed("too often", lost=True), Resume(), Approve("r.m1"), Sent("r.m1")),
    ),
    "What a person typed and was refused here stays to be read and is no turn": (
        a_run(),
        (
            *(Start(), TakeOver(), Say("hello"), RemoteFailed("too often", lost=True), Resume()),
            *(Say("hello again"), Sent("r.m1")),
        ),
    ),
    "A message that fails while paused is an error": (a_run(), (Start(), sends(), Pause(), RemoteFailed("offline"))),
    "What is not under way cannot fail": (a_run("manual"), (Start(), drafts(), RemoteFailed("offline"))),
    "Too many failures of the way end the run": (
        a_run(limits=ProfileLimits(max_failures=1)),
        (Start(), sends(), RemoteFailed("offline")),
    ),
    # What comes out of turn.
    "A reply that is here before the message is known to be sent is answered then": (
        a_run(),
        (Start(), drafts(), Arrived("hi"), Sent("r.m1")),
    ),
    "What the other side says out of turn is in the next prompt": (
        a_run(),
        (Start(), Arrived("before you ask"), Prompted("r.p1"), Arrived("and also"), fails()),
    ),
    "Only the message that is being sent can be sent": (
        a_run(),
        (Start(), drafts(), Sent("r.m2"), Pause(), Sent("r.m1"), Sent("r.m1")),
    ),
    # Permission requests.
    "The clock stands still while a person is asked for a permission": (
        a_run(),
        (*PROMPTED, 1_000, Asked(LEAVE), 9_000, Decide("q1", "yes"), 500, Tick()),
    ),
    "An answer names a request that waits and a choice that is offered": (
        a_run(),
        (Start(), Asked(LEAVE), Prompted("r.p1"), Decide("q1"), Asked(LEAVE), Decide("q1", "maybe"), Decide("q1")),
    ),
    **{
        f"What was asked is over when the agent has answered or is gone: {type(event).__name__}": (
            a_run(),
            (*PROMPTED, *(each for each in (Pause(),) if isinstance(event, Unasked)), Asked(LEAVE), event),
        )
        for event in (Drafted("r.p1", Draft(text="hello"), ()), TakeOver(), Restarted(), Unasked("q1"))
    },
    # A restart.
    "A run that was going comes back paused and is asked anew (S9)": (
        a_run(),
        (*PROMPTED, 1_000_000, Restarted(), Drafted("r.p1", Draft(text="hello"), ()), Resume()),
    ),
    "A message that was committed before a restart is not sent twice": (
        a_run(),
        (Start(), drafts(), Restarted(), Sent("r.m1"), Resume()),
    ),
    "A message that is not known to be sent is awaited and not sent again": (
        a_run(),
        (Start(), drafts(), Pause(), Resume(), Sent("r.m1")),
    ),
    "A draft that waits for a person survives a restart": (a_run("manual"), (Start(), drafts(), Restarted(), Resume())),
    "A run that was paused while its agent drafted asks anew after a restart": (
        a_run(),
        (*PROMPTED, Pause(), Restarted(), Resume()),
    ),
}


def short(value: Any) -> str:
    """Return a value in words, without the fields that have nothing in them."""
    match value:
        case Review(rule=rule, why=why):
            return f"{rule} ({why})"
        case ConversationTurn(role=role, text=text):
            return f"{role}: {text!r}"
        case Person(name=name, via=via):
            return f"{name} by {via}"
        case Struct():
            held = {name: getattr(value, name) for name in value.__struct_fields__}
            return ", ".join(f"{name} {short(each)}" for name, each in held.items() if each or name == "turn")
        case tuple():
            return f"[{'; '.join(map(short, value))}]"  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return str(value) if isinstance(value, SessionState) else repr(value)


def changes(before: Overlay, after: Overlay) -> Iterator[str]:
    """Yield what a step has changed in a run; of the timeline the entries that are new."""
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if name == "timeline":
            if len(new) < len(old):
                yield f"timeline {len(new)} left"
            yield from (f"entry {{{short(entry)}}}" for entry in new if entry not in old)
        elif old != new:
            yield f"{name} {short(new)}"


def played(run: Overlay, steps: tuple[Step, ...]) -> Iterator[str]:
    """Yield what each step of a scenario causes: effects, changes, or why it was refused."""
    host = Host(run)
    for each in steps:
        before, effects = host.run, ()
        match each:
            case int():
                host.after(each)
                yield f"  {each:+,} ms"
                continue
            case Struct():
                yield f"  {type(each).__name__} {short(each)}".rstrip()
                taken = step(host.run, each, host.now)
                if isinstance(taken, MoveRefused):
                    yield f"    refused: {taken.why}"
                    continue
                host.run, effects = taken.overlay, taken.effects
            case does:
                yield "  …"
                effects = does(host)
        yield from (f"    → {type(effect).__name__} {short(effect)}" for effect in effects)
        if changed := "; ".join(changes(before, host.run)):
            yield f"    {changed}"


def test_runs_go_as_these_scenarios_say(transcript: Callable[[str], None]) -> None:
    """Each heading is a promise; below it stands what every step of the run causes and changes."""
    transcript("\n".join(line for name, (run, steps) in SCENARIOS.items() for line in (name, *played(run, steps), "")))


def test_a_flood_of_messages_is_not_kept() -> None:
    host = started()
    host.turns(1)
    host.says(Pause())
    for number in range(MOST_UNANSWERED - 1):
        host.says(Arrived(str(number)))
    assert host.refuses(Arrived("more")) == (
        "the remote agent sent 100 messages without an answer; this one is dropped"
    )
    host.says(Resume())
    host.sends()
    host.says(Arrived("now it is asked"))


def test_the_defaults_are_those_of_the_document() -> None:
    """S6: manual; S7: 8 turns, 10 minutes, 3 failures in a row, optional token budget."""
    limits = ProfileLimits(max_turns=8, max_duration_ms=600_000, max_failures=3, max_tokens_budget=None)
    run = Overlay(id="r", profile="p", device="d", session="s", objective="o")
    assert (run.mode, run.limits) == ("manual", limits)


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
