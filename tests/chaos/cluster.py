"""A team of hubs in processes of their own, with its database servers, its bus and the network in between."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from chaos.bus_nodes import BusNodes
from chaos.databases import DATABASE, Databases
from chaos.hub import HubOrder
from chaos.network import NamespaceNetwork, Network, ProxyNetwork, free_ports
from postgres_server import PASSWORD, USER

# How soon a hub that ended by itself is started again, as a service manager would.
RESTART_S = 0.3


class ClusterPlan(Struct, frozen=True, kw_only=True):
    """The size of a cluster, and what each hub hosts."""

    hubs: dict[str, tuple[str, ...]]
    databases: int = 1
    bus_nodes: int = 1
    namespaces: bool = False
    small_disk: bool = False
    synchronous: bool = True


LARGE = ClusterPlan(
    hubs={
        "h1": ("boss", "clerk"),
        "h2": ("boss", "clerk"),
        "h3": ("till", "careful"),
        "h4": ("till", "careful"),
        "h5": ("steady", "till", "poison", "stubborn"),
        "h6": ("steady", "careful", "poison", "stubborn"),
    },
    databases=2,
    bus_nodes=3,
)
SMALL = ClusterPlan(
    hubs={
        "h1": ("boss", "clerk", "careful"),
        "h2": ("till", "steady", "careful"),
        "h3": ("till", "steady", "poison", "boss"),
    },
)


class HubProcess:
    """One hub: one process after another, with the same name and port."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.pid = 0
        self.shift_s = 0.0
        self.held = False
        """Whether a fault keeps it from being started."""
        self.starts = 0
        self.ready = asyncio.Event()
        self.gone = asyncio.Event()
        self.gone.set()


class Cluster:
    """Everything that runs, and that faults break."""

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        self.folder = folder
        self.plan = plan
        (folder / "history").mkdir(parents=True)
        (folder / "logs").mkdir()
        self.network: Network = NamespaceNetwork() if plan.namespaces else ProxyNetwork()
        self._ports = free_ports(plan.databases + 2 * plan.bus_nodes + len(plan.hubs))
        pg, nats = self._ports[: plan.databases], self._ports[plan.databases :][: plan.bus_nodes]
        routes = self._ports[plan.databases + plan.bus_nodes :][: plan.bus_nodes]
        self._hub_ports = dict(zip(plan.hubs, self._ports[-len(plan.hubs) :], strict=True))
        self._services = {"store": pg, "bus": nats}
        self.databases = Databases(
            folder / "databases",
            ports=pg,
            host=self.network.server_host("store"),
            small_disk=plan.small_disk,
            synchronous=plan.synchronous,
        )
        self.bus = BusNodes(folder / "bus", ports=nats, routes=routes, host=self.network.server_host("bus"))
        self.hubs: dict[str, HubProcess] = {}
        self._forking: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.exits: list[tuple[str, int]] = []
        """Hubs that ended by themselves, with their exit codes: a signal is a negative number."""

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> "Cluster":
        try:
            await self.network.open(
                list(self.plan.hubs), {"store": self._services["store"], "bus": self._services["bus"]}
            )
            await self.databases.open()
            self.bus.open()
            tests = str(Path(__file__).parent.parent)
            path = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
            with (self.folder / "logs" / "forking.log").open("ab") as log:
                self._forking = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "chaos.hub", str(self.folder)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": path},
                )
            self._spawn(self._listen())
            for name, port in self._hub_ports.items():
                self.hubs[name] = HubProcess(name, f"http://{self.network.hub_host(name)}:{port}")
            first, *others = self.hubs.values()
            self.start(first)  # it creates the tables and the key
            await self.until_ready(first)
            for hub in others:
                self.start(hub)
            for hub in others:
                await self.until_ready(hub)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything."""
        self._closing = True
        if self._forking is not None and self._forking.returncode is None:
            assert self._forking.stdin is not None
            self._forking.stdin.close()
            await self._forking.wait()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.bus.close()
        self.databases.close()
        await self.network.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, hub: HubProcess) -> None:
        """Start a hub; `until_ready` waits until it serves."""
        assert self._forking is not None
        assert self._forking.stdin is not None
        hub.gone.clear()
        hub.ready.clear()
        hub.starts += 1
        hosts = ",".join(f"{host}:{port}" for host, port in self.network.seen(hub.name, "store"))
        servers = ",".join(f"nats://{host}:{port}" for host, port in self.network.seen(hub.name, "bus"))
        order = HubOrder(
            name=hub.name,
            agents=self.plan.hubs[hub.name],
            store_url=f"postgresql://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write",
            bus_url=servers,
            password=PASSWORD,
            host=self.network.hub_host(hub.name),
            port=self._hub_ports[hub.name],
            shift_s=hub.shift_s,
            namespace=self.network.namespace(hub.name),
        )
        self._forking.stdin.write(msgspec.json.encode(order) + b"\n")

    async def until_ready(self, hub: HubProcess) -> None:
        async with asyncio.timeout(180):
            await hub.ready.wait()

    async def kill(self, hub: HubProcess) -> None:
        """Kill a hub with -9; it stays down until `release`."""
        hub.held = True
        if not hub.gone.is_set():
            while not hub.pid and not hub.gone.is_set():
                await asyncio.sleep(0.01)
            if hub.pid:
                os.kill(hub.pid, signal.SIGKILL)
            await hub.gone.wait()

    def release(self, hub: HubProcess) -> None:
        """Start a hub that was killed."""
        hub.held = False
        if hub.gone.is_set():
            self.start(hub)

    async def _listen(self) -> None:
        """Hear which processes began and ended."""
        assert self._forking is not None
        assert self._forking.stdout is not None
        while line := await self._forking.stdout.readline():
            match json.loads(line):
                case {"pid": pid, "name": name}:
                    self.hubs[name].pid = pid
                case {"ready": name, "pid": _}:
                    self.hubs[name].ready.set()
                case {"gone": pid, "code": code}:
                    self._ended(pid, code)
                case _:
                    pass

    def _ended(self, pid: int, code: int) -> None:
        for hub in self.hubs.values():
            if hub.pid == pid:
                hub.pid = 0
                hub.ready.clear()
                hub.gone.set()
                if not hub.held and not self._closing:
                    self.exits.append((hub.name, code))
                    self._spawn(self._restart(hub))

    async def _restart(self, hub: HubProcess) -> None:
        await asyncio.sleep(RESTART_S)
        if hub.gone.is_set() and not hub.held:
            self.start(hub)
