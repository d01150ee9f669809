"""Restores the raw values behind tokens, for those who may see them."""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.redaction import TEXT_FIELDS, TOKEN, Held, Raw, T, list_of, object_of, spelled
from remit.protocol.card import AgentCard, Sees
from remit.protocol.envelope import (
    Json,
    Request,
)
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
                name: each for name in names if (each := _restore(said := getattr(value, name), held)) is not said
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
    restored = TOKEN.sub(lambda found: str(held.get(found[0], found[0])), text)
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
            yield from ((place, found[0]) for found in TOKEN.finditer(value)) if "[" in value else ()
        case dict():
            for name, each in cast("dict[str, Json]", value).items():
                yield from ((place, found[0]) for found in TOKEN.finditer(name))
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
