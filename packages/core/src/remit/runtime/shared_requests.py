"""What the hubs that share a store do together: requests of one for another, and limits on agents that all have."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.policy.breaker import Breaker, Phase
from remit.policy.reception import Sender, receive, with_session_of_peer
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_request
from remit.ports import ANYONES, AcceptedRequest, ControlCommand, DuplicateRequest, OrphanedRun, RunScope
from remit.ports.agents import Tool
from remit.ports.keys import HubKeys
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault, RemitError
from remit.protocol.records import Approval, Record, read_response
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.aside import aside
from remit.runtime.clock import end_tasks
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import RootAdmission
from remit.runtime.frames import Run
from remit.runtime.root_request import new_run_id
from remit.runtime.root_runs import RootRecords

log = logging.getLogger("remit")

# A breaker stays open for 30 s at least, so all hubs act on it during most of that time.
EXCHANGE_S = 2.0
# Reading the newest records takes 20 ms in a thread: every tenth exchange.
TRACKS_EVERY = 10

_BREAKERS = "remit/breakers"
# Breakers that changed before are forgotten: more than twice the longest time for which one stays open.
FORGET_MS = 15 * 60_000


class SharedBreaker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last change of an agent's breaker, on whichever hub it happened."""

    opened_ms: int = 0
    closed_ms: int = 0
    """When a probe succeeded; earlier than `opened_ms` while the breaker is open."""
    openings: int = 0

    @property
    def changed_ms(self) -> int:
        """When it was opened or closed last."""
        return max(self.opened_ms, self.closed_ms)


_decode_breakers = msgspec.json.Decoder(dict[str, SharedBreaker]).decode


class TrackRecords(Protocol):
    """Reads the track records of agents: see `delegation/routing.py`."""

    async def refresh(self) -> None: ...


