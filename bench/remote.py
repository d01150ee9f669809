"""A delegation to another process over HTTP, all guards and records on both sides, against a bare echo of its bodies.

The floor is a Starlette application under the same server, asked by the same client with the bodies that a delegation
sends, and answering with those that it gets back. Both ends are one process each, in both.

A second floor is the same echo with the three commits that a delegation waits for: its caller's record before anything
leaves, and at the callee's the request before it begins and the answer before it is given.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness import Figure, at_least, cpu_seconds, main, sized, start
from remit import Answer, Brief, Capability, Hub, Limits
from remit.ports import AcceptedRequest, OutgoingRequest
from remit.protocol.codec import encode
from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.protocol.remit import Remit
from remit.runtime.clock import LoopClock
from remit.stores.sqlite import SqliteStore
from remit_server import connect
from remit_server.server import fast_loop
from remit_server.transports.credentials.keys import HubKey
from remit_server.transports.credentials.outgoing import Addressee, CredentialHeaders
from remit_server.transports.http import HubPeer

COUNT, ROUNDS = sized((1_500, 4), (64, 1))
AT_ONCE = 64
TOKEN = "bench"
NOW_MS = 1_794_744_000_000

REQUEST = Request(
    version=VERSION,
    id="019a7b3c4d5e0f1a2b3c4d5e6f708192.1",
    origin="a",
    target="echo",
    remit=Remit(user="u", depth=1, max_depth=5, time_ms=29_000, tokens=8_000, chain=("a@caller",)),
    objective="Say it again",
    input="Coffee 4.20, train 59.00, paper 12.40",
    run="019a7b3c4d5e0f1a2b3c4d5e6f708192",
    parent="019a7b3c4d5e0f1a2b3c4d5e6f708192",
    session="019a7b3c4d5e0f1a2b3c4d5e6f708192.1",
    parent_session="019a7b3c4d5e0f1a2b3c4d5e6f708192",
    created_ms=1_794_744_000_000,
)
READING = Capability(code="ECHO", read_only=True)
RESPONSE = Response(
    version=VERSION,
    id=REQUEST.id,
    target="echo",
    status=Status.SUCCESS,
    run=REQUEST.run,
    session=f"{REQUEST.session}@caller",
    result=REQUEST.input,
)


# ── the two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def serve_hub(folder: Path) -> None:
    from remit_server.app import Api
    from remit_server.server import Server
    from remit_server.transports.credentials.incoming import Authenticator, KnownSender

    hub = Hub(name="callee", store=folder / "callee.db")

    @hub.agent("echo", capabilities=[READING])
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with hub:
        theirs, mine = (HubKey.load(folder / f"{name}.key") for name in ("caller", "callee"))
        known = KnownSender(name="caller", is_hub=True, token=TOKEN, keys=(theirs.signing(NOW_MS).public,))
        # As a team makes it: a proof is taken once by all that share the store.
        door = Authenticator([known], key=lambda: mine, count=hub.store.incr, wall_ms=LoopClock().wall_ms)
        async with Server(Api(hub, door), port=0) as server:
            print(server.address, flush=True)
            await asyncio.Event().wait()


async def serve_bare(records: Path | None = None) -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request as Asked
    from starlette.responses import Response as Reply
    from starlette.routing import Route

    from remit_server.server import Server

    given = encode(RESPONSE)

    async def echo(request: Asked) -> Reply:
        await request.body()
        return Reply(given, media_type="application/json")

    numbers = count()

    async def recording_echo(request: Asked) -> Reply:
        await request.body()
        run = f"{next(numbers):032x}"
        accepted = await store.submit(replace(REQUEST, id=run, run=run), bytes(32), worker="w", lease_ms=30_000)
        assert isinstance(accepted, AcceptedRequest)
        await store.finish(run, accepted.epoch, replace(RESPONSE, id=run, run=run), 0)
        return Reply(given, media_type="application/json")

    store = SqliteStore((records or Path()) / "echo.db")
    if records is not None:
        await store.open()

    class Bare:
        app = Starlette(routes=[Route("/v1/delegations", recording_echo if records else echo, methods=["POST"])])

        hurried = asyncio.Event()

        async def open(self) -> None: ...

        async def drain(self, wait_s: float) -> int:  # noqa: ARG002 - of the port
            return 0

    async with Server(Bare(), port=0) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def bare(url: str, count: int, at_once: int, store: SqliteStore | None = None) -> None:
    """Send the bodies and read what comes back, and nothing else; with a store, after a record of each is durable."""
    peer = HubPeer(url, token=TOKEN)
    body, placed = encode(REQUEST), replace(REQUEST, traceparent=f"00-{REQUEST.run}-{'a' * 16}-01")
    headers = await peer.headers(placed, OutgoingRequest("POST", "/v1/delegations", body))

    async def some() -> None:
        for _ in range(count // at_once):
            if store is not None:
                store.append(Kind.STARTED, 0, REQUEST.run, REQUEST.run, REQUEST)
                await store.flush()
            async with peer.session.post(f"{peer.url}/v1/delegations", data=body, headers=headers) as reply:
                assert reply.status == 200
                await reply.read()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(some())
    finally:
        await peer.close()


def caller(folder: Path, url: str) -> Hub:
    hub = Hub(
        name="caller",
        store=folder / "caller.db",
        limits=Limits(max_fan_out=AT_ONCE, max_agent_delegations=10**9, max_delegations=10**9, root_tokens=10**9),
    )
    connect(hub, "echo", url, token=TOKEN, capabilities=[READING])
    mine, theirs = (HubKey.load(folder / f"{name}.key") for name in ("caller", "callee"))
    papers = CredentialHeaders(key=lambda: mine, wall_ms=LoopClock().wall_ms)
    callee = Addressee(name="callee", keys=(theirs.signing(NOW_MS).public,))
    connect(hub, "signed", url, remote="echo", credential=papers.credential(callee))

    @hub.agent("a", may_call=["echo", "signed"])
    async def a(brief: Brief) -> Answer:
        target, count_text, *capability = brief.objective.split()
        at_once = int(count_text)
        done = 0

        async def some(first: int) -> None:
            nonlocal done
            for number in range(first, brief.input, at_once):
                reply = await brief.delegate(
                    target,
                    objective=f"Say it again {number}",
                    input=REQUEST.input,
                    capability=capability[0] if capability else None,
                )
                if not reply.ok:
                    raise RuntimeError(str(reply.fault))
                done += 1

        async with asyncio.TaskGroup() as group:
            for first in range(at_once):
                group.create_task(some(first))
        return Answer(done)

    assert a
    return hub


async def delegate(hub: Hub, target: str, count: int, at_once: int, capability: str = "") -> None:
    """Have an agent delegate so often; what did not happen was not fast."""
    done = (await hub.ask("a", f"{target} {at_once} {capability}", user="u", input=count)).unwrap()
    assert done == count, f"{done} of {count}"


class Served(NamedTuple):
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str


class Run(NamedTuple):
    """What is measured: a number of requests, and the process that answers them."""

    run: Callable[[], Awaitable[object]]
    server: int


class Rate(NamedTuple):
    """The highest number of requests in a second, and the least CPU time of both processes for one, in microseconds."""

    per_second: float = 0.0
    cpu_us: float = float("inf")


async def rates(runs: dict[str, Run], count: int) -> dict[str, Rate]:
    """The best of each, taken in turns."""
    best_rates = dict.fromkeys(runs, Rate())
    for _ in range(ROUNDS):
        for name, (run, server) in runs.items():
            start, cpu = time.perf_counter(), cpu_seconds() + cpu_seconds_of(server)
            await run()
            per_second = count / (time.perf_counter() - start)
            cpu_us = (cpu_seconds() + cpu_seconds_of(server) - cpu) / count * 1e6
            best = best_rates[name]
            best_rates[name] = Rate(max(best.per_second, per_second), min(best.cpu_us, cpu_us))
    return best_rates


def cpu_seconds_of(process: int) -> float:
    """CPU time of another process so far, all threads together; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0.0
    # How Linux numbers the CPU clock of a process: `MAKE_PROCESS_CPUCLOCK` with `CPUCLOCK_SCHED`.
    return time.clock_gettime(~process << 3 | 2)


