"""Addresses of people and machines: e-mail, credentials in URLs, IPv4, IPv6, MAC addresses."""

import re
from collections.abc import Iterator

from remit.policy.verdict import Finding
from remit_redaction import context
from remit_redaction.linear import linear_pattern
from remit_redaction.normal import IDEOGRAPHS, LETTERS

_ALNUM = bytes([*range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x61, 0x7B)])
_LOCAL = _ALNUM + b"_.+%&~'*-" + LETTERS
_IDEOGRAPHIC_LOCAL = _LOCAL + IDEOGRAPHS
# RFC 5321 allows 64 characters; a longer local part is still an address of a person.
_LONGEST_LOCAL = 256
_QUOTED = re.compile(rb'"[^"\n]{1,64}"$')
# Bytes from 0x81 on stand for letters and ideographs.
_DOMAIN = re.compile(
    rb"(?:[0-9A-Za-z\x81-\xff][0-9A-Za-z\x81-\xff-]{0,62}\.){1,8}"
    rb"(?:xn--[0-9A-Za-z-]{1,59}|[A-Za-z%b]{2,24}|[%b]{1,24})"
    rb"|\[\d{1,3}(?:\.\d{1,3}){3}\]" % (LETTERS, IDEOGRAPHS)
)
# File names such as `logo@2x.png`.
_FILES = frozenset(b"png jpg jpeg gif svg webp ico css js jsx tsx json html htm pdf yaml yml toml lock".split())
# The user name for cloning repositories over SSH; it belongs to no person.
_NOBODY = frozenset({b"git"})

_USER_AND_PASSWORD = re.compile(rb"://[^\s/?#@:\"'<>\x80]*:[^\s/?#\"'<>]+$")
_CREDENTIALS = re.compile(rb"://([^\s/?#@:\"'<>\x80]*:[^\s/?#\"'<>\x80]+)@")

_COLONS = re.compile(rb"(?<![0-9A-Za-z:.])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{2,41}(?:\d(?:\.\d{1,3}){3})?(?![0-9A-Za-z:])")
_HEX = re.compile(rb"[0-9A-Fa-f]")
_DIGIT = re.compile(rb"\d")
_MAC = re.compile(
    rb"(?<![0-9A-Za-z:-])[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5})(?![0-9A-Za-z:-])"
)

_HEX_LETTER = re.compile(rb"[A-Fa-f]")
_SPEAKS_OF_CARDS = re.compile(
    rb"(?i)(?<![a-z])(?:mac|hw|ether|ethernet|lladdr|bssid|wlan|eth\d?|hardware|physical|station)(?![a-z])"
)
# A token in place of a user name: `https://token@host`.
_TOKEN_AS_USER = re.compile(rb"https?://([A-Za-z0-9_.~+=-]{16,255})@")


def emails(data: bytes) -> Iterator[Finding]:
    """Find e-mail addresses, including plus-addresses, quoted names and letters of all scripts."""
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
    """Return whether the @ ends the credentials of a URL."""
    before = data[max(0, at - _LONGEST_LOCAL) : at]
    return _USER_AND_PASSWORD.search(before) is not None


def _local(data: bytes, at: int) -> int:
    """Return the start of the part before the @."""
    before = data[max(0, at - _LONGEST_LOCAL) : at]
    quoted = _QUOTED.search(before)
    if quoted is not None:
        return at - len(quoted[0])
    allowed = _IDEOGRAPHIC_LOCAL if before[-1:] in IDEOGRAPHS else _LOCAL
    local = before[len(before.rstrip(allowed)) :]
    return at - len(local.lstrip(b".'&~*-"))


def url_credentials(data: bytes) -> Iterator[Finding]:
    """Find `user:password` in `scheme://user:password@host`, and a token in place of the user name."""
    for match in _CREDENTIALS.finditer(data):
        yield Finding(*match.span(1), "URL_CREDENTIALS")
    for match in _TOKEN_AS_USER.finditer(data):
        if len(_DIGIT.findall(match[1])) > 2:
            yield Finding(*match.span(1), "URL_CREDENTIALS")


