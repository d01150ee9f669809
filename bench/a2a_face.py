"""A message by A2A to an echo agent: our face, with all guards and everything recorded, against a2a-sdk's own server.

Each server is a process of its own, with the same agent; the same client sends the same bodies to both. (This file is
not called `a2a`, because the SDK is.)
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector

from harness import Figure, at_least, main, sized, start
from remit.protocol.codec import encode

COUNT, ROUNDS = sized((1_200, 4), (64, 1))
AT_ONCE = 64
TOKEN = "bench"
TEXT = "Coffee 4.20, train 59.00, paper 12.40"


# ── the two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def serve_hub(folder: Path) -> None:
    from remit import Brief, Hub
    from remit.runtime.clock import LoopClock
    from remit_server.a2a.routes import Exposure
    from remit_server.app import Api
    from remit_server.server import Server
    from remit_server.transports.credentials.incoming import Authenticator, KnownSender

    hub = Hub(store=folder / "hub.db")

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with hub:
        door = Authenticator(
            [KnownSender(name="client", token=TOKEN, users=frozenset({"u"}))], wall_ms=LoopClock().wall_ms
        )
        async with Server(Api(hub, door, a2a=Exposure()), port=0) as server:
            print(f"{server.address}/a2a/echo", flush=True)
            await asyncio.Event().wait()


async def serve_sdk() -> None:
    import logging

    import uvicorn
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
    from a2a.types import a2a_pb2 as pb
    from starlette.applications import Starlette

    logging.disable(logging.CRITICAL)

    class Echo(AgentExecutor):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            assert context.task_id is not None
            assert context.context_id is not None
            assert context.message is not None
            status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
            task = pb.Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.add_artifact([pb.Part(text=context.get_user_input())])
            await updater.complete()

        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            raise NotImplementedError

    card = pb.AgentCard(name="echo", capabilities=pb.AgentCapabilities(streaming=True))
    handler = DefaultRequestHandler(Echo(), InMemoryTaskStore(), card)
    routes: list[Any] = list(create_jsonrpc_routes(handler, "/rpc"))
    # As fast as uvicorn can be, as the hub's server is, and as patient with connections that are idle.
    config = uvicorn.Config(
        Starlette(routes=routes),
        port=0,
        log_config=None,
        access_log=False,
        lifespan="off",
        http="httptools",
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve(None))  # pyright: ignore[reportPrivateUsage]
    while not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.005)
    host, port = server.servers[0].sockets[0].getsockname()
    print(f"http://{host}:{port}/rpc", flush=True)
    await serving


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def ask(session: ClientSession, url: str, count: int, at_once: int, *, method: str) -> None:
    """Send messages, and see that each was answered."""
    begun = time.perf_counter_ns()

    async def some(first: int) -> None:
        for number in range(first, count, at_once):
            message = {"messageId": f"{begun}-{number}", "role": "ROLE_USER", "parts": [{"text": TEXT}]}
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"message": message}}
            async with session.post(url, data=encode(body)) as reply:
                given = await reply.read()
            assert b"TASK_STATE_COMPLETED" in given, given[:500]
            assert TEXT.encode() in given

    async with asyncio.TaskGroup() as group:
        for first in range(at_once):
            group.create_task(some(first))


async def rates(runs: dict[str, Callable[[], Awaitable[object]]], count: int) -> dict[str, float]:
    """The highest number in a second of each, taken in turns."""
    best = dict.fromkeys(runs, 0.0)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            await run()
            best[name] = max(best[name], count / (time.perf_counter() - start))
    return best


async def compare(hub_url: str, sdk_url: str) -> list[Figure]:
    figures: list[Figure] = []
    headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0", "content-type": "application/json"}
    async with ClientSession(headers=headers, connector=TCPConnector(limit=0)) as session:
        for method, kind in (("SendMessage", "messages"), ("SendStreamingMessage", "streams")):
            for at_once in (1, AT_ONCE):
                count = COUNT if at_once > 1 else COUNT // 4
                count -= count % at_once
                measured = await rates(
                    {
                        name: lambda url=url, count=count, at_once=at_once, method=method: ask(
                            session, url, count, at_once, method=method
                        )
                        for name, url in (("sdk", sdk_url), ("hub", hub_url))
                    },
                    count,
                )
                how = "one after another" if at_once == 1 else f"{at_once} at once"
                name = f"a2a {kind}, {how}"
                figures.append(
                    Figure(name=name, value=measured["hub"], unit="1/s", floor=measured["sdk"], bound=at_least(1))
                )
    return figures


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = start([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        hub_process, hub_url = started("--serve-hub", folder)
        sdk_process, sdk_url = started("--serve-sdk", folder)
        try:
            return asyncio.run(compare(hub_url, sdk_url))
        finally:
            for process in (hub_process, sdk_process):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    if "--serve-hub" in sys.argv:
        asyncio.run(serve_hub(Path(sys.argv[-1])))
    elif "--serve-sdk" in sys.argv:
        asyncio.run(serve_sdk())
    else:
        main(measure)
