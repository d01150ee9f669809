"""The limits of a gateway: connections, queues, keys and rates."""

from msgspec import Struct

from remit_relay.wire import MAX_BODY

MIB = 1024 * 1024
DAY_S = 86_400.0


class HourlyRate(Struct, frozen=True, kw_only=True):
    """A burst, and a rate per hour."""

    burst: float
    per_hour: float


class GatewayLimits(Struct, frozen=True, kw_only=True):
    """The limits of one gateway. Exceeding one leads to a refusal or a pause, never to a loss."""

    max_connections: int = 10_000
    max_unauthenticated: int = 256
    """Connections that are not authenticated yet; each has `hello_s` to do so."""
    # An office behind one address has hundreds of devices, which all reconnect when its network comes back.
    address_connections: int = 1_000
    """Connections from one network address; for IPv6 from one /64, which is what one customer has."""
    address_unauthenticated: int = 64
    address_attempts: HourlyRate = HourlyRate(burst=1_000, per_hour=36_000)
    """Connection attempts from one address."""
    address_failures: HourlyRate = HourlyRate(burst=60, per_hour=3_600)
    """Failed authentications from one address."""
    address_devices: HourlyRate = HourlyRate(burst=100, per_hour=100)
    """New devices from one address."""
    # An office pairs a few devices an hour. Who tries numbers of mailboxes finds one in a hundred before it is used.
    address_pairings: HourlyRate = HourlyRate(burst=60, per_hour=120)
    """Mailboxes that one address may open or join."""
    address_mailboxes: int = 32
    """Connections of one address that pair at once."""
    max_mailboxes: int = 1_000
    """Mailboxes in which devices meet to pair; a ninth of their numbers."""
    mailbox_s: float = 600.0
    """How long a mailbox waits for its visitor."""
    meeting_s: float = 60.0
    """How long two devices have to pair once they have met; no person is asked meanwhile."""
    hello_s: float = 10.0
    idle_s: float = 40.0
    """End a connection that sends nothing for this long; devices send a ping every 5 s, those of the first version
    every 25 s."""
    slow_s: float = 30.0
    """End a connection that reads nothing for this long although data waits for it."""
    closing_s: float = 2.0
    """How long a device has to close its connection after it was told to."""

    max_devices: int = 100_000
    # One sender cannot fill a receiver's queue alone.
    receiver_messages: int = 10_000
    receiver_bytes: int = 128 * MIB
    sender_messages: int = 2_000
    """Messages that one sender may have queued for one receiver."""
    sender_bytes: int = 32 * MIB
    total_bytes: int = 16 * 1024 * MIB
    """What the gateway stores in total, keys and lists included, before it refuses more."""
    full_retry_ms: int = 5_000
    """When a sender may retry after its message did not fit."""
    back_ms: int = 1_000
    """When devices may reconnect after a shutdown or a failed write."""

    one_time_keys: int = 500
    """One-time keys stored for a device."""
    key_bytes: int = 128 * 1024
    """Size of all keys of a device; those of a Remit device take a seventh of that."""
    keep_s: float = 30 * DAY_S
    """Delete undelivered messages after this time and notify the sender."""
    forget_s: float = 365 * DAY_S
    """Forget a device that was not connected for this long, with its keys. Longer than `keep_s` and `repeat_days`."""
    repeat_days: int = 30
    """Recognise a repeated message for this long after the last one from its sender to its receiver."""

    # 16 MiB a second is 64 messages of the largest size, so the byte limit rarely applies before the frame limit.
    frames_per_s: float = 500.0
    frames_burst: float = 1_000.0
    bytes_per_s: float = 16.0 * MIB
    bytes_burst: float = 64.0 * MIB
    """A device that sends faster is read more slowly."""

    window_messages: int = 256
    window_bytes: int = 16 * MAX_BODY
    """How much is sent to a device before it acknowledges; the rest waits in the file."""
    unstored_bytes: int = 16 * MAX_BODY
    """How much of one device may wait to be written before the gateway stops reading from it."""
    all_unstored_bytes: int = 64 * MIB
