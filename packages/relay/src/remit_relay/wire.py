"""The protocol between a device and its gateway.

Control frames are JSON text; those that carry encrypted bytes, `Put` and `Delivery`, are MessagePack in binary frames.
(Base64 in JSON took 10 µs for 2 KiB and 1.1 ms for 256 KiB for a round trip; this takes 1 µs and 20 µs.)

    gateway                        device
    Challenge        ──────────▶                        a fresh nonce, and the gateway's name
                     ◀──────────   Hello                the key, and its signature
    Welcome          ──────────▶                        or DeviceStatus, if the device only looks
                     ◀──────────   Put                  an encrypted message, numbered by its sender for its receiver
    Stored | Refused ──────────▶                        it is durable; or it was refused, with all that follow it
    Expired          ──────────▶                        it was not fetched in time, and was deleted
    Delivery         ──────────▶
                     ◀──────────   Ack                  everything up to this place may be deleted
                     ◀──────────   Publish Fetch Allow  each with a number, which its Done, Bundle or Denied repeats
                     ◀──────────   Watch                whose presence the device wants to hear of
    Presence         ──────────▶                        which of those are connected, now and whenever it changes
    Bye              ──────────▶                        why the connection ends, and when to reconnect

Pure: no clock, socket or task.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from remit_relay.device.identity import DeviceId

VERSION = 1
PATH = "/v1/relay"

MAX_BODY = 256 * 1024
"""The limit of one encrypted message; the encryption layer splits larger ones."""
MAX_FRAME = MAX_BODY + 1_024
"""The limit of one frame: a body with its addresses. Control frames must fit too."""
MAX_BUNDLE = 16 * 1_024
MAX_ONE_TIME = 1_024
MAX_ONE_TIME_AT_ONCE = 100
MAX_ALLOWED = 1_000
MAX_WATCHED = 1_000
NONCE_BYTES = 32

# 2**53: the largest integer that every JSON parser reads exactly.
Place = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[int, Meta(ge=1, le=2**53)]
Body = Annotated[bytes, Meta(min_length=1, max_length=MAX_BODY)]

RefusalCode = Literal["full", "unreachable", "behind"]
"""`full`: try again later. `unreachable`: the device does not exist, or does not accept messages from this sender.
`behind`: an earlier message to the same device was refused, and this one must not overtake it."""
ByeCode = Literal["replaced", "unauthenticated", "version", "malformed", "idle", "slow", "full", "closing", "trouble"]

FINAL: frozenset[ByeCode] = frozenset({"replaced", "unauthenticated", "version", "malformed"})
"""After these the device does not reconnect: it would fail again, or disconnect the process that replaced it."""


class Malformed(ValueError):
    """An invalid frame; the message names the field."""


# ── from the gateway ──────────────────────────────────────────────────────────────────────────────────────────────────


class Challenge(Struct, frozen=True, kw_only=True, tag_field="type", tag="challenge"):
    """The nonce that the device must sign."""

    gateway: str
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    version: int = VERSION


class Welcome(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="welcome"):
    """The device is connected; queued messages follow."""

    device: DeviceId
    one_time_left: int
    """How many one-time keys of the device are left."""
    is_new: bool = False
    """Whether the device was unknown, so that its list of allowed senders is unknown too."""


class Receipt(Struct, frozen=True, array_like=True, gc=False):
    """One message that is durable at the gateway."""

    to: DeviceId
    number: Number
    repeated: bool = False
    """Whether it was stored before, and this put changed nothing."""


class Stored(Struct, frozen=True, tag_field="type", tag="stored"):
    """These messages are durable and will be delivered."""

    receipts: tuple[Receipt, ...]


class Refused(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="refused"):
    """This message was refused, and so is every later one to the same device until one is put `anew`."""

    to: DeviceId
    number: Number
    code: RefusalCode
    reason: str = ""
    retry_after_ms: int = 0


class Expired(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="expired"):
    """The undelivered messages to a device, up to this number, were deleted.

    This is repeated on each connection until the sender puts something new for the same device.
    """

    to: DeviceId
    number: Number
    reason: str = ""


class Delivery(Struct, frozen=True, array_like=True, gc=False, tag="delivery"):
    """An encrypted message for the device. It may be repeated until its place is acknowledged."""

    place: Place
    sender: DeviceId
    number: Number
    body: Body


class DeviceStatus(Struct, frozen=True, kw_only=True, tag_field="type", tag="standing"):
    """The status of the device at the gateway."""

    known: bool
    """Whether the device has connected before and is not forgotten."""
    connected: bool
    waiting: int
    """How many messages wait for the device."""
    one_time_left: int


class Done(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="done"):
    """The request was carried out and is durable."""

    request: Number
    one_time_left: int = 0


class BundleReply(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="bundle"):
    """The signed keys of a device; the one-time key, if one was left, was given to nobody else."""

    request: Number
    device: DeviceId
    bundle: bytes
    one_time: bytes | None = None


class Denied(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="denied"):
    """The request was refused."""

    request: Number
    code: Literal["unreachable", "full"]
    reason: str = ""


class KeysLeft(Struct, frozen=True, kw_only=True, tag_field="type", tag="keys_left"):
    """A one-time key of the device was handed out; this many are left."""

    one_time_left: int


class PresenceReport(Struct, frozen=True, kw_only=True, tag_field="type", tag="presence"):
    """Which of the watched devices are connected to the gateway; only changes are sent.

    None: the device does not exist, or does not accept messages from this one, which is not said which.
    """

    devices: dict[DeviceId, bool | None]


class Bye(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="bye"):
    """The connection ends; no message is lost by it."""

    code: ByeCode
    reason: str = ""
    retry_after_ms: int = 0


# ── from the device ───────────────────────────────────────────────────────────────────────────────────────────────────


class Hello(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="hello"):
    """The device and its signature."""

    public: Annotated[bytes, Meta(min_length=32, max_length=32)]
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    version: int = VERSION
    looks: bool = False
    """Whether it only asks for its status; this changes nothing, and its other connection continues."""


class Put(Struct, frozen=True, array_like=True, gc=False, tag="put"):
    """An encrypted message; its number is larger than that of any earlier message to the same device."""

    to: DeviceId
    number: Number
    body: Body
    anew: bool = False
    """Whether the sender knows of the last refusal for this device, so that the order is right again."""


class Ack(Struct, frozen=True, tag_field="type", tag="ack"):
    """The effects of everything that was sent on this connection up to this place are stored."""

    place: Place


class Publish(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="publish"):
    """The signed keys with which others open a session; None leaves the bundle unchanged."""

    request: Number
    bundle: Annotated[bytes, Meta(min_length=1, max_length=MAX_BUNDLE)] | None = None
    one_time: Annotated[
        tuple[Annotated[bytes, Meta(min_length=1, max_length=MAX_ONE_TIME)], ...],
        Meta(max_length=MAX_ONE_TIME_AT_ONCE),
    ] = ()
    replace: bool = False
    """Whether the one-time keys that the gateway has are replaced by these: the device cannot use them any more."""


class Fetch(Struct, frozen=True, kw_only=True, tag_field="type", tag="fetch"):
    """A request for the keys of another device."""

    request: Number
    device: DeviceId


class AllowSenders(Struct, frozen=True, kw_only=True, tag_field="type", tag="allow"):
    """The devices that may send to this one and fetch its keys; None: any that knows its id."""

    request: Number
    senders: Annotated[tuple[DeviceId, ...], Meta(max_length=MAX_ALLOWED)] | None


class Watch(Struct, frozen=True, kw_only=True, tag_field="type", tag="watch"):
    """The devices whose presence this one wants to hear of, instead of those that it named before."""

    devices: Annotated[tuple[DeviceId, ...], Meta(max_length=MAX_WATCHED)]


FromGateway = (
    Challenge
    | Welcome
    | DeviceStatus
    | Stored
    | Refused
    | Expired
    | Done
    | BundleReply
    | Denied
    | KeysLeft
    | PresenceReport
    | Bye
)
FromDevice = Hello | Ack | Publish | Fetch | AllowSenders | Watch
Asked = Publish | Fetch | AllowSenders
Answered = Done | BundleReply | Denied

_from_gateway = msgspec.json.Decoder(FromGateway)
_from_device = msgspec.json.Decoder(FromDevice)
_put = msgspec.msgpack.Decoder(Put)
_delivery = msgspec.msgpack.Decoder(Delivery)

# Unknown fields may be nested deeper than the decoder can go.
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

encode_text = msgspec.json.Encoder().encode
encode_binary = msgspec.msgpack.Encoder().encode


def read_from_gateway(text: bytes | str) -> FromGateway:
    """Return the control frame that a gateway sent, or raise `Malformed`."""
    try:
        return _from_gateway.decode(text)
    except _UNREADABLE as error:
        raise Malformed(f"control frame: {error}") from error


def read_from_device(text: bytes | bytearray | str) -> FromDevice:
    """Return the control frame that a device sent, or raise `Malformed`."""
    try:
        return _from_device.decode(text)
    except _UNREADABLE as error:
        raise Malformed(f"control frame: {error}") from error


def read_put(data: bytes | bytearray) -> Put:
    """Return the message that a device puts, or raise `Malformed`."""
    try:
        return _put.decode(data)
    except _UNREADABLE as error:
        raise Malformed(f"put: {_with_field_names(error, Put)}") from error


def read_delivery(data: bytes) -> Delivery:
    """Return the message that a gateway delivers, or raise `Malformed`."""
    try:
        return _delivery.decode(data)
    except _UNREADABLE as error:
        raise Malformed(f"delivery: {_with_field_names(error, Delivery)}") from error


def signed_text(*, gateway: str, nonce: bytes, device: str, looks: bool = False) -> bytes:
    """Return what a device signs to connect, or to ask for its status.

    It contains the gateway's name, so that another gateway cannot relay it, and a nonce of this connection, so that it
    cannot be replayed.
    """
    purpose = b"remit relay look" if looks else b"remit relay hello"
    parts = (purpose, b"%d" % VERSION, gateway.encode(), nonce, device.encode())
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _with_field_names(error: Exception, kind: type[Struct]) -> str:
    """The error with field names instead of the indexes of the array (the first is the tag)."""
    text = str(error)
    for place, field in enumerate(msgspec.structs.fields(kind), start=1):
        text = text.replace(f"`$[{place}]`", f"`$.{field.name}`")
    return text
