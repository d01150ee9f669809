"""What each delegation has asked for so far: to answer what it asks again, and to warn it when it goes in circles."""

from collections import Counter

from msgspec.structs import replace

from remit.policy.repeats import ENOUGH, CallKey, CallWords, EarlierAnswer, repeated_without_progress, words_of
from remit.policy.weight import is_light, is_light_response
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Json, Request, Response, Usage
from remit.protocol.lifecycle import Status
from remit.runtime.answer_cache import moment
from remit.runtime.delegation.response import for_record
from remit.runtime.frames import Frame, PastCall

# Answers that one delegation keeps to be given again. An agent backed by a model makes some dozens of calls.
MOST_ANSWERS = 200
# Calls of one delegation to one callee that are compared with each other. Code that makes more than that iterates.
MOST_WATCHED = 50

_UNWATCHED: list[PastCall] = []


def is_read_only(card: AgentCard, request: Request) -> bool:
    """Say whether a request changes nothing, as the card of its callee says."""
    capability = card.capability(request.capability) if request.capability is not None else None
    return capability is not None and capability.read_only


def count_change(frame: Frame) -> None:
    """Count that something may have been changed by the agent of a frame."""
    frame.run.changes += 1
    frame.run.changed_at = moment()
    frame.changes_below += 1


def keep_answer(parent: Frame, key: CallKey, outcome: Response, changes: int, beside: tuple[Json, ...]) -> None:
    """Keep the answer to a call that only reads, until its caller ends; *changes* says until when it is true.

    What is not kept, because it is large or there are too many, is asked for again as if it were new.
    """
    kept = parent.errands
    if kept is None or key not in kept:
        return
    if len(kept) <= MOST_ANSWERS and (isinstance(outcome.result, str) or is_light_response(outcome)):
        kept[key] = EarlierAnswer(for_record(outcome), changes, beside)
    else:
        del kept[key]


def note_end(frame: Frame, outcome: Response) -> None:
    """Note how a delegation ended: for who asks the same again, and for who goes in circles."""
    parent, request = frame.parent, frame.request
    if parent is None:
        return
    if not is_read_only(frame.card, request):
        if frame.ran:
            frame.run.changes += 1
            if request.capability is not None:  # of a call that names none it is not said that it changes anything
                frame.run.changed_at = moment()
            parent.changes_below += frame.changes_below + 1
    else:
        parent.changes_below += frame.changes_below
        if outcome.status is Status.SUCCESS and frame.errand is not None:
            keep_answer(parent, frame.errand, outcome, frame.changes_before + frame.changes_below, frame.beside)
    if frame.asked is not None and outcome.fault is None:
        result = outcome.summary if outcome.result is None else outcome.result
        frame.asked.answer = result if isinstance(result, str) or is_light(result) else outcome.summary


def given_again(parent: Frame, request: Request, earlier: EarlierAnswer) -> Response:
    """Return an earlier answer as the answer to a request for the same; it costs nothing."""
    was = earlier.response
    note = f"{parent.card.name} asked this before ({was.id}) and nothing was changed since: the earlier answer again"
    return replace(
        for_record(was),
        id=request.id,
        usage=Usage(),
        duration_ms=0,
        queued_ms=0,
        waited_ms=0,
        tool_calls=(),
        cache="hit",
        warnings=(*was.warnings, note),
    )


def watch(parent: Frame, name: str, capability: str | None, *said: Json) -> PastCall | None:
    """Remember what a caller asks a callee or a tool for; None: it is not watched any more.

    It `circles` if it is nearly the same as before, again without progress: the caller is to be warned, once.
    """
    if parent.asked_of is None:
        parent.asked_of = {}
    callee = name, capability
    before = parent.asked_of.get(callee)
    if before is _UNWATCHED:
        return None
    if before is None:
        before = parent.asked_of[callee] = []
    asked = PastCall(said)
    before.append(asked)
    # One that is not the fourth of its kind repeats nothing, and most are not.
    if len(before) > ENOUGH and is_light(*said):
        earlier = [CallWords(_words(each), _answer_words(each)) for each in before[:-1]]
        asked.circles = repeated_without_progress(_words(asked), earlier)
    if asked.circles or len(before) >= MOST_WATCHED:
        parent.asked_of[callee] = _UNWATCHED
    return asked


def circling(parent: Frame, name: str) -> str:
    """Return what a caller is told that goes in circles."""
    return (
        f"{parent.card.name} has asked {name} for nearly the same several times, and the answers bring nothing new: "
        "use what there is, ask for something else, or ask another"
    )


def _words(asked: PastCall) -> Counter[str]:
    if asked.words is None:
        asked.words = words_of(*asked.said) if is_light(*asked.said) else Counter()
    return asked.words


def _answer_words(asked: PastCall) -> Counter[str] | None:
    if asked.answer is None:
        return None
    if asked.answer_words is None:
        asked.answer_words = words_of(asked.answer)
    return asked.answer_words
