"""Values that pass between a hub and an agent's code: inputs of a declared type, and results that JSON can carry."""

from typing import TypeVar, cast

from msgspec.structs import replace

from remit.policy.redaction import kind_of
from remit.policy.restoring import tokens_in
from remit.protocol.codec import plain
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.typed import TypeMismatch, name_of, read_as

T = TypeVar("T")


def typed_input(value: Json, kind: type[T], agent: str, path: str = "$") -> T:
    """Return an input as a value of *kind*, or raise a `RemitError` that names each invalid field."""
    try:
        return read_as(value, kind, path)
    except TypeMismatch as error:
        explained = TypeMismatch(explain_tokens(error.problems, value, path))
        message = f"the input of {agent} is not a {name_of(kind)}"
        raise explained.error(Code.INPUT_VALIDATION_FAILED, message) from None


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


def plain_arguments(tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
    """Return the arguments of a tool as plain JSON, or raise a `RemitError` that names each invalid one."""
    try:
        return cast("dict[str, Json]", plain(arguments))
    except RemitError as error:
        why = f"the arguments do not fit tool {tool}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=error.fault.problems)) from error


def plain_finding(name: str, found: Json) -> Json:
    """Return the result of `once` as plain JSON, or raise a `RemitError` that says where it is not JSON."""
    try:
        return plain(found)
    except RemitError as error:
        why = f"what was found out for {name} is not JSON"
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why, problems=error.fault.problems)) from error


def plain_changes(agent: str, changes: dict[str, Json]) -> dict[str, Json]:
    """Return an agent's state as plain JSON, or raise a `RemitError` that names each value that cannot be stored."""
    kept: dict[str, Json] = {}
    problems: list[Problem] = []
    for name, value in changes.items():
        try:
            kept[name] = plain(value)
        except RemitError as error:
            problems += [Problem(name, problem.message) for problem in error.fault.problems]
    if problems:
        names = ", ".join(problem.path for problem in problems)
        why = f"{agent} cannot keep {names}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=tuple(problems)))
    return kept
