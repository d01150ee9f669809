"""Sessions, ids and names between hubs: whose they are, how long they may be, and what they find."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from a2a_serving import speaking
from remit import Brief, Code, Hub, RemitError
from remit.policy.reception import Sender
from remit_server import connect, connect_a2a
from remit_server.dialects.http_agent import dialect_agent
from remit_testing import MemoryStore
from serving import NORTH, WEB, client_of, events, got, parsed, posted, serving

EMPLOYEE: dict[str, Any] = {
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "anna",
    "parent_session_id": "uuid-of-prime-session",
    "input": "receipt.jpg",
    "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
    "context_hints": [],
    "handoff_data": {},
    "current_depth": 1,
}


def office(path: Path, seen: list[Brief] | None = None) -> Hub:
    hub = Hub(store=str(path / "remit.db"))

    @hub.agent("byte-doc")
    async def byte(brief: Brief) -> list[str]:
        if seen is not None:
            seen.append(brief)
        return [message.text.split()[0] for message in await brief.history() if message.role == "user"]

    return hub


async def employee(session: ClientSession, request_id: str, child: str | None = None, **more: Any) -> Any:
    body = EMPLOYEE | {"request_id": request_id, "objective": request_id, "child_session_id": child} | more
    async with session.post("/dialects/employee", json=body) as reply:
        return await reply.json()


async def test_an_employee_goes_on_in_the_child_session_that_it_was_given(tmp_path: Path) -> None:
    """X16: the returned `child_session_id` is the one to send, also after a restart; a chosen one keeps its name."""
    async with serving(office(tmp_path)) as server, client_of(server, "north") as north:
        first = await employee(north, "1")
        child = first["child_session_id"]
        second = await employee(north, "2", child)
        chosen = await employee(north, "3", "mine")
    async with serving(office(tmp_path)) as server, client_of(server, "north") as north:
        third = await employee(north, "4", child)
        again = await employee(north, "5", chosen["child_session_id"])
    assert [each["child_session_id"] for each in (second, third, chosen, again)] == [child, child, "mine", "mine"]
    assert [each["result"] for each in (first, second, third)] == ["[]", '["1"]', '["1","2"]']
    assert again["result"] == '["3"]'


async def test_the_parent_session_of_a_peer_is_kept(tmp_path: Path) -> None:
    """X16: the callee and the record know from which session of the peer it was asked."""
    seen: list[Brief] = []
    hub = office(tmp_path, seen)
    async with serving(hub) as server, client_of(server, "north") as north:
        await employee(north, "1")
        (record, *_) = await hub.store.records(limit=1)
    assert seen[0].request.parent_session == "uuid-of-prime-session@north"
    assert record.body.parent_session == "uuid-of-prime-session@north"  # pyright: ignore


async def test_a_refusal_is_not_written_into_the_session_that_a_sender_names_as_its_parent(tmp_path: Path) -> None:
    """X10: what a sender names is a claim."""
    hub = office(tmp_path)
    async with serving(hub) as server, client_of(server) as web:
        _, mine = await posted(web, {"target": "byte-doc", "user": "bob", "objective": "mine", "session": "plans"})
        assert mine["status"] == "success"
        refused = {"target": "byte-doc", "user": "anna", "objective": "x", "capability": "NONE"}
        _, body = await posted(web, refused | {"parent_session": "plans"})
        assert body["status"] == "refused"
        assert {record.run for record in await hub.store.records(session="plans")} == {mine["run"]}


@pytest.mark.parametrize("name", ["north", "web"])
async def test_over_the_api_a_returned_session_is_the_one_to_send(tmp_path: Path, name: str) -> None:
    """X16: with a hub's token as with a client's."""
    ask = {"target": "byte-doc", "user": "anna"}
    async with serving(office(tmp_path)) as server, client_of(server, name) as client:
        _, first = await posted(client, ask | {"objective": "one"})
        _, second = await posted(client, ask | {"objective": "two", "session": first["session"]})
        _, looked = await got(client, f"/v1/delegations/{second['run']}")
        stream = {"accept": "text/event-stream"}
        third = ask | {"objective": "three", "session": second["session"]}
        async with client.post("/v1/delegations", json=third, headers=stream) as reply:
            told = parsed(await reply.text())[-1].record["body"]
        _, mine = await posted(client, ask | {"objective": "four", "session": "mine"})
        _, more = await posted(client, ask | {"objective": "five", "session": mine["session"]})
        last = (await events(client, f"/v1/delegations/{more['run']}/events"))[-1].record["body"]
    assert {each["session"] for each in (first, second, looked, told)} == {first["session"]}
    assert [each["result"] for each in (first, second, told)] == [[], ["one"], ["one", "two"]]
    assert (mine["session"], more["session"], last["session"], more["result"]) == ("mine", "mine", "mine", ["four"])


async def test_a_session_that_was_begun_for_one_is_no_session_of_another(tmp_path: Path) -> None:
    """X10: neither of another user of the peer, nor of another peer, nor of a local user."""
    south = Sender(name="south", is_hub=True)
    ask = {"target": "byte-doc", "objective": "go on"}
    async with (
        serving(office(tmp_path), WEB, NORTH, south) as server,
        client_of(server, "north") as north,
        client_of(server, "south") as other,
        client_of(server) as web,
    ):
        _, first = await posted(north, ask | {"user": "anna", "objective": "secret"})
        _, local = await posted(web, ask | {"user": "anna", "objective": "local"})
        _, bobs = await posted(north, ask | {"user": "bob", "session": first["session"]})
        _, named = await posted(north, ask | {"user": "anna", "session": "same", "id": "same"})
        _, taken = await posted(north, ask | {"user": "bob", "session": "same", "id": "same"})
        _, souths = await posted(other, ask | {"user": "anna", "session": first["session"]})
        _, norths = await posted(north, ask | {"user": "anna", "session": local["session"]})
    assert named["result"] == taken["result"] == souths["result"] == norths["result"] == []
    assert bobs["fault"]["code"] == Code.USER_MISMATCH


async def test_an_id_with_the_ending_that_the_hub_adds_is_the_same_session(tmp_path: Path) -> None:
    """X16: records show it with its ending, and whoever sends it from there goes on as well."""
    ask = {"target": "byte-doc", "user": "anna"}
    async with serving(office(tmp_path)) as server, client_of(server, "north") as north:
        for said, session in (("one", "s"), ("two", "s@north"), ("three", "s")):
            _, body = await posted(north, ask | {"objective": said, "session": session})
    assert (body["session"], body["result"]) == ("s", ["one", "two"])


CLIENTS = (Sender(name="web"), Sender(name="app"))


class Till:
    """An agent that counts what it is asked for, and under which ids."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def __call__(self, brief: Brief) -> Any:
        self.ids.append(brief.request.id)
        return {"paid": brief.text, "number": len(self.ids)}


