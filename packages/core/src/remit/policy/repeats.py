"""Whether a call repeats an earlier one, exactly or nearly."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, cast

from msgspec.structs import replace

from remit.protocol.codec import encode
from remit.protocol.envelope import Call, Json, Request, Response
from remit.protocol.files import File

CallKey = tuple[str, str, str | bytes]
"""Identifies a call of one caller: the callee, the capability, and objective and input in canonical form."""

# Chosen on 30 public traces that people had labelled (bench/repeats.py): with these values, five of the seven that
# repeat themselves are found, and less than one call in a hundred of the others. With values chosen on the others,
# three are.
CALL_SHARE = 0.3
"""The share of words in which two nearly equal calls may differ."""
ANSWER_SHARE = 0.5
"""The share of words in which two answers may differ without showing progress."""
ENOUGH = 3
"""This many earlier, nearly equal calls without progress are a repetition."""

# Only the beginning of a longer text is compared: reading this much takes a tenth of a millisecond.
MOST_CHARACTERS = 4_000

_WORD = re.compile(r"\w+")


class EarlierAnswer(NamedTuple):
    """The answer of a read-only call, and the run's count of changes when it was valid."""

    response: Response
    changes: int
    beside: tuple[Json, ...] = ()
    """What its callee was given besides the parts of the key."""


class CallWords(NamedTuple):
    """A call and its answer, as words; None without an answer yet, or after a failure."""

    call: Counter[str]
    answer: Counter[str] | None


def call_key(target: str, capability: str | None, objective: str, given: Json, files: tuple[File, ...] = ()) -> CallKey:
    """Return the key of a call; white space and case make no difference."""
    text = _canonical_text(objective)
    if files:
        return target, capability or "", hashlib.sha256(encode((text, _canonical(given), files))).digest()
    if given is None:
        return target, capability or "", text
    return target, capability or "", hashlib.sha256(encode((text, _canonical(given)))).digest()


def call_key_of(request: Request) -> CallKey:
    """Return the key by which two requests of one caller are the same."""
    return call_key(request.target, request.capability, request.objective, request.input, request.files)


def call_keys_of(call: Call, names: Iterable[str]) -> set[CallKey]:
    """Return the keys of a call by capability, one for each agent that could execute it."""
    _, capability, content = call_key("", call.capability, call.objective, call.input, call.files)
    return {(name, capability, content) for name in names}


def beside_of(request: Request) -> tuple[Json, ...]:
    """Return what the answer to a request may depend on besides its call key.

    If two calls differ in it, the answer of one is not valid for the other.
    """
    handoff, view = request.handoff, request.view
    if handoff is not None:
        handoff = replace(handoff, position="")  # its place in the workflow, not its content
    if view is not None:
        view = replace(view, tokens=0)  # counted with the task, where white space makes no difference
    session = None if request.session == request.path else request.session
    return handoff, request.hints, view, session, request.remit.tools, request.files


def is_outdated(earlier: EarlierAnswer, request: Request, changes: int) -> bool:
    """Return whether an earlier answer is invalid: something changed since, or its callee was given something else."""
    return earlier.changes != changes or earlier.beside != beside_of(request)


def words_of(*texts: Json) -> Counter[str]:
    """Return the words of a text, with their counts."""
    joined = " ".join(text if isinstance(text, str) else encode(text).decode() for text in texts if text is not None)
    return Counter(_WORD.findall(joined[:MOST_CHARACTERS].lower()))


def is_near(one: Counter[str], other: Counter[str], share: float) -> bool:
    """Return whether two texts are the same except for one word, or for that share of their words."""
    length, other_length = sum(one.values()), sum(other.values())
    most = max(1.0, share * max(length, other_length))
    if abs(length - other_length) > most:
        return False
    common = sum([min(one[word], other[word]) for word in one.keys() & other.keys()])
    return max(length, other_length) - common <= most


def repeated_without_progress(
    call: Counter[str],
    earlier: Iterable[CallWords],
    *,
    call_share: float = CALL_SHARE,
    answer_share: float = ANSWER_SHARE,
    enough: int = ENOUGH,
) -> bool:
    """Return whether a call nearly equals several before it, whose answers brought nothing new either."""
    alike = [each for each in earlier if is_near(call, each.call, call_share)]
    answers = [each.answer for each in alike if each.answer is not None]
    last = answers[-1] if answers else None
    stuck = [each for each in alike if each.answer is None or last is None or is_near(each.answer, last, answer_share)]
    return len(stuck) >= enough


def _canonical_text(text: str) -> str:
    return " ".join(text.split()).casefold()


def _canonical(value: Json) -> Json:
    if isinstance(value, str):
        return _canonical_text(value)
    if isinstance(value, dict):
        return {key: _canonical(each) for key, each in cast("dict[str, Json]", value).items()}
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in cast("list[Json]", value)]
    return value
