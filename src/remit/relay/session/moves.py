"""Where an overlay run can be, what can happen to it, and what follows from that: one table (S9).

A run at work moves `planning` → `waiting_local` → `ready_to_send` → `waiting_remote` → `processing_remote`, and from
there to `waiting_local` again. In `planning` and `processing_remote` it rests while its agent is busy with another run,
or while a person is to type.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, get_args

from msgspec import Struct

from remit.relay.bridge.frames import ConversationTurn, Mode
from remit.relay.bridge.ports import Draft, DraftFailure
from remit.relay.session.review import Review


class SessionState(StrEnum):
    """Where a run is."""

    IDLE = "idle"
    """Not started."""
    PLANNING = "planning"
    """What is said next is open, and there is no reply to answer: a prompt is due, or a person is to type."""
    WAITING_LOCAL = "waiting_local"
    """The local agent is drafting."""
    READY_TO_SEND = "ready_to_send"
    """A draft waits for a person, or a message for the host to say that it is on its way."""
    WAITING_REMOTE = "waiting_remote"
    """A message was sent, and its reply has not come."""
    PROCESSING_REMOTE = "processing_remote"
    """A reply is to be answered: a prompt with it is due, or a person is to type."""
    COMPLETED = "completed"
    """The agent said that the objective is met."""
    PAUSED = "paused"
    """Nothing is sent until a person resumes it."""
    ERROR = "error"
    """Something failed, and a person has to say what comes next."""
    STOPPED = "stopped"
    """Ended by a person or at a limit."""


ENDED = frozenset({SessionState.COMPLETED, SessionState.STOPPED})

Label = Literal["auto_sent", "approved", "edited", "yours"]
"""Who let a message go: nobody, a person as it was, a person with changes; or a person wrote it."""

Reason = Literal["done", "user", "max_turns", "max_duration_ms", "max_failures", "max_tokens_budget"]
"""Why a run ended: the agent was done, a person stopped it, or a limit was reached."""

# ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Start(Struct, frozen=True, tag=True):
    """A person starts the run."""


class Prompted(Struct, frozen=True, tag=True):
    """The local agent has been given the prompt; until now it may have been busy with another run."""

    id: str


class Drafted(Struct, frozen=True, tag=True):
    """The local agent has answered a prompt."""

    id: str
    draft: Draft
    reviews: tuple[Review, ...]
    """What `review.reviews` says of the draft, in every mode: the run knows which of it counts."""


class LocalFailed(Struct, frozen=True, tag=True):
    """The local agent has not answered a prompt, or could not be given it."""

    id: str
    failed: DraftFailure


class Approve(Struct, frozen=True, tag=True):
    """A person lets a draft go, perhaps with other words."""

    draft: str
    """Which draft the person has seen: another one is not sent for it."""
    text: str | None = None


class Reject(Struct, frozen=True, tag=True):
    """A person does not let a draft go; the agent is told, and asked again."""

    draft: str
    reason: str = ""


class Sent(Struct, frozen=True, tag=True):
    """The message is on its way: it lies in the outbox, and will be delivered whatever happens here."""

    id: str


class Arrived(Struct, frozen=True, tag=True):
    """The remote agent has said something."""

    text: str


class RemoteFailed(Struct, frozen=True, tag=True):
    """The message under way, or its reply, did not get through."""

    reason: str
    lost: bool = False
    """Whether no reply to it can come any more: it was refused, or the remote agent failed at it."""


class Pause(Struct, frozen=True, tag=True):
    """A person pauses the run."""


class Resume(Struct, frozen=True, tag=True):
    """A person lets the run go on, or try again after an error."""

    agent: str = ""
    """Which agent it is with, if that was not known when it was started; else this changes nothing."""


class Stop(Struct, frozen=True, tag=True):
    """A person ends the run."""


class TakeOver(Struct, frozen=True, tag=True):
    """A person will say what is said next."""


class HandBack(Struct, frozen=True, tag=True):
    """The agent will say what is said next."""


class Say(Struct, frozen=True, tag=True):
    """The person who has taken over says something."""

    text: str


class Tick(Struct, frozen=True, tag=True):
    """Time has passed."""


class Restarted(Struct, frozen=True, tag=True):
    """The host has come back after it ended or died; whatever was going on in it is gone."""


class SetObjective(Struct, frozen=True, tag=True):
    """A person redirects the run."""

    objective: str


class SetMode(Struct, frozen=True, tag=True):
    """A person changes who sees drafts first; what is being asked already stays asked."""

    mode: Mode


Event = (
    Start
    | Prompted
    | Drafted
    | LocalFailed
    | Approve
    | Reject
    | Sent
    | Arrived
    | RemoteFailed
    | Pause
    | Resume
    | Stop
    | TakeOver
    | HandBack
    | Say
    | Tick
    | Restarted
    | SetObjective
    | SetMode
)
EVENTS: tuple[type[Event], ...] = get_args(Event)

# ── what is to be done ────────────────────────────────────────────────────────────────────────────────────────────────


class Prompt(Struct, frozen=True, tag=True):
    """Ask the local agent; then say `Prompted`, and later `Drafted` or `LocalFailed`."""

    id: str
    turn_index: int
    """The turn that is drafted, from 1."""
    mode: Mode
    objective: str
    turns: tuple[ConversationTurn, ...]
    """All that was said; `history.bounded` makes of it what a prompt may hold."""


class Send(Struct, frozen=True, tag=True):
    """Send this; then say `Sent`."""

    id: str
    turn: int
    text: str
    label: Label


class AskPerson(Struct, frozen=True, tag="Ask"):
    """Ask a person about a draft, who says `Approve` or `Reject`."""

    draft: str
    text: str
    reviews: tuple[Review, ...]
    """Why; there is always a reason."""


class Cancel(Struct, frozen=True, tag=True):
    """End the prompt of this id, due or in flight; what still comes of it is refused."""

    id: str


class Ended(Struct, frozen=True, tag=True):
    """The run has ended."""

    state: SessionState
    why: Reason
    banner: str = ""


Effect = Prompt | Send | AskPerson | Cancel | Ended

# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_SHORT = {
    "I": SessionState.IDLE,
    "P": SessionState.PLANNING,
    "L": SessionState.WAITING_LOCAL,
    "S": SessionState.READY_TO_SEND,
    "R": SessionState.WAITING_REMOTE,
    "O": SessionState.PROCESSING_REMOTE,
    "C": SessionState.COMPLETED,
    "Z": SessionState.PAUSED,
    "E": SessionState.ERROR,
    "X": SessionState.STOPPED,
}


def _rows(event: type[Event], moves: str) -> Iterator[tuple[tuple[SessionState, type[Event]], frozenset[SessionState]]]:
    for move in moves.split():
        state, _, after = move.partition(">")
        yield (_SHORT[state], event), frozenset(_SHORT[each] for each in after)


# I idle, P planning, L waiting_local, S ready_to_send, R waiting_remote, O processing_remote,
# C completed, Z paused, E error, X stopped; where a run can go to several, limits and modes say where.
TABLE: dict[tuple[SessionState, type[Event]], frozenset[SessionState]] = {
    row: after
    for event, moves in {
        Start: "I>P",
        Prompted: "P>L O>L",
        # Ready, asked again (it was empty), done, or at a limit.
        Drafted: "L>SPOCX Z>ZX",
        LocalFailed: "P>POEX L>POEX O>OEX Z>ZEX",
        Approve: "S>SX",
        Reject: "S>POX",
        # A reply may be here before it is known that the message went.
        Sent: "S>ROX Z>Z",
        Arrived: "P>P L>L S>S R>OX O>O Z>Z E>E",
        RemoteFailed: "S>EX R>EX Z>EX",
        Pause: "P>Z L>Z S>Z R>Z O>Z",
        Resume: "Z>PLSROCX E>PSROX",
        Stop: "I>X P>X L>X S>X R>X O>X Z>X E>X",
        TakeOver: "P>PO L>PO S>SPO R>R O>O Z>PSROX E>PROX",
        HandBack: "P>POX S>S R>R O>OX Z>Z E>E",
        Say: "P>SX O>SX",
        Tick: "I>I P>PX L>LX S>SX R>RX O>OX Z>Z E>E",
        Restarted: "I>I P>Z L>Z S>Z R>Z O>Z Z>Z E>E",
        SetObjective: "I>I P>POX L>POX S>SPOX R>R O>OX Z>Z E>E",
        SetMode: "I>I P>P L>L S>S R>R O>O Z>Z E>E",
    }.items()
    for row, after in _rows(event, moves)
}


def refusal(state: SessionState, event: type[Event]) -> str:
    """Say that something cannot happen to a run that is in *state*, and what can."""
    if state in ENDED:
        return f"{event.__name__} is not possible: the run is {state}, and that is final"
    able = ", ".join(each.__name__ for each in EVENTS if (state, each) in TABLE)
    return f"{event.__name__} is not possible while the run is {state}; possible are {able}"


def as_markdown() -> str:
    """Return the table for the documentation: a row for each event, a column for each state that it can happen in."""
    states = [state for state in SessionState if state not in ENDED]
    lines = [
        _line(["event", *(f"`{state}`" for state in states)]),
        _line(["---"] * (1 + len(states))),
    ]
    for event in EVENTS:
        cells = (TABLE.get((state, event), frozenset[SessionState]()) for state in states)
        lines.append(
            _line([f"`{event.__name__}`", *(", ".join(filter(cell.__contains__, SessionState)) for cell in cells)])
        )
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell or '–' for cell in cells)} |"
