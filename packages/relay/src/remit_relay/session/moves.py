"""The states, events and effects of a run, and the table of its transitions (S9).

An active run moves `planning` → `waiting_local` → `ready_to_send` → `waiting_remote` → `processing_remote`, and from
there to `waiting_local` again. In `planning` and `processing_remote` it waits while its agent is busy with another run,
or while a person should type.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, get_args

from msgspec import Struct

from remit_relay.bridge.ports import ConversationTurn, Draft, DraftFailure, Mode, PermissionRequest
from remit_relay.session.profile import Attachment
from remit_relay.session.review import Review


class SessionState(StrEnum):
    """The state of a run."""

    IDLE = "idle"
    """Not started."""
    PLANNING = "planning"
    """The next message is open, and there is no reply to answer: a prompt is due, or a person should type."""
    WAITING_LOCAL = "waiting_local"
    """The local agent is drafting."""
    READY_TO_SEND = "ready_to_send"
    """A draft waits for a person, or a message waits for the confirmation that it was queued."""
    WAITING_REMOTE = "waiting_remote"
    """A message was sent, and there is no reply yet."""
    PROCESSING_REMOTE = "processing_remote"
    """A reply must be answered: a prompt with it is due, or a person should type."""
    COMPLETED = "completed"
    """The agent said that the objective is met."""
    PAUSED = "paused"
    """Nothing is sent until a person resumes it."""
    ERROR = "error"
    """Something failed, and a person must decide what comes next."""
    STOPPED = "stopped"
    """Ended by a person, at a limit, or by a revocation."""


ENDED = frozenset({SessionState.COMPLETED, SessionState.STOPPED})

Label = Literal["auto_sent", "approved", "edited", "yours"]
"""How a message was released: automatically, approved by a person, edited by a person, or written by a person."""

Reason = Literal["done", "user", "max_turns", "max_duration_ms", "max_failures", "max_tokens_budget", "revoked"]
"""Why a run ended: the agent was done, a person stopped it, a limit was reached, or a device revoked the other."""

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Start(Struct, frozen=True, tag=True):
    """A person starts the run."""


class Prompted(Struct, frozen=True, tag=True):
    """The local agent has received the prompt; until now it may have been busy with another run."""

    id: str


class Drafted(Struct, frozen=True, tag=True):
    """The local agent has answered a prompt."""

    id: str
    draft: Draft
    reviews: tuple[Review, ...]
    """The result of `review.reviews`, in every mode: the run decides which of it counts."""


class LocalFailed(Struct, frozen=True, tag=True):
    """The local agent did not answer a prompt, or could not receive it."""

    id: str
    failed: DraftFailure


class Asked(Struct, frozen=True, tag=True):
    """The local agent asks its user for permission while it drafts."""

    question: PermissionRequest


class Decide(Struct, frozen=True, tag=True):
    """A person decides a permission request of the local agent."""

    question: str
    choice: str | None = None
    """The id of a choice; None: no."""


class Unasked(Struct, frozen=True, tag=True):
    """A permission request needs no answer any more: its time is over, or the agent has gone on."""

    question: str


class Approve(Struct, frozen=True, tag=True):
    """A person approves a draft, perhaps with changes."""

    draft: str
    """The draft that the person has seen: no other draft is sent by this."""
    text: str | None = None


class Reject(Struct, frozen=True, tag=True):
    """A person rejects a draft; the agent is told, and asked again."""

    draft: str
    reason: str = ""


class Sent(Struct, frozen=True, tag=True):
    """The message is in the outbox and will be delivered, whatever happens here."""

    id: str


class Arrived(Struct, frozen=True, tag=True):
    """A message of the remote agent has arrived."""

    text: str
    files: tuple[Attachment, ...] = ()


class RemoteFailed(Struct, frozen=True, tag=True):
    """The message or its reply was not delivered."""

    reason: str
    lost: bool = False
    """Whether no reply can come any more: it was refused, or the remote agent failed."""
    recorded: str = ""
    """The reason for the record, if `reason` has words of the other side in it."""


class Pause(Struct, frozen=True, tag=True):
    """A person pauses the run."""


class Resume(Struct, frozen=True, tag=True):
    """A person continues the run, or retries after an error."""

    agent: str = ""
    """The agent, if it was not known when the run started; otherwise ignored."""


class Stop(Struct, frozen=True, tag=True):
    """A person ends the run."""


class TakeOver(Struct, frozen=True, tag=True):
    """A person will write the next message; a run that is paused or in error stays so."""


class HandBack(Struct, frozen=True, tag=True):
    """The agent will write the next message; a run that is paused or in error stays so."""


class Say(Struct, frozen=True, tag=True):
    """The person who has taken over sends a message."""

    text: str


class Attach(Struct, frozen=True, tag=True):
    """A person adds a file to the next message; its content is stored already."""

    file: Attachment


class Detach(Struct, frozen=True, tag=True):
    """A person removes a file from the next message."""

    file: str


class Tick(Struct, frozen=True, tag=True):
    """Time has passed."""


class Restarted(Struct, frozen=True, tag=True):
    """The session service was restarted; everything that was in progress is lost."""


class Revoked(Struct, frozen=True, tag=True):
    """One of the two devices has revoked the other."""

    why: str
    """See `PeerDevice.revocation`."""


class SetObjective(Struct, frozen=True, tag=True):
    """A person changes the objective."""

    objective: str


class SetMode(Struct, frozen=True, tag=True):
    """A person changes the review mode; an open review stays open."""

    mode: Mode


Event = (
    Start
    | Prompted
    | Drafted
    | LocalFailed
    | Asked
    | Decide
    | Unasked
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
    | Attach
    | Detach
    | Tick
    | Restarted
    | Revoked
    | SetObjective
    | SetMode
)
EVENTS: tuple[type[Event], ...] = get_args(Event)

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Prompt(Struct, frozen=True, tag=True):
    """Ask the local agent; then report `Prompted`, and later `Drafted` or `LocalFailed`."""

    id: str
    turn_index: int
    """The number of the turn, from 1."""
    mode: Mode
    objective: str
    turns: tuple[ConversationTurn, ...]
    """The whole conversation; `history.bounded` selects what fits into a prompt."""


class Send(Struct, frozen=True, tag=True):
    """Send this message; then report `Sent`."""

    id: str
    turn: int
    text: str
    label: Label
    files: tuple[Attachment, ...] = ()


class AskPerson(Struct, frozen=True, tag="Ask"):
    """Ask a person to review a draft, who answers with `Approve` or `Reject`."""

    draft: str
    text: str
    reviews: tuple[Review, ...]
    """The reasons; there is at least one."""


class Permit(Struct, frozen=True, tag=True):
    """Tell the local agent what the person chose."""

    question: str
    choice: str | None
    kind: str
    """The kind of the choice; empty: no."""


class Cancel(Struct, frozen=True, tag=True):
    """Cancel the prompt with this id; a late result of it is refused."""

    id: str


class Ended(Struct, frozen=True, tag=True):
    """The run has ended."""

    state: SessionState
    why: Reason
    banner: str = ""


Effect = Prompt | Send | AskPerson | Permit | Cancel | Ended

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
# C completed, Z paused, E error, X stopped; if several states are possible, limits and modes decide.
TABLE: dict[tuple[SessionState, type[Event]], frozenset[SessionState]] = {
    row: after
    for event, moves in {
        Start: "I>P",
        Prompted: "P>L O>L",
        # Ready, asked again (it was empty), done, or at a limit.
        Drafted: "L>SPOCX Z>ZX",
        LocalFailed: "P>POEX L>POEX O>OEX Z>ZEX",
        Asked: "L>L Z>Z",
        Decide: "L>L Z>Z",
        Unasked: "L>L Z>Z",
        Approve: "S>SX",
        Reject: "S>POX",
        # A reply may arrive before the confirmation that the message was queued.
        Sent: "S>ROX Z>Z",
        Arrived: "P>P L>L S>S R>OX O>O Z>Z E>E",
        RemoteFailed: "S>EX R>EX Z>EX",
        Pause: "P>Z L>Z S>Z R>Z O>Z",
        Resume: "Z>PLSROCX E>PSROX",
        Stop: "I>X P>X L>X S>X R>X O>X Z>X E>X",
        TakeOver: "P>PO L>PO S>SPO R>R O>O Z>Z E>E",
        HandBack: "P>POX S>S R>R O>OX Z>Z E>E",
        Say: "P>SX O>SX",
        Attach: "I>I P>P L>L S>S R>R O>O Z>Z E>E",
        Detach: "I>I P>P L>L S>S R>R O>O Z>Z E>E",
        Tick: "I>I P>PX L>LX S>SX R>RX O>OX Z>Z E>E",
        Revoked: "I>X P>X L>X S>X R>X O>X Z>X E>X",
        Restarted: "I>I P>Z L>Z S>Z R>Z O>Z Z>Z E>E",
        SetObjective: "I>I P>POX L>POX S>SPOX R>R O>OX Z>Z E>E",
        SetMode: "I>I P>P L>L S>S R>R O>O Z>Z E>E",
    }.items()
    for row, after in _rows(event, moves)
}


def refusal(state: SessionState, event: type[Event]) -> str:
    """Return why an event is not possible in *state*, and which events are."""
    if state in ENDED:
        return f"{event.__name__} is not possible: the run is {state}, and that is final"
    able = ", ".join(each.__name__ for each in EVENTS if (state, each) in TABLE)
    return f"{event.__name__} is not possible while the run is {state}; possible are {able}"


def as_markdown() -> str:
    """Return the table for the documentation: a row for each event, a column for each state."""
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
