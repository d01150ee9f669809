"""A gateway and two devices are killed while three conversations go on: no turn is lost, and none comes twice."""

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from command_line import REMIT
from remit.protocol.records import SharedStep
from remit.stores.sqlite import SqliteStore
from remit_relay.team.device import create_device
from remit_server.console.hosts import TOKEN_FILE
from shared_teams import ANNA, BOB, device_of, introduce, team_in
from victims import Victim
from waiting import eventually

# In `make test-kills`, which asks for 250 of whatever a test kills, 200; in every run of the tests a few.
KILLS = 200 if "REMIT_KILLS" in os.environ else 6
PROFILES = ("first", "second", "third")

PROGRAM = Path(__file__).with_name("conversing.py")
# The shared agent writes down what it is asked before it answers; killed in between, it is asked the same once more.
BOBS_CODE = """
import json, os

async def helper(brief):
    written = os.open("heard", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(written, json.dumps([brief.request.run, brief.text]).encode() + b"\\n")
    os.close(written)
    return f"heard: {brief.text}"
"""
# The local agent of each profile counts its turns, until the test has had enough of them.
ANNAS_AGENT = """
import json, os, sys, time

for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(0.05)
    answer = {
        "type": "desktop.local_prompt.response",
        "request_id": asked["request_id"],
        "status": "ok",
        "draft_message": f"{asked['objective']} {asked['turn_index']}",
        "confidence": 0.9,
        "done": os.path.exists("enough"),
    }
    print(json.dumps(answer), flush=True)
"""
PROFILE = """
[profiles.{name}]
run = {run}
allow_shared_agent_calls = true
devices = ["bob"]
mode = "full_auto"
rate = {{ calls = 1_000_000, seconds = 60 }}
limits = {{ max_turns = 1_000_000, max_duration = "1d" }}
"""


