"""How much a gateway lets one network address ask of it.

Pure: whoever asks says what time it is.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from remit.relay.gateway.limits import GatewayLimits, HourlyRate

Network = IPv4Network | IPv6Network

# So many addresses are remembered: some 10 MB. Beyond, those are forgotten first that came first and have gone.
MOST = 20_000
# A customer has a /64 or more, and so any number of addresses in it.
_IPV6_PREFIX = 64
_HOUR_S = 3_600.0


class _Bucket:
    """What is left of a rate, which comes back with time."""

    __slots__ = ("_at", "level")

    def __init__(self, rate: HourlyRate, now: float) -> None:
        self.level = rate.burst
        self._at = now

    def fill(self, rate: HourlyRate, now: float) -> float:
        self.level = min(rate.burst, self.level + (now - self._at) * rate.per_hour / _HOUR_S)
        self._at = now
        return self.level


class _Address:
    __slots__ = ("attempts", "devices", "failures", "greeted", "open")

    def __init__(self, limits: GatewayLimits, now: float) -> None:
        self.open = self.greeted = 0
        self.attempts = _Bucket(limits.address_attempts, now)
        self.failures = _Bucket(limits.address_failures, now)
        self.devices = _Bucket(limits.address_devices, now)


class Addresses:
    """What each address has open, and has lately asked for."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._known: dict[str, _Address] = {}

    def __len__(self) -> int:
        return len(self._known)

    def objection(self, address: str, now: float) -> str:
        """Count an attempt to connect, and say why it comes to nothing: a word, or none if it does not."""
        limits, found = self._limits, self._of(address, now)
        left = found.attempts.fill(limits.address_attempts, now)
        # Below nothing, too, so that who does not leave it at that is not even listened to any more.
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
        """Whether somebody there has been told to wait as often as may be, and has not."""
        rate = self._limits.address_attempts
        found = self._known.get(address)
        return found is not None and found.attempts.fill(rate, now) <= 1 - rate.burst

    def enter(self, address: str, now: float) -> None:
        """A connection is taken."""
        self._of(address, now).open += 1

    def greet(self, address: str, now: float) -> None:
        """It has shown who it is."""
        self._of(address, now).greeted += 1

    def leave(self, address: str, now: float, *, greeted: bool) -> None:
        """It has ended."""
        found = self._of(address, now)
        found.open -= 1
        found.greeted -= greeted

    def fail(self, address: str, now: float) -> None:
        """It could not show who it is."""
        found = self._of(address, now)
        found.failures.level = max(0.0, found.failures.fill(self._limits.address_failures, now) - 1)

    def take_device(self, address: str, now: float) -> bool:
        """Take one of the new devices that may come from there, if there is one left."""
        bucket = self._of(address, now).devices
        if bucket.fill(self._limits.address_devices, now) < 1:
            return False
        bucket.level -= 1
        return True

    def give_back_device(self, address: str, now: float) -> None:
        """It was known already."""
        bucket = self._of(address, now).devices
        bucket.level = min(self._limits.address_devices.burst, bucket.level + 1)

    def sweep(self, now: float) -> None:
        """Forget those that have nothing open, and all of what they may ask for."""
        limits = self._limits
        for address, found in list(self._known.items()):
            if not found.open and (
                found.attempts.fill(limits.address_attempts, now) >= limits.address_attempts.burst
                and found.failures.fill(limits.address_failures, now) >= limits.address_failures.burst
                and found.devices.fill(limits.address_devices, now) >= limits.address_devices.burst
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
        # A tenth at once, so that it is not done for each.
        gone = [address for address, found in self._known.items() if not found.open]
        for address in gone[: MOST // 10]:
            del self._known[address]


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks; raises a `ValueError` that names the one that is none."""
    return tuple(ip_network(text.strip(), strict=False) for text in texts)


def client_of(peer: str, forwarded: Sequence[str], proxies: Sequence[Network]) -> str:
    """Return the address from which somebody comes.

    That is the *peer*'s, unless it is a proxy: then the last in its `X-Forwarded-For` that is none itself. What stands
    before that one the client may have made up.
    """
    if not is_in(peer, proxies):
        return peer
    for text in reversed([part.strip() for line in forwarded for part in line.split(",")]):
        host = _host(text)
        if not is_in(host, proxies):
            return host
    return peer


def is_in(address: str, known: Sequence[Network]) -> bool:
    """Whether an address belongs to one of some networks."""
    if not known:
        return False
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    return any(plain in network for network in known)


def counted(address: str) -> str:
    """Return what an address is counted under; whatever is none, under one name for all."""
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
