"""Messages from device to device through a gateway that keeps them, against a bare relay that passes frames on.

The floor is an aiohttp application that sends every frame to the other side at once and keeps nothing. Both are asked
by the same two WebSocket clients in one process; each server is a process of its own.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType, web

from harness import Figure, at_least, main, rss_mb, sized, start
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.handshake import greet
from remit_relay.device.identity import device_id
from remit_relay.gateway.limits import GatewayLimits, HourlyRate
from remit_relay.gateway.listener import serve_gateway
from remit_relay.wire import MAX_BODY, PATH, Ack, Put, Welcome, encode_binary, encode_text, read_delivery
from remit_server.transports.credentials.keys import Pair

COUNT, ROUNDS, IDLE = sized((1_500, 4, 5_000), (64, 1, 20))
AT_ONCE = 64
BODY = os.urandom(2_048)
LARGE = 16 * 1024 * 1024
NAME = "bench"
# As many as this benchmark needs: what is measured is the work, not the limits.
ANY = HourlyRate(burst=1e9, per_hour=1e9)
LIMITS = GatewayLimits(
    max_unauthenticated=IDLE,
    address_connections=2 * IDLE,
    address_unauthenticated=IDLE,
    address_attempts=ANY,
    address_devices=ANY,
    frames_per_s=1e9,
    frames_burst=1e9,
    bytes_per_s=1e12,
    bytes_burst=1e12,
    idle_s=600,
)


# ── the two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def serve_remit(folder: Path) -> None:
    def started(url: str) -> None:
        print(url, flush=True)
        asyncio.get_running_loop().add_reader(0, tell_memory)

    await serve_gateway(folder, name=NAME, limits=LIMITS, started=started)


def tell_memory() -> None:
    if sys.stdin.readline():
        print(rss_mb(), flush=True)


async def serve_bare() -> None:
    sockets: dict[str, web.WebSocketResponse] = {}
    other = {"a": "b", "b": "a"}

    async def relay(request: web.Request) -> web.WebSocketResponse:
        socket: web.WebSocketResponse = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        name = request.match_info["name"]
        sockets[name] = socket
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                await sockets[other[name]].send_bytes(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/{name}", relay)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"ws://{host}:{port}", flush=True)
    await asyncio.Event().wait()


# ── the clients ───────────────────────────────────────────────────────────────────────────────────────────────────────


def pair_of(name: str) -> Pair:
    return Pair(sha256(name.encode()).digest())


class Bare:
    """One side of the bare relay."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, body: bytes) -> None:
        await self._socket.send_bytes(body)

    async def receive(self) -> bytes:
        return (await self._socket.receive()).data