def far_hub(till: Till) -> Hub:
    hub = Hub(name="far", store=MemoryStore())
    hub.add("till", till, capabilities=["PAY"])
    return hub


@pytest.mark.parametrize("way", ["http", "a2a", "contract"])
@pytest.mark.parametrize("texts", [("5 euros", "5 euros"), ("5 euros", "7 euros")])
async def test_two_clients_with_one_user_and_one_id_get_an_answer_of_their_own(
    tmp_path: Path, way: str, texts: tuple[str, str]
) -> None:
    """Decision 6: whose an id is, is decided by who sends it; to the peer both come from the hub in front."""
    till = Till()
    front = Hub(name="north", store=tmp_path / "front.db", durability="process")
    far = far_hub(till)
    opened = speaking(far) if way == "a2a" else serving(far, NORTH)
    async with opened as there:
        if way == "http":
            connect(front, "till", there.address, token="north", capabilities=["PAY"])
        elif way == "a2a":
            connect_a2a(front, "till", f"{there.address}/a2a/till", token="north", capabilities=["PAY"])
        else:
            url = f"{there.address}/dialects/contract"
            front.add("till", dialect_agent("contract", url, token="north"), capabilities=["PAY"])
        async with serving(front, *CLIENTS) as server:
            answers: list[Any] = []
            for client, text in zip(CLIENTS, texts, strict=True):
                body = {"target": "till", "user": "anna", "id": "order-1", "objective": text, "capability": "PAY"}
                async with client_of(server, client.name) as session:
                    status, said = await posted(session, body | ({"input": {}} if way == "contract" else {}))
                    assert status == 200, said
                    assert said["id"] == "order-1"
                    again = (await posted(session, body | ({"input": {}} if way == "contract" else {})))[1]
                    assert again["result"] == said["result"]
                    assert (await got(session, "/v1/delegations/order-1"))[0] == 200
                    answers.append(said["result"])
    assert len(till.ids) == len(set(till.ids)) == 2
    assert [each["number"] for each in answers] == [1, 2]


