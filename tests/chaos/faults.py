"""The faults of a chaos run: drawn from a seed, applied to a cluster, and undone after a while."""

import asyncio
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from msgspec import Struct

from chaos.clients import Clients
from chaos.cluster import Cluster, HubProcess
from chaos.hub import LEASE_MS
from chaos.network import Service
from chaos.proxy import Cut

# Most faults begin before the one before is over.
MOST_AT_ONCE = 6
# So often everything is repaired, and left alone for a moment.
CALM_EVERY = 50

WEIGHTS = {
    "kill hub": 20,
    "stop hub": 12,
    "partition": 20,
    "clock skew": 8,
    "poison": 6,
    "kill bus node": 12,
    "wipe bus": 6,
    "restart database": 7,
    "fail over": 4,
    "disk full": 5,
}


class Fault(Struct, frozen=True, kw_only=True):
    """One fault with everything that was drawn for it."""

    kind: str
    gap_s: float
    """How long after the one before it begins."""
    lasts_s: float
    draw: float
    """What is left to choose (0 to 1): which hub, which node, which way."""
    hub: int
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
            hub=chance.randrange(1_000),
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
        self.poisoned = 0
        self._acts: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill hub": self._kill_hub,
            "stop hub": self._stop_hub,
            "partition": self._partition,
            "clock skew": self._skew_clock,
            "poison": self._poison,
            "kill bus node": self._kill_node,
            "wipe bus": self._wipe_bus,
            "restart database": self._restart_database,
            "fail over": self._fail_over,
            "disk full": self._fill_disk,
        }

    async def run(self, faults: list[Fault], say: Callable[[str], None]) -> None:
        """Apply all faults, and repair everything."""
        for start in range(0, len(faults), CALM_EVERY):
            room = asyncio.Semaphore(MOST_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for fault in faults[start : start + CALM_EVERY]:
                    await asyncio.sleep(fault.gap_s)
                    await room.acquire()
                    group.create_task(self._apply(fault, room))
            await self.repair()
            say(f"{self.done.total()} faults, {self._clients.answered} answers")

    async def _apply(self, fault: Fault, room: asyncio.Semaphore) -> None:
        try:
            await self._acts[fault.kind](fault)
            self.done[fault.kind] += 1
        finally:
            room.release()

    async def repair(self) -> None:
        """Have everything run, with the right time, and wait until it does."""
        for hub in self._cluster.hubs.values():
            self._cluster.network.heal(hub.name)
            async with self._locks[hub.name]:
                if hub.shift_s:
                    await self._cluster.kill(hub)
                    hub.shift_s = 0.0
                    self._cluster.release(hub)
        await self._cluster.databases.primary.ready()
        for hub in self._cluster.hubs.values():
            await self._cluster.until_ready(hub)

    # ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hub(self, fault: Fault) -> HubProcess:
        hubs = list(self._cluster.hubs.values())
        return hubs[fault.hub % len(hubs)]

    async def _kill_hub(self, fault: Fault) -> None:
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.kill(hub)
            await asyncio.sleep(fault.lasts_s)
            self._cluster.release(hub)

    async def _stop_hub(self, fault: Fault) -> None:
        """Stop a hub for longer than its lease, and let it go on."""
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.until_ready(hub)
            pid = hub.pid
            try:
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(LEASE_MS / 1_000 + 0.5 + fault.lasts_s)
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:  # a poisoned request ended it meanwhile
                pass

    async def _partition(self, fault: Fault) -> None:
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            choices: list[set[Service]] = [{"store"}, {"bus"}, {"store", "bus"}]
            ways: list[Cut] = ["refused", "silent"]
            number = int(fault.draw * 6)
            self._cluster.network.cut(hub.name, choices[number % 3], ways[number % 2])
            await asyncio.sleep(fault.lasts_s * 2)
            self._cluster.network.heal(hub.name)

    async def _skew_clock(self, fault: Fault) -> None:
        """Start a hub anew whose clock is minutes off, until the next calm."""
        hub = self._hub(fault)
        async with self._locks[hub.name]:
            await self._cluster.kill(hub)
            hub.shift_s = fault.minutes * 60.0
            self._cluster.release(hub)
            await asyncio.sleep(fault.lasts_s)

    async def _poison(self, fault: Fault) -> None:
        hosted = {name for names in self._cluster.plan.hubs.values() for name in names}
        agent = "stubborn" if fault.draw < 0.3 and "stubborn" in hosted else "poison"
        await self._clients.ask(agent, "poisoner")

    # ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _kill_node(self, fault: Fault) -> None:
        nodes = self._cluster.bus.nodes
        async with self._locks["bus"]:
            node = nodes[int(fault.draw * len(nodes))]
            node.kill()
            await asyncio.sleep(fault.lasts_s)
            node.start()

    async def _wipe_bus(self, fault: Fault) -> None:
        """Kill one node or all of them, and delete what they stored."""
        nodes = self._cluster.bus.nodes
        async with self._locks["bus"]:
            victims = nodes if fault.draw < 0.5 else [nodes[int(fault.draw * len(nodes))]]
            for node in victims:
                node.kill()
            await asyncio.sleep(fault.lasts_s / 2)
            for node in victims:
                node.wipe()
                node.start()

    async def _restart_database(self, fault: Fault) -> None:
        async with self._locks["databases"]:
            primary = self._cluster.databases.primary
            await asyncio.to_thread(primary.stop, signal.SIGQUIT)
            await asyncio.sleep(fault.lasts_s / 2)
            primary.start()
            await primary.ready()

    async def _fail_over(self, fault: Fault) -> None:
        async with self._locks["databases"]:
            databases = self._cluster.databases
            await databases.in_step()
            await databases.fail_over()
            await asyncio.sleep(fault.lasts_s)
            assert databases.standby is not None
            await databases.follow(databases.standby)

    async def _fill_disk(self, fault: Fault) -> None:
        async with self._locks["databases"]:
            primary = self._cluster.databases.primary
            try:
                primary.fill()
                await asyncio.sleep(fault.lasts_s)
            finally:
                primary.free()
            await primary.ready()
