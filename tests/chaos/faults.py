"""The faults of a chaos run: drawn from a seed, applied to a cluster, and undone after a while."""

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import get_args

from msgspec import Struct

from chaos.clients import Clients
from chaos.cluster import BANK, COMMANDS, Cluster, HubProcess
from chaos.proxy import Cut
from remit.runtime.root_runs import LEASE_MS

# Most faults begin before the one before is over.
MOST_AT_ONCE = 6
# So often everything is repaired, and left alone for a moment.
CALM_EVERY = 50

WEIGHTS = {
    "kill hub": 22,
    "stand still": 8,
    "stop hub": 5,
    "cut store": 14,
    "cut bus": 9,
    "cut both": 7,
    "cut clients": 7,
    "clock skew": 5,
    "poison": 5,
    "kill bus node": 9,
    "wipe bus": 4,
    "crash database": 5,
    "fail over": 2,
    "disk full": 3,
}


class Fault(Struct, frozen=True, kw_only=True):
    """One fault with everything that was drawn for it."""

    kind: str
    gap_s: float
    """How long after the one before it begins."""
    lasts_s: float
    draw: float
    """What is left to choose (0 to 1): which node, which way."""
    hub: float
    minutes: int


def drawn(chance: random.Random, count: int, kinds: dict[str, int], pace_s: float, most_s: float) -> list[Fault]:
    """Draw the faults of a run, about *pace_s* apart and *most_s* long at most; the first are one of each kind."""
    names = list(kinds)
    chance.shuffle(names)
    names += chance.choices(list(kinds), list(kinds.values()), k=count)
    return [
        Fault(
            kind=kind,
            gap_s=chance.uniform(0.2, 1.8) * pace_s,
            lasts_s=chance.uniform(0.2, most_s),
            draw=chance.random(),
            hub=chance.random(),
            minutes=chance.choice([-15, -7, -2, 2, 5, 11]),
        )
        for kind in names[:count]
    ]


