"""Reads the signature of a function: parameters that are filled from JSON, and the type of its result."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import UnionType
from typing import Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from remit.policy.restoring import explain_tokens
from remit.ports.brief import Brief
from remit.protocol.card import Capability, Schema
from remit.protocol.codec import plain
from remit.protocol.envelope import Answer, Call, Json, Response
from remit.protocol.errors import Code, Problem, RemitError
from remit.protocol.problems import did_you_mean
from remit.protocol.typed import (
    MISSING,
    Member,
    TypeMismatch,
    declares_fields,
    name_of,
    object_schema,
    read_as,
    schema_of,
    step,
)
from remit.runtime.registry import team_invalid

# Types that an agent may return instead of a result.
_INSTEAD = (Answer, Call, Response, list[Call], tuple[Call, ...])


class FunctionSignature(NamedTuple):
    """The input that an agent's function declares besides the brief, and its result."""

    parameters: dict[str, Member]
    result: Any
    """The declared type; None if nothing is checked."""

    @property
    def whole(self) -> tuple[str, Member] | None:
        """The one parameter that takes the whole input; None if there are several, each a field of it."""
        return next(iter(self.parameters.items())) if len(self.parameters) == 1 else None

    def input_schema(self) -> Schema | None:
        """Return the JSON Schema of the input; None if it may be anything, or is a text."""
        if not self.parameters:
            return None
        if self.whole is None:
            schema = object_schema("input", self.parameters)
            return schema if schema.get("required") else _or_null(schema)
        _, member = self.whole
        if member.kind in (str, Any, object):
            return None
        schema = schema_of(member.kind)
        return schema if member.required else _or_null(schema)

    def result_schema(self) -> Schema | None:
        """Return the JSON Schema of the result; None if it may be anything."""
        return None if self.result is None else schema_of(self.result, written=True)

    def arguments(self, brief: Brief) -> dict[str, Any]:
        """Return the arguments of the function besides the brief, or raise a `RemitError` that names what is wrong."""
        agent, given = brief.request.target, brief.request.input
        if not self.parameters:
            return {}
        try:
            if self.whole is not None:
                name, member = self.whole
                return {name: _whole(member, given, brief.objective)}
            if given is None or isinstance(given, dict):
                return read_arguments(self.parameters, cast("dict[str, Json]", given or {}))
            raise TypeMismatch((Problem("$", f"expected an object with {', '.join(self.parameters)}"),))
        except TypeMismatch as error:
            problems = explain_tokens(error.problems, given)
            if all(problem.message == MISSING for problem in problems):
                names = ", ".join(problem.path.removeprefix("$.") for problem in problems)
                what = "is missing" if names == "$" else f"lacks {names}"
                raise TypeMismatch(problems).error(
                    Code.DATA_MISSING_REQUIRED_INPUT, f"the input of {agent} {what}"
                ) from None
            message = f"the input does not fit {agent}"
            raise TypeMismatch(problems).error(Code.INPUT_VALIDATION_FAILED, message) from None

    def checked(self, answer: Answer, agent: str) -> Answer:
        """Return an answer whose result is of the declared type, or raise a `RemitError` that names what is wrong."""
        if self.result is None or answer.calls:
            return answer
        try:
            return replace(answer, result=_as_declared(answer.result, self.result))
        except TypeMismatch as error:
            message = f"the result of {agent} is not a {name_of(self.result)}"
            raise error.error(Code.RESULT_VALIDATION_FAILED, message) from None
        except RemitError as error:
            message = f"{agent} gave a result that cannot be used: {error.fault.message}"
            raise TypeMismatch(error.fault.problems).error(Code.RESULT_VALIDATION_FAILED, message) from None


def _or_null(schema: Schema) -> Schema:
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"anyOf": [{key: each for key, each in schema.items() if key != "$defs"}, {"type": "null"}], **definitions}


def _whole(member: Member, given: Json, objective: str) -> Any:
    """Return the whole input as one value; without an input, the text is used if it has the declared type."""
    if given is not None:
        return read_as(given, member.kind)
    try:
        return read_as(objective or None, member.kind)
    except TypeMismatch:
        if not member.required:
            return member.default
    try:
        return read_as(None, member.kind)  # an optional type
    except TypeMismatch:
        raise TypeMismatch((Problem("$", MISSING),)) from None


def _as_declared(value: object, kind: Any) -> Json:
    written = plain(value)
    own = type(value) if type(value) in (kind, *get_args(kind)) else kind  # the matching member of a union
    if hasattr(own, "__pydantic_validator__") and isinstance(value, own):
        return written  # validated when it was created; it may be parsed from another form than it is written in
    return plain(read_as(written, own))


