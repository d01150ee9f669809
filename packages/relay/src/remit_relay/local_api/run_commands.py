"""The commands of the local API for runs with shared agents: the fields of each, and the event that it causes."""

from typing import Annotated, Literal

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


class RunCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command of a person."""

    by: Annotated[str, Meta(max_length=256)] = ""
    """Who sends the command, as the audit log names them; empty: this API."""
    via: Literal["api", "chat", "pending"] = "api"
    """The interface that the person uses, for the audit log."""


class StartRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class PauseRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send nothing until the run is resumed."""


class ResumeRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Continue, or try again after an error."""

    agent: Name | None = None
    """For a run that was started without naming the agent, before it was known what the device shares."""


class StopRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End the run."""


class TakeOverRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The person speaks next."""


class HandBackRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent speaks next."""


class SayRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of the person who has taken over."""

    text: Text


class ApproveRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send a draft, optionally edited."""

    draft: Name
    text: Text | None = None


class RejectRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do not send a draft; the agent gets the reason and drafts again."""

    draft: Name
    reason: Annotated[str, Meta(max_length=2_000)] = ""


class AnswerRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer a permission request of the local agent."""

    question: Name
    choice: Name | None = None
    """The id of one of its choices; None: no."""


class SetObjectiveRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change the objective."""

    objective: Text


class SetModeRequest(RunCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change the mode: who sees drafts first."""

    mode: Mode


class ReadRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user has read the run up to an entry. This is no step of the run, and possible at any time."""

    entry: Name
    """The id of the entry."""


def objective_of(begin: StartRequest) -> str:
    """Return the objective of a new run, or raise a `RemitError` if the agent would have none."""
    if begin.objective is None and begin.decides == "agent":
        problem = Problem("objective", "expected, unless `decides` is `person`")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "missing field `objective`", problems=(problem,)))
    return begin.objective or ""


def person_of(command: RunCommand, via: Via) -> Person:
    """Return who sends a command, as far as the client says, and by which client.

    A program that knows the token says by which command a person speaks; a browser does not.
    """
    return Person(command.by or via, command.via if via == "api" else via)


ACTS: dict[ActName, tuple[type[RunCommand], type[moves.Event]]] = {
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
"""All commands by name, with the events that they cause; clients can cause no other events."""


def event_of(name: ActName, command: RunCommand) -> moves.Event:
    """Return the event that a command causes in a run: it has the same fields."""
    event = ACTS[name][1]
    given = {field: getattr(command, field) for field in event.__struct_fields__}
    return event(**{field: value for field, value in given.items() if value is not None})


def unknown_act(name: str) -> RemitError:
    """Return the error for a command that does not exist, which names all commands."""
    return RemitError(
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
