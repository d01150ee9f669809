"""The parameters of a query string: read by name, and refused if unknown, repeated or invalid."""

from collections.abc import Collection
from typing import TypeVar
from urllib.parse import parse_qs

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import LONGEST_NAME
from remit_server.bodies import Scope

T = TypeVar("T", int, str)


def refuse_unknown(scope: Scope, *known: str) -> None:
    """Refuse unknown parameters: a mistyped filter would silently not filter."""
    for name in parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            hint = did_you_mean(name, known) or f"; known parameters: {', '.join(known)}"
            raise wrong_parameter(name[:100], f"unknown parameter{hint}")


def parameter(scope: Scope, name: str, default: T) -> T:
    """Return a query parameter, or raise a `RemitError` that names it."""
    given = _given(scope, name)
    if given is None:
        return default
    if isinstance(default, str):
        if len(given) > LONGEST_NAME:
            raise wrong_parameter(name, f"is longer than {LONGEST_NAME} characters")
        return given
    # No store can hold a number with more digits.
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise wrong_parameter(name, f"{given[:100]!r} is not a number of 0 or more")
    return int(given)


def words_of(scope: Scope, name: str, known: Collection[str]) -> list[str]:
    """Return the words of a list with commas, or raise a `RemitError` that names an unknown one."""
    words = [word for word in (_given(scope, name) or "").split(",") if word]
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known) or (f"; known: {', '.join(known)}" if len(known) < 20 else "")
            raise wrong_parameter(name, f"unknown {name} `{word[:100]}`{hint}")
    return words


def _given(scope: Scope, name: str) -> str | None:
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get(name)
    if given and len(given) > 1:
        raise wrong_parameter(name, "is given more than once")
    return given[0] if given else None


def wrong_parameter(name: str, why: str) -> RemitError:
    """Return the error for a parameter."""
    problem = Problem(name, why)
    return RemitError(fault(Code.MALFORMED_ENVELOPE, f"invalid parameter `{name}`", problems=(problem,)))
