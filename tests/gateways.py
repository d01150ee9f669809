"""Gateways, devices and bad networks, for the tests of the relay.

As a program: a process that starts and kills gateways on demand (`GatewayProcess`).
"""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from remit.stores.connection import connect_reader
from remit_relay.client.connection import GatewayConnection, ReconnectDelays
from remit_relay.client.handshake import greet
from remit_relay.device.identity import device_id
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.listener import GatewayListener, serve_gateway
from remit_relay.gateway.postgres.store import PostgresGatewayStore
from remit_relay.gateway.server import FILE, Gateway
from remit_relay.wire import (
    PATH,
    Bye,
    Delivery,
    FromDevice,
    FromGateway,
    Put,
    Welcome,
    encode_binary,
    encode_text,
    read_delivery,
    read_from_gateway,
)
from remit_server.transports.credentials.keys import Pair, is_signed
from waiting import PATIENCE_S

NAME = "relay.example"
QUICK = ReconnectDelays(first_s=0.002, most_s=0.02)


def pair_of(name: str) -> Pair:
    """The same key for the same name."""
    return Pair(hashlib.sha256(name.encode()).digest())


def id_of(name: str) -> str:
    return device_id(pair_of(name).public)


def code_of(kind: type[Any], frame: Any) -> str:
    """The code of a frame, which must be of that kind."""
    assert isinstance(frame, kind), frame
    return str(frame.code)


@asynccontextmanager
async def gateway_at(
    folder: Path, limits: GatewayLimits | None = None, **options: Any
) -> AsyncGenerator[GatewayListener]:
    async with GatewayListener(Gateway(folder, name=NAME, limits=limits, **options)) as serving:
        yield serving


def link_to(url: str, name: str, **options: Any) -> GatewayConnection:
    settings: dict[str, Any] = {"pauses": QUICK, **options}
    return GatewayConnection(url, gateway=NAME, key=pair_of(name), **settings)


class Client:
    """A device that speaks the wire by hand."""

    def __init__(self, socket: ClientWebSocketResponse, answer: Welcome | Bye) -> None:
        self.socket = socket
        self.answer = answer

    async def put(self, to: str, number: int, body: bytes, *, anew: bool = False) -> None:
        await self.socket.send_bytes(encode_binary(Put(to, number, body, anew)))

    async def say(self, frame: FromDevice) -> None:
        await self.socket.send_str(encode_text(frame).decode())

    async def hear(self) -> FromGateway | Delivery | None:
        """The next frame; None once the gateway has closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            message = await self.socket.receive()
        if message.type is WSMsgType.TEXT:
            return read_from_gateway(message.data)
        if message.type is WSMsgType.BINARY:
            return read_delivery(message.data)
        assert message.type is not WSMsgType.PONG
        return None

    async def hear_many(self, count: int) -> list[FromGateway | Delivery | None]:
        return [await self.hear() for _ in range(count)]


@asynccontextmanager
async def client_at(url: str, name: str) -> AsyncGenerator[Client]:
    async with ClientSession() as session, session.ws_connect(url + PATH, max_msg_size=2**20) as socket:
        yield Client(socket, await greet(socket, pair_of(name), gateway=NAME))


class Proxy:
    """A network between devices and their gateway that can be cut, stalled, or lose the end of what it carries."""

    def __init__(self, url: str) -> None:
        self.target = url
        self.carried: list[bytes] = []
        self.keep = False
        self._flows: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._left: int | None = None

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"ws://{host}:{port}"

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._flowing.set()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection at once."""
        for ends in list(self._flows):
            for end in ends:
                end.transport.abort()

    def truncate(self, size: int) -> None:
        """Carry only so many bytes more, then cut."""
        self._left = size

    def stall(self) -> None:
        """Carry nothing, and close nothing."""
        self._flowing.clear()

    def flow(self) -> None:
        self._left = None
        self._flowing.set()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.target.removeprefix("ws://").split(":")
        return await asyncio.open_connection(host, int(port))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        flow = (writer, far_writer)
        self._flows.add(flow)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer))
                group.create_task(self._carry(far_reader, writer))
        finally:
            self._flows.discard(flow)
            for end in flow:
                end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                if self.keep:
                    self.carried.append(data)
                if self._left is not None:
                    data, self._left = data[: self._left], max(0, self._left - len(data))
                    if not self._left:
                        writer.write(data)
                        self._left = None
                        self.cut()
                        return
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Balancer(Proxy):
    """A network in front of several gateways: each connection goes to the next one that is there."""

    def __init__(self) -> None:
        super().__init__("")
        self.targets: dict[int, str] = {}
        self._next = 0

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        targets = [url for _, url in sorted(self.targets.items())]
        for _ in targets:
            self._next += 1
            host, port = targets[self._next % len(targets)].removeprefix("ws://").split(":")
            with suppress(OSError):
                return await asyncio.open_connection(host, int(port))
        raise ConnectionRefusedError


