"""One device's connection, as the gateway sees it: what was sent, what was acknowledged, what waits to be written."""

import asyncio
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from remit.relay.gateway.limits import GatewayLimits
from remit.relay.wire import Bye, Delivery, Receipt, Stored, encode_binary, encode_text

_TEXT, _BINARY, _CLOSE, _PONG = 0x1, 0x2, 0x8, 0xA
_GOING_AWAY = (1001).to_bytes(2)


class DeliveryRoute:
    """A way from one connection to another on which a message was taken, so that the next will be."""

    __slots__ = ("access", "number", "receiver")

    def __init__(self, receiver: "DeviceConnection", access: int, number: int) -> None:
        self.receiver = receiver
        self.access = access
        self.number = number
        """The last one."""


class DeviceConnection:
    """What is known of one connection. Frames are gathered and leave together, with `flush`.

    They are written to the transport as they are, past aiohttp's writer: that is a coroutine for each frame, and
    results come in a callback, many at once.
    """

    __slots__ = (
        "_out",
        "_receipts",
        "_transport",
        "_window",
        "_window_bytes",
        "access",
        "acked",
        "acking",
        "closing",
        "device",
        "heard",
        "key",
        "live",
        "number",
        "paging",
        "progress",
        "refused_to",
        "room",
        "routes",
        "sent",
        "unstored",
    )

    def __init__(self, transport: asyncio.Transport, *, number: int, device: str, now: float) -> None:
        self._transport = transport
        self.number = number
        self.device = device
        self.key = 0
        self.closing = False
        self.heard = self.progress = now
        self.live = False
        """Whether everything in the file was sent, so that what is stored next can follow at once."""
        self.paging = False
        """Whether the next page was asked for."""
        self.sent = 0
        """The place up to which everything was sent."""
        self.acked = 0
        self.access = 0
        """Counts how often the device has said who may reach it."""
        self.routes: dict[str, DeliveryRoute] | None = None
        """To whom messages of this device were taken lately."""
        self.acking = False
        """Whether the last acknowledgement still waits to be written."""
        self.unstored = 0
        """How many bytes it has sent that are not durable."""
        self.room: asyncio.Future[None] | None = None
        """Who waits until those are fewer."""
        self.refused_to: set[str] | None = None
        self._window: deque[tuple[int, int]] | None = None
        self._window_bytes = 0
        self._out: list[bytes] = []
        self._receipts: list[Receipt] = []

    # ── what leaves ───────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, frame: Struct) -> None:
        """Add a control frame to what leaves next."""
        self._add(_TEXT, encode_text(frame))

    def receipt(self, receipt: Receipt) -> None:
        """Tell of one more message that is durable."""
        self._receipts.append(receipt)

    def pong(self, payload: bytes) -> None:
        self._add(_PONG, payload)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Send messages, which stay in the window until they are acknowledged."""
        window = self._window
        if window is None:
            # Most devices have nothing under way, and an empty deque takes 600 bytes.
            window = self._window = deque()
        for delivery in deliveries:
            size = len(delivery.body)
            window.append((delivery.place, size))
            self._window_bytes += size
            self.sent = delivery.place
            self._add(_BINARY, encode_binary(delivery))

    def flush(self, now: float) -> None:
        """Let everything leave that was added."""
        if self._receipts:
            self._add(_TEXT, encode_text(Stored(tuple(self._receipts))))
            self._receipts.clear()
        if self._out:
            out, self._out = self._out, []
            if not self._transport.is_closing():
                if not self._transport.get_write_buffer_size():
                    self.progress = now
                self._transport.writelines(out)

    def cut(self, bye: Bye, closing_s: float, now: float) -> None:
        """End the connection: say why, give the device a moment to close it, then close it anyway."""
        if self.closing:
            return
        self.closing = True
        self.say(bye)
        self._add(_CLOSE, _GOING_AWAY)
        self.flush(now)
        asyncio.get_running_loop().call_later(closing_s, self._transport.abort)

    def _add(self, opcode: int, payload: bytes) -> None:
        # A server's frames are neither masked (RFC 6455, 5.1) nor, here, in pieces or compressed.
        size = len(payload)
        if size < 126:
            self._out.append(bytes((0x80 | opcode, size)) + payload)
        elif size < 65_536:
            self._out.append(bytes((0x80 | opcode, 126)) + size.to_bytes(2) + payload)
        else:
            self._out.append(bytes((0x80 | opcode, 127)) + size.to_bytes(8))
            self._out.append(payload)

    # ── how far it is ─────────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledge(self, place: int, now: float) -> bool:
        """Take everything up to a place out of the window; say whether that was anything."""
        window = self._window
        if not window or place < window[0][0]:
            return False
        self.progress = now
        while window and window[0][0] <= place:
            self.acked, size = window.popleft()
            self._window_bytes -= size
        if not window:
            self._window = None
        return True

    def has_room(self, limits: GatewayLimits) -> bool:
        """Whether more may be sent before anything is acknowledged."""
        return self._window is None or (
            len(self._window) < limits.window_messages and self._window_bytes < limits.window_bytes
        )

    def room_left(self, limits: GatewayLimits) -> tuple[int, int]:
        """How many messages and bytes that is."""
        return limits.window_messages - len(self._window or ()), limits.window_bytes - self._window_bytes

    def stuck(self, now: float, slow_s: float) -> bool:
        """Whether the device takes nothing of what waits to leave."""
        if not self._transport.get_write_buffer_size():
            self.progress = now
        return now - self.progress > slow_s
