"""Servers that are killed, go down, or whose store fails: whoever asked goes on, and nothing is lost or done twice.

Run as a program, this file is such a server: on a file in a folder, at a port.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
from aiohttp import ClientError, ClientSession

from checkout import TESTS
from commands import popen
from remit import Ask, Brief, Facts, Hub, Request, Verdict
from remit.policy.verdict import ALLOW
from remit.ports import Decision
from remit.runtime import root_runs
from remit.runtime.approvers import decide
from remit.stores.audit import verify_file
from remit.stores.connection import SqliteConnection
from remit.stores.sqlite import SqliteStore
from remit_server import connect, serve, server_endpoints
from remit_server.app import Api
from remit_server.server import Server
from remit_testing import MemoryStore
from serving import NORTH, WEB, client_of, events, gate_of, got, parsed, posted, serving
from waiting import PATIENCE_S, eventually

LEASE_MS = 300
STREAM = {"accept": "text/event-stream"}


# ── a server that can be killed ───────────────────────────────────────────────────────────────────────────────────────


def ask_first(request: Request, _: Facts) -> Verdict:
    return Ask("May it?") if request.target == "pay" else ALLOW


def killable(folder: Path) -> Hub:
    """Return a hub whose agents say in files what they did, and wait for one before they end."""
    hub = Hub(store=folder / "hub.db", durability="process", name="shop", guards=[ask_first], approver="inbox")

    def note(name: str) -> None:
        with (folder / "done").open("a") as file:
            file.write(f"{name}\n")

    async def until_told() -> None:
        await eventually((folder / "go").exists)

    @hub.agent("steps", resumable=True)
    async def steps(brief: Brief) -> str:
        for step in range(5):
            brief.progress(f"step {step}")
        await until_told()
        for step in range(5, 10):
            brief.progress(f"step {step}")
        return "done"

    @hub.agent("once")
    async def once(brief: Brief) -> str:
        note(f"once {brief.text}")
        await until_told()
        return "done"

    @hub.agent("pay")
    async def pay(brief: Brief) -> str:
        note(f"pay {brief.text}")
        return "paid"

    assert steps
    assert once
    assert pay
    return hub


async def serve_from(folder: Path, port: int) -> None:
    root_runs.LEASE_MS = LEASE_MS
    async with killable(folder) as hub, serve(hub, clients={"web": "web"}, hubs={"near": "near"}, port=port) as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


class Shop:
    """One server after another on the same file and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, __file__, str(self._folder), str(self._port)]
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        environ = {**os.environ, "PYTHONPATH": path}
        self._process = popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.address

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def go(self) -> None:
        (self._folder / "go").touch()

    @property
    def done(self) -> list[str]:
        path = self._folder / "done"
        return path.read_text().splitlines() if path.exists() else []

    def client(self) -> ClientSession:
        return ClientSession(self.address, headers={"authorization": "Bearer web"})

    async def began(self, what: str) -> None:
        await eventually(lambda: what in self.done)


@pytest.fixture
def shop(tmp_path: Path) -> Generator[Shop]:
    made = Shop(tmp_path)
    made.start()
    yield made
    made.kill()
    assert verify_file(tmp_path / "hub.db").findings == ()


async def test_what_was_asked_of_a_server_that_was_killed_can_be_asked_again_and_is_not_done_twice(shop: Shop) -> None:
    """Decisions 4, 5 and 6: unary requests, of an agent that can be resumed and of one that cannot."""
    async with asyncio.timeout(PATIENCE_S):
        bodies = {
            name: {"target": name, "user": "anna", "objective": "x", "id": f"{name}-1"} for name in ("steps", "once")
        }
        async with shop.client() as session:
            asking = {name: asyncio.create_task(posted(session, body)) for name, body in bodies.items()}
            await shop.began("once x")

            async def steps_wait() -> bool:
                return (await got(session, "/v1/delegations/steps-1"))[0] == 202

            await eventually(steps_wait)
            await asyncio.to_thread(shop.kill)
            for each in asking.values():
                with pytest.raises(ClientError):
                    await each
        await asyncio.to_thread(shop.start)
        shop.go()
        async with shop.client() as session:
            status, answer = await posted(session, bodies["once"])
            assert (status, answer["fault"]["code"]) == (500, "OUTCOME_UNKNOWN")
            status, answer = await posted(session, bodies["steps"])
            assert (status, answer["result"]) == (200, "done")
            assert (await got(session, "/v1/delegations/steps-1"))[1]["result"] == "done", "by its sender's own id, too"
    assert shop.done == ["once x"]


