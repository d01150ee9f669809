"""Several hubs, each with a device of its own, and a gateway between them, for tests of agents on other devices."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from devices import introduce, sealer
from remit import AgentCard, Hub
from remit.runtime.clock import LoopClock
from remit_relay.call_shared import DeviceAccess, DeviceAgent, RemoteCaller, RemoteCalls, device_access_of
from remit_relay.client.delivery import MessageDelivery
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.messages.types import QuestionMessage
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing, SharingEvent
from remit_relay.session.profile import Profile
from remit_testing import MemoryStore
from two_sides import there
from waiting import PATIENCE_S

BOUND_S = PATIENCE_S
NOW_MS = LoopClock().wall_ms


class Neighbour:
    """Somebody's hub and device; what it shares is named as its agent."""

    def __init__(self, path: Path, name: str, hub: Hub | None = None) -> None:
        self.name = name
        self.sealer: MessageCipher = sealer(path, name)
        self.hub = hub or Hub(name=name, store=MemoryStore())
        self.access = DeviceAccess()
        self.shared: dict[str, Shared] = {}
        self.told: list[SharingEvent] = []
        self.remembers = True
        """Whether it knows what it works on otherwise than from the letters that wait."""
        self.taken: Callable[[QuestionMessage], object] = lambda _: None
        """Hears of each question that comes."""
        self.post: MessageDelivery
        self.sharing: Sharing

    @property
    def id(self) -> str:
        return self.sealer.device.id

    def knows(self, agent: str, other: "Neighbour", *, card: dict[str, Any] | None = None, **settings: Any) -> None:
        """Have an agent that the other one shares as an agent of this hub; both know each other."""
        introduce(self.sealer, other.sealer)
        caller = RemoteCaller(agent=agent, device=other.name, **settings)
        given: dict[str, Any] = {"concurrency": caller.max_concurrent_shared_calls, "resumable": True} | (card or {})
        self.hub.register(AgentCard(name=agent, **given), DeviceAgent(caller, self.access))

    def shares(self, agent: str, *others: "Neighbour", **settings: Any) -> None:
        ids = frozenset(each.id for each in others)
        for each in others:
            introduce(self.sealer, each.sealer)
        profile = Profile(id=agent, allow_shared_agent_calls=True, allowed_shared_device_ids=ids, **settings)
        self.shared[agent] = Shared(agent=agent, profile=profile)

    @asynccontextmanager
    async def at_work(self, url: str) -> AsyncGenerator["Neighbour"]:
        """Have its device at work; the hub is open."""
        async with there(self.sealer, url) as self.post, AsyncExitStack() as stack:
            self.sharing = Sharing(
                self.hub, self.sealer, self.post, self.shared, now_ms=NOW_MS, reported=self.told.append
            )
            known = self.sharing.control if self.remembers else None
            calls = RemoteCalls(self.sealer, self.post, now_ms=NOW_MS, control_of=known)
            for access in device_access_of(self.hub):
                stack.enter_context(access.provide(calls))
            self._watch()
            reading = asyncio.create_task(
                route_messages(self.post, None, self.sharing, sealer=self.sealer, now_ms=NOW_MS, calls=calls)
            )
            try:
                yield self
            finally:
                reading.cancel()
                await asyncio.wait({reading})
                await self.sharing.close()

    def _watch(self) -> None:
        take = self.sharing.take

        def watched(opened: Opened, received: QuestionMessage) -> None:
            self.taken(received)
            take(opened, received)

        self.sharing.take = watched


@asynccontextmanager
async def all_at_work(url: str, neighbours: Iterable[Neighbour]) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for each in neighbours:
            await stack.enter_async_context(each.hub)
            await stack.enter_async_context(each.at_work(url))
        yield
