"""Pairing codes: a number that names a mailbox at the gateway, and three words that only the two owners know."""

import re
import secrets
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.relay.pairing.words import WORDS, find_word, words_of

SECRET_WORDS = 3
"""24 bits: somebody who guesses has one try in 16,777,216 at each side, and then the code is dead."""

# Four digits are easily typed. They are more than a gateway's mailboxes, so that most numbers name none.
FIRST_MAILBOX, LAST_MAILBOX = 1_000, 9_999

MAX_LINK = 1_024
_BETWEEN = re.compile(r"[\s\-_.,]+")


class PairingCode(NamedTuple):
    """A code as its owner reads it out: `4821-marble-tiger-lemon`."""

    mailbox: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return "-".join((str(self.mailbox), *self.words))

    def __repr__(self) -> str:
        # The words must not get into a log by accident.
        return f"PairingCode({self.mailbox}-…)"

    @property
    def secret(self) -> bytes:
        """The part that the gateway never sees."""
        return "-".join(self.words).encode()


class PairingLink(NamedTuple):
    """A code with the gateway that it holds for: what a QR code has."""

    code: PairingCode
    gateway: str = ""
    """Empty: the gateway that the device has already."""
    name: str = ""
    """The gateway's name, if it is not its host."""

    def __str__(self) -> str:
        name = f"&name={quote(self.name, safe='')}" if self.name else ""
        return f"remit:join?gateway={quote(self.gateway, safe=':/')}{name}#{self.code}"


def new_words() -> tuple[str, ...]:
    """Return the random words of a new code."""
    return words_of(secrets.token_bytes(SECRET_WORDS))


def read_code(typed: str) -> PairingLink:
    """Return the code that was typed, or the code of a link, or raise a `RemitError` that says what is wrong with it.

    Any case, spaces instead of dashes, and the first three letters of a word are enough.
    """
    text = typed.strip()
    if len(text) > MAX_LINK:
        raise _unreadable("it is too long")
    if not text.lower().startswith("remit:"):
        return PairingLink(_code(text))
    parts = urlsplit(text)
    if parts.path != "join":
        raise _unreadable("this link has no code", "For a link with a device card: remit devices pair LINK")
    query = parse_qs(parts.query)
    gateway, name = (query.get(key, [""])[0] for key in ("gateway", "name"))
    if not gateway:
        raise _unreadable("the link names no gateway")
    return PairingLink(_code(parts.fragment), gateway, name)


def _code(text: str) -> PairingCode:
    number, *typed = [part for part in _BETWEEN.split(text.lower()) if part] or [""]
    if not (number.isascii() and number.isdecimal() and FIRST_MAILBOX <= int(number[:6]) <= LAST_MAILBOX):
        raise _unreadable(f"it begins with a number from {FIRST_MAILBOX} to {LAST_MAILBOX}")
    if len(typed) != SECRET_WORDS:
        raise _unreadable(f"it has {SECRET_WORDS} words after the number, not {len(typed)}")
    words: list[str] = []
    for each in typed:
        word = find_word(each)
        if word is None:
            raise _unreadable(f"there is no word `{each[:20]}` in codes{did_you_mean(each[:20], WORDS)}")
        words.append(word)
    return PairingCode(int(number), tuple(words))


def _unreadable(why: str, suggestion: str = "") -> RemitError:
    return RemitError(
        fault(
            Code.INPUT_VALIDATION_FAILED,
            f"invalid pairing code: {why}",
            suggestion=suggestion or "Type it as the other side shows it, such as 4821-marble-tiger-lemon.",
        )
    )
