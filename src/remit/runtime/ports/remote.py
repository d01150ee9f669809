"""Agents that live elsewhere, and what a hub offers the code that reaches them."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from remit.protocol.envelope import Answer, Request, Response
from remit.protocol.records import Approval


class Departure(Struct, frozen=True, omit_defaults=True):
    """That a request was about to leave for somewhere else: from then on it may have been carried out there."""

    to: str
    """Where it went, and under which name."""
    at_ms: int
    task: str = ""
    """What the other side calls it, once it has said so."""
    id: str = ""
    """The request id under which it was sent; empty: the sender's own, as earlier versions did."""


class RemoteHandle(Protocol):
    """What may be done here for a delegation while it is carried out elsewhere."""

    @property
    def heard(self) -> bool:
        """Whether someone reads along: only then is it worth having what is said sent as it comes."""
        ...

    @property
    def traceparent(self) -> str:
        """Its place in the trace, as W3C writes it."""
        ...

    @property
    def root(self) -> Request:
        """The request that began its run, redacted: who brought it here, and under which id."""
        ...

    @property
    def handed_back(self) -> bool:
        """Whether its run stops here only to be taken up again: what is done elsewhere may go on."""
        ...

    @property
    def passed_on(self) -> Mapping[str, str]:
        """What came beside the request of its run for others to read: headers that go along as they are."""
        ...

    def time_left_ms(self) -> int: ...

    def progress(self, text: str, partial: Answer | None) -> None: ...

    def say(self, text: str) -> None: ...

    def settle(self, response: Response) -> None:
        """Count what was spent on what was stopped there, and keep what it had finished: it is known how it ended."""
        ...

    async def asked(self, approval: Approval) -> None:
        """Heed that a person is asked there, or has said: no time passes here meanwhile, within what a person may take.

        It is put on record, so that whoever waits for this hub's answer knows what it waits for.
        """
        ...

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Let no time pass here meanwhile, because a person is asked there: for where it is not said what."""
        ...

    async def depart(self, to: str) -> Departure | None:
        """Put on record that the request is about to leave for *to*; before this returns, nothing leaves the hub.

        Returns None if nothing has left before, as far as is known. Else it may have been carried out there, and is to
        end as what came of it, or as `OUTCOME_UNKNOWN`. Raises a `RemitError` if nothing may leave: another hub has
        taken the run over, or the request left for somewhere else.
        """
        ...

    def age_ms(self, left: Departure) -> int:
        """Return how long ago that was; less than nothing if a clock was set back since."""
        ...

    def name(self, task: str) -> None:
        """Keep what the other side calls it, so that it can be asked for by that name after a restart."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether it may have been carried out elsewhere, and is not known to have ended."""
        ...

    def doubt(self, why: str) -> None:
        """Say before each sending why it is not known what comes of it; empty: it is certain that nothing left.

        If the delegation is stopped while that is so, it ends as `OUTCOME_UNKNOWN`.
        """
        ...


class Remote:
    """An agent that lives elsewhere: it is sent the request itself, and says how it ended there."""

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Return how it ended; cancelled, tell the other side before raising, and wait no longer than is polite."""
        raise NotImplementedError


class OutgoingRequest(NamedTuple):
    """One HTTP request as it leaves: its method, its path (below the address of a hub), its body."""

    method: str
    path: str
    body: bytes = b""


Credential = Callable[[Request, OutgoingRequest], Awaitable[dict[str, str]]]
"""Returns the headers that prove to another hub who asks, for what, and that nobody changed it on the way."""
