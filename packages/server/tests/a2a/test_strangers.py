"""Senders that prove nothing, and agents that drop what a request carries: guests, strangers, loops."""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from a2a_serving import BINDINGS, NORTH, Caller, Wrong, client_of, message, speaking, state, text_of
from remit import Answer, Ask, Brief, Facts, Hub, Limits, Rate, Request, Verdict
from remit.policy.verdict import ALLOW
from remit.protocol.card import AgentCard
from remit_server import Exposure, connect_a2a, serve
from remit_server.a2a.agent import A2aAgent, A2aPeer
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.a2a.guests import PublicAccess
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.dialects.a2a.translator import A2aTranslator
from remit_server.dialects.a2a.types import Binding
from remit_server.server import Server
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
    texts: list[str] = []
    async with speaking(hub, proxies=["127.0.0.1"], public=PublicAccess(agents=("open",))) as server:
        for number in (1, 2):
            headers = {"x-forwarded-for": f"192.0.2.{number}", "a2a-extensions": EXTENSION}
            named = {"messageId": "same", "extensions": [EXTENSION], "metadata": {EXTENSION: {"user": "ada"}}}
            async with guest(server, **headers) as session:
                sent = message(f"text {number}") | named
                task = (await Caller(session, "open")("SendMessage", message=sent))["task"]
            texts.append(task["artifacts"][0]["parts"][0]["text"])
    assert texts == ["heard text 1", "heard text 2"]


TOKEN = "a-token-that-nobody-guesses"
WISH = "Find out who has the receipts of March"


class Stranger:
    """Passes each task on to an agent of the first hub, as a client of its own, with nothing but the text."""

    def __init__(self, words: str = "") -> None:
        self.address = ""
        self.words = words
        self.passed = 0

    async def act(self, brief: Brief) -> str:
        self.passed += 1
        text = f"{self.words} {self.passed}" if self.words else brief.text
        message = {"messageId": f"m-{self.passed}", "role": "ROLE_USER", "parts": [{"text": text}]}
        headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
        url = f"{self.address}/a2a/boss/message:send"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(url, json={"message": message}) as reply,
        ):
            given = await reply.json()
        return str(given)


async def entries(stranger: Stranger, exposure: Exposure) -> tuple[int, str]:
    """Return how often the first hub's agent was entered, and what came of it."""
    near, far = (Hub(name=name, store=MemoryStore(), limits=Limits(max_depth=6)) for name in ("near", "far"))
    entered = 0

    async def boss(brief: Brief) -> str:
        nonlocal entered
        entered += 1
        reply = await brief.delegate("stranger", objective=brief.text)
        return str(reply.result or reply.fault)

    near.add("boss", boss, may_call=["stranger"], concurrency=1_000)
    far.add("passer", stranger.act, concurrency=1_000)
    knows: Any = {"clients": {"near": TOKEN}, "users": {"near": ["ada"]}}
    async with asyncio.timeout(PATIENCE_S), far, serve(far, **knows, a2a=True) as there:
        connect_a2a(near, "stranger", f"{there}/a2a/passer", token=TOKEN)
        async with near, serve(near, clients={"far": TOKEN}, users={"far": ["ada"]}, a2a=exposure) as here:
            stranger.address = here
            done = await near.ask("boss", WISH, user="ada")
    return entered, str(done.result)


async def test_what_comes_back_with_the_same_text_counts_as_deep_as_it_is() -> None:
    entered, said = await entries(Stranger(), Exposure())
    assert entered <= 4
    assert "MAX_DEPTH" in said or "LOOP_DETECTED" in said, said


async def test_what_comes_back_in_other_words_is_bounded_by_what_one_client_may_have_open() -> None:
    entered, said = await entries(Stranger("Please look for receipts, attempt"), Exposure(open=5))
    assert entered == 6, "the first one was asked here"
    assert "5 tasks from far are at work" in said


async def test_the_same_wish_of_one_client_many_times_at_once_is_no_loop() -> None:
    """Nobody else asked for it meanwhile."""
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())
    go, there = asyncio.Event(), 0

    async def slow(_: Brief) -> str:
        nonlocal there
        there += 1
        if there == 12:
            go.set()
        await go.wait()
        return "found"

    async def boss(brief: Brief) -> str:
        return str((await brief.delegate("finder", objective=brief.text)).unwrap())

    far.add("finder", slow, concurrency=100)
    near.add("boss", boss, may_call=["finder"], concurrency=100)
    headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
    knows: Any = {"clients": {"near": TOKEN}, "users": {"near": ["ada"]}}
    async with asyncio.timeout(PATIENCE_S), far, serve(far, **knows, a2a=True) as address:
        connect_a2a(near, "finder", f"{address}/a2a/finder", token=TOKEN, concurrency=100)
        async with (
            near,
            serve(near, clients={"web": TOKEN}, users={"web": ["ada"]}, a2a=True) as here,
            aiohttp.ClientSession(here, headers=headers) as session,
            asyncio.TaskGroup() as group,
        ):
            tasks = [group.create_task(_asked(session, number)) for number in range(12)]
    assert {task.result() for task in tasks} == {"TASK_STATE_COMPLETED"}


