"""What the hubs that share a store know together of their agents: rate limits, circuit breakers and track records.

A rate limit is counted in the store before each call. Breakers and track records are exchanged every `EXCHANGE_S`: a
hub that opens or closes a breaker writes that down, and the others do the same.
"""

import asyncio
import logging
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.policy.breaker import Breaker, Phase
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode
from remit.protocol.errors import RemitError
from remit.runtime.context import RuntimeContext

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


_read = msgspec.json.Decoder(dict[str, SharedBreaker]).decode


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
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def rate_wait_ms(self, card: AgentCard | None) -> int:
        """Count a call to an agent and return 0, or return how long to wait because all hubs together called it enough.

        Windows begin at multiples of the rate's period.
        """
        if card is None or card.rate is None:
            return 0
        window_ms = max(1, round(card.rate.seconds * 1_000))
        total = await self._parts.store.incr(f"rate/{card.name}", 1, window_ms)
        return 0 if total <= card.rate.calls else window_ms - self._parts.clock.wall_ms() % window_ms

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
                said = error.fault.message if isinstance(error, RemitError) else type(error).__name__
                log.warning("breakers could not be exchanged with other hubs; trying again: %s", said)

    async def exchange_breakers(self) -> None:
        """Write down which breakers this hub opened or closed, and follow what others wrote."""
        store, own = self._parts.store, self._changes()
        while True:
            revision, raw = await store.get(_BREAKERS) or (0, b"{}")
            found = _read(raw)
            if not own or await store.cas(_BREAKERS, revision, encode(self._merged(found, own))) is not None:
                break
        self._follow({**found, **own})

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

    def _merged(self, found: dict[str, SharedBreaker], own: dict[str, SharedBreaker]) -> dict[str, SharedBreaker]:
        oldest_ms = self._parts.clock.wall_ms() - FORGET_MS
        kept = {name: each for name, each in found.items() if each.changed_ms >= oldest_ms}
        newer = {
            name: each for name, each in own.items() if name not in kept or each.changed_ms >= kept[name].changed_ms
        }
        return {**kept, **newer}

    def _follow(self, found: dict[str, SharedBreaker]) -> None:
        """Open and close this hub's breakers as other hubs did since."""
        breakers, wall_ms, now = self._parts.ledger.breakers, self._parts.clock.wall_ms(), self._parts.clock.now()
        for name, shared in found.items():
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
