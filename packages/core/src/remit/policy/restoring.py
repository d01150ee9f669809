"""Restores the raw values behind tokens for those who may see them, and warns of those that are withheld."""

import json
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.redaction import TEXT_FIELDS, TOKEN, Held, Raw, T, kind_of, list_of, object_of, spelled
from remit.protocol.card import AgentCard, Schema, Sees, ToolCard
from remit.protocol.codec import text_of
from remit.protocol.envelope import (
    PREVIEW_LENGTH,
    Json,
    Request,
    ToolFinding,
)
from remit.protocol.errors import Problem
from remit.protocol.files import MAX_FILE_BYTES, File, is_file_name, is_file_url


def restore(value: T, held: Held) -> T:
    """Return *value* with the raw values of the tokens in *held*; forged and foreign tokens stay as they are."""
    return cast("T", _restore(value, held)) if held else value


def _restore(value: Json, held: Held) -> Json:
    match value:
        case str():
            return _restore_text(value, held) if "[" in value else value
        case dict():
            fields = cast("dict[str, Json]", value)
            return object_of(
                fields, [(str(_restore(name, held)), _restore(each, held)) for name, each in fields.items()]
            )
        case list() | tuple():
            several = cast("list[Json]", value)
            return list_of(several, [_restore(each, held) for each in several])
        case File():
            return _restore_file(value, held)
        case Struct():
            names = TEXT_FIELDS.get(type(value), ())
            changes = {
                name: each for name in names if (each := _restore(field := getattr(value, name), held)) is not field
            }
            return replace(value, **changes) if changes else value
        case _:
            return value


def _restore_file(file: File, held: Held) -> File:
    # A value need not be a name or a URL: it may have been found anywhere.
    changes: dict[str, Json] = {}
    if is_file_name(name := str(_restore(file.name, held))) and name != file.name:
        changes["name"] = name
    if file.url is not None and is_file_url(url := str(_restore(file.url, held))) and url != file.url:
        changes["url"] = url
    text = file.text
    if text is not None and (whole := str(_restore(text, held))) != text:
        content = file.with_text(whole)
        if len(content) <= MAX_FILE_BYTES:
            changes["data"] = content
    return replace(file, **changes) if changes else file


def _restore_text(text: str, held: Held) -> Raw:
    if text in held:
        return held[text]
    restored = TOKEN.sub(lambda match: str(held.get(match[0], match[0])), text)
    return text if restored == text else restored


def reveal(request: Request, struck: Held, card: AgentCard) -> Request:
    """Return the request with the raw values that its callee may see: the kinds and fields that its team named."""
    capability = card.capability(request.capability) if request.capability else None
    kinds, fields = card.sees, frozenset[str]()
    if capability is not None:
        kinds, fields = kinds | capability.sees, capability.sees_fields
    if kinds:
        request = restore(request, of_kinds(struck, kinds))
    for field in fields:
        request = replace(request, input=_restore_at(request.input, field.split("."), struck))
    return request


def reveal_arguments(arguments: dict[str, Json], held: Held, sees: Sees) -> tuple[dict[str, Json], dict[str, Raw]]:
    """Return a tool's arguments with the raw values of the kinds that it sees, and those values by their tokens.

    They are *arguments* itself if there is nothing to replace.
    """
    revealed: dict[str, Json] = {}
    shown: dict[str, Raw] = {}
    for name, given in arguments.items():
        kinds = sees.get(name, ()) if isinstance(sees, dict) else sees
        there = of_kinds({token: held[token] for _, token in tokens_in(given) if token in held}, kinds)
        revealed[name] = restore(given, there)
        shown |= there
    return (revealed, shown) if shown else (arguments, {})


