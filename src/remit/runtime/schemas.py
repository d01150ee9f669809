"""Whether a value fits a JSON Schema; the validator is loaded when the first schema is used."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import cast

from remit.protocol.card import Schema
from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Problem


def misfits(schema: Schema, value: Json, shown: Json = None) -> tuple[Problem, ...]:
    """Return where *value* does not fit *schema*; empty if it does.

    *shown* is the same value with tokens, where *value* holds what they stand for: then nothing is quoted from it.
    """
    errors = _validator(encode(schema)).iter_errors(value)
    if shown is None or shown is value:
        return tuple(Problem(_path(error.instance_path), error.message) for error in errors)
    return tuple(
        Problem(_path(_steps_in(shown, error.instance_path)), f"does not fit `{'/'.join(map(str, error.schema_path))}`")
        for error in errors
    )


def _path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _steps_in(value: Json, steps: Iterable[str | int]) -> Iterator[str | int]:
    """Go along *steps* as far as *value* has them: a name that stands for a token is not shown."""
    for step in steps:
        if isinstance(value, dict) and step not in value:
            return
        yield step
        value = cast("dict[str | int, Json]", value)[step]


def check_schema(schema: Schema) -> str | None:
    """Return why *schema* is not a JSON Schema, or None if it is one."""
    import jsonschema_rs

    try:
        _validator(encode(schema))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return str(error).partition("\n")[0]
    return None


@lru_cache(maxsize=1_024)
def _validator(schema: bytes):
    import jsonschema_rs

    return jsonschema_rs.validator_for(schema.decode())
