"""A simulated world: hubs of one team with their store and bus, clients, a person, and faults at chosen places."""

import asyncio
import hashlib
import os
import random
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from zlib import crc32

import pytest
from msgspec.structs import replace

from remit.agents.token_count import token_counter
from remit.hub.hub import Hub
from remit.ports import AcceptedRequest, Decision, Store, StoreError, TakenRequest
from remit.ports.brief import Brief
from remit.protocol.envelope import Call, Response
from remit.protocol.errors import Code, RemitError
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Record
from remit.runtime import root_request
from remit.runtime.approvers import answer
from remit.runtime.aside import Aside
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Watchdog
from remit.runtime.frames import Frame
from remit.runtime.root_runs import LEASE_MS
from remit_cli.config import composition
from remit_cli.config.code import find_code
from remit_cli.config.load import load_team
from remit_cluster.nats.section import BUS
from remit_testing.memory import MemoryStore
from simulate.bus import SimulatedClient, SimulatedServer
from simulate.disk import Fate, SimulatedStore
from simulate.loop import PROCESS, NumberedFuture, NumberedTask, SimulatedLoop, SimulatedProcess
from simulate.plan import PLANNERS, ClientOrder, PlannedFault, PlannedWork, Scenario

TEAM = load_team(Path(__file__).with_name("remit.toml"), environ={}, code=False)
# Longer than all leases, retries and deadlines of a scenario together.
PATIENCE_S = 300.0
LEASE_S = LEASE_MS / 1_000 - 1.0
# For so long after an outage, hubs may not be connected to the bus again.
BUS_BACK_S = 2.0
START_MS = 1_700_000_000_000
# How often a client asks again if the store cannot say what became of its request.
MOST_FAILED = 20
# Faults after which the same request may be sent again under its id.
AGAIN = frozenset({Code.STORE_UNAVAILABLE, Code.OVERLOADED, Code.DELEGATION_UNAVAILABLE})


class Entry(NamedTuple):
    """What somebody outside of the product has seen."""

    at: float
    who: str
    what: str
    """`begins`, `charges`, `answered`, `asked`, `decides`, `cancels`, `row`."""
    node: str
    detail: Any = None


class WrittenRow(NamedTuple):
    """A record that a process has written, and whether it was entitled to."""

    record: Record
    entitled: bool


def _shown(detail: object) -> str:
    match detail:
        case Response(status=status, fault=fault):
            return f"{status} {'' if fault is None else f'{fault.code} ({fault.message})'}"
        case WrittenRow(record=record, entitled=entitled):
            id = getattr(record.body, "id", getattr(record.body, "delegation", ""))
            return f"{record.kind} {id} {getattr(record.body, 'status', '')}{'' if entitled else ' (of another)'}"
        case None:
            return ""
        case _:
            return str(detail)


class Outage(NamedTuple):
    """From when until when something could not be used."""

    what: Literal["store", "bus", "hub"]
    since: float
    until: float


class SimulatedHub:
    """A process that runs a hub."""

    def __init__(self, process: SimulatedProcess, hosts: frozenset[str]) -> None:
        self.process = process
        self.hosts = hosts
        self.hub: Hub | None = None
        self.stopping = asyncio.Event()
        self.gone = asyncio.Event()
        self.restart_s = 1.0


