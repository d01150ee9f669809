"""Forms that a person fills in: a flat object of texts, numbers, yes or no, and choices from lists."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, cast

from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.typed import JsonSchema, is_type, schema_of

# A form that does not fit on a screen is not read.
MAX_FIELDS = 20

_SIMPLE = ("string", "integer", "number", "boolean")
_ANSWERS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_LISTS = {"enum", "oneOf", "anyOf", "allOf"}


def form_schema(given: JsonSchema | type[object]) -> JsonSchema:
    """Return the schema of a form, in the shapes that every program which shows forms knows.

    *given* is a JSON Schema, or a type that has one: references are resolved, and a field that may be null is one that
    may be left out. Raises a `RemitError` that names the fields that cannot be shown.
    """
    try:
        schema: JsonSchema = schema_of(given) if is_type(given) else cast("JsonSchema", given)
    except TypeError as error:
        raise unshowable(Problem("$", str(error))) from error
    fields: Any = schema.get("properties")
    if not isinstance(fields, dict) or schema.get("type", "object") != "object":
        raise unshowable(Problem("$", "expected an object with properties"))
    named = cast("dict[str, Any]", fields)
    if not 0 < len(named) <= MAX_FIELDS:
        raise unshowable(Problem("$", f"expected 1 to {MAX_FIELDS} fields, not {len(named)}"))
    known: Any = schema.get("$defs")
    definitions = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    shapes = {name: _field(each, definitions) for name, each in named.items()}
    if wrong := [name for name, shape in shapes.items() if shape is None]:
        message = "expected a text, a number, a boolean, or a choice from a list of texts"
        raise unshowable(*(Problem(f"$.{name}", message) for name in wrong))
    whole = {"type": "object", "properties": shapes}
    return whole | {key: schema[key] for key in ("title", "description", "required") if schema.get(key)}


def unshowable(*problems: Problem) -> RemitError:
    """Return the error for a form that cannot be shown."""
    message = "the form cannot be shown to a person"
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=problems))


def _field(given: object, definitions: Mapping[str, Any]) -> JsonSchema | None:
    """Return a field in a shape that can be shown; None if there is none."""
    if not isinstance(given, dict):
        return None
    field = _resolved(cast("dict[str, Any]", given), definitions)
    if field.get("default", ...) is None:
        del field["default"]
    if not _are_texts(field.get("enumNames")):
        field.pop("enumNames", None)
    if _is_choice(field) or (field.get("type") in _SIMPLE and not field.keys() & _LISTS):
        return field
    items = field.get("items")
    if field.get("type") != "array" or not isinstance(items, dict):
        return None
    several = _resolved(cast("dict[str, Any]", items), definitions)
    return {**field, "items": several} if _is_choice(several, "anyOf") else None


def _resolved(field: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field without reference and null, and a list of texts with its type."""
    others = {key: value for key, value in field.items() if key not in ("$ref", "anyOf", "const")}
    match field:
        case {"$ref": str() as ref}:
            definition = definitions.get(ref.removeprefix("#/$defs/"))
            return _resolved({**definition, **others}, {}) if isinstance(definition, dict) else dict(field)
        case {"anyOf": [*_] as several} if {"type": "null"} in several:
            rest = [each for each in cast("list[Any]", several) if each != {"type": "null"}]
            is_one = len(rest) == 1 and isinstance(rest[0], dict)
            return _resolved({**rest[0], **others}, definitions) if is_one else dict(field)
        case {"const": str() as only}:
            return {"type": "string", "enum": [only], **others}
        case {"enum": [*_] as values} if "type" not in field and all(isinstance(each, str) for each in values):
            return {"type": "string", **field}
        case _:
            return dict(field)


def _is_choice(field: dict[str, Any], titled: str = "oneOf") -> bool:
    """Return whether a field is a choice of one from a list of texts, with or without titles."""
    lists = field.keys() & _LISTS
    if field.get("type", "string") != "string" or len(lists) != 1:
        return False
    if lists == {"enum"}:
        return bool(field["enum"]) and _are_texts(field["enum"])
    several: Any = field.get(titled)
    if not isinstance(several, list):
        return False
    each_of = cast("list[Any]", several)
    consts = [cast("dict[str, Any]", each).get("const") if isinstance(each, dict) else None for each in each_of]
    return bool(consts) and _are_texts(consts)


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in cast("list[Any]", values))


def default_fields(form: JsonSchema) -> dict[str, Json]:
    """Return the fields of a form with their defaults; None where there is none."""
    return {name: each.get("default") for name, each in form["properties"].items()}


def filled_fields(form: JsonSchema, given: Json) -> dict[str, Json]:
    """Return the fields of a form that are filled in."""
    fields = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    return {name: value for name, value in fields.items() if name in form["properties"] and value is not None}


def form_lines(form: JsonSchema) -> Iterator[str]:
    """Yield what a person reads of each field: its name, what it is, and the choices."""
    for name, field in form["properties"].items():
        about = str(field.get("description") or field.get("title") or "")
        several = field.get("type") == "array"
        listed = field["items"] if several else field
        choices = [_choice(each) for each in listed.get("oneOf") or listed.get("anyOf") or ()]
        if "enum" in listed:
            titles: list[Any] = listed.get("enumNames") or listed["enum"]
            pairs = zip_longest(listed["enum"], titles[: len(listed["enum"])])
            choices = [_choice({"const": value, "title": title}) for value, title in pairs]
        what = f"{'any' if several else 'one'} of {', '.join(choices)}" if choices else str(field["type"])
        required = " (required)" if name in form.get("required", ()) else ""
        yield f"{name}{required}: {f'{about}; ' if about else ''}{what}"


def _choice(choice: Mapping[str, Any]) -> str:
    value, title = str(choice["const"]), choice.get("title")
    return value if title in (None, value) else f"{value} ({title})"


def field_value(field: JsonSchema, typed: str) -> Json:
    """Return what a person typed as a value of a field; as text if it is none, which the form then refuses."""
    text = typed.strip()
    match field.get("type"):
        case "integer" | "number":
            try:
                return int(text) if text.lstrip("+-").isdecimal() else float(text)
            except ValueError:
                return text
        case "boolean":
            return _ANSWERS.get(text.lower(), text)
        case "array":
            return [each.strip() for each in text.split(",") if each.strip()]
        case _:
            return typed
