"""One person's agent and the one that another shares, with a gateway between them, for tests."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from devices import gateway, introduce, linked, sealer
from remit import Brief, Hub
from remit.protocol.records import SharedStep
from remit.runtime.clock import LoopClock
from remit_redaction.pipeline import detector_pipeline
from remit_relay.bridge.ports import AskUser, Draft, DraftFailure, PermissionRequest, PromptRequest, deny
from remit_relay.e2e.channel import MessageCipher
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import Profile
from remit_relay.session.run import Overlay
from remit_relay.session_service import SessionService
from remit_testing import MemoryStore
from waiting import PATIENCE_S, eventually

BOUND_S = PATIENCE_S
NOW_MS = LoopClock().wall_ms


class Local:
    """A local agent that says what it is told to."""

    def __init__(self, say: Callable[[PromptRequest], Draft | DraftFailure]) -> None:
        self._say = say
        self.prompts: list[PromptRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.ask_user: AskUser = deny
        self.wants: PermissionRequest | None = None
        """What it asks its user at each turn."""
        self.permitted: list[str | None] = []

    def of(self, ask_user: AskUser) -> "Local":
        """Return itself, as the agent of a profile whose user is asked by *ask_user*."""
        self.ask_user = ask_user
        return self

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        self.prompts.append(request)
        await self.gate.wait()
        if self.wants is not None:
            self.permitted.append(await self.ask_user(replace(self.wants, session_id=request.session_id)))
        return self._say(request)

    async def close(self) -> None: ...


def polite(request: PromptRequest) -> Draft:
    text = f"turn {request.turn_index}: {request.objective}"
    return Draft(text=text, confidence=0.9, done=request.turn_index > 3, tokens=10)


class Pair:
    """Anna, whose agent asks, and Bob, who shares one."""

    def __init__(
        self,
        anna: MessageCipher,
        bob: MessageCipher,
        host: SessionService,
        hub: Hub,
        local: Local,
        notes: list[SharedStep],
    ) -> None:
        self.anna, self.bob, self.host, self.hub, self.local, self.notes = anna, bob, host, hub, local, notes

    async def until(self, run: Overlay, *states: SessionState) -> Overlay:
        def look() -> Overlay:
            return next(each for each in self.host.runs if each.id == run.id)

        return await eventually(look, when=lambda now: now.state in states)

    async def start(self, **more: Any) -> Overlay:
        return await self.host.start("mine", self.bob.device.id, "review this API", **more)


def profile(bob: MessageCipher, **changes: Any) -> Profile:
    settings: dict[str, Any] = {
        "id": "mine",
        "allow_shared_agent_calls": True,
        "allowed_shared_device_ids": frozenset({bob.device.id}),
    }
    return Profile(**settings | changes)


@asynccontextmanager
async def together(
    path: Path,
    say: Callable[[PromptRequest], Draft | DraftFailure] = polite,
    *,
    answers_after: asyncio.Event | None = None,
    recorded: Callable[[], None] = lambda: None,
    **changes: Any,
) -> AsyncGenerator[Pair]:
    """Have both of them there; *changes* are made to Anna's profile, and Bob's agent may wait for something first.

    *recorded* is called after each stored step of Anna's run.
    """
    anna, bob = sealer(path, "anna"), sealer(path, "bob")
    introduce(anna, bob)
    local, notes = Local(say), list[SharedStep]()
    hub = Hub(store=MemoryStore())

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        if answers_after is not None:
            await answers_after.wait()
        return f"heard: {brief.text}"

    def note(step: SharedStep) -> None:
        notes.append(step)
        recorded()

    assert helper
    async with hub, gateway(path) as serving, linked(bob, serving.url) as theirs, linked(anna, serving.url) as ours:
        shared = Shared(agent="helper", profile=profile(anna, id="theirs"))
        sharing = Sharing(hub, bob, theirs, {"helper": shared}, now_ms=NOW_MS)
        host = SessionService(
            anna,
            ours,
            profiles={"mine": profile(bob, **changes)},
            agent_of=lambda _profile, ask: local.of(ask),
            detect=detector_pipeline(),
            now_ms=NOW_MS,
            requester="anna@example.org",
            recorded=note,
        )
        async with host, asyncio.TaskGroup() as group:
            reading = [
                group.create_task(route_messages(ours, host, None, sealer=anna, now_ms=NOW_MS)),
                group.create_task(route_messages(theirs, None, sharing, sealer=bob, now_ms=NOW_MS)),
            ]
            yield Pair(anna, bob, host, hub, local, notes)
            for task in reading:
                task.cancel()
            await sharing.close()
