"""Pairings that a running device starts for its clients: each is a task with a state that can be asked for."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Literal

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_relay.device.identity import Card
from remit_relay.device.peers import Grants, PeerDevice
from remit_relay.pairing.client import Paired, PairingGateway, PairingOwner, host_pairing, join_pairing
from remit_relay.pairing.code import PairingCode, PairingLink

PairingState = Literal["starting", "waiting", "joining", "paired", "failed", "cancelled"]

# The clients of one user; ended ones are forgotten beyond this.
MOST = 16


class PairingTask:
    """One pairing. The code is there only while it waits."""

    def __init__(self, state: PairingState) -> None:
        self.id = secrets.token_hex(8)
        self.state: PairingState = state
        self.link: PairingLink | None = None
        self.paired: Paired | None = None
        self.fault: Fault | None = None
        self.task: asyncio.Task[None]
        self.shown = asyncio.Event()
        """Set once there is a code, or the pairing has ended."""


class PairingService:
    """Starts, lists and cancels pairings of one device, until it is closed.

    *check* and *record* work on the device's file, in its own thread.
    """

    def __init__(
        self,
        gateway: PairingGateway,
        card: Callable[[], Card],
        *,
        check: Callable[[Card], Awaitable[None]],
        record: Callable[[Card, Grants], Awaitable[PeerDevice]],
    ) -> None:
        self._gateway = gateway
        self._card = card
        self._check = check
        self._record = record
        self._tasks: dict[str, PairingTask] = {}

    async def start(self, grants: Grants) -> PairingTask:
        """Open a mailbox and return the pairing once its code is there."""
        pairing = PairingTask("starting")

        def shown(code: PairingCode, _seconds: float) -> None:
            pairing.link = PairingLink(code, self._gateway.url, self._gateway.name)
            pairing.state = "waiting"
            pairing.shown.set()

        self._begin(pairing, lambda: host_pairing(self._gateway, self._owner(grants), shown=shown))
        await pairing.shown.wait()
        return pairing

    def join(self, link: PairingLink, grants: Grants) -> PairingTask:
        """Join the mailbox of a code; a code holds only for this device's gateway."""
        if link.gateway and link.gateway.rstrip("/") != self._gateway.url.rstrip("/"):
            why = f"the code is for the gateway {link.gateway[:200]}, and this device uses {self._gateway.url}"
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion="Both devices use the same gateway."))
        pairing = PairingTask("joining")
        self._begin(pairing, lambda: join_pairing(self._gateway, self._owner(grants), link.code))
        return pairing

    def find(self, pairing: str) -> PairingTask:
        """Return a pairing, or raise a `RemitError` if it is unknown."""
        if pairing not in self._tasks:
            raise RemitError(fault(Code.NOT_FOUND, f"no pairing `{pairing[:100]}` on this device"))
        return self._tasks[pairing]

    async def cancel(self, pairing: str) -> PairingTask:
        """End a pairing, whose code is dead then; one that has ended stays as it is."""
        found = self.find(pairing)
        found.task.cancel()
        await asyncio.wait({found.task})
        return found

    async def close(self) -> None:
        """End all pairings."""
        for each in list(self._tasks):
            await self.cancel(each)

    def _owner(self, grants: Grants) -> PairingOwner:
        async def record(card: Card) -> PeerDevice:
            return await self._record(card, grants)

        return PairingOwner(card=self._card(), check=self._check, record=record)

    def _begin(self, pairing: PairingTask, work: Callable[[], Awaitable[Paired]]) -> None:
        ended = [each for each, known in self._tasks.items() if known.task.done()]
        for each in ended[: max(0, len(self._tasks) - MOST + 1)]:
            del self._tasks[each]
        if len(self._tasks) >= MOST:
            raise RemitError(fault(Code.OVERLOADED, f"{MOST} pairings are in progress", suggestion="Cancel one."))
        self._tasks[pairing.id] = pairing
        pairing.task = asyncio.create_task(self._run(pairing, work))

    async def _run(self, pairing: PairingTask, work: Callable[[], Awaitable[Paired]]) -> None:
        try:
            pairing.paired = await work()
            pairing.state = "paired"
        except RemitError as error:
            pairing.fault, pairing.state = error.fault, "failed"
        except asyncio.CancelledError:
            pairing.state = "cancelled"
            raise
        finally:
            pairing.link = None
            pairing.shown.set()