class SharedLimits:
    """Exchanges rates, breakers and track records with the hubs that share this hub's store."""

    def __init__(self, parts: RuntimeContext, tracks: TrackRecords) -> None:
        self._parts = parts
        self._tracks = tracks
        self._known: dict[str, tuple[Phase, int]] = {}
        """The phase and the openings of each breaker as they were last exchanged."""
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Count rates, and exchange breakers and track records, together with other hubs from now on."""
        self._parts.shared = self
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop the exchange."""
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    async def rate_wait_ms(self, limited: AgentCard | Tool | None) -> int:
        """Count a call to an agent or a use of a tool and return 0, or how long to wait: all hubs made enough together.

        Windows begin at multiples of the rate's period.
        """
        rate = limited.card.rate if isinstance(limited, Tool) else None if limited is None else limited.rate
        if limited is None or rate is None:
            return 0
        window_ms = max(1, round(rate.seconds * 1_000))
        counter = f"tool-rate/{limited.rated_as}" if isinstance(limited, Tool) else f"rate/{limited.name}"
        total = await self._parts.store.incr(counter, 1, window_ms)
        return 0 if total <= rate.calls else window_ms - self._parts.clock.wall_ms() % window_ms

    async def _run(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(EXCHANGE_S)
            turn += 1
            try:
                await self.exchange_breakers()
                if turn % TRACKS_EVERY == 0:
                    await self._tracks.refresh()
            except Exception as error:  # noqa: BLE001 - the hub works without it, by what it knows itself
                reason = error.fault.message if isinstance(error, RemitError) else type(error).__name__
                log.warning("breakers could not be exchanged with other hubs; trying again: %s", reason)

    async def exchange_breakers(self) -> None:
        """Write down which breakers this hub opened or closed, and follow what others wrote."""
        store, own = self._parts.store, self._changes()
        while True:
            revision, raw = await store.get(_BREAKERS) or (0, b"{}")
            theirs = _decode_breakers(raw)
            if not own or await store.cas(_BREAKERS, revision, encode(self._merged(theirs, own))) is not None:
                break
        self._follow({**theirs, **own})

    def _changes(self) -> dict[str, SharedBreaker]:
        """Return the breakers that this hub opened or closed since the last exchange."""
        wall_ms, now = self._parts.clock.wall_ms(), self._parts.clock.now()
        changes: dict[str, SharedBreaker] = {}
        for name, breaker in self._parts.ledger.breakers.items():
            if breaker.phase is Phase.PROBING or not breaker.openings:
                continue  # a probe decides nothing yet
            if self._known.get(name) == (breaker.phase, breaker.openings):
                continue
            self._known[name] = breaker.phase, breaker.openings
            opened_ms = wall_ms - round((now - breaker.opened_at) * 1_000)
            closed_ms = wall_ms if breaker.phase is Phase.CLOSED else 0
            changes[name] = SharedBreaker(opened_ms=opened_ms, closed_ms=closed_ms, openings=breaker.openings)
        return changes

    def _merged(self, theirs: dict[str, SharedBreaker], own: dict[str, SharedBreaker]) -> dict[str, SharedBreaker]:
        oldest_ms = self._parts.clock.wall_ms() - FORGET_MS
        kept = {name: each for name, each in theirs.items() if each.changed_ms >= oldest_ms}
        newer = {
            name: each for name, each in own.items() if name not in kept or each.changed_ms >= kept[name].changed_ms
        }
        return {**kept, **newer}

    def _follow(self, theirs: dict[str, SharedBreaker]) -> None:
        """Open and close this hub's breakers as other hubs did since."""
        breakers, wall_ms, now = self._parts.ledger.breakers, self._parts.clock.wall_ms(), self._parts.clock.now()
        for name, shared in theirs.items():
            breaker = breakers.get(name, Breaker())
            opened_at = now - (wall_ms - shared.opened_ms) / 1_000
            if shared.closed_ms > shared.opened_ms:
                if breaker.phase is Phase.CLOSED or breaker.opened_at > now - (wall_ms - shared.closed_ms) / 1_000:
                    continue
                followed = replace(breaker, phase=Phase.CLOSED, in_a_row=0, calls=0, failures=0)
            elif breaker.phase is Phase.CLOSED and opened_at > breaker.opened_at:
                followed = replace(breaker, phase=Phase.OPEN, opened_at=opened_at, openings=shared.openings)
            else:
                continue
            breakers[name] = followed
            self._known[name] = followed.phase, followed.openings


# The fields of a request that are submitted; the others hold within one hub only, or are set afterwards.
_FIELDS = tuple(
    field for field in Submission.__struct_fields__ if field in Request.__struct_fields__ and field != "handover"
)


class HandedOver(NamedTuple):
    """A request that was handed over to the hubs of the team: its run there, and its outcome if it has ended."""

    run: str
    response: Response | None


class CancelOrder(Struct, frozen=True, omit_defaults=True):
    """A run to cancel, wherever it is, and who may cancel which."""

    run: str
    """Its id, or the id that *sender* gave its request."""
    by: str
    reason: str = ""
    delegation: str = ""
    """The path of one delegation of it; empty: the whole run."""
    sender: str = ""
    """The client whose request ids count, too."""
    scope: RunScope = ANYONES
    """The runs that may be cancelled."""


class RunTaker(Protocol):
    """Takes requests that have not begun: see `leases.py`."""

    on_unclaimed: Callable[[OrphanedRun], None] | None

    @property
    def lease_ms(self) -> int: ...

    async def take(self, run: str, *, new: bool) -> ActiveRun | None: ...

    async def late_workers(self) -> list[str]: ...

    async def end_leases(self, worker: str) -> bool: ...

    def sweep_soon(self) -> None: ...

    def obey(self, control: ControlCommand) -> bool: ...


class OwnRuns(Protocol):
    """The runs of this hub: see `root_runs.py`."""

    def digest_of(self, request: Request) -> bytes: ...

    def running(self, name: str, sender: str, scope: RunScope) -> ActiveRun | None: ...


class SharedRequests:
    """Hands requests over to the hubs that share this hub's store, and takes theirs.

    The store is the truth: a request is submitted without a claim, and the hub that takes it executes it as it would
    the request of a peer, under all guards. Whatever carries the news may lose them.
    """

    def __init__(
        self, parts: RuntimeContext, admission: RootAdmission, records: RootRecords, runs: OwnRuns, taker: RunTaker
    ) -> None:
        self._parts = parts
        self._admission = admission
        self._records = records
        self._runs = runs
        self._taker = taker
        self._sender = Sender(name=parts.registry.hub, is_hub=True)
        self.announce: Callable[[CancelOrder], Awaitable[str | None]] | None = None
        """Tells the other hubs of a run to cancel, and returns its id if one of them has it; None: there is no bus."""

    @property
    def worker(self) -> str:
        """The name under which this hub claims runs; no other hub has it."""
        return self._records.worker

    # ── for the caller ────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, sent: Request, approved: tuple[str, ...]) -> HandedOver:
        """Make a request durable that any host of its agent may take; the same request is submitted once.

        The host asks nobody again what a person has *approved* here.
        """
        parts, created_ms = self._parts, self._parts.clock.wall_ms()
        request = receive(
            Submission(**{field: getattr(sent, field) for field in _FIELDS}),
            self._sender,
            exposed=frozenset({sent.target}),
            run=new_run_id(created_ms),
            created_ms=created_ms,
            limits=parts.limits,
        )
        if isinstance(request, Fault):
            raise RemitError(request)
        request = replace(request, handover=sent.handover)  # no other team may say so
        run = Run(request, 0, None, parts.redactor.sealing(request.session or request.run))
        clean = await self._admission.redacted(run, request)
        if clean.view is not None:
            clean = replace(clean, view=clean.view.recorded())
        clean = replace(clean, approved=approved)
        digest_of = self._runs.digest_of
        light = is_light_request(request, LIGHT_TO_ENCODE)
        content = digest_of(request) if light else await aside.run(digest_of, request)
        submitted = await parts.store.submit(clean, content, worker="", lease_ms=0, waiting=True)
        match submitted:
            case AcceptedRequest():
                return HandedOver(request.run, None)
            case DuplicateRequest(run=known, response=response):
                # The id is the call's place in its run: it is the same call, also if what it was shown has changed.
                return HandedOver(known, None if response is None else await self._for_caller(known, response))
            case _:
                raise AssertionError("there is no single-use proof")

    async def outcome(self, run: str, within_s: float) -> Response | None:
        """Return the outcome as the caller gets it; None if it has not ended *within_s*."""
        try:
            async with asyncio.timeout(within_s):
                response = await self._parts.store.wait(run)
        except TimeoutError:
            return None
        return await self._for_caller(run, response)

    async def opened(self, run: str, sealed: bytes) -> Response | None:
        """Return an outcome that a host sealed, as the caller gets it; None if no hub of this store sealed it."""
        raw = self._parts.redactor.keys.unlock(sealed, f"outcome {run}")
        return None if raw is None else await self._for_caller(run, read_response(raw))

    async def approvals(self, run: str, after: int) -> tuple[int, list[Approval]]:
        """Return the questions to people and their answers in a run's record, and the number of its last record."""
        page: list[Record] = await self._parts.store.records(run=run, after=after)
        bodies = [record.body for record in page if isinstance(record.body, Approval)]
        return (page[-1].seq if page else after), bodies

    async def withdraw(self, run: str, why: Fault) -> bool:
        """End a request that no host has taken; False: a host has it, or it has ended."""
        store = self._parts.store
        taken = await store.take(run, self.worker, lease_ms=WITHDRAWAL_MS)
        if taken is None:
            return False
        response = self._records.refused(taken.request, why)
        return await store.finish(run, taken.epoch, response, self._parts.clock.wall_ms(), keep=False)

    async def cancel(self, run: str, reason: str) -> None:
        """Tell the hub that executes a run to stop it, through the store."""
        await self._parts.store.control(run, "cancel", self._sender.name, reason)

    async def handed_over(self, run: str, user: str) -> list[str]:
        """Return the runs of other hubs on this store that a run of a *user* has asked for."""
        return [there for _, there in await self._parts.store.handed_over(run, user)]

    def running(self, order: CancelOrder) -> ActiveRun | None:
        """Return the run that an order names, if it may cancel it and this hub has it."""
        return self._runs.running(order.run, order.sender, order.scope)

    async def cancel_elsewhere(self, order: CancelOrder) -> str | None:
        """Tell the other hubs of a run to cancel, over the bus; return its id if one of them has it."""
        return None if self.announce is None else await self.announce(order)

    def obey(self, order: CancelOrder) -> str | None:
        """Cancel a run of this hub, or the one that it is about to take; return its id if this hub has it."""
        own = self.running(order)
        if own is None and order.scope != ANYONES:
            return None
        run = order.run if own is None else own.run
        if order.delegation and not order.delegation.startswith(f"{run}."):
            return None
        control = ControlCommand(0, run, "cancel", order.by, order.reason, order.delegation)
        return run if self._taker.obey(control) else None

    @property
    def hub(self) -> str:
        """The name of this hub in its team."""
        return self._sender.name

    @property
    def keys(self) -> HubKeys:
        """The keys that all hubs on this store have."""
        return self._parts.redactor.keys

    async def _for_caller(self, run: str, response: Response) -> Response:
        restored = await self._parts.redactor.for_user(run, response)
        return with_session_of_peer(restored.outward(), self._sender.name)

    # ── for the host ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def take(self, run: str, *, new: bool) -> ActiveRun | None:
        """Take a request and start it; None if another hub has it, or it has begun or ended.

        A *new* one was submitted while this hub was open.
        """
        return await self._taker.take(run, new=new)

    @property
    def lease_ms(self) -> int:
        """For how long a run is claimed."""
        return self._taker.lease_ms

    async def late_workers(self) -> list[str]:
        """Return the workers of other hubs that have missed a heartbeat: they may be dead, or only slow."""
        return await self._taker.late_workers()

    async def end_leases(self, worker: str) -> bool:
        """End the leases of a worker that is known to be dead; False: it has none, or has sent a heartbeat since."""
        return await self._taker.end_leases(worker)

    def sweep_soon(self) -> None:
        """Take up expired runs now, and not at the next heartbeat."""
        self._taker.sweep_soon()

    def watch(
        self,
        *,
        unclaimed: Callable[[OrphanedRun], None],
        started: Callable[[Request], None],
        freed: Callable[[str], None],
        asking: Callable[[str], None],
        ended: Callable[[str, Response], None],
    ) -> None:
        """Call *unclaimed* with each request in the store that no host has taken, again and again until one does.

        *started* is called with each request that has its slot, *freed* with an agent that has a free slot, *asking*
        with a run before a question to a person is recorded in it, *ended* with a run and its durable outcome.
        """
        self._taker.on_unclaimed = unclaimed
        self._parts.started = started
        self._parts.asking = asking
        self._parts.ended = ended
        self._parts.transport.on_free(freed)

    def sealed_outcome(self, run: str, response: Response) -> bytes:
        """Return an outcome in a form that only hubs on this store can read, and nobody else can make."""
        return self._parts.redactor.keys.lock(encode(response), f"outcome {run}")

    def free_slots(self, agent: str) -> int:
        """Return how many more requests an agent could start now."""
        return self._parts.transport.free(agent)


# Only as long as it takes to record that nothing was started.
WITHDRAWAL_MS = 5_000
