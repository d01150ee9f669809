"""A thousand event streams that are open at once in one server process: what each takes of its memory, and whether all
of them tell everything once.

The runs wait until all streams are open; then each gets some events and its end. The floor is a Starlette endpoint
under the same server, asked by the same client, that has nothing behind it and sends events of the same size. It is
measured in the same run, and both servers are processes of their own.
"""

import asyncio
import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector

from harness import Figure, main, rss_mb, sized, start
from remit.protocol.codec import encode

# Imports, pools and the buffers of the store are there before the first stream that counts.
STREAMS, FIRST = sized((1_000, 50), (10, 2))
# A run that is read along says this often how far it is, and speaks as often; then it ends.
STEPS = 10
TOKEN = "bench"
BODY = {"target": "waiter", "user": "u", "objective": "Say how far it is", "input": "x" * 400}
# Besides the streams: the store, the pipes, and whatever else a process has open.
OTHER_FILES = 200
DEADLINE_S = 120.0


def allow_files() -> None:
    """Let this process have as many files open as there are streams; many systems give 1,024 unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = STREAMS + OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"{STREAMS} streams need {wanted} open files, and this system allows {hard}: see `ulimit -Hn`")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# ── the two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def obey(go: asyncio.Event) -> None:
    """Do what the measuring process says: tell the memory, let the streams go on, hold the next ones."""
    while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if word == "memory":
            gc.collect()
            print(rss_mb(), flush=True)
        elif word == "go":
            go.set()
        else:
            go.clear()


async def serve_hub(folder: Path) -> None:
    from remit import Brief, Hub
    from remit.runtime.clock import LoopClock
    from remit_server.app import Api
    from remit_server.server import Server
    from remit_server.transports.credentials.incoming import Authenticator, KnownSender

    hub, go = Hub(store=folder / "hub.db"), asyncio.Event()

    @hub.agent("waiter", concurrency=STREAMS)
    async def waiter(brief: Brief) -> str:
        await go.wait()
        for number in range(STEPS):
            brief.progress(f"step {number}")
            brief.say(f"word {number} ")
            await asyncio.sleep(0)
        return brief.text

    assert waiter
    async with hub:
        door = Authenticator(
            [KnownSender(name="client", token=TOKEN, users=frozenset({"u"}))], wall_ms=LoopClock().wall_ms
        )
        async with Server(Api(hub, door), port=0, connections=STREAMS + OTHER_FILES) as server:
            print(server.address, flush=True)
            await obey(go)


async def serve_bare() -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    from remit_server.server import Server

    go = asyncio.Event()

    def event(kind: str, text: str, number: int = 0) -> str:
        return f"id: {number}\nevent: {kind}\ndata: {encode({'body': {'text': text}, 'more': 'x' * 200}).decode()}\n\n"

    async def steps_as_events() -> AsyncIterator[str]:
        yield event("request", "", 1)
        await go.wait()
        for number in range(STEPS):
            yield event("progress", f"step {number}", 2 + number) + event("delta", f"word {number} ")
        yield event("result", BODY["input"], 2 + STEPS)

    async def stream(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(steps_as_events(), media_type="text/event-stream")

    class Bare:
        app = Starlette(routes=[Route("/v1/delegations", stream, methods=["POST"])])

        hurried = asyncio.Event()

        async def open(self) -> None: ...

        async def drain(self, wait_s: float) -> int:  # noqa: ARG002 - of the port
            return 0

    async with Server(Bare(), port=0, connections=STREAMS + OTHER_FILES) as server:
        print(server.address, flush=True)
        await obey(go)


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Server:
    """A server process, and what it is told."""

    def __init__(self, *arguments: str) -> None:
        self.process = start(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def memory_kb(self) -> float:
        self.tell("memory")
        return float(self._line()) * 1_024

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


class Body(msgspec.Struct):
    text: str = ""


class Told(msgspec.Struct):
    body: Body


class ReceivedStream(msgspec.Struct):
    """What one stream has told so far."""

    numbers: list[int] = []
    kinds: list[str] = []
    progress: list[str] = []
    words: list[str] = []

    def take(self, raw: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in raw.decode().split("\n") if not line.startswith(":"))
        if not fields:
            return  # a sign of life
        if fields["event"] != "delta":
            self.numbers.append(int(fields["id"]))
            self.kinds.append(fields["event"])
        text = msgspec.json.decode(fields["data"], type=Told).body.text
        if fields["event"] == "progress":
            self.progress.append(text)
        elif fields["event"] == "delta":
            self.words.append(text)

    def wrong(self) -> str:
        """Return what was lost, repeated or out of order; empty if nothing was."""
        if self.numbers != sorted(set(self.numbers)):
            return f"numbers {self.numbers}"
        if self.progress != [f"step {number}" for number in range(STEPS)]:
            return f"progress {self.progress}"
        if "".join(self.words) != "".join(f"word {number} " for number in range(STEPS)):
            return f"words {self.words}"
        if self.kinds.count("result") != 1 or self.kinds[-1] != "result":
            return f"ends with {self.kinds[-3:]}"
        return ""


async def read(reply: ClientResponse, received: ReceivedStream, opened: asyncio.Event) -> None:
    rest = b""
    async for part in reply.content.iter_any():
        *whole, rest = (rest + part).split(b"\n\n")
        for raw in whole:
            received.take(raw)
        if received.numbers:
            opened.set()
    assert not rest, rest


class Measured(msgspec.Struct):
    """What one server took for all its streams."""

    before_kb: float
    open_kb: float
    after_kb: float
    events_per_s: float

    @property
    def stream_kb(self) -> float:
        return (self.open_kb - self.before_kb) / STREAMS


async def stream(server: Server, count: int) -> tuple[float, float]:
    """Open streams, read all to their ends, check each; return the memory while all were open, and the rate."""
    streams = [ReceivedStream() for _ in range(count)]
    opened = [asyncio.Event() for _ in range(count)]
    runs = [""] * count
    headers = {"authorization": f"Bearer {TOKEN}", "accept": "text/event-stream", "content-type": "application/json"}
    connector, patience = TCPConnector(limit=0), ClientTimeout(total=None)
    begun = time.time_ns()
    async with ClientSession(server.url, headers=headers, connector=connector, timeout=patience) as session:

        async def one(number: int) -> None:
            body = encode(BODY | {"id": f"{begun}-{number}"})
            async with session.post("/v1/delegations", data=body) as reply:
                assert reply.status == 200, await reply.text()
                runs[number] = reply.headers.get("location", "")
                await read(reply, streams[number], opened[number])

        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))
            for event in opened:
                await event.wait()
            memory_kb = await asyncio.to_thread(server.memory_kb)
            assert not any(each.progress for each in streams), "some did not wait"
            start = time.perf_counter()
            server.tell("go")
        took_s = time.perf_counter() - start
        server.tell("hold")
        for run, each in zip(runs, streams, strict=True):
            if run:
                # What is on record, told from its beginning, is what was heard.
                again = ReceivedStream()
                async with session.get(f"{run}/events") as reply:
                    await read(reply, again, asyncio.Event())
                assert (again.numbers, again.kinds) == (each.numbers, each.kinds), run
    wrong = [why for each in streams if (why := each.wrong())]
    assert not wrong, f"{len(wrong)} of {count} streams are wrong, the first: {wrong[0]}"
    return memory_kb, sum(len(each.numbers) + len(each.words) for each in streams) / took_s


async def measured(server: Server) -> Measured:
    await stream(server, FIRST)
    before_kb = server.memory_kb()
    open_kb, rate = await stream(server, STREAMS)
    return Measured(before_kb=before_kb, open_kb=open_kb, after_kb=server.memory_kb(), events_per_s=rate)


def measure() -> list[Figure]:
    allow_files()
    results: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("bare", "hub"):
            server = Server(f"--serve-{kind}", folder)
            try:
                results[kind] = asyncio.run(measured(server))
            finally:
                server.end()
    hub, bare = results["hub"], results["bare"]
    name = f"streams: {STREAMS:,} at once"
    return [
        Figure(name=f"{name}, memory of each", value=hub.stream_kb, floor=bare.stream_kb, unit="kB"),
        Figure(name=f"{name}, events", value=hub.events_per_s, floor=bare.events_per_s, unit="1/s"),
        Figure(name=f"{name}, server before", value=hub.before_kb / 1_024, floor=bare.before_kb / 1_024, unit="MB"),
        Figure(name=f"{name}, server with all open", value=hub.open_kb / 1_024, floor=bare.open_kb / 1_024, unit="MB"),
        Figure(name=f"{name}, server after", value=hub.after_kb / 1_024, floor=bare.after_kb / 1_024, unit="MB"),
    ]


if __name__ == "__main__":
    allow_files()
    if "--serve-hub" in sys.argv:
        asyncio.run(serve_hub(Path(sys.argv[-1])))
    elif "--serve-bare" in sys.argv:
        asyncio.run(serve_bare())
    else:
        main(measure)
