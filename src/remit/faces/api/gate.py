"""Who is at the door: what a server asks of whoever knows its peers and clients."""

from collections.abc import Mapping
from typing import Protocol

from remit.policy.reception import Grant, Sender
from remit.protocol.envelope import Request
from remit.protocol.submission import Submission


class Gate(Protocol):
    """Tells senders by what they prove, and keeps them to what their credentials allow; see `Door`.

    The names of *headers* are in small letters. What is refused is raised as a `RemitError`.
    """

    async def sender(self, headers: Mapping[str, str]) -> Sender:
        """Return who sends a request."""
        ...

    async def grant(self, headers: Mapping[str, str], sender: Sender, sent: Submission) -> Grant | None:
        """Return what the credential beside a request allows; None if it needs none."""
        ...

    async def received(self, request: Request) -> Request:
        """Return a request within what is left of its credential."""
        ...

    async def ended(self, run: str, used: int) -> None:
        """Settle what a run has used of its credential."""
        ...
