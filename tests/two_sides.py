"""Anna, whose local agent is a process, and Bob, who shares an agent of his hub: two devices and a gateway between."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMessage, WSMsgType, web

from devices import gateway, introduce, linked, sealer
from remit import Brief, Hub
from remit.agents.program import Program
from remit.protocol.records import SharedStep
from remit.runtime.clock import LoopClock
from remit_redaction.pipeline import detector_pipeline
from remit_relay.bridge.ndjson import NdjsonAgent
from remit_relay.bridge.ports import AskUser, LocalAgent
from remit_relay.client.connection import GatewayConnection, ReconnectDelays
from remit_relay.client.delivery import MessageDelivery
from remit_relay.e2e.channel import MessageCipher
from remit_relay.messages.types import PeerMessage, ReadReceipt, write
from remit_relay.messages.types import decode_message as read_message
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import Profile
from remit_relay.session.run import Overlay
from remit_relay.session_service import SessionService
from remit_testing import MemoryStore
from waiting import PATIENCE_S, eventually

CHATTY = Path(__file__).with_name("chatty.py")
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "relay" / "agent.py"
BOUND_S = PATIENCE_S
REQUESTER = "anna@example.org"
NOW_MS = LoopClock().wall_ms


class Ahead(LoopClock):
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def now(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return LoopClock.now() + self.by_s


class Sides:
    """Both of them, and what a test asks of them."""

    def __init__(self, anna: MessageCipher, bob: MessageCipher, hub: Hub, notes: Path) -> None:
        self.anna, self.bob, self.hub = anna, bob, hub
        self.noted: list[SharedStep] = []
        self.steps: list[Overlay] = []
        self.clock = Ahead()
        self.host: SessionService
        self.ours: MessageDelivery
        self.theirs: MessageDelivery
        self.notes = notes
        self._stepped = asyncio.Event()

    def changed(self, run: Overlay) -> None:
        self.steps.append(run)
        self._stepped.set()

    def now(self, run: Overlay) -> Overlay:
        return next(each for each in self.host.runs if each.id == run.id)

    async def start(self, objective: str = "review this API", **more: Any) -> Overlay:
        return await self.host.start("mine", self.bob.device.id, objective, **more)

    async def until(
        self, run: Overlay, *states: SessionState, when: Callable[[Overlay], bool] = lambda _: True
    ) -> Overlay:
        """Return the run once it is in one of *states*, and *when* holds of it."""
        async with asyncio.timeout(BOUND_S):
            while True:
                self._stepped.clear()
                now = self.now(run)
                if now.state in states and when(now):
                    return now
                await self._stepped.wait()

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What the local agent's process was sent, as it came."""
        return list(map(json.loads, self.notes.read_text(encoding="utf-8").splitlines())) if self.notes.exists() else []

    async def silent(self) -> int:
        """Return the id of the local agent's process once it has been asked, and does not answer."""
        file = self.notes.with_suffix(".pid")
        await eventually(file.exists)
        return int(file.read_text(encoding="ascii"))

    async def kill(self) -> None:
        os.kill(await self.silent(), signal.SIGKILL)

    async def carried_out(self) -> int:
        """Return how often Bob's agent was asked."""
        return len(await self.hub.store.runs(limit=1_000))


class Stranger:
    """A device of Anna's that says what it likes, in place of a host."""

    def __init__(self, sealer: MessageCipher, post: MessageDelivery, bob: str) -> None:
        self.sealer, self._post, self.bob = sealer, post, bob

    async def ask(self, message: PeerMessage, *, receipt: bool = False) -> PeerMessage:
        """Send a message, and return what comes back; a receipt, which a busy device sends first, only if asked."""
        await self._post.send(self.bob, write(message))
        async with asyncio.timeout(BOUND_S):
            async for opened in self._post:
                await self._post.taken(opened)
                reply = read_message(opened.body)
                if receipt or not isinstance(reply, ReadReceipt):
                    return reply
        raise AssertionError("nothing came")


def profile(device: MessageCipher, **changes: Any) -> Profile:
    settings: dict[str, Any] = {
        "id": "mine",
        "allow_shared_agent_calls": True,
        "allowed_shared_device_ids": frozenset({device.device.id}),
    }
    return Profile(**settings | changes)


def program(notes: Path, *how: str) -> Program:
    return Program(command=sys.executable, args=(str(CHATTY), str(notes), *how))


async def answer_help(brief: Brief) -> str:
    return f"heard: {brief.text}"