class Device:
    """One side of a gateway: it numbers what it sends, and acknowledges what it gets now and then, as a link does."""

    def __init__(self, socket: ClientWebSocketResponse, to: str) -> None:
        self._socket = socket
        self._to = to
        self._number = time.time_ns() // 1_000
        self._unacknowledged = 0

    async def send(self, body: bytes) -> None:
        self._number += 1
        await self._socket.send_bytes(encode_binary(Put(self._to, self._number, body)))

    async def receive(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                break
            assert '"stored"' in message.data, message
        delivery = read_delivery(message.data)
        self._unacknowledged += 1
        if self._unacknowledged == 32:
            self._unacknowledged = 0
            await self._socket.send_str(encode_text(Ack(delivery.place)).decode())
        return delivery.body


class Side(Protocol):
    """Who sends to the other side and hears from it."""

    async def send(self, body: bytes) -> None: ...

    async def receive(self) -> bytes: ...


@asynccontextmanager
async def bare_sides(url: str) -> AsyncGenerator[tuple[Side, Side]]:
    async with ClientSession() as session, session.ws_connect(f"{url}/a") as a, session.ws_connect(f"{url}/b") as b:
        yield Bare(a), Bare(b)


@asynccontextmanager
async def devices(url: str) -> AsyncGenerator[tuple[Side, Side]]:
    async with ClientSession() as session, session.ws_connect(url + PATH) as a, session.ws_connect(url + PATH) as b:
        ids: list[str] = []
        for name, socket in (("a", a), ("b", b)):
            answer = await greet(socket, pair_of(name), gateway=NAME)
            assert isinstance(answer, Welcome), answer
            ids.append(answer.device)
        yield Device(a, ids[1]), Device(b, ids[0])


async def round_trips(a: Side, b: Side, count: int, at_once: int) -> None:
    """Send so many messages there and back, so many at a time."""

    async def back() -> None:
        for _ in range(count):
            await b.send(await b.receive())

    async def there() -> None:
        for _ in range(at_once):
            await a.send(BODY)
        for number in range(count):
            assert await a.receive() == BODY
            if number < count - at_once:
                await a.send(BODY)

    async with asyncio.TaskGroup() as group:
        group.create_task(back())
        group.create_task(there())


async def rates(runs: dict[str, Callable[[], Awaitable[object]]], count: int) -> dict[str, float]:
    """The highest number in a second of each, taken in turns."""
    best = dict.fromkeys(runs, 0.0)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            await run()
            best[name] = max(best[name], count / (time.perf_counter() - start))
    return best


async def compare(url: str, bare_url: str) -> list[Figure]:
    figures: list[Figure] = []
    async with devices(url) as (a, b), bare_sides(bare_url) as (x, y):
        for at_once, count in ((1, COUNT), (AT_ONCE, 4 * COUNT)):
            measured = await rates(
                {
                    "bare": lambda count=count, at_once=at_once: round_trips(x, y, count, at_once),
                    "remit": lambda count=count, at_once=at_once: round_trips(a, b, count, at_once),
                },
                count,
            )
            name = "relay: 2 KB there and back, one after another" if at_once == 1 else f"relay: {at_once} at once"
            # With many at once both are bound by the processor, and the bare relay does none of the writing.
            goal = at_least(0.5 if at_once == 1 else 0.45)
            figures.append(Figure(name=name, value=measured["remit"], unit="1/s", floor=measured["bare"], bound=goal))
    return figures


async def large(url: str) -> Figure:
    """How fast 16 MB go from link to link, in messages of the largest size."""
    chunk = os.urandom(MAX_BODY)
    best = 0.0
    async with (
        GatewayConnection(url, gateway=NAME, key=pair_of("from")) as sender,
        GatewayConnection(url, gateway=NAME, key=pair_of("to")) as receiver,
    ):
        # A device is known once it has connected; this waits until both have.
        await sender.publish(bundle=b"-")
        await receiver.publish(bundle=b"-")
        first = time.time_ns() // 1_000
        for turn in range(ROUNDS):
            start = time.perf_counter()
            for number in range(LARGE // MAX_BODY):
                sender.put(receiver.device, first + turn * 1_000 + number, chunk)
            for _ in range(LARGE // MAX_BODY):
                receiver.acknowledge(await receiver.receive())
            best = max(best, LARGE / 2**20 / (time.perf_counter() - start))
    return Figure(name="relay: 16 MB in 64 messages", value=best, unit="MB/s")


async def idle(url: str, memory: Callable[[], float]) -> Figure:
    """What each connected device that says nothing costs the gateway."""
    before = memory()
    limit = asyncio.Semaphore(200)
    async with ClientSession(connector=TCPConnector(limit=0)) as session, AsyncExitStack() as stack:

        async def connect(name: str) -> None:
            async with limit:
                socket = await stack.enter_async_context(session.ws_connect(url + PATH, autoping=False))
                answer = await greet(socket, pair_of(name), gateway=NAME)
                assert isinstance(answer, Welcome), answer
                assert answer.device == device_id(pair_of(name).public)

        async with asyncio.TaskGroup() as group:
            for number in range(IDLE):
                group.create_task(connect(f"idle-{number}"))
        used = memory() - before
    return Figure(name=f"relay: memory for each of {IDLE:,} idle devices", value=used * 2**10 / IDLE, unit="KB")


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = start([sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def measure() -> list[Figure]:
    # Each side of a connection is a file; what a server may open it inherits from here.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def all_of() -> list[Figure]:
        return [*await compare(url, bare_url), await large(url), await idle(url, memory)]

    with tempfile.TemporaryDirectory() as folder:
        process, url = started("--serve-remit", folder)
        bare_process, bare_url = started("--serve-bare")

        def memory() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            return float(process.stdout.readline())

        try:
            return asyncio.run(all_of())
        finally:
            for one in (process, bare_process):
                one.terminate()
                one.communicate()


if __name__ == "__main__":
    if "--serve-remit" in sys.argv:
        asyncio.run(serve_remit(Path(sys.argv[-1])))
    elif "--serve-bare" in sys.argv:
        asyncio.run(serve_bare())
    else:
        main(measure)