async def compare(folder: Path, callee: Served, echo: Served, recorder: Served) -> list[Figure]:
    figures: list[Figure] = []
    store = SqliteStore(folder / "asker.db")
    await store.open()
    async with caller(folder, callee.url) as hub:
        for at_once in (1, AT_ONCE):
            count = COUNT if at_once > 1 else COUNT // 3
            count -= count % at_once
            measured = await rates(
                {
                    "bare": Run(partial(bare, echo.url, count, at_once), echo.process.pid),
                    "recording": Run(partial(bare, recorder.url, count, at_once, store), recorder.process.pid),
                    "hub": Run(partial(delegate, hub, "echo", count, at_once), callee.process.pid),
                    "reading": Run(partial(delegate, hub, "echo", count, at_once, READING.code), callee.process.pid),
                    "signed": Run(partial(delegate, hub, "signed", count, at_once), callee.process.pid),
                },
                count,
            )
            name = "http delegations, one after another" if at_once == 1 else f"http delegations, {at_once} at once"
            rate, floor = measured["hub"].per_second, measured["bare"].per_second
            goal = at_least(0.18 if at_once == 1 else 0.3)
            figures.append(Figure(name=name, value=rate, unit="1/s", floor=floor, bound=goal))
            reading = f"{name}, read-only"
            figures.append(
                Figure(name=reading, value=measured["reading"].per_second, unit="1/s", floor=floor, bound=goal)
            )
            against = f"{name}, against an echo that commits as often"
            figures.append(Figure(name=against, value=rate, unit="1/s", floor=measured["recording"].per_second))
            signed = f"{name}, signed, against a token"
            figures.append(Figure(name=signed, value=measured["signed"].per_second, unit="1/s", floor=rate))
            # On a machine that others use too, this says more than the rate.
            cpu = f"{name}, CPU time of both processes for one"
            figures.append(Figure(name=cpu, value=measured["hub"].cpu_us, unit="µs", floor=measured["bare"].cpu_us))
            cpu = f"{reading}, CPU time of both processes for one"
            figures.append(Figure(name=cpu, value=measured["reading"].cpu_us, unit="µs", floor=measured["bare"].cpu_us))
    await store.close()
    return figures


def make_keys(folder: Path) -> None:
    """Make the keys by which the two hubs know each other."""
    for name in ("caller", "callee"):
        HubKey.create(NOW_MS).save(folder / f"{name}.key")


def started(*arguments: str) -> Served:
    process = start([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return Served(process, process.stdout.readline().strip())


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        make_keys(Path(folder))
        servers = [started(f"--serve-{name}", folder) for name in ("hub", "bare", "recording")]
        try:
            return asyncio.run(compare(Path(folder), *servers))
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    if "--serve-hub" in sys.argv:
        with asyncio.Runner(loop_factory=fast_loop(tls=False)) as runner:  # as `remit serve` does
            runner.run(serve_hub(Path(sys.argv[-1])))
    elif "--serve-bare" in sys.argv:
        asyncio.run(serve_bare())
    elif "--serve-recording" in sys.argv:
        asyncio.run(serve_bare(Path(sys.argv[-1])))
    else:
        main(measure)
