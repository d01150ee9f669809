"""A device with its console: Anna's agent, which says what a test tells it to, and Bob, who shares one."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from playwright.async_api import Page, expect

from pairs import Local
from remit import Brief
from remit_relay.bridge.ports import Draft, DraftFailure, PromptRequest
from remit_relay.client.connection import DevicePresence
from remit_relay.device.identity import Card
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.e2e.channel import Opened
from remit_relay.local_api.access import local_operations
from remit_relay.local_api.pairing import GrantEndpoints, GrantNames, PairingEndpoints
from remit_relay.local_api.serving import BrowserLinks, Changes, serve_shared
from remit_relay.messages.types import AgentOffer, OffersMessage, store_offers
from remit_relay.pairing.client import PairingGateway, PairingService
from remit_relay.serve_shared import Shared
from remit_relay.session.profile import Profile
from remit_relay.session.run import Overlay
from two_sides import Sides, two_sides

EXPERT = AgentOffer(name="helper", description="Knows the API of the shop.")


class ConsoleWorld:
    """Both devices, and the server of Anna's console, which can be started anew."""

    def __init__(self, path: Path, local: Local) -> None:
        self.path, self.local = path, local
        self.changes = Changes()
        self.links = BrowserLinks()
        self.sides: Sides
        self.gateway = ""
        self.address = ""
        self._server = AsyncExitStack()

    def changed(self, run: Overlay) -> None:
        self.changes.changed(run)

    async def start(self, port: int = 0) -> None:
        """Serve the console, as a new process would."""
        self.changes = Changes()
        names = GrantNames(agents=frozenset({"expert"}), profiles=frozenset({"mine"}))
        pairings = self._pairings()
        routes = [
            *local_operations(PairingEndpoints(pairings, names)),
            *local_operations(GrantEndpoints(self._on_peers, names)),
        ]
        expert = Shared(agent="expert", profile=Profile(id="expert"), description="Knows the stock.")
        serving = serve_shared(
            self.sides.host,
            self.changes,
            token=self.path / "shared.token",
            port=port,
            link=self.sides.ours._link,  # pyright: ignore[reportPrivateUsage]
            shared={"expert": expert},
            presence=lambda _: DevicePresence(present=True, last_heard_ms=1),
            links=self.links,
            routes=routes,
        )
        self._server.push_async_callback(pairings.close)
        self.address = await self._server.enter_async_context(serving)

    async def stop(self) -> None:
        await self._server.aclose()

    async def restart(self) -> None:
        """End the server, and start it anew at the same address."""
        port = int(self.address.rpartition(":")[2])
        await self.stop()
        await self.start(port)

    def _pairings(self) -> PairingService:
        anna, do = self.sides.anna, self.sides.ours.do

        async def check(card: Card) -> None:
            await do(anna.peers.check, card)

        async def record(card: Card, grants: Grants) -> PeerDevice:
            return await do(anna.peers.pair_verified, card, grants)

        gateway = PairingGateway(url=self.gateway, name="g")
        return PairingService(gateway, lambda: anna.device.card, check=check, record=record)

    async def _on_peers(self, work: Callable[[Peers], list[PeerDevice]]) -> list[PeerDevice]:
        return await self.sides.ours.do(work, self.sides.anna.peers)

    # ── what a person does ────────────────────────────────────────────────────────────────────────────────────────────

    async def sign_in(self, page: Page) -> None:
        await page.goto(self.links.new())
        await expect(page.get_by_role("heading", name="New conversation")).to_be_visible()

    async def begin(self, page: Page, objective: str = "Review the orders API", mode: str = "Manual") -> None:
        """Start a conversation of both agents."""
        await page.get_by_role("link", name="New conversation").click()
        await page.get_by_role("radio", name=mode).check()
        await page.get_by_role("textbox", name="Objective").fill(objective)
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_role("region", name="Controls")).to_be_visible()


Say = Callable[[PromptRequest], Draft | DraftFailure]


def asks(request: PromptRequest) -> Draft:
    """What Anna's agent says if a test does not tell it otherwise."""
    text = f"Question {request.turn_index} about {request.objective}: what does GET /orders return?"
    return Draft(text=text, confidence=0.9, tokens=40, duration_ms=420)


@asynccontextmanager
async def console_world(
    path: Path, say: Say = asks, *, answer: Callable[[Brief], Any] | None = None, **changes: Any
) -> AsyncGenerator[ConsoleWorld]:
    """Have all of it there; *changes* are made to the profile of Anna's agent."""
    local = Local(say)
    world = ConsoleWorld(path, local)

    def gateway(url: str) -> str:
        world.gateway = url
        return url

    more: dict[str, Any] = {} if answer is None else {"answer": answer}
    async with two_sides(
        path, agent_of=lambda _, ask: local.of(ask), changed=world.changed, url=gateway, **more, **changes
    ) as world.sides:
        offer = replace(EXPERT, files=changes["files"]) if "files" in changes else EXPERT
        opened = Opened(id=0, sender=world.sides.bob.device.id, message="", requester="", body=b"")
        await world.sides.ours.do(store_offers, world.sides.anna, opened, OffersMessage(agents=(offer,)))
        await world.start()
        try:
            yield world
        finally:
            await world.stop()
