"""A delegation to another process over HTTP, against the same errand by a2a-sdk: its server, asked by its client.

Ours has all guards and everything recorded on both sides; the SDK's keeps its tasks in memory. Both ends are one
process each, in both.
"""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb

import a2a_face
import remote
from harness import Figure, at_least, main, sized

COUNT = sized(1_500, 64)
TIMES_SDK = at_least(5)


async def ask(client: Client, count: int, at_once: int) -> None:
    """Send messages, and see that each was answered."""
    begun = time.perf_counter_ns()
    text = str(remote.REQUEST.input)

    async def some(first: int) -> None:
        for number in range(first, count, at_once):
            message = pb.Message(message_id=f"{begun}-{number}", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
            (event,) = [event async for event in client.send_message(pb.SendMessageRequest(message=message))]
            assert event.task.status.state == pb.TASK_STATE_COMPLETED, event
            assert event.task.artifacts[0].parts[0].text == text

    async with asyncio.TaskGroup() as group:
        for first in range(at_once):
            group.create_task(some(first))


async def compare(folder: Path, ours: remote.Served, sdk: remote.Served) -> list[Figure]:
    figures: list[Figure] = []
    interface = pb.AgentInterface(url=sdk.url, protocol_binding="JSONRPC", protocol_version="1.0")
    card = pb.AgentCard(name="echo", supported_interfaces=[interface])
    # Every connection is kept, as ours are.
    kept = httpx.Limits(max_connections=remote.AT_ONCE, max_keepalive_connections=remote.AT_ONCE)
    async with remote.caller(folder, ours.url) as hub, httpx.AsyncClient(limits=kept, timeout=60) as http:
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        for at_once in (1, remote.AT_ONCE):
            count = COUNT if at_once > 1 else COUNT // 3
            count -= count % at_once
            rates = await remote.rates(
                {
                    "sdk": remote.Run(partial(ask, client, count, at_once), sdk.process.pid),
                    "hub": remote.Run(partial(remote.delegate, hub, "echo", count, at_once), ours.process.pid),
                },
                count,
            )
            how = "one after another" if at_once == 1 else f"{at_once} at once"
            name, rate = f"http delegations, {how}, against a2a-sdk", rates["hub"].per_second
            figures.append(Figure(name=name, value=rate, unit="1/s", floor=rates["sdk"].per_second, bound=TIMES_SDK))
    return figures


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        remote.make_keys(Path(folder))
        served: list[remote.Served] = []
        try:
            served.append(remote.started("--serve-hub", folder))
            served.append(remote.Served(*a2a_face.started("--serve-sdk", folder)))
            return asyncio.run(compare(Path(folder), *served))
        finally:
            for each in served:
                each.process.terminate()
                each.process.wait()


if __name__ == "__main__":
    main(measure)
