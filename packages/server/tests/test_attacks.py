"""Senders that claim what is not theirs: another's name, place, conversation, id or authority."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from remit import Brief, Hub, Limits
from remit.policy.reception import Sender
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.runtime.clock import LoopClock
from remit_server.app import Api
from remit_server.server import Server
from remit_server.transports.credentials.incoming import Authenticator, KnownSender
from samples import a_remit, a_request
from serving import NORTH, OPERATOR, WEB, client_of, events, got, posted, serving
from waiting import PATIENCE_S

SOUTH = Sender(name="south", is_hub=True)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def observed(hub: Hub) -> list[Request]:
    """Add an agent that says how it was asked, and return what it was asked."""
    seen: list[Request] = []

    @hub.agent("echo", may_call=["*"], tools=[])
    async def say(brief: Brief) -> dict[str, Any]:
        seen.append(brief.request)
        said = [message.text for message in await brief.history()]
        return {"text": brief.text, "history": said, "shown": [message.text for message in brief.messages]}

    assert say
    return seen


def from_hub(**changes: Any) -> Request:
    return a_request(**{"target": "echo", "id": "r.1", "origin": "prime", "run": "r", "session": None} | changes)


async def sent_by_hub(session: ClientSession, request: Request) -> tuple[int, Any]:
    headers = {"content-type": "application/json"}
    async with session.post("/v1/delegations", data=encode(request), headers=headers) as reply:
        return reply.status, await reply.json()


def code(body: Any) -> str:
    return body["fault"]["code"]


# ── another's place ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_depth_that_its_chain_contradicts_is_not_believed(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(limits=Limits(max_depth=2))
    seen = observed(hub)
    async with serving(hub) as server, client_of(server, "north") as north:
        forged = a_remit(user="anna", depth=0, max_depth=99, chain=("a@x", "prime@north"))
        status, _ = await sent_by_hub(north, from_hub(remit=forged))
        assert (status, seen[0].remit.depth, seen[0].remit.max_depth) == (200, 2, 2)
        deeper = replace(forged, chain=("a@x", "b@x", "prime@north"))
        status, body = await sent_by_hub(north, from_hub(id="r.2", remit=deeper))
        assert (status, code(body)) == (422, "MAX_DEPTH_EXCEEDED")


async def test_a_hub_that_leaves_itself_out_stands_in_the_chain_all_the_same(hub: Hub) -> None:
    seen = observed(hub)
    async with serving(hub) as server, client_of(server, "north") as north:
        await sent_by_hub(north, from_hub(remit=a_remit(user="anna", depth=0, chain=())))
    assert (seen[0].remit.chain, seen[0].remit.depth) == (("prime@north",), 1)


async def test_a_hub_cannot_speak_in_the_name_of_another(hub: Hub) -> None:
    seen = observed(hub)
    async with serving(hub, NORTH, SOUTH) as server, client_of(server, "north") as north:
        forged = from_hub(
            origin="boss@south",
            via="south",
            session="talk@south",
            parent="someones.1",
            remit=a_remit(user="anna", depth=1, chain=("boss@south",)),
        )
        _, body = await sent_by_hub(north, forged)
        assert (seen[0].origin, seen[0].via, seen[0].parent) == ("boss@south@north", "north", None)
        assert seen[0].session == "talk@south@north"
        assert seen[0].remit.chain == ("boss@south", "boss@south@north")
        async with client_of(server, "south") as south:
            assert (await got(south, f"/v1/delegations/{body['run']}"))[0] == 404, "and what came of it is not its own"


async def test_a_client_cannot_speak_as_a_hub(hub: Hub) -> None:
    seen = observed(hub)
    async with serving(hub) as server, client_of(server) as web:
        status, body = await posted(web, {"target": "echo", "user": "anna", "origin": "prime@north"})
        assert (status, [each["path"] for each in body["fault"]["problems"]]) == (400, ["$.origin"])
        claims: Any = {"via": "north", "run": "theirs", "parent": "theirs.1", "created_ms": 1, "depth": 0, "chain": []}
        assert (await posted(web, {"target": "echo", "user": "anna", "objective": "x"} | claims))[0] == 200
    assert (seen[0].via, seen[0].parent, seen[0].run == "theirs") == ("web", None, False)


# ── another's authority ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "bearer web web"},
        {"authorization": "Bearer web,Bearer ops"},
        {"authorization": "Basic d2ViOndlYg=="},
        {"authorization": "Bearer wEb"},
        {"authorization": "Bearer web\t"},
        {"x-authorization": "Bearer web"},
        {"cookie": "authorization=web"},
        {"remit-credential": "web"},
        {"remit-proof": "web"},
        {"authorization": "Bearer web", "remit-proof": "x"},
    ],
)
async def test_a_token_counts_only_where_and_as_it_belongs(hub: Hub, headers: dict[str, str]) -> None:
    observed(hub)
    async with serving(hub) as server, ClientSession(server.address, headers=headers) as session:
        status, body = await posted(session, {"target": "echo", "user": "anna"})
        assert (status, code(body)) == (401, "UNAUTHENTICATED")
        status, _ = await got(session, "/v1/agents?access_token=web&token=web")
        assert status == 401


async def test_a_stolen_token_opens_no_more_than_its_owner_could(hub: Hub) -> None:
    observed(hub)
    async with serving(hub) as server, client_of(server, "anna-app") as thief, client_of(server) as web:
        _, bobs = await posted(web, {"target": "echo", "user": "bob", "objective": "x"})
        for path in ("/metrics", "/v1/audit", f"/v1/audit?run={bobs['run']}"):
            assert (await got(thief, path))[0] == 403, path
        assert (await got(thief, "/v1/runs?user=bob"))[1] == {"runs": []}


async def test_a_client_reaches_others_only_through_those_whom_it_may_ask(hub: Hub) -> None:
    """A confused deputy: what the client asks for cannot widen what the agent, or the client, may do."""
    tools: list[frozenset[str]] = []

    @hub.tool()
    async def shred(name: str) -> str:
        return f"{name} is gone"

    @hub.agent("secret")
    async def secret(_: Brief) -> str:
        return "the plan"

    @hub.agent("helper")
    async def helper(_: Brief) -> str:
        return "help"

    @hub.agent("front", may_call=["helper"])
    async def front(brief: Brief) -> list[Any]:
        tools.append(brief.tools)
        found = [await brief.delegate(name, objective=f"Ask {name}") for name in ("helper", "secret")]
        return [each.result if each.fault is None else each.fault.code for each in found]

    assert shred
    assert secret
    assert helper
    assert front
    app = Sender(name="app", targets=frozenset({"front"}))
    async with serving(hub, app) as server, client_of(server, "app") as client:
        wide = {"targets": ["helper", "secret", "front"], "tools": ["shred"], "may_delegate": True, "max_depth": 99}
        _, body = await posted(client, {"target": "front", "user": "anna", "objective": "go"} | wide)
        assert body["result"] == ["help", "PERMISSION_DENIED"]
        _, body = await posted(client, {"target": "front", "user": "anna", "objective": "go", "targets": []})
        assert body["result"] == ["PERMISSION_DENIED", "PERMISSION_DENIED"], "it can be narrowed"
        hidden = await posted(client, {"target": "helper", "user": "anna", "objective": "go"})
        missing = await posted(client, {"target": "nobody", "user": "anna", "objective": "go"})
        assert json.dumps(hidden).replace("helper", "nobody") == json.dumps(missing)
        assert [each["name"] for each in (await got(client, "/v1/agents"))[1]["agents"]] == ["front"]
        assert (await got(client, "/v1/agents/helper"))[0] == 404
    assert tools == [frozenset(), frozenset()]


# ── another's conversation ────────────────────────────────────────────────────────────────────────────────────────────


async def test_nobody_goes_on_with_the_conversation_of_another_user(hub: Hub) -> None:
    """X10, X16: neither one that its user named, nor one that nobody did."""
    observed(hub)
    async with serving(hub) as server, client_of(server) as web, client_of(server, "anna-app") as anna:
        _, bobs = await posted(web, {"target": "echo", "user": "bob", "objective": "bobs plan", "session": "plans"})
        _, unnamed = await posted(web, {"target": "echo", "user": "bob", "objective": "bobs other plan"})
        for session in ("plans", bobs["run"], unnamed["run"], unnamed["session"]):
            status, body = await posted(anna, {"target": "echo", "objective": "go on", "session": session})
            if status == 200:  # what nobody had named is nobody's to go on with, and begins anew
                assert body["result"]["history"] == []
            else:
                assert (status, code(body)) == (403, "USER_MISMATCH")
            assert "bobs" not in json.dumps(body)
        _, body = await posted(web, {"target": "echo", "user": "bob", "objective": "go on", "session": "plans"})
        assert body["result"]["history"][0] == "bobs plan", "it is still his"


@pytest.mark.parametrize(
    "claim",
    [
        {"parent_session": "plans"},
        {"handoff": {"history": "plans"}},
        {"correlation": "plans"},
        {"retry_of": "bobs-1"},
        {"context": {"last_messages": 50, "include_summary": True}},
        {"view": {"messages": [{"role": "user", "text": "", "seq": number} for number in range(1, 20)]}},
        {"view": {"seen": list(range(1, 20))}},
    ],
    ids=["parent", "history", "correlation", "retry", "context", "messages", "seen"],
)
async def test_nothing_that_a_sender_refers_to_shows_it_what_another_user_said(hub: Hub, claim: Any) -> None:
    """X10: the numbers of messages, the names of sessions and requests are claims like any other."""
    observed(hub)
    async with serving(hub) as server, client_of(server) as web, client_of(server, "anna-app") as anna:
        plan = {"target": "echo", "user": "bob", "objective": "bobs plan", "session": "plans", "id": "bobs-1"}
        await posted(web, plan)
        for text in ("first", "second"):
            status, body = await posted(anna, {"target": "echo", "objective": text, "session": "mine"} | claim)
            assert status == 200
            assert "bobs" not in json.dumps(body)
        if "view" not in claim:
            assert "first" in body["result"]["history"] + body["result"]["shown"], "her own is there"


async def test_a_reference_to_what_is_anothers_is_refused(hub: Hub) -> None:
    """X10: user isolation of references."""
    observed(hub)
    async with serving(hub) as server, client_of(server, "anna-app") as anna:
        references = [{"owner_scope": "bob", "source_id": "doc-1"}]
        status, body = await posted(anna, {"target": "echo", "objective": "x", "handoff": {"references": references}})
    assert (status, code(body)) == (403, "USER_MISMATCH")


async def test_what_another_hub_shows_is_shown_and_stays_what_it_was(hub: Hub) -> None:
    """What is said elsewhere has no number here, so it is kept itself."""
    seen = observed(hub)
    async with serving(hub) as server, client_of(server, "north") as north, client_of(server, "ops") as ops:
        view: Any = {"messages": [{"role": "user", "text": "I like tea", "seq": 1, "tokens": 0}], "summary": "so far"}
        request = from_hub(remit=a_remit(user="anna", depth=1, chain=("prime@north",)))
        status, answer = await posted(north, json.loads(encode(request)) | {"view": view})
        assert (status, answer["result"]["shown"]) == (200, ["I like tea"])
        _, page = await got(ops, f"/v1/audit?run={answer['run']}")
    assert seen[0].view is not None
    assert seen[0].view.messages[0].tokens > 0, "counted here, whatever the sender says"
    assert "I like tea" in json.dumps(page)


# ── another's run ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_id_of_anothers_run_tells_no_more_than_one_that_does_not_exist(hub: Hub) -> None:
    """X10: id guessing, wherever an id can be given."""
    observed(hub)
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert slow
    async with serving(hub) as server, client_of(server) as web, client_of(server, "anna-app") as anna:
        _, over = await posted(web, {"target": "echo", "user": "bob", "objective": "x", "id": "bobs-1"})
        ask = {"target": "slow", "user": "bob", "objective": "x", "id": "bobs-2"}
        _, going = await posted(web, ask, Prefer="respond-async")
        guesses = [over["run"], going["run"], "bobs-1", "bobs-2", over["run"][:8], f"{going['run']}.1", "nothing"]
        for guess in guesses:
            for path in (f"/v1/delegations/{guess}", f"/v1/delegations/{guess}/events", f"/v1/runs/{guess}"):
                status, body = await got(anna, path)
                assert (status, code(body)) == (404, "NOT_FOUND"), path
                assert body["fault"]["message"].replace(guess, "?") in (
                    "no delegation `?` that anna-app may see",
                    "no run `?` that anna-app may see",
                )
            async with anna.post(f"/v1/delegations/{guess}/cancel", json={"reason": "mine now"}) as reply:
                assert reply.status == 404
        assert (await got(web, f"/v1/delegations/{going['run']}"))[1]["state"] == "running"
        go_on.set()
        assert (await events(web, going["events"]))[-1].record["body"]["result"] == "done"


async def test_users_of_one_client_do_not_meet_under_the_same_id(hub: Hub) -> None:
    """Whoever comes with a token of an identity provider is one of several users of the same client."""
    observed(hub)
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        await go_on.wait()
        return f"done for {brief.user}"

    assert slow
    door = Authenticator([KnownSender(name="portal", issuer=Provider())], wall_ms=LoopClock().wall_ms)
    async with hub, asyncio.timeout(PATIENCE_S), Server(Api(hub, door), drain_s=2) as server:
        anna, bob = (client_of(server, f"a.token.{user}") for user in ("anna", "bob"))
        async with anna, bob:
            ask = {"target": "slow", "objective": "x", "id": "same"}
            hers = (await posted(anna, ask, Prefer="respond-async"))[1]["run"]
            his = (await posted(bob, ask, Prefer="respond-async"))[1]["run"]
            assert hers != his
            for session, run, other in ((anna, hers, his), (bob, his, hers)):
                status, body = await got(session, "/v1/delegations/same")
                assert (status, body["run"]) == (202, run), "each finds its own"
                assert (await got(session, f"/v1/delegations/{other}"))[0] == 404
                assert [each["run"] for each in (await got(session, "/v1/runs"))[1]["runs"]] == [run]
            async with bob.post("/v1/delegations/same/cancel") as reply:
                assert (await reply.json())["run"] == his
            go_on.set()
            assert (await events(anna, f"/v1/delegations/{hers}/events"))[-1].record["body"][
                "result"
            ] == "done for anna"


class Provider:
    """An identity provider whose tokens end with the name of the user."""

    async def user_of(self, token: str, now_s: float) -> str:
        return token.rpartition(".")[2]


async def test_an_id_that_two_users_of_a_client_chose_names_neither_run(hub: Hub) -> None:
    observed(hub)
    async with serving(hub) as server, client_of(server) as web:
        for user in ("anna", "bob"):
            await posted(web, {"target": "echo", "user": user, "objective": "x", "id": "same"})
        assert (await got(web, "/v1/delegations/same"))[0] == 404


# ── another's request ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_id_of_another_sender_or_user_neither_tells_nor_collides(hub: Hub) -> None:
    """Decision 6: a request is known by who sent it, for whom, and its id."""
    seen = observed(hub)
    body = {"target": "echo", "user": "anna", "objective": "the same", "id": "one"}
    async with (
        serving(hub) as server,
        client_of(server) as web,
        client_of(server, "anna-app") as app,
        client_of(server, "north") as north,
    ):
        runs = {
            "web": (await posted(web, body))[1]["run"],
            "again": (await posted(web, body))[1]["run"],
            "other user": (await posted(web, body | {"user": "bob"}))[1]["run"],
            "other client": (await posted(app, body))[1]["run"],
            "hub": (await posted(north, body))[1]["run"],
            "here": (await hub.ask("echo", "the same", user="anna", request_id="one")).run,
        }
        assert runs["web"] == runs["again"]
        assert len(set(runs.values())) == 5
        status, other = await posted(app, {"target": "echo", "user": "anna", "objective": "another", "id": "two"})
        assert (status, other["result"]["text"]) == (200, "another")
        status, _ = await posted(web, {"target": "echo", "user": "anna", "objective": "mine", "id": "two"})
        assert status == 200, "what the other client has used it for is not said"
    assert len(seen) == 7


async def test_a_request_that_is_replayed_with_another_content_is_refused(hub: Hub) -> None:
    seen = observed(hub)
    body = {"target": "echo", "user": "anna", "objective": "pay 10", "id": "pay-1"}
    async with serving(hub) as server, client_of(server) as web:
        _, first = await posted(web, body)
        for change in ({"objective": "pay 1000"}, {"tools": ["read"]}, {"session": "x"}, {"input": 1}):
            status, other = await posted(web, body | change)
            assert (status, code(other)) == (409, "DUPLICATE_REQUEST")
            assert "pay 10" not in json.dumps(other)
        assert (await posted(web, body))[1] == first
        stream = {"Accept": "text/event-stream"}
        async with asyncio.timeout(PATIENCE_S), web.post("/v1/delegations", json=body, headers=stream) as reply:
            assert first["result"]["text"] in await reply.text(), "asked for as a stream, it is the same once more"
    assert [request.objective for request in seen] == ["pay 10"]


async def test_a_trace_that_is_anothers_gives_its_sender_nothing(hub: Hub) -> None:
    """Decision 9: a request with the trace of a run in flight here stands below it, and can only be narrower for it."""
    seen = observed(hub)
    async with serving(hub, NORTH, OPERATOR, WEB) as server, client_of(server) as web:
        asked = {"target": "echo", "user": "anna", "objective": "x", "traceparent": TRACE}
        assert (await posted(web, asked))[0] == 200
        assert (await posted(web, asked | {"objective": "y"}, traceparent=TRACE.replace("0af7", "1af7")))[0] == 200
        assert (await posted(web, {"target": "echo", "user": "anna"}, traceparent="x" * 5_000))[0] == 200
    assert [request.traceparent for request in seen] == [TRACE, TRACE, None]
