"""Replaces personal data and secrets with tokens before a callee sees them, and restores them for their holders."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from operator import is_
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.verdict import ALLOW, Allow, Detector, Facts, Finding, Rewrite, Sealing
from remit.protocol.conditions import ValueBounds
from remit.protocol.envelope import (
    Artifact,
    ContextFilter,
    Handoff,
    Handover,
    Json,
    Message,
    Note,
    Request,
    Response,
    Source,
    ToolFinding,
    View,
)
from remit.protocol.errors import Code, Fault, Origin, Problem, RemitError, SourceLine, fault
from remit.protocol.files import MAX_FILE_BYTES, MAX_FILE_NAME, MAX_URL, File
from remit.protocol.records import Approval, Delta, Notice, Progress, Refusal, ToolUse
from remit.protocol.remit import MAX_INTEGER, Remit

T = TypeVar("T")

Raw = str | int
Held = Mapping[str, Raw]
"""Raw values by their tokens."""

# Letters alone, and no vowels: no token can look like a number, a key or a word.
_ALPHABET = "bcdfghjklmnpqrstvwxz"
_LENGTH = 12
# A kind with five digits or more is invalid: a fake token could carry a number past all detectors.
KIND = re.compile(r"(?!(?:[A-Z_]{0,31}[0-9]){5})[A-Z][A-Z0-9_]{0,31}")
TOKEN = re.compile(rf"\[({KIND.pattern}):([{_ALPHABET}]{{{_LENGTH}}})\]")
_LONGEST_TOKEN = len("[:]") + 32 + _LENGTH

# The fields that hold texts of agents and people; all others are names, numbers and ids.
TEXT_FIELDS: dict[type[Struct], tuple[str, ...]] = {
    Request: ("objective", "input", "handoff", "context", "view", "hints", "reason", "files", "remit", "handover"),
    Remit: ("tools",),  # the conditions on their arguments
    ValueBounds: ("in_", "not_in", "under"),
    View: ("messages", "summary", "workspace", "known"),
    Message: ("text",),
    Note: ("text",),
    Handoff: (
        "original_request",
        "position",
        "prior_outputs",
        "decisions",
        "constraints",
        "findings",
        "data",
        "assumptions",
        "facts",
        "references",
    ),
    ContextFilter: ("keywords", "workspace_files"),
    Response: (
        "result",
        "summary",
        "artifacts",
        "new_facts",
        "sources",
        "fault",
        "warnings",
        "finished",
        "unfinished",
        "metadata",
        "files",
        "handover",
        "findings",
    ),
    Handover: ("reason", "context"),
    ToolFinding: ("arguments", "result"),
    Artifact: ("value", "label"),
    Source: ("source_id",),
    File: ("name", "url"),  # and the content, if it is text
    Fault: ("message", "suggestion", "problems", "foreign", "origin"),
    Origin: ("error", "frames"),
    SourceLine: ("file", "function", "code"),
    Problem: ("path", "message"),
    Refusal: ("request", "response"),
    Progress: ("text", "finished", "unfinished"),
    ToolUse: ("tool", "input", "fault"),
    Notice: ("text",),
    Delta: ("text",),
    Approval: ("question", "reason"),
}

# The longest text of each of these fields; tokens are longer than many of the values they replace.
_ROOM = {
    **{"objective": 100_000, "original_request": 100_000, "source_id": 200, "tool": 200},
    **{"name": MAX_FILE_NAME, "url": MAX_URL},
}

# The fewest digits of a number that identifies somebody by itself, a payment card's; amounts and times have fewer. If a
# field's name says what it is, the digits of a telephone number are enough.
_LONG_NUMBER = 10**12
_NAMED_NUMBER = 10**6
# Nearly everything that is found is shorter than this, including spaces between its groups.
_UNSETTLED = 80
_RISKY = re.compile(r"[\d@+_=/\\#<>&%$^|~*`{}\[\]]")
# A longer key is not a field name, and says nothing about its value.
_KEY_LENGTH = 64


def redaction(request: Request, facts: Facts) -> Allow | Rewrite:
    """The callee sees tokens in place of personal data and secrets."""
    sealing = facts.sealing
    if sealing is None:
        return ALLOW
    given, limits = request.input, isinstance(request.remit.tools, dict)
    # Most requests have only an objective and a text, both harmless; a quick check shows that.
    if (given is None or type(given) is str) and not (
        limits or request.handoff or request.context or request.view or request.hints or request.reason or request.files
    ):
        detect = sealing.detect
        if not detect(request.objective) and (given is None or not detect(given)):
            return ALLOW
    struck: dict[str, Raw] = {}
    clean = strike(request, sealing, struck)
    return Rewrite(clean, struck) if struck else ALLOW


def is_clean(request: Request, sealing: Sealing | None) -> bool:
    """Return whether nothing in the objective of a request has to be redacted."""
    try:
        return sealing is None or not sealing.detect(request.objective)
    except Exception:  # noqa: BLE001 - a team's own detector: redaction will report its failure
        return False


def is_plain(response: Response, detect: Detector) -> bool:
    """Return whether a response is only a harmless text: most are, and a quick check shows it."""
    result = response.result
    if not _says_only_its_result(response):
        return False
    try:
        return result is None or (type(result) is str and not detect(result))
    except Exception:  # noqa: BLE001 - a team's own detector: redaction will report its failure
        return False


def _says_only_its_result(response: Response) -> bool:
    if response.fault or response.summary or response.artifacts or response.new_facts or response.metadata:
        return False
    if response.handover or response.findings:
        return False
    return not (response.warnings or response.finished or response.unfinished or response.sources or response.files)


# ── striking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def strike(value: T, sealing: Sealing, struck: dict[str, Raw]) -> T:
    """Return *value* with tokens for what is found in it, and note their raw values; itself if nothing is found.

    *value* is JSON, an envelope or the body of a record. Raises a `RemitError` if there are too many.
    """
    if type(value) in TEXT_FIELDS:
        return _strike_fields(value, sealing, struck)
    return _strike(value, sealing, struck, "")


def _strike(value: Json, sealing: Sealing, struck: dict[str, Raw], key: str) -> Json:
    match value:
        case str():
            return _strike_text(value, sealing, struck, key)
        case bool() | None:
            return value
        case frozenset():
            return cast("frozenset[str]", value)  # names
        case int() | float():
            return _strike_number(value, sealing, struck, key) if abs(value) >= _NAMED_NUMBER else value
        case dict():
            fields = cast("dict[str, Json]", value)
            return object_of(
                fields,
                [
                    (_strike_text(name, sealing, struck, ""), _strike(each, sealing, struck, name))
                    for name, each in fields.items()
                ],
            )
        case list() | tuple():
            several = cast("list[Json]", value)
            return list_of(several, [_strike(each, sealing, struck, key) for each in several])
        case _:
            return _strike_fields(value, sealing, struck)


def _strike_fields(value: Json, sealing: Sealing, struck: dict[str, Raw]) -> Json:
    changes: dict[str, Json] = {}
    for name in TEXT_FIELDS[type(value)]:
        content_before = getattr(value, name)
        if content_before and (clean := _strike(content_before, sealing, struck, "")) is not content_before:
            if name in _ROOM and len(clean) > _ROOM[name]:
                clean = token_for(sealing.key, "TEXT", content_before)
                struck[clean] = content_before
            changes[name] = clean
    if type(value) is File and (content := _strike_content(value, sealing, struck)) is not None:
        changes["data"] = content
    return replace(value, **changes) if changes else value


def _strike_content(file: File, sealing: Sealing, struck: dict[str, Raw]) -> bytes | None:
    """Return the redacted content of a file; None if nothing is found, or if it is not text and not searched."""
    text = file.text
    if text is None or (clean := _strike_text(text, sealing, struck, "")) is text:
        return None
    content = file.with_text(clean)
    if len(content) > MAX_FILE_BYTES:
        raise RemitError(_too_large_redacted())
    return content


def _too_large_redacted() -> Fault:
    return fault(
        Code.TOO_LARGE,
        f"a file has more than {MAX_FILE_BYTES} bytes once its personal data is replaced by tokens",
        suggestion="Send it in parts, or send a reference to it.",
    )


def _strike_text(text: str, sealing: Sealing, struck: dict[str, Raw], key: str) -> str:
    if not key or len(key) > _KEY_LENGTH:
        return _replaced(text, 0, sealing.detect(text), sealing, struck)
    # A field's name tells numbers of one shape apart.
    prefix = f"{key}: "
    return _replaced(text, len(prefix), sealing.detect(prefix + text), sealing, struck)


def _replaced(text: str, shift: int, findings: Iterable[Finding], sealing: Sealing, struck: dict[str, Raw]) -> str:
    if not findings:
        return text
    parts: list[str] = []
    end = 0
    # A team's own detectors may report overlapping matches in any order: every match is replaced.
    places = [
        (max(finding.start - shift, 0), min(finding.end - shift, len(text)), finding.kind)
        for finding in sorted(findings, key=_order_of)
    ]
    if places and "[" in text:
        places = [(*place, kind) for start, stop, kind in places for place in _outside_tokens(text, start, stop)]
    for start, stop, kind in places:
        start = max(start, end)
        if start < stop:
            raw = text[start:stop]
            token = token_for(sealing.key, kind, raw)
            struck[token] = raw
            parts += (text[end:start], token)
            end = stop
    if len(struck) > sealing.most:
        raise RemitError(_too_many(sealing.most))
    return "".join((*parts, text[end:])) if end else text


def _too_many(most: int) -> Fault:
    return fault(
        Code.TOO_LARGE,
        f"there are more than {most} personal values or secrets in it, which is the most that is taken",
        suggestion="Send it in parts, or send a reference to it.",
    )


def settled(
    before: str,
    text: str,
    sealing: Sealing,
    struck: dict[str, Raw],
    *,
    named: Iterable[str] = (),
    ended: bool = False,
) -> tuple[str, int]:
    """Return the part of a growing text that later text cannot change, redacted, and its length.

    *before* is the text before it, as context for numbers that follow; *named* are secrets that are found only whole,
    whatever words they consist of; *ended*: nothing follows.
    """
    shift = len(before)
    end = len(text)
    if not ended:
        signed = getattr(sealing.bare or sealing.detect, "signed", False)
        end = min([_unsettled(text, signed=signed), *(_begun(text, secret) for secret in named)])
    findings = list(sealing.detect(before + text)) if end else []
    for finding in sorted(findings, key=_order_of, reverse=True):
        if finding.start - shift < end < finding.end - shift:
            end = max(finding.start - shift, 0)
    if not ended:
        end = _before_an_opening(text, end)
    return _replaced(text[:end], shift, findings, sealing, struck), end


def _unsettled(text: str, *, signed: bool) -> int:
    """Return from where on later text may change a text's meaning: its last words may begin a secret.

    *signed*: every match of several words has a digit or a sign in one of them; a match of a team's own pattern or
    detector need not.
    """
    end = _word_at(text, len(text))
    start = max(end - _UNSETTLED, 0)
    if signed:
        risky = _RISKY.search(text, start, end)
        if risky is None:
            return end
        start = risky.start()
    # The word before may belong to it.
    return _word_at(text, len(text[: _word_at(text, start)].rstrip()))


def _begun(text: str, secret: str) -> int:
    """Return where a possible beginning of a secret starts at a text's end; the length if there is none."""
    start = text.find(secret[0], max(len(text) - len(secret) + 1, 0))
    while start >= 0 and not secret.startswith(text[start:]):
        start = text.find(secret[0], start + 1)
    return len(text) if start < 0 else start


