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

# The shares were chosen on 30 public traces that people had labelled; bench/repeats.py says what is found with them.
CALL_SHARE = 0.3
"""The share of words in which the objectives of two nearly equal calls may differ."""
ANSWER_SHARE = 0.5
"""The share of words in which two answers may differ that say nearly the same."""
SHORT = 20
"""Answers of at most so many words must have the same words: there each of them may be the news."""
ENOUGH = 3
"""So many wasted calls of a run are warned of; then twice as many, and so on."""

# Only the beginning of a longer text is compared: reading this much takes a tenth of a millisecond.
MOST_CHARACTERS = 4_000

_WORD = re.compile(r"\w+")
# Numbers and identifiers: a text with other ones says something else, however it is worded.
_VALUE = re.compile(r"[\d_]")


class EarlierAnswer(NamedTuple):
    """A call that succeeded, and the run's count of changes until which repeating it brings nothing new."""

    response: Response | None
    """The answer that a repeated call gets; None: the call may change something, and repeating it is refused."""
    changes: int
    beside: tuple[Json, ...] = ()
    """What its callee was given besides the parts of the key."""


class ComparedContent:
    """What a call or an answer says: a text, which can be worded differently, beside data, which cannot."""

    __slots__ = ("_values", "_words", "data", "text")

    def __init__(self, text: str = "", data: bytes | str = b"") -> None:
        self.text = text
        self.data = data
        self._words: Counter[str] | None = None
        self._values: frozenset[str] = frozenset()

    def is_near(self, other: "ComparedContent", share: float, short: int = 0) -> bool:
        """Return whether the data are equal, and the texts too except for a share of the words in a text not *short*.

        Numbers and identifiers in the texts must be equal.
        """
        if self.data != other.data:
            return False
        if self.text == other.text:
            return True
        words, other_words = self._count_words(), other._count_words()
        longest = max(words.total(), other_words.total())
        most = share * longest if longest > short else 0
        return self._values == other._values and longest - (words & other_words).total() <= most

    def _count_words(self) -> Counter[str]:
        if self._words is None:
            self._words = Counter(_WORD.findall(self.text[:MOST_CHARACTERS].lower()))
            self._values = frozenset(filter(_VALUE.search, self._words))
        return self._words


class PastCall:
    """A call to one callee, or the use of one tool, and its answer."""

    __slots__ = ("after", "answer", "before", "call", "earlier", "wasted")

    def __init__(self, call: ComparedContent, earlier: Iterable["PastCall"], news: int) -> None:
        self.call = call
        self.earlier = [each for each in earlier if each.answer is not None]
        """The calls of the same kind that had been answered when it was made."""
        self.before = self.after = news
        """How much that is new its caller had done before, and up to its answer."""
        self.answer: ComparedContent | None = None
        self.wasted = False

    def note_answer(self, answer: ComparedContent | None, news: int, *, changes: bool) -> int:
        """Note the answer; *changes* says whether the call may have changed something. Return how many more are wasted.

        It is wasted if nearly the same was answered nearly alike before, and its caller has done nothing new since. A
        new answer shows that those before it were not: their caller waited for it. What is repeated and answered alike
        is not new, even if it may have changed something.
        """
        near = [each for each in self.earlier if self.call.is_near(each.call, CALL_SHARE)]
        alike = [each for each in near if answer and each.answer and answer.is_near(each.answer, ANSWER_SHARE, SHORT)]
        self.answer, self.earlier = answer, []
        self.after = news + (changes and not alike)
        self.wasted = any(each.after == self.before for each in alike)
        if alike or answer is None:
            return int(self.wasted)
        waited = [each for each in near if each.wasted]
        for each in waited:
            each.wasted = False
        return -len(waited)


def is_alarming(wasted: int) -> bool:
    """Return whether a run is warned at its n-th wasted call: the third, the sixth, the twelfth and so on."""
    times, rest = divmod(wasted, ENOUGH)
    return rest == 0 and times.bit_count() == 1


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
    """Return whether a call may be made again: something else was changed since, or an answer depends on more."""
    return earlier.changes != changes or (earlier.response is not None and earlier.beside != beside_of(request))


def content_of_call(objective: str, given: Json) -> ComparedContent:
    """Return what a call says: its objective as a text, its input as data."""
    return ComparedContent(objective, b"" if given is None else encode(given))


def content_of_answer(answer: Json, *, is_of_tool: bool = False) -> ComparedContent | None:
    """Return what an answer says; None: nothing. What a tool returns is data, and so is a text that is JSON."""
    if answer is None or answer == "":
        return None
    if not isinstance(answer, str):
        return ComparedContent(data=encode(answer))
    return ComparedContent(data=answer) if is_of_tool or answer.lstrip()[:1] in ("{", "[") else ComparedContent(answer)


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
