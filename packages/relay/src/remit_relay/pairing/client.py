"""A device that pairs over a code: it meets the other one in a mailbox of their gateway.

It proves nothing to the gateway, so it works while another process has the device's connection. No person is asked
between the first note and the last: what the two may do with each other is granted before, or decided afterwards.
"""

import asyncio
import secrets
import ssl as tls
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple, TypeVar

from aiohttp import ClientError, ClientSession, ClientTimeout, ClientWebSocketResponse, WSMsgType
from msgspec import Struct

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_relay.client.handshake import CLOSED, unreached
from remit_relay.device.identity import Card, comparable_code
from remit_relay.device.peers import Grants, PeerDevice
from remit_relay.pairing.code import PairingCode, PairingLink, confirmation_words, new_words
from remit_relay.pairing.exchange import (
    FAILED,
    MAX_FRAME,
    PATH,
    VERSION,
    EndCode,
    FromRendezvous,
    JoinMailbox,
    MailboxEnded,
    MailboxJoined,
    MailboxNote,
    MailboxOpened,
    OpenMailbox,
    PairingBroken,
    PairingExchange,
    RendezvousGreeting,
    WrongCode,
    read_from_rendezvous,
)
from remit_relay.wire import Malformed, encode_text
from remit_server.transports.remote_calls import CONNECT_S

Frame = TypeVar("Frame", bound=FromRendezvous)

# A gateway answers at once, and so does a device: more than a slow network takes.
ANSWER_S = 30.0
# The longest that a device waits for the other one, whatever the gateway says.
MOST_S = 3_600.0
# Detects a gateway that is gone while nothing is said.
HEARTBEAT_S = 20.0

_AGAIN = "Get a new code with `remit pair`, and type it on the other side."
_LATER = "Try again in some minutes."
_SAME_VERSION = "Use the same version of Remit on this device and its gateway."
# In this program's words: the gateway's could pretend to be somebody else's.
_ENDS: dict[EndCode, tuple[Code, str, str]] = {
    "unknown": (
        Code.NOT_FOUND,
        "no device waits under this code: it is wrong, used, or expired",
        "Check the number and that the other side still waits. A code works once, for ten minutes, and only at the "
        "gateway where it was made. " + _AGAIN,
    ),
    "left": (
        Code.DELEGATION_FAILED,
        "the other device has gone, so nothing was paired, and the code is used up",
        _AGAIN,
    ),
    "expired": (Code.TIMEOUT, "nobody used the code in time, so it is dead", _AGAIN),
    "full": (Code.OVERLOADED, "too many devices are pairing at this gateway", _LATER),
    "busy": (Code.RATE_LIMITED, "too many pairings from this network address", _LATER),
    "malformed": (Code.MALFORMED_ENVELOPE, "the gateway does not understand this device", _SAME_VERSION),
    "closing": (
        Code.DELEGATION_UNAVAILABLE,
        "the gateway is shutting down, so nothing was paired",
        _AGAIN,
    ),
    "version": (Code.VERSION_UNSUPPORTED, "the gateway does not understand this device", _SAME_VERSION),
}


class PairingGateway(Struct, frozen=True, kw_only=True):
    """The gateway where two devices meet; *name* is the one that its owner meant."""

    url: str
    name: str
    ssl: tls.SSLContext | None = None


class PairingOwner(Struct, frozen=True, kw_only=True):
    """A device that pairs, and how it takes in the other one."""

    card: Card
    check: Callable[[Card], Awaitable[None]]
    """Raises a `RemitError` if the other device must not be paired."""
    record: Callable[[Card], Awaitable[PeerDevice]]
    """Records the other device as paired and verified, durably."""


class Paired(NamedTuple):
    """The other device."""

    peer: PeerDevice
    words: str
    """Four words that both owners see."""
    is_confirmed: bool
    """Whether it said that this device is paired there too."""


async def host_pairing(
    gateway: PairingGateway, owner: PairingOwner, *, shown: Callable[[PairingCode, float], None]
) -> Paired:
    """Open a mailbox, call *shown* with the code and the seconds that it holds, and pair with the one that types it.

    Raises a `RemitError` if nothing was paired; the code is dead then.
    """
    async with _mailbox(gateway) as box:
        await box.say(OpenMailbox())
        opened = await box.hear(MailboxOpened)
        code = PairingCode(opened.mailbox, new_words())
        exchange = PairingExchange("host", code, owner.card, gateway=gateway.name)
        await box.note(exchange.first())
        wait_s = min(float(max(opened.seconds, 0)) + ANSWER_S, MOST_S)
        shown(code, wait_s)
        async with box.failing():
            second = (await box.hear(MailboxNote, wait_s)).body
            await box.note(exchange.third(second))
            card = exchange.guest_card((await box.hear(MailboxNote)).body)
            peer = await _recorded(box, exchange, owner, card)
            await box.note(exchange.recorded())
        confirmed = True
        try:
            exchange.check_recorded((await box.hear(MailboxNote)).body)
        except RemitError:
            # This device has recorded the other one; whether that one did the same is unknown.
            confirmed = False
        return _paired(owner.card, peer, is_confirmed=confirmed)


