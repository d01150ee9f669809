"""Root requests in a store, the journal of their finished steps, and questions to people."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from msgspec import Struct

from remit.protocol.envelope import VERSION, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.lifecycle import Status
from remit.protocol.typed import JsonSchema


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question to a person about a request. All of it is redacted, so that it can be shown and stored."""

    id: str
    """Stable: the same question about the same delegation has the same id, also after a restart."""
    text: str
    """The question."""
    request: Request
    """The request that it is about."""
    editable: frozenset[str] = frozenset()
    """The fields that the person may edit before approving: `objective`, `input`."""
    form: JsonSchema | None = None
    """The form that the fields of the request's input belong to; None: there is none."""
    asked_ms: int
    """When it was asked, in milliseconds since 1970."""
    expires_ms: int
    """The last moment to answer, in milliseconds since 1970."""


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A person's decision, and who made it."""

    agreed: bool
    """Whether the request may continue."""
    by: str
    """Who answered."""
    reason: str = ""
    """Why."""
    edits: dict[str, Json] = {}
    """The edited fields and their new values: `objective`, `input`."""


Approver = Callable[[Question], Awaitable[Decision | bool | None]]
"""Asks a person and returns the decision; None: this approver does not decide about the question."""


class AcceptedRequest(NamedTuple):
    """The request is new, durable, and claimed by the worker that submitted it, if it has a lease."""

    epoch: int


class TakenRequest(NamedTuple):
    """A request that had not begun, and the epoch under which a worker has claimed it."""

    epoch: int
    request: Request


class SingleUseProof(NamedTuple):
    """A proof that may be used once: the key to remember it by, and until when to remember it."""

    key: str
    until_ms: int


class ReusedProof(NamedTuple):
    """The request's single-use proof was used before: nothing was submitted."""


USED = fault(
    Code.UNAUTHENTICATED,
    "hub authentication failed: its proof was used before",
    suggestion="Make a new proof for each request, including retries.",
)
"""The fault of a request whose single-use proof was used before."""


class DuplicateRequest(NamedTuple):
    """The request was submitted before, as *run*; `response` is set once it has finished."""

    run: str
    same_content: bool
    response: Response | None


Submitted = AcceptedRequest | DuplicateRequest | ReusedProof
"""The result of submitting a request."""


class OrphanedRun(NamedTuple):
    """A request whose worker stopped its heartbeats, or released it; the next worker that claims it may resume it."""

    run: str
    request: Request
    waiting: bool = False
    """Whether it had not begun, because it waited for a person."""


def unknown_outcome(request: Request, why: Fault) -> Response:
    """Return the end of a request that may have been executed: all that its caller granted counts as spent."""
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.FAILED,
        run=request.run,
        session=request.session,
        # A user granted nothing to anybody: what was reserved of a user's own budget stays reserved.
        usage=Usage(prompt=request.remit.tokens, estimated=True) if request.remit.chain else Usage(),
        fault=why,
    )


def silent_outcome(request: Request, attempts: int) -> Response:
    """Return the outcome of a request whose workers went silent too often; every store ends it this way."""
    times = "once" if attempts == 1 else f"{attempts} times"
    why = f"{request.target} was started {times}, and its hub stopped responding each time"
    return unknown_outcome(request, fault(Code.OUTCOME_UNKNOWN, why))


# A run may wait for days while hubs come and go, but a run that crashes every hub must end some day.
MOST_EPOCHS = 30
# The epoch of a run that was submitted and not claimed again since.
FIRST_EPOCH = 1


class RunEpoch(NamedTuple):
    """A run, and the epoch under which a hub has claimed it; 0: no hub has, or what is written is not part of a run."""

    run: str
    epoch: int


NO_RUN = RunEpoch("", 0)


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
    ) -> Submitted:
        """Make the request and its first record durable and claim it; idempotent by (sender, user, id).

        A request that is *waiting*, for a person or for a host, has not begun; `begin` says when it does. With a
        *lease_ms* of 0 and an empty *worker* nobody has claimed it: any worker may `take` it at once. The single-use
        proof *once* is stored in the same step; if it was used before, nothing is submitted.
        """
        ...

    def submit_soon(
        self, request: Request, digest: bytes, *, worker: str, lease_ms: int
    ) -> Awaitable[Submitted] | None:
        """Submit a request that may begin before it is durable, because its callee changes nothing.

        It becomes durable with the next write, and within a fraction of a second. Later writes of this process come
        after it. Its epoch is `FIRST_EPOCH` if it is accepted. None: it was submitted before, or the store gains
        nothing; use `submit`.
        """
        ...

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        """Record durably that a waiting request begins, in its current form; False: the epoch is stale."""
        ...

    async def release(self, run: str, epoch: int, *, begun: bool = True) -> bool:
        """Release a claimed request, so that another worker may resume it at once; it does not count as an attempt.

        Without *begun*, nothing of it was executed: it waits to be taken again, although it had begun.
        """
        ...

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        """Return what is known about a request without submitting it."""
        ...

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        """Claim an expired request: return the new epoch, or None if another worker has it or it has finished.

        If a person was being asked when its worker went silent, that does not count as an attempt, up to `MOST_EPOCHS`.
        """
        ...

    async def take(self, run: str, worker: str, lease_ms: int, *, begin: bool = False) -> TakenRequest | None:
        """Claim a request that has not begun and that no worker holds, and return it, in one transaction.

        None: another worker has it, it has begun, or it has ended. Unlike `claim`, this never returns a request that
        may have been executed before. With *begin*, it begins at once, as it was submitted.
        """
        ...

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        """Extend the lease of every request that *worker* has claimed."""
        ...

    async def claimed(self, worker: str) -> list[tuple[str, int]]:
        """Return the unfinished runs that *worker* has claimed, with their epochs."""
        ...

    async def late_workers(self, within_ms: int) -> list[str]:
        """Return the workers with claims whose leases end *within_ms*: they have sent no heartbeat for a while."""
        ...

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        """End the leases of a worker that is known to be dead, so that its requests expire at once.

        False: it has none, or one of them ends later than *within_ms*, because the worker has sent a heartbeat or
        claimed a request since. Should it be alive, its next heartbeat keeps what nobody has claimed by then.
        """
        ...

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        """Make the outcome and its record durable in one step; False: the epoch is stale and nothing was written.

        Without *keep*, the outcome is recorded but not stored: the same request may be submitted again.
        """
        ...

    async def wait(self, run: str) -> Response:
        """Return the outcome once there is one, whichever process finishes the request."""
        ...

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Requeue expired requests and return them; after *max_attempts* expiries a request ends as OUTCOME_UNKNOWN.

        Requests that wait for a person may expire any number of times. Outcomes older than *keep_ms* are deleted (their
        records stay), so their ids may be used again. Sealed values of those runs are deleted too, unless they belong
        to a session.
        """
        ...


class Journal(Protocol):
    """The finished steps of a resumable run: never lost, never repeated."""

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        """Store a step's value, durable like a record. With a stale epoch nothing is written; the last value counts."""
        ...

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        """Store a step's value before its effects begin: durable on return, with everything appended before it.

        False: the epoch is stale, or the run has ended. Nothing was written, and the step must not begin.
        """
        ...

    async def load(self, run: str) -> dict[str, bytes]:
        """Return every stored step of the run, until it succeeds or its outcome is deleted."""
        ...
