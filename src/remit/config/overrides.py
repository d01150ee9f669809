"""What environment variables and flags say instead of a team file."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from remit.config.line_numbers import Place
from remit.config.team import TeamFile
from remit.protocol.codec import did_you_mean, options

PREFIX = "REMIT_"
BETWEEN = "__"
# Of what stands outside the sections, only this can be said; REMIT_VERSION would more likely be someone else's.
NAME = "REMIT_NAME"


class Override(NamedTuple):
    """A value that is said elsewhere than in the file, and where."""

    source: str
    place: Place
    value: Any


class Unusable(NamedTuple):
    """An override that cannot be understood, and why."""

    source: str
    message: str


def variable(place: Place) -> str:
    """Return the environment variable that overrides the key at *place*.

    Each step is written in capitals, with one `_` for each run of letters that a variable cannot hold.
    """
    return PREFIX + BETWEEN.join(_in_capitals(str(step)) for step in place)


def from_environment(environ: Mapping[str, str], said: dict[str, Any]) -> Iterator[Override | Unusable]:
    """Return what the environment overrides; names of agents, tools and the like are looked up in what is *said*."""
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
    """Return what flags like `limits.max_depth=3` override."""
    for flag in flags:
        keys, value = _split(flag)
        if keys:
            yield Override(
                f"--set {flag[: len(flag) - len(value) - 1].strip()}", keys, value_of(value.strip(), kind_at(keys))
            )
        else:
            yield Unusable("--set", f"expected key=value such as limits.max_depth=3, got {flag!r}")


def apply(override: Override, said: dict[str, Any]) -> Unusable | None:
    """Say in *said* what an override says; return why if that cannot be."""
    table: Any = said
    for depth, step in enumerate(override.place[:-1]):
        table = cast("dict[Any, Any]", table).setdefault(step, {})
        if not isinstance(table, dict):
            return Unusable(override.source, f"`{'.'.join(map(str, override.place[: depth + 1]))}` is not a table")
    table[override.place[-1]] = override.value
    return None


def value_of(text: str, kind: Any) -> Any:
    """Return what a text says as a TOML value; the text itself if it is none, or if only that fits *kind*."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    if list(read) != ["value"]:
        return text
    value = read["value"]
    return text if not _fits(value, kind) and _fits(text, kind) else value


def kind_at(place: Place) -> Any:
    """Return what type the value at *place* has; `Any` if no such key is known."""
    kind: Any = TeamFile
    for step in place:
        kind = next((part for option in options(kind) for part in _part(option, step)), Any)
    return kind


def fields_at(place: Place) -> tuple[FieldInfo, ...] | None:
    """Return the keys that the table at *place* may have; None if it is no table whose keys are known."""
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
    """Return the place that the steps of a variable's name mean, or raise a LookupError that says why there is none."""
    place: Place = ()
    kind: Any = TeamFile
    for step in steps:
        known, is_open = _names_in(kind, said)
        fitting = [name for name in known if _in_capitals(name) == step]
        if len(fitting) > 1:
            raise LookupError(f"`{step}` could be any of {', '.join(fitting)}; use --set, which takes the name itself")
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
    """Return the keys that a table of *kind* has, and whether a variable may add others."""
    for option in options(kind):
        if _is_struct(option):
            return [each.encode_name for each in msgspec.structs.fields(option)], False
        if get_origin(option) is dict:
            names = list(cast("dict[str, Any]", said)) if isinstance(said, dict) else []
            return names, not any(_is_struct(each) for each in options(get_args(option)[1]))
    return [], False


def _split(flag: str) -> tuple[Place, str]:
    """Return the keys and the value of `key=value`; a key may be dotted and quoted, and then hold a `=` itself."""
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