async def test_a_client_that_gives_up_stops_its_own_request_at_the_peer(tmp_path: Path) -> None:
    """Decision 8: cancelled under the id by which the peer knows it."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: Brief) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    far = Hub(name="far", store=MemoryStore())
    far.add("till", slow)
    front = Hub(name="north", store=tmp_path / "front.db", durability="process")
    async with serving(far, NORTH) as there, asyncio.timeout(30):
        connect(front, "till", there.address, token="north")
        async with serving(front, *CLIENTS) as server, client_of(server) as session:
            body = {"target": "till", "user": "anna", "id": "order-1", "objective": "go"}
            asking = asyncio.create_task(posted(session, body))
            await began.wait()
            async with session.post("/v1/delegations/order-1/cancel", json={}) as reply:
                assert reply.status in (200, 202)
            await ended.wait()
            assert (await asking)[1]["status"] == "cancelled"


async def test_a_retry_names_the_earlier_request_as_the_peer_knows_it(tmp_path: Path) -> None:
    """Decision 6: a retry is a new id with `retry_of`, at the peer as here."""
    seen: list[tuple[str, str | None]] = []

    async def failing(brief: Brief) -> str:
        seen.append((brief.request.id, brief.request.retry_of))
        raise ValueError("not yet")

    far = Hub(name="far", store=MemoryStore())
    far.add("till", failing)
    front = Hub(name="north", store=tmp_path / "front.db", durability="process")
    async with serving(far, NORTH) as there:
        connect(front, "till", there.address, token="north")
        async with serving(front, *CLIENTS) as server, client_of(server) as session:
            body = {"target": "till", "user": "anna", "objective": "go"}
            await posted(session, body | {"id": "order-1"})
            await posted(session, body | {"id": "order-2", "retry_of": "order-1"})
            await posted(session, body | {"id": "order-3", "retry_of": "unheard-of"})
    assert [retry_of for _, retry_of in seen] == [None, seen[0][0], None]
    assert len({name for name, _ in seen}) == 3


ASK: dict[str, Any] = {"user": "anna", "target": "desk", "objective": "Go", "origin": "boss"}


def desk_office(path: Path) -> Hub:
    hub = Hub(store=str(path / "remit.db"))

    @hub.agent("desk")
    async def desk(_: Brief) -> str:
        return "done"

    return hub


@pytest.mark.parametrize("field", ["session", "parent_session", "origin"])
async def test_a_peers_name_that_is_too_long_to_be_kept_is_refused_by_its_field(tmp_path: Path, field: str) -> None:
    """X16: here it ends with the peer's name, and a record with a longer one could never be read again."""
    async with (
        serving(desk_office(tmp_path)) as server,
        client_of(server, "north") as north,
        client_of(server, "ops") as ops,
    ):
        status, refused = await posted(north, ASK | {field: "n" * 195})
        assert (status, refused["fault"]["problems"][0]["path"]) == (400, f"$.{field}")
        assert "at most 194 characters" in refused["fault"]["problems"][0]["message"]
        _, done = await posted(north, ASK | {field: "n" * 194})
        assert done["result"] == "done"
        assert (await got(ops, "/v1/runs"))[0] == (await got(ops, "/v1/audit"))[0] == 200


async def test_calls_that_are_named_can_be_nested_as_deep_as_others(tmp_path: Path) -> None:
    hub = Hub(store=str(tmp_path / "remit.db"))
    paths: list[str] = []

    def level(number: int) -> None:
        @hub.agent(f"level{number}", may_call=["*"], resumable=number == 0)
        async def work(brief: Brief) -> str:
            paths.append(brief.request.path)
            if number == 4:
                return "deep"
            names = ["a" * 100, "b" * 100] if number == 0 else ["c" * 100]
            calls = [await brief.delegate(f"level{number + 1}", objective=name, step=name) for name in names]
            return calls[-1].unwrap()

    for number in range(5):
        level(number)
    async with hub:
        response = await hub.ask("level0", "Go", user="anna")
        records = await hub.store.records(run=response.run)
    assert response.unwrap() == "deep"
    assert len(set(paths)) == len(paths) == 9
    assert max(map(len, paths)) <= 200
    assert len(records) == 18


def test_names_of_agent_and_hub_that_are_too_long_together_are_refused() -> None:
    hub = Hub(name="h" * 100, store=MemoryStore())

    async def work(_: Brief) -> str:
        return "done"

    with pytest.raises(RemitError) as refused:
        hub.add("a" * 100, work)
    assert refused.value.fault.code is Code.TEAM_INVALID
    assert "at most 200 characters" in refused.value.fault.message
    hub.add("a" * 99, work)


DESK_APP = Sender(name="desk-app", users=frozenset({"anna"}), targets=frozenset({"desk"}))


async def test_a_client_of_some_agents_cannot_have_conversations_with_others_read() -> None:
    """K5, X10: what it may not ask for, it may not have read out by whom it may ask."""
    hub = Hub(store=MemoryStore())

    async def answer(brief: Brief) -> Any:
        if brief.handoff.history is None:
            return "noted"
        return [message.text for message in await brief.history(brief.handoff.history) if message.role == "user"]

    hub.add("desk", answer)
    hub.add("payroll", answer)
    async with serving(hub, WEB, DESK_APP) as server, client_of(server) as web, client_of(server, "desk-app") as app:
        for target in ("desk", "payroll"):
            ask = {"user": "anna", "target": target, "objective": f"Hello {target}", "session": f"with-{target}"}
            await posted(web, ask)
        read: list[Any] = []
        for client in (web, app):
            for target in ("desk", "payroll"):
                body = {"user": "anna", "target": "desk", "objective": "Read", "handoff": {"history": f"with-{target}"}}
                _, told = await posted(client, body)
                read.append(told["fault"]["code"] if "fault" in told else told["result"])
    assert read == [["Hello desk"], ["Hello payroll"], ["Hello desk"], Code.NOT_FOUND]
