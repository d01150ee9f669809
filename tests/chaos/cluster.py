"""A team of hubs, each a `remit serve` or a `remit worker`, with its servers and a proxy at every connection."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec import Struct

from chaos.proxy import Cut, TcpProxy
from chaos.servers import DATABASE, Databases, bus_nodes
from command_line import environment
from commands import REMIT, popen
from nats_server import NatsServer
from postgres_server import PASSWORD, USER
from waiting import eventually

_numbers = count()
P = ParamSpec("P")
T = TypeVar("T")

TOKEN = "a-token-that-is-long-enough"
# How soon a hub that ended by itself is started again, as a service manager would.
RESTART_S = 0.3
# The hub of another owner, which has a store of its own and is no part of the bus.
BANK = "bank"
# What commands use that are no hub for long: `remit run`, `remit pending`, `remit runs`.
COMMANDS = "commands"


class ClusterPlan(Struct, frozen=True, kw_only=True):
    """The size of a cluster, and what each hub hosts: those named s… are `remit serve`, the others `remit worker`."""

    hubs: dict[str, tuple[str, ...]]
    databases: int = 1
    bus_nodes: int = 1
    small_disks: bool = False
    synchronous: bool = True


LARGE = ClusterPlan(
    hubs={
        "s1": ("boss", "planner"),
        "s2": ("boss", "planner", "spender"),
        "w1": ("till", "careful", "spender", "patient"),
        "w2": ("till", "vault", "planner"),
        "w3": ("careful", "vault", "spender", "poison", "stubborn"),
        "w4": ("boss", "till", "patient", "poison", "stubborn"),
    },
    databases=2,
    bus_nodes=3,
)
SMALL = ClusterPlan(
    hubs={
        "s1": ("boss", "planner", "careful"),
        "w1": ("till", "vault", "spender", "patient"),
        "w2": ("till", "boss", "spender", "vault", "poison"),
    },
)


class HubProcess:
    """One hub: one process after another, with the same name and port."""

    def __init__(self, name: str, agents: tuple[str, ...], folder: Path) -> None:
        self.name = name
        self.folder = folder / BANK if name == BANK else folder
        self.is_server = name.startswith("s")
        serve = [REMIT, "serve", "--port", "0", "--json"]
        if self.is_server:
            hosts = ",".join(f'"{agent}"' for agent in agents)
            self.command = [*serve, "--set", f"bus.hosts=[{hosts}]"]
        elif name == BANK:
            self.command = serve
        else:
            self.command = [REMIT, "worker", *agents]
        self.log = folder / "logs" / f"{name}.log"
        self.port = 0
        """Where the present process serves."""
        self.shift_s = 0
        self.held = False
        """Whether a fault keeps it from being started."""
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = asyncio.Event()

    def signal(self, what: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, what)

    @property
    def announcement(self) -> re.Match[bytes] | None:
        """What its present process has said once it served; the port, if it has one, is group 1."""
        return re.search(rb'"address":"http://127.0.0.1:(\d+)"|Hosting ', self.log.read_bytes().rpartition(b"=====")[2])


class Cluster:
    """Everything that runs, and that faults break."""

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        self.folder = folder
        self.plan = plan
        shutil.copytree(Path(__file__).parent / "team", folder)
        shutil.copy(folder / "shop.py", folder / BANK)
        (folder / "logs").mkdir()
        self._thread = ThreadPoolExecutor(1)  # with which the databases live
        self.databases: Databases
        self.bus: list[NatsServer] = []
        self.hubs = {name: HubProcess(name, agents, folder) for name, agents in plan.hubs.items()}
        self.hubs[BANK] = HubProcess(BANK, (), folder)
        self._proxies: dict[tuple[str, str], list[TcpProxy]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.exits: list[tuple[str, int]] = []
        """Hubs that ended by themselves, with their exit codes: a signal is a negative number."""

    @property
    def servers(self) -> list[HubProcess]:
        return [hub for hub in self.hubs.values() if hub.is_server]

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> "Cluster":
        plan = self.plan
        try:
            self.databases = await self.in_thread(
                lambda: Databases(
                    self.folder / "databases",
                    plan.databases,
                    small_disks=plan.small_disks,
                    synchronous=plan.synchronous,
                )
            )
            self.bus = bus_nodes(plan.bus_nodes)
            for name in (*self.hubs, COMMANDS):
                await self._connect(name)
            first, *others = self.hubs.values()
            self._start(first)  # it creates the tables and the key
            await self.until_ready(first)
            for hub in others:
                self._start(hub)
            for hub in others:
                await self.until_ready(hub)
        except BaseException:
            await self.close()
            raise
        return self

    async def _connect(self, name: str) -> None:
        """Put proxies between a hub, its servers and its clients."""
        if name == BANK or name.startswith("s"):
            self._proxies[name, "clients"] = [TcpProxy(lambda: ("127.0.0.1", self.hubs[name].port))]
        self._proxies[name, "store"] = [
            TcpProxy(lambda slot=slot: ("127.0.0.1", self.databases.port(slot))) for slot in range(self.plan.databases)
        ]
        self._proxies[name, "bus"] = [TcpProxy(lambda url=node.url: _address(url)) for node in self.bus]
        for (hub, _), proxies in self._proxies.items():
            if hub == name:
                for proxy in proxies:
                    await proxy.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for hub in self.hubs.values():
            hub.signal(signal.SIGKILL)
            if hub.process is not None:
                hub.process.wait()
        for node in self.bus:
            node.close()
        if hasattr(self, "databases"):
            await self.in_thread(self.databases.close)
        self._thread.shutdown()
        for proxies in self._proxies.values():
            for proxy in proxies:
                await proxy.close()

    async def in_thread(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Do what blocks, in the one thread that lives as long as the cluster."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **options))

    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────────────

    def address(self, hub: HubProcess) -> str:
        """Return where clients find a hub."""
        return f"http://127.0.0.1:{self._proxies[hub.name, 'clients'][0].port}"

    def cut(self, name: str, services: set[str], how: Cut) -> None:
        for service in services:
            for proxy in self._proxies.get((name, service), []):
                proxy.cut(how)

    def heal(self, name: str) -> None:
        for (hub, _), proxies in self._proxies.items():
            if hub == name:
                for proxy in proxies:
                    proxy.heal()

    def variables(self, name: str) -> dict[str, str]:
        """Return the environment of a hub, or of commands: the team file with its own view of the network."""
        hub = {
            "CHAOS_HUB": name,
            "CHAOS_LEDGER": str(self.folder / "ledger.jsonl"),
            "CHAOS_PASSWORD": PASSWORD,
            "CHAOS_TOKEN": TOKEN,
            "CHAOS_BANK_TOKEN": f"{TOKEN}-for-peers",
        }
        if name == BANK:
            return environment(**hub)
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies[name, "store"])
        nodes = ",".join(f"nats://127.0.0.1:{proxy.port}" for proxy in self._proxies[name, "bus"])
        return environment(
            REMIT_STORE__URL=f"postgresql://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write",
            REMIT_BUS__URL=nodes,
            REMIT_PEERS__BANK__URL=self.address(self.hubs[BANK]),
            **hub,
        )

    # ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, hub: HubProcess) -> None:
        """Start a hub; `until_ready` waits until it serves."""
        hub.ready.clear()
        hub.starts += 1
        with hub.log.open("ab") as log:
            log.write(b"===== start %d\n" % hub.starts)
            log.flush()
            hub.process = popen(
                hub.command,
                cwd=hub.folder,
                env={**self.variables(hub.name), "CHAOS_SHIFT_S": str(hub.shift_s)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        task = asyncio.create_task(self._attend(hub, hub.process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, hub: HubProcess, process: "subprocess.Popen[bytes]") -> None:
        """See a process become ready and end; start another one if it ended by itself."""
        while process.poll() is None:
            if not hub.ready.is_set() and (announced := hub.announcement) is not None:
                hub.port = int(announced[1] or 0)
                hub.ready.set()
            await asyncio.sleep(0.05)
        hub.ready.clear()
        if not hub.held:
            self.exits.append((hub.name, process.returncode))
            await asyncio.sleep(RESTART_S)
        if hub.process is process:
            hub.process = None
            if not hub.held:
                self._start(hub)

    async def until_ready(self, hub: HubProcess) -> None:
        async with asyncio.timeout(180):
            await hub.ready.wait()

    async def kill(self, hub: HubProcess, how: signal.Signals = signal.SIGKILL) -> None:
        """End a hub; it stays down until `release`."""
        hub.held = True
        hub.signal(how)
        await eventually(lambda: hub.process is None, f"the end of {hub.name}")

    def release(self, hub: HubProcess) -> None:
        """Start a hub that was ended."""
        hub.held = False
        if hub.process is None:
            self._start(hub)

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def command(self, *arguments: str, bound_s: float, name: str = COMMANDS) -> tuple[int, str]:
        """Run a command to its end, or kill it; return its exit code and its output."""
        output = self.folder / "logs" / f"command-{next(_numbers)}"
        with output.open("wb") as out, (self.folder / "logs" / "commands.log").open("ab") as err:
            process = popen(
                [REMIT, *arguments],
                cwd=self.hubs[BANK].folder if name == BANK else self.folder,
                env=self.variables(name),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        try:
            async with asyncio.timeout(bound_s):
                while process.poll() is None:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            process.kill()
            await eventually(lambda: process.poll() is not None)
        except asyncio.CancelledError:
            process.kill()
            process.wait()
            raise
        text = output.read_text()
        output.unlink()
        return process.returncode, text


def _address(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])
