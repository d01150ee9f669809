"""Addresses that are not public, as data: special-purpose ranges, and the metadata addresses of clouds.

Python's own lists change from version to version (`is_private` and `is_global` did in 3.11.10, 3.12.4 and 3.13), so
none of them is used here; `ipaddress` only parses addresses.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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
    found = parse_address(host)
    return host.lower().rstrip(".") in METADATA_NAMES if found is None else is_metadata(found)
