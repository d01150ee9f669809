"""What every dialect translates: a foreign message in, ours out, and back."""

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
    """A message as it goes over the wire: its headers, in small letters, and its body."""

    headers: Mapping[str, str] = {}
    body: bytes = b""
    target: str = ""
    """Whom the address names, for a dialect that says it nowhere else."""
    status: int = 200
    """Of a reply, as HTTP counts; what is asked has none."""


class Dialect(Protocol):
    """A pure translation, both ways. What cannot be said in one of them is refused by field, with a `RemitError`."""

    def submission(self, asked: ForeignMessage) -> Submission:
        """Return what a foreign client asks of a hub."""
        ...

    def reply(self, response: Response, asked: ForeignMessage) -> ForeignMessage:
        """Return how it ended, as the foreign client expects it; also for a response that no agent gave."""
        ...

    def request(self, request: Request) -> ForeignMessage:
        """Return what a hub asks of a foreign server."""
        ...

    def response(self, given: ForeignMessage, request: Request) -> Response:
        """Return how it ended there."""
        ...


def read_envelope(raw: bytes, kind: type[T]) -> T:
    """Read what a peer sends: strictly, but for numbers."""
    return convert(whole(decode(raw, object), kind), kind)


def refuse_another(asked: ForeignMessage, field: str, target: str) -> None:
    """Refuse a message whose address names someone else than its body."""
    if asked.target not in ("", target):
        raise RemitError(malformed((Problem(f"$.{field}", "is not the agent that the URL names"),)))