# ── gateways that die ─────────────────────────────────────────────────────────────────────────────────────────────────


class GatewayProcess:
    """A gateway that is killed and started again; the networks of its devices find the new one.

    It is the fork of a process that has everything loaded, and so there in 20 ms; a new one would take half a second.
    *store* is its folder, or the address of a database.
    """

    def __init__(self, store: Path | str) -> None:
        self._store = store
        self.networks: list[Proxy] = []

    async def __aenter__(self) -> "GatewayProcess":
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = (sys.executable, __file__, str(self._store))
        self._parent = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._parent.stdin
        self._parent.stdin.close()
        await self._parent.wait()

    async def start(self) -> str:
        url = await self._tell("start")
        for network in self.networks:
            network.target = url
        return url

    async def stop(self, how: signal.Signals) -> None:
        """Return once it is dead."""
        assert await self._tell(how.name) == "dead"

    async def pause(self) -> None:
        assert await self._tell("SIGSTOP") == "done"

    async def resume(self) -> None:
        assert await self._tell("SIGCONT") == "done"

    async def _tell(self, command: str) -> str:
        assert self._parent.stdin
        assert self._parent.stdout
        self._parent.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            return (await self._parent.stdout.readline()).decode().strip()


def run_gateway(store: str, started: int) -> None:
    # Small windows and queues, so that full ones and pages from the file are part of what is interrupted.
    limits = GatewayLimits(
        window_messages=8, sender_messages=40, full_retry_ms=2, back_ms=1, frames_per_s=1e9, frames_burst=1e9
    )

    def tell(url: str) -> None:
        os.write(started, url.encode())
        os.close(started)

    async def serve() -> None:
        used = PostgresGatewayStore(store) if store.startswith("postgresql:") else Path(store)
        # A killed process loses nothing that it has written, so the disk need not be waited for.
        await serve_gateway(used, name=NAME, limits=limits, durability="process", started=tell)

    asyncio.run(serve())


def start_and_kill(store: str) -> None:
    """Obey the commands of a `GatewayProcess` until there are no more."""
    # What is loaded at first use is loaded here, once for all.
    assert not is_signed(pair_of("a").public, pair_of("b").sign(b""), b"")
    child = 0
    for line in sys.stdin:
        if line == "start\n":
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                run_gateway(store, writer)
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                print(pipe.read(), flush=True)
        elif line in ("SIGSTOP\n", "SIGCONT\n"):
            os.kill(child, signal.Signals[line.strip()])
            print("done", flush=True)
        else:
            os.kill(child, signal.Signals[line.strip()])
            os.waitpid(child, 0)
            child = 0
            print("dead", flush=True)
    if child:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    start_and_kill(sys.argv[1])


def rows(folder: Path, statement: str) -> list[tuple[object, ...]]:
    """What a gateway's file holds, once the gateway is closed."""
    connection = connect_reader(folder / FILE, busy_seconds=1)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()
