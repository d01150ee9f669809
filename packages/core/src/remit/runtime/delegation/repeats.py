"""The past calls of each delegation: repeated calls get the earlier answer, and circling agents a warning."""

from collections import Counter

from msgspec.structs import replace

from remit.policy.repeats import ENOUGH, CallKey, CallWords, EarlierAnswer, repeated_without_progress, words_of
from remit.policy.restoring import HubWarning
from remit.policy.weight import is_light, is_light_response
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Json, Request, Response, Usage
from remit.protocol.lifecycle import Status
from remit.runtime.answer_cache import moment
from remit.runtime.delegation.response import for_record
from remit.runtime.frames import Frame, PastCall

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
    """Note how a delegation of *parent* ended, for repeated calls and for the circle detection."""
    request = frame.request
    if request.capability is None or not is_read_only(frame.card, request):
        if frame.ran:
            frame.run.changes += 1
            if request.capability is not None:  # a call that names no capability is not declared to change anything
                frame.run.changed_at = moment()
            parent.changes_below += frame.changes_below + 1
    else:
        parent.changes_below += frame.changes_below
        if outcome.status is Status.SUCCESS and frame.call_key is not None:
            keep_answer(parent, frame.call_key, outcome, frame.changes_before + frame.changes_below, frame.beside)
    if frame.past_call is not None and outcome.fault is None:
        result = outcome.summary if outcome.result is None else outcome.result
        frame.past_call.answer = result if isinstance(result, str) or is_light(result) else outcome.summary


def given_again(request: Request, earlier: EarlierAnswer) -> Response:
    """Return an earlier answer as the answer to an equal request; it costs nothing."""
    was = earlier.response
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


def watch(parent: Frame, name: str, capability: str | None, *texts: Json) -> PastCall | None:
    """Remember a call to a callee or a tool; None: the calls are not watched any more.

    The call `circles` if it nearly repeats earlier ones without progress; its caller is warned once.
    """
    if parent.asked_of is None:
        parent.asked_of = {}
    callee = name, capability
    before = parent.asked_of.get(callee)
    if before is _UNWATCHED:
        return None
    if before is None:
        before = parent.asked_of[callee] = []
    past_call = PastCall(texts)
    before.append(past_call)
    # Only the fourth call of its kind can be a repetition, and most calls come earlier.
    if len(before) > ENOUGH and is_light(*texts):
        earlier = [CallWords(_words(each), _answer_words(each)) for each in before[:-1]]
        past_call.circles = repeated_without_progress(_words(past_call), earlier)
    if past_call.circles or len(before) >= MOST_WATCHED:
        parent.asked_of[callee] = _UNWATCHED
    return past_call


def circling(parent: Frame, name: str) -> HubWarning:
    """Return the warning to an agent that goes in circles."""
    return HubWarning(
        "Nearly the same was asked several times, and the answers brought nothing new. "
        "Use the answers so far, or ask for something else.",
        f"{parent.card.name} has asked {name} for nearly the same several times, and the answers bring nothing new",
    )


def _words(past_call: PastCall) -> Counter[str]:
    if past_call.words is None:
        past_call.words = words_of(*past_call.texts) if is_light(*past_call.texts) else Counter()
    return past_call.words


def _answer_words(past_call: PastCall) -> Counter[str] | None:
    if past_call.answer is None:
        return None
    if past_call.answer_words is None:
        past_call.answer_words = words_of(past_call.answer)
    return past_call.answer_words
