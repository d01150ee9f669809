"""The words of pairing codes: plain English nouns that are told apart when they are spoken or typed.

No two of them begin with the same three letters, differ by fewer than three letters, or have the same consonants. So a
word is known by its first three letters, and a slip of the tongue or of a finger does not make another word of it.
"""

from hashlib import sha256

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
    found = _PREFIXES.get(typed[:MIN_PREFIX])
    return found if found is not None and len(typed) >= MIN_PREFIX and found.startswith(typed) else None


def confirmation_words(comparable: str) -> str:
    """Return four words for the comparable code of two devices, equal on both sides if that is.

    Somebody between the two who had guessed the pairing code would need some 2**32 tries of 4,096 rounds of SHA-512
    within the minute that a pairing may take, to make the words agree.
    """
    return " ".join(words_of(sha256(b"remit pairing words\n" + comparable.encode()).digest()[:CONFIRMATION_WORDS]))
