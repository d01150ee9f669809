"""From a declared operation to its route: the sender is let in, the query is checked, the answer is sent."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

from starlette.routing import Route

from remit.plugin import brought, named
from remit.policy.reception import Permission, Sender
from remit.protocol.codec import decode
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import LONGEST_NAME
from remit.runtime.engine import Engine
from remit.runtime.registry import team_invalid
from remit_server.bodies import (
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    read_as,
    read_json,
    read_optional_json,
    send_large,
    send_value,
)
from remit_server.delegations import Delegations
from remit_server.documents.api import ApiOperation
from remit_server.refusals import Endpoint, Guarded

IntOrText = TypeVar("IntOrText", int, str)


def refuse_unknown(scope: Scope, *known: str) -> None:
    """Refuse unknown parameters: a mistyped filter would silently not filter."""
    for name in parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            hint = did_you_mean(name, known) or f"; known parameters: {', '.join(known)}"
            raise wrong_parameter(name[:100], f"unknown parameter{hint}")


def parameter(scope: Scope, name: str, default: IntOrText) -> IntOrText:
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


T = TypeVar("T")


class Operation(ApiOperation, frozen=True, kw_only=True):
    """An operation with its endpoint. A request reaches the endpoint only after its sender was let in."""

    endpoint: Endpoint


class ApiRequest:
    """A request whose sender was let in."""

    __slots__ = ("_receive", "headers", "operation", "scope", "sender")

    def __init__(
        self, operation: ApiOperation, scope: Scope, receive: Receive, headers: Headers, sender: Sender
    ) -> None:
        self.operation = operation
        self.scope = scope
        self.headers = headers
        self.sender = sender
        self._receive = receive

    @property
    def others(self) -> Permission | None:
        """The permission that the sender needs for what belongs to others."""
        return self.operation.others

    def named(self, name: str) -> str:
        """Return a variable part of the path."""
        return self.scope["path_params"][name]

    async def body(self, kind: type[T]) -> T:
        """Return the body, which the operation takes; without one, what *kind* has by default."""
        assert kind is self.operation.takes, f"{self.operation.name} takes no {kind.__name__}"
        if not self.operation.takes_nothing:
            return await read_as(partial(decode, kind=kind), await read_json(self.headers, self._receive))
        given = await read_optional_json(self.headers, self._receive)
        return await read_as(partial(decode, kind=kind), given) if given else kind()


class Answered(NamedTuple):
    """What answers a request, with a status that is not the usual one."""

    value: object
    status: int


AnswerOf = Callable[[ApiRequest], Awaitable[object]]
"""Returns what answers a request: a value of the type that its operation answers, or an `Answered`."""


def served(operation: ApiOperation, endpoint: Endpoint) -> Route:
    """Return the route of an operation whose endpoint identifies the sender, and sends the answer."""
    methods = None if operation.method == "*" else [operation.method]
    return Route(operation.path, Guarded(endpoint, operation), methods=methods)


def answered(operation: ApiOperation, answer: AnswerOf, delegations: Delegations) -> Route:
    """Return the route of an operation whose *answer* gets requests of known senders."""
    strict = operation.method == "GET" and not operation.is_lenient
    known = operation.query

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        sender = await delegations.sender(scope, headers)
        if strict:
            refuse_unknown(scope, *known)
        found = await answer(ApiRequest(operation, scope, receive, headers, sender))
        value, status = found if isinstance(found, Answered) else (found, operation.status)
        if operation.is_large:
            await send_large(send, headers, value)
        else:
            await send_value(send, value, status)

    return served(operation, endpoint)


def of_plugins(hub: Engine, own: Iterable[ApiOperation]) -> Iterator[Operation]:
    """Yield the operations that plugins add to those of a server; raise a `RemitError` if an address is taken."""
    taken = {(each.method, each.path) for each in own}
    makers = [named(address) for endpoints in brought("endpoints") for address in endpoints()]
    each: Operation
    for each in (operation for make in makers for operation in make(hub)):
        place = each.method, each.path
        if place in taken:
            raise team_invalid(f"a plugin brings {each.method} {each.path}, which is there already")
        taken.add(place)
        yield each


def added(operation: Operation, delegations: Delegations) -> Route:
    """Return the route of an operation of a plugin; its senders are known, unless anyone may use it."""

    async def admit(scope: Scope, receive: Receive, send: Send) -> None:
        if not operation.anyone:
            await delegations.sender(scope, headers_of(scope))
        await operation.endpoint(scope, receive, send)

    return served(operation, admit)


def sent_by(operation: ApiOperation, endpoint: Endpoint) -> Operation:
    """Return an operation that is declared elsewhere, with its endpoint."""
    fields: dict[str, Any] = {name: getattr(operation, name) for name in operation.__struct_fields__}
    return Operation(endpoint=endpoint, **fields)
