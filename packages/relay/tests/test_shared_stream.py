"""The event stream of the local API: everything in one stream, resumed at any moment."""

import asyncio
import itertools
import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from checkout import TESTS
from faces import Face, faced
from remit import __version__
from remit.agents.program import Program
from remit.protocol.card import Rate
from remit_redaction.pipeline import detector_pipeline
from remit_relay.bridge.acp import AcpAgent
from remit_relay.bridge.ports import AskUser, LocalAgent
from remit_relay.e2e.channel import Opened
from remit_relay.local_api.changes import Changes
from remit_relay.local_api.views import ConnectionView
from remit_relay.messages.types import AgentOffer, OffersMessage, store_offers
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import Profile
from remit_relay.session.run import CredentialFilter
from serving import parsed
from waiting import PATIENCE_S, eventually

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"

# How often a reader reconnects; more for a longer test.
RECONNECTS = int(os.environ.get("REMIT_RECONNECTS", "40"))


class Client:
    """A client that keeps the newest state of everything that it is told, and reconnects with the last number."""

    def __init__(self, face: Face) -> None:
        self._port = int(face.address.rpartition(":")[2])
        self._token = face.token
        self.last = ""
        self.state: dict[tuple[str, str], Any] = {}
        self.numbers: list[int] = []
        self.anew = 0

    async def read(self, most: int | None = None, stay_s: float = 0.0) -> None:
        """Connect, read until `ready` and a while longer, and leave; after *most* bytes at once, within any event."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        resumed = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
        writer.write(
            f"GET /v1/shared/events HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Authorization: Bearer {self._token}\r\n{resumed}\r\n".encode()
        )
        self._got = b""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await reader.readuntil(b"\r\n\r\n")
                while not (b"event: ready" in self._got or (most is not None and len(self._got) >= most)):
                    await self._more(reader)
            with suppress(TimeoutError):
                async with asyncio.timeout(stay_s):
                    while True:
                        await self._more(reader)
        finally:
            writer.transport.abort()
        whole, separator, _ = self._got[:most].rpartition(b"\n\n")
        for event in parsed((whole + separator).decode()):
            self._take(event.kind, event.number, event.record)

    async def _more(self, reader: asyncio.StreamReader) -> None:
        piece = await reader.readuntil(b"\r\n")
        self._got += (await reader.readexactly(int(piece, 16) + 2))[:-2]

    def _take(self, kind: str, mark: str | None, record: Any) -> None:
        if kind == "ready":
            self.anew += not record["resumed"]
        elif kind != "draft":
            key = record.get("id", "") if kind != "unread" else ""
            self.state[kind, key] = record
            if mark:
                self.numbers.append(int(mark.rpartition("-")[2]))
        if mark:
            self.last = mark


def lasting(state: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Return the state without what goes on with the clock."""
    return {key: {name: each for name, each in record.items() if name != "limits"} for key, record in state.items()}