def tokens_in(value: Json, place: str = "") -> Iterator[tuple[str, str]]:
    """Return the tokens in a JSON value, each with its place."""
    match value:
        case str():
            yield from ((place, match[0]) for match in TOKEN.finditer(value)) if "[" in value else ()
        case dict():
            for name, each in cast("dict[str, Json]", value).items():
                yield from ((place, match[0]) for match in TOKEN.finditer(name))
                yield from tokens_in(each, f"{place}.{name}" if place else name)
        case list():
            for index, each in enumerate(cast("list[Json]", value)):
                yield from tokens_in(each, f"{place}[{index}]")
        case _:
            return


def of_kinds(held: Held, kinds: Iterable[str]) -> dict[str, Raw]:
    """Return the raw values of these kinds."""
    starts = tuple(f"[{spelled(kind)}:" for kind in kinds)
    return {token: raw for token, raw in held.items() if token.startswith(starts)}


def _restore_at(value: Json, path: list[str], held: Held) -> Json:
    """Return *value* with one field restored; for a list, in each of its items."""
    if not path:
        return restore(value, held)
    match value:
        case dict():
            fields = cast("dict[str, Json]", value)
            name = path[0]
            return fields | {name: _restore_at(fields[name], path[1:], held)} if name in fields else fields
        case list():
            return [_restore_at(each, path, held) for each in cast("list[Json]", value)]
        case _:
            return value


class HubWarning(NamedTuple):
    """A warning in a sentence for users, and with its details for operators."""

    text: str
    """For the response: without names of agents, tools, fields and settings."""
    details: str
    """For the record."""


