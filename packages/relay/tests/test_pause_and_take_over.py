"""Whether a run goes on, and who writes: two things, each changed by acts of its own, in every combination."""

import pytest

from remit_relay.bridge.ports import Draft, DraftFailure
from remit_relay.session.moves import (
    Arrived,
    Drafted,
    Event,
    HandBack,
    LocalFailed,
    Pause,
    Prompted,
    RemoteFailed,
    Restarted,
    Resume,
    Say,
    Sent,
    SessionState,
    SetMode,
    Start,
    Stop,
    TakeOver,
)
from remit_relay.session.reducer import Overlay, Transition, step

DRAFTED = (Prompted("r.p1"), Drafted("r.p1", Draft(text="hello"), ()))
SENT = (*DRAFTED, Sent("r.m1"))
CRASH = LocalFailed("r.p1", DraftFailure(reason="it crashed", hard=True))
TAKEN = TakeOver()

SITUATIONS: dict[str, tuple[Event, ...]] = {
    "planning": (),
    "drafting": (Prompted("r.p1"),),
    "draft": (SetMode("manual"), *DRAFTED),
    "sending": DRAFTED,
    "waiting": SENT,
    "replied": (*SENT, Arrived("hi")),
    "paused drafting": (Prompted("r.p1"), Pause()),
    "paused draft": (SetMode("manual"), *DRAFTED, Pause()),
    "paused sending": (*DRAFTED, Pause()),
    "paused waiting": (*SENT, Pause()),
    "paused replied": (*SENT, Pause(), Arrived("hi")),
    "restarted": (Prompted("r.p1"), Restarted()),
    "crashed": (CRASH,),
    "lost": (*SENT, RemoteFailed("refused", lost=True)),
}

# Each cell: the state after the act, and who writes then (a: the agent, p: a person); a point: refused.
ACTS: tuple[Event, ...] = (Pause(), Resume(), TakeOver(), HandBack(), Say("hello"), Stop())
AGENT = """
planning        | paused a | .                   | planning p          | . | . | stopped a
drafting        | paused a | .                   | planning p          | . | . | stopped a
draft           | paused a | .                   | planning p          | . | . | stopped a
sending         | paused a | .                   | ready_to_send p     | . | . | stopped a
waiting         | paused a | .                   | waiting_remote p    | . | . | stopped a
replied         | paused a | .                   | processing_remote p | . | . | stopped a
paused drafting | .        | waiting_local a     | paused p            | . | . | stopped a
paused draft    | .        | ready_to_send a     | paused p            | . | . | stopped a
paused sending  | .        | ready_to_send a     | paused p            | . | . | stopped a
paused waiting  | .        | waiting_remote a    | paused p            | . | . | stopped a
paused replied  | .        | processing_remote a | paused p            | . | . | stopped a
restarted       | .        | planning a          | paused p            | . | . | stopped a
crashed         | .        | planning a          | error p             | . | . | stopped a
lost            | .        | ready_to_send a     | error p             | . | . | stopped a
"""
PERSON = """
planning        | paused p | .                   | . | planning a          | ready_to_send p | stopped p
drafting        | paused p | .                   | . | planning a          | ready_to_send p | stopped p
draft           | paused p | .                   | . | planning a          | ready_to_send p | stopped p
sending         | paused p | .                   | . | ready_to_send a     | .               | stopped p
waiting         | paused p | .                   | . | waiting_remote a    | .               | stopped p
replied         | paused p | .                   | . | processing_remote a | ready_to_send p | stopped p
paused drafting | .        | planning p          | . | paused a            | .               | stopped p
paused draft    | .        | planning p          | . | paused a            | .               | stopped p
paused sending  | .        | ready_to_send p     | . | paused a            | .               | stopped p
paused waiting  | .        | waiting_remote p    | . | paused a            | .               | stopped p
paused replied  | .        | processing_remote p | . | paused a            | .               | stopped p
restarted       | .        | planning p          | . | paused a            | .               | stopped p
crashed         | .        | planning p          | . | error a             | .               | stopped p
lost            | .        | planning p          | . | error a             | .               | stopped p
"""


def after(run: Overlay, *events: Event) -> Overlay:
    for event in events:
        taken = step(run, event, 0)
        assert isinstance(taken, Transition), taken
        run = taken.overlay
    return run


def a_run(*events: Event) -> Overlay:
    new = Overlay(id="r", profile="mine", device="theirs", session="s", objective="review", mode="full_auto")
    return after(new, Start(), *events)


def result(run: Overlay, act: Event) -> str:
    taken = step(run, act, 0)
    return f"{taken.overlay.state} {taken.overlay.decides[0]}" if isinstance(taken, Transition) else "."


@pytest.mark.parametrize(("table", "more"), [(AGENT, ()), (PERSON, (TAKEN,))])
def test_each_act_does_one_thing_in_every_situation(table: str, more: tuple[Event, ...]) -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    assert [name for name, *_ in rows] == list(SITUATIONS)
    for name, *cells in rows:
        run = a_run(*SITUATIONS[name], *more)
        assert [result(run, act) for act in ACTS] == cells, name


@pytest.mark.parametrize("name", SITUATIONS)
def test_pausing_keeps_who_writes_and_taking_over_keeps_whether_it_goes_on(name: str) -> None:
    stands = {SessionState.PAUSED, SessionState.ERROR}
    for more in ((), (TAKEN,)):
        run = a_run(*SITUATIONS[name], *more)
        for act in ACTS:
            taken = step(run, act, 0)
            if not isinstance(taken, Transition):
                continue
            if isinstance(act, Pause | Resume | Say | Stop):
                assert taken.overlay.decides == run.decides
            else:
                assert (taken.overlay.state in stands) == (run.state in stands)


@pytest.mark.parametrize("name", ["paused drafting", "paused draft", "crashed", "restarted"])
def test_the_order_of_resuming_and_taking_over_does_not_matter(name: str) -> None:
    run = a_run(*SITUATIONS[name])
    first, last = after(run, TakeOver(), Resume()), after(run, Resume(), TakeOver())
    assert (first.state, first.decides, first.pending) == (last.state, last.decides, last.pending)
