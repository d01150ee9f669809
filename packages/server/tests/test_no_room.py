"""However many come, each is served or told to come back."""

import asyncio
import json

from remit import Brief, Hub
from remit_server.app import Api
from remit_server.server import Server
from serving import WEB, connected, gate_of, replied

BOUND_S = 50


async def test_however_many_connections_there_are_more_than_there_is_room_for_each_is_told(hub: Hub) -> None:
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert slow
    ask = json.dumps({"target": "slow", "user": "anna", "objective": "x"}).encode()
    head = "POST /v1/delegations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer web\r\ncontent-type: application/json\r\n"
    asking = f"{head}content-length: {len(ask)}\r\n\r\n".encode() + ask
    async with hub, Server(Api(hub, gate_of(WEB)), connections=4, drain_s=2) as server, asyncio.timeout(BOUND_S):
        at_work = [await connected(server) for _ in range(4)]
        for _, writer in at_work:
            writer.write(asking)
        while hub.agent_status()["slow"].running < 4:
            await asyncio.sleep(0.01)
        more = [await connected(server) for _ in range(150)]
        for reader, writer in more:
            writer.write(b"GET /v1/agents HTTP/1.1\r\nhost: x\r\n\r\n")
            reply = await replied(reader)
            assert (reply.status, reply.fault["code"]) == (503, "OVERLOADED")
            assert "retry-after: 1" in reply.head
            writer.close()
        go_on.set()
        for reader, writer in at_work:
            assert (await replied(reader)).status == 200
            writer.close()
