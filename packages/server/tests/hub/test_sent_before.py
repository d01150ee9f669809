"""What left for an agent elsewhere before a restart is asked about, and never begun a second time: A2A and other hubs.

A hub that closes hands its run back; the next one on the same store takes it up, as after a kill.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from aiohttp import web

from a2a_grpc import GrpcAlone
from remit import AgentCard, Brief, Code, Hub, RemitError, Response, Status
from remit.ports import Departure, Remote, RemoteHandle
from remit.protocol.envelope import Request
from remit.runtime import root_runs
from remit_server import connect, connect_a2a, serve
from remit_server.a2a import agent as a2a
from remit_server.a2a.agent import A2aPeer
from remit_server.a2a.grpc_messages import grpc_methods, to_wire
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.a2a.routes import Exposure
from remit_server.transports import remote_calls
from remit_testing import MemoryStore

BOUND_S = 30


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)


def ended(response: Response) -> tuple[Status, Code | None]:
    return response.status, response.fault and response.fault.code


UNKNOWN = (Status.FAILED, Code.OUTCOME_UNKNOWN)


class Lives:
    """One hub after another on the same store, each with the agents that a test gives it."""

    def __init__(self, folder: Path, furnish: Callable[[Hub], None]) -> None:
        self._path = folder / "near.db"
        self._furnish = furnish

    def hub(self, furnish: Callable[[Hub], None] | None = None) -> Hub:
        hub = Hub(name="near", store=self._path, durability="process")

        async def boss(brief: Brief) -> str:
            reply = await brief.delegate("helper", objective=brief.text, deadline_ms=brief.time_left_ms())
            return reply.unwrap()

        (furnish or self._furnish)(hub)
        hub.add("boss", boss, may_call=["*"], resumable=True)
        return hub

    @asynccontextmanager
    async def interrupted(self, target: str, sent: asyncio.Event, **options: Any) -> AsyncGenerator["Lives"]:
        """Have a hub ask, and close once it was sent."""
        async with asyncio.timeout(BOUND_S):
            async with self.hub() as first:
                asking = asyncio.create_task(first.ask(target, "charge", user="anna", request_id="1", **options))
                await sent.wait()
            await asking
            yield self

    async def again(self, target: str, furnish: Callable[[Hub], None] | None = None, **options: Any) -> Response:
        """Return what the next hub says to the same request."""
        async with self.hub(furnish) as hub:
            response = await hub.ask(target, "charge", user="anna", request_id="1", **options)
            assert ended(await hub.ask(target, "charge", user="anna", request_id="1")) == ended(response)
        return response


both = pytest.mark.parametrize("target", ["helper", "boss"])


# ── an A2A server of another maker ────────────────────────────────────────────────────────────────────────────────────


class Foreign:
    """It does not know messages by their ids: each that it gets is one more charge."""

    def __init__(self, binding: str) -> None:
        self.binding = binding
        self.charges = 0
        self.calls: list[str] = []
        self.looked = asyncio.Event()
        self.sent = asyncio.Event()
        self.says_its_name = True
        self.state = "WORKING"
        self.url = self.rpc_url = ""

    async def card(self, _: web.Request) -> web.Response:
        interface = {"url": self.rpc_url, "protocolBinding": self.binding, "protocolVersion": "1.0"}
        return web.json_response({"name": "helper", "supportedInterfaces": [interface], "capabilities": {}})

    async def rpc(self, request: web.Request) -> web.Response:
        result = await self._answer(json.loads(await request.read())["method"])
        outcome = {"error": {"code": -32001, "message": "no such task"}} if result is None else {"result": result}
        return web.json_response({"jsonrpc": "2.0", "id": 1} | outcome)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the same over gRPC."""

        async def call(name: str, _: bytes, context: Any) -> bytes:
            result = await self._answer(name)
            if result is None:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such task")
            return to_wire(json.dumps(result).encode(), grpc_methods()[name].response)

        made: Any = grpc.unary_unary_rpc_method_handler
        names = ("SendMessage", "GetTask", "CancelTask")
        return grpc.method_handlers_generic_handler(
            "lf.a2a.v1.A2AService", {name: made(partial(call, name)) for name in names}
        )

    async def _answer(self, method: str) -> Any:
        self.calls.append(method)
        if method == "SendMessage":
            self.charges += 1
            if not self.says_its_name:
                self.sent.set()
                await asyncio.Event().wait()
            return {"task": self._task()}
        # It is asked for by the name that it gave: so that is known to who asked.
        self.sent.set()
        self.looked.set()
        return None if self.state == "FORGOTTEN" else self._task()

    def _task(self) -> dict[str, Any]:
        artifacts = [{"artifactId": "a", "parts": [{"text": "receipt"}]}] if self.state == "COMPLETED" else []
        state = {"state": f"TASK_STATE_{self.state}"}
        return {"id": "t-1", "contextId": "c-1", "status": state, "artifacts": artifacts}


