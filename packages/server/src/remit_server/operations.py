"""Declares what a method answers, and makes its route: the sender is let in, the query checked, the answer sent."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from inspect import cleandoc
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import parse_qs

from msgspec.structs import asdict, replace
from starlette.routing import Route

from remit.hub.hub import Hub
from remit.installed import brought, named
from remit.policy.reception import Permission, Sender
from remit.protocol.codec import decode
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import LONGEST_NAME
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
from remit_server.documents.api import ApiOperation, Parameter, parameters_of
from remit_server.refusals import Endpoint, Guarded

IntOrText = TypeVar("IntOrText", int, str)
Query = TypeVar("Query")


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


def query_of(scope: Scope, kind: type[Query]) -> Query:
    """Return the parameters of a query that are given and not empty, or raise a `RemitError` that names a wrong one."""
    values: dict[str, str | int] = {}
    for each in parameters_of(kind):
        if each.kind == "integer" and _given(scope, each.name) is not None:
            values[each.name] = parameter(scope, each.name, 0)
        elif each.some_of and (text := _given(scope, each.name)):
            _check_words(each.name, words_in(text), each.some_of)
            values[each.name] = text
        elif text := parameter(scope, each.name, ""):
            _check_words(each.name, [text] if each.one_of else [], each.one_of)
            values[each.name] = text
    return cast(Query, values)


def words_in(text: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word for word in text.split(",") if word]


def _check_words(name: str, words: Iterable[str], known: Collection[str]) -> None:
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known) or (f"; known: {', '.join(known)}" if len(known) < 20 else "")
            raise wrong_parameter(name, f"unknown {name} `{word[:100]}`{hint}")


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

    def query(self, kind: type[Query]) -> Query:
        """Return the parameters in the query string, which the operation declares by this type."""
        return query_of(self.scope, kind)

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

Method = TypeVar("Method", bound=Callable[..., Any])


class _Declared(NamedTuple):
    operations: tuple[ApiOperation, ...]
    sends: bool
    """Whether the method sends its answer itself."""


_DECLARED: dict[Callable[..., Any], _Declared] = {}


def get(path: str, *parameters: Parameter, name: str = "", summary: str = "", **more: Any) -> ApiOperation:
    """Return an operation that reads; without a name, it has the name, the summary and the type of its method."""
    return ApiOperation(method="GET", path=path, name=name, summary=summary, parameters=parameters, **more)


def answers(operation: ApiOperation) -> Callable[[Method], Method]:
    """Declare the operation that a method of an endpoint answers: it gets an `ApiRequest` of a known sender.

    An operation without a name has that of the method; its summary is the method's first line, and its answer what the
    method returns.
    """

    def declare(method: Method) -> Method:
        _DECLARED[method] = _Declared((_completed(operation, method),), sends=False)
        return method

    return declare


def sends(*operations: ApiOperation) -> Callable[[Method], Method]:
    """Declare the operations that a method answers which identifies the sender, and sends the answer, itself."""

    def declare(method: Method) -> Method:
        _DECLARED[method] = _Declared(tuple(_completed(each, method) for each in operations), sends=True)
        return method

    return declare


def _completed(operation: ApiOperation, method: Callable[..., Any]) -> ApiOperation:
    if operation.name:
        return operation
    summary, _, more = cleandoc(method.__doc__ or "").partition("\n\n")
    fields = {"name": method.__name__, "summary": summary, "description": more.replace("\n", " ")}
    if operation.answer is None and (returned := method.__annotations__["return"]) is not None:
        fields["answer"] = returned
    return replace(operation, **fields)


def operations_of(*endpoints: type) -> tuple[ApiOperation, ...]:
    """Return the operations that the methods of classes answer."""
    methods = (method for each in endpoints for method in vars(each).values() if callable(method))
    return tuple(operation for method in methods if method in _DECLARED for operation in _DECLARED[method].operations)


def routes_of(endpoints: object, delegations: Delegations) -> Iterator[Route]:
    """Yield the routes of the operations that the methods of an object answer."""
    for operation, method, is_sending in endpoints_of(endpoints):
        yield served(operation, method) if is_sending else _answered(operation, method, delegations)


def endpoints_of(endpoints: object) -> Iterator[tuple[ApiOperation, Callable[..., Any], bool]]:
    """Yield the operations of an object, each with the method that answers it, and whether that sends the answer."""
    for name, method in vars(type(endpoints)).items():
        if callable(method) and (declared := _DECLARED.get(method)) is not None:
            for operation in declared.operations:
                yield operation, getattr(endpoints, name), declared.sends


def served(operation: ApiOperation, endpoint: Endpoint) -> Route:
    """Return the route of an operation whose endpoint identifies the sender, and sends the answer."""
    methods = None if operation.method == "*" else [operation.method]
    return Route(operation.path, Guarded(endpoint, operation), methods=methods)


def _answered(operation: ApiOperation, answer: AnswerOf, delegations: Delegations) -> Route:
    strict = operation.method == "GET" and not operation.is_lenient
    known = operation.query

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        sender = await delegations.sender(scope, headers)
        if strict:
            refuse_unknown(scope, *known)
        answered = await answer(ApiRequest(operation, scope, receive, headers, sender))
        value, status = answered if isinstance(answered, Answered) else (answered, operation.status)
        if operation.is_large:
            await send_large(send, headers, value)
        else:
            await send_value(send, value, status)

    return served(operation, endpoint)


def of_plugins(hub: Hub, own: Iterable[ApiOperation]) -> Iterator[Operation]:
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


def added_route(operation: Operation, delegations: Delegations) -> Route:
    """Return the route of an operation of a plugin; its senders are known, unless anyone may use it."""

    async def admit(scope: Scope, receive: Receive, send: Send) -> None:
        if not operation.anyone:
            await delegations.sender(scope, headers_of(scope))
        await operation.endpoint(scope, receive, send)

    return served(operation, admit)


def bound_operations(endpoints: object) -> list[Operation]:
    """Return the operations of an object that sends its answers itself, with its methods as their endpoints."""
    return [Operation(endpoint=endpoint, **asdict(operation)) for operation, endpoint, _ in endpoints_of(endpoints)]