async def join_pairing(gateway: PairingGateway, owner: PairingOwner, code: PairingCode) -> Paired:
    """Pair with the device that shows *code*, or raise a `RemitError` if nothing was paired here."""
    async with _mailbox(gateway) as box:
        await box.say(JoinMailbox(mailbox=code.mailbox))
        await box.hear(MailboxJoined)
        exchange = PairingExchange("guest", code, owner.card, gateway=gateway.name)
        async with box.failing():
            await box.note(exchange.second((await box.hear(MailboxNote)).body))
            card = exchange.host_card((await box.hear(MailboxNote)).body)
            try:
                await _acceptable(owner, card)
            except RemitError:
                await box.note(exchange.declined(instead_of_card=True))
                raise
            await box.note(exchange.fourth())
            await _wait_until_recorded(box, exchange)
            peer = await _recorded(box, exchange, owner, card)
        # The host waits for this, and manages without it.
        with suppress(RemitError):
            await box.note(exchange.recorded())
        return _paired(owner.card, peer, is_confirmed=True)


def _paired(own: Card, peer: PeerDevice, *, is_confirmed: bool) -> Paired:
    return Paired(peer, confirmation_words(comparable_code(own, peer.card)), is_confirmed)


async def _recorded(box: "_Mailbox", exchange: PairingExchange, owner: PairingOwner, card: Card) -> PeerDevice:
    try:
        await _acceptable(owner, card)
        return await owner.record(card)
    except RemitError:
        await box.note(exchange.declined(instead_of_card=False))
        raise


async def _wait_until_recorded(box: "_Mailbox", exchange: PairingExchange) -> None:
    """Wait until the host says that it has recorded this device.

    It may have done so, and have been killed before its word came: then only one of the two is paired.
    """
    try:
        note = (await box.hear(MailboxNote)).body
    except PairingBroken:
        raise
    except RemitError as error:
        why = "the other device did not confirm: nothing was paired here, but it may already list this device"
        raise RemitError(fault(error.fault.code, why, suggestion=_AGAIN)) from error
    exchange.check_recorded(note)


async def _acceptable(owner: PairingOwner, card: Card) -> None:
    if card.device == owner.card.device:
        why = "this code was made by this device; type it on the other one"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=_AGAIN))
    await owner.check(card)


# ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Mailbox:
    """The connection with the rendezvous of a gateway."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def say(self, frame: Struct) -> None:
        try:
            await self._socket.send_str(encode_text(frame).decode())
        except (ClientError, OSError) as error:
            raise _lost() from error

    async def note(self, body: bytes) -> None:
        await self.say(MailboxNote(body=body))

    async def hear(self, kind: type[Frame], within_s: float | None = None) -> Frame:
        """Return the next frame, which is of this kind; raise a `RemitError` if the mailbox has ended."""
        try:
            async with asyncio.timeout(ANSWER_S if within_s is None else within_s):
                message = await self._socket.receive()
            if message.type in CLOSED:
                raise _lost()
            if message.type is not WSMsgType.TEXT:
                raise PairingBroken("the gateway sent an invalid frame")
            frame = read_from_rendezvous(message.data)
        except TimeoutError as error:
            why = "nothing came from the other device in time, so nothing was paired"
            raise RemitError(fault(Code.TIMEOUT, why, suggestion=_AGAIN)) from error
        except Malformed as error:
            raise PairingBroken("the gateway sent an invalid frame") from error
        if isinstance(frame, MailboxEnded):
            code, why, suggestion = _ENDS[frame.code]
            raise RemitError(fault(code, why, suggestion=suggestion))
        if not isinstance(frame, kind):
            raise PairingBroken("the gateway sent an unexpected frame")
        return frame

    @asynccontextmanager
    async def failing(self) -> AsyncGenerator[None]:
        """Tell the other device if the code was wrong, or its notes were changed."""
        try:
            yield
        except (WrongCode, PairingBroken):
            with suppress(RemitError):
                await self.note(FAILED)
            raise


@asynccontextmanager
async def _mailbox(gateway: PairingGateway) -> AsyncGenerator[_Mailbox]:
    """Connect to the rendezvous of *gateway*, and of no server with another name."""
    headers = {"User-Agent": "remit"}
    async with ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_S), headers=headers) as session:
        try:
            async with asyncio.timeout(ANSWER_S):
                socket = await session.ws_connect(
                    gateway.url.rstrip("/") + PATH,
                    max_msg_size=MAX_FRAME,
                    heartbeat=HEARTBEAT_S,
                    ssl=gateway.ssl or True,
                )
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise _unreached(error) from error
        try:
            box = _Mailbox(socket)
            greeting = await box.hear(RendezvousGreeting)
            if greeting.gateway != gateway.name:
                why = f"the name of the gateway is {greeting.gateway[:100]!r}, not {gateway.name!r}"
                todo = "If it is the right one, set `name` in `[relay]`, or give --gateway-name."
                raise RemitError(fault(Code.UNAUTHENTICATED, why, suggestion=todo))
            if greeting.version != VERSION:
                why = f"the gateway pairs with protocol version {greeting.version}, this device with {VERSION}"
                raise RemitError(fault(Code.VERSION_UNSUPPORTED, why))
            yield box
        finally:
            with suppress(ClientError, OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await socket.close()


def _unreached(error: Exception) -> RemitError:
    return RemitError(
        fault(Code.DELEGATION_UNAVAILABLE, unreached(error).reason, suggestion="Check the gateway's address.")
    )


def _lost() -> RemitError:
    why = "the connection to the gateway was lost, so nothing was paired, and the code is used up"
    return RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=_AGAIN))


# ── pairings of a running device ──────────────────────────────────────────────────────────────────────────────────────

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
        task = self.find(pairing)
        task.task.cancel()
        await asyncio.wait({task.task})
        return task

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
