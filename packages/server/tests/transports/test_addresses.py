"""Addresses that came from elsewhere: where they may lead, and that they lead where they were judged to."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientError

from remit.protocol.errors import Code, RemitError
from remit_server.transports.addresses import (
    PUBLIC,
    Lookup,
    OutboundClient,
    OutboundHosts,
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
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(reply)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


async def test_a_name_that_leads_elsewhere_the_second_time_is_judged_the_second_time() -> None:
    """Rebinding: between looking and sending nobody can change where it leads."""
    answers = iter([["8.8.8.8"], ["127.0.0.1"]])

    async def lookup(_: str, __: int) -> list[str]:
        return next(answers)

    async with a_server() as (port, asked):
        url = f"http://rebind.example.com:{port}/"
        await looked_up(url, PUBLIC, lookup)
        outbound = OutboundClient(PUBLIC, lookup=lookup)
        with pytest.raises((ClientError, OSError)):
            async with outbound.request("GET", url, headers={}):
                pass
        await outbound.close()
    assert asked == []


async def test_what_was_judged_is_where_it_goes() -> None:
    lookups: list[str] = []

    async def lookup(host: str, _: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"]

    async with a_server() as (port, asked):
        outbound = OutboundClient(OutboundHosts(hosts=frozenset({"hooks.internal"})), lookup=lookup)
        async with outbound.request("POST", f"http://hooks.internal:{port}/x", headers={}, data=b"") as reply:
            assert reply.status == 200
        await outbound.close()
    assert lookups == ["hooks.internal"]
    assert b"Host: hooks.internal" in asked[0]


async def test_a_literal_is_judged_although_nobody_looks_it_up() -> None:
    outbound = OutboundClient(PUBLIC)
    with pytest.raises(RemitError, match="it is not a public address"):
        outbound.request("GET", "http://127.0.0.1:1/", headers={})
    await outbound.close()


async def test_a_redirect_is_not_followed() -> None:
    there = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
    async with a_server(there) as (port, asked):
        outbound = OutboundClient(OutboundHosts(private=True))
        async with outbound.request("GET", f"http://127.0.0.1:{port}/", headers={}) as reply:
            assert reply.status == 302
        await outbound.close()
    assert len(asked) == 1
