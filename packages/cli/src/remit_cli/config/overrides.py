"""Overrides of a team file by environment variables and flags."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from remit.protocol.problems import did_you_mean, options
from remit_cli.config.line_numbers import Place
from remit_cli.config.team_search import BETWEEN, PREFIX
from remit_cli.config.team_section import file_type

# The only key outside sections that can be overridden; REMIT_VERSION more likely belongs to another program.
NAME = "REMIT_NAME"


class Override(NamedTuple):
    """A value from outside the file, and its origin."""

    source: str
    place: Place
    value: Any


class Unusable(NamedTuple):
    """An invalid override, and the reason."""

    source: str
    message: str


def variable(place: Place) -> str:
    """Return the environment variable that overrides the key at *place*.

    Each part is in capitals, with one `_` for each run of characters that a variable cannot contain.
    """
    return PREFIX + BETWEEN.join(_in_capitals(str(step)) for step in place)


def from_environment(environ: Mapping[str, str], said: dict[str, Any]) -> Iterator[Override | Unusable]:
    """Return the overrides in the environment; names of agents, tools and the like are looked up in *said*."""
    for name in sorted(environ):
        if name != NAME and not (name.startswith(PREFIX) and BETWEEN in name):
            continue
        steps = name.removeprefix(PREFIX).split(BETWEEN)
        try:
            place = _place_of(steps, said)
        except LookupError as error:
            yield Unusable(name, str(error.args[0]))
        else:
            yield Override(name, place, value_of(environ[name], kind_at(place)))


def from_flags(flags: Iterable[str]) -> Iterator[Override | Unusable]:
    """Return the overrides of flags like `limits.max_depth=3`."""
    for flag in flags:
        place, value = _split(flag)
        if place:
            yield Override(
                f"--set {flag[: len(flag) - len(value) - 1].strip()}", place, value_of(value.strip(), kind_at(place))
            )
        else:
            yield Unusable("--set", f"expected key=value such as limits.max_depth=3, got {flag!r}")


def apply(override: Override, said: dict[str, Any]) -> Unusable | None:
    """Apply an override to *said*; return the reason if that fails."""
    table: Any = said
    for depth, step in enumerate(override.place[:-1]):
        table = cast("dict[Any, Any]", table).setdefault(step, {})
        if not isinstance(table, dict):
            return Unusable(override.source, f"`{'.'.join(map(str, override.place[: depth + 1]))}` is not a table")
    table[override.place[-1]] = override.value
    return None


def value_of(text: str, kind: Any) -> Any:
    """Return a text as a TOML value; the text itself if it is not TOML, or if only a text fits *kind*."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    if list(read) != ["value"]:
        return text
    value = read["value"]
    return text if not _fits(value, kind) and _fits(text, kind) else value


def kind_at(place: Place) -> Any:
    """Return the type of the value at *place*; `Any` if the key is unknown."""
    kind: Any = file_type()
    for step in place:
        kind = next((part for option in options(kind) for part in _part(option, step)), Any)
    return kind


def fields_at(place: Place) -> tuple[FieldInfo, ...] | None:
    """Return the keys of the table at *place*; None if it is not a table with known keys."""
    return next((msgspec.structs.fields(option) for option in options(kind_at(place)) if _is_struct(option)), None)


def _part(option: Any, step: str | int) -> Iterator[Any]:
    if _is_struct(option):
        yield from (each.type for each in msgspec.structs.fields(option) if each.encode_name == step)
    elif get_origin(option) is dict:
        yield get_args(option)[1]
    elif get_origin(option) is tuple and isinstance(step, int):
        yield get_args(option)[0]


def _is_struct(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, Struct)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _in_capitals(step: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", step).upper()


def _place_of(steps: list[str], said: Any) -> Place:
    """Return the place that the name of a variable refers to, or raise a LookupError with the reason."""
    place: Place = ()
    kind: Any = file_type()
    for step in steps:
        known, is_open = _names_in(kind, said)
        fitting = [name for name in known if _in_capitals(name) == step]
        if len(fitting) > 1:
            raise LookupError(f"`{step}` is ambiguous: {', '.join(fitting)}; use --set with the full name")
        if not fitting and not is_open:
            inside = f"`{'.'.join(map(str, place))}`" if place else "a team file"
            near = did_you_mean(step, [_in_capitals(name) for name in known])
            raise LookupError(f"there is no `{step}` in {inside}{near}")
        name = fitting[0] if fitting else step
        place = (*place, name)
        kind = kind_at(place)
        said = cast("dict[str, Any]", said).get(name) if isinstance(said, dict) else None
    return place


def _names_in(kind: Any, said: Any) -> tuple[list[str], bool]:
    """Return the keys of a table of *kind*, and whether a variable may add others."""
    for option in options(kind):
        if _is_struct(option):
            return [each.encode_name for each in msgspec.structs.fields(option)], False
        if get_origin(option) is dict:
            names = list(cast("dict[str, Any]", said)) if isinstance(said, dict) else []
            return names, not any(_is_struct(each) for each in options(get_args(option)[1]))
    return [], False


def _split(flag: str) -> tuple[Place, str]:
    """Return the keys and the value of `key=value`; a key may be dotted, and a quoted one may contain `=`."""
    for found in re.finditer("=", flag):
        try:
            table: Any = tomllib.loads(f"{flag[: found.start()]} = 0")
        except tomllib.TOMLDecodeError:
            continue
        keys: list[str] = []
        while isinstance(table, dict) and len(cast("dict[str, Any]", table)) == 1:
            key, table = next(iter(cast("dict[str, Any]", table).items()))
            keys.append(key)
        return (tuple(keys), flag[found.end() :]) if table == 0 else ((), "")
    return (), ""
