"""A device's connection to its gateway, which comes back by itself.

Nothing is lost, repeated or reordered, whatever dies in between, if the user of a `GatewayConnection` keeps three
things:

- every message with its number, from before it is `put` until its receipt; after a restart it puts them again, in order
  and under the same numbers;
- the last number that it gave a message, so that none is ever used for another one. Numbers may have gaps: one count
  for all receivers will do;
- for each sender the number of its last message whose effects are kept, written together with them. It is given as
  *kept* to the next connection, and said to this one with `acknowledge` once it is written.

The gateway recognises a message that is put again by its number, for as long as its `GatewayLimits.repeat_days` say,
and the receiving connection for ever. Numbers and senders are what the gateway says they are: the sealing layer trusts
neither.
"""

import asyncio
import logging
import random
import ssl as tls
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Literal

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientConnectorSSLError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    ConnectionTimeoutError,
    ServerDisconnectedError,
    WSMsgType,
    WSServerHandshakeError,
)
from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.client.handshake import DeviceSigner, greet
from remit.relay.client.receive_queue import Arrivals
from remit.relay.client.rpc import PendingCalls
from remit.relay.client.send_queue import Outcome, SendQueue, SendQueues
from remit.relay.device.identity import device_id
from remit.relay.wire import (
    FINAL,
    MAX_BODY,
    MAX_FRAME,
    PATH,
    AllowSenders,
    BundleReply,
    Bye,
    ByeCode,
    Challenge,
    Delivery,
    Denied,
    DeviceStatus,
    Done,
    Expired,
    Fetch,
    FromGateway,
    KeysLeft,
    Malformed,
    Publish,
    Refused,
    Stored,
    Welcome,
    encode_binary,
    encode_text,
    read_delivery,
    read_from_gateway,
)
from remit.transports.http_reading import CONNECT_S, in_words

# Under way to the gateway and not answered: enough that one commit takes many.
UNDERWAY_MESSAGES = 256
UNDERWAY_BYTES = 16 * MAX_BODY
# How long a gateway has to close a connection that this side closes.
CLOSING_S = 0.25
# A gateway that asks for more patience than this gets as much.
MOST_AFTER_S = 600

_log = logging.getLogger("remit.relay")
ENDED: dict[ByeCode, tuple[Code, str]] = {
    "replaced": (Code.STATE_CONFLICT, "End the other process that uses this device's identity, or this one."),
    "unauthenticated": (
        Code.UNAUTHENTICATED,
        "Check that the gateway's name and address belong together: `name` and `gateway` in `[relay]`.",
    ),
    "version": (Code.VERSION_UNSUPPORTED, "Bring this device and its gateway to the same version of Remit."),
    "malformed": (Code.MALFORMED_ENVELOPE, "Bring this device and its gateway to the same version of Remit."),
}

State = Literal["connecting", "connected", "waiting", "ended"]


class Pauses(Struct, frozen=True, kw_only=True):
    """How long a link waits before it connects again: a random part of a bound that doubles each time."""

    first_s: float = 0.5
    most_s: float = 60.0

    def bound_s(self, attempt: int) -> float:
        """The longest wait before an attempt; the first is 0."""
        return min(self.most_s, self.first_s * 2 ** min(attempt, 30))


def unreached(error: Exception) -> Bye:
    """Say why a gateway cannot be connected to, and when to try again."""
    match error:
        case WSServerHandshakeError(status=429 | 503 as status):
            who = "this network address" if status == 429 else "anyone"
            after = error.headers.get("Retry-After", "") if error.headers else ""
            after_ms = min(int(after), MOST_AFTER_S) * 1_000 if after.isdecimal() else 0
            reason = f"the gateway takes no further connection from {who} for now (status {status})"
            return Bye(code="full", reason=reason, retry_after_ms=after_ms)
        case WSServerHandshakeError():
            why = f"who answers there is no gateway (status {error.status})"
        case ClientConnectorCertificateError(certificate_error=tls.SSLCertVerificationError(verify_message=said)):
            if "mismatch" in said:
                why = f"its certificate is for another host ({said.rstrip('.')}); `gateway` has to name it"
            else:
                why = (
                    f"its certificate is not trusted ({said}); `authority` in `[relay]` names whose certificates count"
                )
        case ClientConnectorSSLError():
            why = "it does not speak wss; one without a certificate is reached by ws://"
        case ServerDisconnectedError():
            why = "it hangs up; one with a certificate is reached by wss://"
        case ClientConnectorError() | ConnectionTimeoutError():
            why = in_words(error)
        case _:
            why = str(error) or "it does not answer"
    return Bye(code="trouble", reason=f"the gateway cannot be reached: {why}")


