"""What clients can take from others at the ports of a hub: connections, memory before authentication, and turns.

`/healthz` is asked for over a new connection each time, while silent connections are opened and after; what the idle
server needs in the same run is subtracted. `turns`: how many requests of a flood were answered between the moment when
another user asked and the answer, divided by how many an agent, or the server, works on at once. Beside large bodies it
is the time until the answer, divided by what a body of the flood takes: whatever is finished first, that much was done.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from harness import Figure, at_most, main, sized, start

REMIT = str(Path(sys.executable).with_name("remit"))
WEB, APP = "web-token-of-the-benchmark", "app-token-of-the-benchmark"
CONNECTIONS, MESSAGES, FLOOD = sized((2_000, 240, 1_000), (40, 2, 40))
LARGE = sized(10, 1)
# The connections of all who ask, fewer than a server has: whoever finds none free is refused before anybody knows who
# it is. The flood has most of them.
POOL, FLOODED = 640, 600
SLOTS = 4
MIB = 1024 * 1024
SEND = "/lf.a2a.v1.A2AService/SendMessage"
CROWDS = (
    ("silent", "HTTP", b""),
    ("silent", "gRPC", b""),
    ("half a request", "HTTP", b"GET / HTTP/1.1\r\n"),
    ("greeting", "gRPC", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)),
)
PATIENCE_S = 120.0
TEAM = f"""
[agents.slow]
run = "office:slow"
concurrency = {SLOTS}
[agents.quick]
run = "office:quick"
[serve]
port = 0
[a2a]
grpc_port = 0
[clients.web]
token = "$WEB"
agents = ["*"]
users = ["*"]
[clients.app]
token = "$APP"
agents = ["*"]
users = ["*"]
"""
OFFICE = '''
import asyncio

async def slow(brief):
    """Takes a while."""
    await asyncio.sleep(0.05)
    return "done"

async def quick(brief):
    """Answers at once."""
    return "done"
'''


class Hub:
    """A served team, and its ports."""

    def __init__(self, process: subprocess.Popen[str], address: str, grpc_port: int) -> None:
        self.pid = process.pid
        self.address = address
        self.ports = {"HTTP": int(address.rpartition(":")[2]), "gRPC": grpc_port}

    def health_ms(self) -> float:
        start = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.ports["HTTP"]), timeout=PATIENCE_S) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            if b"alive" not in connection.recv(4_096):
                raise SystemExit("the server does not say that it is alive")
        return (time.perf_counter() - start) * 1e3

    def memory_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


@contextmanager
def served() -> Generator[Hub]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "remit.toml").write_text(TEAM)
        Path(folder, "office.py").write_text(OFFICE)
        environ = {**os.environ, "WEB": WEB, "APP": APP}
        process = start(
            [REMIT, "serve", "--json"],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            with urllib.request.urlopen(f"{address}/a2a/slow/.well-known/agent-card.json") as reply:
                interfaces = json.load(reply)["supportedInterfaces"]
            (url,) = [each["url"] for each in interfaces if each["protocolBinding"] == "GRPC"]
            yield Hub(process, address, int(url.rpartition(":")[2]))
        finally:
            process.kill()
            process.wait()


def crowded(hub: Hub, port: int, first: bytes) -> float:
    """Return the longest wait for `/healthz` while silent connections are opened, and after."""
    waits: list[float] = []
    crowd: list[socket.socket] = []
    try:
        for number in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            crowd.append(connection)
            with suppress(ConnectionError):  # it had to make room already
                connection.send(first)
            if number % 20 == 0:
                waits.append(hub.health_ms())
        waits += [hub.health_ms() for _ in range(50)]
    finally:
        for connection in crowd:
            connection.close()
    return max(waits)


async def unauthenticated_mb(hub: Hub) -> float:
    """Return how much memory large messages without a valid token take at most."""
    before = most = hub.memory_mb()
    body = bytes(4 * MIB - 64)

    async def message() -> AsyncIterator[bytes]:
        yield body

    async def send() -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{hub.ports['gRPC']}", options=options) as channel:
            method: Any = cast("Any", channel).stream_unary(SEND)
            with suppress(grpc.aio.AioRpcError):
                await method(message(), metadata=(("authorization", "Bearer nobody"),), timeout=PATIENCE_S)

    sending = [asyncio.create_task(send()) for _ in range(MESSAGES)]
    while not all(each.done() for each in sending):
        most = max(most, hub.memory_mb())
        await asyncio.sleep(0.01)
    return max(most, hub.memory_mb()) - before


async def turns_beside(hub: Hub, agent: str, at_once: int, *, large: bool = False) -> tuple[float, float]:
    """Return the turns that a user of the same client, and of another, waits beside a flood of one user."""
    count = LARGE if large else FLOOD
    text, small = ("u1@b.co " * 12_500, "u1@b.co " * 2_500) if large else ("x", "x")
    served, begun = 0, asyncio.Event()
    async with ClientSession(
        hub.address, connector=TCPConnector(limit=POOL), timeout=ClientTimeout(PATIENCE_S)
    ) as session:

        async def ask(user: str, token: str, body: str) -> None:
            nonlocal served
            sent = {"target": agent, "user": user, "objective": "x", "input": body}
            for _ in range(20):
                try:
                    async with session.post(
                        "/v1/delegations", json=sent, headers={"authorization": f"Bearer {token}"}
                    ) as reply:
                        await reply.read()
                        if reply.status == 200:
                            served += 1
                            if served >= FLOOD // 10:
                                begun.set()
                            return
                except ClientError:
                    pass  # there are more than the server accepts
                await asyncio.sleep(1)

        async def wait(user: str, token: str) -> float:
            before, start = served, time.perf_counter()
            await ask(user, token, small)
            return time.perf_counter() - start if large else (served - before - 1) / at_once

        pool = asyncio.Semaphore(FLOODED)

        async def pour() -> None:
            async with pool:
                await ask("flood", WEB, text)

        if large:
            await ask("flood", WEB, small)  # the detectors are loaded for the first
        poured = time.perf_counter()
        flood = [asyncio.create_task(pour()) for _ in range(count)]
        if large:
            await asyncio.sleep(0.2)
        else:
            await begun.wait()
        asking = asyncio.create_task(wait("anna", WEB)), asyncio.create_task(wait("ben", APP))
        waits = [await each for each in asking]
        if large:
            await asyncio.wait(flood)
            bodies = count + 2 * len(small) / len(text)
            waits = [each / ((time.perf_counter() - poured) / bodies) for each in waits]
        for each in flood:
            each.cancel()
        await asyncio.wait(flood)
    return waits[0], waits[1]


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for name, door, first in CROWDS[: sized(None, 1)]:
        with served() as hub:
            idle = max(hub.health_ms() for _ in range(100))
            before = hub.memory_mb()
            wait = crowded(hub, hub.ports[door], first)
            figures += [
                Figure(
                    name=f"doors: /healthz beside {CONNECTIONS:,} connections to {door}, {name}",
                    value=max(0.0, wait - idle),
                    unit="ms",
                    bound=at_most(100),
                ),
                Figure(
                    name=f"doors: memory of {CONNECTIONS:,} connections to {door}, {name}",
                    value=hub.memory_mb() - before,
                    unit="MB",
                    bound=at_most(64),
                ),
            ]
    with served() as hub:
        taken = asyncio.run(unauthenticated_mb(hub))
    name = f"doors: memory of {MESSAGES} messages of 4 MiB without a token"
    figures.append(Figure(name=name, value=taken, unit="MB", bound=at_most(64)))
    # 16 requests are admitted at once; long work is done one after another.
    floods = (("quick", 1, True), ("slow", SLOTS, False), ("quick", 16, False))
    for agent, at_once, large in floods[: sized(None, 2)]:
        with served() as hub:
            same, other = asyncio.run(turns_beside(hub, agent, at_once, large=large))
        what = f"{LARGE} bodies of 100 kB" if large else f"{FLOOD:,} requests of one user to a {agent} agent"
        for who, turns in (("a user of the same client", same), ("another client", other)):
            figures.append(Figure(name=f"doors: {who} beside {what}", value=turns, unit="turns", bound=at_most(3)))
    return figures


if __name__ == "__main__":
    main(measure)
