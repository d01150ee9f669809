"""Secrets: keys of known vendors, tokens in headers, passwords assigned in text, private keys."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import log2

from remit.detectors.linear import Linear
from remit.policy.verdict import Finding

# Each either has a fixed length or takes all that follows, so that no search reads on past what it finds.
_VENDORS = (
    rb"sk-ant-[A-Za-z0-9_-]{16,}",  # Anthropic
    rb"sk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}",  # OpenAI, OpenRouter, DeepSeek
    rb"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z2-7]{16}\b",  # AWS
    rb"gh[pousr]_[A-Za-z0-9]{30,}",  # GitHub
    rb"github_pat_[A-Za-z0-9_]{22,}",
    rb"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_.-]{20,}",  # GitLab
    rb"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}",  # Slack
    rb"xapp-\d-[A-Za-z0-9-]{10,}",
    rb"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    rb"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}",  # Stripe
    rb"whsec_[A-Za-z0-9+/=]{20,}",
    rb"AIza[A-Za-z0-9_-]{30,}",  # Google
    rb"ya29\.[A-Za-z0-9_-]{20,}",
    rb"GOCSPX-[A-Za-z0-9_-]{20,}",
    rb"\b(?:AC|SK)[0-9a-f]{32}\b",  # Twilio
    rb"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
    rb"npm_[A-Za-z0-9]{30,}",
    rb"pypi-[A-Za-z0-9_-]{32,}",
    rb"hf_[A-Za-z]{30,}",  # Hugging Face
    rb"(?:api_org|r8|gsk|xai|pplx|nvapi|lsv2_pt|lsv2_sk|tvly|fw|csk|co)[_-][A-Za-z0-9_]{28,}",  # other model hosts
    rb"dop_v1_[0-9a-f]{40,}",  # DigitalOcean
    rb"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",  # Shopify
    rb"dapi[0-9a-f]{32}",  # Databricks
    rb"key-[0-9a-f]{32}\b",  # Mailgun
    rb"\d{8,10}:AA[A-Za-z0-9_-]{32,}",  # Telegram
    rb"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
    rb"hvs\.[A-Za-z0-9_-]{24,}",  # Vault
    rb"figd_[A-Za-z0-9_-]{30,}",
    rb"lin_api_[A-Za-z0-9]{30,}",
    rb"ntn_[A-Za-z0-9]{40,}",
    rb"(?:NRAK|NRII)-[A-Za-z0-9]{20,}",  # New Relic
    rb"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}",  # Square
    rb"EAAA[A-Za-z0-9_-]{50,}",
    rb"AccountKey=[A-Za-z0-9+/=]{40,}",  # Azure
)
_JWT = rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"

_PEM = rb"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_WHOLE_PEM = _PEM + rb"[A-Za-z0-9+/=\s\\:,.()-]*?-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_CUT_PEM = _PEM + rb"(?:[\s\\nr]*[A-Za-z0-9+/=]{30,})+"

_BEARER = re.compile(rb"\b(?:bearer|token)[ \t]{1,4}([A-Za-z0-9._~+/-]{16,}={0,2})", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    rb"\bauthorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?:[a-z]{3,12}[ \t]{1,4})?([A-Za-z0-9._~+/=-]{8,})",
    re.IGNORECASE,
)

_ASSIGNED = re.compile(
    rb"(?:(?P<password>pass ?word|passwort|passwd|passphrase|(?<![a-z])pwd|contrase\xffa|mot de passe|"
    rb"(?<![a-z])pass(?=[\"']?[:=]))"
    rb"|(?P<key>api[ _-]?keys?|access[ _-]?keys?|secret[ _-]?(?:access[ _-]?)?keys?|private[ _-]?key|api[ _-]?secret|"
    rb"encryption[ _-]?key|signing[ _-]?key|account[ _-]?key|client[ _-]?secret|(?:access|auth|refresh|api)[ _-]?token)"
    rb"|(?P<word>secret|credentials?|token|session[ _-]?(?:id|key)))"
    rb"(?:[ _-]?(?:value|hash|key|id))?[\"'`]?\]?[ \t]{0,4}(?P<sign>=>|:=|=|:|(?<= )is )[ \t\r\n]{0,4}"
    rb"(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;\x80]{4,512})",
    re.IGNORECASE,
)
# Values that stand for a value, or say that there is none.
_PLACEHOLDER = re.compile(
    rb"[<\[({$%*].*|\W+|x{3,}|(?:your|my|the|example|sample|dummy|changeme|placeholder|redacted|hidden|masked)\b.*|your.*|"
    rb"(?:os|process|env|settings|config|self|var|secrets?|this|req|request|input|kwargs|args)[.\[(].*|"
    rb"required|optional|null|none|nil|true|false|undefined|string|str|int|bytes|bool|object|any|unknown|missing|invalid|"
    rb"incorrect|wrong|expired|empty|unset|default|reset|changed|protected|valid|correct|optional[.,]?|field|value|"
    rb"[\w.]*passw(?:or)?d[a-z_.]*|n/a|todo|tbd|not|and|or|with|for|to|in|on|is|was|it|this|that|must|should|can|will|has|have|click|enter|please|"
    rb"see|use|set|here|below|above|same|still|also|only|just|too|very|what|how|why|where|when|which|then|weak|strong|"
    rb"forgotten|forgot|stored|encrypted|hashed|hash|plain|text|sent|needed|ready|allowed|saved|safe|secure",
    re.IGNORECASE,
)
_FIGURE = re.compile(rb"\d")
_LETTER = re.compile(rb"[A-Za-z\xff]")
# Signs that words do not have inside.
_SIGN = re.compile(rb"[^0-9A-Za-z\xfe\xff_.,:;()\[\]/'-]")
# Code that takes the value from elsewhere.
_CALL = re.compile(rb"[\w.]+[(\[]")
_PARTS = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|\W")
_KEY_LENGTH = 8
# Shorter ones are names as well, `prod-db-1`, unless figures and letters change places more often.
_LONG_KEY = 16
_CHANGE = re.compile(rb"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")
# Letters a part, where the case changes or a figure comes: names in code have more, random text has less than two.
_WORDY = 3.2
# Bits a character: eight that repeat two or three have less.
_KEY_ENTROPY = 2.3


def keys(data: bytes) -> Iterator[Finding]:
    """Find keys of well-known vendors, and JSON web tokens."""
    for pattern in _key_patterns():
        for start, end in pattern.spans(data):
            if not data[max(0, start - 1) : start].isalnum():
                yield Finding(start, end, "API_KEY")


@cache
def _key_patterns() -> tuple[Linear, ...]:
    # Apart from the others: a token that never ends would make each search for a shorter key read to the end.
    return Linear(b"|".join(b"(?:%s)" % each for each in _VENDORS)), Linear(_JWT)


def private_keys(data: bytes) -> Iterator[Finding]:
    """Find private keys in PEM, whole or cut off."""
    for pattern in _pem_patterns():
        for start, end in pattern.spans(data):
            yield Finding(start, end, "PRIVATE_KEY")


@cache
def _pem_patterns() -> tuple[Linear, ...]:
    return Linear(_WHOLE_PEM), Linear(_CUT_PEM)


def headers(data: bytes) -> Iterator[Finding]:
    """Find what follows `Bearer`, or `Authorization:` and a scheme."""
    for pattern in (_BEARER, _AUTHORIZATION):
        for found in pattern.finditer(data):
            value = found[1]
            if _FIGURE.search(value) or (len(value) > 7 and value.endswith(b"=")) or _mixed(value):
                yield Finding(*found.span(1), "BEARER_TOKEN")


def _mixed(value: bytes) -> bool:
    """Whether small and capital letters change places as they do not in words."""
    return len(value) >= 12 and sum(65 <= char <= 90 for char in value[1:]) >= 3 and not value.isupper()


def assignments(data: bytes) -> Iterator[Finding]:
    """Find values of `password: …`, `api_key = …` and the like."""
    for found in _ASSIGNED.finditer(data):
        value = found["value"].rstrip(b".:)]}>!?") if not found["quote"] else found["value"]
        if len(value) < 4 or _PLACEHOLDER.fullmatch(value) or _CALL.match(value):
            continue
        if found["password"] is not None:
            kind, meant = "PASSWORD", _is_password(data, found, value)
        else:
            # In a URL the next parameter follows.
            value = value.partition(b"&")[0]
            kind, meant = "API_KEY", is_random(value, named=found["key"] is not None)
        if meant:
            yield Finding(found.start("value"), found.start("value") + len(value), kind, 0.9)


def _is_password(data: bytes, found: re.Match[bytes], value: bytes) -> bool:
    if _FIGURE.search(value) or _SIGN.search(value):
        return True
    if found["sign"].strip() == b"is":
        return False
    # A word by itself: quoted, or all that the line says.
    end = found.end()
    return bool(found["quote"]) or found["sign"] == b"=" or end >= len(data) or data[end : end + 1] in b"\r\n,;\"'"


def is_random(value: bytes, *, named: bool) -> bool:
    """Whether *value* is long and mixed enough to be a key; it need be less so if it is *named* as one."""
    if len(value) < _KEY_LENGTH or not _LETTER.search(value):
        return False
    if not _FIGURE.search(value) and not _mixed(value):
        return False
    if not named and len(value) < _LONG_KEY and len(_CHANGE.findall(value)) < 3:
        return False
    size = len(value)
    if size / len(_PARTS.findall(value)) > _WORDY:
        return False
    return -sum(count / size * log2(count / size) for count in Counter(value).values()) >= _KEY_ENTROPY
