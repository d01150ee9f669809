"""What two clients of one hub ask of a remote agent under the same id are two requests there, too."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from a2a_serving import speaking
from remit import Brief, Hub
from remit.policy.reception import Sender
from remit_server import connect, connect_a2a
from remit_server.dialects.http_agent import dialect_agent
from remit_testing import MemoryStore
from serving import NORTH, client_of, got, posted, serving

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
