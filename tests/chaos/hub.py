"""The hubs of the chaos runs: one process forks each of them, so that a killed one is back within half a second.

`python -m chaos.hub FOLDER` reads a line of JSON for each hub to start (`HubOrder`), and says in lines of JSON which
process it became, when it serves, and when it has ended. Every execution of an agent is in the history.
"""

import asyncio
import ctypes
import json
import logging
import os
import random
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from chaos.history import Event, HistoryFile
from remit import Answer, BreakerSettings, Brief, Hub, Limits, Usage
from remit.detectors.pipeline import detector_pipeline
from remit.hub.joining import join_bus
from remit.protocol.card import AgentCard
from remit.runtime import root_runs
from remit.stores.addresses import postgres_store
from remit.transports.nats.connection import BusSettings

TEAM = "chaos"
# Long enough for a busy machine, short enough that a worker can be stopped for longer.
LEASE_MS = 3_000
RUN_TOKENS = 2_000
USER_TOKENS_PER_DAY = 20_000
# Longer than any fault lasts together with what the hubs need to recover.
DEADLINE_MS = 120_000
MAY_REPEAT = frozenset({"boss", "clerk", "steady", "careful", "stubborn"})
"""Agents that are resumable, or only pass requests on: executing them again changes nothing."""

CARDS = {
    each.name: each
    for each in (
        AgentCard(name="till", concurrency=16, description="charges once"),
        AgentCard(name="steady", concurrency=16, resumable=True, description="may be executed again"),
        AgentCard(name="careful", concurrency=16, resumable=True, description="charges by a tool"),
        AgentCard(name="poison", description="kills its process"),
        AgentCard(name="stubborn", resumable=True, description="kills its process, whenever it is resumed"),
        AgentCard(name="boss", concurrency=32, resumable=True, may_call=frozenset({"till"})),
        AgentCard(name="clerk", concurrency=32, may_call=frozenset({"steady"})),
    )
}


class HubOrder(Struct, frozen=True, kw_only=True):
    """What the process that forks is told: start this hub."""

    name: str
    agents: tuple[str, ...]
    store_url: str
    bus_url: str
    password: str
    host: str
    port: int
    shift_s: float = 0.0
    """How far its clock is off."""
    namespace: str | None = None
    """The network namespace in which it lives."""


class Agents:
    """The agents of one hub process, and their history."""

    def __init__(self, hub: Hub, order: HubOrder, folder: Path) -> None:
        self._hub = hub
        self._by = f"{order.name} {os.getpid()}"
        self._history = HistoryFile(folder / "history" / f"hub-{order.name}-{os.getpid()}.jsonl")

    def add(self, names: tuple[str, ...]) -> None:
        """Add the agents with these names to the hub."""
        code = {
            "till": self._till,
            "steady": self._till,
            "careful": self._careful,
            "poison": self._poison,
            "stubborn": self._poison,
            "boss": self._passing_on("till"),
            "clerk": self._passing_on("steady"),
        }
        self._hub.tool()(self.pay)
        for name in names:
            card = CARDS[name]
            self._hub.add(
                name,
                code[name],
                concurrency=card.concurrency,
                resumable=card.resumable,
                may_call=card.may_call,
                tools=["pay"] if name == "careful" else [],
            )

    def _note(self, kind: Any, brief: Brief, receipt: str, agent: str | None = None) -> None:
        frames = self._hub._parts.ledger.frames  # pyright: ignore[reportPrivateUsage] - no agent is told its epoch
        frame = frames.get(brief.request.run)
        epoch = 0 if frame is None else frame.run.epoch
        self._history.add(
            Event(
                kind=kind,
                id=brief.objective,
                agent=agent or brief.request.target,
                by=self._by,
                user=brief.user,
                epoch=epoch,
                receipt=receipt,
            )
        )

    async def _till(self, brief: Brief) -> Answer:
        receipt = secrets.token_hex(8)
        self._note("executed", brief, receipt)
        # Long enough to be hit in the middle, and differently each time.
        await asyncio.sleep(random.random() ** 3 * 1.5)
        return self._end(brief, receipt)

    async def pay(self, what: str) -> str:
        """Charge for something, once."""
        receipt = secrets.token_hex(8)
        self._history.add(Event(kind="executed", id=what, agent="pay", by=self._by, receipt=receipt))
        await asyncio.sleep(random.random() ** 3)
        return receipt

    async def _careful(self, brief: Brief) -> Answer:
        self._note("executed", brief, "")
        await asyncio.sleep(random.random() ** 3)
        return self._end(brief, str(await brief.use("pay", what=brief.objective)))

    async def _poison(self, brief: Brief) -> Answer:
        self._note("executed", brief, "")
        os.kill(os.getpid(), signal.SIGKILL)
        return Answer("never")

    def _passing_on(self, whom: str) -> Callable[[Brief], Any]:
        async def ask(brief: Brief) -> Answer:
            self._note("executed", brief, "")
            reply = await brief.delegate(
                whom, objective=brief.objective, deadline_ms=brief.time_left_ms(), max_tokens=250
            )
            return self._end(brief, str(reply.unwrap()))

        return ask

    def _end(self, brief: Brief, receipt: str) -> Answer:
        self._note("returned", brief, receipt)
        # With what it passed on, less than the smallest grant: an overrun is found afterwards only.
        return Answer(receipt, usage=Usage(prompt=random.randint(50, 200)))


