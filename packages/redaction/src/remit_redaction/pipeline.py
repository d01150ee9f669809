"""Runs all detectors: a quick scan passes harmless text, and selects the detectors to run on the rest.

Importing this module loads no patterns: the detectors are loaded when a text first needs them.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from remit.installed import brought
from remit.policy.redaction import KIND, TOKEN
from remit.policy.verdict import Detector, Finding
from remit_redaction.linear import Linear
from remit_redaction.normal import BLANK, NormalizedText, as_ascii, hidden, normalized

KINDS: dict[str, str] = {
    "EMAIL": "E-mail addresses, also with plus signs, quoted names and letters of all scripts.",
    "PHONE": "Telephone numbers: with + or 00, as the regions write them, or where words speak of telephones.",
    "CREDIT_CARD": "Payment cards: an issuer's prefix and length, and the right check digit.",
    "IBAN": "International bank account numbers: a country's length, and the right check digits.",
    "SSN": "US social security numbers: 3-2-4 digits, or nine where words say so.",
    "ITIN": "US taxpayer numbers of people without an SSN: 3-2-4 digits from 900 on.",
    "SIN": "Canadian social insurance numbers: 3-3-3 digits, or nine where words say so, and the right check digit.",
    "NHS_NUMBER": "UK health service numbers, where words say so, with the right check digit.",
    "NINO": "UK national insurance numbers, where words say so.",
    "NATIONAL_ID": "Personal numbers of some 60 countries (PESEL, Aadhaar, CPF, DNI, …), checked, "
    "and named or sure by shape.",
    "TAX_ID": "Tax, VAT and company numbers of some 60 countries (NIP, PAN, CNPJ, …), checked, and "
    "named or sure by shape.",
    "BANK_CODE": "Routing numbers, sort codes, BSB, IFSC and the like, where words say so.",
    "BANK_ACCOUNT": "National account numbers: NRB, CLABE, CBU, CCC by check digits, others where words say so.",
    "PASSPORT": "Passport numbers, where words say so.",
    "DRIVER_LICENSE": "Driving licence numbers, where words say so.",
    "IP": "IPv4 and IPv6 addresses; not loopback, and not versions.",
    "MAC": "Addresses of network cards.",
    "BTC_ADDRESS": "Bitcoin addresses with the right checksum.",
    "API_KEY": "Keys of known vendors, JSON web tokens, and random values of `api_key`, `secret`, `token`.",
    "PASSWORD": "Values of `password`, `passphrase` and the like.",
    "BEARER_TOKEN": "What follows `Bearer`, or `Authorization:` and a scheme.",
    "URL_CREDENTIALS": "User and password in `scheme://user:password@host`.",
    "PRIVATE_KEY": "Private keys in PEM, whole or cut off.",
    "SESSION_COOKIE": "Values of cookies that stand for a session or a login.",
    "DOMAIN": "Names of hosts and domains; only if it is asked for.",
}
"""All built-in kinds and what each finds."""

OPTIONAL: frozenset[str] = frozenset({"DOMAIN"})
"""Kinds that are detected only if they are configured."""

# A number without a country code must be valid in one of these regions.
DEFAULT_REGIONS: tuple[str, ...] = (
    "US", "GB", "DE", "FR", "ES", "IT", "NL", "BE", "CH", "AT", "SE", "NO", "DK", "FI", "PL", "CZ", "PT", "IE", "AU",
    "NZ", "IN", "BR", "MX", "AR", "ZA", "JP", "KR", "CN", "IL", "TR", "RU", "UA",
)  # fmt: skip


_HALF = re.compile("[\ud800-\udfff]")

_Part = Callable[[bytes], Iterable[Finding]]
_Row = tuple[int, frozenset[str], _Part]
_SECRETS = frozenset({"URL_CREDENTIALS", "API_KEY", "PRIVATE_KEY", "BEARER_TOKEN", "PASSWORD", "SESSION_COOKIE"})

# ── the quick scan ────────────────────────────────────────────────────────────────────────────────────────────────────

_AT, _NUMBERS, _DOTS, _COLONS, _LONG, _WORDS, _PAPERS, _PEM, _LETTERED, _ANY = (1 << bit for bit in range(10))

_FIGURE, _SIGN, _AT_SIGN, _DASH = b"0:@-"


def _character_class(char: int) -> int:
    """Return the class of a character: part of a number, an assignment, an address, a key or an escape; else a
    space.
    """
    if chr(char) in "0123456789":
        return _FIGURE
    if chr(char) in ":=_":
        return _SIGN
    return char if chr(char) in "@-./%&\\" else 0x20


_SORTS = bytes(map(_character_class, range(256)))
# Characters of keys and tokens are mapped to one letter, so that a long key shows as a run of it.
_WOVEN = bytes(0x61 if (chr(char).isalnum() and char < 128) or char in b"_-.+/=~" else 0x20 for char in range(256))
# The shortest vendor key has a prefix and ten more characters.
_LONG_WORD = b"a" * 15
_SECRET_WORDS = (
    "pass", "key", "token", "secret", "pwd", "auth", "credential", "bearer", "session", "cookie", "contra",
    "identified", "_pat", "pw", "haslo", "hasla", "hasle", "senha", "kennw", "wachtw", "parol", "losen", "sifre",
    "heslo", "salasana", "adgang", "jelszo", "papol", "-u ", "sid=",
)  # fmt: skip
# In so short a text, one pattern is found in a third of the time of all words one after another.
_FEW_CHARACTERS = 40
_has_secret_word = re.compile("|".join(map(re.escape, _SECRET_WORDS))).search
_PHONE_WORDS = (
    "phone", "call", "tel", "fax", "mobil", "reach", "contact", "cell", "message", "regist", "desk", "answer",
    "code", "bsb",
)  # fmt: skip
_MONTH = b"0000-00"
_PAPER_WORDS = (
    "licen", "pass", "insurance", "nino", "ni n", "dl", "paszp", "pasap", "pasp", "fuhrer", "permi", "carnet",
    "patente", "carte", "jazdy", "dowod", "ausweis", "rijbew", "korkort", "ridic", "pacpo", "identi", "id card",
    "cnh", "ehliyet", "utlevel", "pas ",
)  # fmt: skip


_is_short_and_harmless = re.compile("(?!.*(?:[Pp]ass| is ))[A-Za-z ]*[0-9]{0,4}[A-Za-z ]*").fullmatch
# A longer text seldom holds only amounts, and looking for them is in vain.
_SHORT = 1_000
# No number has such a word in it.
_WORD = re.compile(rb"\b[A-Za-z]{5,}\b")
# A tax number of India has but four figures.
_lettered_number = re.compile("[A-Za-z]{5}[0-9]{4}[A-Za-z]")
_FOUR_FIGURES = b"0000"


def _quick_scan(text: str) -> int:
    """Return which detectors have a reason to run on a plain text; 0 for most texts, in about a microsecond."""
    data = text.encode() if text.isascii() else text.encode("latin-1")
    sorts = data.translate(_SORTS)
    if sorts.isspace():
        # The only vendor whose keys may consist of letters alone.
        return _LONG if "AKIA" in text else 0
    figures = sorts.count(_FIGURE)
    clues = 0
    may_be_number = figures > 3 and (figures != 6 or sorts.find(_MONTH) < 0)
    if may_be_number and not (figures > 4 and _are_amounts(text, data, sorts)):
        clues = _glance_at_figures(text, sorts, figures)
    long = len(data) > 14 and data.translate(_WOVEN).find(_LONG_WORD) >= 0
    if long:
        clues |= _LONG
    if _AT_SIGN in sorts:
        clues |= _AT
    if _DASH in sorts and "-----B" in text:
        clues |= _PEM
    sign = _SIGN in sorts
    if sign and text.count(":") > 1:
        clues |= _COLONS
    if long or sign or figures or "password" in text:
        if not text.isascii():
            # Words of other scripts are left to the detectors that know them.
            return clues | _WORDS
        low = text.lower()
        if len(low) < _FEW_CHARACTERS:
            return clues | _WORDS if _has_secret_word(low) else clues
        for word in _SECRET_WORDS:
            if word in low:
                return clues | _WORDS
    return clues


def _are_amounts(text: str, data: bytes, sorts: bytes) -> bool:
    """Return whether a short text has at most four figures between any two of its words, as amounts and years have."""
    if len(data) > _SHORT or _AT_SIGN in sorts or not data.isascii():
        return False
    for part in _WORD.sub(b"@", data).translate(_SORTS).split(b"@"):
        if part.count(_FIGURE) > 4 or part.count(b".") > 2:
            return False
    return not _has_lettered_number(text, sorts)


def _has_lettered_number(text: str, sorts: bytes) -> bool:
    # Four figures in a row are found in a tenth of the time of the pattern.
    return sorts.find(_FOUR_FIGURES) >= 0 and _lettered_number.search(text) is not None


def _glance_at_figures(text: str, sorts: bytes, figures: int) -> int:
    clues = _DOTS if sorts.count(b".") > 2 else 0
    if figures < 5:
        return clues | _LETTERED if _has_lettered_number(text, sorts) else clues
    low = text.lower()
    if figures > 6:
        clues |= _NUMBERS
    elif figures == 6:
        for word in _PHONE_WORDS:
            if word in low:
                clues |= _NUMBERS
                break
    if not text.isascii():
        return clues | _PAPERS
    for word in _PAPER_WORDS:
        if word in low:
            return clues | _PAPERS
    return clues


# ── the full scan ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _Look:
    """Which detectors find which kinds, and what makes each of them run; loaded on first use."""

    def __init__(self, kinds: frozenset[str], regions: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.regions = regions
        self._parts: list[tuple[int, _Part]] | None = None

    def __call__(self, data: bytes, clues: int) -> Iterator[Finding]:
        if self._parts is None:
            # A team file is searched for secrets alone: the tables of numbers take a megabyte.
            rows = _secret_parts() if self.kinds <= _SECRETS else (*_secret_parts(), *_personal_parts(self.regions))
            self._parts = [(cause, part) for cause, kinds, part in rows if not self.kinds.isdisjoint(kinds)]
        for cause, part in self._parts:
            if cause & clues:
                for finding in part(data):
                    if finding.kind in self.kinds:
                        yield finding


@cache
def _secret_parts() -> tuple[_Row, ...]:
    from remit_redaction import addresses, credentials, named_secrets

    return (
        (_AT, frozenset({"URL_CREDENTIALS"}), addresses.url_credentials),
        (_LONG, frozenset({"API_KEY"}), credentials.keys),
        (_PEM, frozenset({"PRIVATE_KEY"}), credentials.private_keys),
        (_WORDS, frozenset({"BEARER_TOKEN"}), credentials.headers),
        (_WORDS, frozenset({"API_KEY", "PASSWORD"}), named_secrets.assignments),
        (_WORDS | _COLONS | _LONG, frozenset({"PASSWORD"}), credentials.files),
        (_WORDS, frozenset({"SESSION_COOKIE"}), credentials.cookies),
    )


@cache
def _personal_parts(regions: tuple[str, ...]) -> tuple[_Row, ...]:
    from remit_redaction import accounts, addresses, national, numbers
    from remit_redaction.phones import Plan

    of_people = frozenset({"CREDIT_CARD", "SSN", "ITIN", "SIN", "NHS_NUMBER", "PHONE"})
    of_countries = frozenset({"NATIONAL_ID", "TAX_ID", "BANK_CODE", "BANK_ACCOUNT"})
    return (
        (_AT, frozenset({"EMAIL"}), addresses.emails),
        (_NUMBERS, of_people, partial(numbers.numbers, plan=Plan(regions))),
        (_NUMBERS, frozenset({"IBAN"}), accounts.ibans),
        (_NUMBERS | _LETTERED, of_countries, national.numbers),
        (_DOTS, frozenset({"IP"}), addresses.ipv4),
        (_COLONS, frozenset({"IP"}), addresses.ipv6),
        (_COLONS | _LONG, frozenset({"MAC"}), addresses.macs),
        (_LONG, frozenset({"BTC_ADDRESS"}), accounts.bitcoin),
        (_ANY, frozenset({"DOMAIN"}), addresses.domains),
        (_PAPERS, frozenset({"PASSPORT", "DRIVER_LICENSE", "NINO"}), accounts.identity_documents),
    )


# One example of each kind whose detector is loaded on first use.
_WARM = "password: call +49 30 1234567 or 020 7946 0018, 10.1.2.3, a::b, a@b.example, passport 123456789 " + "a1" * 10


# ── all together ──────────────────────────────────────────────────────────────────────────────────────────────────────


def detector_pipeline(
    *,
    kinds: Collection[str] | None = None,
    extra: Sequence[Detector] = (),
    patterns: Mapping[str, str] = {},
    regions: Sequence[str] = DEFAULT_REGIONS,
) -> Detector:
    """Return a detector of the built-in *kinds* (None: all but the optional ones), of *patterns*, and of *extra*
    detectors, with those that plugins bring.

    Its findings are sorted and do not overlap. Overlapping findings are merged into one, with the kind of the longest,
    or of the most certain among the longest. Nothing is found inside a token. *patterns* are RE2 patterns by kind; a
    group named `value` narrows the finding. Exceptions of an extra detector are not caught.

    Raises ValueError for an invalid kind, region or pattern.
    """
    extra = [*extra, *(each for bring in brought("detectors") for each in bring())]
    wanted = _check_kinds(kinds)
    look = _Look(wanted, _planned(regions))
    compiled = [(kind, _compile(kind, pattern)) for kind, pattern in patterns.items()]
    # Optional kinds have no character that the quick scan could look for, so every text is searched for them.
    everywhere = _ANY if wanted & OPTIONAL else 0
    own = bool(compiled or extra or everywhere)

    def detect(text: str) -> Sequence[Finding]:
        # Most texts are only words, or a few words and a small number, and each hop has two. So this check comes first,
        # without a function call.
        if not own:
            if len(text) < 15:
                if text.isalpha() or _is_short_and_harmless(text):
                    return ()
            elif text.isascii() and text.encode().translate(_SORTS).isspace() and "AKIA" not in text:
                return ()  # AKIA: the only vendor whose keys may consist of letters alone; they are longer than fifteen
        clues = _quick_scan(as_ascii(text)) | everywhere
        escaped = hidden(text)
        if not clues and not own and escaped is None:
            return ()
        seen = normalized(text)
        tokens = _tokens(text)
        findings = list(_findings_of(look, seen, tokens, clues))
        if escaped is not None:
            findings += _findings_of(look, escaped, tokens, _quick_scan(escaped.data.decode("latin-1")) | everywhere)
        if compiled:
            findings += _find_patterns(compiled, text, seen)
        for detector in extra:
            findings += _cut_to_text(detector(text), len(text))
        if not findings:
            return ()
        settled = _merge_overlaps(findings)
        return list(_outside_tokens(settled, tokens)) if tokens else settled

    def warm() -> None:
        """Load the detectors now: it takes a quarter of a second, for which the first text would have to wait."""
        detect(_WARM)

    detect.warm = warm  # pyright: ignore[reportFunctionMemberAccess]
    # A finding of a built-in kind that spans several words always contains a digit or a sign; streams rely on that.
    detect.signed = not own  # pyright: ignore[reportFunctionMemberAccess]
    return detect


def _findings_of(look: _Look, seen: NormalizedText, tokens: Sequence[tuple[int, int]], clues: int) -> Iterator[Finding]:
    for finding in look(_blank_tokens(seen, tokens), clues):
        yield Finding(*seen.span(finding.start, finding.end), finding.kind, finding.score)


def _check_kinds(kinds: Collection[str] | None) -> frozenset[str]:
    if kinds is None:
        return frozenset(KINDS) - OPTIONAL
    unknown = sorted(set(kinds) - KINDS.keys())
    if unknown:
        raise ValueError(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return frozenset(kinds)


def _planned(regions: Sequence[str]) -> tuple[str, ...]:
    if regions is not DEFAULT_REGIONS:
        from remit_redaction.phones import Plan

        _ = Plan(regions).automaton  # an unknown region is reported now
    return tuple(regions)


def _tokens(text: str) -> list[tuple[int, int]]:
    """Return the spans of redaction tokens."""
    if "[" not in text:
        return []
    return [match.span() for match in TOKEN.finditer(text)]


def _blank_tokens(seen: NormalizedText, tokens: Sequence[tuple[int, int]]) -> bytes:
    """Return the bytes with tokens blanked out, so that nothing is found in or across them."""
    if not tokens:
        return seen.data
    data = bytearray(seen.data)
    for start, end in tokens:
        if seen.places is not None:
            start, end = bisect_left(seen.places, start), bisect_left(seen.places, end)
        data[start:end] = BLANK * (end - start)
    return bytes(data)


def _outside_tokens(findings: Sequence[Finding], tokens: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield the parts of each finding outside the tokens; both must be sorted and without overlaps."""
    place = 0
    for finding in findings:
        while place < len(tokens) and tokens[place][1] <= finding.start:
            place += 1
        start = finding.start
        for begin, end in _until(tokens, place, finding.end):
            if begin > start:
                yield finding._replace(start=start, end=begin)
            start = end
        if start < finding.end:
            yield finding._replace(start=start)