@pytest.fixture(params=["JSONRPC", "GRPC"])
async def foreign(request: pytest.FixtureRequest) -> AsyncGenerator[Foreign]:
    server, app = Foreign(request.param), web.Application()
    app.router.add_get("/.well-known/agent-card.json", server.card)
    app.router.add_post("/rpc", server.rpc)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    server.url = f"http://{host}:{port}"
    over_grpc = grpc.aio.server()
    over_grpc.add_generic_rpc_handlers((server.handler(),))
    target = f"127.0.0.1:{over_grpc.add_insecure_port('127.0.0.1:0')}"
    server.rpc_url = target if server.binding == "GRPC" else f"{server.url}/rpc"
    await over_grpc.start()
    yield server
    await over_grpc.stop(0)
    await runner.cleanup()


def asks(server: Foreign) -> Callable[[Hub], None]:
    return lambda hub: connect_a2a(hub, "helper", server.url)


@both
async def test_a_task_whose_name_is_on_record_is_looked_up_and_not_begun_again(
    tmp_path: Path, foreign: Foreign, target: str
) -> None:
    async with Lives(tmp_path, asks(foreign)).interrupted(target, foreign.sent) as lives:
        foreign.state = "COMPLETED"
        assert (await lives.again(target)).unwrap() == "receipt"
    assert foreign.charges == 1
    assert "CancelTask" not in foreign.calls, "what is taken up again later goes on there"


@both
async def test_a_server_that_has_forgotten_the_task_leaves_the_outcome_unknown(
    tmp_path: Path, foreign: Foreign, target: str
) -> None:
    async with Lives(tmp_path, asks(foreign)).interrupted(target, foreign.sent) as lives:
        foreign.state = "FORGOTTEN"
        assert ended(await lives.again(target)) == UNKNOWN
    assert foreign.charges == 1


@both
async def test_a_message_that_was_never_given_a_name_is_not_sent_again(
    tmp_path: Path, foreign: Foreign, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(a2a, "CANCEL_S", 0.1)
    foreign.says_its_name = False
    async with Lives(tmp_path, asks(foreign)).interrupted(target, foreign.sent) as lives:
        assert ended(await lives.again(target)) == UNKNOWN
    assert foreign.charges == 1


async def test_a_server_of_another_maker_that_is_gone_leaves_the_outcome_unknown(
    tmp_path: Path, foreign: Foreign
) -> None:
    async with Lives(tmp_path, asks(foreign)).interrupted("helper", foreign.sent, deadline_ms=3_000) as lives:
        foreign.rpc_url = "http://127.0.0.1:9"  # its card leads where nobody is
        assert ended(await lives.again("helper")) == UNKNOWN
    assert foreign.charges == 1


async def test_whoever_attaches_to_what_is_under_way_is_not_told_to_ask_under_a_new_id(
    tmp_path: Path, foreign: Foreign
) -> None:
    async with Lives(tmp_path, asks(foreign)).interrupted("helper", foreign.sent) as lives, lives.hub() as hub:
        response = await hub.ask("helper", "charge", user="anna", request_id="1", deadline_ms=300)
        assert ended(response) == UNKNOWN
        assert response.fault is not None
        assert "with the same id" in response.fault.suggestion
        foreign.state = "COMPLETED"
        assert (await hub.ask("helper", "charge", user="anna", request_id="1")).unwrap() == "receipt"
    assert foreign.charges == 1


# ── another hub, by A2A and by HTTP ───────────────────────────────────────────────────────────────────────────────────


class Till:
    """An agent of another hub that counts how often it was called, and waits until it may end."""

    def __init__(self) -> None:
        self.calls = 0
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: Brief) -> str:
        self.calls += 1
        self.began.set()
        await self.go_on.wait()
        return "receipt"


@asynccontextmanager
async def far(till: Till) -> AsyncGenerator[str]:
    hub = far_hub()
    hub.add("helper", till)
    async with hub, serve(hub, hubs={"near": "near"}, a2a=Exposure(grpc=GrpcListener())) as address:
        try:
            yield address
        finally:
            till.go_on.set()  # a server that closes waits for what it works on


