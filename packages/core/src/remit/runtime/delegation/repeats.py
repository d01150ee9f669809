"""The past calls of each delegation: repeated calls get the earlier answer, and agents that go in circles a warning."""

from msgspec.structs import replace

from remit.policy.repeats import (
    CallKey,
    ComparedContent,
    EarlierAnswer,
    PastCall,
    content_of_answer,
    content_of_call,
    is_alarming,
)
from remit.policy.restoring import HubWarning
from remit.policy.weight import LIGHT, LIGHT_TO_ENCODE, is_light, is_light_response
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Json, Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import Status
from remit.runtime.answer_cache import moment
from remit.runtime.delegation.response import for_record
from remit.runtime.frames import Frame

# Answers that one delegation keeps for repeated calls. An agent backed by a model makes some dozens of calls.
MOST_ANSWERS = 200
# Calls of one delegation to one callee that are compared. Code that makes more calls than this iterates.
MOST_WATCHED = 50

# For the agent that asked again, and for the user who reads its answer.
_EARLIER = "This was asked before and nothing has changed since, so this is the earlier answer."
_UNWATCHED: list[PastCall] = []


def is_read_only(card: AgentCard, request: Request) -> bool:
    """Return whether a request changes nothing, according to its callee's card."""
    capability = card.capability(request.capability) if request.capability is not None else None
    return capability is not None and capability.read_only


def count_change(frame: Frame) -> None:
    """Count that the agent of a frame may have changed something."""
    frame.run.changes += 1
    frame.run.changed_at = moment()
    frame.changes_below += 1


def count_unknown_change(frame: Frame) -> None:
    """Count that the agent of a frame used a tool that the hub does not know: it may have changed something."""
    frame.run.changes += 1
    frame.changes_below += 1
    frame.news += 1


def keep_answer(parent: Frame, key: CallKey, outcome: Response, changes: int, beside: tuple[Json, ...]) -> None:
    """Keep the answer of a read-only call until its caller ends; *changes* says until when it is valid.

    Answers that are too large or too many are not kept; those calls are made again.
    """
    kept = parent.calls_by_key
    if kept is None or key not in kept:
        return
    if len(kept) <= MOST_ANSWERS and (isinstance(outcome.result, str) or is_light_response(outcome)):
        kept[key] = EarlierAnswer(for_record(outcome), changes, beside)
    else:
        del kept[key]


def note_end(frame: Frame, parent: Frame, outcome: Response) -> None:
    """Note how a delegation of *parent* ended, for repeated calls."""
    request, key = frame.request, frame.call_key
    changes = frame.changes_before + frame.changes_below
    if is_read_only(frame.card, request):
        parent.changes_below += frame.changes_below
        if outcome.status is Status.SUCCESS and key is not None:
            keep_answer(parent, key, outcome, changes, frame.beside)
        return
    if frame.ran:
        frame.run.changes += 1
        if request.capability is not None:  # a call that names no capability is not declared to change anything
            frame.run.changed_at = moment()
        parent.changes_below += frame.changes_below + 1
    if outcome.status is Status.SUCCESS and key is not None and parent.calls_by_key is not None:
        parent.calls_by_key[key] = EarlierAnswer(None, changes + frame.ran)


def given_again(request: Request, was: Response) -> Response:
    """Return an earlier answer as the answer to an equal request; it costs nothing."""
    return replace(
        for_record(was),
        id=request.id,
        usage=Usage(),
        duration_ms=0,
        queued_ms=0,
        waited_ms=0,
        tool_calls=(),
        cache="hit",
        warnings=(*was.warnings, _EARLIER),
    )


def watch(parent: Frame, name: str, capability: str | None, objective: str, given: Json) -> PastCall | None:
    """Remember a call to a callee or a tool whose input is small; None: the calls are not watched any more."""
    if parent.asked_of is None:
        parent.asked_of = {}
    callee = name, capability
    before = parent.asked_of.get(callee)
    if before is _UNWATCHED:
        return None
    if before is None:
        before = parent.asked_of[callee] = []
    call = PastCall(content_of_call(objective, given), before, parent.news)
    before.append(call)
    if len(before) >= MOST_WATCHED:
        parent.asked_of[callee] = _UNWATCHED
    return call


def note_answer(frame: Frame, response: Response) -> HubWarning | None:
    """Note the answer to a call before it is given to the caller; return a warning if the run goes in circles."""
    call, parent, answer = frame.past_call, frame.parent, None
    if parent is None:
        return None
    if call is not None and response.status is not Status.CANCELLED:
        frame.past_call = None
        content = response.summary if response.result is None else response.result
        if response.fault is not None:
            content = response.fault.message
        answer = content_of_answer(content if isinstance(content, str) or is_light(content) else response.summary)
    changes = frame.ran and not is_read_only(frame.card, frame.request)
    return _note_call(parent, call, answer, frame.card.name, changes=changes)


def note_tool_answer(
    frame: Frame, call: PastCall | None, tool: str, value: Json, why: Fault | None, *, changes: bool
) -> HubWarning | None:
    """Note what a tool returned, or why it failed; return a warning if the run goes in circles."""
    answer = value if why is None else why.message
    light = call is not None and is_light(answer, most=LIGHT_TO_ENCODE if isinstance(answer, str) else LIGHT)
    return _note_call(frame, call, content_of_answer(answer, is_of_tool=True) if light else None, tool, changes=changes)


def _note_call(
    parent: Frame, call: PastCall | None, answer: ComparedContent | None, name: str, *, changes: bool
) -> HubWarning | None:
    if call is None:
        parent.news += changes
        return None
    parent.run.wasted += call.note_answer(answer, parent.news, changes=changes)
    parent.news = call.after
    return _circling(parent, name) if call.wasted and is_alarming(parent.run.wasted) else None


def _circling(parent: Frame, name: str) -> HubWarning:
    wasted = parent.run.wasted
    return HubWarning(
        f"{wasted} calls were made again though nothing had changed, and their answers brought nothing new. "
        "Use the answers so far, or ask for something else.",
        f"{parent.card.name} has asked {name} again for nearly the same, and was answered as before: "
        f"this is wasted call {wasted} of the run",
    )
