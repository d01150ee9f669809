"""What a device and its gateway say to each other.

Control frames are JSON text; the two that carry sealed bytes, `Put` and `Delivery`, are MessagePack in binary frames.
(Base64 in JSON took 10 µs for 2 KiB and 1.1 ms for 256 KiB, there and back; this takes 1 µs and 20 µs.)

    gateway                        device
    Challenge        ──────────▶                        a fresh nonce, and the gateway's name
                     ◀──────────   Hello                the key, and its signature
    Welcome          ──────────▶                        or Standing, to one that only looks
                     ◀──────────   Put                  a sealed message, numbered by its sender for its receiver
    Stored | Refused ──────────▶                        it is durable; or it was not taken, nor is what follows it
    Expired          ──────────▶                        nobody has fetched it for too long, and it is deleted
    Delivery         ──────────▶
                     ◀──────────   Ack                  everything up to this place may be deleted
                     ◀──────────   Publish Fetch Allow  each with a number, which its Done, Bundle or Denied repeats
    Bye              ──────────▶                        why the connection ends, and when to come back

Pure: no clock, socket or task.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from remit.relay.device.identity import DeviceId

VERSION = 1
PATH = "/v1/relay"

MAX_BODY = 256 * 1024
"""The most bytes in one sealed message; the sealing layer cuts what is larger into several."""
MAX_FRAME = MAX_BODY + 1_024
"""The most bytes in one frame: a body with its addresses. Control frames have to fit too."""
MAX_BUNDLE = 16 * 1_024
MAX_ONE_TIME = 1_024
MAX_ONE_TIME_AT_ONCE = 100
MAX_ALLOWED = 1_000
NONCE_BYTES = 32

# 2**53: what every JSON reader can count to.
Place = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[int, Meta(ge=1, le=2**53)]
Body = Annotated[bytes, Meta(min_length=1, max_length=MAX_BODY)]

RefusalCode = Literal["full", "unreachable", "behind"]
"""`full`: come back later. `unreachable`: no such device, or it does not want to hear from you. `behind`: an earlier
message to the same device was refused, and this one must not overtake it."""
ByeCode = Literal["replaced", "unauthenticated", "version", "malformed", "idle", "slow", "full", "closing", "trouble"]

FINAL: frozenset[ByeCode] = frozenset({"replaced", "unauthenticated", "version", "malformed"})
"""After these, connecting again the same way would end the same way, or throw out who came instead."""


class Malformed(ValueError):
    """A frame that is not what the wire allows; its text names the field."""


# ── from the gateway ──────────────────────────────────────────────────────────────────────────────────────────────────


class Challenge(Struct, frozen=True, kw_only=True, tag_field="type", tag="challenge"):
    """Sign this, to show who you are."""

    gateway: str
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    version: int = VERSION


class Welcome(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="welcome"):
    """You are connected; what was queued follows."""

    device: DeviceId
    one_time_left: int
    """How many of your one-time keys have not been handed out."""
    is_new: bool = False
    """Whether you were not known, so that what you once said of who may reach you is not known either."""


class Receipt(Struct, frozen=True, array_like=True):
    """One message that is durable at the gateway."""

    to: DeviceId
    number: Number
    repeated: bool = False
    """Whether it was there already, and this put changed nothing."""


class Stored(Struct, frozen=True, tag_field="type", tag="stored"):
    """These will be delivered, whatever happens to the gateway."""

    receipts: tuple[Receipt, ...]


class Refused(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="refused"):
    """This message was not taken, nor will any later one to the same device be, until one is put `anew`."""

    to: DeviceId
    number: Number
    code: RefusalCode
    reason: str = ""
    retry_after_ms: int = 0


class Expired(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="expired"):
    """What you sent to a device, up to this number, is deleted as far as it had not fetched it.

    It is said again on each connection until you put something new for the same device.
    """

    to: DeviceId
    number: Number
    reason: str = ""


class Delivery(Struct, frozen=True, array_like=True, tag="delivery"):
    """A sealed message for you. It may come again until it is acknowledged, by its place on this connection."""

    place: Place
    sender: DeviceId
    number: Number
    body: Body


class DeviceStatus(Struct, frozen=True, kw_only=True, tag_field="type", tag="standing"):
    """How you stand with the gateway, for who only looks."""

    known: bool
    """Whether you have ever connected, lately enough."""
    connected: bool
    waiting: int
    """How many messages wait for you."""
    one_time_left: int


class Done(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="done"):
    """What you asked for is durable."""

    request: Number
    one_time_left: int = 0


class BundleReply(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="bundle"):
    """The keys of a device, as it signed them; the one-time key was given to nobody else, if there was one left."""

    request: Number
    device: DeviceId
    bundle: bytes
    one_time: bytes | None = None


class Denied(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="denied"):
    """What you asked for was not done."""

    request: Number
    code: Literal["unreachable", "full"]
    reason: str = ""


class KeysLeft(Struct, frozen=True, kw_only=True, tag_field="type", tag="keys_left"):
    """One of your one-time keys was handed out, and so many are left."""

    one_time_left: int


class Bye(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="bye"):
    """The connection ends; nothing is lost by it."""

    code: ByeCode
    reason: str = ""
    retry_after_ms: int = 0


# ── from the device ───────────────────────────────────────────────────────────────────────────────────────────────────


class Hello(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="hello"):
    """Who connects."""

    public: Annotated[bytes, Meta(min_length=32, max_length=32)]
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    version: int = VERSION
    looks: bool = False
    """Whether it only asks how it stands; nothing changes by that, and a connection that it has goes on."""


class Put(Struct, frozen=True, array_like=True, tag="put"):
    """A sealed message; its number is larger than that of any earlier message to the same device."""

    to: DeviceId
    number: Number
    body: Body
    anew: bool = False
    """Whether the sender has heard of the last refusal for this device: what comes now is in order again."""


class Ack(Struct, frozen=True, tag_field="type", tag="ack"):
    """The effects of everything that was sent on this connection up to this place are kept."""

    place: Place


class Publish(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="publish"):
    """The signed keys by which others begin a sealed session; None leaves the bundle as it is."""

    request: Number
    bundle: Annotated[bytes, Meta(min_length=1, max_length=MAX_BUNDLE)] | None = None
    one_time: Annotated[
        tuple[Annotated[bytes, Meta(min_length=1, max_length=MAX_ONE_TIME)], ...],
        Meta(max_length=MAX_ONE_TIME_AT_ONCE),
    ] = ()


class Fetch(Struct, frozen=True, kw_only=True, tag_field="type", tag="fetch"):
    """The keys of another device, please."""

    request: Number
    device: DeviceId


class AllowSenders(Struct, frozen=True, kw_only=True, tag_field="type", tag="allow"):
    """Who may send to this device and fetch its keys, from now on; None: whoever knows its id."""

    request: Number
    senders: Annotated[tuple[DeviceId, ...], Meta(max_length=MAX_ALLOWED)] | None


FromGateway = (
    Challenge | Welcome | DeviceStatus | Stored | Refused | Expired | Done | BundleReply | Denied | KeysLeft | Bye
)
FromDevice = Hello | Ack | Publish | Fetch | AllowSenders
Asked = Publish | Fetch | AllowSenders
Answered = Done | BundleReply | Denied

_from_gateway = msgspec.json.Decoder(FromGateway)
_from_device = msgspec.json.Decoder(FromDevice)
_put = msgspec.msgpack.Decoder(Put)
_delivery = msgspec.msgpack.Decoder(Delivery)

# What is deeper than the decoder goes may stand in a field that nobody knows.
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

encode_text = msgspec.json.Encoder().encode
encode_binary = msgspec.msgpack.Encoder().encode


def read_from_gateway(text: bytes | str) -> FromGateway:
    """Return the control frame that a gateway sent, or raise `Malformed`."""
    try:
        return _from_gateway.decode(text)
    except _UNREADABLE as error:
        raise Malformed(f"control frame: {error}") from error


def read_from_device(text: bytes | str) -> FromDevice:
    """Return the control frame that a device sent, or raise `Malformed`."""
    try:
        return _from_device.decode(text)
    except _UNREADABLE as error:
        raise Malformed(f"control frame: {error}") from error


def read_put(data: bytes) -> Put:
    """Return what a device would have delivered, or raise `Malformed`."""
    try:
        return _put.decode(data)
    except _UNREADABLE as error:
        raise Malformed(f"put: {_named(error, Put)}") from error


def read_delivery(data: bytes) -> Delivery:
    """Return what a gateway delivers, or raise `Malformed`."""
    try:
        return _delivery.decode(data)
    except _UNREADABLE as error:
        raise Malformed(f"delivery: {_named(error, Delivery)}") from error


def signed_text(*, gateway: str, nonce: bytes, device: str, looks: bool = False) -> bytes:
    """Return what a device signs to connect, or to look.

    It holds the gateway's name, so that no other gateway can pass it on, and a nonce of this one connection, so that it
    is of no use twice.
    """
    purpose = b"remit relay look" if looks else b"remit relay hello"
    parts = (purpose, b"%d" % VERSION, gateway.encode(), nonce, device.encode())
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _named(error: Exception, kind: type[Struct]) -> str:
    """The error with the names of fields, which in an array are numbers (the first is the tag)."""
    text = str(error)
    for place, field in enumerate(msgspec.structs.fields(kind), start=1):
        text = text.replace(f"`$[{place}]`", f"`$.{field.name}`")
    return text