async def _asked(session: aiohttp.ClientSession, number: int) -> str:
    message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": WISH}]}
    async with session.post("/a2a/boss/message:send", json={"message": message}) as reply:
        given = await reply.json()
    assert "task" in given, given
    return str(given["task"]["status"]["state"])


class Plain(A2aTranslator):
    """What a client speaks that knows nothing of the extension."""

    def offer(self, card: bytes, url: str, keys: Any) -> Any:
        offer = super().offer(card, url, keys)
        headers = {name: value for name, value in offer.headers.items() if name != "a2a-extensions"}
        return offer._replace(extended=False, headers=headers)


def strangers(hub: Hub, name: str, server: Server) -> None:
    """Let an agent of another server be asked as any client would."""
    peer = A2aPeer(f"{server.address}/a2a/{name}", Plain(), token="anna-app")
    hub.register(AgentCard(name=name), A2aAgent(peer, name), peer.close)


async def test_personal_data_does_not_reach_a_stranger_and_comes_back_to_the_user() -> None:
    """X12: redacted before the delegate sees it, and restored for the caller."""
    seen: list[str] = []
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())

    async def helper(brief: Brief) -> str:
        seen.append(brief.text)
        return f"wrote to {brief.text}"

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("helper", objective="Write", input="joe@example.com")).unwrap()

    far.add("helper", helper)
    near.add("boss", boss, may_call=["helper"])
    async with speaking(far) as server:
        strangers(near, "helper", server)
        async with near:
            response = await near.ask("boss", "Go", user="anna")
    assert response.unwrap() == "wrote to Write\n\njoe@example.com"
    assert "joe" not in seen[0]


async def test_a_loop_through_strangers_is_found_by_its_trace() -> None:
    """C6: no agent twice in a chain, though nobody said that there is one."""
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())
    texts: list[str] = []

    async def helper(brief: Brief) -> str:
        response = await brief.delegate("boss", objective="You do it")
        assert response.fault is not None
        return response.fault.message

    async def boss(brief: Brief) -> str:
        texts.append(brief.text)
        return (await brief.delegate("helper", objective="Help")).unwrap()

    far.add("helper", helper, may_call=["*"])
    near.add("boss", boss, may_call=["*"])
    async with speaking(far) as at_far, speaking(near) as at_near:
        strangers(near, "helper", at_far)
        strangers(far, "boss", at_near)
        async with asyncio.timeout(PATIENCE_S):
            response = await near.ask("boss", "Go", user="anna")
    assert texts == ["Go"]
    assert "boss" in response.unwrap()


async def test_who_waits_for_a_person_lets_its_own_client_know() -> None:
    """7.6.2: a chain of tasks that require authorization, and no time passes in any of them."""

    def ask_first(request: Request, _: Facts) -> Verdict:
        return Ask("May it pay?") if request.target == "helper" else ALLOW

    far = Hub(name="far", store=MemoryStore(), guards=[ask_first], approver="inbox")
    near = Hub(name="near", store=MemoryStore())

    async def helper(_: Brief) -> str:
        return "paid"

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("helper", objective="Pay", deadline_ms=3_000)).unwrap()

    far.add("helper", helper)
    near.add("boss", boss, may_call=["*"])
    async with speaking(far) as at_far, speaking(near) as at_near, client_of(at_near) as session:
        strangers(near, "helper", at_far)
        ask = Caller(session, "boss")
        task = await ask.send("Go")
        assert (state(task), task["status"]["message"]["parts"]) == ("AUTH_REQUIRED", [{"text": "May it pay?"}])
        await asyncio.sleep(3.2)  # longer than the callee may take: that no time passes is what is tested
        (question,) = await far.pending()
        await far.decide(question.id, agreed=True, by="ann")
        ended = await ask.until(task["id"], "COMPLETED", "FAILED")
    assert text_of(ended) == "paid"


async def test_a_hub_goes_on_with_a_conversation_by_whatever_it_is_called() -> None:
    """A hub's own names and those that were given to it are the same conversation when it comes back."""
    far = Hub(name="far", store=MemoryStore())

    async def clerk(brief: Brief) -> Answer:
        heard = [each.text for each in await brief.history()]
        return Answer(f"{len(heard)} {brief.text}", requires_followup=brief.text == "ask")

    far.add("clerk", clerk)
    words = {EXTENSION: {"user": "anna"}}
    async with speaking(far) as server, client_of(server, NORTH.name, extended=True) as session:
        ask = Caller(session, "clerk")
        own = await ask.send("one", metadata=words, contextId="talk")
        again = await ask.send("two", metadata=words, contextId="talk")
        given = await ask.send("ask", metadata=words)
        answered = await ask.send("three", metadata=words, taskId=given["id"])
        later = await ask.send("four", metadata=words, contextId=given["contextId"])
        listed = await ask("ListTasks", contextId="talk")
    assert (own["contextId"], again["contextId"], text_of(again)) == ("talk", "talk", "2 two")
    assert (answered["id"], answered["contextId"]) == (given["id"], given["contextId"])
    assert text_of(answered) == "2 three"
    assert (later["contextId"], text_of(later)) == (given["contextId"], "4 four")
    assert [each["id"] for each in listed["tasks"]] == [again["id"], own["id"]]