async def test_a_reader_that_reconnects_again_and_again_knows_everything_and_gets_no_number_twice(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    rate = Rate(calls=100_000, seconds=1)
    async with faced(tmp_path, "talk", "3", mode="full_auto", rate=rate, max_concurrent_shared_calls=99) as face:
        client, done = Client(face), asyncio.Event()
        await client.read()

        async def change() -> None:
            for count in itertools.count(1):
                if done.is_set():
                    return
                run = (await face.start(f"objective {count}"))["id"]
                if count % 3:
                    await face.act(run, "pause" if count % 2 else "stop")
                else:
                    # An agent that was stopped within a draft before may need a person to start again.
                    await face.sides.until(face.sides.host.runs[-1], SessionState.COMPLETED, SessionState.ERROR)
                    await face.post(f"/v1/shared/runs/{run}/read", {"entry": f"{run}.e{count % 4 + 1}"})
                await face.sides.ours.do(face.sides.anna.peers.share, face.sides.bob.device.id, shared=bool(count % 2))
                face.changes.linked("connected" if count % 2 else "silent", f"{count}")

        changing = asyncio.create_task(change())
        reconnects = 0
        # However slowly things change beside it.
        while reconnects < RECONNECTS or len(face.sides.host.runs) <= 10 or len(client.numbers) <= 100:
            reconnects += 1
            most = chance.choice((None, None, 100, 1_000, 4_000))
            await client.read(most and chance.randint(1, most), chance.choice((0.0, 0.0, 0.001, 0.005)))
        done.set()
        await changing
        runs = face.sides.host.runs

        async def knows_everything() -> bool:
            """What was on its way when the changes ended may still come."""
            await client.read()
            fresh = Client(face)
            await fresh.read()
            for run in runs:
                fresh.state["run", run.id] = (await face.get(f"/v1/shared/runs/{run.id}"))[1]
            return lasting(client.state) == lasting(fresh.state)

        await eventually(knows_everything, "a reader that knows what a new one is told")
        numbers = client.numbers
        assert client.anew == 1
        assert numbers == sorted(set(numbers))


async def test_everything_that_changes_is_in_one_stream(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1", mode="full_auto") as face, face.events() as events:
        bob = face.sides.bob.device.id
        first = [await events.anything() for _ in range(4)]
        assert [(each.kind, each.record.get("id"), each.number is None) for each in first[:3]] == [
            ("device", bob, True),
            ("profile", "mine", True),
            ("unread", None, True),
        ]
        assert first[3].kind == "ready"

        async def expect_event(kind: str, so: Callable[[Any], bool]) -> None:
            while True:
                event = await events.anything()
                if event.kind == kind and so(event.record):
                    assert event.number
                    return

        face.changes.linked("connected", "")
        face.changes.linked("silent", "the gateway was not heard from")
        await expect_event("connection", lambda shown: shown["state"] == "silent" and shown["since_ms"] > 0)
        await face.sides.ours.do(face.sides.anna.peers.verify, bob)
        await expect_event("device", lambda shown: shown["verified"])
        offer = OffersMessage(agents=(AgentOffer(name="helper"),))
        opened = Opened(id=0, sender=bob, message="", requester="", body=b"")
        await face.sides.ours.do(store_offers, face.sides.anna, opened, offer)
        await expect_event("device", lambda shown: [each["name"] for each in shown["offers"] or ()] == ["helper"])
        profiles = cast("dict[str, Profile]", face.sides.host.profiles)
        profiles["mine"] = replace(profiles["mine"], max_concurrent_shared_calls=7)
        await expect_event("profile", lambda shown: shown["max_concurrent"] == 7)
        run = (await face.start())["id"]
        await expect_event("unread", lambda shown: shown["runs"] == {run: 2})
        await face.post(f"/v1/shared/runs/{run}/read", {"entry": f"{run}.e2"})
        await expect_event("unread", lambda shown: shown["total"] == 0)


def test_a_connection_says_since_when_it_is_in_its_state() -> None:
    now = iter((10, 20, 30))
    changes = Changes(lambda: next(now))
    changes.linked("connected", "")
    changes.linked("connected", "")
    changes.linked("connected", "again")
    changes.linked("waiting", "gone")
    assert changes.connection == ConnectionView(state="waiting", since_ms=20, why="gone")
    assert [each.number for each in changes.since(0)] == [3]


async def test_status_says_what_the_device_is_and_does(tmp_path: Path) -> None:
    async with faced(tmp_path, "talk", "1") as face:
        face.changes.linked("connected", "")
        await face.start()
        await face.sides.until(face.sides.host.runs[0], SessionState.READY_TO_SEND)
        status, shown = await face.get("/v1/shared/status")
    assert (status, shown["version"], shown["device"], shown["name"]) == (
        200,
        __version__,
        face.sides.anna.device.id,
        "anna",
    )
    assert (shown["connection"]["state"], shown["shared"]) == ("connected", [])
    assert shown["counts"] == {
        "runs": 1,
        "open_runs": 1,
        "drafts": 1,
        "questions": 0,
        "unread": 0,
        "devices": 1,
        "profiles": 1,
    }


# ── drafts as they are written ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_draft_is_seen_while_it_is_written_and_a_question_is_an_item_that_can_be_answered(
    tmp_path: Path,
) -> None:
    pytest.importorskip("acp", reason="the extra `acp` is not installed")
    quick = TESTS / "acp_quick.py"
    program = Program(command=sys.executable, args=(str(quick), str(tmp_path / "notes")), folder=str(tmp_path))

    def agent_of(name: str, ask: AskUser) -> LocalAgent:
        return AcpAgent(name, program, ask_user=ask)

    done = [("say", "Which endpoints "), ("say", f"need {KEY} to lo"), ("ask", ["allow_once"]), ("say", "All of them?")]
    async with faced(tmp_path, agent_of=agent_of) as face, face.events() as events:
        run = (await face.start(json.dumps(done)))["id"]
        while (event := await events.anything()).kind != "draft" or "need" not in event.record["text"]:
            pass
        assert event.number is None
        assert event.record == {"run": run, "draft": f"{run}.p1", "text": "Which endpoints need [API_KEY] to "}
        await face.sides.until(
            face.sides.host.runs[0], SessionState.WAITING_LOCAL, when=lambda run: bool(run.questions)
        )
        _, shown = await face.get(f"/v1/shared/runs/{run}")
        (question,) = shown["questions"]
        assert "answer" in shown["acts"]
        await face.act(run, "answer", question=question["id"], choice=question["choices"][0]["id"], by="ann")
        draft = (await events.until(SessionState.READY_TO_SEND)).record["draft"]
        assert draft["text"].endswith("All of them?")
        # What was written is over: a reader that comes now is told of the draft alone.
        async with face.events() as later:
            kinds = [(await later.anything()).kind for _ in range(5)]
        assert kinds == ["device", "profile", "unread", "run", "ready"]


def test_half_a_word_of_a_draft_is_not_shown() -> None:
    part = CredentialFilter(detector_pipeline()).part
    assert part("") == part("hel") == ""
    assert part("hello the") == "hello "
    assert part(f"use {KEY[:20]}") == "use "
    assert part(f"use {KEY} now") == "use [API_KEY] "
    assert part("see\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0B ") == "see\n"
