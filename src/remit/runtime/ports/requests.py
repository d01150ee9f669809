"""Root requests in a store, and the journal of their finished steps."""

from typing import NamedTuple, Protocol

from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status


class AcceptedRequest(NamedTuple):
    """The request is new, durable, and claimed by the worker that submitted it."""

    epoch: int


class SingleUseProof(NamedTuple):
    """Something that counts once: the key by which it is remembered, and until when it has to be."""

    key: str
    until_ms: int


class ReusedProof(NamedTuple):
    """What came with the request counts once, and was used before: nothing was submitted."""


USED = fault(
    Code.UNAUTHENTICATED,
    "a hub has not proven who it is: its proof was used before",
    suggestion="Make a proof for each sending, also for one that is tried again.",
)
"""Why a request is refused whose proof counts once."""


class DuplicateRequest(NamedTuple):
    """The request was submitted before, as *run*; `response` is there once it has finished."""

    run: str
    same_content: bool
    response: Response | None


class OrphanedRun(NamedTuple):
    """A request whose worker went silent, or handed it back; whoever claims it next may take it up."""

    run: str
    request: Request
    waiting: bool = False
    """Whether it had not begun: it waited for a person."""


def unknown_outcome(request: Request, attempts: int) -> Response:
    """Return how every store ends a request whose workers went silent once too often."""
    times = "once" if attempts == 1 else f"{attempts} times"
    why = fault(Code.OUTCOME_UNKNOWN, f"{request.target} was started {times}, and its hub went silent each time")
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.FAILED,
        run=request.run,
        session=request.session,
        fault=why,
    )


# A run may wait for days in hubs that come and go; but one that brings down each of them is to end some day.
MOST_EPOCHS = 30


class Requests(Protocol):
    """Root requests: each is executed at most once, by one worker at a time."""

    async def submit(
        self,
        request: Request,
        digest: bytes,
        *,
        worker: str,
        lease_ms: int,
        waiting: bool = False,
        once: SingleUseProof | None = None,
    ) -> AcceptedRequest | DuplicateRequest | ReusedProof:
        """Make the request durable together with its first record and claim it; idempotent by (sender, user, id).

        A request that is *waiting* for a person has not begun; `begin` says when it does. What is to count *once* is
        remembered in the same step; if it was before, nothing is submitted.
        """
        ...

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        """Note durably that a waiting request begins, in the form that it has now; False: the epoch is stale."""
        ...

    async def release(self, run: str, epoch: int) -> bool:
        """Hand a claimed request back, so that another worker may take it up at once; that counts as no attempt."""
        ...

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        """Return what is known of a request without submitting it."""
        ...

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        """Take up an expired request: return the new epoch, or None if another worker has it or it has finished.

        If a person was being asked in it when its worker fell silent, that was no attempt; up to `MOST_EPOCHS`.
        """
        ...

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        """Extend the lease of everything that *worker* has claimed."""
        ...

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        """Make the outcome and its record durable in one step; False: the epoch is stale and nothing was written.

        Without *keep* the outcome is recorded and not kept: the same request may be submitted again.
        """
        ...

    async def wait(self, run: str) -> Response:
        """Return the outcome once there is one, whichever process finishes it."""
        ...

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Requeue what expired and return it; what expired *max_attempts* times ends as OUTCOME_UNKNOWN.

        What waits for a person expires as often as it likes. Outcomes older than *keep_ms* are forgotten (their records
        stay), so their ids may be used again; what was sealed for them, and for no session, is deleted.
        """
        ...


class Journal(Protocol):
    """The finished steps of a resumable run: never lost, never repeated."""

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        """Note a step's value, durable like a record. A stale epoch writes nothing; the last value counts."""
        ...

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        """Note a step's value before its effects begin: durable on return, with everything appended before it.

        False: the epoch is stale, or the run has ended. Nothing was written, and nothing may begin.
        """
        ...

    async def load(self, run: str) -> dict[str, bytes]:
        """Return every step noted for the run, until it succeeds or its outcome is forgotten."""
        ...
