"""A conversation that is handed over, over HTTP: each answer says who is in charge, and the tree who took over."""

from typing import Any

from remit import Answer, Brief, Hub
from remit.policy.reception import Sender
from remit.protocol.envelope import ToolFinding
from serving import OPERATOR, WEB, client_of, got, posted, serving

FRONT = Sender(name="front", targets=frozenset({"desk"}))


def add_agents(hub: Hub) -> None:
    @hub.agent("desk", may_call=["billing"])
    async def desk(brief: Brief) -> Answer:
        return Answer(handover="billing") if "bill" in brief.text else Answer("desk")

    @hub.agent("billing")
    async def billing(brief: Brief) -> Answer:
        brief.say("bill")
        brief.say("ing")
        return Answer(handover="back") if "open" in brief.text else Answer("billing")

    assert desk
    assert billing


async def ask(session: Any, text: str, **fields: Any) -> Any:
    return (await posted(session, {"target": "desk", "user": "anna", "objective": text, "session": "s", **fields}))[1]


async def test_each_answer_says_who_is_in_charge_and_the_tree_who_took_over(hub: Hub) -> None:
    add_agents(hub)
    async with serving(hub, WEB) as server, client_of(server) as web:
        first = await ask(web, "my bill")
        second = await ask(web, "and that?")
        back = await ask(web, "when do you open?")
        asked = await ask(web, "and that?", handover="billing")
        taken = await ask(web, "and that?", handover="desk")
        _, tree = await got(web, f"/v1/runs/{second['run']}/tree")
        _, between = await got(web, f"/v1/runs/{back['run']}/tree")
        _, talk = await got(web, "/v1/sessions/s")
    answers = [(each["result"], [to["to"] for to in each.get("handover", ())]) for each in (first, second, back, asked)]
    assert answers == [("billing", ["billing"]), ("billing", ["billing"]), ("desk", []), ("billing", ["billing"])]
    assert taken["result"] == "desk"
    assert tree["delegations"]["note"] == ["the conversation is with billing now", "took the conversation over"]
    assert between["delegations"]["note"] == ["", "handed the conversation back to desk"]
    said = [each["name"] for each in talk["messages"] if each["role"] == "assistant"]
    assert said == ["billing", "billing", "desk", "billing", "desk"]


async def test_a_client_asks_the_agent_it_may_ask_and_that_one_hands_over(hub: Hub) -> None:
    """What the agent behind it may do is the team's to say; by itself the client does not reach it."""
    add_agents(hub)
    async with serving(hub, FRONT) as server, client_of(server, "front") as front:
        handed = await ask(front, "my bill")
        status, refused = await posted(front, {"target": "billing", "user": "anna", "objective": "x", "session": "s"})
        unknown = await ask(front, "x", handover="billing")
    assert handed["result"] == "billing"
    assert (status, refused["fault"]["code"]) == (404, "AGENT_NOT_FOUND")
    assert unknown["fault"]["code"] == "AGENT_NOT_FOUND"


async def test_a_stream_has_the_text_of_whoever_is_in_charge_as_the_answers(hub: Hub) -> None:
    add_agents(hub)
    async with serving(hub, WEB) as server, client_of(server) as web:
        await ask(web, "my bill")
        sent = {"target": "desk", "user": "anna", "objective": "more", "session": "s"}
        async with web.post("/v1/delegations", json=sent, headers={"accept": "text/event-stream"}) as reply:
            text = (await reply.read()).decode()
    deltas = [line for line in text.splitlines() if '"text":"bill"' in line or '"text":"billing"' in line]
    assert deltas
    assert all('"agent":"billing"' in line for line in deltas)
    assert all('.1"' not in line.partition('"delegation":')[2][:45] for line in deltas)


async def test_what_an_agent_looked_up_is_sent_to_no_client(hub: Hub) -> None:
    found = ToolFinding(tool="look", result="SECRET")

    @hub.agent("desk", may_call=["clerk"])
    async def desk(brief: Brief) -> Answer:
        reply = await brief.delegate("clerk", objective="look", session="papers")
        assert reply.findings == ()
        history = await brief.history()
        return Answer(str([len(each.findings) for each in history]), findings=(found,))

    @hub.agent("clerk")
    async def clerk(_: Brief) -> Answer:
        return Answer("looked", findings=(found,))

    async with serving(hub, WEB, OPERATOR) as server, client_of(server) as web, client_of(server, "ops") as reader:
        await ask(web, "one")
        second = await ask(web, "two", id="two")
        shown = [second]
        for path in (f"runs/{second['run']}", f"runs/{second['run']}/tree", "sessions/s", "delegations/two", "audit"):
            shown += [(await got(client, f"/v1/{path}"))[1] for client in (web, reader)]
        async with web.get("/v1/delegations/two/events", headers={"accept": "text/event-stream"}) as reply:
            shown.append(await reply.read())
        kept = repr(await hub.store.records())
    assert second["result"] == "[0, 1]"
    assert "SECRET" in kept
    assert "SECRET" not in repr(shown)
