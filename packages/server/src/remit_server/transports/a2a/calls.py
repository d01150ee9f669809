"""Calls of an A2A agent, whatever its binding: a method and its parameters go out, pieces of the answer come back."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Never, Protocol

from remit.protocol.errors import Code, Fault, fault
from remit.runtime.ports import OutgoingRequest
from remit_server.transports.a2a.translator import A2aEndpoint, Translator
from remit_server.transports.remote_calls import RetryAllowed

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