@asynccontextmanager
async def two_sides(
    path: Path,
    *how: str,
    agent: Program | None = None,
    agent_of: Callable[[str, AskUser], LocalAgent] | None = None,
    answer: Callable[[Brief], Any] = answer_help,
    shared: Mapping[str, Any] | None = None,
    url: Callable[[str], str] = str,
    changed: Callable[[Overlay], None] = lambda _: None,
    **changes: Any,
) -> AsyncGenerator[Sides]:
    """Have both of them there. *how* tells Anna's agent what to do; *changes* are made to her profile."""
    path.mkdir(exist_ok=True)
    anna, bob = sealer(path, "anna"), sealer(path, "bob")
    introduce(anna, bob)
    hub = Hub(store=MemoryStore())
    hub.agent("helper")(answer)
    sides = Sides(anna, bob, hub, path / "requests.ndjson")

    def stepped(run: Overlay) -> None:
        sides.changed(run)
        changed(run)

    async with hub, gateway(path) as serving, _devices(sides, url(serving.url)):
        sharing = Sharing(
            hub,
            bob,
            sides.theirs,
            {"helper": Shared(agent="helper", profile=profile(anna, id="theirs", **(shared or {})))},
            now_ms=NOW_MS,
        )
        sides.host = SessionService(
            anna,
            sides.ours,
            profiles={"mine": profile(bob, **changes)},
            agent_of=agent_of
            or (
                lambda name, _ask: NdjsonAgent(
                    name, agent or program(sides.notes, *(how or ("talk", "3"))), clock=sides.clock
                )
            ),
            detect=detector_pipeline(),
            now_ms=NOW_MS,
            requester=REQUESTER,
            changed=stepped,
            recorded=sides.noted.append,
        )
        async with sides.host, asyncio.TaskGroup() as group:
            reading = [
                group.create_task(route_messages(sides.ours, sides.host, None, sealer=anna, now_ms=NOW_MS)),
                group.create_task(route_messages(sides.theirs, None, sharing, sealer=bob, now_ms=NOW_MS)),
            ]
            yield sides
            for task in reading:
                task.cancel()
            await sharing.close()


@asynccontextmanager
async def _devices(sides: Sides, url: str) -> AsyncGenerator[None]:
    async with there(sides.bob, url) as sides.theirs, linked(sides.anna, url) as sides.ours:
        yield


@asynccontextmanager
async def there(device: MessageCipher, url: str) -> AsyncGenerator[MessageDelivery]:
    """Have a device there, and its keys at the gateway: who asks for them earlier tries again only after a while."""
    link = GatewayConnection(url, gateway="g", key=device.device, pauses=ReconnectDelays(first_s=0.01, most_s=0.05))
    async with MessageDelivery(device, link) as post:
        published = await post.do(device.device.publish, 50)
        await link.publish(bundle=published.bundle, one_time=published.one_time)
        yield post


@asynccontextmanager
async def stranger(path: Path, **shared: Any) -> AsyncGenerator[Stranger]:
    """Have Bob there, and a device that he allows and that keeps to no rule."""
    path.mkdir(exist_ok=True)
    anna, bob = sealer(path, "anna"), sealer(path, "bob")
    introduce(anna, bob)
    hub = Hub(store=MemoryStore())
    hub.agent("helper")(answer_help)
    async with hub, gateway(path) as serving, there(bob, serving.url) as theirs, linked(anna, serving.url) as ours:
        served = {"helper": Shared(agent="helper", profile=profile(anna, id="theirs", **shared))}
        sharing = Sharing(hub, bob, theirs, served, now_ms=NOW_MS)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(route_messages(theirs, None, sharing, sealer=bob, now_ms=NOW_MS))
            yield Stranger(anna, ours, bob.device.id)
            reading.cancel()
            await sharing.close()


# ── what a gateway gets to see ────────────────────────────────────────────────────────────────────────────────────────


class Tap:
    """Stands before a gateway and keeps every message that it is sent or sends, as it reads and writes them."""

    def __init__(self) -> None:
        self.target = ""
        self.seen: list[bytes] = []
        self.put: list[bytes] = []
        """What devices sent that is sealed."""
        self.flowing = asyncio.Event()
        """While it is not set, what is sealed reaches the gateway, and no device."""
        self.flowing.set()
        app = web.Application()
        app.router.add_route("GET", "/{path:.*}", self._carry)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)

    async def __aenter__(self) -> "Tap":
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def before(self, url: str) -> str:
        """Stand before the gateway at *url*; return where devices find it."""
        self.target = url
        host, port = self._runner.addresses[0][:2]
        return f"ws://{host}:{port}"

    async def _carry(self, request: web.Request) -> web.WebSocketResponse:
        near = web.WebSocketResponse(max_msg_size=0)
        await near.prepare(request)
        async with ClientSession() as session, session.ws_connect(self.target + request.path, max_msg_size=0) as far:
            both = [asyncio.create_task(self._up(near, far)), asyncio.create_task(self._down(far, near))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        await near.close()
        return near

    async def _up(self, near: web.WebSocketResponse, far: ClientWebSocketResponse) -> None:
        async for message in near:
            if message.type is WSMsgType.BINARY:
                self.put.append(message.data)
            await self._pass(message, far)

    async def _down(self, far: ClientWebSocketResponse, near: web.WebSocketResponse) -> None:
        async for message in far:
            if message.type is WSMsgType.BINARY:
                await self.flowing.wait()
            await self._pass(message, near)

    async def _pass(self, message: WSMessage, target: web.WebSocketResponse | ClientWebSocketResponse) -> None:
        if message.type is WSMsgType.TEXT:
            self.seen.append(message.data.encode())
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            self.seen.append(message.data)
            await target.send_bytes(message.data)
