"""Each process on the way of a large file is killed while it passes: the message arrives once, and whole."""

import asyncio
import hashlib
import io
import json
import random
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from command_line import REMIT
from remit_relay.team.device import create_device
from remit_server.console.hosts import TOKEN_FILE
from shared_teams import ANNA, ANNAS_AGENT, BOB, device_of, introduce, team_in
from victims import Victim
from waiting import eventually

PROGRAM = Path(__file__).with_name("conversing.py")
# Many times the size of a piece; a file of 8 MiB at most may be sent.
CONTENT = random.Random(3).randbytes(3_000_000)
RULES = 'attachments = { types = ["*/*"], max_size = 4000000 }\n'
BOBS_CODE = """
import hashlib, json, os

async def helper(brief):
    (file,) = brief.input["attachments"]
    with open(file["path"], "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    written = os.open("heard", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(written, json.dumps([brief.request.run, brief.input["message"], file["name"], digest]).encode() + b"\\n")
    os.close(written)
    return "heard"
"""


class Way:
    """A connection to the gateway that counts the bytes of one direction, and holds them while it strikes.

    *strikes* are the numbers of bytes at which to strike, each once, and what is done then.
    """

    def __init__(self, port: int, counted: str) -> None:
        self._port = port
        self._counted = counted
        self._count = 0
        self._ends: set[asyncio.StreamWriter] = set()
        self.strikes: list[tuple[int, Callable[[], Awaitable[None]]]] = []

    async def __aenter__(self) -> "Way":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for end in self._ends:
            end.transport.abort()
        await self._server.wait_closed()
        await eventually(lambda: not self._ends)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._carry("up", reader, far_writer))
            group.create_task(self._carry("down", far_reader, writer))
        self._ends -= {writer, far_writer}

    async def _carry(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(16_384):
                if way == self._counted:
                    self._count += len(data)
                    if self.strikes and self._count >= self.strikes[0][0]:
                        await self.strikes.pop(0)[1]()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class World:
    """A gateway, a device that sends a file, and one that receives it, each in a process of its own."""

    def __init__(self, folder: Path, port: int, annas_way: Way, bobs_way: Way) -> None:
        self.annas, self.bobs = folder / "annas", folder / "bobs"
        # Else the outcome of what it was killed at is unknown, and a person has to say what then.
        team = BOB.format(gateway=bobs_way.url).replace("[agents.helper]\n", "[agents.helper]\nresumable = true\n")
        self._make(self.bobs, "bob", team + RULES, bobs_code=BOBS_CODE)
        run = json.dumps([sys.executable, "-IS", "agent.py"])
        team = ANNA.format(gateway=annas_way.url, run=run).replace("full_auto", "manual")
        self._make(self.annas, "anna", team + RULES, agent=ANNAS_AGENT)
        introduce(self.annas, self.bobs)
        program = [sys.executable, str(PROGRAM)]
        self.gateway = Victim([REMIT, "relay", "--json", "--port", str(port)], folder)
        self.bob = Victim([*program, "share", str(self.bobs)], self.bobs)
        self.anna = Victim([*program, "ask", str(self.annas)], self.annas)
        self.everyone = (self.gateway, self.bob, self.anna)
        self.killed: list[str] = []
        self._restarting: asyncio.Task[None] | None = None

    def _make(self, folder: Path, device: str, team: str, **files: str) -> None:
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        (folder / "remit.toml").write_text(team)
        create_device(team_in(folder), device).state.close()

    def again(self, victim: Victim, name: str) -> Callable[[], Awaitable[None]]:
        """Return what kills a process and starts it again."""

        async def strike() -> None:
            assert self.received() == [], "the file is still on its way"
            self.killed.append(name)
            victim.kill()
            self._restarting = asyncio.create_task(victim.start())

        return strike

    async def call(self, path: str, given: object = None, *, data: bytes | None = None) -> Any:
        """Ask the local API of the device that sends."""
        token = (team_in(self.annas).store_path.parent / TOKEN_FILE).read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        method = "GET" if given is None and data is None else "POST"
        async with ClientSession(self.anna.first_line.strip(), headers=headers) as session:
            sending: dict[str, Any] = {"data": io.BytesIO(data)} if data is not None else {"json": given}
            async with session.request(method, f"/v1/shared/runs{path}", **sending) as reply:
                content = await reply.json()
                assert reply.status < 300, content
                return content

    async def run(self) -> Any:
        (line,) = (await self.call(""))["runs"]
        return await self.call(f"/{line['id']}")

    def received(self) -> list[list[str]]:
        """Return the run, the text, and the name and digest of the file of each question to the shared agent."""
        file = self.bobs / "heard"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@asynccontextmanager
async def world_in(folder: Path) -> AsyncGenerator[tuple[World, Way, Way]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Way(port, "up") as annas_way, Way(port, "down") as bobs_way:
        world = World(folder, port, annas_way, bobs_way)
        try:
            for each in world.everyone:
                await each.start()
            yield world, annas_way, bobs_way
        finally:
            for each in world.everyone:
                each.kill()


@pytest.mark.timeout(300)
async def test_a_large_file_arrives_once_and_whole_whoever_is_killed_on_its_way(tmp_path: Path) -> None:
    async with world_in(tmp_path) as (world, annas_way, bobs_way):
        start = {"profile": "mine", "device": device_of(world.bobs), "objective": "it"}
        run = (await world.call("", start))["id"]
        record = await eventually(world.run, when=lambda now: now["draft"])
        await world.call(f"/{run}/files?name=photo.bin", data=CONTENT)
        size = len(CONTENT)
        annas_way.strikes = [
            (size // 4, world.again(world.anna, "anna")),
            (size * 3 // 4, world.again(world.gateway, "gateway")),
        ]
        bobs_way.strikes = [
            (size // 3, world.again(world.bob, "bob")),
            (size * 3 // 4, world.again(world.gateway, "gateway")),
        ]
        with suppress(ClientError):  # the process that answers may be dead by now
            await world.call(f"/{run}/approve", {"draft": record["draft"]["id"]})
        await eventually(lambda: len(world.killed) == 4)
        await eventually(world.received)

        async def answered() -> Any:
            try:
                now = await world.run()
                # Whoever hosts runs starts none of them again without a person.
                if "resume" in now["acts"]:
                    now = await world.call(f"/{run}/resume", {})
            except (OSError, ClientError):  # it has just been started again
                return {}
            return now

        record = await eventually(answered, when=lambda now: now.get("turn") == 1 and now["draft"])
        assert [(each["role"], each["failed"]) for each in record["timeline"]] == [
            ("local_agent", ""),
            ("remote_agent", ""),
        ]
    (question,) = {tuple(each) for each in world.received()}
    assert question[1:] == ("message 1 about it", "photo.bin", hashlib.sha256(CONTENT).hexdigest())
    assert sorted(world.killed) == ["anna", "bob", "gateway", "gateway"]
