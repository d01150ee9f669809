"""The remit as an extension of A2A: its content, and how it survives a peer that has only floating-point numbers.

A client that uses it names it in the header `A2A-Extensions`; its content is in the metadata of the message, and the
server's in the metadata of the artifact that holds the result, or else of the status message. Amounts are strings of
digits, because metadata is a protobuf `Struct`, in which every number is a double. What neither A2A nor these fields
can express is JSON in the string `rest`; it adds claims, and never contradicts the fields.
"""

from collections.abc import Mapping
from typing import Annotated, cast

from msgspec import Meta
from msgspec.structs import replace

from remit.protocol.codec import convert, decode, encode, malformed
from remit.protocol.envelope import Json, Usage
from remit.protocol.errors import Problem, RemitError
from remit.protocol.problems import path_of
from remit.protocol.remit import MAX_INTEGER, Name, Priority
from remit.protocol.submission import Submission
from remit_server.dialects.a2a.types import A2aObject, Metadata

EXTENSION = "urn:remit:delegation:v1"
RESULT = "result"
"""The artifact that holds an answer's result, by the extension; without it, the first one."""
DESCRIPTION = "Carries the remit of a delegation: for whom, how deep, how long, how many tokens, which tools."

Place = tuple[str | int, ...]
Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,16}\Z", extra={"rule": "digits, as a string"})] | float
Names = Annotated[tuple[Name, ...], Meta(max_length=1_000)]


class RemitWords(A2aObject, frozen=True, kw_only=True):
    """What a client sends with a message."""

    user: Name | None = None
    depth: Amount | None = None
    max_depth: Amount | None = None
    time_ms: Amount | None = None
    tokens: Amount | None = None
    context_tokens: Amount | None = None
    chain: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    tools: Names | None = None
    targets: Names | None = None
    may_delegate: bool = True
    priority: Priority | None = None
    input_part: Amount | None = None
    """The message part that is the input, if that is a text; all others are the objective."""
    file_parts: Amount | None = None
    """How many parts at the end of the message are files, also those that hold text or JSON."""
    rest: str = ""


class UsageWords(A2aObject, frozen=True, kw_only=True):
    """What a task has cost."""

    prompt: Amount = "0"
    completion: Amount = "0"
    overrun: Amount = "0"
    estimated: bool = False


class OutcomeWords(A2aObject, frozen=True, kw_only=True):
    """What a server sends with a result."""

    usage: UsageWords | None = None
    rest: str = ""


def said_by(meant: Submission) -> RemitWords:
    """Return the remit of a request in the fields of the extension."""
    return RemitWords(
        user=meant.user,
        depth=str(meant.depth),
        max_depth=_digits(meant.max_depth),
        time_ms=_digits(meant.deadline_ms),
        tokens=_digits(meant.max_tokens),
        context_tokens=_digits(meant.context_tokens),
        chain=meant.chain,
        tools=None if meant.tools is None else tuple(sorted(meant.tools)),
        targets=None if meant.targets is None else tuple(sorted(meant.targets)),
        may_delegate=meant.may_delegate,
        priority=meant.priority,
    )


def within(words: RemitWords, said: Submission, place: Place) -> Submission:
    """Return a submission under the remit that the extension states."""
    return replace(
        said,
        user=words.user,
        depth=count(words.depth, (*place, "depth")) or 0,
        max_depth=count(words.max_depth, (*place, "maxDepth")),
        deadline_ms=count(words.time_ms, (*place, "timeMs")),
        max_tokens=count(words.tokens, (*place, "tokens")),
        context_tokens=count(words.context_tokens, (*place, "contextTokens")),
        chain=words.chain,
        tools=None if words.tools is None else frozenset(words.tools),
        targets=None if words.targets is None else frozenset(words.targets),
        may_delegate=words.may_delegate,
        priority=words.priority,
    )


def usage_words(usage: Usage) -> UsageWords:
    return UsageWords(
        prompt=str(usage.prompt),
        completion=str(usage.completion),
        overrun=str(usage.overrun),
        estimated=usage.estimated,
    )


def usage_of(words: UsageWords | None, place: Place) -> Usage | None:
    """Return the usage that a peer states; None if it states none."""
    if words is None:
        return None
    return Usage(
        prompt=count(words.prompt, (*place, "prompt")) or 0,
        completion=count(words.completion, (*place, "completion")) or 0,
        overrun=count(words.overrun, (*place, "overrun")) or 0,
        estimated=words.estimated,
    )


def found(metadata: Metadata | None) -> Json:
    """Return the content of the extension in some metadata; None if there is none."""
    return None if metadata is None else metadata.get(EXTENSION)


def claims_of(rest: str, place: Place) -> Mapping[str, Json]:
    """Return the claims beyond the fields."""
    if not rest:
        return {}
    try:
        value = decode(rest.encode(), object)
    except RemitError as error:
        raise RemitError(malformed((Problem(path_of((*place, "rest")), "is not a string that holds JSON"),))) from error
    if not isinstance(value, dict):
        raise RemitError(malformed((Problem(path_of((*place, "rest")), "does not hold a JSON object"),)))
    return cast("dict[str, Json]", value)


def as_metadata(words: A2aObject) -> Metadata:
    """Return the fields as metadata."""
    return convert(decode(encode(words), object), dict[str, Json])


def _digits(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def count(amount: str | float | None, place: Place) -> int | None:
    """Return an amount as a number, or raise a `RemitError` that names the invalid field."""
    if amount is None:
        return None
    number = int(amount) if isinstance(amount, str) or int(amount) == amount else -1
    if not 0 <= number <= MAX_INTEGER:
        raise RemitError(malformed((Problem(path_of(place), "is not a whole number of 0 or more"),)))
    return number
