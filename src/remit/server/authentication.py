"""Who is at the door: what a server asks of whoever knows its peers and clients."""

from collections.abc import Mapping
from typing import Protocol

from remit.policy.reception import Grant, Sender
from remit.protocol.envelope import Request
from remit.protocol.submission import Submission
from remit.runtime.ports import SingleUseProof


class Gate(Protocol):
    """Tells senders by what they prove, and keeps them to what their credentials allow; see `Authenticator`.

    The names of *headers* are in small letters. What is refused is raised as a `RemitError`.
    """

    async def sender(self, headers: Mapping[str, str], method: str, path: str, *, submits: bool = False) -> Sender:
        """Return who sends a request; whether its proof was used before is found out here, unless it *submits*."""
        ...

    def once(self, headers: Mapping[str, str]) -> SingleUseProof | None:
        """Return what is remembered with the submission of a request that was let in: its proof counts once."""
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
