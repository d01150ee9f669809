"""Refused requests: answered, counted, recorded within limits, and slowed down for senders that keep failing."""

import ipaddress
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from remit.hub.hub import Hub
from remit.policy.shares import SharedTotal, ShareOwner
from remit.ports import Clock
from remit.protocol.errors import Code, Fault, RemitError, duration, fault
from remit.protocol.records import Kind, Notice
from remit.runtime.aside import current_share
from remit.runtime.clock import LoopClock
from remit_server.access import OPERATION
from remit_server.bodies import ClientGone, Headers, Receive, Scope, Send, failure_body, headers_of, send_fault
from remit_server.documents.api import ApiOperation
from remit_server.transports.credentials.proof import BEARER, PROOF

log = logging.getLogger("remit")

REFUSALS = "remit.refusals"
"""The key of the ASGI scope under which the `Refusals` of the server are stored."""
SENDER = "remit.sender"
"""The key of the ASGI scope under which the name of the authenticated sender is stored."""
PLACE = "remit.place"
"""The key of the ASGI scope under which the pattern of the path is stored: it says nothing of a sender."""
DOOR = "door"
"""The run id in the records of refused requests, which have no run."""

REASONS = frozenset(
    (
        Code.UNAUTHENTICATED,
        Code.CREDENTIAL_INVALID,
        Code.CREDENTIAL_EXPIRED,
        Code.USER_MISMATCH,
        Code.AGENT_NOT_FOUND,
        Code.PERMISSION_DENIED,
        Code.NESTED_CALLS_FORBIDDEN,
        Code.RATE_LIMITED,
    )
)
# The messages of these quote what an unauthenticated sender claims, such as a user or an agent. They are not recorded.
_QUOTES = frozenset((Code.USER_MISMATCH, Code.AGENT_NOT_FOUND, Code.PERMISSION_DENIED))

# A row has 300 bytes: a flood of any size adds 30 kB a minute to the audit log, and as much to the log.
INTERVAL_S = 60.0
ROWS_EACH = 5
ROWS_ALL = 50
SUMMARIES = 50
# Above this number of addresses within an interval, the rest are counted together.
MOST_COUNTED = 1_000
_OTHERS = "other addresses"

# A few mistyped tokens are not an attack. Guessing a token of 20 characters at this rate is not feasible.
FAILURES = 20
WINDOW_S = 60.0
MOST_ADDRESSES = 10_000
# How long a token that was accepted from an address is accepted from there, whatever other senders at that address do.
PROVEN_S = 3_600.0
MOST_PROVEN = 10_000

_PLACE = re.compile(r"/(?:(?:v1|dialects|\.well-known)/)?[a-z0-9._-]*")


class Proxies:
    """Finds the address that a request comes from: that of the connection, or the one that trusted proxies report."""

    def __init__(self, trusted: Collection[str] = ()) -> None:
        self._trusted = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def address_of(self, scope: Scope, headers: Headers) -> str:
        """Return the address that a request is counted for: an IPv4 address, or the /64 of an IPv6 address."""
        client = scope.get("client")
        if client is not None and not self._trusted:
            return _counted_as(client[0])
        address = _parse_address(client[0]) if client else None
        # Each proxy appends the address of its client: everything before the first untrusted address is only a claim.
        for each in reversed(headers.get("x-forwarded-for", "").split(",")):
            if address is None or not any(address in network for network in self._trusted):
                break
            address = _parse_address(each.strip()) or address
        return _network_name(address)


# Parsing takes 20 µs, and most requests come from a few addresses.
@lru_cache(maxsize=1_024)
def _counted_as(address: str) -> str:
    return _network_name(_parse_address(address))


def _network_name(address: "ipaddress.IPv4Address | ipaddress.IPv6Address | None") -> str:
    if address is None:
        return "unknown"
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def _parse_address(text: str) -> "ipaddress.IPv4Address | ipaddress.IPv6Address | None":
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


