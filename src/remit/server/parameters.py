"""The parameters of a query string: read by name, and refused if unknown, repeated or invalid."""

from typing import TypeVar
from urllib.parse import parse_qs

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import LONGEST_NAME
from remit.server.bodies import Scope

T = TypeVar("T", int, str)


def refuse_unknown(scope: Scope, *known: str) -> None:
    """Refuse unknown parameters: a mistyped filter would silently not filter."""
    for name in parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            hint = did_you_mean(name, known) or f"; known parameters: {', '.join(known)}"
            raise wrong_parameter(name[:100], f"unknown parameter{hint}")


def parameter(scope: Scope, name: str, default: T) -> T:
    """Return a query parameter, or raise a `RemitError` that names it."""
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get(name)
    if given is None:
        return default
    if len(given) > 1:
        raise wrong_parameter(name, "is given more than once")
    if isinstance(default, str):
        if len(given[0]) > LONGEST_NAME:
            raise wrong_parameter(name, f"is longer than {LONGEST_NAME} characters")
        return given[0]
    # No store can hold a number with more digits.
    if not (given[0].isascii() and given[0].isdecimal() and len(given[0]) <= 15):
        raise wrong_parameter(name, f"{given[0][:100]!r} is not a number of 0 or more")
    return int(given[0])


def wrong_parameter(name: str, why: str) -> RemitError:
    """Return the error for a parameter."""
    problem = Problem(name, why)
    return RemitError(fault(Code.MALFORMED_ENVELOPE, f"invalid parameter `{name}`", problems=(problem,)))
