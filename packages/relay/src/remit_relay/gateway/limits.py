"""The limits of a gateway: connections, queues, keys and rates, in all and for each network address.

Pure: the caller passes the time.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

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
    """End a connection that sends nothing for this long; devices send a ping every 5 s."""
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


# ── the limits of each network address ────────────────────────────────────────────────────────────────────────────────

Network = IPv4Network | IPv6Network

# Addresses remembered at once: about 10 MB. Beyond that, the oldest without open connections are forgotten first.
MOST_ADDRESSES = 20_000
# A customer has a /64 or more, with any number of addresses in it.
_IPV6_PREFIX = 64
_HOUR_S = 3_600.0


class _Bucket:
    """A token bucket that refills with time."""

    __slots__ = ("_at", "level")

    def __init__(self, rate: HourlyRate, now: float) -> None:
        self.level = rate.burst
        self._at = now

    def fill(self, rate: HourlyRate, now: float) -> float:
        self.level = min(rate.burst, self.level + (now - self._at) * rate.per_hour / _HOUR_S)
        self._at = now
        return self.level


class _Address:
    __slots__ = ("attempts", "devices", "failures", "greeted", "open", "pairing", "pairings")

    def __init__(self, limits: GatewayLimits, now: float) -> None:
        self.open = self.greeted = self.pairing = 0
        self.attempts = _Bucket(limits.address_attempts, now)
        self.failures = _Bucket(limits.address_failures, now)
        self.devices = _Bucket(limits.address_devices, now)
        self.pairings = _Bucket(limits.address_pairings, now)


class Addresses:
    """The open connections and recent attempts of each address."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._known: dict[str, _Address] = {}

    def __len__(self) -> int:
        return len(self._known)

    def objection(self, address: str, now: float) -> str:
        """Count a connection attempt; return the name of the limit that it exceeds, or an empty string."""
        limits, known = self._limits, self._usage(address, now)
        left = known.attempts.fill(limits.address_attempts, now)
        # The level may go below zero, so that a client that keeps trying is rejected when it connects (`is_hammering`).
        known.attempts.level = max(-limits.address_attempts.burst, left - 1)
        if left < 1:
            return "address_attempts"
        if known.failures.fill(limits.address_failures, now) < 1:
            return "address_failures"
        if known.open >= limits.address_connections:
            return "address_connections"
        if known.open - known.greeted >= limits.address_unauthenticated:
            return "address_unauthenticated"
        return ""

    def is_hammering(self, address: str, now: float) -> bool:
        """Return whether an address keeps connecting although it was told to wait many times."""
        rate = self._limits.address_attempts
        known = self._known.get(address)
        return known is not None and known.attempts.fill(rate, now) <= 1 - rate.burst

    def enter(self, address: str, now: float) -> None:
        """Count a connection that was accepted."""
        self._usage(address, now).open += 1

    def greet(self, address: str, now: float) -> None:
        """Count a connection that was authenticated."""
        self._usage(address, now).greeted += 1

    def leave(self, address: str, now: float, *, greeted: bool) -> None:
        """Stop counting a connection that has ended."""
        known = self._usage(address, now)
        known.open -= 1
        known.greeted -= greeted

    def fail(self, address: str, now: float) -> None:
        """Count a failed authentication."""
        known = self._usage(address, now)
        known.failures.level = max(0.0, known.failures.fill(self._limits.address_failures, now) - 1)

    def take_device(self, address: str, now: float) -> bool:
        """Count a new device from an address; return False if it has used up its share."""
        bucket = self._usage(address, now).devices
        if bucket.fill(self._limits.address_devices, now) < 1:
            return False
        bucket.level -= 1
        return True

    def give_back_device(self, address: str, now: float) -> None:
        """Undo `take_device`: the device was known already."""
        bucket = self._usage(address, now).devices
        bucket.level = min(self._limits.address_devices.burst, bucket.level + 1)

    def begin_pairing(self, address: str, now: float) -> bool:
        """Count a connection that opens or joins a mailbox; return False if the address has used up its share."""
        known = self._usage(address, now)
        left = known.pairings.fill(self._limits.address_pairings, now)
        if left < 1 or known.pairing >= self._limits.address_mailboxes:
            return False
        known.pairings.level -= 1
        known.pairing += 1
        return True

    def end_pairing(self, address: str, now: float) -> None:
        """Stop counting a connection that paired."""
        self._usage(address, now).pairing -= 1

    def sweep(self, now: float) -> None:
        """Forget addresses without open connections whose limits are fully refilled."""
        limits = self._limits
        for address, known in list(self._known.items()):
            if not (known.open or known.pairing) and (
                known.attempts.fill(limits.address_attempts, now) >= limits.address_attempts.burst
                and known.failures.fill(limits.address_failures, now) >= limits.address_failures.burst
                and known.devices.fill(limits.address_devices, now) >= limits.address_devices.burst
                and known.pairings.fill(limits.address_pairings, now) >= limits.address_pairings.burst
            ):
                del self._known[address]

    def _usage(self, address: str, now: float) -> _Address:
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= MOST_ADDRESSES:
                self._make_room()
            known = self._known[address] = _Address(self._limits, now)
        return known

    def _make_room(self) -> None:
        # A tenth at once, so that this does not run for each new address.
        gone = [address for address, known in self._known.items() if not (known.open or known.pairing)]
        for address in gone[: MOST_ADDRESSES // 10]:
            del self._known[address]


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the addresses and networks; raise a `ValueError` that names the invalid one."""
    return tuple(ip_network(text.strip(), strict=False) for text in texts)


def client_of(peer: str, forwarded: Sequence[str], proxies: Sequence[Network]) -> str:
    """Return the address of the client.

    That is *peer*, unless it is a trusted proxy: then it is the last address in `X-Forwarded-For` that is not a proxy
    itself. The client may have made up the addresses before that one.
    """
    if not is_in(peer, proxies):
        return peer
    for text in reversed([part.strip() for line in forwarded for part in line.split(",")]):
        host = _host_in(text)
        if not is_in(host, proxies):
            return host
    return peer


def is_in(address: str, known: Sequence[Network]) -> bool:
    """Return whether an address belongs to one of the networks."""
    if not known:
        return False
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed
    return any(plain in network for network in known)


def counted(address: str) -> str:
    """Return the key under which an address is counted; all invalid addresses share one key."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return "?"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))
        parsed = parsed.ipv4_mapped
    return str(parsed)


def _host_in(text: str) -> str:
    """The address in `203.0.113.7`, `203.0.113.7:443` or `[2001:db8::7]:443`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