class Failures:
    """Counts failed authentications by address, and says how long an address that failed too often must wait.

    Only guessable credentials wait: tokens that were not accepted from that address before. Signatures cannot be
    guessed, so hubs with keys and users of identity providers are always checked.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._proven: OrderedDict[bytes, float] = OrderedDict()

    def wait_s(self, address: str, headers: Headers) -> float:
        """Return how long a request must wait before it is checked; 0: not at all."""
        start, count = self._failed.get(address, (0.0, 0))
        left = start + WINDOW_S - self._now()
        if count < FAILURES or left <= 0 or not _can_be_guessed(headers):
            return 0
        return 0 if self._proven.get(_mark(address, headers), 0.0) > self._now() else left

    def admit(self, address: str, headers: Headers) -> None:
        """Raise a `RemitError` if an address has failed too often and this request may be another guess."""
        if wait_s := self.wait_s(address, headers):
            why = f"{FAILURES} requests from your address without a valid token within {WINDOW_S:.0f} s"
            wait_ms = round(wait_s * 1_000) or 1
            suggestion = f"Try again in {duration(wait_ms)}, with a valid token."
            raise RemitError(fault(Code.RATE_LIMITED, why, retry_after_ms=wait_ms, suggestion=suggestion))

    def failed(self, address: str, headers: Headers) -> None:
        """Count an unauthenticated request; a request without a token is not a guess."""
        if BEARER.lower() not in headers and PROOF.lower() not in headers:
            return
        start, count = self._failed.pop(address, (self._now(), 0))
        if self._now() >= start + WINDOW_S:
            start, count = self._now(), 0
        self._failed[address] = (start, count + 1)
        _bound(self._failed, MOST_ADDRESSES)

    def proven(self, address: str, headers: Headers) -> None:
        """Remember that a token was accepted from an address."""
        if _can_be_guessed(headers):
            mark = _mark(address, headers)
            self._proven[mark] = self._now() + PROVEN_S
            self._proven.move_to_end(mark)
            _bound(self._proven, MOST_PROVEN)


def _can_be_guessed(headers: Headers) -> bool:
    authorization = headers.get(BEARER.lower(), "")
    # A JWT starts with a JSON object in Base64 and has three parts.
    is_signed = authorization.count(".") == 2 and authorization[:10].lower() == "bearer eyj"
    return bool(authorization) and PROOF.lower() not in headers and not is_signed


def _mark(address: str, headers: Headers) -> bytes:
    return sha256(f"{address}\n{headers.get(BEARER.lower(), '')}".encode("utf-8", "surrogatepass")).digest()[:16]


def _bound(kept: "OrderedDict[str, tuple[float, int]] | OrderedDict[bytes, float]", most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)


class _Key(NamedTuple):
    code: Code
    address: str


class Refusals:
    """Counts and records what one server refuses."""

    def __init__(self, hub: Hub, *, proxies: Collection[str] = (), clock: Clock | None = None) -> None:
        self._hub = hub
        self._clock = clock or LoopClock()
        self._proxies = Proxies(proxies)
        self.failures = Failures(self._clock.now)
        self._counted: Counter[_Key] = Counter()
        self._rows = 0
        self._unwritten: Counter[_Key] = Counter()
        self._forget: Callable[[], None] | None = None

    def address_of(self, scope: Scope, headers: Headers) -> str:
        """Return the address that a request is counted for."""
        return self._proxies.address_of(scope, headers)

    def note(self, scope: Scope, address: str, why: Fault) -> None:
        """Count a refusal, and record it unless there were too many similar ones a moment ago."""
        if why.code not in REASONS:
            return
        self._hub.metrics.turned_away[why.code.value] += 1
        if self._forget is None:
            self._forget = self._clock.call_at(self._clock.now() + INTERVAL_S, self._interval_over)
        key = _Key(why.code, address)
        if key not in self._counted and len(self._counted) >= MOST_COUNTED:
            key = _Key(why.code, _OTHERS)
        self._counted[key] += 1
        if self._counted[key] > ROWS_EACH or self._rows >= ROWS_ALL:
            self._unwritten[key] += 1
            return
        self._rows += 1
        who = f", {scope[SENDER]}" if scope.get(SENDER) else ""
        detail = "" if why.code in _QUOTES else f": {why.message}"
        self._record(why.code, f"refused {_method_and_path(scope)} from {address}{who}{detail}")

    def close(self) -> None:
        """Record the refusals that were only counted so far."""
        if self._forget is not None:
            self._forget()
            self._interval_over()

    def _interval_over(self) -> None:
        self._forget = None
        unwritten, self._unwritten = self._unwritten, Counter()
        self._counted.clear()
        self._rows = 0
        for key, count in unwritten.most_common(SUMMARIES):
            self._record(key.code, f"refused {count} more such requests from {key.address} within {INTERVAL_S:.0f} s")
            unwritten[key] = 0
        if rest := unwritten.total():
            addresses = len({key.address for key, count in unwritten.items() if count})
            for code in sorted({key.code for key, count in unwritten.items() if count}):
                count = sum(each for key, each in unwritten.items() if key.code is code)
                self._record(code, f"refused {count} more such requests from {addresses} other addresses")
            log.warning("%d refused requests from %d addresses were counted but not recorded", rest, addresses)

    def _record(self, code: Code, text: str) -> None:
        log.warning("%s: %s", code.value, text)
        body = Notice(delegation=DOOR, agent=DOOR, text=text, code=code)
        self._hub.store.append(Kind.NOTICE, self._clock.wall_ms(), DOOR, DOOR, body)


def _method_and_path(scope: Scope) -> str:
    """Return method and path without anything that the sender chose."""
    path = scope["raw_path"].decode("latin-1")
    match = _PLACE.match(path)
    place = "an address" if match is None else match[0]
    return f"{scope['method']} {place}" if scope["method"] in ("GET", "POST", "DELETE", "HEAD") else place


def note(scope: Scope, headers: Headers, why: Fault) -> None:
    """Count a refusal, if the server keeps count."""
    refusals: Refusals | None = scope.get(REFUSALS)
    if refusals is not None:
        refusals.note(scope, refusals.address_of(scope, headers), why)


# ── the guard around each endpoint ────────────────────────────────────────────────────────────────────────────────────

COME_BACK_MS = 1_000


class RequestShare:
    """For whom one request is in progress: its client once that is authenticated, then also its user."""

    __slots__ = ("_share", "_total")

    def __init__(self) -> None:
        self._total: SharedTotal | None = None
        self._share = ShareOwner()

    def enter(self, total: SharedTotal, share: ShareOwner) -> None:
        """Count the request for *share*; raise a `RemitError` if that has too many in progress."""
        if self._total is not None and share in (self._share, ShareOwner(self._share.client)):
            return
        self.leave()
        if not total.has_room(share):
            who = f"{share.client} for user {share.user}" if share.user else share.client
            why = f"too many requests of {who} are in progress; nothing was started"
            raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=COME_BACK_MS))
        total.take(share)
        self._total, self._share = total, share
        current_share.set(share)

    def leave(self) -> None:
        """Stop counting the request."""
        if self._total is not None:
            self._total.give_back(self._share)
            self._total = None


request_share: ContextVar[RequestShare | None] = ContextVar("request_share", default=None)
"""The share of the request that the current task answers."""


def enter(total: SharedTotal, share: ShareOwner) -> None:
    """Count the request that the current task answers for *share*; raise a `RemitError` if that has too many."""
    if (held := request_share.get()) is not None:
        held.enter(total, share)


Endpoint = Callable[[Scope, Receive, Send], Any]


class Guarded:
    """An endpoint as an ASGI application, which sends refusals as responses and ends quietly if the client leaves.

    *operation* says who may use it; None: the caller checks that.
    """

    def __init__(self, endpoint: Endpoint, operation: ApiOperation | None = None) -> None:
        self._endpoint = endpoint
        self.operation = operation
        self._path = None if operation is None else operation.path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        scope[OPERATION], scope[PLACE] = self.operation, self._path
        if named := scope.get("path_params"):
            # Decoded only now: an id may hold a slash that does not separate path segments.
            scope["path_params"] = {name: unquote(value) for name, value in named.items()}

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        held = RequestShare()
        request_share.set(held)  # the task answers this request alone
        try:
            await self._endpoint(scope, receive, sending)
        except RemitError as error:
            if not started:
                with suppress(RemitError):  # a header that is sent twice
                    note(scope, headers_of(scope), error.fault)
                await send_fault(send, error.fault)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            log.error("%s %r failed: %s", scope["method"], scope["path"][:100], type(error).__name__)
            if not started:
                await send_fault(send, fault(Code.DELEGATION_FAILED, f"the server failed ({type(error).__name__})"))
        finally:
            held.leave()


async def no_such_thing(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or a method that is not allowed."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 405:
        takes = ", ".join(_allowed(request))
        headers = {"Allow": takes}
        what = f"method {request.method} not allowed at {request.url.path[:100]}; allowed: {takes}"
    else:
        what = f"nothing found at {request.url.path[:100]}"
    body = failure_body(fault(Code.NOT_FOUND, what, suggestion="`/openapi.json` lists what this server offers."))
    return Response(body, status, headers, media_type="application/json")


def _allowed(request: Request) -> list[str]:
    """Return the methods of an address; the router itself names those of its first route alone."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    methods = [each.methods or set[str]() for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return sorted(set[str]().union(*methods))
