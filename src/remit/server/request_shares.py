"""The part of a server's connections that each client and user holds with requests in progress."""

from contextvars import ContextVar

from remit.policy.shares import SharedTotal, ShareOwner
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.aside import current_share

COME_BACK_MS = 1_000


class RequestShare:
    """For whom one request is in progress: its client once that is authenticated, then also its user."""

    __slots__ = ("_share", "_total")

    def __init__(self) -> None:
        self._total: SharedTotal | None = None
        self._share = ShareOwner()

    def enter(self, total: SharedTotal, share: ShareOwner) -> None:
        """Count the request for *share*; raise a `RemitError` if that has too many in progress."""
        if self._total is not None and share in (self._share, ShareOwner(self._share.client)):
            return
        self.leave()
        if not total.has_room(share):
            who = f"{share.client} for user {share.user}" if share.user else share.client
            why = f"too many requests of {who} are in progress; nothing was started"
            raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=COME_BACK_MS))
        total.take(share)
        self._total, self._share = total, share
        current_share.set(share)

    def leave(self) -> None:
        """Stop counting the request."""
        if self._total is not None:
            self._total.give_back(self._share)
            self._total = None


request_share: ContextVar[RequestShare | None] = ContextVar("request_share", default=None)
"""The share of the request that the current task answers."""


def enter(total: SharedTotal, share: ShareOwner) -> None:
    """Count the request that the current task answers for *share*; raise a `RemitError` if that has too many."""
    if (held := request_share.get()) is not None:
        held.enter(total, share)
