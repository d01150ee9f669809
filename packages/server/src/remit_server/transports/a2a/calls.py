"""Calls of an A2A agent, whatever its binding: a method and its parameters go out, pieces of the answer come back."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Never, Protocol

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Fault, fault
from remit.runtime.ports import OutgoingRequest
from remit_server.transports.remote_calls import RetryAllowed

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


BEGINNINGS = frozenset({"SendMessage", "SendStreamingMessage"})
"""The methods that may start something."""


class A2aRefusal(Exception):
    """The peer refused a request."""

    def __init__(self, why: Fault) -> None:
        super().__init__(why.message)
        self.fault = why


class A2aUnreached(Exception):
    """There is no connection to the peer: nothing was sent."""


class A2aConnectionLost(Exception):
    """The connection was lost: the request may have arrived."""


class A2aReply(NamedTuple):
    """The answer to a call."""

    extensions: str | None
    """The extensions that the peer confirms; None: it refuses the call."""
    pieces: AsyncGenerator[bytes, None]
    """The result, or the events of a stream: each is JSON."""


class A2aCaller(Protocol):
    """Calls methods of one agent, in one binding."""

    async def prepare(
        self, method: str, params: bytes, *, heard: bool, named: str
    ) -> AbstractAsyncContextManager[A2aReply]:
        """Return a call that is sent when the block is entered; *heard*: as a stream; *named* is its task, if any.

        The block raises `A2aUnreached`, `A2aConnectionLost`, `A2aRefusal` or `RetryAllowed`; a `RemitError` says that
        the peer sent something invalid.
        """
        ...


class A2aCallee(NamedTuple):
    """The agent that is called: its name here, where it is, and what every call to it needs."""

    name: str
    offer: A2aEndpoint
    tongue: Translator
    max_bytes: int
    headers: Callable[[OutgoingRequest], Awaitable[dict[str, str]]]
    """Returns the headers of a request, which prove who sends it."""
    time_left_ms: Callable[[], int]

    def garbage(self, what: str) -> Fault:
        """Return the fault of a peer that sent *what*."""
        return fault(Code.RESULT_VALIDATION_FAILED, f"{self.name} sent {what}", detail=self.offer.url)


def refuse(why: Fault, status: int) -> Never:
    """Raise the error of a call that the peer answered with an HTTP status, or what is the same in its binding."""
    if status in (429, 503) or why.code in (Code.OVERLOADED, Code.RATE_LIMITED):
        raise RetryAllowed(why, sent=False)
    raise A2aRefusal(why)