# The kinds of values that a field needs, by the last words of its name.
_BY_KIND = {
    "EMAIL": "email|e mail|mail|mailbox",
    "PHONE": "phone|telephone|tel|mobile|cell|fax|msisdn|whatsapp",
    "IBAN": "iban",
    "CREDIT_CARD": "credit card|debit card|card|pan",
    "SSN": "ssn|social security",
    "ITIN": "itin",
    "SIN": "sin",
    "NINO": "nino",
    "NHS_NUMBER": "nhs",
    "PASSPORT": "passport",
    "DRIVER_LICENSE": "driver license|drivers license|driving licence",
    "IP": "ip",
    "MAC": "mac",
    "BTC_ADDRESS": "btc|bitcoin",
    "API_KEY": "api key",
    "PASSWORD": "password|passphrase",
    "BEARER_TOKEN": "bearer token",
    "PRIVATE_KEY": "private key",
}
_BY_NAME = {name: kind for kind, names in _BY_KIND.items() for name in names.split("|")}
# Words after these that add nothing: `phone_number`, `email_address_2`.
_FILLING = frozenset({"address", "addresses", "addr", "number", "numbers", "num", "no", "nr", "value"})
# Words that mean something only with such a word behind them: a `card` may be anything, a `card_number` not.
_NEEDS_FILLING = frozenset({"card", "sin", "mac", "cell", "mail", "pan"})
_BY_FORMAT = {
    "email": "EMAIL",
    "idn-email": "EMAIL",
    "phone": "PHONE",
    "tel": "PHONE",
    "iban": "IBAN",
    "ipv4": "IP",
    "ipv6": "IP",
    "password": "PASSWORD",
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST_NAME = 64
# Deeper than what people write; a schema may refer to itself.
_DEEPEST = 12
_MOST_HOPS = 5
# More fields than forms have. The event loop waits for this, about 10 ms at most.
_MOST_VALUES = 1_000
# Each becomes a warning.
_MOST_FOUND = 20


def kind_asked(name: str, shape: object = None) -> str | None:
    """Return the kind of value that a field needs, by its name or its `format`; None if it needs none."""
    if isinstance(shape, str) and shape in _BY_FORMAT:
        return _BY_FORMAT[shape]
    words = [word.lower() for word in _WORD.findall(name[-_LONGEST_NAME:])]
    filled = False
    while words and words[-1] in _FILLING:
        words.pop()
        filled = True
    for count in (2, 1):
        last = " ".join(words[-count:])
        kind = _BY_NAME.get(last) or _BY_NAME.get(last.removesuffix("s"))
        if kind is not None and (filled or last not in _NEEDS_FILLING):
            return kind
    return None


def fields_asking(schema: Schema) -> dict[str, str]:
    """Return the fields of a schema that need a value, by dotted path, each with the kind of value."""
    return dict(_asking(schema, schema, "", "", _DEEPEST))


def _asking(schema: Any, root: Schema, name: str, place: str, depth: int) -> Iterator[tuple[str, str]]:
    for part in _parts(schema, root) if depth else ():
        if "items" in part:
            yield from _asking(part["items"], root, name, place, depth - 1)
        elif isinstance(part.get("properties"), dict):
            for each, of in cast("dict[str, Any]", part["properties"]).items():
                yield from _asking(of, root, each, f"{place}.{each}" if place else each, depth - 1)
        elif _may_be_text(part) and (kind := kind_asked(name, part.get("format"))) is not None:
            yield place, kind


def _may_be_text(part: Schema) -> bool:
    kinds: Any = part.get("type", "string")
    return ("string" in kinds or "integer" in kinds) and "enum" not in part


def tokens_asked_for(value: Json, held: Held, schema: Schema | None = None) -> dict[str, str]:
    """Return the fields that hold a token in place of the value they need, by dotted path, with the token.

    Only tokens in *held* count; a list stands for each of its items. Of very many values only the first are examined,
    and of very many fields only the first are reported.
    """
    root = schema or {}
    tokens: dict[str, str] = {}
    rest = deque([_Field(value, "", "", [schema], _DEEPEST)])
    for _ in range(_MOST_VALUES):
        if not rest or len(tokens) == _MOST_FOUND:
            break
        field = rest.popleft()
        match field.value:
            case str() as text if (token := text.strip()) in held and field.asks(root):
                tokens[field.place] = token
            case dict() | list() if field.depth:
                rest.extend(islice(field.within(root), _MOST_VALUES - len(rest)))
            case _:
                pass
    return tokens


class _Field(NamedTuple):
    value: Json
    name: str
    place: str
    schemas: list[Any]
    """What a schema says of the value; each may be a reference or a choice."""
    depth: int

    def parts(self, root: Schema) -> list[Schema]:
        return [part for schema in self.schemas for part in _parts(schema, root)]

    def asks(self, root: Schema) -> bool:
        return any(kind_asked(self.name, part.get("format")) for part in (*self.parts(root), _PLAIN))

    def within(self, root: Schema) -> Iterator["_Field"]:
        parts, whole = self.parts(root), self.value
        if isinstance(whole, list):
            items = [part["items"] for part in parts if "items" in part]
            for each in cast("list[Json]", whole):
                yield _Field(each, self.name, self.place, items, self.depth - 1)
            return
        known = [part["properties"] for part in parts if isinstance(part.get("properties"), dict)]
        for name, value in cast("dict[str, Json]", whole).items():
            place = f"{self.place}.{name}" if self.place else name
            yield _Field(value, name, place, [each.get(name) for each in known], self.depth - 1)


def can_be_used(kind: str, card: AgentCard, agents: Iterable[AgentCard], tools: Mapping[str, ToolCard]) -> bool:
    """Return whether a token of a kind is useful to an agent: one of its tools or callees sees the value.

    *agents* and *tools* are all that exist.
    """
    return _is_seen(kind, card, tools) or any(
        kind in each.sees or any(kind in offered.sees for offered in each.capabilities) or _is_seen(kind, each, tools)
        for each in agents
        if each.name != card.name and card.may_reach(each.name)
    )


def _is_seen(kind: str, card: AgentCard, tools: Mapping[str, ToolCard]) -> bool:
    return any(kind in kinds_seen(tools[name]) for name in card.tools if name in tools)


def kinds_seen(tool: ToolCard) -> frozenset[str]:
    """Return the kinds of personal data that a tool gets raw, in any argument."""
    return frozenset[str]().union(*tool.sees.values()) if isinstance(tool.sees, dict) else tool.sees


def token_given(what: str, name: str, field: str, kind: str, key: str | None = None) -> HubWarning:
    """Return the warning about a tool or capability that got a token in a field that needs the value itself."""
    return HubWarning(
        "Personal data was withheld from a part of the work, so its result may be incomplete.",
        f"{what} {name} got a token in the place of a value in `{field}`, because redaction is on and it does not see "
        f"{kind}. If it needs the value, let it see that kind: {key_to_add(what, name, kind, key)}",
    )


def key_to_add(what: str, name: str, kind: str, key: str | None = None) -> str:
    """Return what to write in a team file so that a tool or capability sees a kind."""
    section = {"tool": "tools", "capability": "capabilities"}[what]
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return f'{key or f"{section}.{name if bare else json.dumps(name)}.sees"} = ["{kind}"]'


_PLAIN: Schema = {}


def _parts(schema: Any, root: Schema, hops: int = _MOST_HOPS) -> Iterator[Schema]:
    """Return a schema, or those that it refers to or chooses among."""
    if not hops or not isinstance(schema, dict):
        return
    part = cast("Schema", schema)
    if isinstance(part.get("$ref"), str):
        yield from _parts(_resolve_reference(part["$ref"], root), root, hops - 1)
        return
    choices = [each for key in ("anyOf", "oneOf", "allOf") if isinstance(part.get(key), list) for each in part[key]]
    for each in choices:
        yield from _parts(each, root, hops - 1)
    if not choices or "properties" in part or "format" in part:
        yield part


def _resolve_reference(reference: str, root: Schema) -> Any:
    part: Any = root
    for step in reference.removeprefix("#/").split("/"):
        part = cast("Schema", part).get(step) if isinstance(part, dict) else None
    return part


def explain_tokens(problems: tuple[Problem, ...], value: Json, path: str = "$") -> tuple[Problem, ...]:
    """Return the problems with a reason where a token stands in place of personal data.

    The caller sent a value of the right type; only the agent sees a token, which is text.
    """
    tokens = {_joined(path, place): token for place, token in tokens_in(value)}
    return tuple(
        replace(problem, message=f"{problem.message}: {_withheld(kind_of(tokens[problem.path]))}")
        if problem.path in tokens
        else problem
        for problem in problems
    )


def _joined(path: str, place: str) -> str:
    return f"{path}.{place}" if place and not place.startswith("[") else f"{path}{place}"


def _withheld(kind: str) -> str:
    return f'the value is withheld and a token stands for it; declare it as text, or give the agent sees=["{kind}"]'


# ── what tools returned ───────────────────────────────────────────────────────────────────────────────────────────────

# Of one answer: a model reads them again with each call of its next turns.
MOST_FINDINGS = 20
FINDING_LENGTH = 4_000
FINDINGS_LENGTH = 16_000


def kept_findings(findings: Sequence[ToolFinding], hidden: Container[str]) -> tuple[ToolFinding, ...]:
    """Return what is kept of the findings of an answer: the newest, each in part if it is long.

    *hidden* are the tokens for values that the agent itself had.
    """
    kept: list[ToolFinding] = []
    room = FINDINGS_LENGTH
    for each in reversed(findings[-MOST_FINDINGS:]):
        length = len(text_of(each.arguments))
        if length > PREVIEW_LENGTH:
            each = replace(each, arguments=None)
            length = 0
        result = each.result
        most = min(FINDING_LENGTH, max(room - length, PREVIEW_LENGTH))
        if len(result) > most:
            result = f"{_whole_tokens(result, most - 1)}…"
        room -= length + len(result)
        mine = dict.fromkeys(token[0] for token in TOKEN.finditer(result) if token[0] in hidden)
        kept.append(replace(each, result=result, hidden=tuple(mine)))
    return tuple(reversed(kept))


def _whole_tokens(text: str, most: int) -> str:
    """Return the beginning of a text, without a token that would be cut."""
    start = text.rfind("[", 0, most)
    cut = TOKEN.match(text, start) if start >= 0 else None
    return text[: start if cut is not None and cut.end() > most else most]