def _word_at(text: str, place: int) -> int:
    """Return the start of the word that reaches up to a place."""
    return max(text.rfind(" ", 0, place), text.rfind("\n", 0, place)) + 1


def _before_an_opening(text: str, end: int) -> int:
    """Return *end*, or the start of a token or private key that has not ended by then."""
    token = text.rfind("[", 0, end)
    if token >= 0 and end - token <= _LONGEST_TOKEN and text.find("]", token, end) < 0:
        end = token
    key = text.rfind("-----BEGIN", 0, end)
    return key if key >= 0 and text.find("-----END", key, end) < 0 else end


def everything(text: str) -> list[Finding]:
    """Match the whole of every text: for texts that no detector could examine."""
    return [Finding(0, len(text), "UNREAD")]


def _order_of(finding: Finding) -> tuple[int, int]:
    return finding.start, -finding.end


def _outside_tokens(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Return the parts of a match outside tokens: a token already stands for something and must stay."""
    for token in TOKEN.finditer(text, max(start - _LONGEST_TOKEN, 0), stop + _LONGEST_TOKEN):
        begin, end = token.span()
        if begin < stop and end > start:
            yield start, begin
            start = end
    yield start, stop


def _strike_number(number: float, sealing: Sealing, struck: dict[str, Raw], key: str) -> Json:
    # Tables turn whole numbers into floats; a number with a fraction, or beyond JSON's range, is an amount.
    whole = int(number) if abs(number) <= MAX_INTEGER else 0
    named = abs(whole) < _LONG_NUMBER and sealing.detect is not everything
    if whole != number or (named and not key and sealing.bare is None):
        return number
    digits, in_digits = str(abs(whole)), dict[str, Raw]()
    _strike_text(digits, sealing, in_digits, key)
    # A short number is only what its field's name says: by itself it could be an amount of money.
    if not in_digits or (named and any(True for _ in (sealing.bare or sealing.detect)(digits))):
        return number
    # Part of a number is not a number: it is replaced whole.
    token = token_for(sealing.key, kind_of(next(iter(in_digits))), whole)
    struck[token] = whole
    return token


def token_for(key: bytes, kind: str, raw: Raw) -> str:
    """Return the token of a value: the same under one key, and different under every other key."""
    kind = spelled(kind)
    digest = blake2b(f"{kind}\0{type(raw).__name__}\0{raw}".encode(errors="surrogatepass"), key=key, digest_size=16)
    number = int.from_bytes(digest.digest(), "big")
    letters: list[str] = []
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[place])
    return f"[{kind}:{''.join(letters)}]"


def kind_of(token: str) -> str:
    """Return the kind of value that a token stands for."""
    return token[1:].partition(":")[0]


@lru_cache(maxsize=256)
def spelled(kind: str) -> str:
    """Return a kind in the form it has in a token, whatever a detector calls it."""
    if KIND.fullmatch(kind):
        return kind
    return re.sub("[^A-Z]+", "_", kind.upper()).strip("_")[:32] or "SECRET"


def list_of(several: list[Json], parts: list[Json]) -> list[Json]:
    """Return *parts* as a list or tuple like *several*, or *several* itself if nothing changed."""
    return several if all(map(is_, parts, several)) else type(several)(parts)


def object_of(fields: dict[str, Json], parts: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return an object of *parts*, or *fields* if nothing changed; keys that became equal are all kept."""
    if all(name is own and part is each for (name, part), (own, each) in zip(parts, fields.items(), strict=True)):
        return fields
    made: dict[str, Json] = {}
    for name, part in parts:
        while name in made:
            name += "'"
        made[name] = part
    return made


class KnownValuesDetector:
    """A detector that also finds the known secrets of a run.

    A password is recognised by its field's name; repeated elsewhere, it is recognised by its value.
    """

    def __init__(self, detect: Detector, named: dict[str, str]) -> None:
        self._detect = detect
        self.named = named

    def __call__(self, text: str) -> Iterable[Finding]:
        findings = self._detect(text)
        # One by one, and not as one pattern: a pattern would be compiled for each value, and some are a hundred pages
        # long.
        known = [
            Finding(*place, kind) for raw, kind in self.named.items() if raw in text for place in _words(text, raw)
        ]
        return [*known, *findings] if known else findings


def _words(text: str, raw: str) -> Iterator[tuple[int, int]]:
    """Return where *raw* stands in a text as a whole word."""
    start = text.find(raw)
    while start >= 0:
        end = start + len(raw)
        alone = not _is_letter(text[start - 1 : start]) and not _is_letter(text[end : end + 1])
        if alone:
            yield start, end
        start = text.find(raw, end if alone else start + 1)


def _is_letter(char: str) -> bool:
    return char.isalnum() or char == "_"
