"""Which addresses are not public, by our own list: whatever Python thinks of them, and whatever they are wrapped in."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from remit.protocol.errors import RemitError
from remit_server.transports.addresses import (
    IPV4,
    IPV6,
    METADATA,
    METADATA_NAMES,
    PUBLIC,
    Lookup,
    OutboundHosts,
    carried,
    is_public,
    looked_up,
    parsed,
)

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


def leads_to(*addresses: str) -> Lookup:
    async def lookup(_: str, __: int) -> list[str]:
        return list(addresses)

    return lookup


@pytest.mark.parametrize(
    "network", [*IPV4, *IPV6, "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "100::/64", "::/8"]
)
def test_no_address_of_a_special_network_is_public(network: str) -> None:
    found = IPv6Network(network) if ":" in network else IPv4Network(network)
    assert not is_public(str(found[0]))
    assert not is_public(str(found[-1]))
    assert not is_public(str(found[found.num_addresses // 3]))


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
    told = r"it is not a public address|not on the public network|it is a cloud metadata address, which exposes secrets"
    for reach in (PUBLIC, EVERYWHERE):
        with pytest.raises(RemitError, match=told):
            parsed(f"http://{host}/latest/meta-data/", reach)
        with pytest.raises(RemitError, match=told):
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
