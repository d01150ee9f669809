"""Bounds on what connections may hold."""

import asyncio
import gc
import json
import ssl
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from remit import Brief, Hub, Limits
from remit.policy.reception import Sender
from remit.protocol.records import Progress
from remit.runtime import events as events_module
from remit_server import bodies, connections
from remit_server.app import Api
from remit_server.server import Server
from remit_server.streams import Following, follow_records
from serving import NORTH, WEB, client_of, connected, gate_of, posted, replied, serving
from waiting import PATIENCE_S, eventually

STREAM = {"accept": "text/event-stream"}
LARGE = 4 * 1024 * 1024


def agents(hub: Hub) -> asyncio.Event:
    go_on = asyncio.Event()

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        brief.progress("at it")
        brief.say("so ")
        return brief.text

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert echo
    assert slow
    return go_on


def head(path: str, length: int, proof: str = "authorization: Bearer web\r\n") -> bytes:
    kind = "content-type: application/json\r\n"
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{proof}{kind}content-length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/delegations",
        "/v1/delegations/x/cancel",
        "/dialects/employee",
        "/dialects/librarian/echo",
        "/dialects/contract",
        "/dialects/subagent",
        "/mcp",
    ],
)
async def test_of_whoever_proves_nothing_no_body_is_read(hub: Hub, path: str) -> None:
    agents(hub)
    async with serving(hub) as server, asyncio.timeout(PATIENCE_S):
        for proof in ("", "authorization: Bearer nobody\r\n"):
            reader, writer = await connected(server)
            writer.write(head(path, LARGE, proof) + b"{")
            reply = await replied(reader)
            assert (reply.status, "connection: close" in reply.head) == (401, True)
            assert await reader.read() == b"", "and it is hung up on"
            writer.close()


async def test_all_bodies_that_are_read_at_once_are_bounded(
    make_hub: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = make_hub(limits=Limits(root_tokens=50_000))
    monkeypatch.setattr(bodies._READING.held, "most", 3_000_000)  # pyright: ignore[reportPrivateUsage]
    agents(hub)
    async with serving(hub) as server, client_of(server) as web, asyncio.timeout(PATIENCE_S):
        slow = [await connected(server) for _ in range(5)]
        for _, writer in slow:
            writer.write(head("/v1/delegations", LARGE) + b" " * 1_000_000)
        answered = [asyncio.create_task(replied(reader)) for reader, _ in slow]
        await eventually(lambda: sum(each.done() for each in answered) >= 2)
        turned_away = [each.result() for each in answered if each.done()]
        assert {(reply.status, reply.fault["code"]) for reply in turned_away} == {(503, "OVERLOADED")}
        assert all("retry-after: 1" in reply.head for reply in turned_away)
        for task, (_, writer) in zip(answered, slow, strict=True):
            task.cancel()
            writer.close()
        await eventually(lambda: not bodies._READING.held.held)  # pyright: ignore[reportPrivateUsage]
        large = BytesIO(json.dumps({"target": "echo", "user": "anna", "input": "x" * 2_000_000}).encode())
        async with web.post("/v1/delegations", data=large, headers={"content-type": "application/json"}) as reply:
            assert reply.status == 422, "what was read and is gone makes room, if only for a task that is too large"


def certificate(folder: Path) -> tuple[str, str]:
    """Make a certificate for this machine, and return its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    (folder / "cert.pem").write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_whoever_comes_to_a_private_door_and_says_nothing_makes_room_for_others(hub: Hub, tmp_path: Path) -> None:
    """Those that are not encrypted yet count, too: each holds a file, of which a process has few."""
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=cert)
    trusting.check_hostname = False
    most = 4 + connections.MOST_DEFERRED
    async with (
        hub,
        Server(Api(hub, gate_of(WEB)), connections=4, certificate=cert, key=key) as server,
        asyncio.timeout(PATIENCE_S),
    ):
        host, port = server.address.removeprefix("https://").split(":")
        readers, writers = zip(*[await asyncio.open_connection(host, int(port)) for _ in range(most + 20)], strict=True)
        for reader in readers[:20]:
            assert await reader.read() == b"", "who came first is hung up on"
        assert not any(reader.at_eof() for reader in readers[20:])
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await replied(reader)).body == b"alive\n"
        for each in (writer, *writers):
            each.close()


async def test_whoever_hangs_up_on_a_stream_leaves_nothing_behind_while_the_run_goes_on(hub: Hub) -> None:
    go_on = agents(hub)
    body = {"target": "slow", "user": "anna", "objective": "x", "id": "s"}
    async with serving(hub) as server, asyncio.timeout(PATIENCE_S):
        streams: set[Any] = server.api.delegations.streams
        for number in range(20):
            async with client_of(server) as session:
                address = "/v1/delegations" if number % 2 else "/v1/delegations/s/events"
                if number == 0:
                    await posted(session, body, prefer="respond-async")
                asked = session.post(address, json=body, headers=STREAM) if number % 2 else session.get(address)
                async with asked as reply:
                    assert reply.status == 200
                    await reply.content.readany()
        await eventually(lambda: not streams)
        assert hub.agent_status()["slow"].running == 1, "it goes on"
        go_on.set()


async def test_whoever_hangs_up_on_an_answer_leaves_nothing_behind_while_the_run_goes_on(hub: Hub) -> None:
    go_on = agents(hub)
    body = {"target": "slow", "user": "anna", "objective": "x", "id": "s"}
    raw = json.dumps(body).encode()
    async with serving(hub) as server, asyncio.timeout(PATIENCE_S):
        for path in ("/v1/delegations", "/dialects/subagent"):
            for _ in range(20):
                _, writer = await connected(server)
                writer.write(head(path, len(raw)) + raw)
                await writer.drain()
                writer.close()
        await eventually(lambda: not server.server_state.tasks)
        assert hub.agent_status()["slow"].running == 1
        go_on.set()


async def test_a_reader_that_falls_behind_loses_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dropped for one that is slow it gets from the store, in order."""
    monkeypatch.setattr(events_module, "BACKLOG", 4)
    more = asyncio.Event()

    @hub.agent("talker")
    async def talk(brief: Brief) -> str:
        brief.progress("step 0")
        await more.wait()
        for step in range(1, 50):
            brief.progress(f"step {step}")
            await asyncio.sleep(0)
        return "done"

    assert talk
    async with hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("talker", "x", user="anna", request_id="t"))
        found = await eventually(lambda: hub.store.runs(limit=1))
        said: list[str] = []
        with hub.follow(found[0].run) as events:
            async for records in follow_records(hub, Following(run=found[0].run), events):
                said += [record.body.text for record in records if isinstance(record.body, Progress)]
                more.set()
                if not asking.done():
                    await asking  # it reads no more until all is over
    assert said == [f"step {step}" for step in range(50)]


