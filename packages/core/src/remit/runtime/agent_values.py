"""Values that an agent's code gives to a hub, as plain JSON."""

from typing import cast

from remit.protocol.codec import plain
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Problem, RemitError, fault


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
