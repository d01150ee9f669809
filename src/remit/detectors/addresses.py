"""Where people and machines are reached: e-mail, credentials in URLs, IPv6, network cards."""

import re
from collections.abc import Iterator

from remit.policy.verdict import Finding

_LETTERS = bytes([*range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x61, 0x7B)])
_LOCAL = _LETTERS + b"_.+%&~'*-\xff"
_IDEOGRAPHIC_LOCAL = _LOCAL + b"\xfe"
# RFC 5321 allows 64; what is longer is still somebody's.
_LONGEST_LOCAL = 256
_QUOTED = re.compile(rb'"[^"\n]{1,64}"$')
_DOMAIN = re.compile(
    rb"(?:[0-9A-Za-z\xfe\xff][0-9A-Za-z\xfe\xff-]{0,62}\.){1,8}(?:xn--[0-9A-Za-z-]{1,59}|[A-Za-z\xff]{2,24}|\xfe{1,24})"
    rb"|\[\d{1,3}(?:\.\d{1,3}){3}\]"
)
# Names such as `logo@2x.png`.
_FILES = frozenset(b"png jpg jpeg gif svg webp ico css js jsx tsx json html htm pdf yaml yml toml lock".split())
# The user that repositories are cloned as; it is nobody's address.
_NOBODY = frozenset({b"git"})

_USER_AND_PASSWORD = re.compile(rb"://[^\s/?#@:\"'<>\x80]*:[^\s/?#\"'<>]+$")
_CREDENTIALS = re.compile(rb"://([^\s/?#@:\"'<>\x80]*:[^\s/?#\"'<>\x80]+)@")

_COLONS = re.compile(rb"(?<![0-9A-Za-z:.])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{2,41}(?:\d(?:\.\d{1,3}){3})?(?![0-9A-Za-z:])")
_HEX = re.compile(rb"[0-9A-Fa-f]")
_MAC = re.compile(
    rb"(?<![0-9A-Za-z:-])[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5})(?![0-9A-Za-z:-])"
)


def emails(data: bytes) -> Iterator[Finding]:
    """Find e-mail addresses: plus-addresses, quoted names and letters of all scripts as well."""
    place = data.find(b"@")
    while place >= 0:
        domain = _DOMAIN.match(data, place + 1)
        if (
            domain is not None
            and not _after_password(data, place)
            and domain[0].rpartition(b".")[2].lower() not in _FILES
        ):
            start = _local(data, place)
            if start < place and data[start:place] not in _NOBODY:
                yield Finding(start, domain.end(), "EMAIL")
        place = data.find(b"@", place + 1)


def _after_password(data: bytes, at: int) -> bool:
    """Whether the @ ends the credentials of a URL."""
    before = data[max(0, at - _LONGEST_LOCAL) : at]
    return _USER_AND_PASSWORD.search(before) is not None


def _local(data: bytes, at: int) -> int:
    """Return where the part before the @ begins."""
    before = data[max(0, at - _LONGEST_LOCAL) : at]
    quoted = _QUOTED.search(before)
    if quoted is not None:
        return at - len(quoted[0])
    allowed = _IDEOGRAPHIC_LOCAL if before.endswith(b"\xfe") else _LOCAL
    local = before[len(before.rstrip(allowed)) :]
    return at - len(local.lstrip(b".'&~*-"))


def url_credentials(data: bytes) -> Iterator[Finding]:
    """Find `user:password` in `scheme://user:password@host`."""
    for found in _CREDENTIALS.finditer(data):
        yield Finding(*found.span(1), "URL_CREDENTIALS")


def macs(data: bytes) -> Iterator[Finding]:
    """Find addresses of network cards, with colons or dashes."""
    for found in _MAC.finditer(data):
        yield Finding(*found.span(), "MAC")


def ipv6(data: bytes) -> Iterator[Finding]:
    """Find IPv6 addresses; not loopback."""
    for found in _COLONS.finditer(data):
        address = found[0]
        if address.count(b":") >= 2 and _is_ipv6(address):
            yield Finding(*found.span(), "IP")


def _is_ipv6(address: bytes) -> bool:
    # Shorter ones, such as `::1` and `a::b`, are loopback, slices and names in code.
    if len(_HEX.findall(address)) < 8 or not any(48 <= char <= 57 for char in address):
        return False
    from ipaddress import AddressValueError, IPv6Address

    try:
        IPv6Address(address.decode())
    except AddressValueError:
        return False
    return True
