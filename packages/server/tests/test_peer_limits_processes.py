"""Limits of employees elsewhere hold over two processes that serve one store."""

import asyncio
import json
import re
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import ClientSession

from command_line import environment
from commands import REMIT, popen
from waiting import PATIENCE_S

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
REQUEST: dict[str, Any] = {
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


async def employee(address: str, request_id: str, objective: str) -> tuple[int, Any]:
    body = REQUEST | {"request_id": request_id, "objective": objective}
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
                asyncio.create_task(employee(address, f"r-{number}", f"Task {number}"))
                for number, address in enumerate((one, two, one))
            ]
            writers = [await at_desk(busy, running) for _ in running]
            crowded = [await employee(address, f"x-{n}", f"More {n}") for n, address in enumerate((one, two))]
            again = await employee(two, "y-1", "Task 0")
            for writer in writers:
                writer.write(b"!")
                writer.close()
            ended = [await each for each in running]
            after = [await employee(address, f"z-{n}", "Task 1") for n, address in enumerate((one, two))]
            more = asyncio.create_task(employee(two, "m-1", "Something else"))
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
