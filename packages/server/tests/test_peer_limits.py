"""Limits of fan-out and cycles for agents of peers: in one process, in several, and under attack."""

import asyncio
import json
import re
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from command_line import environment
from commands import REMIT, popen
from remit import Brief, Hub
from remit.policy.reception import Sender
from remit.protocol.records import Kind
from remit.protocol.submission import Submission
from remit.runtime.incoming import PeerCalls
from serving import client_of, serving
from waiting import PATIENCE_S

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


async def answer_of(session: ClientSession, request_id: str, **more: Any) -> str:
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
        running = [group.create_task(answer_of(north, f"r-{n}", objective=f"Task {n}")) for n in range(3)]
        for _ in running:
            await office.busy.get()
        again = [await answer_of(north, f"r-{n}", objective="another") for n in range(3)]
        more = await answer_of(north, "r-9", objective="More")
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
        running = [group.create_task(answer_of(north, f"r-{n}", objective=f"Task {n}")) for n in range(3)]
        for _ in running:
            await office.busy.get()
        more = await answer_of(north, "r-9", objective="More", origin_employee=name)
        office.go.set()
    assert more == FULL


async def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        for number in range(5):
            claims = {"version": "1.0", "context": {"last_messages": 3}}
            handed = {"intermediate_results": {"remit": claims}}
            await answer_of(north, f"r-{number}", handoff_data=handed)
        parts = office.hub._parts  # pyright: ignore[reportPrivateUsage]
        assert (parts.remarks, parts.passed_on) == ({}, {})


async def test_calls_of_a_process_that_was_killed_stand_in_nobodys_way_once_they_are_known_to_have_ended(
    tmp_path: Path,
) -> None:
    """X4, X5: not for the quarter of an hour that they might have taken."""
    office = Office(tmp_path)
    office.go.set()
    async with serving(office.hub) as server, client_of(server, "north") as north:
        await answer_of(north, "r-1", objective="fail")
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
        assert "Cycle detected" in await answer_of(north, "r-3")
        assert await killed.admit(replace(request, id="r-4", objective="Another", run=failed.run)) is None
        assert await answer_of(north, "r-5", objective="Another") == "read"


T = TypeVar("T")

TOKEN = "a-token-of-the-other-platform"
TEAM = """
name = "office"

[store]
durability = "process"

[agents.byte-doc]
run = "office_code:byte"

[peers.north]
token = "$SHARED"
agents = ["byte-doc"]
"""
# It says that it is at work by connecting to the test, and works until the test lets it go.
CODE = """
import asyncio, os

async def byte(brief):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["DESK"]))
    await reader.read(1)
    writer.close()
    return f"read by {os.getpid()}"
"""
READ_RECEIPT: dict[str, Any] = {
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "anna",
    "parent_session_id": "session-1",
    "input": "receipt.jpg",
    "constraints": {},
    "context_hints": [],
    "handoff_data": {},
    "current_depth": 1,
}


@contextmanager
def office(folder: Path, desk: int) -> Generator[str]:
    """Serve the team in a folder by a process of its own, and yield its address."""
    process = popen(
        [REMIT, "serve", "--json", "--port", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(SHARED=TOKEN, DESK=str(desk)),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield json.loads(line)["address"]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def employee_at(address: str, request_id: str, objective: str) -> tuple[int, Any]:
    body = READ_RECEIPT | {"request_id": request_id, "objective": objective}
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with ClientSession(address, headers=headers) as session, session.post("/dialects/employee", json=body) as r:
        return r.status, await r.json()


async def at_desk(busy: "asyncio.Queue[T]", running: list[asyncio.Task[Any]]) -> T:
    """Return the next that is at work, or fail with what was answered instead."""
    coming = asyncio.ensure_future(busy.get())
    done, _ = await asyncio.wait({coming, *running}, return_when=asyncio.FIRST_COMPLETED)
    assert coming in done, [each.result() for each in done]
    return coming.result()


async def test_fan_out_and_cycle_hold_over_two_processes_on_one_store(tmp_path: Path) -> None:
    """X4, X5: state per (origin, parent session), whichever process is asked."""
    (tmp_path / "remit.toml").write_text(TEAM)
    (tmp_path / "office_code.py").write_text(CODE)
    busy: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def at_work(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        busy.put_nowait(writer)

    with ExitStack() as processes:
        async with await asyncio.start_server(at_work, "127.0.0.1", 0) as desk, asyncio.timeout(PATIENCE_S):
            port = desk.sockets[0].getsockname()[1]
            one, two = [await asyncio.to_thread(processes.enter_context, office(tmp_path, port)) for _ in range(2)]
            running = [
                asyncio.create_task(employee_at(address, f"r-{number}", f"Task {number}"))
                for number, address in enumerate((one, two, one))
            ]
            writers = [await at_desk(busy, running) for _ in running]
            crowded = [await employee_at(address, f"x-{n}", f"More {n}") for n, address in enumerate((one, two))]
            again = await employee_at(two, "y-1", "Task 0")
            for writer in writers:
                writer.write(b"!")
                writer.close()
            ended = [await each for each in running]
            after = [await employee_at(address, f"z-{n}", "Task 1") for n, address in enumerate((one, two))]
            more = asyncio.create_task(employee_at(two, "m-1", "Something else"))
            (await at_desk(busy, [more])).close()
            room = await more
    assert [body["status"] for _, body in ended] == 3 * ["success"]
    assert len({pid for _, body in ended for pid in re.findall(r"read by (\d+)", str(body))}) == 2
    for status, body in crowded:
        assert status == 422
        assert body["error"] == "Too many concurrent delegates (4/3). Choose top 3 most relevant employees."
    said = "Cycle detected: prime-boss → byte-doc with same objective already in progress."
    assert [(status, body["error"]) for status, body in (again, *after)] == 3 * [(409, said)]
    assert room[1]["status"] == "success"