class SimulatedWorld:
    """One run of a scenario with faults."""

    def __init__(self, scenario: Scenario, faults: dict[int, PlannedFault], seed: str) -> None:
        self.scenario = scenario
        self._faults = faults
        self._rng = random.Random(f"world {seed}")
        self.loop = SimulatedLoop(self._rng)
        self._outside = self.loop.process("world")
        self.context = self._outside.context
        self.server = SimulatedServer(self.loop, self._rng, self)
        self.nodes = {node.id: node for order in scenario.orders for node in order.root.tree()}
        self.orders = {node.id: order for order in scenario.orders for node in order.root.tree()}
        self.places = 0
        self.entries: list[Entry] = []
        self.trace: list[str] = []
        self.hubs: list[SimulatedHub] = []
        self.holders: dict[str, SimulatedProcess | None] = {}
        """The process that has claimed each run; None: it was released, or has ended."""
        self._runs: dict[str, str] = {}
        """The last run of each request."""
        self._full_until = self._away_until = 0.0
        self._outages: list[Outage] = []
        self._ended = False

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def wall_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1_000)

    def run(self) -> bool:
        """Run to the end; False: something never ended."""
        with _replaced(self):
            self.memory = MemoryStore(wall_ms=self.wall_ms, monotonic=self.loop.time)
            self.loop.start(self._outside, self._main())
            ended = self.loop.run(lambda: self._ended, self.loop.time() + PATIENCE_S)
            self.loop.close()
        return ended

    async def _main(self) -> None:
        await self.memory.open()
        for hosts in self.scenario.hosts:
            self._start_hub(hosts)
        async with asyncio.TaskGroup() as group:
            person = self.loop.start(self.loop.process("person"), self._person())
            for order in self.scenario.orders:
                group.create_task(self._client(order))
        while any(each.response is None for each in await self.memory.runs()):
            await asyncio.sleep(0.25)
        for order in self.scenario.orders:
            self.note("client", "asks again", order.root.id)
            self.note("client", "answered again", order.root.id, await self._ask(order))
        person.cancel()
        self._ended = True

    def note(self, who: str, what: str, node: str, detail: Any = None) -> None:
        self.entries.append(Entry(self.loop.time(), who, what, node, detail))
        self.say(f"{who} {what} {node} {_shown(detail)}")

    def say(self, text: str) -> None:
        self.trace.append(f"{self.loop.time() - 1_000:8.4f} {text.rstrip()}")

    def trace_hash(self) -> str:
        """Return a digest of everything that happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    # ── hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_hub(self, hosts: frozenset[str]) -> None:
        made = SimulatedHub(self.loop.process(f"hub{len(self.hubs)}"), hosts)
        self.hubs.append(made)
        self.say(f"{made.process.name} starts with {' '.join(sorted(hosts))}")
        self.loop.start(made.process, self._serve(made))

    async def _serve(self, made: SimulatedHub) -> None:
        store = SimulatedStore(self.loop, made.process, self, self.memory)
        bus = BUS.of(TEAM)
        assert bus is not None
        team = replace(TEAM, bus=replace(bus, hosts=made.hosts))
        while not made.stopping.is_set():
            try:
                hub = composition.hub_of(team, store=cast(Store, store), environ={}, takes=True)
                async with hub:
                    made.hub = hub
                    await made.stopping.wait()
                    made.hub = None
            except StoreError:  # whoever starts it tries again
                await asyncio.sleep(0.5)
        self.kill(made.process)

    def kill(self, process: SimulatedProcess) -> None:
        """End a process; another with the same agents starts later."""
        if not process.alive:
            return
        self.say(f"{process.name} is gone")
        self._outages.append(Outage("hub", self.loop.time(), self.loop.time()))
        self.loop.kill(process)
        self.server.disconnect(process)
        made = next(each for each in self.hubs if each.process is process)
        made.hub = None
        self.loop.call_soon(made.gone.set, context=self.context)
        self.loop.call_later(made.restart_s, self._start_hub, made.hosts, context=self.context)

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _strike(self, process: SimulatedProcess, what: str) -> str:
        """Count a place, and return the kind of the fault that strikes there; empty: none."""
        if process.name[:3] != "hub" or not process.alive:
            return ""
        self.places += 1
        fault = self._faults.get(self.places)
        self.say(f"{process.name} {what} [{self.places}]")
        if fault is None:
            return ""
        self.say(f"fault at {self.places}: {fault.kind} of {process.name} for {fault.seconds} s")
        now = self.loop.time()
        end = now + fault.seconds
        made = next(each for each in self.hubs if each.process is process)
        made.restart_s = fault.seconds
        match fault.kind:
            case "kill":
                self.kill(process)
            case "full":
                self._full_until = end
                self._outages.append(Outage("store", now, end))
            case "away":
                self._away_until = end
                self._outages.append(Outage("store", now, end))
            case "bus":
                if self.server.up:
                    self.server.stop()
                    self.loop.call_at(end, self.server.start, context=self.context)
                self._outages.append(Outage("bus", now, end + BUS_BACK_S))
            case "pause":
                process.paused = True
                self.loop.call_at(end, lambda: setattr(process, "paused", False), context=self.context)
                self._outages.append(Outage("hub", now, end))
            case "close":
                made.stopping.set()
            case "cancel":
                self.loop.call_soon(self._cancel, self._rng.choice(self.scenario.orders), context=self.context)
            case "stranded":
                self._away_until = end
                self._outages.append(Outage("store", now, end))
                self.loop.call_later(0.05, self._cancel, self._rng.choice(self.scenario.orders), context=self.context)
            case "error" | "doubt":
                self._outages.append(Outage("bus", now, now + BUS_BACK_S))
            case "last":
                pass
        return fault.kind

    def was_cut_off(self, since: float) -> bool:
        """Return whether a hub stood still or ended since then, or neither store nor bus could be used.

        Without the store for a whole lease, a hub cannot record how a run has ended, and another resumes it.
        """
        later = [each for each in self._outages if each.until >= since]
        stores = [each for each in later if each.what == "store"]
        if any(each.what == "hub" for each in later) or any(each.until - since > LEASE_S for each in stores):
            return True
        return any(
            each.what == "bus" and each.since < store.until and store.since < each.until
            for each in later
            for store in stores
        )

    def store_is_back(self, since: float) -> float:
        """Return when the store could be used again, if it was away at that time; one outage may follow another."""
        for each in sorted(each for each in self._outages if each.what == "store"):
            if each.since <= since:
                since = max(since, each.until)
        return since

    def access(self, process: SimulatedProcess, what: str, *, writes: bool) -> Fate:
        struck = self._strike(process, f"store {what}") if what else ""
        time = self.loop.time()
        if struck in ("kill", "error") or time < self._away_until or (writes and time < self._full_until):
            return "failed"
        return "last" if struck == "last" else "doubtful" if struck == "doubt" and writes else "done"

    def latency_s(self) -> float:
        return self._rng.choice((0.0002, 0.001, 0.003))

    def delay_s(self, sender: SimulatedProcess, subject: str) -> float | None:
        # Requests to the server itself are no places of their own for a fault: outages hit them.
        struck = self._strike(sender, f"bus {subject}") if subject.startswith(("remit.", "_INBOX.")) else ""
        if struck == "error" or not self.server.up:
            return None
        return 2.0 if struck == "doubt" else self._rng.choice((0.0002, 0.0005, 0.002))

    def wrote(
        self, process: SimulatedProcess, what: str, args: tuple[Any, ...], result: object, rows: list[Record]
    ) -> None:
        for row in rows:
            holder = self.holders.get(row.run, process)
            # A result that came after the end, and the answer to a question about a run that was withdrawn.
            late = holder is None and row.kind in (Kind.NOTICE, Kind.APPROVAL)
            entitled = holder is process or late or what == "sweep"  # which ends what nobody holds
            self.note(process.name, "row", row.run, WrittenRow(row, entitled))
        match what:
            case "submit" | "claim" | "take":
                run = args[0].run if what == "submit" else args[0]
                if isinstance(result, AcceptedRequest | TakenRequest | int):
                    self.holders[run] = process
                    self.note(process.name, "claimed", run)
                    if what == "submit":
                        self._runs[args[0].id] = run
            case "finish" | "release" if result:
                self.holders[args[0]] = None
                self.note(process.name, "ended" if what == "finish" else "released", args[0])
            case _:
                pass

    # ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def work(self, brief: Brief, node: PlannedWork) -> str:
        """Do what a node of a tree says."""
        process = PROCESS.get()
        await self._step(process, f"{node.agent} begins {node.id}")
        self.note(process.name, "begins", node.id)
        await asyncio.sleep(node.seconds)
        if node.tokens and brief.tokens_left() < node.tokens:
            return "too few tokens"
        if node.agent not in ("boss", "clerk"):
            await self._step(process, f"{node.agent} charges {node.id}")
            self.note(process.name, "charges", node.id, node.tokens)
            brief.spend(prompt=node.tokens)
            await self._step(process, f"{node.agent} charged {node.id}")
        for wave in node.waves:
            calls = [
                Call(
                    target=each.agent,
                    objective=each.id,
                    max_tokens=each.grant,
                    capability="stock.read" if each.agent == "shelf" else None,
                )
                for each in wave
            ]
            for each, response in zip(wave, await brief.fan_out(calls), strict=True):
                # A hub that was replaced learns it from the store alone, and its work counts for nothing.
                has_run = self.holders.get(brief.request.run, process) is process
                self.note(process.name, "told" if has_run else "told too late", each.id, response if has_run else None)
        return f"done {node.id}"

    async def _step(self, process: SimulatedProcess, what: str) -> None:
        self._strike(process, what)
        if not process.alive:
            await self.loop.create_future()
        await asyncio.sleep(0)

    # ── clients and the person ────────────────────────────────────────────────────────────────────────────────────────

    async def _client(self, order: ClientOrder) -> None:
        await asyncio.sleep(order.at_s)
        self.note("client", "answered", order.root.id, await self._ask(order))

    async def _ask(self, order: ClientOrder) -> Response:
        """Ask until there is an answer, at whichever hub is there."""
        failed, turn = 0, order.hub
        while True:
            simulated = self.hubs[turn % len(self.hubs)]
            turn += 1
            response = None if simulated.hub is None else await self._ask_at(simulated, simulated.hub, order)
            if response is not None:
                failed += response.status is Status.FAILED and _is_of_store(response)
                # What a closing hub does not hand over has ended: the same answer comes again.
                failed += response.status is Status.CANCELLED and order.root.agent not in PLANNERS and MOST_FAILED // 2
                if failed >= MOST_FAILED or not _may_ask_again(response):
                    return response
            await asyncio.sleep(0.3)

    async def _ask_at(self, simulated: SimulatedHub, hub: Hub, order: ClientOrder) -> Response | None:
        """Return the answer of a hub; None: it is gone."""
        replied: asyncio.Future[Response | RemitError] = self.loop.create_future()

        async def ask() -> None:
            options: dict[str, Any] = {"request_id": order.id, "max_tokens": order.tokens, "deadline_ms": 60_000}
            if order.root.agent == "shelf":
                options["capability"] = "stock.read"
            try:
                result = await hub.ask(order.root.agent, order.root.id, user="u", **options)
            except RemitError as error:
                result = error
            if not replied.done():
                replied.set_result(result)

        self.say(f"client asks {simulated.process.name} for {order.id}")
        self.loop.start(simulated.process, ask())
        gone = asyncio.ensure_future(simulated.gone.wait())
        await asyncio.wait({replied, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not replied.done():
            replied.cancel()
            return None
        reply = replied.result()
        if isinstance(reply, Response):
            self.say(f"client got {reply.status} {reply.fault.code if reply.fault else reply.result} for {order.id}")
            return reply
        return None

    def _cancel(self, order: ClientOrder) -> None:
        """Cancel an order at the hub that has it."""
        for each in self.hubs:
            if each.hub is not None and not each.process.paused:
                copied = each.process.context.copy()
                if copied.run(each.hub.cancel, order.id):
                    executes = self.holders.get(self._runs.get(order.id, "")) is each.process
                    # A hub that only waits for the run of another passes the cancel on, once it can.
                    self.note("client", "cancels" if executes else "asks to cancel", order.root.id, each.process.name)
                    return

    async def _person(self) -> None:
        """Answer every question, each after a moment."""
        store = cast(Store, SimulatedStore(self.loop, PROCESS.get(), self, self.memory))
        seen: set[str] = set()
        while True:
            await asyncio.sleep(0.2)
            try:
                for question in await store.pending():
                    node = self.nodes[question.request.objective]
                    if question.id not in seen:
                        seen.add(question.id)
                        self.note("person", "asked", node.id, question.id)
                        continue
                    decision = Decision(agreed=node.agrees, by="person")
                    if await answer(store, question, decision):
                        self.note("person", "decides", node.id, node.agrees)
            except StoreError:
                pass


def _is_of_store(response: Response) -> bool:
    return response.fault is not None and response.fault.code is Code.STORE_UNAVAILABLE


def _may_ask_again(response: Response) -> bool:
    """Return whether a client asks the same again: nothing was started, or the outcome may be known later."""
    fault = response.fault
    if fault is None:
        return False
    if fault.code is Code.CANCELLED:
        return "the hub is closing" in fault.message  # the run goes on elsewhere
    again = response.status is Status.REFUSED and fault.code in AGAIN
    return again or _is_of_store(response) or "Ask again with the same id" in fault.suggestion


async def carry_out(brief: Brief) -> str:
    """Do the work of an agent in the simulated world."""
    world = _current[0]
    return await world.work(brief, world.nodes[brief.objective])


_current: list[SimulatedWorld] = []


async def _at_once(self: Aside, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return work(*args, **options)


_find_code, _token_counter = cache(find_code), cache(token_counter)


def _do_nothing(_: Watchdog) -> None:
    """Watch nothing: no virtual time passes in a callback."""


def _hash_of(frame: Frame) -> int:
    """Return a hash that does not depend on addresses in memory, as the order of a set would."""
    return crc32(frame.path.encode())


@contextmanager
def _replaced(world: SimulatedWorld) -> Generator[None]:
    """Replace time, chance, threads and the client of NATS by those of a world."""
    chance = random.Random(world._rng.random())  # pyright: ignore[reportPrivateUsage]
    random.seed(chance.random())
    cast(Any, root_request)._digits._left.clear()
    client = type("Client", (SimulatedClient,), {"server": world.server})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", world.loop.time)
        patch.setattr(time, "time_ns", lambda: world.wall_ms() * 1_000_000)
        patch.setattr(os, "urandom", chance.randbytes)
        patch.setattr(secrets, "token_bytes", chance.randbytes)
        patch.setattr(LoopClock, "now", staticmethod(world.loop.time))
        patch.setattr(Watchdog, "start", _do_nothing)
        patch.setattr(Watchdog, "stop", _do_nothing)
        patch.setattr(Aside, "run", _at_once)
        patch.setattr(Frame, "__hash__", _hash_of)
        patch.setattr(asyncio, "Task", NumberedTask)
        patch.setattr(asyncio, "Future", NumberedFuture)
        patch.setattr("remit_cluster.nats.connection.Client", client)
        # Code is read from the disk once, and not for each hub.
        patch.setattr(composition, "find_code", _find_code)
        patch.setattr(composition, "token_counter", _token_counter)
        _current.append(world)
        try:
            yield
        finally:
            _current.clear()
