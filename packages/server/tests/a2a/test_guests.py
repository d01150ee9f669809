"""Clients without a token, for agents that a team publishes to everybody."""

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession

from a2a_serving import BINDINGS, Caller, Wrong, message, speaking, state
from remit import Brief, Hub, Rate, Request
from remit_server import connect_a2a
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.a2a.guests import PublicAccess
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.dialects.a2a.types import Binding
from remit_testing import MemoryStore
from waiting import PATIENCE_S

both = pytest.mark.parametrize("binding", BINDINGS)


@pytest.fixture
def hub() -> Hub:
    return Hub(store=MemoryStore())


class Shop:
    """A hub with an agent for everybody, one for clients, and one who works until it is let go."""

    def __init__(self, hub: Hub) -> None:
        self.asked: list[Request] = []
        self.go = asyncio.Event()

        @hub.agent("open", time_ms=20_000)
        async def opened(brief: Brief) -> str:
            self.asked.append(brief.request)
            if brief.text == "wait":
                await asyncio.wait_for(self.go.wait(), PATIENCE_S)
            return f"heard {brief.text}"

        @hub.agent("closed")
        async def closed(brief: Brief) -> str:
            return brief.text

        assert opened
        assert closed


async def card_of(session: ClientSession, name: str) -> Any:
    async with session.get(f"/a2a/{name}/.well-known/agent-card.json") as reply:
        return await reply.json()


def guest(server: Any, **headers: str) -> ClientSession:
    return ClientSession(server.address, headers={"a2a-version": "1.0", **headers})


@both
async def test_everybody_may_ask_a_public_agent_and_nobody_another(hub: Hub, binding: str) -> None:
    shop = Shop(hub)
    access = PublicAccess(agents=("open",), tokens=500, time_ms=9_000)
    async with speaking(hub, public=access) as server, guest(server) as session:
        task = (await Caller(session, "open", binding)("SendMessage", message=message("tea")))["task"]
        assert (await Caller(session, "open", binding)("GetTask", id=task["id"]))["id"] == task["id"]
        with pytest.raises(Wrong) as wrong:
            await Caller(session, "closed", binding)("SendMessage", message=message("tea"))
        assert wrong.value.status == 401
        with pytest.raises(Wrong) as wrong:  # who shows a token has to show a valid one
            await Caller(session, "open", binding, authorization="Bearer x")("SendMessage", message=message("tea"))
        assert wrong.value.status == 401
        cards = [
            await (await session.get(f"/a2a/{name}/.well-known/agent-card.json")).json() for name in ("open", "closed")
        ]
    assert state(task) == "COMPLETED"
    assert ["securityRequirements" in card for card in cards] == [False, True]
    (request,) = shop.asked
    assert request.remit.tokens <= 500
    assert request.remit.time_ms <= 9_000
    assert request.remit.user.startswith("guest-")
    assert "127.0.0.1" not in str(request)


async def test_one_address_sees_nothing_of_another(hub: Hub) -> None:
    Shop(hub)
    seen: list[list[str]] = []
    access = PublicAccess(agents=("open",))
    async with speaking(hub, proxies=["127.0.0.1"], public=access) as server:
        one, other = (guest(server, **{"x-forwarded-for": f"192.0.2.{number}"}) for number in (1, 2))
        async with one, other:
            task = (await Caller(one, "open")("SendMessage", message=message("tea")))["task"]["id"]
            for session in (one, other):
                found = (await Caller(session, "open")("ListTasks"))["tasks"]
                seen.append([each["id"] for each in found])
            with pytest.raises(Wrong) as wrong:
                await Caller(other, "open")("GetTask", id=task)
    assert seen == [[task], []]
    assert wrong.value.reason == "TASK_NOT_FOUND"


async def test_an_address_is_held_to_its_rate_and_to_so_many_tasks_at_once(hub: Hub) -> None:
    shop = Shop(hub)
    access = PublicAccess(agents=("open",), rate=Rate(3, 3_600), open=1)
    async with speaking(hub, public=access) as server, guest(server) as session:
        ask = Caller(session, "open")
        began = await ask.send("wait", returnImmediately=True)
        with pytest.raises(Wrong) as busy:
            await ask.send("tea")
        shop.go.set()
        await ask.until(began["id"], "COMPLETED")
        for text in ("milk", "bread"):
            await ask.send(text)
        with pytest.raises(Wrong) as often:
            await ask.send("cheese")
        assert (await ask("GetTask", id=began["id"]))["id"] == began["id"], "looking is no message"
    assert "1 tasks from your address are at work, and no more may be" in busy.value.error["message"]
    assert "more than 3 messages in 3600 s from your address" in often.value.error["message"]
    assert often.value.reasons["remit"] == "RATE_LIMITED"


@pytest.mark.parametrize("bound", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_a_hub_without_a_token_is_a_guest_for_whomever_it_asks(hub: Hub, bound: Binding) -> None:
    """It uses the extension, whose limits hold here; the user that it names is unknown here."""
    shop, near = Shop(hub), Hub(name="near", store=MemoryStore())
    public = PublicAccess(agents=("open",))
    async with speaking(hub, public=public, grpc=GrpcListener()) as server, asyncio.timeout(PATIENCE_S):
        connect_a2a(near, "shop", f"{server.address}/a2a/open", binding=bound)
        async with near:
            answers = [
                (await near.ask("shop", "tea", user=user, deadline_ms=5_000)).unwrap() for user in ("ada", "bob")
            ]
    assert answers == ["heard tea", "heard tea"]
    (user,) = {request.remit.user for request in shop.asked}
    assert user.startswith("guest-")
    assert all(request.remit.time_ms <= 5_000 for request in shop.asked)


async def test_hubs_at_two_addresses_that_choose_the_same_id_and_user_get_their_own_answers(hub: Hub) -> None:
    Shop(hub)
    said: list[str] = []
    async with speaking(hub, proxies=["127.0.0.1"], public=PublicAccess(agents=("open",))) as server:
        for number in (1, 2):
            headers = {"x-forwarded-for": f"192.0.2.{number}", "a2a-extensions": EXTENSION}
            named = {"messageId": "same", "extensions": [EXTENSION], "metadata": {EXTENSION: {"user": "ada"}}}
            async with guest(server, **headers) as session:
                sent = message(f"text {number}") | named
                task = (await Caller(session, "open")("SendMessage", message=sent))["task"]
            said.append(task["artifacts"][0]["parts"][0]["text"])
    assert said == ["heard text 1", "heard text 2"]