# File extensions that are also country domains: `main.py`, `lib.rs`, `run.sh`.
_NOT_DOMAINS = frozenset(b"py rs sh pl md cc so mm pm ps in do as id is".split())
_ENDINGS = frozenset(
    b"com org net io dev app info biz edu gov mil int cloud online shop site xyz tech store blog name pro".split()
)
_HOST = re.compile(
    rb"(?<![0-9A-Za-z.@_-])(?:[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?\.){1,8}([A-Za-z]{2,24})(?![0-9A-Za-z_(-]|\.[0-9A-Za-z])"
)


def domains(data: bytes) -> Iterator[Finding]:
    """Find names of hosts and domains under common top-level domains and those of countries."""
    for match in _HOST.finditer(data):
        ending = match[1].lower()
        if ending in _ENDINGS or (len(ending) == 2 and ending not in _NOT_DOMAINS):
            yield Finding(*match.span(), "DOMAIN", 0.6)


def macs(data: bytes) -> Iterator[Finding]:
    """Find MAC addresses with colons or dashes."""
    for match in _MAC.finditer(data):
        # Skip addresses that are the same on every machine. Pairs of digits without letters are dates, times and other
        # numbers.
        same = len(set(match[0].lower())) <= 2
        figures = not _HEX_LETTER.search(match[0])
        if not same and (not figures or _SPEAKS_OF_CARDS.search(data[max(0, match.start() - 32) : match.start()])):
            yield Finding(*match.span(), "MAC")


def ipv6(data: bytes) -> Iterator[Finding]:
    """Find IPv6 addresses, except loopback."""
    for match in _COLONS.finditer(data):
        address = match[0]
        if address.count(b":") >= 2 and _is_ipv6(address):
            yield Finding(*match.span(), "IP")


def _is_ipv6(address: bytes) -> bool:
    # Shorter matches, such as `::1` and `a::b`, are loopback addresses, slices and names in code.
    if len(_HEX.findall(address)) < 8 or not any(48 <= char <= 57 for char in address):
        return False
    from ipaddress import AddressValueError, IPv6Address

    try:
        IPv6Address(address.decode())
    except AddressValueError:
        return False
    return True


_IPV4 = rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"


_GOES_ON = re.compile(rb"\d|\.\d")


_JOINED = frozenset({bytes([char]) for char in b"0123456789."})


# Addresses that are the same on every machine, and the best known public name servers.
_NOBODYS = frozenset({b"0.0.0.0", b"127.0.0.1", b"1.1.1.1", b"8.8.4.4", b"8.8.8.8", b"9.9.9.9"})
# A mask begins so, and a network ends with as many zeros as its prefix leaves open.
_MASK = b"255."
_NETWORK = re.compile(rb"\.0/(?:[89]|1\d|2[0-4])(?!\d)")


# Parts of version and section numbers are seldom larger. Only one in 4,000 of the addresses in use has no larger part.
_LARGEST_IN_VERSIONS = 31


_PORT = re.compile(rb"(?::\d{2,5}|/(?:[89]|[12]\d|3[0-2]))(?!\d)")


def ipv4(data: bytes) -> Iterator[Finding]:
    """Find IPv4 addresses; skip version numbers and addresses that every machine has."""
    for start, end in linear_pattern(_IPV4).spans(data):
        address = data[start:end]
        if (
            data[max(0, start - 1) : start] in _JOINED
            or _GOES_ON.match(data, end)
            or address in _NOBODYS
            or address.startswith(_MASK)
            or _NETWORK.match(data, end - 2)
            or any(int(part) > 255 or (part[0] == 48 and part != b"0") for part in address.split(b"."))
        ):
            continue
        words = context.before(data, start)
        if context.says_version(words) or (_is_small(address) and not _is_reached(data, end, words)):
            continue
        yield Finding(start, end, "IP")


def _is_small(address: bytes) -> bool:
    """Return whether an address is more likely a version or section number, such as `1.2.3.4`.

    Private networks begin with 10.
    """
    parts = [int(part) for part in address.split(b".")]
    return parts[0] == 0 or (parts[0] != 10 and max(parts) <= _LARGEST_IN_VERSIONS)


def _is_reached(data: bytes, end: int, words: bytes) -> bool:
    return context.says_network(words) or _PORT.match(data, end) is not None