def far_hub() -> Hub:
    return Hub(name="far", store=MemoryStore())


def by_http(address: str) -> Callable[[Hub], None]:
    return lambda hub: connect(hub, "helper", address, token="near")


def by_a2a(address: str) -> Callable[[Hub], None]:
    return lambda hub: connect_a2a(hub, "helper", f"{address}/a2a/helper", token="near")


def by_grpc(address: str) -> Callable[[Hub], None]:
    def connect(hub: Hub) -> None:
        peer = A2aPeer(f"{address}/a2a/helper", GrpcAlone(), token="near")
        hub.register(AgentCard(name="helper", resumable=True), a2a.A2aAgent(peer, "helper"), peer.close)

    return connect


@both
@pytest.mark.parametrize("way", [by_http, by_a2a, by_grpc])
async def test_another_hub_is_asked_for_the_same_id_and_carries_it_out_once(
    tmp_path: Path, way: Callable[[str], Callable[[Hub], None]], target: str
) -> None:
    till = Till()
    async with far(till) as address, Lives(tmp_path, way(address)).interrupted(target, till.began) as lives:
        till.go_on.set()
        assert (await lives.again(target)).unwrap() == "receipt"
    assert till.calls == 1


@both
@pytest.mark.parametrize("way", [by_http, by_a2a, by_grpc])
async def test_after_the_time_that_outcomes_are_kept_nothing_is_sent_again(
    tmp_path: Path, way: Callable[[str], Callable[[Hub], None]], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 6: a hub that has forgotten an id would carry it out once more."""
    till = Till()
    async with far(till) as address, Lives(tmp_path, way(address)).interrupted(target, till.began) as lives:
        till.go_on.set()
        monkeypatch.setattr(remote_calls, "WINDOW_MS", 0)
        response = await lives.again(target)
    # By HTTP it can be looked up by its id without being begun, and there it is still known.
    assert (response.result == "receipt") if way is by_http else (ended(response) in (UNKNOWN, (Status.SUCCESS, None)))
    assert till.calls == 1


@both
async def test_an_agent_that_has_moved_is_not_asked_for_what_it_never_got(tmp_path: Path, target: str) -> None:
    old, new = Till(), Till()
    new.go_on.set()
    async with (
        far(old) as before,
        far(new) as now,
        Lives(tmp_path, by_http(before)).interrupted(target, old.began) as lives,
    ):
        response = await lives.again(target, by_http(now))
    assert ended(response) == UNKNOWN
    assert response.fault is not None
    assert (before in response.fault.detail, now in response.fault.detail) == (True, True)
    assert new.calls == 0


@both
async def test_an_agent_that_lives_here_now_does_not_do_what_another_may_have_done(tmp_path: Path, target: str) -> None:
    there, here = Till(), Till()
    here.go_on.set()
    async with far(there) as address, Lives(tmp_path, by_http(address)).interrupted(target, there.began) as lives:
        response = await lives.again(target, lambda hub: hub.add("helper", here, resumable=True))
    assert ended(response) == UNKNOWN
    assert here.calls == 0


async def test_a_peer_that_turns_this_hub_away_now_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    till = Till()
    async with far(till) as address, Lives(tmp_path, by_http(address)).interrupted("helper", till.began) as lives:
        response = await lives.again("helper", lambda hub: connect(hub, "helper", address, token="stranger"))
    assert ended(response) == UNKNOWN
    assert response.fault is not None
    assert "the hub of helper says: " in response.fault.message
    assert response.fault.detail == f"helper at {address}"


async def test_a_call_that_a_guard_refuses_now_may_have_been_done_before(tmp_path: Path) -> None:
    till = Till()
    async with far(till) as address, Lives(tmp_path, by_http(address)).interrupted("boss", till.began) as lives:
        hub = Hub(name="near", store=tmp_path / "near.db", durability="process")
        connect(hub, "helper", address, token="near")

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective=brief.text)).unwrap()

        hub.add("boss", boss, resumable=True)  # it may not call anybody any more
        async with hub:
            response = await hub.ask("boss", "charge", user="anna", request_id="1")
        assert lives
    assert ended(response) == UNKNOWN
    assert till.calls == 1


async def test_a_run_that_was_cancelled_while_no_hub_was_open_is_cancelled_there_too(tmp_path: Path) -> None:
    till = Till()
    stopped = asyncio.Event()

    async def helper(brief: Brief) -> str:
        try:
            return await till(brief)
        except asyncio.CancelledError:
            stopped.set()
            raise

    hub = far_hub()
    hub.add("helper", helper)
    async with (
        hub,
        serve(hub, hubs={"near": "near"}) as address,
        Lives(tmp_path, by_http(address)).interrupted("helper", till.began) as lives,
    ):
        async with lives.hub(lambda hub: hub.add("somebody-else", till)) as other:
            (run,) = await other.store.runs(limit=1)
            await other.store.control(run.run, "cancel", "ops", "")
        response = await lives.again("helper")
        await stopped.wait()
    assert ended(response) == (Status.CANCELLED, Code.CANCELLED)


# ── the mark itself ───────────────────────────────────────────────────────────────────────────────────────────────────


class Watcher(Remote):
    """An agent elsewhere that looks at the store at the moment at which it is sent something."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.steps = -1
        self.left: Departure | None = None

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        self.left = await line.depart("there")
        connection = sqlite3.connect(self._path)
        self.steps = connection.execute("SELECT count(*) FROM journal").fetchone()[0]
        connection.close()
        return Response(
            version="1.0", id=request.id, target=request.target, status=Status.SUCCESS, run=request.run, result="done"
        )


@both
async def test_that_something_leaves_is_durable_before_it_does(tmp_path: Path, target: str) -> None:
    watcher = Watcher(tmp_path / "near.db")
    lives = Lives(tmp_path, lambda hub: hub.register(AgentCard(name="helper", resumable=True), watcher))
    async with lives.hub() as hub:
        assert (await hub.ask(target, "charge", user="anna")).unwrap() == "done"
    assert (watcher.steps, watcher.left) == (1, None)


class StandingStill(Remote):
    """An agent elsewhere: the first call to it hangs, and before the second one leaves, another hub takes the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sent = asyncio.Event()
        self.why: asyncio.Future[Code] = asyncio.get_running_loop().create_future()

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        if self.sent.is_set():
            with closing(sqlite3.connect(self._path)) as connection, connection:
                connection.execute("UPDATE request SET epoch = epoch + 1, worker = 'another'")
        try:
            await line.depart("there")
        except RemitError as error:
            self.why.set_result(error.fault.code)
            raise
        self.sent.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits")


async def test_a_call_that_left_before_is_not_sent_again_by_a_hub_that_has_lost_its_run(tmp_path: Path) -> None:
    agent = StandingStill(tmp_path / "near.db")
    lives = Lives(tmp_path, lambda hub: hub.register(AgentCard(name="helper", resumable=True), agent))
    async with lives.interrupted("boss", agent.sent), lives.hub() as hub:
        asking = asyncio.create_task(hub.ask("boss", "charge", user="anna", request_id="1"))
        assert await agent.why is Code.OUTCOME_UNKNOWN
        asking.cancel()


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tool_that_was_taken_away_meanwhile_may_have_been_used(tmp_path: Path) -> None:
    used = asyncio.Event()

    def furnish(tools: list[str]) -> Callable[[Hub], None]:
        def add(hub: Hub) -> None:
            @hub.tool()
            async def pay() -> str:
                used.set()
                await asyncio.Event().wait()
                return "receipt"

            @hub.agent("helper", tools=tools, resumable=True)
            async def helper(brief: Brief) -> str:
                return await brief.use("pay")

            assert pay
            assert helper

        return add

    async with Lives(tmp_path, furnish(["pay"])).interrupted("helper", used) as lives:
        assert ended(await lives.again("helper", furnish([]))) == UNKNOWN


async def test_a_call_that_was_to_be_sent_and_was_not_is_executed_where_its_agent_lives_now() -> None:
    store, sending = MemoryStore(), asyncio.Event()

    class Unsent(Remote):
        async def send(self, request: Request, line: RemoteHandle) -> Response:
            sending.set()
            await asyncio.Event().wait()
            raise AssertionError("it waits")

    def hub() -> Hub:
        made = Hub(store=store)

        @made.agent("boss", resumable=True, may_call={"till"})
        async def boss(brief: Brief) -> object:
            return (await brief.delegate("till", objective="pay")).unwrap()

        return made

    first, second = hub(), hub()
    first.register(AgentCard(name="till", resumable=True), Unsent())

    @second.agent("till")
    async def till(brief: Brief) -> str:
        return "paid"

    async with asyncio.timeout(BOUND_S):
        async with first:
            asking = asyncio.ensure_future(first.ask("boss", "go", user="u", request_id="1"))
            await sending.wait()
        await asyncio.wait({asking})
        async with second:
            response = await second.ask("boss", "go", user="u", request_id="1")
    assert response.result == "paid"