class Storm:
    """Applies faults to a cluster, several at once as long as they are not about the same part."""

    def __init__(self, cluster: Cluster, clients: Clients) -> None:
        self._cluster = cluster
        self._clients = clients
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.done: Counter[str] = Counter()
        self.slowest_stop_s = 0.0
        self._acts: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill hub": self._kill,
            "stand still": self._stand_still,
            "stop hub": self._stop,
            "cut store": lambda fault: self._cut(fault, {"store"}),
            "cut bus": lambda fault: self._cut(fault, {"bus"}),
            "cut both": lambda fault: self._cut(fault, {"store", "bus"}),
            "cut clients": lambda fault: self._cut(fault, {"clients"}),
            "clock skew": self._skew_clock,
            "poison": self._poison,
            "kill bus node": self._kill_node,
            "wipe bus": self._wipe_bus,
            "crash database": self._crash_database,
            "fail over": self._fail_over,
            "disk full": self._fill_disk,
        }

    def kinds(self) -> dict[str, int]:
        """Return the kinds of faults that this cluster can have, with their weights."""
        missing = set[str]()
        if self._cluster.databases.standby is None:
            missing.add("fail over")
        if not self._cluster.databases.has_small_disks:
            missing.add("disk full")
        return {kind: weight for kind, weight in WEIGHTS.items() if kind not in missing}

    async def run(self, faults: list[Fault], say: Callable[[str], None]) -> None:
        """Apply all faults, and repair everything."""
        for start in range(0, len(faults), CALM_EVERY):
            room = asyncio.Semaphore(MOST_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for fault in faults[start : start + CALM_EVERY]:
                    await asyncio.sleep(fault.gap_s)
                    await room.acquire()
                    group.create_task(self._apply(fault, room))
            await self._repair()
            say(f"{self.done.total()} faults, {self._clients.answered} answers")

    async def _apply(self, fault: Fault, room: asyncio.Semaphore) -> None:
        try:
            await self._acts[fault.kind](fault)
            self.done[fault.kind] += 1
        finally:
            room.release()

    async def _repair(self) -> None:
        """Have everything run, with the right time, and wait until it does."""
        for hub in self._cluster.hubs.values():
            if hub.shift_s:
                await self._cluster.kill(hub)
                hub.shift_s = 0
                self._cluster.release(hub)
        for hub in self._cluster.hubs.values():
            await self._cluster.until_ready(hub)

    # ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hub(self, fault: Fault) -> HubProcess:
        hubs = list(self._cluster.hubs.values())
        return hubs[int(fault.hub * len(hubs))]

    async def _kill(self, fault: Fault) -> None:
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.kill(hub)
            await asyncio.sleep(fault.lasts_s)
            self._cluster.release(hub)

    async def _stop(self, fault: Fault) -> None:
        """End a hub as a service manager does, and start it again at once."""
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.until_ready(hub)
            began = time.monotonic()
            await self._cluster.kill(hub, signal.SIGTERM)
            self.slowest_stop_s = max(self.slowest_stop_s, time.monotonic() - began)
            self._cluster.release(hub)

    async def _stand_still(self, fault: Fault) -> None:
        """Let a hub stand still for longer than its lease, and go on."""
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.until_ready(hub)
            hub.signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE_MS / 1_000 + 0.5 + fault.lasts_s)
            hub.signal(signal.SIGCONT)

    async def _cut(self, fault: Fault, services: set[str]) -> None:
        """Cut a hub, or all commands, off from others."""
        names = [*self._cluster.plan.hubs, COMMANDS]
        if "clients" in services:
            names = [BANK, *(hub.name for hub in self._cluster.servers)]
        name = names[int(fault.hub * len(names))]
        ways: tuple[Cut, ...] = get_args(Cut)
        async with self._locks[f"network of {name}"]:
            self._cluster.cut(name, services, ways[int(fault.draw * len(ways))])
            await asyncio.sleep(fault.lasts_s * 2)
            self._cluster.heal(name)

    async def _skew_clock(self, fault: Fault) -> None:
        """Start a hub anew whose clock is minutes off, until the next calm."""
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.kill(hub)
            hub.shift_s = fault.minutes * 60
            self._cluster.release(hub)
            await asyncio.sleep(fault.lasts_s)

    async def _poison(self, fault: Fault) -> None:
        hosted = {name for names in self._cluster.plan.hubs.values() for name in names}
        agent = "stubborn" if fault.draw < 0.3 and "stubborn" in hosted else "poison"
        await self._clients.ask(agent, None, "poisoner")

    # ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _kill_node(self, fault: Fault) -> None:
        nodes = self._cluster.bus
        async with self._locks["bus"]:
            node = nodes[int(fault.draw * len(nodes))]
            node.kill()
            await asyncio.sleep(fault.lasts_s)
            node.start()

    async def _wipe_bus(self, fault: Fault) -> None:
        """Kill one node or all of them, and delete what they stored."""
        nodes = self._cluster.bus
        async with self._locks["bus"]:
            victims = nodes if fault.draw < 0.5 else [nodes[int(fault.draw * len(nodes))]]
            for node in victims:
                node.kill()
            await asyncio.sleep(fault.lasts_s / 2)
            for node in victims:
                node.wipe()
                node.start()

    async def _crash_database(self, fault: Fault) -> None:
        cluster = self._cluster
        async with self._locks["databases"]:
            await cluster.in_thread(cluster.databases.crash)
            await asyncio.sleep(fault.lasts_s / 2)
            await cluster.in_thread(cluster.databases.start)

    async def _fail_over(self, fault: Fault) -> None:
        cluster = self._cluster
        async with self._locks["databases"]:
            await cluster.in_thread(cluster.databases.in_step)
            await cluster.in_thread(cluster.databases.fail_over)
            await asyncio.sleep(fault.lasts_s)
            await cluster.in_thread(cluster.databases.follow)

    async def _fill_disk(self, fault: Fault) -> None:
        cluster = self._cluster
        async with self._locks["databases"]:
            try:
                await cluster.in_thread(cluster.databases.fill)
                await asyncio.sleep(fault.lasts_s)
            finally:
                await cluster.in_thread(cluster.databases.free)
            await cluster.in_thread(cluster.databases.revive)
