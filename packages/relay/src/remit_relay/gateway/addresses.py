"""Rate and connection limits of a gateway for each network address.

Pure: the caller passes the time.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from remit_relay.gateway.limits import GatewayLimits, HourlyRate

Network = IPv4Network | IPv6Network

# Addresses remembered at once: about 10 MB. Beyond that, the oldest without open connections are forgotten first.
MOST = 20_000
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
        limits, found = self._limits, self._of(address, now)
        left = found.attempts.fill(limits.address_attempts, now)
        # The level may go below zero, so that a client that keeps trying is rejected when it connects (`is_hammering`).
        found.attempts.level = max(-limits.address_attempts.burst, left - 1)
        if left < 1:
            return "address_attempts"
        if found.failures.fill(limits.address_failures, now) < 1:
            return "address_failures"
        if found.open >= limits.address_connections:
            return "address_connections"
        if found.open - found.greeted >= limits.address_unauthenticated:
            return "address_unauthenticated"
        return ""

    def is_hammering(self, address: str, now: float) -> bool:
        """Return whether an address keeps connecting although it was told to wait many times."""
        rate = self._limits.address_attempts
        found = self._known.get(address)
        return found is not None and found.attempts.fill(rate, now) <= 1 - rate.burst

    def enter(self, address: str, now: float) -> None:
        """Count a connection that was accepted."""
        self._of(address, now).open += 1

    def greet(self, address: str, now: float) -> None:
        """Count a connection that was authenticated."""
        self._of(address, now).greeted += 1

    def leave(self, address: str, now: float, *, greeted: bool) -> None:
        """Stop counting a connection that has ended."""
        found = self._of(address, now)
        found.open -= 1
        found.greeted -= greeted

    def fail(self, address: str, now: float) -> None:
        """Count a failed authentication."""
        found = self._of(address, now)
        found.failures.level = max(0.0, found.failures.fill(self._limits.address_failures, now) - 1)

    def take_device(self, address: str, now: float) -> bool:
        """Count a new device from an address; return False if it has used up its share."""
        bucket = self._of(address, now).devices
        if bucket.fill(self._limits.address_devices, now) < 1:
            return False
        bucket.level -= 1
        return True

    def give_back_device(self, address: str, now: float) -> None:
        """Undo `take_device`: the device was known already."""
        bucket = self._of(address, now).devices
        bucket.level = min(self._limits.address_devices.burst, bucket.level + 1)

    def begin_pairing(self, address: str, now: float) -> bool:
        """Count a connection that opens or joins a mailbox; return False if the address has used up its share."""
        found = self._of(address, now)
        left = found.pairings.fill(self._limits.address_pairings, now)
        if left < 1 or found.pairing >= self._limits.address_mailboxes:
            return False
        found.pairings.level -= 1
        found.pairing += 1
        return True

    def end_pairing(self, address: str, now: float) -> None:
        """Stop counting a connection that paired."""
        self._of(address, now).pairing -= 1

    def sweep(self, now: float) -> None:
        """Forget addresses without open connections whose limits are fully refilled."""
        limits = self._limits
        for address, found in list(self._known.items()):
            if not (found.open or found.pairing) and (
                found.attempts.fill(limits.address_attempts, now) >= limits.address_attempts.burst
                and found.failures.fill(limits.address_failures, now) >= limits.address_failures.burst
                and found.devices.fill(limits.address_devices, now) >= limits.address_devices.burst
                and found.pairings.fill(limits.address_pairings, now) >= limits.address_pairings.burst
            ):
                del self._known[address]

    def _of(self, address: str, now: float) -> _Address:
        found = self._known.get(address)
        if found is None:
            if len(self._known) >= MOST:
                self._make_room()
            found = self._known[address] = _Address(self._limits, now)
        return found

    def _make_room(self) -> None:
        # A tenth at once, so that this does not run for each new address.
        gone = [address for address, found in self._known.items() if not (found.open or found.pairing)]
        for address in gone[: MOST // 10]:
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
        host = _host(text)
        if not is_in(host, proxies):
            return host
    return peer


def is_in(address: str, known: Sequence[Network]) -> bool:
    """Return whether an address belongs to one of the networks."""
    if not known:
        return False
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    return any(plain in network for network in known)


def counted(address: str) -> str:
    """Return the key under which an address is counted; all invalid addresses share one key."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "?"
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is None:
            return str(ip_network((int(found), _IPV6_PREFIX), strict=False))
        found = found.ipv4_mapped
    return str(found)


def _host(text: str) -> str:
    """The address in `203.0.113.7`, `203.0.113.7:443` or `[2001:db8::7]:443`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