class GatewayConnection:
    """The connection of one device to one gateway; `async with` opens it, and it lasts until the block ends.

    *gateway* is the gateway's name as the device was told it: a server that calls itself otherwise gets no signature.
    *kept* has the last number of each sender (see the module). *changed* hears each new `state`, with a sentence for
    people.
    """

    def __init__(
        self,
        url: str,
        *,
        gateway: str,
        key: DeviceSigner,
        kept: Mapping[str, int] | None = None,
        pauses: Pauses | None = None,
        ping_s: float = 25.0,
        silence_s: float = 40.0,
        ssl: tls.SSLContext | None = None,
        changed: Callable[[State, str], None] = lambda _state, _why: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._url = url.rstrip("/") + PATH
        self._gateway = gateway
        self._key = key
        self.device = device_id(key.public)
        self._pauses = pauses or Pauses()
        self._ping_s = ping_s
        self._silence_s = silence_s
        self._ssl = ssl
        self._changed = changed
        self._uniform = uniform
        self.state: State = "connecting"
        self.why = ""
        self.one_time_left: int | None = None
        """How many of this device's one-time keys the gateway has left to hand out, once it has said so."""
        self.expired: Callable[[Expired], None] = lambda _: None
        """Hears what was put and nobody fetched for so long that the gateway has deleted it; perhaps more than once."""
        self._queues = SendQueues(messages=UNDERWAY_MESSAGES, size=UNDERWAY_BYTES)
        self._wake = asyncio.Event()
        self._arrivals = Arrivals(kept or {}, self._wake.set)
        self._calls = PendingCalls(self._wake.set)
        self._allowed: AllowSenders | None = None
        self._eased = asyncio.Event()
        self._end: RemitError | None = None
        self._attempt = 0
        self._heard = 0.0

    async def __aenter__(self) -> "GatewayConnection":
        self._loop = asyncio.get_running_loop()
        self._session = ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_S))
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self._session.close()
        self._finish("closed by its user", RemitError(fault(Code.CANCELLED, "the link is closed")))

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, to: str, number: int, body: bytes) -> "asyncio.Future[Outcome]":
        """Send a sealed message; the future has its `Receipt` once the gateway holds it for good.

        Messages to one device leave in the order of the calls, and their numbers grow. What is refused for now (the
        other's queue is full) is tried again by itself, and stands in `pauses` meanwhile. What is refused for good
        comes back as `Refused`, with all that waits behind it for the same device; put them again, in order, when there
        is reason to. A receipt that says `repeated`, of a message that was never put before, means that the state kept
        by the user was set back, and its numbers are used up.
        """
        if not 0 < len(body) <= MAX_BODY:
            raise RemitError(fault(Code.TOO_LARGE, f"body: a message has 1 to {MAX_BODY} bytes, this one {len(body)}"))
        if self._end:
            raise self._end
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._queues.add(to, number, body, future)
        self._wake.set()
        return future

    def pauses(self) -> dict[str, Refused]:
        """For each device whose queue is full: what the gateway said about it."""
        return self._queues.pauses()

    async def room(self, size: int = 4 * UNDERWAY_BYTES) -> None:
        """Return once no more than *size* bytes wait for their receipts: for those who have much to send."""
        while self._queues.bytes_waiting > size and not self._end:
            self._eased.clear()
            await self._eased.wait()

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def receive(self) -> Delivery:
        """Return the next message; raises a `RemitError` when the link has ended for good.

        Those from one sender come in the order in which it put them, each once.
        """
        return await self._arrivals.next()

    def received(self, messages: int, size: int) -> list[Delivery]:
        """Return what has come by now, after what `receive` returned: up to so many messages, up to so many bytes."""
        return self._arrivals.at_hand(messages, size)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        while True:
            yield await self.receive()

    def acknowledge(self, delivery: Delivery) -> None:
        """Say that the effects of a message are kept, and of all before it from the same sender, with its number."""
        self._arrivals.keep(delivery)

    # ── keys and access ───────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, *, bundle: bytes | None = None, one_time: tuple[bytes, ...] = ()) -> Done | Denied:
        """Leave keys with the gateway for others: a signed bundle, and one-time keys that are handed out once each."""
        answer = await self._calls.ask(lambda request: Publish(request=request, bundle=bundle, one_time=one_time))
        assert not isinstance(answer, BundleReply)
        return answer

    async def fetch(self, device: str) -> BundleReply | Denied:
        """Return the keys of another device, as it signed them: check that before you use them."""
        answer = await self._calls.ask(lambda request: Fetch(request=request, device=device))
        assert not isinstance(answer, Done)
        return answer

    async def allow(self, senders: tuple[str, ...] | None) -> None:
        """Say which devices may send to this one and fetch its keys; None: whoever knows its id, as at the start."""

        def make(request: int) -> AllowSenders:
            self._allowed = AllowSenders(request=request, senders=senders)
            return self._allowed

        await self._calls.ask(make)

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            try:
                bye = await self._connect_once()
            except (ClientError, OSError, TimeoutError) as error:
                bye = unreached(error)
            except Malformed as error:
                bye = Bye(code="trouble", reason=f"this is no gateway: {error}")
            if bye.code in FINAL:
                code, suggestion = ENDED[bye.code]
                self._finish(bye.reason, RemitError(fault(code, bye.reason, suggestion=suggestion)))
                return
            # Full jitter: devices that lost the same gateway do not come back together.
            wait = bye.retry_after_ms / 1_000 + self._uniform(0, self._pauses.bound_s(self._attempt))
            self._attempt += 1
            self._become("waiting", f"{bye.reason}; the next attempt is in {wait:.1f} s")
            await asyncio.sleep(wait)

    async def _connect_once(self) -> Bye:
        """Connect, and stay connected; return why that ended."""
        self._become("connecting", f"connecting to {self._gateway}")
        async with asyncio.timeout(self._silence_s):
            socket = await self._session.ws_connect(
                self._url,
                autoping=False,
                autoclose=False,
                max_msg_size=MAX_FRAME,
                ssl=self._ssl or True,
            )
        try:
            self._begin_again()
            async with asyncio.timeout(self._silence_s):
                answer = await greet(socket, self._key, gateway=self._gateway)
            if isinstance(answer, Bye):
                return answer
            self.one_time_left = answer.one_time_left
            self._heard = self._loop.time()
            self._become("connected", f"connected to {self._gateway}")
            if answer.is_new and self._allowed:
                # A gateway that has lost its file, or forgot this device, would let anyone reach it.
                await socket.send_str(encode_text(self._allowed).decode())
            return await self._stay(socket)
        finally:
            with suppress(TimeoutError, ClientError, OSError):
                async with asyncio.timeout(CLOSING_S):
                    if ack := self._arrivals.ack(at_once=True):
                        await socket.send_str(encode_text(ack).decode())
                    await socket.close()

    async def _stay(self, socket: ClientWebSocketResponse) -> Bye:
        """Read, write and listen for silence, until one of these has nothing more to do."""
        reading = asyncio.create_task(self._read(socket))
        tasks = {reading, asyncio.create_task(self._write(socket)), asyncio.create_task(self._watch(socket))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # What the gateway said at last explains why nothing could be written any more.
            return reading.result() if reading in done else next(iter(done)).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()

    def _begin_again(self) -> None:
        self._queues.begin_again()
        self._arrivals.begin_again()
        self._calls.begin_again()
        self._wake.set()

    async def _read(self, socket: ClientWebSocketResponse) -> Bye:
        receive, time = socket.receive, self._loop.time
        while True:
            message = await receive()
            self._heard = time()
            match message.type:
                case WSMsgType.BINARY:
                    self._attempt = 0
                    self._arrivals.take(read_delivery(message.data))
                case WSMsgType.TEXT:
                    self._attempt = 0
                    frame = read_from_gateway(message.data)
                    if isinstance(frame, Bye):
                        return frame
                    self._hear(frame)
                case WSMsgType.PING:
                    await socket.pong(message.data)
                case WSMsgType.PONG:
                    self._attempt = 0
                case _:
                    return Bye(code="trouble", reason="the connection broke")

    def _hear(self, frame: FromGateway) -> None:
        match frame:
            case Stored(receipts=receipts):
                for receipt in receipts:
                    self._queues.stored(receipt)
                self._eased.set()
                self._wake.set()
            case Refused():
                if queue := self._queues.refused(frame):
                    again = frame.retry_after_ms / 1_000 * self._uniform(1.0, 1.5)
                    self._loop.call_later(again, self._go_on, queue)
                self._eased.set()
                self._wake.set()
            case Done() | BundleReply() | Denied():
                self._calls.answered(frame)
                if isinstance(frame, Done):
                    self.one_time_left = frame.one_time_left
            case KeysLeft(one_time_left=left):
                self.one_time_left = left
            case Expired():
                self.expired(frame)
            case Bye() | Challenge() | Welcome() | DeviceStatus():
                raise Malformed(f"an unexpected {frame.__struct_config__.tag}")

    def _go_on(self, queue: SendQueue) -> None:
        self._queues.go_on(queue)
        self._wake.set()

    async def _write(self, socket: ClientWebSocketResponse) -> Bye:
        """Send whatever there is to send."""
        while True:
            self._wake.clear()
            while asked := self._calls.next():
                await socket.send_str(encode_text(asked).decode())
            while put := self._queues.next():
                await socket.send_bytes(encode_binary(put))
            if ack := self._arrivals.ack():
                await socket.send_str(encode_text(ack).decode())
            await self._wake.wait()

    async def _watch(self, socket: ClientWebSocketResponse) -> Bye:
        """Send a ping now and then, so that silence means a broken connection; return when it does."""
        while True:
            await asyncio.sleep(self._ping_s)
            if self._loop.time() - self._heard > self._silence_s:
                return Bye(code="trouble", reason="the gateway is silent")
            await socket.ping()

    # ── what others see ───────────────────────────────────────────────────────────────────────────────────────────────

    def _become(self, state: State, why: str) -> None:
        self.state, self.why = state, why
        _log.debug("%s: %s", self.device, why)
        self._changed(state, why)

    def _finish(self, why: str, error: RemitError) -> None:
        if self._end:
            return
        self._end = error
        self._queues.end(error)
        self._arrivals.end(error)
        self._calls.end(error)
        self._eased.set()
        self._become("ended", why)
