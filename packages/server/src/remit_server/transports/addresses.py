"""Addresses given by others: requests to them reach no host that the giver could not reach itself."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit_server.transports.address_ranges import is_global, is_metadata_host, parse_address

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
    found = parse_address(address)
    return found is not None and is_global(found)


def is_local(host: str) -> bool:
    """Return whether a host is evidently not public, by its notation."""
    found = parse_address(host)
    return host.lower().rstrip(".") == "localhost" if found is None else not is_global(found)


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
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


async def judged_addresses(host: str, port: int, reach: OutboundHosts, lookup: Lookup) -> list[str]:
    """Return the addresses of a host, or raise an `OSError` if requests may not go there."""
    try:
        found = list(dict.fromkeys(await lookup(host, port)))
    except (OSError, UnicodeError) as error:
        raise UnknownHostError("unknown host") from error
    # A mix of public and private addresses is a sign of an attack.
    if not found or not (reach.names(host) or all(map(is_public, found))):
        raise OSError("its host is not on the public network")
    # Also in a private network, and for an allowed host name that now resolves to such an address.
    if not (reach.means(host) and is_metadata_host(host)) and any(map(is_metadata_host, found)):
        raise OSError(_SECRETS)
    return found


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
                found = [_resolved(host, port, each) for each in await judged_addresses(host, port, reach, lookup)]
                return [each for each in found if family in (socket.AF_UNSPEC, each["family"])]

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
