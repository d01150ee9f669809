"""From a declared operation to its route: the sender is let in, the query is checked, the answer is sent."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.routing import Route

from remit.plugin import brought, named
from remit.policy.reception import Permission, Sender
from remit.protocol.codec import decode
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
from remit_server.parameters import refuse_unknown
from remit_server.refusals import Endpoint, Guarded

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
