"""Pairing codes: a number that names a mailbox at the gateway, and three words that only the two owners know."""

import re
import secrets
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean

# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# No two of them begin with the same three letters, differ by fewer than three letters, or have the same consonants. So
# a word is known by its first three letters, and a slip of the tongue or of a finger does not make another word of it.

_LIST = """
    acid acorn adopt agent airport alarm almond amber anchor ankle apron arctic artist avocado badge bamboo banjo
    barrel basket bazaar beacon bedroom beetle bench berry bicycle blossom bonfire boxer bracelet bronze bubble
    buffalo butter cabin cactus camera canyon captain carpet castle cedar chapter chimney cinema circus clarinet
    cliff clover cobalt coffee comet copper cotton cradle crimson crystal cushion daisy dance dentist desert diamond
    dinner doctor dolphin domino donkey dragon drummer eagle echo elbow elephant emerald engine escape evening exit
    fabric falcon farmer feather festival fiddle flamingo flute forest fossil fountain freckle furnace gallery
    garden giraffe glacier goblin gorilla granite guitar gymnast harbor hazel helmet hollow horizon iceberg indigo
    insect island ivory jaguar jelly jigsaw journey jungle kangaroo kayak kernel kidney kingdom kitchen ladder
    lagoon lantern lemon leopard liberty lilac lizard lobster locker lunar lyric magnet mammoth marble meadow
    mermaid midnight mineral mirror mosaic muffin museum napkin navy nectar nephew nickel noble nutmeg nylon oasis
    object ocean octopus olive omelet onion opera orange orchid osprey outlaw oxygen palace panda parrot pastry
    peanut pelican pencil pilot pirate plum polar popcorn potato prairie pumpkin puzzle pyramid quarry quilt rabbit
    raven recipe reef rhubarb ribbon ripple rubber scarf scooter sheriff shovel signal silver siren sketch skyline
    slipper smoke snow sofa spider squirrel stadium storm summit sunset swan syrup tablet teapot temple tennis
    theater thunder tiger toast topaz tractor triangle trumpet tulip tunnel turtle tuxedo twilight umbrella unicorn
    urban vacuum vanilla victory village violin volcano voyage vulture waffle walnut warrior whale wheat whisper
    window wolf wombat yacht yogurt zebra zeppelin zigzag
"""
WORDS = tuple(_LIST.split())
"""256 words, so that a word stands for a byte."""

MIN_PREFIX = 3
CONFIRMATION_WORDS = 4

_PLACES = {word: place for place, word in enumerate(WORDS)}
_PREFIXES = {word[:MIN_PREFIX]: word for word in WORDS}


def words_of(content: bytes) -> tuple[str, ...]:
    """Return the words of these bytes, one for each."""
    return tuple(WORDS[byte] for byte in content)


def find_word(typed: str) -> str | None:
    """Return the word that was typed, in full or by at least its first three letters; None: there is no such word."""
    if typed in _PLACES:
        return typed
    word = _PREFIXES.get(typed[:MIN_PREFIX])
    return word if word is not None and len(typed) >= MIN_PREFIX and word.startswith(typed) else None


def confirmation_words(comparable: str) -> str:
    """Return four words for the comparable code of two devices, equal on both sides if that is.

    Somebody between the two who had guessed the pairing code would need some 2**32 tries of 4,096 rounds of SHA-512
    within the minute that a pairing may take, to make the words agree.
    """
    return " ".join(words_of(sha256(b"remit pairing words\n" + comparable.encode()).digest()[:CONFIRMATION_WORDS]))


# ── codes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    why = f"invalid pairing code: {why}"
    todo = suggestion or "Type it as the other side shows it, such as 4821-marble-tiger-lemon."
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=todo))
