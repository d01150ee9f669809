"""What streams cost a server that nobody reads: clients ask, and never take what they are told.

Each run says far more than the buffers of a connection hold. The figure is what the server's memory has grown by at its
highest, for each such client.
"""

import asyncio
import gc
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Figure, at_most, main, rss_mb, sized
from remit.protocol.codec import encode

# One run says 8 MB. Imports, pools and the buffers of the store are there before the first client that counts.
CLIENTS, PIECES, FIRST = sized((100, 2_000, 5), (3, 200, 1))
PIECE = "some words of an answer that goes on and on " * 93
TOKEN = "bench"
MOST_MB = at_most(0.5)
PATIENCE_S = 300.0


async def serve(folder: Path) -> None:
    from remit import Brief, Hub
    from remit.runtime.clock import LoopClock
    from remit_server.app import Api
    from remit_server.server import Server
    from remit_server.transports.credentials.incoming import Authenticator, KnownSender

    hub = Hub(store=folder / "hub.db", redaction=False)

    @hub.agent("talker", concurrency=CLIENTS)
    async def talker(brief: Brief) -> str:
        for _ in range(PIECES):
            brief.say(PIECE)
            await asyncio.sleep(0)
        return "done"

    assert talker
    async with hub:
        door = Authenticator(
            [KnownSender(name="client", token=TOKEN, users=frozenset({"u"}))], wall_ms=LoopClock().wall_ms
        )
        async with Server(Api(hub, door), port=0, connections=CLIENTS + FIRST + 10) as server:
            print(server.address, flush=True)
            while (await asyncio.to_thread(sys.stdin.readline)).strip():
                gc.collect()
                standing = hub.agent_status()["talker"]
                print(rss_mb(), standing.running + standing.queued, flush=True)


class Server:
    """The server's process, and what it says of itself."""

    def __init__(self, folder: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        host, _, port = self._line().removeprefix("http://").partition(":")
        self.address = (host, int(port))

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def look(self) -> tuple[float, int]:
        """Return its memory in MB, and how many runs have not ended."""
        assert self.process.stdin is not None
        self.process.stdin.write("look\n")
        self.process.stdin.flush()
        memory, busy = self._line().split()
        return float(memory), int(busy)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def ask(address: tuple[str, int]) -> socket.socket:
    """Ask for a stream, and read no more than that it begins."""
    body = encode({"target": "talker", "user": "u", "objective": "Tell me everything"})
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(PATIENCE_S)
    client.connect(address)
    head = (
        f"POST /v1/delegations HTTP/1.1\r\nhost: {address[0]}\r\nauthorization: Bearer {TOKEN}\r\n"
        f"accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    client.sendall(head.encode() + body)
    assert client.recv(12) == b"HTTP/1.1 200", "the server streams nothing"
    return client


def highest(server: Server, count: int) -> float:
    """Return the highest memory of the server while so many clients read nothing, and all their runs come to an end."""
    clients = [ask(server.address) for _ in range(count)]
    most, until = 0.0, time.monotonic() + PATIENCE_S
    while True:
        memory, busy = server.look()
        most = max(most, memory)
        if not busy:
            break
        assert time.monotonic() < until, f"{busy} runs do not end"
        time.sleep(0.05)
    for client in clients:
        client.close()
    return most


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        try:
            highest(server, FIRST)
            before, _ = server.look()
            most = highest(server, CLIENTS)
        finally:
            server.end()
    name = f"streams that nobody reads: {CLIENTS} at once, memory of each"
    return [Figure(name=name, value=(most - before) / CLIENTS, unit="MB", bound=MOST_MB)]


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve(Path(sys.argv[-1])))
    else:
        main(measure)
