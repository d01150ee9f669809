"""Addresses that a hub may send to: public ones, and those that an operator named."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from aiohttp import ClientError

from remit.protocol.errors import Code, RemitError
from remit_server.transports.addresses import (
    IPV4,
    IPV6,
    METADATA,
    METADATA_NAMES,
    PUBLIC,
    Lookup,
    OutboundClient,
    OutboundHosts,
    carried,
    is_local,
    is_public,
    looked_up,
    parsed,
)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_an_address_of_the_public_network_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:53aa:64c::1",
        "nonsense",
        "",
    ],
)
def test_an_address_that_is_not_is_not_whatever_it_is_wrapped_in(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("https:///x", "name a host"),
        ("nonsense", "https://"),
        ("https://user:hunter2@example.com/", "must not hold a password"),
        ("https://:hunter2@example.com/", "must not hold a password"),
        ("https://example.com:99999/", "invalid URL"),
        ("https://[::1/", "invalid URL"),
        ("https://exa mple.com/", "invalid URL"),
        ("https://example.com/\r\nx: y", "invalid URL"),
        ("https://example.com\\@evil.example.com/", "invalid URL"),
        ("https://éxample.com/", "invalid URL"),
        (f"https://example.com/{'x' * 2_000}", "invalid URL"),
        ("http://127.0.0.1/", "it is not a public address"),
        ("http://localhost/", "it is not a public address"),
        ("http://LOCALHOST./", "it is not a public address"),
        ("http://[::ffff:127.0.0.1]/", "it is not a public address"),
    ],
)
def test_an_address_that_is_unfit_is_refused_with_the_reason_and_without_its_password(url: str, why: str) -> None:
    with pytest.raises(RemitError, match=why) as refused:
        parsed(url, PUBLIC)
    assert refused.value.fault.code is Code.PERMISSION_DENIED
    assert "`push_hosts`" in refused.value.fault.suggestion
    assert "hunter2" not in str(refused.value)
    assert "\r" not in str(refused.value)


def test_a_host_that_an_operator_named_may_be_anywhere() -> None:
    assert parsed("http://127.0.0.1/", OutboundHosts(hosts=frozenset({"127.0.0.1"}))).hostname == "127.0.0.1"
    assert parsed("http://localhost/", OutboundHosts(private=True)).hostname == "localhost"
    assert is_local("localhost.")
    assert is_local("10.0.0.1")
    assert not is_local("example.com")


def leads_to(*addresses: str) -> Lookup:
    async def lookup(_: str, __: int) -> list[str]:
        return list(addresses)

    return lookup


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("8.8.8.8", "10.0.0.1"), ("::ffff:10.0.0.1",), ()],
    ids=["lo", "mixed", "mapped", "none"],
)
async def test_a_name_that_leads_into_our_network_is_refused(addresses: tuple[str, ...]) -> None:
    with pytest.raises(RemitError, match="public network"):
        await looked_up("https://rebind.example.com/", PUBLIC, leads_to(*addresses))
    await looked_up("https://rebind.example.com/", PUBLIC, leads_to("8.8.8.8"))


async def test_a_number_that_is_an_address_in_disguise_is_refused() -> None:
    for url in ("http://2130706433/", "http://0x7f000001/", "http://127.1/", "http://0177.0.0.1/"):
        with pytest.raises(RemitError, match=r"public network|unknown host"):
            await looked_up(url, PUBLIC)


async def test_a_name_that_nobody_knows_is_refused() -> None:
    async def unknown(_: str, __: int) -> list[str]:
        raise OSError

    with pytest.raises(RemitError, match="unknown host"):
        await looked_up("https://unknown.example.com/", PUBLIC, unknown)


@asynccontextmanager
async def a_server(
    reply: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
) -> AsyncGenerator[tuple[int, list[bytes]]]:
    chunks: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            chunks.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(reply)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], chunks
    finally:
        server.close()


async def test_a_name_that_leads_elsewhere_the_second_time_is_judged_the_second_time() -> None:
    """Rebinding: between looking and sending nobody can change where it leads."""
    answers = iter([["8.8.8.8"], ["127.0.0.1"]])

    async def lookup(_: str, __: int) -> list[str]:
        return next(answers)

    async with a_server() as (port, requests):
        url = f"http://rebind.example.com:{port}/"
        await looked_up(url, PUBLIC, lookup)
        outbound = OutboundClient(PUBLIC, lookup=lookup)
        with pytest.raises((ClientError, OSError)):
            async with outbound.request("GET", url, headers={}):
                pass
        await outbound.close()
    assert requests == []


async def test_what_was_judged_is_where_it_goes() -> None:
    lookups: list[str] = []

    async def lookup(host: str, _: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"]

    async with a_server() as (port, requests):
        outbound = OutboundClient(OutboundHosts(hosts=frozenset({"hooks.internal"})), lookup=lookup)
        async with outbound.request("POST", f"http://hooks.internal:{port}/x", headers={}, data=b"") as reply:
            assert reply.status == 200
        await outbound.close()
    assert lookups == ["hooks.internal"]
    assert b"Host: hooks.internal" in requests[0]


async def test_a_literal_is_judged_although_nobody_looks_it_up() -> None:
    outbound = OutboundClient(PUBLIC)
    with pytest.raises(RemitError, match="it is not a public address"):
        outbound.request("GET", "http://127.0.0.1:1/", headers={})
    await outbound.close()


async def test_a_redirect_is_not_followed() -> None:
    there = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
    async with a_server(there) as (port, requests):
        outbound = OutboundClient(OutboundHosts(private=True))
        async with outbound.request("GET", f"http://127.0.0.1:{port}/", headers={}) as reply:
            assert reply.status == 302
        await outbound.close()
    assert len(requests) == 1


EVERYWHERE = OutboundHosts(private=True)
V4 = [each for each in METADATA if ":" not in each]


def wrapped(address: str) -> list[str]:
    """Return the ways in which an IPv6 address can lead to an IPv4 address."""
    number = int(IPv4Address(address))
    high, low = number >> 16, number & 0xFFFF
    hidden = ~number & 0xFFFF_FFFF
    return [
        f"::ffff:{address}",
        f"::ffff:{high:x}:{low:x}",
        f"::ffff:0:{address}",
        f"::{address}",
        f"2002:{high:x}:{low:x}::1",
        f"64:ff9b::{address}",
        f"64:ff9b:1::{address}",
        f"2001:0:4136:e378:8000:63bf:{hidden >> 16:x}:{hidden & 0xFFFF:x}",
        f"2606:4700::5efe:{address}",
        f"2606:4700::200:5efe:{address}",
    ]


@pytest.mark.parametrize(
    "network", [*IPV4, *IPV6, "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "100::/64", "::/8"]
)
def test_no_address_of_a_special_network_is_public(network: str) -> None:
    special = IPv6Network(network) if ":" in network else IPv4Network(network)
    assert not is_public(str(special[0]))
    assert not is_public(str(special[-1]))
    assert not is_public(str(special[special.num_addresses // 3]))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "168.63.129.15", "192.0.1.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1"],
)
def test_what_lies_beside_is(address: str) -> None:
    assert is_public(address)
    if ":" not in address:
        assert is_public(f"::ffff:{address}")
        assert not is_public(f"2002:{int(IPv4Address(address)) >> 16:x}::1"), "a tunnel leads who knows where"


def test_python_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its properties say changes from version to version."""

    def unknown(_: object) -> bool:
        raise AssertionError

    for kind in (IPv4Address, IPv6Address):
        for name in ("is_private", "is_global", "is_reserved", "is_multicast", "is_link_local", "is_unspecified"):
            monkeypatch.setattr(kind, name, property(unknown))
    for name in ("is_site_local", "ipv4_mapped", "sixtofour", "teredo"):
        monkeypatch.setattr(IPv6Address, name, property(unknown))
    assert is_public("8.8.8.8")
    assert is_public("2606:4700::1111")
    assert not any(map(is_public, ("10.0.0.1", "169.254.169.254", "fd00::1", "::ffff:10.0.0.1", "2002:a00:1::")))


