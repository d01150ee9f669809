"""Normalises texts for detectors: one byte per character, without disguises, with offsets into the original."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from remit_redaction.disguises import likeness, unescaped
from remit_redaction.linear import STEP

# Classes of characters that have no equivalent in ASCII. Ideographs have their own class because they are written
# without spaces: in `请联系a@example.org谢谢` they are not part of the address.
LETTER = b"\xff"
IDEOGRAPH = b"\xfe"
BLANK = b"\x80"

# Scripts without spaces between words: Thai to Myanmar, Khmer, kana and Han, and the ideographs beyond the first plane.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Transliterations of other alphabets, so that words for telephones and papers can be recognised in them.
_SOUNDS = dict(
    zip(
        "бгджзилпфцчшщъыьэюяєБГДЖЗИЛПФЦЧШЩЪЫЬЭЮЯЄδζθλμξπφψΔΘΛΞΠΣΦΨΩهاتفجولرقمكةسبطحديضعنشטלפוןמסרזהתדכינאקעבםצש",
        "bgdzzilpfcqssbybeuaeBGDZZILPFCQSSBYBEUAEdzolmxpfyDOLXPSFYWhatfgwlrqmktsbthdydanstlpvnmsrzhtdkynaqabmcs",
        strict=True,
    )
)
# The characters of words for telephones, papers and passwords in scripts that cannot be transliterated. Each has a byte
# of its own, from 0x81 on.
_WRITTEN = (
    "电電话話手机機致联系聯繫拨打号號码碼身份证證护護照税稅银銀行卡账口座法代信用纳旅券密携帯番個人マイナンバパスワドポト暗"
    "전화번호휴대폰핸드주민등록여권비밀연락처"
    "โทรบัตเอ"
    "फनमबइलआधरपस"
)
_BYTES = {char: bytes([0x81 + place]) for place, char in enumerate(sorted(set(_WRITTEN)))}
# Every byte for a character of a script without spaces, as part of a character class in a pattern.
IDEOGRAPHS = IDEOGRAPH + b"".join(sorted(byte for char, byte in _BYTES.items() if _UNSPACED.match(char)))
# Every byte for another letter.
LETTERS = LETTER + b"".join(sorted(byte for char, byte in _BYTES.items() if not _UNSPACED.match(char)))


class NormalizedText(NamedTuple):
    """The bytes to search, and where each begins and ends in the original; None if all offsets are the same."""

    data: bytes
    places: Sequence[int] | None
    ends: Sequence[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original of the bytes from *start* to *end*."""
        if self.places is None:
            return start, end
        return self.places[start], self.places[end - 1] + 1 if self.ends is None else self.ends[end - 1]


def as_ascii(text: str) -> str:
    """Return *text* with digits, dots, dashes and spaces of all scripts as ASCII, and without invisible characters.

    The characters 0x80 to 0xff of the result stand for classes, not for themselves: letters, ideographs, the rest.
    """
    if text.isascii():
        return text
    # In steps, because other threads wait for the interpreter during a step.
    steps = range(0, len(text), STEP)
    return "".join([text[at : at + STEP].translate(_SEEN) for at in steps])


def normalized(text: str) -> NormalizedText:
    """Return the normalised form of *text* as bytes, with offsets into the original."""
    seen = as_ascii(text)
    data = _decode_blanks(seen.encode("latin-1"))
    odd = "" if seen is text else "".join(char for char in set(text) if len(_SEEN[ord(char)]) != 1)
    if not odd:
        return NormalizedText(data, None)
    places: list[int] = []
    done = 0
    for match in re.finditer(f"[{re.escape(odd)}]", text):
        places.extend(range(done, match.start()))
        places.extend([match.start()] * len(_SEEN[ord(match[0])]))
        done = match.end()
    places.extend(range(done, len(text)))
    return NormalizedText(data, places)


def hidden(text: str) -> NormalizedText | None:
    """Return the text that escapes in *text* hide, with the text around it; None if they hide nothing."""
    plain = unescaped(text)
    if plain is None or not plain.hides:
        return None
    inner = normalized(plain.text)
    if inner.places is None:
        return NormalizedText(inner.data, plain.starts, plain.ends)
    return NormalizedText(
        inner.data, [plain.starts[place] for place in inner.places], [plain.ends[place] for place in inner.places]
    )


def _decode_blanks(data: bytes) -> bytes:
    """Return *data* with the escapes for blanks and quotes in embedded JSON decoded."""
    if b"\\" not in data:
        return data
    # Otherwise the escaped end of a line would be a letter that touches the next word.
    data = data.replace(rb"\n", b" \n").replace(rb"\r", b" \n").replace(rb"\t", b"  ")
    return data.replace(rb"\"", b'""')


class _NormalForms(dict[int, str]):
    """The normalised form of each character, computed on first use."""

    def __missing__(self, point: int) -> str:
        seen = self[point] = _normal_form(chr(point))
        return seen


_SEEN = _NormalForms()


def _normal_form(char: str) -> str:
    # Vowel signs and tone marks of these words would otherwise be dropped as accents.
    if char in _BYTES:
        return _BYTES[char].decode("latin-1")
    seen = likeness(char)
    if seen.isascii():
        return seen
    if seen in _SOUNDS:
        return _SOUNDS[seen]
    if seen in _BYTES:
        return _BYTES[seen].decode("latin-1")
    if _UNSPACED.match(char):
        return IDEOGRAPH.decode("latin-1")
    return (LETTER if unicodedata.category(char)[0] == "L" else BLANK).decode("latin-1")


def spelled(words: str) -> bytes:
    """Return *words* in normalised form, for patterns that search the bytes of a text."""
    return as_ascii(words).encode("latin-1").lower()
