"""An agent that asks a server of another system: sent again only where it is safe, and sessions that thread."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from remit import Brief, Capability, Code, Hub, RemitError
from remit_server.dialects import http_agent
from remit_server.dialects.http_agent import dialect_agent
from remit_testing.memory import MemoryStore

Act = Callable[[Any, int], Awaitable[web.StreamResponse]]


class Service:
    """A server of another system that remembers what it was asked."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.requests: list[Any] = []
        self.tokens: list[str | None] = []
        self.paths: list[str] = []
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/chat-internal"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.tokens.append(request.headers.get("authorization"))
        self.paths.append(request.path)
        return await self.act(self.requests[-1], len(self.requests))

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        app = web.Application()
        app.router.add_post("/{any:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.SockSite(runner, self.socket).start()
            yield
        finally:
            await runner.cleanup()


def answered(body: Any, **more: Any) -> web.Response:
    usage = {"prompt": 1, "completion": 2, "total": 3}
    answer = {
        "request_id": body["request_id"],
        "target_employee": body["target_employee"],
        "summary": "",
        "result": "ok",
    }
    return web.json_response(answer | {"token_usage": usage, "status": "success", "duration_ms": 12.5} | more)


def asking(service: Service, dialect: str = "employee", **options: Any) -> Hub:
    hub = Hub(store=MemoryStore())
    hub.add("byte-doc", dialect_agent(dialect, service.url, token="t-1", **options), may_call=["*"])
    return hub


async def test_what_comes_back_is_the_answer_of_the_agent() -> None:
    """X2, X9."""

    async def act(body: Any, _: int) -> web.StreamResponse:
        return answered(body, confidence=80, artifacts=[{"type": "json", "value": 1}])

    service = Service(act)
    async with service.serving(), asking(service) as hub:
        response = await hub.ask("byte-doc", "Read it", user="anna")
    assert (response.unwrap(), response.confidence, response.usage.total) == ("ok", 0.8, 3)
    assert response.artifacts[0].value == 1
    assert (service.tokens, service.paths) == (["Bearer t-1"], ["/chat-internal"])
    assert service.requests[0]["user_id"] == "anna"


async def test_a_session_that_the_service_named_is_gone_on_with() -> None:
    """X16: by the id that it gave, and a new one is asked for without any."""

    async def act(body: Any, number: int) -> web.StreamResponse:
        return answered(body, child_session_id=body.get("child_session_id") or f"theirs-{number}")

    service = Service(act)
    async with service.serving(), asking(service) as hub:
        first = await hub.ask("byte-doc", "One", user="anna")
        await hub.ask("byte-doc", "Two", user="anna", session=first.session)
        await hub.ask("byte-doc", "Three", user="anna")
        for text in ("Four", "Five"):
            (await hub.ask("byte-doc", text, user="anna", session="self")).unwrap()
    assert [sent.get("child_session_id") for sent in service.requests] == [None, "theirs-1", None, None, "theirs-4"]


async def test_a_busy_service_is_asked_again_under_the_same_id_if_it_says_when() -> None:
    """C2: 503 with Retry-After; nothing has begun there."""

    async def act(body: Any, number: int) -> web.StreamResponse:
        return web.Response(status=503, headers={"retry-after": "0"}) if number < 3 else answered(body)

    service = Service(act)
    async with service.serving(), asking(service) as hub:
        assert (await hub.ask("byte-doc", "Read it", user="anna")).unwrap() == "ok"
    assert len(service.requests) == 3
    assert len({sent["request_id"] for sent in service.requests}) == 1


@pytest.mark.parametrize(
    ("status", "headers", "retries", "times", "code"),
    [
        (503, {"retry-after": "0"}, 1, 2, Code.DELEGATION_UNAVAILABLE),
        (503, {"retry-after": "0"}, 0, 1, Code.DELEGATION_UNAVAILABLE),
        (503, {"retry-after": "86400"}, 2, 1, Code.DELEGATION_UNAVAILABLE),
        (503, {}, 2, 1, Code.DELEGATION_UNAVAILABLE),
        (500, {"retry-after": "0"}, 2, 1, Code.DELEGATION_FAILED),
    ],
)
async def test_else_it_is_not_asked_again(
    status: int, headers: dict[str, str], retries: int, times: int, code: Code
) -> None:
    """C2: only where it is safe, as often as was said, and as long as there is time."""

    async def act(_: Any, __: int) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    service = Service(act)
    async with service.serving(), asking(service, retries=retries) as hub:
        response = await hub.ask("byte-doc", "Read it", user="anna")
    assert response.fault is not None
    assert (response.fault.code, len(service.requests)) == (code, times)


async def test_what_may_have_begun_is_not_sent_again() -> None:
    """C2: at most one execution."""

    async def act(_: Any, __: int) -> web.StreamResponse:
        raise asyncio.CancelledError  # the server closes the connection

    service = Service(act)
    async with service.serving(), asking(service) as hub:
        response = await hub.ask("byte-doc", "Read it", user="anna")
    assert response.fault is not None
    assert (response.fault.code, len(service.requests)) == (Code.OUTCOME_UNKNOWN, 1)


async def test_a_service_that_is_not_up_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: a refused connection."""
    refused, refusals = asyncio.Event(), 0

    def in_words(error: Any) -> str:
        nonlocal refusals
        refusals += 1
        if refusals > 3:  # more often than it would be asked again for another reason
            refused.set()
        return str(error)

    monkeypatch.setattr(http_agent, "in_words", in_words)

    async def act(body: Any, _: int) -> web.StreamResponse:
        return answered(body)

    service = Service(act)
    place = service.socket.getsockname()
    service.socket.close()
    async with asking(service, retries=1) as hub, asyncio.timeout(30):
        pending = asyncio.create_task(hub.ask("byte-doc", "Read it", user="anna"))
        await refused.wait()
        service.socket = socket.create_server(place)
        async with service.serving():
            assert (await pending).unwrap() == "ok"
    async with asking(service, retries=1) as hub:
        gone = await hub.ask("byte-doc", "Read it", user="anna", deadline_ms=500)
    assert gone.fault is not None
    assert gone.fault.code is Code.DELEGATION_UNAVAILABLE


async def test_a_librarian_that_names_another_hands_on() -> None:
    """C4: the hub carries it out."""

    async def act(_: Any, __: int) -> web.StreamResponse:
        return web.json_response({"delegate": {"to": "expert", "query": "refined"}})

    service = Service(act)
    hub = asking(service, "librarian")

    @hub.agent("expert")
    async def expert(brief: Brief) -> str:
        return f"found {brief.objective}"

    assert expert
    async with service.serving(), hub:
        response = await hub.ask("byte-doc", "Which papers?", user="anna")
    assert (response.unwrap(), service.paths) == ("found refined", ["/chat-internal/byte-doc"])


@pytest.mark.parametrize(
    ("dialect", "url", "retries", "wrong"),
    [("klingon", "http://a", 0, "klingon"), ("employee", "a", 0, "address"), ("employee", "http://a", -1, "retries")],
)
def test_what_cannot_be_an_agent_elsewhere_is_refused_when_it_is_made(
    dialect: str, url: str, retries: int, wrong: str
) -> None:
    with pytest.raises(RemitError, match=wrong):
        dialect_agent(dialect, url, retries=retries)


# ── sessions that the service names ───────────────────────────────────────────────────────────────────────────────────


async def names_sessions(body: Any, number: int) -> web.StreamResponse:
    return answered(body, child_session_id=body.get("child_session_id") or f"theirs-{number}")


async def test_two_requests_of_one_session_at_once_are_both_answered() -> None:
    """X16: both begin a session there; the one that was kept first is gone on with."""
    both, there = asyncio.Event(), list[Any]()

    async def act(body: Any, number: int) -> web.StreamResponse:
        there.append(body)
        if len(there) == 2:
            both.set()
        await both.wait()
        return await names_sessions(body, number)

    service = Service(act)
    async with service.serving(), asking(service) as hub, asyncio.timeout(30):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(hub.ask("byte-doc", text, user="anna", session="s")) for text in ("One", "Two")]
        assert [task.result().unwrap() for task in tasks] == ["ok", "ok"]
        await hub.ask("byte-doc", "Three", user="anna", session="s")
    assert service.requests[2]["child_session_id"] in ("theirs-1", "theirs-2")


async def test_a_long_conversation_does_not_fill_up_with_names_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody goes on with is forgotten; without that the agent would fail one day, for want of room."""
    monkeypatch.setattr(http_agent, "MOST_SESSIONS", 3)
    service, store = Service(names_sessions), MemoryStore()
    hub = Hub(store=store)
    hub.add("byte-doc", dialect_agent("employee", service.url))

    @hub.agent("boss", may_call=["byte-doc"])
    async def boss(brief: Brief) -> None:
        for number in range(5):
            (await brief.delegate("byte-doc", objective=f"{brief.text} {number}")).unwrap()

    async with service.serving(), hub, asyncio.timeout(30):
        (await hub.ask("boss", "Do", user="anna", session="s")).unwrap()
        _, kept = await store.get("state s byte-doc") or (0, b"")
    assert kept.count(b"theirs") == 3
    assert b"theirs-5" in kept


async def test_answers_of_a_service_that_names_sessions_are_kept() -> None:
    """C9: where the capability says so; what the service calls the session is no part of the answer."""
    service = Service(names_sessions)
    hub = Hub(store=MemoryStore())
    look = Capability(code="LOOK", read_only=True, cache_ms=60_000)
    hub.add("byte-doc", dialect_agent("employee", service.url), capabilities=[look])
    async with service.serving(), hub, asyncio.timeout(30):
        came = [await hub.ask("byte-doc", "Look", user="anna", capability="LOOK") for _ in range(2)]
    assert [each.cache for each in came] == ["miss", "hit"]
