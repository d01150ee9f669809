"""The page about the states of shared runs and their messages, from the code."""

from collections.abc import Iterable

from markdown_tables import table
from remit_relay.bridge.ports import Draft, DraftFailure
from remit_relay.session import moves
from remit_relay.session.moves import Event, SessionState
from remit_relay.session.reducer import step
from remit_relay.session.run import MoveRefused, Overlay, Transition

HEAD = """\
# States of runs and messages

The states of a run with a [shared agent](../tutorials/shared-agents.md), the effect of each event, and how far a
message has come. Programs see them in [the local API](relay-api.md). This page is made from the code; `make docs` makes
it anew.

## States

"""

PAUSING = """
A run that was in progress when its process ended comes back `paused`. `Resume` after an error tries again: it asks the
agent again, or shows you the lost message once more. One message or prompt is in flight at a time for each run, and one
prompt for each profile.

## How far a message has come

| state | meaning | shown in a chat as |
|---|---|---|
| `waiting` | it is in the outbox of your device, and will be sent | sent |
| `taken` | the gateway has stored it | taken by the gateway |
| `delivered` | the other device has opened and stored it | delivered |
| `read` | the shared agent was given it | read |
| `answered` | its reply has arrived | |
| `failed` | the gateway deleted it, or it was declined; the reason is shown | not delivered |

- A state is stored before it is shown and never goes back, whichever process is killed. A later state implies the
  earlier ones: a quick answer skips some.
- `delivered` comes with the acknowledgements between devices. `read` is a message of its own, inside the encryption, if
  the answer takes longer than a second.
- A message that the gateway deleted because nobody fetched it is still on your device. If the other device comes back,
  it is sent again, and is `delivered` after all.
- These states are not in the record, which has what was sent and answered in each turn.

## Pausing and taking over

`Pause` and `Resume` say whether a run continues, `TakeOver` and `HandBack` who writes its next message. No act changes
both: a run that you take over while it is paused, or in `error`, stays so, and you write after you resume it. A draft
that waits or is being written is discarded when you take over; the terminal prints it. Each cell is the state and the
writer after an act:

"""

EVENTS = """
## Events

Each cell has the states to which an event leads; where there are several, limits and modes decide. `–`: the event is
refused and changes nothing. `completed` and `stopped` are final. `Prompted`, `Drafted`, `LocalFailed`, `Sent`,
`Arrived`, `RemoteFailed`, `Tick`, `Restarted` and `Revoked` come from the device, the others from a person.

"""


def states_page() -> str:
    """Return the page about the states of shared runs."""
    return "".join(
        (
            HEAD,
            table(("state", "meaning"), ((f"`{state}`", MEANING[state]) for state in SessionState)),
            PAUSING,
            table(("state", "who writes", *(f"`{type(act).__name__}`" for act in CONTROLS)), _combinations()),
            EVENTS,
            moves.as_markdown(),
        )
    )


CONTROLS = (moves.Pause(), moves.Resume(), moves.TakeOver(), moves.HandBack(), moves.Say("hello"), moves.Stop())
_PROMPT, _TAKEN = moves.Prompted("r.p1"), moves.TakeOver()
_DRAFTED = moves.Drafted("r.p1", Draft(text="hello"), ())
_SENT, _REPLY = moves.Sent("r.m1"), moves.Arrived("hi")
_FAILED = moves.LocalFailed("r.p1", DraftFailure(reason="it crashed", hard=True))
SITUATIONS: dict[str, tuple[Event, ...]] = {
    "`planning`": (),
    "`waiting_local`": (_PROMPT,),
    "`ready_to_send`, a draft waits": (moves.SetMode("manual"), _PROMPT, _DRAFTED),
    "`ready_to_send`, a message is on its way": (_PROMPT, _DRAFTED),
    "`waiting_remote`": (_PROMPT, _DRAFTED, _SENT),
    "`processing_remote`": (_PROMPT, _DRAFTED, _SENT, _REPLY),
    "`paused` while the agent drafts": (_PROMPT, moves.Pause()),
    "`paused` while a draft waits": (moves.SetMode("manual"), _PROMPT, _DRAFTED, moves.Pause()),
    "`paused` while a reply is awaited": (_PROMPT, _DRAFTED, _SENT, moves.Pause()),
    "`error`": (_FAILED,),
}


def _combinations() -> Iterable[tuple[str, ...]]:
    """Yield what each act of a person makes of each state, while the agent writes and after a person took over."""
    for writer, more in (("agent", ()), ("you", (_TAKEN,))):
        for name, events in SITUATIONS.items():
            run = _after(Overlay(id="r", profile="p", device="d", session="s", objective="o", mode="full_auto"), events)
            run = _after(run, more)
            # Taking over sets a draft aside, which leaves a situation that has a row of its own.
            if f"`{run.state}`" == name.partition(",")[0].partition(" ")[0]:
                yield name, writer, *(_result(run, act) for act in CONTROLS)


def _after(run: Overlay, events: tuple[Event, ...]) -> Overlay:
    for event in events if run.state is not SessionState.IDLE else (moves.Start(), *events):
        taken = step(run, event, 0)
        assert isinstance(taken, Transition), taken
        run = taken.overlay
    return run


def _result(run: Overlay, act: Event) -> str:
    taken = step(run, act, 0)
    if isinstance(taken, MoveRefused):
        return "–"
    after = taken.overlay
    return f"{after.state}, {'you' if after.decides == 'person' else 'agent'}"


MEANING = {
    SessionState.IDLE: "not started",
    SessionState.PLANNING: "what is said next is open: the agent is about to be asked, or you are to type",
    SessionState.WAITING_LOCAL: "the local agent is drafting",
    SessionState.READY_TO_SEND: "a draft waits for you, or a message is on its way out",
    SessionState.WAITING_REMOTE: "a message was sent, and its reply has not come",
    SessionState.PROCESSING_REMOTE: "a reply is to be answered: by the agent, or by you",
    SessionState.COMPLETED: "the agent said that the objective is met",
    SessionState.PAUSED: "nothing is sent until you resume",
    SessionState.ERROR: "something failed, and you say what comes next",
    SessionState.STOPPED: "ended by you, at a limit, or because a device revoked the other",
}
