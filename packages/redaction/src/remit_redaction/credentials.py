"""Secrets: keys of known vendors, tokens in headers and cookies, values labelled as secrets, private keys."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import log2

from remit.policy.verdict import Finding
from remit_redaction.linear import Linear
from remit_redaction.vendors import KeyFormat, forms

_JWT = rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"

_PEM = rb"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_WHOLE_PEM = _PEM + rb"[A-Za-z0-9+/=\s\\:,.()-]*?-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_CUT_PEM = _PEM + rb"(?:[\s\\nr]*[A-Za-z0-9+/=]{30,})+"

_BEARER = re.compile(rb"\b(?:bearer|token)[ \t]{1,4}([A-Za-z0-9._~+/-]{16,}={0,2})", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    rb"\bauthorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?:[a-z]{3,12}[ \t]{1,4})?([A-Za-z0-9._~+/=-]{8,})",
    re.IGNORECASE,
)

FIGURE = re.compile(rb"\d")
LETTER = re.compile(rb"[A-Za-z\x81-\xff]")
_PARTS = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|\W")
_KEY_LENGTH = 8
# Shorter values may be names, such as `prod-db-1`, unless digits and letters alternate more often.
_LONG_KEY = 16
_CHANGE = re.compile(rb"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")
# Average length of a part between changes of case or digits. Names in code have longer parts; random text has less than
# two letters per part.
_WORDY = 3.2
# In one case and without separators, runs of letters are longer by chance.
_WORDY_IN_ONE = 5
# Text after a vendor's prefix is a name in code only if it consists of joined words with hardly a digit.
_SEPARATED = re.compile(rb"[-_.]")
_LETTERS = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WORDY_AFTER_VENDOR = 3
# No word without a separator is that long.
_LONGEST_WORD = 30
_FIGURES_IN_NAMES = 3
# Bits per character; eight characters that repeat two or three have less.
_KEY_ENTROPY = 2.3

# ── keys of vendors ───────────────────────────────────────────────────────────────────────────────────────────────────


def keys(data: bytes) -> Iterator[Finding]:
    """Find keys of well-known vendors, and JSON web tokens."""
    anchors, by_text = _vendors()
    done = 0
    for start, end in anchors.spans(data):
        if start < done:
            continue
        for size, form in by_text[data[start:end]]:
            span = _key_at(data, start, start + size, form)
            if span is not None:
                yield Finding(*span, "API_KEY")
                done = span[1]
                break
    # Searched separately: a token without an end would make each search for a shorter key read to the end of the text.
    for start, end in _jwt().spans(data):
        if not data[max(0, start - 1) : start].isalnum():
            yield Finding(start, end, "API_KEY")


@cache
def _vendors() -> tuple[Linear, dict[bytes, list[tuple[int, KeyFormat]]]]:
    """Return the pattern of all fixed texts, and the key formats that each may belong to, longest text first."""
    rows = forms()
    texts = sorted(rows, key=len, reverse=True)
    by_text = {
        text: [
            (len(start), form)
            for start in texts
            if text.startswith(start)
            for form in rows[start]
            if start == text or form.before is None
        ]
        for text in texts
    }
    first = [text for text in texts if all(form.before is None for form in rows[text]) and text[:1].isalnum()]
    others = [text for text in texts if text not in first]
    pattern = rb"\b(?:" + b"|".join(map(re.escape, first)) + rb")|" + b"|".join(map(re.escape, others))
    return Linear(pattern), by_text


@cache
def _jwt() -> Linear:
    return Linear(_JWT)


def _key_at(data: bytes, start: int, end: int, form: KeyFormat) -> tuple[int, int] | None:
    after = form.after.match(data, end)
    if after is None:
        return None
    if form.before is not None:
        shift = max(0, start - form.longest_before - 1)
        before = form.before.search(data[shift:start])
        if before is None:
            return None
        start = shift + before.start()
    if form.worded and not _is_random_rest(after[0]):
        return None
    return start, after.end()


def _is_random_rest(rest: bytes) -> bool:
    in_one = not _SEPARATED.search(rest)
    if not FIGURE.search(rest) and not is_mixed(rest):
        return not rest or (in_one and len(rest) >= _LONGEST_WORD)
    if in_one or len(FIGURE.findall(rest)) > _FIGURES_IN_NAMES:
        return True
    words = _LETTERS.findall(rest)
    return sum(map(len, words)) <= _WORDY_AFTER_VENDOR * len(words)


def private_keys(data: bytes) -> Iterator[Finding]:
    """Find private keys in PEM format, complete or truncated."""
    for pattern in _pem_patterns():
        for start, end in pattern.spans(data):
            yield Finding(start, end, "PRIVATE_KEY")


@cache
def _pem_patterns() -> tuple[Linear, ...]:
    return Linear(_WHOLE_PEM), Linear(_CUT_PEM)


# ── headers and cookies ───────────────────────────────────────────────────────────────────────────────────────────────


def headers(data: bytes) -> Iterator[Finding]:
    """Find the value after `Bearer`, or after `Authorization:` and a scheme."""
    for pattern in (_BEARER, _AUTHORIZATION):
        for match in pattern.finditer(data):
            value = match[1]
            if data[match.end(1) : match.end(1) + 1] == b"(":
                continue
            if FIGURE.search(value) or (len(value) > 7 and value.endswith(b"=")) or is_mixed(value):
                yield Finding(*match.span(1), "BEARER_TOKEN")


_COOKIE = rb"(?i)\b(?:set-)?cookies?[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
_CRUMB = re.compile(rb"[ ]{0,2}([^\s=;,\"']{1,80})=[\"]?([^\s;,\"']{1,4096}+)[\"]?;?")
_SESSION = re.compile(
    rb"sess|sid(?![a-z])|token|auth|jwt|csrf|xsrf|login|remember|secret|credential|sso|identity|api_?key"
)
_NAMED_SESSION = (
    rb"(?i)\b(?:phpsessid|jsessionid|asp\.net_sessionid|aspsessionid\w{0,8}|connect\.sid|laravel_session|_gitlab_session|"
    rb"_session_id|sessionid|session_id|csrftoken|xsrf-token)=(?P<value>[^\s;,\"'&]{8,512})"
)
_ATTRIBUTES = frozenset(b"path domain expires max-age samesite version comment priority".split())


def cookies(data: bytes) -> Iterator[Finding]:
    """Find the values of session and login cookies."""
    header, session = _cookie_patterns()
    done = 0
    for start, end in header.spans(data):
        # A cookie's name may also be the name of a header; each is read once.
        crumb = _CRUMB.match(data, end) if start >= done else None
        while crumb is not None:
            name, value = crumb[1].lower(), crumb[2]
            if name not in _ATTRIBUTES and _SESSION.search(name) and _is_session(value):
                yield Finding(*crumb.span(2), "SESSION_COOKIE", 0.95)
            done = crumb.end()
            crumb = _CRUMB.match(data, crumb.end())
    for start, end in session.spans(data):
        if _is_session(data[start:end]):
            yield Finding(start, end, "SESSION_COOKIE", 0.95)


@cache
def _cookie_patterns() -> tuple[Linear, Linear]:
    return Linear(_COOKIE), Linear(_NAMED_SESSION)


def _is_session(value: bytes) -> bool:
    return len(value) >= _KEY_LENGTH and bool(FIGURE.search(value) or is_mixed(value)) and not CALL.match(value)


def is_mixed(value: bytes) -> bool:
    """Return whether upper and lower case alternate more than they do in words."""
    return len(value) >= 12 and sum(65 <= char <= 90 for char in value[1:]) >= 3 and not value.isupper()


# ── labelled values ───────────────────────────────────────────────────────────────────────────────────────────────────


# Placeholders, and values that say that there is no value.
PLACEHOLDER = re.compile(
    rb"[<\[({$%*].*|\W+|x{3,}|(?:your|my|the|example|sample|dummy|changeme|placeholder|redacted|hidden|masked)\b.*|your.*|"
    rb"(?:os|process|env|settings|config|self|var|secrets?|this|req|request|input|kwargs|args)[.\[(].*|"
    rb"required|optional|null|none|nil|true|false|undefined|string|str|int|bytes|bool|object|any|unknown|missing|invalid|"
    rb"incorrect|wrong|expired|empty|unset|default|reset|changed|protected|valid|correct|optional[.,]?|field|value|"
    rb"[\w.]*pass(?:w(?:or)?d|phrase)[a-z_.]*|n/a|todo|tbd|not|and|or|with|for|to|in|on|is|was|it|this|that|must|should|can|will|has|"
    rb"have|click|enter|please|see|use|set|here|below|above|same|still|also|only|just|too|very|what|how|why|where|when|"
    rb"which|then|weak|strong|forgotten|forgot|stored|encrypted|hashed|hash|plain|text|sent|needed|ready|allowed|saved|safe|"
    rb"secure|hidden|user|users|credentials?|acct|keys?|secret(?:str|bytes)",
    re.IGNORECASE,
)
# Code that reads the value from elsewhere.
CALL = re.compile(rb"[\w.]+[(\[]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|\$[{(]|%\(|\{\{|<%")


def is_random(value: bytes, *, named: bool) -> bool:
    """Return whether *value* is long and mixed enough to be a key; less is enough if it is *named* as one."""
    if len(value) < _KEY_LENGTH or not LETTER.search(value):
        return False
    if not FIGURE.search(value) and not is_mixed(value):
        return False
    if not named and len(value) < _LONG_KEY and len(_CHANGE.findall(value)) < 3:
        return False
    size = len(value)
    in_one = size >= _LONG_KEY and (value.islower() or value.isupper()) and not _SEPARATED.search(value)
    if size / len(_PARTS.findall(value)) > (_WORDY_IN_ONE if in_one else _WORDY):
        return False
    return -sum(count / size * log2(count / size) for count in Counter(value).values()) >= _KEY_ENTROPY


# ── files and commands ────────────────────────────────────────────────────────────────────────────────────────────────

# A user and a password in one: curl's -u, a line of .pgpass, a password in SQL, a hash of crypt(3).
_FILES: tuple[tuple[bytes, re.Pattern[bytes]], ...] = (
    (b"-u", re.compile(rb"(?:\s-u|--user)[ =][\"']?[^\s:\"']{1,64}:(?P<value>[^\s\"'@$<]{4,128})")),
    (b"identified", re.compile(rb"(?i)\bidentified by [\"'](?P<value>[^\"'\s]{4,128})[\"']")),
    (b"requirepass", re.compile(rb"\brequirepass[ \t]+(?P<value>\S{4,128})")),
    (
        b"543",
        re.compile(
            rb"(?m)^[A-Za-z0-9.*-]{1,200}:(?:5432|5433|6432):[^:\s]{1,64}:[^:\s]{1,64}:(?P<value>[^\s:]{4,128})$"
        ),
    ),
    (
        b"$",
        re.compile(rb"(?<![\w$])(?P<value>\$(?:apr1|1|2[abxy]|5|6|y|argon2id?|scrypt)\$[./A-Za-z0-9$=,+-]{20,200})"),
    ),
)


def files(data: bytes) -> Iterator[Finding]:
    """Find passwords in files and commands that do not label them: .pgpass, .htpasswd, `curl -u`, SQL."""
    for clue, pattern in _FILES:
        if clue in data or clue.upper() in data:
            for match in pattern.finditer(data):
                if not PLACEHOLDER.fullmatch(match["value"]) or clue == b"$":
                    yield Finding(*match.span("value"), "PASSWORD", 0.9)
