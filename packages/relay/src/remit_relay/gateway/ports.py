"""What a gateway needs of its store: devices, their keys and lists, waiting messages, and mailboxes for pairing.

`SqliteGatewayStore` keeps them in a file for one gateway, `PostgresGatewayStore` in a database that many gateways
share. One conformance suite tests both.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from remit.ports import Clock
from remit_relay.gateway.limits import DAY_S, GatewayLimits
from remit_relay.wire import AllowSenders, BundleReply, Delivery, Denied, Done, Expired, Fetch, Publish, Put, Refused

ROW_BYTES = 64
"""The approximate overhead of a row or of a list entry, so that many small ones count too."""
FULL = "the gateway is full"
NO_DEVICES = "the gateway accepts no more devices"
NO_NEW_DEVICES = "too many new devices from this network address; try again later"
UNREACHABLE = "the device does not exist, or does not accept messages from this device"
FULL_RECEIVER = "the queue of the receiver is full with messages from other devices"
EARLIER_REFUSED = "an earlier message was refused"
# Expired messages reported to a sender when it connects; the others are reported the next time.
MOST_EXPIRED = 1_000


class RateAllowance(NamedTuple):
    """How many frames and bytes a device may send at once before it is read more slowly."""

    frames: float
    size: float


class AdmittedDevice(NamedTuple):
    """An authenticated device."""

    key: int
    one_time_left: int
    is_new: bool
    expired: tuple[Expired, ...]
    """Which of its messages nobody fetched."""
    session: int = 0
    """Grows with each connection of the device, at whichever gateway; 0 if there is only one gateway."""
    allowance: RateAllowance | None = None
    """What its last connection left of its rate limit; None if only this gateway knows."""


class NoRoom(NamedTuple):
    """Why a device is refused: a word for the metrics, a sentence for its owner."""

    word: str
    reason: str


class StoredDevice(NamedTuple):
    """The status of a device."""

    connected: bool
    waiting: int
    one_time_left: int


class SentMessage(NamedTuple):
    """A message, the connection on which it came, and its sender."""

    connection: int
    sender_key: int
    sender: str
    put: Put
    place: int | None = None
    """Its place, if it was reserved."""


class Placed(NamedTuple):
    """A message that is durable."""

    place: int
    is_new: bool
    """False: it was stored before."""


class Page(NamedTuple):
    """Some messages of one receiver, oldest first."""

    deliveries: list[Delivery]
    more: bool
    upto: int = 0
    """If there are no more: the last place that was used for the receiver. 0: unknown."""


class Fetched(NamedTuple):
    """The reply to a fetch, and how many one-time keys the other device has left."""

    answer: BundleReply | Denied
    one_time_left: int


class PresencePair(NamedTuple):
    """A device that asks whether another is connected."""

    asker: str
    device: str


class CleanupResult(NamedTuple):
    """What one step deleted, and which notices its senders get."""

    full: bool
    """Whether the step examined as many rows as it may, so that there may be more."""
    notices: tuple[tuple[str, Expired], ...] = ()
    expired: int = 0
    devices: int = 0


class StoreSize(NamedTuple):
    """How much a store holds."""

    devices: int
    messages: int
    queued_bytes: int
    """The size of the waiting messages."""
    total_bytes: int
    """The size of everything, limited by `GatewayLimits.total_bytes`."""


def expired_notice(limits: GatewayLimits, to: str, number: int) -> Expired:
    """The notice to a sender about messages that nobody fetched."""
    return Expired(to=to, number=number, reason=f"not fetched for {limits.keep_s / DAY_S:g} days")


class QueueSize(Struct):
    """How many messages wait, and their size in bytes."""

    messages: int = 0
    size: int = 0


def queue_objection(limits: GatewayLimits, pair: QueueSize, receiver: QueueSize, total: int, size: int) -> str:
    """Return why a message of *size* bytes does not fit; empty if it does.

    *pair* is what waits from its sender for its receiver, *receiver* what waits for that, *total* everything stored.
    """
    if pair.messages and (pair.messages >= limits.sender_messages or pair.size + size > limits.sender_bytes):
        return f"{pair.messages} messages ({pair.size} bytes) from this device wait for the receiver"
    if receiver.messages and (
        receiver.messages >= limits.receiver_messages or receiver.size + size > limits.receiver_bytes
    ):
        return FULL_RECEIVER
    return FULL if total + size > limits.total_bytes else ""


class StoreEvents(Protocol):
    """What a store tells its gateway, in the event loop."""

    def settled(self) -> None:
        """Several callbacks have been called: send what they left."""

    def placed(self, messages: Sequence[SentMessage], results: Sequence[Placed | Refused]) -> None:
        """Several calls of `put_delivered` are durable, or refused."""

    def failed(self) -> None:
        """Writing or reading failed; callbacks of earlier calls may never be called."""

    def recovered(self) -> None:
        """Writing works again."""

    def arrived(self, device: str, place: int) -> None:
        """A message for a device was stored through another gateway."""

    def replaced(self, device: str, session: int) -> None:
        """A device has connected to another gateway."""

    def keys_left(self, device: str, one_time_left: int) -> None:
        """A one-time key of a device was handed out through another gateway."""

    def expired(self, device: str, expired: Expired) -> None:
        """Another gateway deleted undelivered messages of a device."""


MailboxSide = Literal["host", "guest"]
"""`host`: the device that opened a mailbox. `guest`: its one visitor."""

# So long the other device can read what came before the end.
ENDED_S = 60.0


class MailboxContent(NamedTuple):
    """What two devices that pair have told each other."""

    host: tuple[bytes, ...]
    guest: tuple[bytes, ...]
    is_ended: bool
    """Whether a device has gone. All notes before that are there."""


class Mailboxes(Protocol):
    """The mailboxes of a gateway, in each of which two devices meet to pair. All methods may raise `OSError`."""

    @property
    def is_shared(self) -> bool:
        """Whether notes may come through other gateways."""
        ...

    async def open_mailbox(self, most: int, seconds: float) -> int | None:
        """Open a mailbox for so long and return its number; None if there are *most* already."""
        ...

    async def join_mailbox(self, number: int, seconds: float) -> bool:
        """Return whether the caller is the one visitor of a mailbox, which then lasts for *seconds* more."""
        ...

    async def put_note(self, number: int, side: MailboxSide, place: int, body: bytes) -> None:
        """Leave a note at a place, counted from 0 for each side."""

    async def end_mailbox(self, number: int) -> None:
        """End a mailbox: nobody joins it any more."""

    async def read_mailboxes(self, numbers: Iterable[int]) -> Mapping[int, MailboxContent]:
        """Return the content of those mailboxes that have not expired."""
        ...


class GatewayStore(Protocol):
    """The store of a gateway. All methods are called in the event loop, and *then* once the result is durable.

    *then* is never called if the store fails; `StoreEvents.failed` is. Methods that are awaited raise `OSError` then.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other gateways use it too. Then the places of each receiver have no gaps."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it is worth while to try to write."""
        ...

    @property
    def mailboxes(self) -> Mailboxes:
        """Where devices meet to pair, once the store is open."""
        ...

    async def open(self, limits: GatewayLimits, clock: Clock, events: StoreEvents) -> None:
        """Open it, or raise `StoreError`."""

    async def close(self) -> None:
        """Finish all calls."""

    async def enter(self, connection: int, device: str, *, may_be_new: bool) -> AdmittedDevice | NoRoom:
        """Admit an authenticated device on a connection of this gateway, or return why there is no room for it."""
        ...

    def leave(self, connection: int, allowance: RateAllowance | None) -> None:
        """Forget a connection that has ended."""

    async def look(self, device: str) -> StoredDevice | None:
        """Return the status of a device, None if it is unknown; this changes nothing."""
        ...

    def reserve_place(self) -> int | None:
        """Return the place that the next message will have, if that can be known before it is stored."""
        ...

    def put(self, message: SentMessage, then: Callable[[Placed | Refused], None]) -> None:
        """Queue a message for its receiver, unless it is a repeat.

        After a refusal nothing more is accepted for the same receiver on the same connection until the sender confirms
        the refusal (`anew`): no message overtakes an earlier one.
        """

    def put_delivered(self, message: SentMessage) -> None:
        """Queue a message at its reserved place that its receiver was sent already: see `StoreEvents.placed`."""

    def acknowledge(self, receiver: int, place: int, then: Callable[[None], None]) -> None:
        """Delete the messages of a receiver up to a place."""

    def page(self, receiver: int, after: int, messages: int, size: int, then: Callable[[Page], None]) -> None:
        """Read the messages after a place: at least one if there is any, up to *messages* and *size* bytes."""

    def publish(self, device: int, request: Publish, then: Callable[[Done | Denied], None]) -> None:
        """Store a bundle and one-time keys; publishing a key again changes nothing, even if it is used up."""

    def fetch(self, sender: str, request: Fetch, then: Callable[[Fetched], None]) -> None:
        """Hand out the keys of a device to an allowed sender; the one-time key is used up by that."""

    def allow(self, device: int, request: AllowSenders, then: Callable[[Done], None]) -> None:
        """Replace the list of allowed senders of a device; also when the gateway is full."""

    def presence(self, pairs: Sequence[PresencePair], then: Callable[[dict[PresencePair, bool]], None]) -> None:
        """Tell for each pair whether the device is connected to another gateway, if it accepts messages of the asker.

        Pairs that may not know it, and those of unknown devices, are left out.
        """

    def cleanup(self) -> AsyncIterator[CleanupResult]:
        """Delete what is too old, once, in small steps; raises `OSError`."""
        ...

    def size(self) -> StoreSize:
        """Return how much it holds."""
        ...
