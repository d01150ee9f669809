"""The commands of the local API for runs with shared agents: the fields of each, and the event that it causes."""

from typing import Annotated, Literal, assert_never

from msgspec import Meta, Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit_relay.bridge.ports import Mode
from remit_relay.local_api.access import Via
from remit_relay.session import moves
from remit_relay.session.run import Overlay, Person

# The maximum length of an objective (`protocol/envelope.py`), and more than any draft has.
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]

ActName = Literal[
    "pause",
    "resume",
    "stop",
    "take_over",
    "hand_back",
    "say",
    "approve",
    "reject",
    "answer",
    "set_objective",
    "set_mode",
]


class _RunCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Annotated[str, Meta(max_length=256)] = ""
    """Who sends the command, as the audit log names them; empty: this API."""
    via: Literal["api", "chat", "pending"] = "api"
    """The interface that the person uses, for the audit log."""


class StartRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a run."""

    profile: Name
    device: Name
    """The id or the name of a device; or a group, of which one device is chosen."""
    objective: Text | None = None
    """What the local agent is to reach; needed unless a person writes."""
    decides: Literal["agent", "person"] = "agent"
    """Who writes the first message. With `person` the local agent is asked nothing until `hand_back`."""
    agent: Name | None = None
    """The name under which the device shares the other agent; None: the only one that it shares."""
    mode: Mode | None = None
    """None: the mode of the profile."""


class PauseRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send nothing until the run is resumed."""


class ResumeRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Continue, or try again after an error."""

    agent: Name | None = None
    """For a run that was started without naming the agent, before it was known what the device shares."""


class StopRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End the run."""


class TakeOverRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The person speaks next."""


class HandBackRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent speaks next."""


class SayRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of the person who has taken over."""

    text: Text


class ApproveRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send a draft, optionally edited."""

    draft: Name
    text: Text | None = None


class RejectRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do not send a draft; the agent gets the reason and drafts again."""

    draft: Name
    reason: Annotated[str, Meta(max_length=2_000)] = ""


class AnswerRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer a permission request of the local agent."""

    question: Name
    choice: Name | None = None
    """The id of one of its choices; None: no."""


class SetObjectiveRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change the objective."""

    objective: Text


class SetModeRequest(_RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change the mode: who sees drafts first."""

    mode: Mode


class ReadRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user has read the run up to an entry. This is no step of the run, and possible at any time."""

    entry: Name
    """The id of the entry."""


Act = (
    PauseRequest
    | ResumeRequest
    | StopRequest
    | TakeOverRequest
    | HandBackRequest
    | SayRequest
    | ApproveRequest
    | RejectRequest
    | AnswerRequest
    | SetObjectiveRequest
    | SetModeRequest
)


def objective_of(begin: StartRequest) -> str:
    """Return the objective of a new run, or raise a `RemitError` if the agent would have none."""
    if begin.objective is None and begin.decides == "agent":
        problem = Problem("objective", "expected, unless `decides` is `person`")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "missing field `objective`", problems=(problem,)))
    return begin.objective or ""


def person_of(deed: StartRequest | Act, via: Via) -> Person:
    """Return who sends a command, as far as the client says, and by which client.

    A program that knows the token says by which command a person speaks; a browser does not.
    """
    return Person(deed.by or via, deed.via if via == "api" else via)


def event_of(act: Act) -> moves.Event:
    """Return the event that a command causes in a run; clients can cause no other events."""
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
        case AnswerRequest(question=question, choice=choice):
            return moves.Decide(question, choice)
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
    "answer": (AnswerRequest, moves.Decide),
    "set_objective": (SetObjectiveRequest, moves.SetObjective),
    "set_mode": (SetModeRequest, moves.SetMode),
}
"""All commands by name."""


def kind_of(name: str) -> type[Act]:
    """Return the type of a command, or raise a `RemitError` that names all commands."""
    for act, (kind, _) in ACTS.items():
        if act == name:
            return kind
    raise RemitError(
        fault(Code.NOT_FOUND, f"unknown action `{name[:100]}`", suggestion=f"Use one of {', '.join(ACTS)}.")
    )


def possible(run: Overlay) -> tuple[ActName, ...]:
    """Return the commands that are possible now, by the table of moves and by whose turn it is."""
    person = run.decides == "person"
    out: set[ActName] = {"take_over"} if person else {"hand_back", "say"}
    if run.pending is None:
        out |= {"approve", "reject"}
    if not run.questions:
        out.add("answer")
    if not run.objective.strip():
        out.add("hand_back")
    return tuple(name for name, (_, event) in ACTS.items() if (run.state, event) in moves.TABLE and name not in out)
