"""Hubs that meet by A2A: what holds between those that know each other, and between strangers."""

import asyncio
from typing import Any

from a2a_serving import NORTH, Caller, client_of, speaking, state, text_of
from remit import Answer, Ask, Brief, Facts, Hub, Request, Verdict
from remit.policy.verdict import ALLOW
from remit.protocol.card import AgentCard
from remit_server.a2a.agent import A2aAgent, A2aPeer
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.dialects.a2a.translator import A2aTranslator
from remit_server.server import Server
from remit_testing import MemoryStore
from waiting import PATIENCE_S


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
    asked: list[str] = []

    async def helper(brief: Brief) -> str:
        response = await brief.delegate("boss", objective="You do it")
        assert response.fault is not None
        return response.fault.message

    async def boss(brief: Brief) -> str:
        asked.append(brief.text)
        return (await brief.delegate("helper", objective="Help")).unwrap()

    far.add("helper", helper, may_call=["*"])
    near.add("boss", boss, may_call=["*"])
    async with speaking(far) as at_far, speaking(near) as at_near:
        strangers(near, "helper", at_far)
        strangers(far, "boss", at_near)
        async with asyncio.timeout(PATIENCE_S):
            response = await near.ask("boss", "Go", user="anna")
    assert asked == ["Go"]
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
