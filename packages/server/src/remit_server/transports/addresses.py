"""Network addresses: those given by others, which must not reach private ones, and those that a server listens at.

Python's own lists change from version to version (`is_private` and `is_global` did in 3.11.10, 3.12.4 and 3.13), so
none of them is used here; `ipaddress` only parses addresses.
"""

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from io import BytesIO
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault

Address = IPv4Address | IPv6Address

# https://www.iana.org/assignments/iana-ipv4-special-registry, and multicast and reserved space of
# https://www.iana.org/assignments/ipv4-address-space. The globally reachable addresses within these (two of
# 192.0.0.0/24, for protocols) serve no requests.
IPV4: dict[str, str] = {
    "0.0.0.0/8": "this network, RFC 791",
    "10.0.0.0/8": "private use, RFC 1918",
    "100.64.0.0/10": "shared address space, RFC 6598",
    "127.0.0.0/8": "loopback, RFC 1122",
    "169.254.0.0/16": "link-local, RFC 3927",
    "172.16.0.0/12": "private use, RFC 1918",
    "192.0.0.0/24": "protocol assignments, RFC 6890",
    "192.0.2.0/24": "documentation, RFC 5737",
    "192.31.196.0/24": "AS112, RFC 7535",
    "192.52.193.0/24": "AMT, RFC 7450",
    "192.88.99.0/24": "6to4 relays, RFC 7526",
    "192.168.0.0/16": "private use, RFC 1918",
    "192.175.48.0/24": "AS112, RFC 7534",
    "198.18.0.0/15": "benchmarks, RFC 2544",
    "198.51.100.0/24": "documentation, RFC 5737",
    "203.0.113.0/24": "documentation, RFC 5737",
    "224.0.0.0/4": "multicast, RFC 5771",
    "240.0.0.0/4": "reserved, RFC 1112, with the limited broadcast of RFC 919",
}

# The range that is assigned for global reachability, https://www.iana.org/assignments/ipv6-address-space, RFC 4291: so
# unique local (fc00::/7), link-local (fe80::/10), site-local (fec0::/10), multicast (ff00::/8), loopback, discard
# (100::/64), NAT64 (64:ff9b::/96 of RFC 6052, 64:ff9b:1::/48 of RFC 8215) and SRv6 SIDs (5f00::/16) are outside of it.
IPV6_GLOBAL = IPv6Network("2000::/3")
# https://www.iana.org/assignments/iana-ipv6-special-registry, the entries within that range.
IPV6: dict[str, str] = {
    "2001::/23": "protocol assignments, RFC 2928, with Teredo (RFC 4380), benchmarks (RFC 5180) and ORCHID (RFC 7343)",
    "2001:db8::/32": "documentation, RFC 3849",
    "2002::/16": "6to4, RFC 3056",
    "2620:4f:8000::/48": "AS112, RFC 7534",
    "3fff::/20": "documentation, RFC 9637",
}

# A response from one of these may hold the keys of the machine, its role or its network.
METADATA: dict[str, str] = {
    "169.254.169.254": "AWS, Google Cloud, Azure, Oracle, DigitalOcean, OpenStack and others",
    "169.254.170.2": "AWS, credentials of ECS tasks",
    "169.254.170.23": "AWS, credentials of EKS pods",
    "169.254.0.23": "Tencent Cloud",
    "100.100.100.200": "Alibaba Cloud",
    "168.63.129.16": "Azure, the platform of a virtual machine: a public address",
    "192.0.0.192": "Oracle Cloud Classic",
    "fd00:ec2::254": "AWS",
    "fd00:ec2::23": "AWS, credentials of EKS pods",
    "fd20:ce::254": "Google Cloud",
    "fe80::a9fe:a9fe": "OpenStack",
}
METADATA_NAMES: dict[str, str] = {
    "metadata": "Google Cloud",
    "metadata.goog": "Google Cloud",
    "metadata.google.internal": "Google Cloud",
    "instance-data": "AWS",
    "instance-data.ec2.internal": "AWS",
    "metadata.azure.internal": "Azure",
    "metadata.tencentyun.com": "Tencent Cloud",
    "metadata.platformequinix.com": "Equinix Metal",
}

