"""A client of the local API, and every byte that it is sent."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse, ClientSession

from remit_relay.local_api.serving import BrowserLinks, Changes, serve_shared
from remit_relay.session.moves import SessionState
from remit_server.streams import KEEP_ALIVE
from serving import Event, parsed
from two_sides import Sides, two_sides
from waiting import PATIENCE_S


class Face:
    """What a face does, and every byte that it is sent."""

    def __init__(self, sides: Sides, changes: Changes, address: str, token: Path) -> None:
        self.sides, self.changes, self.address, self.token_file = sides, changes, address, token
        self.token = token.read_text(encoding="ascii").strip()
        self.got: list[bytes] = []
        self.links: BrowserLinks
        self.session = ClientSession(address, headers={"authorization": f"Bearer {self.token}"})

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(path, headers=headers) as reply:
            return await self._kept(reply)

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.session.post(path, json=body, headers=headers) as reply:
            return await self._kept(reply)

    async def act(self, run: str, act: str, **body: Any) -> Any:
        status, shown = await self.post(f"/v1/shared/runs/{run}/{act}", body or None)
        assert status == 200, shown
        return shown

    async def start(self, objective: str = "review this API", **more: Any) -> Any:
        body = {"profile": "mine", "device": self.sides.bob.device.id, "objective": objective, **more}
        status, shown = await self.post("/v1/shared/runs", body)
        assert status == 201, shown
        return shown

    @asynccontextmanager
    async def events(self, path: str = "/v1/shared/events", **headers: str) -> AsyncGenerator["Reading"]:
        async with self.session.get(path, headers=headers) as reply:
            assert reply.status == 200
            yield Reading(self, reply)

    async def _kept(self, reply: ClientResponse) -> tuple[int, Any]:
        body = await reply.read()
        self.keep(str(reply.raw_headers).encode() + body)
        return reply.status, json.loads(body)

    def keep(self, data: bytes) -> None:
        self.got.append(data)


class Reading:
    """A stream of events that is being read."""

    def __init__(self, face: Face, reply: ClientResponse) -> None:
        self._face, self._reply = face, reply
        self._rest = b""

    async def next(self) -> Event:
        """Return the next event of a run, or `ready`."""
        while True:
            event = await self.anything()
            if event.kind in ("run", "ready"):
                return event

    async def anything(self) -> Event:
        async with asyncio.timeout(PATIENCE_S):
            while b"\n\n" not in self._rest:
                data = await self._reply.content.readany()
                assert data, "the stream ended"
                self._face.keep(data)
                self._rest += data
        frame, _, self._rest = self._rest.partition(b"\n\n")
        events = parsed(frame.decode())
        return events[0] if events else await self.anything()

    async def until(self, state: SessionState, but: Any = "") -> Event:
        """Return the next event of a run in this state, with another draft than *but*."""
        while True:
            event = await self.next()
            if (
                event.kind == "run"
                and event.record["state"] == state
                and (not but or event.record["draft"] not in (None, but))
            ):
                return event

    async def sign_of_life(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while KEEP_ALIVE not in self._rest:
                self._rest += await self._reply.content.readany()

    async def ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            while data := await self._reply.content.readany():
                self._face.keep(data)
        return True


@asynccontextmanager
async def faced(path: Path, *how: str, **options: Any) -> AsyncGenerator[Face]:
    changes, links = Changes(), BrowserLinks()
    token = path / "shared.token"
    async with (
        two_sides(path, *how, changed=changes.changed, **options) as sides,
        serve_shared(sides.host, changes, token=token, links=links) as address,
    ):
        face = Face(sides, changes, address, token)
        face.links = links
        async with face.session:
            yield face