async def test_hundreds_of_requests_leave_nothing_behind(hub: Hub) -> None:
    agents(hub).set()
    api: Any = None

    async def many(session: Any, count: int) -> None:
        for number in range(count):
            ask = {"target": "echo", "user": f"u-{number % 7}", "objective": "x"}
            await posted(session, ask)
            await posted(session, ask | {"id": f"i-{number}-{count}"}, traceparent=TRACE, baggage="a=b")
            await posted(session, ask | {"target": "nobody"})
            await posted(session, ask | {"nonsense": 1})
            async with session.post("/v1/delegations", json=ask, headers=STREAM) as reply:
                await reply.read()
            _, handle = await posted(session, ask | {"target": "slow"}, prefer="respond-async")
            async with session.get(f"/v1/delegations/{handle['run']}/events") as reply:
                await reply.read()
            async with session.post(f"/v1/delegations/{handle['run']}/cancel") as reply:
                await reply.read()
            async with session.post("/dialects/subagent", json={"agent_name": "echo", "task": "x"}) as reply:
                await reply.read()

    async with serving(hub, WEB, NORTH, Sender(name="anna-app")) as server, client_of(server) as session:
        api = server.api
        async with asyncio.timeout(PATIENCE_S):
            await many(session, 40)
            await let_go(hub, api)
            tracemalloc.start()
            try:
                start, _ = tracemalloc.get_traced_memory()
                await many(session, 50)
                await let_go(hub, api)
                end, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    # 450 requests; what each leaves behind would be some kilobytes. Caches and tables that grow once take 170 kB.
    assert end - start < 270_000, f"{end - start} bytes are left"


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def let_go(hub: Any, api: Any) -> None:
    """Return once no more is held than a few things of the last requests, which a busy loop lets go of later."""

    def is_little() -> bool:
        gc.collect()
        return max(held(hub, api).values()) <= 2

    await eventually(is_little, "the end of what is held for requests that are over")


def held(hub: Any, api: Any) -> dict[str, int]:
    """Return how much is held for requests that are over."""
    asked, runs, parts = api.delegations, hub._engine.runs, hub._parts
    return {
        "tasks": len(asked._tasks),
        "granted": len(asked._granted),
        "streams": len(asked.streams),
        "watched": len(asked.waiting._watched),
        "going": len(runs.active._by_key),
        "by run": len(runs.active._by_run),
        "called off": len(runs.active._called_off),
        "waiting": len(runs.active._waiting),
        "parked": len(runs._records.parked),
        "passed on": len(parts.passed_on),
        "frames": len(parts.ledger.frames),
        "outbound": len(parts.ledger.outbound),
        "listening": len(hub._engine.events._listening),
        "listeners": len(parts.store._writer._listeners),
        "awaited": len(parts.store._waits),
    }


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
