"""Peers' limits cannot be had for nothing: by ids sent again, names in other letters, or a process that was killed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from remit import Brief, Hub
from remit.policy.reception import Sender
from remit.protocol.submission import Submission
from remit.runtime.incoming import PeerCalls
from serving import client_of, serving

REQUEST: dict[str, Any] = {
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "anna",
    "parent_session_id": "session-1",
    "objective": "Extract receipt data",
    "input": "receipt.jpg",
    "constraints": {},
    "context_hints": [],
    "handoff_data": {},
    "current_depth": 1,
}


class Office:
    """A hub whose employee works until it is let go."""

    def __init__(self, path: Path) -> None:
        self.hub = Hub(store=str(path / "remit.db"))
        self.go = asyncio.Event()
        self.busy: asyncio.Queue[str] = asyncio.Queue()

        @self.hub.agent("byte-doc")
        async def byte(brief: Brief) -> str:
            self.busy.put_nowait(brief.objective)
            await self.go.wait()
            if brief.objective == "fail":
                raise ValueError("no")
            return "read"


async def employee(session: ClientSession, request_id: str, **more: Any) -> str:
    """Ask, and return the error or, without one, the result."""
    async with session.post("/dialects/employee", json=REQUEST | {"request_id": request_id} | more) as reply:
        body = await reply.json()
        return body.get("error") or body["result"]


FULL = "Too many concurrent delegates (4/3). Choose top 3 most relevant employees."


async def test_an_id_sent_again_with_another_content_frees_no_place(tmp_path: Path) -> None:
    """X4: it is refused as a duplicate, and what it was a duplicate of goes on."""
    office = Office(tmp_path)
    async with (
        serving(office.hub) as server,
        client_of(server, "north") as north,
        asyncio.timeout(30),
        asyncio.TaskGroup() as group,
    ):
        running = [group.create_task(employee(north, f"r-{n}", objective=f"Task {n}")) for n in range(3)]
        for _ in running:
            await office.busy.get()
        again = [await employee(north, f"r-{n}", objective="another") for n in range(3)]
        more = await employee(north, "r-9", objective="More")
        office.go.set()
    assert all("used before with other content" in each for each in again)
    assert more == FULL
    assert [task.result() for task in running] == ["read"] * 3


@pytest.mark.parametrize("name", ["Prime-Boss", "ｐｒｉｍｅ-ｂｏｓｓ"])
async def test_an_employee_under_its_name_in_other_letters_has_no_places_of_its_own(tmp_path: Path, name: str) -> None:
    """X4, X5."""
    office = Office(tmp_path)
    async with (
        serving(office.hub) as server,
        client_of(server, "north") as north,
        asyncio.timeout(30),
        asyncio.TaskGroup() as group,
    ):
        running = [group.create_task(employee(north, f"r-{n}", objective=f"Task {n}")) for n in range(3)]
        for _ in running:
            await office.busy.get()
        more = await employee(north, "r-9", objective="More", origin_employee=name)
        office.go.set()
    assert more == FULL


async def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        for number in range(5):
            claims = {"version": "1.0", "context": {"last_messages": 3}}
            handed = {"intermediate_results": {"remit": claims}}
            await employee(north, f"r-{number}", handoff_data=handed)
        parts = office.hub._parts  # pyright: ignore[reportPrivateUsage]
        assert (parts.remarks, parts.passed_on) == ({}, {})


async def test_calls_of_a_process_that_was_killed_stand_in_nobodys_way_once_they_are_known_to_have_ended(
    tmp_path: Path,
) -> None:
    """X4, X5: not for the quarter of an hour that they might have taken."""
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        await employee(north, "r-1", objective="fail")
        [failed] = await office.hub.store.runs()
        sent = Submission(
            target="byte-doc",
            id="r-2",
            user="anna",
            origin="prime-boss",
            parent_session="session-1",
            objective=REQUEST["objective"],
            input=REQUEST["input"],
        )
        request = office.hub.receive(sent, Sender(name="north", is_hub=True))
        # As another process counts it, which is killed before it can say that it has ended.
        killed = PeerCalls(office.hub._parts)  # pyright: ignore[reportPrivateUsage]
        assert await killed.admit(request) is None
        assert "Cycle detected" in await employee(north, "r-3")
        assert await killed.admit(replace(request, id="r-4", objective="Another", run=failed.run)) is None
        assert await employee(north, "r-5", objective="Another") == "read"