async def test_a_stream_goes_on_at_the_next_server_with_nothing_lost_or_repeated(shop: Shop) -> None:
    async with asyncio.timeout(PATIENCE_S):
        body = {"target": "steps", "user": "anna", "objective": "x", "id": "s-1"}
        text = ""
        async with (
            shop.client() as session,
            session.post("/v1/delegations", json=body, headers=STREAM) as reply,
        ):
            run = reply.headers["location"].rpartition("/")[2]
            while "step 3" not in text:
                text += (await reply.content.readany()).decode()
            await asyncio.to_thread(shop.kill)
            with suppress(ClientError):
                while part := await reply.content.readany():
                    text += part.decode()
        first = parsed(text.rpartition("\n\n")[0] + "\n\n")
        await asyncio.to_thread(shop.start)
        shop.go()
        async with shop.client() as session:
            # Sent again, it is the same once more, from its beginning.
            async with session.post("/v1/delegations", json=body, headers=STREAM) as reply:
                again = parsed(await reply.text())
            rest = await events(session, f"/v1/delegations/{run}/events", **{"Last-Event-ID": str(first[-1].number)})
            whole = await events(session, f"/v1/delegations/{run}/events")
    numbers = [int(each.number or 0) for each in whole]
    assert numbers == sorted(set(numbers))
    assert [*first, *rest] == whole
    assert [each for each in again if each.number] == whole
    assert whole[-1].record["body"]["result"] == "done"


async def test_what_waits_for_a_person_still_does_after_the_server_was_killed(shop: Shop, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        body = {"target": "pay", "user": "anna", "objective": "10", "id": "p-1"}
        async with shop.client() as session:
            status, handle = await posted(session, body)
            assert (status, handle["state"]) == (202, "waiting")
        await asyncio.to_thread(shop.kill)
        await asyncio.to_thread(shop.start)
        async with shop.client() as session:
            assert (await got(session, handle["link"]))[1]["state"] == "waiting"
            status, same = await posted(session, body)
            assert (status, same["run"], same["question"]) == (202, handle["run"], "May it?")
            following = asyncio.create_task(events(session, handle["events"]))
            store = SqliteStore(tmp_path / "hub.db", durability="process")
            await store.open()
            (question,) = await store.pending()
            await decide(store, question.id, Decision(agreed=True, by="anna"))
            await store.close()
            assert (await following)[-1].record["body"]["result"] == "paid"
            assert (await posted(session, body))[1]["result"] == "paid"
    assert shop.done == ["pay 10"]


async def test_what_was_acknowledged_with_a_handle_is_not_lost_and_can_be_cancelled_later(shop: Shop) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with shop.client() as session:
            handles = [
                await posted(
                    session,
                    {"target": "steps", "user": "anna", "objective": str(number), "id": f"h-{number}"},
                    Prefer="respond-async",
                )
                for number in range(3)
            ]
            await asyncio.to_thread(shop.kill)
        await asyncio.to_thread(shop.start)
        async with shop.client() as session:
            async with session.post("/v1/delegations/h-0/cancel") as reply:
                assert (reply.status, (await reply.json())["status"]) == (200, "cancelled")
            shop.go()
            ends = [(await events(session, handle["events"]))[-1].record["body"]["status"] for _, handle in handles]
    assert [status for status, _ in handles] == [202, 202, 202]
    assert ends == ["cancelled", "success", "success"]


@pytest.mark.parametrize("read_along", [False, True])
async def test_a_hub_whose_peer_is_killed_gets_the_answer_from_the_next_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, read_along: bool
) -> None:
    """C2: the same request is sent again, and carried out once."""
    # A request that may have arrived is sent again until its time is over: the limit is for those that did not.
    monkeypatch.setattr("remit_server.transports.remote_calls.ATTEMPTS", 1)
    near = Hub(name="near", store=MemoryStore())
    connect(near, "steps", shop.address, token="near")

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("steps", objective="x", deadline_ms=200_000)).unwrap()

    near.add("boss", boss, may_call=["*"])
    texts: list[str] = []
    async with near, asyncio.timeout(PATIENCE_S):

        async def asked() -> Any:
            if not read_along:
                return (await near.ask("boss", "Go", user="anna")).unwrap()
            last = None
            async for last in near.stream("boss", "Go", user="anna"):
                if last.kind == "progress":
                    texts.append(last.body.text)  # type: ignore[union-attr]
            assert last is not None
            return last.body.result  # type: ignore[union-attr]

        asking = asyncio.create_task(asked())
        async with ClientSession(shop.address, headers={"authorization": "Bearer near"}) as session:

            async def is_asked() -> bool:
                return bool((await got(session, "/v1/runs"))[1]["runs"])

            await eventually(is_asked)
        await asyncio.to_thread(shop.kill)
        await asyncio.to_thread(shop.start)
        shop.go()
        assert await asking == "done"
        async with ClientSession(shop.address, headers={"authorization": "Bearer near"}) as session:
            runs = (await got(session, "/v1/runs"))[1]["runs"]
    assert [run["status"] for run in runs] == ["success"]
    if read_along:
        assert texts[-10:] == [f"step {step}" for step in range(10)]


