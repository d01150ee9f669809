"""What a server needs from authentication: who sends a request, and what their credential allows."""

from collections.abc import Mapping
from typing import Protocol

from remit.policy.reception import Grant, Sender
from remit.protocol.envelope import Request
from remit.protocol.submission import Submission
from remit.runtime.ports import SingleUseProof


class Gate(Protocol):
    """Identifies senders and holds them to their credentials; see `Authenticator`.

    The names of *headers* are lower-case. A refusal is raised as a `RemitError`.
    """

    async def sender(self, headers: Mapping[str, str], method: str, path: str, *, submits: bool = False) -> Sender:
        """Return who sends a request. Unless it *submits*, this also checks that its proof was not used before."""
        ...

    def once(self, headers: Mapping[str, str]) -> SingleUseProof | None:
        """Return the proof to store with the submission of an admitted request, so that it counts only once."""
        ...

    async def grant(self, headers: Mapping[str, str], sender: Sender, sent: Submission) -> Grant | None:
        """Return what the credential of a request allows; None if the sender needs no credential."""
        ...

    async def received(self, request: Request) -> Request:
        """Return a request limited to what is left of its credential."""
        ...

    async def ended(self, run: str, used: int) -> None:
        """Settle what a run has used of its credential."""
        ...
