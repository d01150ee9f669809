"""What faces may do with runs with shared agents: each act with what has to be said for it, and what happens by it."""

from typing import Annotated, Literal, assert_never

from msgspec import Meta, Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.bridge.frames import Mode
from remit.relay.messages.audit import Person
from remit.relay.session import moves
from remit.relay.session.run import Overlay

# As long as an objective of the envelope may be (`protocol/envelope.py`), and more than any draft has.
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]

ActName = Literal[
    "pause", "resume", "stop", "take_over", "hand_back", "say", "approve", "reject", "set_objective", "set_mode"
]


class _Deed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Annotated[str, Meta(max_length=256)] = ""
    """Who does it, as the record is to name them; empty: this API."""


class StartRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to be started."""

    profile: Name
    device: Name
    objective: Text
    agent: Name | None = None
    """What the device shares the other agent as; None: the only one that it shares."""
    mode: Mode | None = None
    """None: that of the profile."""


class PauseRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send nothing until it is resumed."""


class ResumeRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Go on, or try again after an error."""

    agent: Name | None = None
    """For a run that was started without naming the agent, while it was not known what the device shares."""


class StopRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End it."""


class TakeOverRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The person says what is said next."""


class HandBackRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent says what is said next."""


class SayRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the person who has taken over says."""

    text: Text


class ApproveRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send a draft, perhaps with other words."""

    draft: Name
    text: Text | None = None


class RejectRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do not send a draft; the agent is told why, and asked again."""

    draft: Name
    reason: Annotated[str, Meta(max_length=2_000)] = ""


class SetObjectiveRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Redirect it."""

    objective: Text


class SetModeRequest(_Deed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change who sees drafts first."""

    mode: Mode


Act = (
    PauseRequest
    | ResumeRequest
    | StopRequest
    | TakeOverRequest
    | HandBackRequest
    | SayRequest
    | ApproveRequest
    | RejectRequest
    | SetObjectiveRequest
    | SetModeRequest
)


def person_of(deed: StartRequest | Act) -> Person:
    """Return who does something, as far as the face says."""
    return Person(deed.by or "api", "api")


def event_of(act: Act) -> moves.Event:
    """Return what happens to a run by an act; a face can have nothing else happen to it."""
    match act:
        case PauseRequest():
            return moves.Pause()
        case ResumeRequest(agent=agent):
            return moves.Resume(agent or "")
        case StopRequest():
            return moves.Stop()
        case TakeOverRequest():
            return moves.TakeOver()
        case HandBackRequest():
            return moves.HandBack()
        case SayRequest(text=text):
            return moves.Say(text)
        case ApproveRequest(draft=draft, text=words):
            return moves.Approve(draft, words)
        case RejectRequest(draft=draft, reason=reason):
            return moves.Reject(draft, reason)
        case SetObjectiveRequest(objective=objective):
            return moves.SetObjective(objective)
        case SetModeRequest(mode=mode):
            return moves.SetMode(mode)
        case _:
            assert_never(act)


ACTS: dict[ActName, tuple[type[Act], type[moves.Event]]] = {
    "pause": (PauseRequest, moves.Pause),
    "resume": (ResumeRequest, moves.Resume),
    "stop": (StopRequest, moves.Stop),
    "take_over": (TakeOverRequest, moves.TakeOver),
    "hand_back": (HandBackRequest, moves.HandBack),
    "say": (SayRequest, moves.Say),
    "approve": (ApproveRequest, moves.Approve),
    "reject": (RejectRequest, moves.Reject),
    "set_objective": (SetObjectiveRequest, moves.SetObjective),
    "set_mode": (SetModeRequest, moves.SetMode),
}
"""Everything that can be done with a run, by name."""


def kind_of(name: str) -> type[Act]:
    """Return what has to be said for an act, or raise a `RemitError` that names all of them."""
    for act, (kind, _) in ACTS.items():
        if act == name:
            return kind
    raise RemitError(
        fault(Code.NOT_FOUND, f"unknown action `{name[:100]}`", suggestion=f"Use one of {', '.join(ACTS)}.")
    )


def possible(run: Overlay) -> tuple[ActName, ...]:
    """Return what is not refused from the outset, by the table of moves and by whose turn it is."""
    person = run.decides == "person"
    out: set[ActName] = {"take_over"} if person else {"hand_back", "say"}
    if run.pending is None:
        out |= {"approve", "reject"}
    return tuple(name for name, (_, event) in ACTS.items() if (run.state, event) in moves.TABLE and name not in out)
