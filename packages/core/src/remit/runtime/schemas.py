"""Validation against JSON Schema, and short schemas for models; the validator is loaded when it is first used."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, cast

import msgspec

from remit.policy.weight import is_light
from remit.protocol.card import Schema
from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Fault, Problem, fault
from remit.protocol.problems import SHOWN

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


# Enough to correct a value.
MAX_MISFITS = 20
_LONGEST_WORDS = 200


def misfits(schema: Schema, value: Json, shown: Json = None) -> tuple[Problem, ...]:
    """Return where *value* does not match *schema*; empty if it does.

    *shown* is the same value with tokens, if *value* holds raw values: then nothing of it is quoted.
    """
    errors = _errors(_validator(encode(schema)), value)
    return _problems(errors, value, shown) if errors else ()


def unfit_input(capability: str, schema: Schema, value: Json, shown: Json = None) -> Fault | None:
    """Return why a capability does not accept an input; None if it does.

    An input that only lacks required fields gets its own code: the caller need only add them.
    """
    validator = _validator(encode(schema))
    errors = _errors(validator, value)
    if not errors:
        return None
    if value is None:  # an empty input lacks every required field
        lacking = tuple(validator.iter_errors({}))
        errors = lacking if lacking and all(_missing(error) is not None for error in lacking) else errors
    problems = _problems(errors, value, shown)
    missing = [_missing(error) for error in errors]
    if None not in missing:
        names = ", ".join(dict.fromkeys(map(str, missing)))
        return fault(Code.DATA_MISSING_REQUIRED_INPUT, f"the input of {capability} lacks {names}", problems=problems)
    return fault(Code.INPUT_VALIDATION_FAILED, f"the input does not fit {capability}", problems=problems)


def _errors(validator: "Validator", value: Json) -> tuple["ValidationError", ...]:
    """Return the errors of a value: up to `MAX_MISFITS` for a small one, the first for a large one."""
    if validator.is_valid(value):
        return ()
    if is_light(value):
        return tuple(islice(_meant(islice(validator.iter_errors(value), MAX_MISFITS)), MAX_MISFITS))
    # `iter_errors` makes all errors before it yields the first, and holds the interpreter lock meanwhile: 0.7 s for a
    # list of 40,000 wrong texts, against 2 ms this way.
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return tuple(islice(_meant((error,)), MAX_MISFITS))
    return ()


def _problems(errors: Iterable["ValidationError"], value: Json, shown: Json) -> tuple[Problem, ...]:
    if shown is None or shown is value:
        return tuple(_problem(error, list(error.instance_path), _quoted(error)) for error in errors)
    return tuple(_problem(error, list(_steps_in(shown, error.instance_path)), _unquoted(error)) for error in errors)


def _meant(errors: Iterable["ValidationError"]) -> Iterator["ValidationError"]:
    """Yield errors; for a value that matches no alternative, those of the only alternative for values of its type."""
    for error in errors:
        meant = [each for each in _alternatives(error) if not _is_other_type(each, error)]
        if len(meant) == 1:
            yield from _meant(meant[0])
        else:
            yield error


def _alternatives(error: "ValidationError") -> list[list["ValidationError"]]:
    return getattr(error.kind, "context", None) or []


def _is_other_type(errors: list["ValidationError"], whole: "ValidationError") -> bool:
    return len(errors) == 1 and bool(_types(errors[0])) and errors[0].instance_path == whole.instance_path


def _types(error: "ValidationError") -> list[str]:
    """Return the expected types of a value, if it has another one."""
    if type(error.kind).__name__ == "Type":
        return cast("list[str]", getattr(error.kind, "types", []))
    each = [_types(one) for several in _alternatives(error) for one in several]
    return [name for types in each for name in types] if all(each) else []


def _quoted(error: "ValidationError") -> str:
    """Return the validator's message, unless it quotes a long value."""
    if _alternatives(error):
        return _unquoted(error)
    return error.message if len(error.message) <= _LONGEST_WORDS else _unquoted(error)


def _unquoted(error: "ValidationError") -> str:
    if types := _types(error):
        return f"is not of type {' or '.join(dict.fromkeys(types))}"
    if _alternatives(error):
        return "fits none of the alternatives in its schema"
    return f"does not fit `{'/'.join(map(str, error.schema_path))}`"


def _problem(error: "ValidationError", steps: list[str | int], message: str) -> Problem:
    name = _missing(error)
    if name is None:
        return Problem(_path(steps), message)
    # Inside a name that must not be shown, the field's own name would point to a place that does not exist.
    if len(steps) == len(error.instance_path):
        return Problem(_path([*steps, name]), "is required but missing")
    return Problem(_path(steps), f"`{name}` is required but missing")


def _missing(error: "ValidationError") -> str | None:
    """Return the name of the missing field that an error reports; None for any other error."""
    return str(getattr(error.kind, "property", "")) if type(error.kind).__name__ == "Required" else None


def _path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step[:SHOWN]}" for step in steps)


def _steps_in(value: Json, steps: Iterable[str | int]) -> Iterator[str | int]:
    """Follow *steps* as far as *value* has them: a name that a token stands for is not shown."""
    for step in steps:
        if isinstance(value, dict) and step not in value:
            return
        yield step
        value = cast("dict[str | int, Json]", value)[step]


def check_schema(schema: Schema) -> str | None:
    """Return why *schema* is not a valid JSON Schema, or None if it is."""
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


def schema_for_models(kind: type[msgspec.Struct]) -> Schema:
    """Return a short schema of a struct for models, because it is sent with every call."""
    schema = msgspec.json.schema(kind)
    known: dict[str, Schema] = schema["$defs"]
    lean = _lean(known[kind.__name__], known) | {"additionalProperties": False}
    del lean["description"]  # the tool has its own description
    return lean


# Other constraints are checked when the tool is called, and reported then; optional fields need not allow null.
_SHOWN_KEYS = ("type", "enum", "description", "required")


def _lean(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    if "$ref" in schema:
        return _lean(known[schema["$ref"].removeprefix("#/$defs/")], known)
    lean = {key: schema[key] for key in _SHOWN_KEYS if schema.get(key)}
    if others := [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]:
        lean = _lean(others[0], known) | lean
    if "items" in schema:
        lean["items"] = _lean(schema["items"], known)
    if "properties" in schema:
        lean["properties"] = {name: _lean(each, known) for name, each in schema["properties"].items()}
    return lean
