"""Values labelled as secrets: in assignments, in options of commands, and in prose."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from functools import cache
from itertools import islice

from remit.policy.verdict import Finding
from remit_redaction.credentials import CALL, FIGURE, LETTER, PLACEHOLDER, is_mixed, is_random
from remit_redaction.linear import Linear
from remit_redaction.normal import spelled
from remit_redaction.tables import words

# Characters that do not occur inside words.
_SIGN = re.compile(rb"[^0-9A-Za-z\x81-\xff_.,:;()\[\]/'-]")


@cache
def _names() -> Linear:
    names = sorted({re.escape(spelled(word)) for word in words("password")}, key=len, reverse=True)
    keys = rb"pass\b|pw\b|key|token|secret|credential|auth|session|cookie|pat\b|jwt|cert"
    return Linear(rb"(?i)(?:" + b"|".join(names) + b"|" + keys + rb")")


_PASSWORD = re.compile(b"|".join(re.escape(spelled(word)) for word in words("password")) + rb"|pass|pw")
_NAME_BEFORE = re.compile(rb"[A-Za-z0-9_.$\x81-\xff-]{0,40}\Z")
# The rest of a name, its closing quote, a type, an operator, the opening quote of the value.
_ASSIGNED = re.compile(
    rb"(?P<rest>[A-Za-z0-9_-]{0,24}+)(?P<closed>[\"'`\])}]{0,3}+)"
    rb"(?P<typed>[ \t]{0,4}:[ \t]{0,4}[A-Za-z_][A-Za-z0-9_.\[\]| ]{0,40}?[ \t]{0,4}(?==))?"
    rb"(?P<sign>[ \t]{0,8}(?:=>|->|:=|\?=|\|\|=|={1,3}|:|\|)[ \t\r\n]{0,8}|[ \t]{0,4},[ \t]{0,16}(?=[\"'])|>"
    rb"|[ \t\r\n]{1,4}value[ \t]{0,4}=[ \t]{0,4}(?=[\"'])"
    rb"|[ ](?:is|was|ist|lautet|es|est|e|jest|to|to:|brzmi|era)[ :]{1,3}|[\x80-\xff]{1,3}[: ]{0,2}|[ \t]{1,4})"
    rb"(?P<quote>[brfu]{0,2}[\"'`]{1,3})?"
)
_QUOTED = re.compile(rb"[^\s\"'`\x80]{4,512}")
_BARE = re.compile(rb"[^\s\"'`,;<>\x80]{4,512}")
_CAMEL = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])|[_.\- $]+")
# Keys that give no access.
_HARMLESS = frozenset(map(spelled, words("harmless key")))
# With such a word right before it, a key is a name for something: `idempotency_key`, `primaryKey`.
_IDENTIFYING = frozenset(map(spelled, words("identifying")))
_NAMING = frozenset(map(spelled, words("naming")))

# A call whose first argument is the name of a setting: `define('DB_PASSWORD', 'hunter2')`.
_SETTING = re.compile(rb"\w\([ ]?[\"'][\w.-]{0,60}\Z")
# Text that no key contains: addresses, code, patterns, redacted parts.
_NO_KEY = re.compile(rb"://|[|(){}]|\.\.|^urn:|^/[a-z]|=[^=]|^0x|\bself\.")
_COMMAND = re.compile(rb"(?:^|[\s\"'`\[,])--?[\w-]{0,40}\Z")
_NETRC = re.compile(rb"\blogin\s+\S{1,128}\s+\Z", re.IGNORECASE)
_TAG = re.compile(rb"<[\w:.-]{0,60}\Z")
_SPOKEN = re.compile(rb"s?(?:,? |: |[\x80-\xff]{1,3}[: ]{0,2})")
_SPOKEN_WORD = re.compile(rb"[^\s\"'`,;<>()\x80]+")
_ENDS_SENTENCE = re.compile(rb"[a-z]{2,}[.!?]")
# How many words a sentence may have between the word for a secret and the secret itself.
_WORDS_TO_KEY = 8
_WORDS_TO_PASSWORD = 6
# Text before the word for a secret in a name, a command or a tag.
_LONGEST_NAME = 72
_PARAMETER = re.compile(rb"[?&][\w.-]{0,40}\Z")
_NAME = re.compile(rb"[A-Za-z_]\w*")
# The value continues as code: a call, an item, an attribute.
_USED = re.compile(rb"[(\[]|\.[A-Za-z_]")
_VERBS = frozenset({b"", *b"is was ist lautet es est e jest to to: era brzmi".split()})
_LINE_BEGINS = re.compile(rb"(?:\A|\n)[ \t]*(?:export |set |\$)?[\w.-]{0,40}\Z")


def assignments(data: bytes) -> Iterator[Finding]:
    """Find the values in `password: …`, `api_key = …`, `with the key …` and the like."""
    done = 0
    for start, end in _names().spans(data):
        if start < done:
            continue
        finding = _assigned(data, start, end)
        if finding is not None:
            yield finding
            done = finding.end


def _assigned(data: bytes, start: int, end: int) -> Finding | None:
    hit = data[start:end].lower()
    is_password = _PASSWORD.fullmatch(hit) is not None
    match = _ASSIGNED.match(data, end)
    if match is None:
        return None if len(hit) < 3 or hit == b"pass" else _find_named_secret(data, end, is_password=is_password)
    before = data[max(0, start - _LONGEST_NAME) : start]
    if is_password and not _is_whole(before, hit, match["rest"]):
        return None
    sign, quote = match["sign"].strip(), match["quote"] or b""
    if b")" in match["closed"] or (
        hit in {b"pass", b"pw"} and (sign in _VERBS or sign[:1] >= b"\x80") and not _COMMAND.search(before)
    ):
        return None
    if not sign and not match["typed"] and not _COMMAND.search(before):
        if is_password and _NETRC.search(data[max(0, start - 200) : start]):
            return _value(data, _BARE, match.end(), "PASSWORD")
        return None if len(hit) < 3 or hit == b"pass" else _find_named_secret(data, end, is_password=is_password)
    if (sign == b">" and not _TAG.search(before)) or (
        sign == b"," and (match["rest"] or not match["closed"] or not _SETTING.search(before))
    ):
        return None
    value = (_QUOTED if quote else _BARE).match(data, match.end())
    if value is None:
        return None
    text = value[0] if quote else value[0].rstrip(b".:)]}>?" if is_password else b".:)]}>!?")
    if b"&" in text and (not is_password or _PARAMETER.search(before)):
        # In a URL, the next parameter follows.
        text = text.partition(b"&")[0]
    if len(text) < 4 or PLACEHOLDER.fullmatch(text) or CALL.match(text):
        return None
    if is_password:
        kind, meant = "PASSWORD", _is_password(data, before, match, value.start(), text)
    elif hit == b"auth" and not match["rest"] and quote and _is_basic(text):
        kind, meant = "PASSWORD", True
    else:
        kind, meant = "API_KEY", _is_key(before, data[start:end], match["rest"], text)
    if not meant:
        return None
    return Finding(value.start(), value.start() + len(text), kind, 0.9)


def _is_whole(before: bytes, hit: bytes, rest: bytes) -> bool:
    """Return whether a word for a password stands alone or is a part of a compound name."""
    if rest[:1].islower() and rest[:2] not in {b"s", b"s_", b"s-"}:
        return False
    return len(hit) > 4 or not before[-1:].isalpha() or (len(hit) > 2 and before[-2:] in {b"db", b"DB"})


def _value(data: bytes, pattern: re.Pattern[bytes], place: int, kind: str) -> Finding | None:
    value = pattern.match(data, place)
    return None if value is None else Finding(*value.span(), kind, 0.9)


def _is_key(before: bytes, hit: bytes, rest: bytes, value: bytes) -> bool:
    """Return whether a name labels its value as a key, and the value may be one."""
    begun = _NAME_BEFORE.search(before)
    words = _CAMEL.sub(b" ", (begun[0] if begun else b"") + hit + rest).lower().split()
    if not _NAMING.intersection(words[-2:]) and not (b"session" in words and len(words) > 1):
        return False
    if _NO_KEY.search(value) or (words[-1] in {b"key", b"keys"} and _IDENTIFYING.intersection(words[-2:-1])):
        return False
    # `GRAFANA_TOKEN` is stronger evidence than `token`, and `next_page_token` is weaker.
    named = len(words) > 1 and b"session" not in words and not _HARMLESS.intersection(words)
    return is_random(value, named=named)


def _is_password(data: bytes, before: bytes, match: re.Match[bytes], start: int, value: bytes) -> bool:
    sign, quote = match["sign"], match["quote"] or b""
    next_to = data[start + len(value) : start + len(value) + 1]
    if sign.strip() == b">":
        return next_to == b"<"
    if sign.strip() == b"," or (sign.strip() and _COMMAND.search(before)):
        return True
    if FIGURE.search(value) or _SIGN.search(value):
        return not (_NAME.fullmatch(value) and _USED.match(data, start + len(value)))
    if sign.strip() in _VERBS or sign.strip()[:1] >= b"\x80":
        return False
    # A word alone: quoted, or all of the line.
    if quote:
        return True
    if b"_" in value or (next_to and next_to in b")("):
        return False
    if sign.strip() == b"=":
        return sign == b"=" or _LINE_BEGINS.search(before) is not None
    return next_to in b"\r\n,;\"'<"


def _is_basic(value: bytes) -> bool:
    """Return whether *value* is a user and a password in base64."""
    try:
        return b":" in b64decode(value, validate=True)
    except NotBase64:
        return False


def _find_named_secret(data: bytes, end: int, *, is_password: bool) -> Finding | None:
    """Find a value that a sentence calls a key or a password: within a few words, and too random to be a word."""
    line = data[end : end + 240].partition(b"\n")[0]
    begun = _SPOKEN.match(line)
    # Inside a longer word, such as `keyboard`.
    if begun is None:
        return None
    most = _WORDS_TO_PASSWORD if is_password else _WORDS_TO_KEY
    for nth, word in enumerate(islice(_SPOKEN_WORD.finditer(line, begun.end()), most)):
        value = word[0].rstrip(b".:]}>?" if is_password else b".:]}>!?*").lstrip(b"[{")
        if _is_spoken_password(value, nth) if is_password else _is_spoken_key(value):
            if PLACEHOLDER.fullmatch(value) or CALL.match(value) or _NO_KEY.search(value):
                return None
            start = end + word.start() + word[0].index(value)
            return Finding(start, start + len(value), "PASSWORD" if is_password else "API_KEY", 0.8)
        if _ENDS_SENTENCE.fullmatch(word[0]):
            return None
    return None


# Names of algorithms, versions and sizes: `sha256`, `v2.1`, `256-bit`, `utf-8`.
_KNOWN_TERM = re.compile(
    rb"(?i)(?:sha|pbkdf|argon|utf|http|oauth|base|python|scram|float|latin|bcrypt|win|step|level|part|page)"
)
_TERM = re.compile(
    rb"(?i:sha|md|aes|rsa|pbkdf|argon|utf|http|oauth|ed|x|p|base|python|rfc|iso|v|ipv|tls|scram|hs|rs|es|ps|u?int|float|str)"
    rb"[-_]?\d[\w.+/-]*|\d+[-\w]{0,6}|[\d.,:/-]+|\w+[/.]\w+(?:[/.]\w+)*[/.]?|[A-Za-z]+-?\d{1,4}|\d+[A-Za-z]+|[A-Z0-9]+_[A-Z0-9_]+"
)
# A word with a few digits is a password only right after the word for it: `password hunter2`.
_WORD_AND_FIGURES = re.compile(rb"[A-Za-z]{4,}\d{1,4}")
_NEXT_WORDS = 3


def _is_spoken_password(value: bytes, nth: int) -> bool:
    figure, letter, sign = (pattern.search(value) is not None for pattern in (FIGURE, LETTER, _SIGN))
    if not (figure and letter) or len(value) < 5:
        return False
    if sign:
        return True
    if _WORD_AND_FIGURES.fullmatch(value):
        return nth < _NEXT_WORDS and not _KNOWN_TERM.match(value)
    return len(value) > 5 and not _TERM.fullmatch(value)


def _is_spoken_key(value: bytes) -> bool:
    if not FIGURE.search(value) and not (len(value) >= 20 and is_mixed(value)):
        return False
    return not _TERM.fullmatch(value) and is_random(value, named=False)