def _until(tokens: Sequence[tuple[int, int]], place: int, end: int) -> Iterator[tuple[int, int]]:
    while place < len(tokens) and tokens[place][0] < end:
        yield tokens[place]
        place += 1


def _merge_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Merge overlapping findings into one that covers all of them."""
    settled: list[Finding] = []
    best: Finding | None = None
    start = end = 0
    for finding in sorted(findings):
        if best is not None and finding.start < end:
            best = max(best, finding, key=_weight)
            end = max(end, finding.end)
            continue
        if best is not None:
            settled.append(best._replace(start=start, end=end))
        best, start, end = finding, finding.start, finding.end
    if best is not None:
        settled.append(best._replace(start=start, end=end))
    return settled


def _weight(finding: Finding) -> tuple[int, float, int, str]:
    return finding.end - finding.start, finding.score, -finding.start, finding.kind


# ── patterns of the team ──────────────────────────────────────────────────────────────────────────────────────────────


def _compile(kind: str, pattern: str) -> Linear:
    if KIND.fullmatch(kind) is None:
        raise ValueError(f"the kind {kind!r} is not written in capitals, figures and underscores, such as EMPLOYEE_ID")
    try:
        compiled = Linear(pattern)
    except ValueError as error:
        raise ValueError(f"the pattern for {kind} is not one of RE2's: {error}") from error
    if compiled.matches(""):
        raise ValueError(f"the pattern for {kind} matches the empty string: {pattern!r}")
    return compiled


def _find_patterns(compiled: Sequence[tuple[str, Linear]], text: str, seen: NormalizedText) -> Iterator[Finding]:
    """Find a team's patterns, both in the original text and in its normalised form."""
    # RE2 reads UTF-8, which cannot contain half of a surrogate pair.
    readable = text if text.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", text)
    for kind, pattern in compiled:
        for start, end in pattern.spans(readable):
            yield Finding(start, end, kind)
        if not text.isascii():
            for start, end in pattern.spans(seen.data.decode("latin-1")):
                yield Finding(*seen.span(start, end), kind)


def _cut_to_text(findings: Iterable[Finding], length: int) -> Iterator[Finding]:
    """Yield the findings of extra detectors, limited to the text."""
    for finding in findings:
        start, end = max(finding.start, 0), min(finding.end, length)
        if start < end:
            yield Finding(start, end, finding.kind, finding.score)