def read_arguments(members: Mapping[str, Member], given: Mapping[str, Json]) -> dict[str, Any]:
    """Return the values of parameters that are given by name, or raise `TypeMismatch` with every wrong one."""
    values: dict[str, Any] = {}
    problems = [
        Problem(step("$", name), f"unknown argument{did_you_mean(name, members)}")
        for name in given
        if name not in members
    ]
    for name, member in members.items():
        if name in given:
            try:
                values[name] = read_as(given[name], member.kind, step("$", name))
            except TypeMismatch as error:
                problems += error.problems
        elif member.required:
            problems.append(Problem(step("$", name), MISSING))
        else:
            values[name] = member.default
    if problems:
        raise TypeMismatch(tuple(problems))
    return values


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def signature_of(function: Callable[..., object]) -> FunctionSignature | None:
    """Return the declarations of an agent's function; None if it takes only the brief and declares no result.

    Only annotated parameters are filled from the input; others keep their defaults. If all parameters have defaults,
    all keep them, because functions in a loop bind its variables that way. But a model or the like with None as its
    default is input.
    """
    try:
        first, *rest = inspect.signature(function).parameters.values() or (None,)
    except (TypeError, ValueError):  # some functions that are not written in Python have no signature
        return None
    if first is None:
        name = _function_name(function)
        raise team_invalid(f"`{name}` takes no parameter, and has to take the brief: write `def {name}(brief: Brief)`")
    hints, unread = _hints(function)
    if (kind := hints.get(first.name)) in (str, int, float, bool, bytes) or declares_fields(kind):
        like = f"def {_function_name(function)}(brief: Brief, {first.name}: {name_of(kind)})"
        raise team_invalid(f"`{_function_name(function)}`: its first parameter takes the brief: write `{like}`")
    parameters: dict[str, Member] = {}
    for each in rest:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.name.startswith("_"):
            continue
        if each.name in hints and each.kind is not each.POSITIONAL_ONLY:
            required = each.default is each.empty
            parameters[each.name] = Member(hints[each.name], required, None if required else each.default)
        elif each.default is each.empty:
            why = unread or "give it a type, which is then read from the input"
            raise team_invalid(f"`{_function_name(function)}`: parameter `{each}` cannot be filled: {why}")
    if not any(each.required or (each.default is None and declares_fields(each.kind)) for each in parameters.values()):
        parameters = {}  # defaults that bind variables around the function, as in a loop
    result = _result_of(hints.get("return"), is_stream(function))
    if not parameters and not declares_fields(result):
        return None
    signature = FunctionSignature(parameters, result)
    try:
        signature.input_schema()
    except TypeError as error:
        raise team_invalid(
            f"`{_function_name(function)}`: its parameters cannot be described as JSON: {error}"
        ) from error
    try:
        signature.result_schema()
    except TypeError:
        signature = signature._replace(result=None)
    return signature if parameters or signature.result is not None else None


def with_schemas(
    capabilities: Iterable[Capability | str], function: Callable[..., object] | None
) -> list[Capability | str]:
    """Return capabilities with the schemas that the signature of *function* declares, where they have none."""
    given = list(capabilities)
    signature = None if function is None or not given else signature_of(function)
    if signature is None:
        return given
    accepts, gives = signature.input_schema(), signature.result_schema()
    named = [Capability(code=each) if isinstance(each, str) else each for each in given]
    return [
        replace(each, input_schema=each.input_schema or accepts, result_schema=each.result_schema or gives)
        if isinstance(each, Capability)  # pyright: ignore[reportUnnecessaryIsInstance]
        else each
        for each in named
    ]


def is_stream(function: Callable[..., object]) -> bool:
    """Return whether calling *function* returns a generator, async or not."""
    each = (function, type(function).__call__)
    return any(map(inspect.isasyncgenfunction, each)) or any(map(inspect.isgeneratorfunction, each))


def _hints(function: Callable[..., object]) -> tuple[dict[str, Any], str]:
    """Return the annotations of a function; if they cannot be read, none and the reason."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=True), ""
    except Exception as error:  # noqa: BLE001 - an annotation may be any expression
        return {}, f"its annotations cannot be read ({error}): define or import the types at the top of the module"


def _result_of(hint: Any, stream: bool) -> Any:
    """Return the type of a result, without the types that an agent may return instead; None if it may be anything."""
    if stream:
        hint = next(iter(get_args(hint)), None)
    several = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [each for each in several if each not in _INSTEAD]
    if not kinds or kinds == [type(None)] or any(each in (None, Any, object) for each in kinds):
        return None
    return Union[tuple(kinds)]  # noqa: UP007 - made of what is only known now


def _function_name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", type(function).__name__)
