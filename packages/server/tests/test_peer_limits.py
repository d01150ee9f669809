"""Employees elsewhere are held to the fan-out and cycle limits of their document, by every process on a store."""

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from remit import Brief, Hub
from remit.protocol.records import Kind
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
TRACE = "00-{}-00f067aa0ba902b7-01"


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

        assert byte


async def employee(session: ClientSession, request_id: str, trace: str = "", **more: Any) -> tuple[int, Any]:
    headers = {"traceparent": TRACE.format(trace * 32)} if trace else None
    async with session.post(
        "/dialects/employee", json=REQUEST | {"request_id": request_id} | more, headers=headers
    ) as r:
        return r.status, await r.json()


async def test_six_at_once_are_three_and_the_others_are_told_the_limit(tmp_path: Path) -> None:
    """X4: over two hubs on one store; another session, or trace, has its own."""
    one, two = Office(tmp_path), Office(tmp_path)
    async with (
        serving(one.hub) as first,
        serving(two.hub) as second,
        client_of(first, "north") as north,
        client_of(second, "north") as again,
        asyncio.timeout(30),
        asyncio.TaskGroup() as group,
    ):
        running = [
            group.create_task(employee(client, f"r-{number}", objective=f"Task {number}"))
            for number, client in enumerate((north, again, north))
        ]
        for office in (one, two, one):
            await office.busy.get()
        refused = [await employee(client, f"x-{client is north}", objective="More") for client in (north, again)]
        others = [
            group.create_task(employee(north, "o-1", parent_session_id="session-2")),
            group.create_task(employee(north, "o-2", trace="a")),
            group.create_task(employee(again, "o-3", origin_employee="other-boss")),
        ]
        for office in (one, one, two):
            await office.busy.get()
        for office in (one, two):
            office.go.set()
    for status, body in refused:
        assert (status, body["status"]) == (422, "failed")
        assert body["error"] == "Too many concurrent delegates (4/3). Choose top 3 most relevant employees."
    assert [task.result()[1]["status"] for task in (*running, *others)] == 6 * ["success"]


async def test_those_that_ended_make_room(tmp_path: Path) -> None:
    """X4: at once is at once."""
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        ends = [(await employee(north, f"r-{n}", objective=f"Task {n}"))[1]["status"] for n in range(5)]
    assert ends == 5 * ["success"]


async def test_the_same_objective_again_is_a_cycle_in_progress_and_after_it_succeeded(tmp_path: Path) -> None:
    """X5: with the document's sentence, on record, and also by another process on the store."""
    office = Office(tmp_path)
    async with serving(office.hub) as server, client_of(server, "north") as north, asyncio.timeout(30):
        first = asyncio.create_task(employee(north, "r-1"))
        await office.busy.get()
        during = await employee(north, "r-2", objective="  extract RECEIPT data ")
        same_id = asyncio.create_task(employee(north, "r-1"))
        office.go.set()
        assert (await first)[1]["status"] == (await same_id)[1]["status"] == "success"
        records = await office.hub.store.records()
    other = Office(tmp_path)
    other.go.set()
    async with serving(other.hub) as server, client_of(server, "north") as north:
        after = await employee(north, "r-3")
        elsewhere = await employee(north, "r-4", target_employee="byte-doc", objective="Analyze document")
    said = "Cycle detected: prime-boss → byte-doc with same objective already in progress."
    assert (during[0], during[1]["error"], during[1]["request_id"]) == (409, said, "r-2")
    assert (after[0], after[1]["error"]) == (409, said)
    assert elsewhere[1]["status"] == "success"
    assert [record.kind for record in records].count(Kind.REFUSED) == 1


async def test_what_failed_may_be_asked_again_at_once(tmp_path: Path) -> None:
    """X5: only what is in progress or succeeded is a cycle."""
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        ends = [(await employee(north, f"r-{n}", objective="fail"))[1]["error"] for n in range(3)]
    assert not any("Cycle" in error for error in ends)


async def test_a_request_that_is_refused_otherwise_takes_no_place(tmp_path: Path) -> None:
    """X4: nothing began, so nothing is under way."""
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        for number in range(4):
            _, body = await employee(north, f"r-{number}", current_depth=2)
            assert "depth limit" in body["error"]
        assert (await employee(north, "r-9"))[1]["status"] == "success"
