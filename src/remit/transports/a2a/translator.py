"""What a transport of A2A asks of the translation: pure, and none of the business of whoever carries it."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault


class A2aEndpoint(NamedTuple):
    """How an agent can be asked, as its card says."""

    url: str
    is_rpc: bool
    """JSON-RPC, or HTTP+JSON."""
    tenant: str
    streams: bool
    extended: bool
    """Whether it knows the extension by which a remit is carried."""
    headers: dict[str, str]
    """What goes beside every request."""


class TaskUpdate(NamedTuple):
    """What is said of a task that can be passed on."""

    piece: str = ""
    """More of the answer."""
    progress: str = ""


class TaskExchange(Protocol):
    """What is said about one request."""

    @property
    def task(self) -> str:
        """What the other side calls it; empty: it has not said yet."""
        ...

    @property
    def context(self) -> str:
        """What the other side calls the conversation."""
        ...

    @property
    def ended(self) -> bool: ...

    @property
    def waits(self) -> bool:
        """Whether a person is asked there."""
        ...

    @property
    def question(self) -> str:
        """What the person is asked."""
        ...

    @property
    def asks(self) -> bool:
        """Whether it ended with a question to the user."""
        ...

    def message(self, *, context: str, task: str, tenant: str, at_once: bool) -> bytes:
        """Return what is sent; *at_once*: it is to be answered with where the task stands."""
        ...

    def hear(self, raw: bytes, *, is_task: bool = False) -> TaskUpdate:
        """Take in what is answered, or an event; raise a `RemitError` if it cannot be understood."""
        ...

    def size(self) -> int:
        """Return how much has been heard, about."""
        ...

    def response(self) -> Response:
        """Return how it ended."""
        ...


class Translator(Protocol):
    """The translation: pure, and none of the business of whoever carries it."""

    def offer(self, card: bytes, url: str, keys: Collection[str]) -> A2aEndpoint:
        """Return how an agent can be asked; raise a `RemitError` if its card is of no use, or not signed by a key."""
        ...

    def talk(self, request: Request, *, extended: bool) -> TaskExchange: ...

    def fault(self, status: int, raw: bytes, peer: str) -> Fault:
        """Return what a peer's error is here; *status* as HTTP counts."""
        ...

    def is_echoed(self, headers: str) -> bool:
        """Say whether a peer says that it uses the extension."""
        ...