async def serve(order: HubOrder, folder: Path) -> None:
    """Be a hub until the process is killed."""
    root_runs.LEASE_MS = LEASE_MS
    store = postgres_store(order.store_url, key=folder / "hub.key", password=order.password)
    hub = Hub(
        name=TEAM,
        store=store,
        limits=Limits(root_tokens=RUN_TOKENS, user_tokens_per_day=USER_TOKENS_PER_DAY),
        # A hub that is back is asked again soon, so that there is always something to break.
        breaker=BreakerSettings(open_s=0.2, max_open_s=0.5),
        shared=True,
    )
    Agents(hub, order, folder).add(order.agents)
    calls = [card for name, card in CARDS.items() if name not in order.agents]
    join_bus(hub, BusSettings(url=order.bus_url, presence_s=3.0), name=TEAM, calls=calls)
    async with hub, hub.serve(clients={"web": "web"}, host=order.host, port=order.port):
        tell(ready=order.name, pid=os.getpid())
        await asyncio.Event().wait()


def tell(**words: object) -> None:
    # One write, so that a line is said whole or not at all.
    os.write(1, json.dumps(words).encode() + b"\n")


# ── the process that forks ────────────────────────────────────────────────────────────────────────────────────────────


def _become(order: HubOrder, folder: Path) -> NoReturn:
    """Be the hub that was ordered, from its start to its end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux":
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the process that forked it
    if order.namespace is not None:
        handle = os.open(f"/run/netns/{order.namespace}", os.O_RDONLY)
        if libc.setns(handle, 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
        os.close(handle)
    log = os.open(folder / "logs" / f"{order.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    random.seed()
    shift_ns = round(order.shift_s * 1e9)
    if shift_ns:
        right, right_ns = time.time, time.time_ns
        time.time = lambda: right() + order.shift_s
        time.time_ns = lambda: right_ns() + shift_ns
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s")
    for name in ("httpx", "uvicorn", "nats"):
        logging.getLogger(name).setLevel(logging.WARNING)
    code = 1
    try:
        asyncio.run(serve(order, folder))
        code = 0
    except BaseException:  # the process ends here
        logging.exception("the hub ends")
    os._exit(code)


def main(folder: Path) -> None:
    """Fork a hub for each line of the input, until it ends; the hubs end with it."""
    detect: Any = detector_pipeline()
    detect.warm()  # made of patterns alone, a fifth of a second, and the same in every process
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _pass)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    decode = msgspec.json.Decoder(HubOrder).decode
    rest = b""
    tell(forks=os.getpid())
    while True:
        for key, _ in selector.select():
            if key.fileobj is woken:
                woken.recv(4_096)
                _say_gone()
                continue
            read = os.read(0, 65_536)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                order = decode(line)
                pid = os.fork()
                if pid == 0:
                    _become(order, folder)
                tell(pid=pid, name=order.name)


def _pass(*_: object) -> None:
    """Be interrupted, no more: the loop does what is to be done."""


def _say_gone() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        tell(gone=pid, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
