"""How much a gateway takes on, and for whom."""

from msgspec import Struct

from remit.relay.wire import MAX_BODY

MIB = 1024 * 1024
DAY_S = 86_400.0


class HourlyRate(Struct, frozen=True, kw_only=True):
    """So much at once, and so much an hour."""

    burst: float
    per_hour: float


class GatewayLimits(Struct, frozen=True, kw_only=True):
    """The bounds of one gateway; each is a refusal or a pause, never a loss."""

    max_connections: int = 10_000
    max_unauthenticated: int = 256
    """Connections that have not said who they are; each has `hello_s` to do so."""
    # An office behind one address has hundreds of devices, which all come back when its network does.
    address_connections: int = 1_000
    """Connections from one network address: of IPv6, from one /64, which is what one customer has."""
    address_unauthenticated: int = 64
    address_attempts: HourlyRate = HourlyRate(burst=1_000, per_hour=36_000)
    """How often somebody at one address may try to connect."""
    address_failures: HourlyRate = HourlyRate(burst=60, per_hour=3_600)
    """How often they may fail to show who they are."""
    address_devices: HourlyRate = HourlyRate(burst=100, per_hour=100)
    """How many devices that were not known before may come from there."""
    hello_s: float = 10.0
    idle_s: float = 90.0
    """A connection from which nothing was heard for so long is cut; devices send a ping every 25 s."""
    slow_s: float = 30.0
    """So is one that takes nothing of what waits to be sent to it."""
    closing_s: float = 2.0
    """How long a device has to close a connection after it was told to."""

    max_devices: int = 100_000
    # One sender cannot fill a receiver's queue alone.
    receiver_messages: int = 10_000
    receiver_bytes: int = 128 * MIB
    sender_messages: int = 2_000
    """What one sender may have queued for one receiver."""
    sender_bytes: int = 32 * MIB
    total_bytes: int = 16 * 1024 * MIB
    """What the gateway holds for all, keys and lists included, before it takes nothing more."""
    full_retry_ms: int = 5_000
    """When a sender may try again to put what did not fit."""
    back_ms: int = 1_000
    """When devices may connect again after the gateway was shut down, or could not write."""

    one_time_keys: int = 500
    """One-time keys kept for a device."""
    key_bytes: int = 128 * 1024
    """All its keys; those of a device of Remit take a seventh of that."""
    keep_s: float = 30 * DAY_S
    """What its receiver has not fetched for so long is deleted, and its sender told."""
    forget_s: float = 365 * DAY_S
    """A device that was not there for so long is forgotten, with its keys. Longer than `keep_s` and `repeat_days`."""
    repeat_days: int = 30
    """A message that is put again is recognised for so long after the last one from its sender to its receiver."""

    # 16 MiB a second is 64 messages of the largest size, so bytes rarely bind a device that frames do not.
    frames_per_s: float = 500.0
    frames_burst: float = 1_000.0
    bytes_per_s: float = 16.0 * MIB
    bytes_burst: float = 64.0 * MIB
    """A device that is faster is read more slowly."""

    window_messages: int = 256
    window_bytes: int = 16 * MAX_BODY
    """How much is sent to a device ahead of its acknowledgement; the rest waits in the file."""
    unstored_bytes: int = 16 * MAX_BODY
    """How much of one device may wait to be written before it is read no further."""
    all_unstored_bytes: int = 64 * MIB
