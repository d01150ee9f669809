"""Who may use a server: senders and what their credential allows, runs, and the token of the same user."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from remit.policy.reception import Permission, Sender
from remit.ports import ANYONES, RunScope, RunSummary, SingleUseProof
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Grant
from remit.protocol.submission import Submission
from remit_server.transports.credentials.incoming import unfit
from remit_server.transports.credentials.keys import Pair

OPERATION = "remit.operation"
"""The key of the ASGI scope under which the declared operation of a request is stored."""

BROWSER = "remit.browser"
"""The key of the ASGI scope under which the sender of a request with a valid session is stored."""


def visible(sender: Sender, others: Permission | None = None) -> RunScope:
    """Return the runs that a sender may see: those that it could have asked for.

    With the permission *others*, those of every user, but still of the sender's agents alone: so an operator of one
    team sees the runs of that team.
    """
    if others is not None and others in sender.permissions:
        return ANYONES if sender.targets is None else RunScope(agents=sender.targets)
    return RunScope(users=sender.users, agents=sender.targets, via=sender.name if sender.is_hub else None)


def may_see(sender: Sender, summary: RunSummary, others: Permission | None = None) -> bool:
    """Return whether a sender may see a run."""
    scope = visible(sender, others)
    return (
        (scope.users is None or summary.user in scope.users)
        and (scope.agents is None or summary.agent in scope.agents)
        and scope.via in (None, summary.via)
    )


def asked_for(sender: Sender, summary: RunSummary) -> bool:
    """Return whether a sender asked for a run itself: then it gets the personal values of its user in clear."""
    return summary.via == sender.name and may_see(sender, summary)


class SenderGate(Protocol):
    """Identifies senders and holds them to their credentials; see `Authenticator`.

    The names of *headers* are lower-case. A refusal is raised as a `RemitError`.
    """

    async def sender(self, headers: Mapping[str, str], method: str, path: str, *, submits: bool = False) -> Sender:
        """Return who sends a request. Unless it *submits*, this also checks that its proof was not used before."""
        ...

    def once(self, headers: Mapping[str, str]) -> SingleUseProof | None:
        """Return the proof to store with the submission of an admitted request, so that it counts only once."""
        ...

    def reply_pair(self, headers: Mapping[str, str]) -> Pair | None:
        """Return the key that signs the reply to a request of a hub; None if the hub proved no key."""
        ...

    async def grant(self, headers: Mapping[str, str], sender: Sender, sent: Submission) -> Grant | None:
        """Return what the credential of a request allows; None if the sender needs no credential."""
        ...

    async def received(self, request: Request) -> Request:
        """Return a request limited to what is left of its credential."""
        ...

    async def ended(self, run: str, used: int, cost: int) -> None:
        """Settle the tokens and the money that a run has used of its credential."""
        ...


def token_in(path: Path) -> str:
    """Return the token in a file, created if it does not exist; raise a `RemitError` if it is not usable."""
    if not path.exists():
        from remit_server.transports.credentials.keys import write_private

        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another server was faster
                write_private(path, f"{secrets.token_hex(32)}\n".encode(), replace=False)
        except OSError as error:
            raise _unusable(
                f"{path} cannot be written: {error.strerror}", "Give this user write permission."
            ) from error
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read()
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}", "Give this user read permission.") from error
    if os.name == "posix" and mode & 0o077:
        raise _unusable(f"{path} can be read by other users", f"Run: chmod 600 {path}")
    token = content.decode("ascii", errors="replace").strip()
    if (why := unfit(token)) is not None:
        raise _unusable(f"{path} holds no valid token: {why}", "Remove it; a new one is created.")
    return token


def _unusable(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))
