"""Secrets: keys of known vendors, tokens in headers and cookies, values that are named as secrets, private keys."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from math import log2

from remit.detectors.linear import Linear
from remit.detectors.normal import spelled
from remit.detectors.vendors import KeyFormat, forms
from remit.policy.verdict import Finding

_JWT = rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"

_PEM = rb"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_WHOLE_PEM = _PEM + rb"[A-Za-z0-9+/=\s\\:,.()-]*?-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_CUT_PEM = _PEM + rb"(?:[\s\\nr]*[A-Za-z0-9+/=]{30,})+"

_BEARER = re.compile(rb"\b(?:bearer|token)[ \t]{1,4}([A-Za-z0-9._~+/-]{16,}={0,2})", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    rb"\bauthorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?:[a-z]{3,12}[ \t]{1,4})?([A-Za-z0-9._~+/=-]{8,})",
    re.IGNORECASE,
)

_FIGURE = re.compile(rb"\d")
_LETTER = re.compile(rb"[A-Za-z\x81-\xff]")
# Signs that words do not have inside.
_SIGN = re.compile(rb"[^0-9A-Za-z\x81-\xff_.,:;()\[\]/'-]")
_PARTS = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|\W")
_KEY_LENGTH = 8
# Shorter ones are names as well, `prod-db-1`, unless figures and letters change places more often.
_LONG_KEY = 16
_CHANGE = re.compile(rb"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")
# Letters a part, where the case changes or a figure comes: names in code have more, random text has less than two.
_WORDY = 3.2
# Of one case and without a separator inside, letters stand together longer by chance.
_WORDY_IN_ONE = 5
# What follows a vendor's own beginning is a name in code only if words are joined in it, with hardly a figure.
_SEPARATED = re.compile(rb"[-_.]")
_LETTERS = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WORDY_AFTER_VENDOR = 3
# No word is that long without a separator.
_LONGEST_WORD = 30
_FIGURES_IN_NAMES = 3
# Bits a character: eight that repeat two or three have less.
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
    # Apart from the others: a token that never ends would make each search for a shorter key read to the end.
    for start, end in _jwt().spans(data):
        if not data[max(0, start - 1) : start].isalnum():
            yield Finding(start, end, "API_KEY")


@cache
def _vendors() -> tuple[Linear, dict[bytes, list[tuple[int, KeyFormat]]]]:
    """Return the pattern of all fixed texts, and for each the forms that it may belong to, the longest text first."""
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
    if not _FIGURE.search(rest) and not _mixed(rest):
        return not rest or (in_one and len(rest) >= _LONGEST_WORD)
    if in_one or len(_FIGURE.findall(rest)) > _FIGURES_IN_NAMES:
        return True
    words = _LETTERS.findall(rest)
    return sum(map(len, words)) <= _WORDY_AFTER_VENDOR * len(words)


def private_keys(data: bytes) -> Iterator[Finding]:
    """Find private keys in PEM, whole or cut off."""
    for pattern in _pem_patterns():
        for start, end in pattern.spans(data):
            yield Finding(start, end, "PRIVATE_KEY")


@cache
def _pem_patterns() -> tuple[Linear, ...]:
    return Linear(_WHOLE_PEM), Linear(_CUT_PEM)


# ── headers and cookies ───────────────────────────────────────────────────────────────────────────────────────────────


def headers(data: bytes) -> Iterator[Finding]:
    """Find what follows `Bearer`, or `Authorization:` and a scheme."""
    for pattern in (_BEARER, _AUTHORIZATION):
        for found in pattern.finditer(data):
            value = found[1]
            if data[found.end(1) : found.end(1) + 1] == b"(":
                continue
            if _FIGURE.search(value) or (len(value) > 7 and value.endswith(b"=")) or _mixed(value):
                yield Finding(*found.span(1), "BEARER_TOKEN")


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
    """Find the values of cookies that stand for a session or a login."""
    header, session = _cookie_patterns()
    done = 0
    for start, end in header.spans(data):
        # A name in a header may be one of a header as well: each is read once.
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
    return len(value) >= _KEY_LENGTH and bool(_FIGURE.search(value) or _mixed(value)) and not _CALL.match(value)


def _mixed(value: bytes) -> bool:
    """Whether small and capital letters change places as they do not in words."""
    return len(value) >= 12 and sum(65 <= char <= 90 for char in value[1:]) >= 3 and not value.isupper()


# ── values that are named ─────────────────────────────────────────────────────────────────────────────────────────────

_PASSWORDS = (
    "password",
    "pass word",
    "passwort",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "contraseña",
    "mot de passe",
    "senha",
    "hasło",
    "hasła",
    "hasłem",
    "wachtwoord",
    "lösenord",
    "parola d'ordine",
    "parolă",
    "kennwort",
    "şifre",
    "heslo",
    "salasana",
    "adgangskode",
    "jelszó",
    "пароль",
    "паролем",
    "пароля",
    "密码",
    "密碼",
    "パスワード",
    "暗証番号",
    "비밀번호",
)


@cache
def _names() -> Linear:
    words = sorted({re.escape(spelled(word)) for word in _PASSWORDS}, key=len, reverse=True)
    keys = rb"pass\b|pw\b|key|token|secret|credential|auth|session|cookie|pat\b|jwt|cert"
    return Linear(rb"(?i)(?:" + b"|".join(words) + b"|" + keys + rb")")


_PASSWORD = re.compile(b"|".join(re.escape(spelled(word)) for word in _PASSWORDS) + rb"|pass|pw")
_NAME_BEFORE = re.compile(rb"[A-Za-z0-9_.$\x81-\xff-]{0,40}\Z")
# The rest of a name, what closes it, a type, a sign, what opens the value.
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
# Values that stand for a value, or say that there is none.
_PLACEHOLDER = re.compile(
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
# Code that takes the value from elsewhere.
_CALL = re.compile(rb"[\w.]+[(\[]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|\$[{(]|%\(|\{\{|<%")
_CAMEL = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])|[_.\- $]+")
# Keys that open nothing.
_HARMLESS = frozenset(
    b"primary foreign cache sort partition public registry dict hash unique idempotency max min num "
    b"count next page eos bos "
    b"pad cls sep mask unk csrf author authors keyword keywords keyboard monkey tokens tokenizer "
    b"tokenize keys host column "
    b"index field map group row order version type name names".split()
)
_NAMING = frozenset(
    b"key token secret secrets credential credentials auth pat jwt apikey apikeys accesskey "
    b"secretkey privatekey authkey authtoken "
    b"accesstoken apitoken clientsecret appsecret appkey apisecret authorization sharedkey masterkey signingkey".split()
)
# A name of a call whose first argument is the name of a setting: `define('DB_PASSWORD', 'hunter2')`.
_SETTING = re.compile(rb"\w\([ ]?[\"'][\w.-]{0,60}\Z")
# What no key has inside: addresses, code, patterns, what was cut out.
_NO_KEY = re.compile(rb"://|[|(){}]|\.\.|^urn:|^/[a-z]|=[^=]|^0x|\bself\.")
_COMMAND = re.compile(rb"(?:^|[\s\"'`\[,])--?[\w-]{0,40}\Z")
_NETRC = re.compile(rb"\blogin\s+\S{1,128}\s+\Z", re.IGNORECASE)
_TAG = re.compile(rb"<[\w:.-]{0,60}\Z")
_SPOKEN = re.compile(rb"s?(?:,? |: |[\x80-\xff]{1,3}[: ]{0,2})")
_SPOKEN_WORD = re.compile(rb"[^\s\"'`,;<>()\x80]+")
_ENDS_SENTENCE = re.compile(rb"[a-z]{2,}[.!?]")
# How many words a sentence may have between the word for a secret and the secret.
_WORDS_TO_KEY = 8
_WORDS_TO_PASSWORD = 6


# What stands before the word for a secret in a name, a command or a tag.
_LONGEST_NAME = 72
_PARAMETER = re.compile(rb"[?&][\w.-]{0,40}\Z")
_NAME = re.compile(rb"[A-Za-z_]\w*")
# Code goes on: a call, an item, an attribute.
_USED = re.compile(rb"[(\[]|\.[A-Za-z_]")
_VERBS = frozenset({b"", *b"is was ist lautet es est e jest to to: era brzmi".split()})
_LINE_BEGINS = re.compile(rb"(?:\A|\n)[ \t]*(?:export |set |\$)?[\w.-]{0,40}\Z")


def assignments(data: bytes) -> Iterator[Finding]:
    """Find values of `password: …`, `api_key = …`, `with the key …` and the like."""
    done = 0
    for start, end in _names().spans(data):
        if start < done:
            continue
        found = _assigned(data, start, end)
        if found is not None:
            yield found
            done = found.end


def _assigned(data: bytes, start: int, end: int) -> Finding | None:
    hit = data[start:end].lower()
    is_password = _PASSWORD.fullmatch(hit) is not None
    found = _ASSIGNED.match(data, end)
    if found is None:
        return None if len(hit) < 3 or hit == b"pass" else _find_named_secret(data, end, is_password=is_password)
    before = data[max(0, start - _LONGEST_NAME) : start]
    if is_password and not _is_whole(before, hit, found["rest"]):
        return None
    sign, quote = found["sign"].strip(), found["quote"] or b""
    if b")" in found["closed"] or (
        hit in {b"pass", b"pw"} and (sign in _VERBS or sign[:1] >= b"\x80") and not _COMMAND.search(before)
    ):
        return None
    if not sign and not found["typed"] and not _COMMAND.search(before):
        if is_password and _NETRC.search(data[max(0, start - 200) : start]):
            return _value(data, _BARE, found.end(), "PASSWORD")
        return None if len(hit) < 3 or hit == b"pass" else _find_named_secret(data, end, is_password=is_password)
    if (sign == b">" and not _TAG.search(before)) or (
        sign == b"," and (found["rest"] or not found["closed"] or not _SETTING.search(before))
    ):
        return None
    value = (_QUOTED if quote else _BARE).match(data, found.end())
    if value is None:
        return None
    text = value[0] if quote else value[0].rstrip(b".:)]}>?" if is_password else b".:)]}>!?")
    if b"&" in text and (not is_password or _PARAMETER.search(before)):
        # In a URL the next parameter follows.
        text = text.partition(b"&")[0]
    if len(text) < 4 or _PLACEHOLDER.fullmatch(text) or _CALL.match(text):
        return None
    if is_password:
        kind, meant = "PASSWORD", _is_password(data, before, found, value.start(), text)
    elif hit == b"auth" and not found["rest"] and quote and _is_basic(text):
        kind, meant = "PASSWORD", True
    else:
        kind, meant = "API_KEY", _is_key(before, data[start:end], found["rest"], text)
    if not meant:
        return None
    return Finding(value.start(), value.start() + len(text), kind, 0.9)


def _is_whole(before: bytes, hit: bytes, rest: bytes) -> bool:
    """Whether a word for a password is a word of its own, or part of a name that is joined of several."""
    if rest[:1].islower() and rest[:2] not in {b"s", b"s_", b"s-"}:
        return False
    return len(hit) > 4 or not before[-1:].isalpha() or (len(hit) > 2 and before[-2:] in {b"db", b"DB"})


def _value(data: bytes, pattern: re.Pattern[bytes], place: int, kind: str) -> Finding | None:
    value = pattern.match(data, place)
    return None if value is None else Finding(*value.span(), kind, 0.9)


def _is_key(before: bytes, hit: bytes, rest: bytes, value: bytes) -> bool:
    """Whether a name says that its value is a key, and the value may be one."""
    begun = _NAME_BEFORE.search(before)
    words = _CAMEL.sub(b" ", (begun[0] if begun else b"") + hit + rest).lower().split()
    if not _NAMING.intersection(words[-2:]) and not (b"session" in words and len(words) > 1):
        return False
    if _NO_KEY.search(value):
        return False
    # `GRAFANA_TOKEN` says more than `token`, and `cache_key` less.
    named = len(words) > 1 and b"session" not in words and not _HARMLESS.intersection(words)
    return is_random(value, named=named)


def _is_password(data: bytes, before: bytes, found: re.Match[bytes], start: int, value: bytes) -> bool:
    sign, quote = found["sign"], found["quote"] or b""
    next_to = data[start + len(value) : start + len(value) + 1]
    if sign.strip() == b">":
        return next_to == b"<"
    if sign.strip() == b"," or (sign.strip() and _COMMAND.search(before)):
        return True
    if _FIGURE.search(value) or _SIGN.search(value):
        return not (_NAME.fullmatch(value) and _USED.match(data, start + len(value)))
    if sign.strip() in _VERBS or sign.strip()[:1] >= b"\x80":
        return False
    # A word by itself: quoted, or all that the line says.
    if quote:
        return True
    if b"_" in value or (next_to and next_to in b")("):
        return False
    if sign.strip() == b"=":
        return sign == b"=" or _LINE_BEGINS.search(before) is not None
    return next_to in b"\r\n,;\"'<"


def _is_basic(value: bytes) -> bool:
    """Whether *value* is a user and a password in base64."""
    try:
        return b":" in b64decode(value, validate=True)
    except NotBase64:
        return False


def _find_named_secret(data: bytes, end: int, *, is_password: bool) -> Finding | None:
    """Find what a sentence calls a key or a password: within a few words, and random enough to be no word."""
    line = data[end : end + 240].partition(b"\n")[0]
    begun = _SPOKEN.match(line)
    # Part of a longer word, such as `keyboard`.
    if begun is None:
        return None
    most = _WORDS_TO_PASSWORD if is_password else _WORDS_TO_KEY
    for nth, word in enumerate(islice(_SPOKEN_WORD.finditer(line, begun.end()), most)):
        value = word[0].rstrip(b".:]}>?" if is_password else b".:]}>!?*").lstrip(b"[{")
        if _is_spoken_password(value, nth) if is_password else _is_spoken_key(value):
            if _PLACEHOLDER.fullmatch(value) or _CALL.match(value) or _NO_KEY.search(value):
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


# A word and a few figures are a password only right after the word for it: `password hunter2`.
_WORD_AND_FIGURES = re.compile(rb"[A-Za-z]{4,}\d{1,4}")
_NEXT_WORDS = 3


def _is_spoken_password(value: bytes, nth: int) -> bool:
    figure, letter, sign = (pattern.search(value) is not None for pattern in (_FIGURE, _LETTER, _SIGN))
    if not (figure and letter) or len(value) < 5:
        return False
    if sign:
        return True
    if _WORD_AND_FIGURES.fullmatch(value):
        return nth < _NEXT_WORDS and not _KNOWN_TERM.match(value)
    return len(value) > 5 and not _TERM.fullmatch(value)


def _is_spoken_key(value: bytes) -> bool:
    if not _FIGURE.search(value) and not (len(value) >= 20 and _mixed(value)):
        return False
    return not _TERM.fullmatch(value) and is_random(value, named=False)


def is_random(value: bytes, *, named: bool) -> bool:
    """Whether *value* is long and mixed enough to be a key; it need be less so if it is *named* as one."""
    if len(value) < _KEY_LENGTH or not _LETTER.search(value):
        return False
    if not _FIGURE.search(value) and not _mixed(value):
        return False
    if not named and len(value) < _LONG_KEY and len(_CHANGE.findall(value)) < 3:
        return False
    size = len(value)
    in_one = size >= _LONG_KEY and (value.islower() or value.isupper()) and not _SEPARATED.search(value)
    if size / len(_PARTS.findall(value)) > (_WORDY_IN_ONE if in_one else _WORDY):
        return False
    return -sum(count / size * log2(count / size) for count in Counter(value).values()) >= _KEY_ENTROPY


# ── files and commands ────────────────────────────────────────────────────────────────────────────────────────────────

# A user and a password in one: curl's -u. A line of .pgpass. A password in SQL. A hash of crypt's.
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
    """Find passwords in the files and commands that give them no name: .pgpass, .htpasswd, `curl -u`, SQL."""
    for clue, pattern in _FILES:
        if clue in data or clue.upper() in data:
            for found in pattern.finditer(data):
                if not _PLACEHOLDER.fullmatch(found["value"]) or clue == b"$":
                    yield Finding(*found.span("value"), "PASSWORD", 0.9)