_IPV4 = [IPv4Network(each) for each in IPV4]
_IPV6 = [IPv6Network(each) for each in IPV6]
_METADATA = frozenset(ip_address(each) for each in METADATA)
_SIX_TO_FOUR, _TEREDO = IPv6Network("2002::/16"), IPv6Network("2001::/32")
# Mapped and compatible (RFC 4291), translated (RFC 2765) and NAT64 (RFC 6052): the last 32 bits are the address.
_ENDS_IN_IPV4 = [IPv6Network(each) for each in ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96")]
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_MAPPED = IPv6Network("::ffff:0:0/96")
# RFC 5214: a tunnel interface over IPv4, in any network.
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def parse_address(text: str) -> Address | None:
    """Return a parsed address; None if it is invalid."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def carried(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address reaches through a tunnel or translator; None if there is none."""
    bits = int(address)
    if address in _SIX_TO_FOUR:
        return IPv4Address(bits >> 80 & 0xFFFF_FFFF)
    if address in _TEREDO:
        return IPv4Address(~bits & 0xFFFF_FFFF)
    is_isatap = bits >> 32 & 0xFFFF_FFFF in _ISATAP
    if is_isatap or address in _LOCAL_NAT64 or any(address in network for network in _ENDS_IN_IPV4):
        return IPv4Address(bits & 0xFFFF_FFFF)
    return None


def is_global(address: Address) -> bool:
    """Return whether an address is public, and does not lead elsewhere through a tunnel or translator."""
    if isinstance(address, IPv6Address):
        inner = carried(address)
        if address in _MAPPED and inner is not None:
            return is_global(inner)  # another notation for it
        if inner is not None and not is_global(inner):
            return False
        return address in IPV6_GLOBAL and not any(address in network for network in _IPV6) and not is_metadata(address)
    return not any(address in network for network in _IPV4) and address not in _METADATA


def is_metadata(address: Address) -> bool:
    """Return whether an address is a cloud metadata address, in any notation."""
    inner = carried(address) if isinstance(address, IPv6Address) else None
    return address in _METADATA or inner in _METADATA


def is_metadata_host(host: str) -> bool:
    """Return whether a host is a cloud metadata address, or a name of one."""
    address = parse_address(host)
    return host.lower().rstrip(".") in METADATA_NAMES if address is None else is_metadata(address)


if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, ClientTimeout
    from aiohttp.abc import AbstractResolver, ResolveResult

# Longer strings are not addresses of services.
MAX_URL = 2_000
AT_ONCE_BYTES = 65_536

Lookup = Callable[[str, int], Coroutine[Any, Any, list[str]]]
"""Returns the IP addresses of a host; raises an `OSError` if there are none."""


def in_parts(body: bytes) -> bytes | BytesIO:
    """Return a body to send; large ones are sent in parts, so that they do not block other requests."""
    return body if len(body) < AT_ONCE_BYTES else BytesIO(body)


def no_hub(url: str) -> str | None:
    """Say why an address cannot be that of a hub; None if it can."""
    unfit = f"`{url}` is not a hub address; expected https://host:port and nothing else"
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port, or an invalid host in brackets
        return unfit
    if not is_whole or parts.query or parts.fragment:
        return unfit
    if parts.username or parts.password:
        return "a hub address must not hold a password; give the token separately"
    return None


class OutboundHosts(Struct, frozen=True, kw_only=True):
    """Which hosts an address given by others may lead to: public ones, and those that are named."""

    hosts: frozenset[str] = frozenset()
    """Hosts that an operator allows, public or not: `hooks.internal`, `10.0.0.7`."""
    private: bool = False
    """Whether any address is allowed: for a network that holds no strangers."""

    def names(self, host: str) -> bool:
        """Return whether a host is allowed wherever it is."""
        return self.private or self.means(host)

    def means(self, host: str) -> bool:
        """Return whether an operator named this very host."""
        return host.lower().rstrip(".") in self.hosts


PUBLIC = OutboundHosts()


def is_public(address: str) -> bool:
    """Return whether an IP address is public, in any notation."""
    ip = parse_address(address)
    return ip is not None and is_global(ip)


def is_local(host: str) -> bool:
    """Return whether a host is evidently not public, by its notation."""
    address = parse_address(host)
    return host.lower().rstrip(".") == "localhost" if address is None else not is_global(address)


def is_loopback(host: str) -> bool:
    """Return whether a host is evidently this machine: requests to it cross no network."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def parsed(url: str, reach: OutboundHosts) -> SplitResult:
    """Return the parts of a URL, or raise a `RemitError` that says why it is blocked."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise refused(url, f"invalid URL ({error})") from error
    if len(url) > MAX_URL or not url.isascii() or any(char <= " " or char == "\\" for char in url):
        raise refused(url, "invalid URL")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refused(url, "it must start with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise refused(url, "a URL must not hold a password")
    host = parts.hostname
    if not reach.names(host) and is_local(host):
        raise refused(url, "it is not a public address")
    if is_metadata_host(host) and not reach.means(host):
        raise refused(url, _SECRETS)
    return parts


async def looked_up(url: str, reach: OutboundHosts, lookup: Lookup | None = None, *, unknown: bool = False) -> None:
    """Raise a `RemitError` if a URL is out of reach now; it is checked again when something is sent there.

    With *unknown*, a host that cannot be looked up now is left to that.
    """
    parts = parsed(url, reach)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        await judged_addresses(parts.hostname or "", port, reach, lookup or system_lookup)
    except UnknownHostError as error:
        if not unknown:
            raise refused(url, str(error)) from error
    except OSError as error:
        raise refused(url, str(error)) from error


class UnknownHostError(OSError):
    """No address is known for a host."""


async def system_lookup(host: str, port: int) -> list[str]:
    """Return what this machine's resolver knows of a host."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in entries]


async def judged_addresses(host: str, port: int, reach: OutboundHosts, lookup: Lookup) -> list[str]:
    """Return the addresses of a host, or raise an `OSError` if requests may not go there."""
    try:
        addresses = list(dict.fromkeys(await lookup(host, port)))
    except (OSError, UnicodeError) as error:
        raise UnknownHostError("unknown host") from error
    # A mix of public and private addresses is a sign of an attack.
    if not addresses or not (reach.names(host) or all(map(is_public, addresses))):
        raise OSError("its host is not on the public network")
    # Also in a private network, and for an allowed host name that now resolves to such an address.
    if not (reach.means(host) and is_metadata_host(host)) and any(map(is_metadata_host, addresses)):
        raise OSError(_SECRETS)
    return addresses


_SECRETS = "it is a cloud metadata address, which exposes secrets"


def refused(url: str, why: str) -> RemitError:
    """Return the error of a blocked URL."""
    place, _, rest = url.partition("@") if "@" in url else ("", "", url)
    # A password may precede an @.
    shown = "".join(char if char.isprintable() else "?" for char in (f"…@{rest}" if place else rest)[:200])
    allow = (
        "Give a public address, or have the operator of this hub allow the host: `push_hosts`, `card_hosts`, `hosts=`."
    )
    return RemitError(fault(Code.PERMISSION_DENIED, f"requests to `{shown}` are blocked: {why}", suggestion=allow))


class OutboundClient:
    """Sends to addresses given by others: each is resolved once, checked, and used exactly as checked."""

    def __init__(
        self, reach: OutboundHosts, timeout: "ClientTimeout | None" = None, lookup: Lookup | None = None
    ) -> None:
        self._reach = reach
        self._timeout = timeout
        self._lookup = lookup or system_lookup
        self._session: ClientSession | None = None

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes | None = None
    ) -> "AbstractAsyncContextManager[ClientResponse]":
        """Return an aiohttp request that follows no redirects; raise a `RemitError` for a blocked URL."""
        parsed(url, self._reach)  # an IP literal is never resolved, so it is checked here
        return self.session.request(method, url, headers=headers, data=data and in_parts(data), allow_redirects=False)

    @property
    def session(self) -> "ClientSession":
        """The connection pool, kept between requests."""
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

            connector = TCPConnector(limit=0, keepalive_timeout=60.0, use_dns_cache=False, resolver=self._resolver())
            self._session = ClientSession(
                connector=connector,
                timeout=self._timeout or ClientTimeout(total=None, sock_connect=5.0),
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    def _resolver(self) -> "AbstractResolver":
        from aiohttp.abc import AbstractResolver

        reach, lookup = self._reach, self._lookup

        class Judged(AbstractResolver):
            """Resolves hosts to allowed addresses: the connection is made to the address that was checked."""

            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
            ) -> "list[ResolveResult]":
                resolved = [_resolved(host, port, each) for each in await judged_addresses(host, port, reach, lookup)]
                return [each for each in resolved if family in (socket.AF_UNSPEC, each["family"])]

            async def close(self) -> None: ...

        return Judged()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _resolved(host: str, port: int, address: str) -> "ResolveResult":
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": family,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST,
    }


# The backlog: all the devices of a gateway may reconnect nearly at once after a restart.
BACKLOG = 1_024
# asyncio takes its backlog for how many connections it accepts before other tasks of the event loop get their turn.
ACCEPTED_AT_ONCE = 16
# What else a server opens: its store and log, processes of agents, connections to others. With 900 connections these
# are the 1,024 files that a process may open by default.
OTHER_FILES = 124
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EINVAL)


def listening(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket, or raise a `RemitError` that says why there is none.

    With *shared* other processes may listen on the same port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shared)
        # Connections inherit TCP_NODELAY; asyncio sets it only on sockets that it created. Without it, the body waits
        # until the client acknowledges the headers, which takes 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except (OSError, OverflowError) as error:
        # The message of `create_server` repeats the address.
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or str(error)
        reason = reason.partition(" (while")[0]
        why = f"cannot listen on {host} port {port}: {reason}"
        if number == errno.EADDRINUSE:
            why = f"{host} port {port} is in use"
        suggestion = "Choose another with --port, or 0 for any that is free."
        if number in _NOT_HERE or (number or 0) < 0:  # name resolution errors have numbers of their own
            suggestion = "Choose an address of this machine with --host: 127.0.0.1, or 0.0.0.0 for all that it has."
        elif number == errno.EACCES:
            suggestion = "Choose another with --port: those below 1024 may need more rights than this user has."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error


def open_files(wanted: int) -> int:
    """Raise the limit of open files of this process to *wanted*, as far as allowed, and return how many it may open."""
    try:
        import resource
    except ImportError:  # not available on other systems
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def connections_within_files(connections: int, files_each: int) -> int:
    """Return how many of so many connections a server can have, once it may open as many files as allowed."""
    # A burst is accepted before the first of it is refused, on two ports.
    allowed = open_files(connections * files_each + OTHER_FILES + 2 * BACKLOG)
    return min(connections, max(1, (allowed - OTHER_FILES) // files_each))