# ── a store that fails ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def connections() -> Generator[list[SqliteConnection]]:
    """The connections that are made during the test; a store's first one writes."""
    made: list[Any] = []
    apsw.connection_hooks.append(made.append)
    yield made
    apsw.connection_hooks.remove(made.append)


@contextmanager
def full_disk(writer: SqliteConnection) -> Generator[None]:
    pages = writer.pragma("page_count")
    writer.pragma("max_page_count", pages)
    try:
        yield
    finally:
        writer.pragma("max_page_count", pages + 10_000)


async def test_while_the_store_cannot_write_nothing_is_begun_and_that_is_said(
    hub: Hub, connections: list[SqliteConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 5: nothing is answered before it is recorded, and what cannot be recorded is not begun."""
    monkeypatch.setattr(server_endpoints, "READY_S", 0.3)
    texts: list[str] = []

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        texts.append(brief.text)
        return brief.text

    assert echo
    large = "x" * 50_000  # a small one may find room in the last page
    async with serving(hub, WEB, NORTH) as server, client_of(server) as web, asyncio.timeout(PATIENCE_S):
        _, before = await posted(web, {"target": "echo", "user": "anna", "objective": "before", "id": "b"})
        with full_disk(connections[0]):
            body = {"target": "echo", "user": "anna", "objective": large, "id": "i-1"}
            for headers in ({}, STREAM, {"prefer": "respond-async"}):
                status, answer = await posted(web, body | {"id": f"i-{len(headers)}"}, **headers)
                assert (status, answer["fault"]["code"]) == (503, "STORE_UNAVAILABLE")
            status, answer = await posted(web, {"target": "nobody-there", "user": "anna", "objective": large})
            assert status == 404
            refused = {"target": "echo", "user": "anna", "capability": "NONE", "input": large}
            codes = [(await posted(web, refused))[1]["fault"]["code"] for _ in range(20)]
            assert codes[-1] == "STORE_UNAVAILABLE", "a refusal is on record, or is none"
            employee: Any = {
                "request_id": "e-1",
                "origin_employee": "prime",
                "target_employee": "echo",
                "user_id": "anna",
                "parent_session_id": "s",
                "objective": "x",
                "input": large,
                "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
                "context_hints": [],
                "handoff_data": {},
            }
            async with client_of(server, "north") as north, north.post("/dialects/employee", json=employee) as reply:
                assert reply.status == 503, await reply.text()
            assert (await got(web, f"/v1/delegations/{before['run']}"))[1]["result"] == "before", "it can be read"
            async with web.get("/readyz") as reply:
                assert (reply.status, await reply.text()) == (503, "the store cannot write\n")
            async with web.get("/healthz") as reply:
                assert reply.status == 200
        assert texts == ["before"]
        for _ in range(100):
            async with web.get("/readyz") as reply:
                if reply.status == 200:
                    break
        status, answer = await posted(web, body)
        assert (status, answer["result"]) == (200, large), "once there is room, the same may come again"
    assert texts == ["before", large]


async def test_refusals_that_cannot_be_recorded_do_not_pile_up(hub: Hub, connections: list[SqliteConnection]) -> None:
    """A flood of what would be refused anyway must not fill the memory while the disk is full."""

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with serving(hub) as server, client_of(server) as web, asyncio.timeout(PATIENCE_S):
        ask = {"target": "echo", "user": "anna", "capability": "NONE", "input": "x" * 50_000}
        store: Any = hub.store
        with full_disk(connections[0]):
            answers = [await posted(web, ask) for _ in range(20)]
            assert len(store._writer.queue) < 5
        # What a refused request said is not kept, if it is long, so the first ones may find room in the last page.
        told = [(status, answer["fault"]["code"]) for status, answer in answers]
        assert set(told) <= {(404, "CAPABILITY_NOT_FOUND"), (503, "STORE_UNAVAILABLE")}
        assert told[-1] == (503, "STORE_UNAVAILABLE")
        while (status := (await posted(web, ask))[0]) == 503:
            pass
        assert status == 404


async def test_an_answer_that_cannot_be_recorded_is_not_given(hub: Hub, connections: list[SqliteConnection]) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("worker")
    async def work(_: Brief) -> str:
        began.set()
        await go_on.wait()
        return "x" * 50_000

    assert work
    body = {"target": "worker", "user": "anna", "objective": "x", "id": "w"}
    async with serving(hub) as server, client_of(server) as web, asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(posted(web, body))
        await began.wait()
        with full_disk(connections[0]):
            go_on.set()
            status, answer = await asking
            assert (status, answer["fault"]["code"], "result" in answer) == (503, "STORE_UNAVAILABLE", False)

        async def outcome() -> Any:
            status, answer = await posted(web, body)
            return answer if status == 200 else None

        assert len((await eventually(outcome))["result"]) == 50_000, "it was kept until it could be recorded"


# ── a server that goes down ───────────────────────────────────────────────────────────────────────────────────────────


class Life(NamedTuple):
    """A server that was told when its agents may end."""

    server: Server
    session: ClientSession
    go_on: asyncio.Event


@asynccontextmanager
async def life(path: Path) -> AsyncGenerator[Life]:
    """Serve a hub on a file; its end is that of a server which was told to end."""
    hub = Hub(store=path / "hub.db", durability="process", guards=[ask_first], approver="inbox")
    go_on = asyncio.Event()

    async def work(brief: Brief) -> str:
        brief.progress("begun")
        await go_on.wait()
        return "done"

    hub.add("resumable", work, resumable=True)
    hub.add("other", work)
    hub.add("pay", work)
    async with hub, Server(Api(hub, gate_of(WEB)), port=0, drain_s=0.3) as server:
        session = client_of(server)
        yield Life(server, session, go_on)
    await session.close()


async def test_what_is_under_way_when_a_server_ends_is_found_at_the_next(tmp_path: Path) -> None:
    """Streams end in order, whoever waits gets a handle, and what can be resumed is handed back."""
    body = {"target": "resumable", "user": "anna", "objective": "x", "id": "r"}
    async with asyncio.timeout(PATIENCE_S):
        async with life(tmp_path) as (server, session, _):
            reply = await session.post("/v1/delegations", json=body, headers=STREAM)
            text = ""
            while "begun" not in text:
                text += (await reply.content.readany()).decode()
            waiting = asyncio.create_task(posted(session, body))
            reading = asyncio.create_task(reply.text())
            await eventually(lambda: len(server.server_state.tasks) >= 2)
        text += await reading
        status, handle = await waiting
        first = parsed(text)
        assert "result" not in [event.kind for event in first]
        assert (status, handle["state"]) == (202, "running")
        async with life(tmp_path) as (_, session, go_on):
            go_on.set()
            rest = await events(session, handle["events"], **{"Last-Event-ID": str(first[-1].number)})
            whole = await events(session, handle["events"])
            assert (await posted(session, body))[1]["result"] == "done"
    assert [*first, *rest] == whole
    assert whole[-1].record["body"]["result"] == "done"


async def test_what_cannot_be_resumed_is_cancelled_when_its_server_ends_and_that_can_be_read(tmp_path: Path) -> None:
    body = {"target": "other", "user": "anna", "objective": "x", "id": "o"}
    async with asyncio.timeout(PATIENCE_S):
        async with life(tmp_path) as (server, session, _):
            waiting = asyncio.create_task(posted(session, body))
            await eventually(lambda: server.api.delegations.hub.agent_status()["other"].running)
        status, handle = await waiting
        assert (status, handle["state"]) == (202, "running")
        async with life(tmp_path) as (_, session, _):
            assert (await got(session, handle["link"]))[1]["fault"]["code"] == "CANCELLED"
            assert (await posted(session, body))[1]["fault"]["code"] == "CANCELLED"


async def test_what_waits_for_a_person_when_a_server_ends_waits_at_the_next(tmp_path: Path) -> None:
    body = {"target": "pay", "user": "anna", "objective": "x", "id": "p"}
    async with asyncio.timeout(PATIENCE_S):
        async with life(tmp_path) as (server, session, _):
            _, handle = await posted(session, body)
            reading = asyncio.create_task(events(session, handle["events"]))
            await eventually(lambda: server.api.delegations.streams)
        assert [event.kind for event in await reading] == ["started", "approval"]
        async with life(tmp_path) as (server, session, go_on):
            go_on.set()
            hub = server.api.delegations.hub
            found = await eventually(hub.pending)
            assert (await posted(session, body))[1]["run"] == handle["run"]
            await hub.decide(found[0].id, agreed=True, by="anna")
            assert (await events(session, handle["events"]))[-1].record["body"]["result"] == "done"


async def test_a_server_that_goes_down_takes_nothing_more(hub: Hub) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    ask = {"target": "echo", "user": "anna", "objective": "x"}
    async with serving(hub) as server, client_of(server) as web:
        await server.api.drain(0)
        status, answer = await posted(web, ask)
        assert (status, answer["fault"]["code"]) == (503, "OVERLOADED")
        async with web.get("/readyz") as reply:
            assert (reply.status, await reply.text()) == (503, "going down\n")
        assert (await got(web, "/v1/agents"))[0] == 200, "what is there can be looked at to the end"


if __name__ == "__main__":
    asyncio.run(serve_from(Path(sys.argv[1]), int(sys.argv[2])))
