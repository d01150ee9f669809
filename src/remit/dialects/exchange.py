"""The interface of every dialect: foreign messages to ours, and back."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from remit.protocol.codec import convert, decode, malformed
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Problem, RemitError
from remit.protocol.numbers import whole
from remit.protocol.submission import Submission

T = TypeVar("T")


class ForeignMessage(Struct, frozen=True, kw_only=True):
    """A message on the wire: its headers, with lower-case names, and its body."""

    headers: Mapping[str, str] = {}
    body: bytes = b""
    target: str = ""
    """The agent that the URL names, for a dialect without a field for it."""
    status: int = 200
    """The HTTP status of a reply; requests have none."""


class Dialect(Protocol):
    """A pure translation, both ways. What cannot be expressed is refused by field, with a `RemitError`."""

    def submission(self, asked: ForeignMessage) -> Submission:
        """Return a foreign client's request as a submission."""
        ...

    def reply(self, response: Response, asked: ForeignMessage) -> ForeignMessage:
        """Return the outcome as the foreign client expects it; also for a response that no agent gave."""
        ...

    def request(self, request: Request) -> ForeignMessage:
        """Return a hub's request for a foreign server."""
        ...

    def response(self, given: ForeignMessage, request: Request) -> Response:
        """Return the outcome that the foreign server sent."""
        ...


def read_envelope(raw: bytes, kind: type[T]) -> T:
    """Decode what a peer sends: strictly, except for numbers."""
    return convert(whole(decode(raw, object), kind), kind)


def refuse_another(asked: ForeignMessage, field: str, target: str) -> None:
    """Refuse a message whose URL and body name different agents."""
    if asked.target not in ("", target):
        raise RemitError(malformed((Problem(f"$.{field}", "is not the agent that the URL names"),)))