@pytest.mark.parametrize("address", V4)
def test_an_address_is_found_in_whatever_it_is_wrapped(address: str) -> None:
    assert {carried(IPv6Address(each)) for each in wrapped(address)} == {IPv4Address(address)}
    assert carried(IPv6Address("2606:4700::1111")) is None


@pytest.mark.parametrize("address", [*METADATA, *(each for address in V4 for each in wrapped(address))])
async def test_secrets_of_a_cloud_are_fetched_for_nobody(address: str) -> None:
    """Also in a network in which any other address will do, and by a name that leads there."""
    host = f"[{address}]" if ":" in address else address
    assert not is_public(address)
    why = r"it is not a public address|not on the public network|it is a cloud metadata address, which exposes secrets"
    for reach in (PUBLIC, EVERYWHERE):
        with pytest.raises(RemitError, match=why):
            parsed(f"http://{host}/latest/meta-data/", reach)
        with pytest.raises(RemitError, match=why):
            await looked_up("http://innocent.example.org/", reach, leads_to("8.8.8.8", address))
    named = OutboundHosts(hosts=frozenset({"innocent.example.org"}))
    with pytest.raises(RemitError, match="it is a cloud metadata address, which exposes secrets"):
        await looked_up("http://innocent.example.org/", named, leads_to(address))


@pytest.mark.parametrize("name", [*METADATA_NAMES, "METADATA.google.internal."])
def test_nor_by_a_name_that_clouds_gave_them(name: str) -> None:
    for reach in (PUBLIC, EVERYWHERE):
        with pytest.raises(RemitError, match="it is a cloud metadata address, which exposes secrets"):
            parsed(f"http://{name}/computeMetadata/v1/", reach)


async def test_who_runs_the_hub_may_mean_it() -> None:
    for host in ("169.254.169.254", "metadata.google.internal"):
        reach = OutboundHosts(hosts=frozenset({host}))
        assert parsed(f"http://{host}/", reach).hostname == host
        await looked_up(f"http://{host}/", reach, leads_to("169.254.169.254"))


async def test_a_private_network_is_still_one() -> None:
    await looked_up("http://hooks.internal/", EVERYWHERE, leads_to("10.0.0.7", "fd00::7"))
    await looked_up("http://hooks.internal/", OutboundHosts(hosts=frozenset({"hooks.internal"})), leads_to("10.0.0.7"))