class Conversing:
    """A gateway, a device that shares an agent, and one that holds a conversation with it for each profile."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        gateway = f"ws://127.0.0.1:{port}"
        self.annas, self.bobs = folder / "annas", folder / "bobs"
        team = BOB.format(gateway=gateway).replace("calls = 1_000,", "calls = 1_000_000,")
        # Else the outcome of what it was killed at is unknown, and a person has to say what then.
        team = team.replace("[agents.helper]\n", "[agents.helper]\nresumable = true\n")
        self._make(self.bobs, "bob", team, bobs_code=BOBS_CODE)
        run = json.dumps([sys.executable, "-IS", "agent.py"])
        profiles = "".join(PROFILE.format(name=name, run=run) for name in PROFILES)
        team = ANNA.format(gateway=gateway, run=run).partition("[profiles.")[0] + profiles
        self._make(self.annas, "anna", team, agent=ANNAS_AGENT)
        introduce(self.annas, self.bobs)
        program = [sys.executable, str(PROGRAM)]
        self.gateway = Victim([REMIT, "relay", "--json", "--port", str(port)], folder)
        self.bob = Victim([*program, "share", str(self.bobs)], self.bobs)
        self.anna = Victim([*program, "ask", str(self.annas)], self.annas)
        self.everyone = (self.gateway, self.bob, self.anna)

    def _make(self, folder: Path, device: str, team: str, **files: str) -> None:
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        (folder / "remit.toml").write_text(team)
        create_device(team_in(folder), device).state.close()

    async def call(self, path: str, given: object = None) -> Any:
        """Ask the local API of the device that converses."""
        token = (team_in(self.annas).store_path.parent / TOKEN_FILE).read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        async with ClientSession(self.anna.first_line.strip(), headers=headers) as session:
            method = "GET" if given is None else "POST"
            async with session.request(method, f"/v1/shared/runs{path}", json=given) as reply:
                content = await reply.json()
                assert reply.status < 300, content
                return content

    async def begin(self) -> None:
        for each in self.everyone:
            await each.start()
        bob = device_of(self.bobs)
        for name in PROFILES:
            await self.call("", {"profile": name, "device": bob, "objective": f"count {name}"})

    async def kill(self, victim: Victim) -> None:
        victim.kill()
        await victim.start()
        if victim is self.anna:
            for run in await self.runs():
                # Whoever hosts runs starts none of them again without a person.
                if "resume" in run["acts"]:
                    await self.call(f"/{run['id']}/resume", {})

    async def runs(self) -> list[Any]:
        return [await self.call(f"/{each['id']}") for each in (await self.call(""))["runs"]]

    async def entries(self, run: str) -> list[Any]:
        """Return all entries of a run; a view holds only the newest."""
        entries: list[Any] = []
        page = await self.call(f"/{run}/entries")
        while True:
            entries = page["entries"] + entries
            if page["next"] is None:
                return entries
            page = await self.call(f"/{run}/entries?before={page['next']}")

    def received(self) -> list[tuple[str, str]]:
        """Return the runs and texts that the shared agent has written down."""
        file = self.bobs / "heard"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    async def further(self) -> None:
        """Return once the shared agent has heard more of each conversation."""
        file = self.bobs / "heard"
        before = file.stat().st_size if file.exists() else 0

        def of_each() -> bool:
            with file.open() as reader:
                reader.seek(before)
                more = reader.read()
            return all(f"count {name} " in more for name in PROFILES)

        await eventually(lambda: file.exists() and of_each())


@asynccontextmanager
async def conversing(folder: Path) -> AsyncGenerator[Conversing]:
    world = Conversing(folder)
    try:
        await world.begin()
        yield world
    finally:
        for each in world.everyone:
            each.kill()


@pytest.mark.timeout(300 + 5 * KILLS)
async def test_three_conversations_lose_no_turn_and_have_none_twice_whoever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(19)
    async with conversing(tmp_path) as world:
        bobs_deaths = 0
        for number in range(KILLS):
            await asyncio.sleep(chance.uniform(0, 0.15))
            victim = world.everyone[number % 3] if number < 3 else chance.choice(world.everyone)
            bobs_deaths += victim is world.bob
            await world.kill(victim)
            if number % 10 == 5:
                await world.further()
        await world.further()
        (world.annas / "enough").touch()

        async def completed() -> bool:
            return all(each["state"] == "completed" for each in await world.runs())

        await eventually(completed)
        runs = {each["profile"]: await world.entries(each["id"]) for each in await world.runs()}
        received = world.received()
    once = list(dict.fromkeys(received))
    # An agent that was killed before it had answered is asked again, within the same run of its hub.
    assert len(received) - len(once) <= bobs_deaths * len(PROFILES)
    assert len({run for run, _ in once}) == len(once)
    turns, ours, theirs = 0, "local_agent", "remote_agent"
    for name in PROFILES:
        questions = [text for _, text in once if text.startswith(f"count {name} ")]
        turns += len(questions)
        assert questions == [f"count {name} {turn + 1}" for turn in range(len(questions))]
        timeline = [(each["role"], each["text"], each["failed"]) for each in runs[name]]
        assert timeline == [each for text in questions for each in ((ours, text, ""), (theirs, f"heard: {text}", ""))]
    assert turns == len(once)
    await assert_recorded(team_in(world.bobs).store_path, turns, "asked", "answered")


async def assert_recorded(store: Path, turns: int, *events: str) -> None:
    """Make sure that each event of each turn is on record once."""
    opened = SqliteStore(store, durability="process")
    await opened.open()
    try:
        recorded_events: list[str] = []
        after = 0
        while page := await opened.records(after=after, limit=1_000):
            recorded_events += [each.body.event for each in page if isinstance(each.body, SharedStep)]
            after = page[-1].seq
    finally:
        await opened.close()
    assert {event: recorded_events.count(event) for event in events} == dict.fromkeys(events, turns)
