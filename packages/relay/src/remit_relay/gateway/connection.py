"""The gateway's side of one device connection: what was sent, what was acknowledged, what waits to be written."""

from asyncio import Future
from collections import deque

from msgspec import Struct

from remit_relay.gateway.limits import GatewayLimits
from remit_relay.wire import Bye, Delivery, Receipt, Stored, encode_binary, encode_text
from remit_server.websockets import BINARY, GOING_AWAY, PONG, TEXT, WebSocket


class DeliveryRoute(Struct, eq=False):
    """A route between two connections on which a message was accepted, so that the next one will be."""

    receiver: "DeviceConnection"
    access: int
    number: int
    """The number of the last message."""


class DeviceConnection(Struct, eq=False):
    """The state of one connection. Frames are collected and sent together by `flush`."""

    _socket: WebSocket
    number: int
    device: str
    last_frame_s: float
    progress: float
    key: int = 0
    session: int = 0
    """Grows with each connection of the device, at whichever gateway."""
    closing: bool = False
    live: bool = False
    """Whether everything in the store was sent, so that new messages can be sent at once."""
    paging: bool = False
    """Whether the next page is being read."""
    stale: bool = False
    """Whether something was stored meanwhile that the page may not have."""
    sent: int = 0
    """The place up to which everything was sent."""
    acked: int = 0
    access: int = 0
    """Counts how often the device changed its list of allowed senders."""
    routes: dict[str, DeliveryRoute] | None = None
    """The routes on which messages of this device were accepted recently."""
    unstored: int = 0
    """How many bytes it has sent that are not durable yet."""
    room: "Future[None] | None" = None
    """Resolved when there are fewer of them."""
    refused_to: set[str] | None = None
    _window: deque[tuple[int, int]] | None = None
    _window_bytes: int = 0
    _receipts: list[Receipt] = []

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, frame: Struct) -> None:
        """Add a control frame to the next flush."""
        self._socket.add(TEXT, encode_text(frame))

    def receipt(self, receipt: Receipt) -> None:
        """Add the receipt of a message that is durable."""
        self._receipts.append(receipt)

    def pong(self, payload: bytes | bytearray) -> None:
        self._socket.add(PONG, payload)

    def deliver(self, delivery: Delivery) -> None:
        """Send a message; it stays in the window until it is acknowledged."""
        window = self._window
        if window is None:
            # Most devices have no unacknowledged messages, and an empty deque takes 600 bytes.
            window = self._window = deque()
        size = len(delivery.body)
        window.append((delivery.place, size))
        self._window_bytes += size
        self.sent = delivery.place
        self._socket.add(BINARY, encode_binary(delivery))

    def flush(self, now: float) -> None:
        """Send everything that was added."""
        if self._receipts:
            self._socket.add(TEXT, encode_text(Stored(tuple(self._receipts))))
            self._receipts.clear()
        if not self._socket.unread_bytes:
            self.progress = now
        self._socket.flush()

    def cut(self, bye: Bye, now: float) -> None:
        """End the connection: say why, give the device a moment to close it, then abort it."""
        if self.closing:
            return
        self.closing = True
        self.say(bye)
        self.flush(now)
        self._socket.say_closing(GOING_AWAY)

    # ── acknowledgements ──────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledge(self, place: int, now: float) -> bool:
        """Remove everything up to a place from the window; return whether anything was removed."""
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
        """Return whether the window has room for more messages."""
        return self._window is None or (
            len(self._window) < limits.window_messages and self._window_bytes < limits.window_bytes
        )

    def room_left(self, limits: GatewayLimits) -> tuple[int, int]:
        """The room that is left in the window, in messages and bytes."""
        return limits.window_messages - len(self._window or ()), limits.window_bytes - self._window_bytes

    def stuck(self, now: float, slow_s: float) -> bool:
        """Return whether the device has not read anything for *slow_s* although data waits for it."""
        if not self._socket.unread_bytes:
            self.progress = now
        return now - self.progress > slow_s
