"""Reads a request's input as the type that an agent declares."""

from typing import TypeVar

from msgspec.structs import replace

from remit.policy.redaction import kind_of, tokens_in
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Problem
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
