"""A session id that a peer is given is the one that it sends to go on, on every face of a server."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Brief, Code, Hub
from remit.policy.reception import Sender
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
