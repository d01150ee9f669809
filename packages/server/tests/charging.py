"""Two hubs in processes that can be killed, over a world that is not idempotent: a file of charges.

The back hub's agents charge, the front hub passes on what clients ask. Run as a program, this file starts one hub after
another on the same store and port: it forks for each line of its input, and says when that process has ended.
"""

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from commands import Program, start_program
from programs import with_tests_on_path
from remit import BreakerSettings, Brief, Hub
from remit.runtime import root_runs
from remit_server import connect, serve

LEASE_MS = 300
# Longer than any kill and restart takes, also on a busy machine.
LONG_MS = 280_000

Tell = Callable[..., None]


# ── the hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class World:
    """What the back hub's agents change: each line is a charge, what for and with which receipt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "charges"

    def charge(self, what: str) -> str:
        """Charge, for good, and return the receipt."""
        receipt = secrets.token_hex(8)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{what} {receipt}\n".encode())
        os.fsync(handle)
        os.close(handle)
        return receipt

    def charges(self) -> dict[str, list[str]]:
        """Return the receipts of everything that was charged, by what for."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            what, receipt = line.split()
            found[what].append(receipt)
        return found

    def let_go(self) -> None:
        """Let those agents end that wait for it."""
        (self._folder / "go").touch()

    async def until_let_go(self) -> None:
        while not (self._folder / "go").exists():
            await asyncio.sleep(0.02)


def back(folder: Path, tell: Tell) -> Hub:
    """Return the hub whose agents charge."""
    hub, world = Hub(store=folder / "back.db", durability="process", name="back"), World(folder)

    async def charge(what: str) -> str:
        receipt = await asyncio.to_thread(world.charge, what)
        tell(charged=what)
        return receipt

    async def till(brief: Brief) -> str:
        return await charge(brief.text)

    async def patient(brief: Brief) -> str:
        receipt = await charge(brief.text)
        await world.until_let_go()
        return receipt

    hub.add("till", till, concurrency=64)
    hub.add("patient", patient, concurrency=64)
    return hub


def front(folder: Path, back_address: str) -> Hub:
    """Return the hub that clients ask: for what lives at the other, or for agents that ask the other in turn."""
    # A peer that is back is asked again soon, so that there is always something to kill.
    breaker = BreakerSettings(open_s=0.2, max_open_s=0.5)
    hub = Hub(store=folder / "front.db", durability="process", name="front", breaker=breaker)

    def passing_on(whom: str) -> Callable[[Brief], Any]:
        async def ask(brief: Brief) -> str:
            return (await brief.delegate(whom, objective=brief.text, deadline_ms=brief.time_left_ms())).unwrap()

        return ask

    for name in ("till", "patient"):
        connect(hub, name, back_address, token="front", concurrency=64)
        hub.add(f"boss-{name}", passing_on(name), may_call=[name], resumable=True, concurrency=64)
    return hub


async def serve_side(folder: Path, side: str, port: int, other: int) -> None:
    hub = back(folder, tell) if side == "back" else front(folder, f"http://127.0.0.1:{other}")
    async with (
        hub,
        serve(
            hub, clients={"web": "web"}, hubs={"front": "front"}, permissions={"web": ["read"]}, port=port
        ) as address,
    ):
        tell(ready=address)
        await asyncio.Event().wait()


def tell(**words: object) -> None:
    # One write, so that a line is said whole or not at all.
    os.write(1, json.dumps(words).encode() + b"\n")


def main(folder: Path, side: str, port: int, other: int) -> None:
    root_runs.LEASE_MS = LEASE_MS
    while sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            asyncio.run(serve_side(folder, side, port, other))
            os._exit(0)
        tell(pid=pid)
        os.waitpid(pid, 0)
        tell(gone=pid)


# ── for tests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Side:
    """One of the two hubs: one process after another on the same store and port."""

    def __init__(self, name: str, port: int, parent: Program) -> None:
        self.name = name
        self.address = f"http://127.0.0.1:{port}"
        self._parent = parent
        self._pid = 0
        self._ready, self._gone = asyncio.Event(), asyncio.Event()
        self.charged: Callable[[str], None] = lambda _: None
        """Called with each charge, as soon as it was made."""

    async def listen(self) -> None:
        """Hear what the processes say, until there will be none any more."""
        assert self._parent.stdout is not None
        while line := await self._parent.stdout.readline():
            match json.loads(line):
                case {"pid": pid}:
                    self._pid = pid
                case {"ready": _}:
                    self._ready.set()
                case {"gone": _}:
                    self._pid = 0
                    self._gone.set()
                case {"charged": what}:
                    self.charged(what)
                case _:
                    pass

    async def start(self) -> None:
        """Start a process, and return once it serves."""
        assert self._parent.stdin is not None
        self._ready.clear()
        self._gone.clear()
        self._parent.stdin.write(b"start\n")
        first, _ = await asyncio.wait(
            [asyncio.ensure_future(each.wait()) for each in (self._ready, self._gone)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert first
        assert self._ready.is_set(), f"the {self.name} hub could not be started"

    async def kill(self) -> None:
        """Kill the process with -9, and return once it is gone."""
        os.kill(self._pid, signal.SIGKILL)
        await self._gone.wait()

    async def close(self) -> None:
        assert self._parent.stdin is not None
        if self._pid:
            await self.kill()
        self._parent.stdin.close()
        await self._parent.wait()

    def client(self) -> ClientSession:
        return ClientSession(self.address, headers={"authorization": "Bearer web"})


class Two:
    """The front and the back hub, and the world that the back one changes."""

    def __init__(self, folder: Path, front: Side, back: Side) -> None:
        self.folder = folder
        self.front = front
        self.back = back
        self.world = World(folder)


@asynccontextmanager
async def two(folder: Path) -> AsyncGenerator[Two]:
    """Have both hubs started, and gone at the end."""
    ports = {"front": free_port(), "back": free_port()}
    sides: dict[str, Side] = {}
    listening: list[asyncio.Task[None]] = []
    try:
        for name, port in ports.items():
            other = ports["back" if name == "front" else "front"]
            command = [sys.executable, __file__, str(folder), name, str(port), str(other)]
            parent = await start_program(command, env=with_tests_on_path())
            sides[name] = Side(name, port, parent)
            listening.append(asyncio.create_task(sides[name].listen()))
        for name in ("back", "front"):
            await sides[name].start()
        yield Two(folder, sides["front"], sides["back"])
    finally:
        for side in sides.values():
            await side.close()
        if listening:
            await asyncio.wait(listening)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
