"""The interface between the A2A transport and the translation of its messages."""

from collections.abc import Collection
from typing import Literal, NamedTuple, Protocol

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault

Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]


class A2aEndpoint(NamedTuple):
    """How an agent can be called, by its card."""

    url: str
    binding: Binding
    tenant: str
    streams: bool
    extended: bool
    """Whether it supports the extension that carries a remit."""
    headers: dict[str, str]
    """The headers of every request, or its metadata over gRPC."""


class TaskUpdate(NamedTuple):
    """An update of a task that can be forwarded."""

    piece: str = ""
    """A piece of the answer."""
    progress: str = ""


class TaskExchange(Protocol):
    """The messages about one request."""

    @property
    def task(self) -> str:
        """The peer's task id; empty until it has sent it."""
        ...

    @property
    def context(self) -> str:
        """The peer's context id."""
        ...

    @property
    def ended(self) -> bool: ...

    @property
    def waits(self) -> bool:
        """Whether it waits for a person there."""
        ...

    @property
    def question(self) -> str:
        """The question to the person."""
        ...

    @property
    def asks(self) -> bool:
        """Whether it ended with a question to the user."""
        ...

    def message(self, *, context: str, task: str, tenant: str, at_once: bool) -> bytes:
        """Return the message to send; *at_once*: the peer should answer with the current state of the task."""
        ...

    def hear(self, raw: bytes, *, is_task: bool = False) -> TaskUpdate:
        """Process an answer or an event; raise a `RemitError` if it is invalid."""
        ...

    def size(self) -> int:
        """Return about how many bytes were received."""
        ...

    def response(self) -> Response:
        """Return the outcome."""
        ...


class Translator(Protocol):
    """The translation of A2A messages: pure, and independent of the transport."""

    def offer(self, card: bytes, url: str, keys: Collection[str]) -> A2aEndpoint:
        """Return how an agent can be called; raise a `RemitError` if its card is unusable, or not signed with a key."""
        ...

    def talk(self, request: Request, *, extended: bool) -> TaskExchange: ...

    def fault(self, status: int, raw: bytes, peer: str) -> Fault:
        """Return a peer's error as a fault; *status* is the HTTP status."""
        ...

    def is_echoed(self, headers: str) -> bool:
        """Return whether a peer confirms the extension in its headers."""
        ...
