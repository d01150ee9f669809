"""Whether a value fits a JSON Schema; the validator is loaded when the first schema is used."""

from functools import lru_cache

from remit.protocol.card import Schema
from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Problem


def misfits(schema: Schema, value: Json) -> tuple[Problem, ...]:
    """Return where *value* does not fit *schema*; empty if it does."""
    validator = _validator(encode(schema))
    return tuple(
        Problem(
            "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path),
            error.message,
        )
        for error in validator.iter_errors(value)
    )


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
