"""Calls of the HTTP API: their options, how they are sent (again where that is safe), and streams of events."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from remit.protocol.codec import encode
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.generous import decode_response
from remit.protocol.records import Body, Kind, outcome_in
from remit.protocol.records import read_body as read_record
from remit.protocol.submission import AskOptions, Submission
from remit_server.documents.api import ApiOperation
from remit_server.documents.api_values import FailureBody, Handle
from remit_server.transports.addresses import no_hub
from remit_server.transports.remote_calls import StreamEvent, read_body, stream_events


class SubmissionOptions(AskOptions, total=False):
    """The options of a request besides agent and text."""

    user: str | None
    """The user to ask for; None: the only one of the client."""


class ApiCall(Struct, frozen=True, kw_only=True):
    """One request to the API."""

    operation: ApiOperation
    path: str
    body: bytes | None = None
    headers: dict[str, str] = {}

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice has the effect of sending it once."""
        return self.operation.is_repeatable or self.operation.method == "GET"


def submission(agent: str, text: str, options: SubmissionOptions, request_id: str) -> Submission:
    """Return the request for an agent."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    given.pop("request_id", None)
    for name in ("tools", "targets"):
        if name in given and not isinstance(given[name], Mapping):
            given[name] = frozenset(given[name])
    if "files" in given:
        given["files"] = tuple(given["files"])
    return Submission(target=agent, objective=text, id=request_id, **given)


def call_of(
    operation: ApiOperation,
    *,
    body: Struct | None = None,
    query: Mapping[str, object] | None = None,
    headers: dict[str, str] | None = None,
    **names: str,
) -> ApiCall:
    """Return a request for an operation; *names* are the variable parts of its path."""
    path = operation.path.format_map({name: quote(value, safe="") for name, value in names.items()})
    given = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
    return ApiCall(
        operation=operation,
        path=f"{path}?{urlencode(given)}" if given else path,
        body=None if body is None else encode(body),
        headers=headers or {},
    )


if TYPE_CHECKING:  # loaded with the first request
    from aiohttp import ClientResponse, ClientSession

DEFAULT_TIMEOUT_S = 60.0
"""How long a call waits for its answer, with all repetitions, unless another time is given."""

ATTEMPTS = 4
PAUSE_S = 0.1
CONNECT_S = 10.0
# A server that is overloaded or restarting, or that its proxy cannot reach at the moment.
BUSY = (429, 502, 503, 504)
# An answer of the largest size, with files.
MOST_BYTES = 32 * 1024 * 1024


class HubConnection:
    """The connections to one server."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        if (why := no_hub(url)) is not None:
            raise RemitError(fault(Code.MALFORMED_ENVELOPE, why))
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._headers = {"authorization": f"Bearer {token}"} if token else dict[str, str]()
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def result(self, call: ApiCall, timeout_s: float | None = None) -> Any:
        """Return what a call leads to, of the type that its operation answers.

        Raises a `RemitError` if it fails, or does not end in time.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._repeated(call)
        except TimeoutError as error:
            raise RemitError(
                fault(Code.TIMEOUT, f"no answer from {self.url} within {limit_s:g} s", suggestion="Wait longer.")
            ) from error

    async def _repeated(self, call: ApiCall) -> Any:
        attempt, pause_s = 1, PAUSE_S
        while True:
            try:
                async with self.sent(call) as reply:
                    return self._decode_answer(call, reply.status, await read_body(reply, MOST_BYTES))
            except _Busy as busy:
                if not call.is_repeatable or attempt >= ATTEMPTS:
                    raise RemitError(busy.why) from busy
                wait_s = max(pause_s, (busy.why.retry_after_ms or 0) / 1_000)
            except _Lost as lost:
                if not (call.is_repeatable or lost.unsent) or attempt >= ATTEMPTS:
                    raise RemitError(lost.why) from lost
                wait_s = pause_s
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))
            attempt, pause_s = attempt + 1, 2 * pause_s

    @asynccontextmanager
    async def sent(self, call: ApiCall, **more: str) -> AsyncGenerator["ClientResponse"]:
        """Send a call once; raise `_Lost` if the connection fails."""
        from aiohttp import ClientConnectorError, ClientError

        headers = {"accept": "application/json", **self._headers, **call.headers, **more}
        if call.body is not None:
            headers["content-type"] = "application/json"
        try:
            async with self._pool().request(
                call.operation.method, self.url + call.path, data=call.body, headers=headers, allow_redirects=False
            ) as reply:
                yield reply
        except (ClientError, ConnectionError) as error:
            unsent = isinstance(error, ClientConnectorError)
            what = "cannot be reached" if unsent else "ended the connection"
            why = fault(Code.DELEGATION_UNAVAILABLE, f"{self.url} {what} ({type(error).__name__})")
            raise _Lost(why, unsent=unsent) from error

    async def refusal(self, reply: "ClientResponse") -> RemitError:
        """Return why a call was refused."""
        return RemitError(self._fault(reply.status, await read_body(reply, MOST_BYTES)))

    def _pool(self) -> "ClientSession":
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar

        if self._session is None:
            waits = ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._session = ClientSession(timeout=waits, cookie_jar=DummyCookieJar())
        return self._session

    def _decode_answer(self, call: ApiCall, status: int, body: bytes) -> Any:
        may_fail = call.operation.answer is Response
        if may_fail and status != 202 and _is_response(body):
            return decode_response(body)  # a delegation that failed has an outcome, too
        if status >= 300:
            why = self._fault(status, body)
            raise _Busy(why) if status in BUSY else RemitError(why)
        try:
            return msgspec.json.decode(body, type=Handle if may_fail else call.operation.answer)
        except msgspec.MsgspecError as error:
            why = f"{self.url} sent an invalid answer to {call.operation.method} {call.operation.path}: {error}"
            raise RemitError(fault(Code.DELEGATION_FAILED, why)) from error

    def _fault(self, status: int, body: bytes) -> Fault:
        try:
            return msgspec.json.decode(body, type=FailureBody).fault
        except msgspec.MsgspecError:  # from a proxy, or from a server of another kind
            return fault(Code.DELEGATION_UNAVAILABLE, f"{self.url} answered with status {status}, not as a hub")


class _Outcome(msgspec.Struct):
    """Fields of which only the outcome of a delegation has both."""

    id: str
    status: str


def _is_response(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=_Outcome)
    except msgspec.MsgspecError:
        return False
    return True


class _Busy(Exception):
    """The server did not take the call."""

    def __init__(self, why: Fault) -> None:
        super().__init__(why.message)
        self.why = why


class _Lost(Exception):
    """The connection failed."""

    def __init__(self, why: Fault, *, unsent: bool) -> None:
        super().__init__(why.message)
        self.why = why
        self.unsent = unsent
        """Whether nothing was sent."""


LOST = (_Busy, _Lost)
"""What a stream goes on after."""


# A server that comes back does so within seconds; nobody waits longer between two looks.
MOST_PAUSE_S = 5.0


class RunEvent(Struct, frozen=True, kw_only=True):
    """One event of a run."""

    number: int | None
    """Its number in the record; None for a part of an answer (`delta`), which is not stored."""
    kind: Kind
    """What it is about."""
    run: str
    """The run that it belongs to."""
    at_ms: int
    """When it happened, in milliseconds since 1970."""
    body: Body
    """What happened, by its kind: a `Request`, `Progress`, `Delta`, `Approval`, `Response` and so on."""

    @property
    def outcome(self) -> Response | None:
        """The outcome of the run, if this is its last event."""
        return outcome_in(self.run, self.body)


class _Stored(Struct):
    """The fields of every event."""

    run: str
    body: msgspec.Raw
    at_ms: int = 0


async def run_events(connection: HubConnection, call: ApiCall, after: int | None) -> AsyncGenerator[RunEvent]:
    """Yield the events of one run, from its start or after a number, until it has ended."""
    async for event in all_events(connection, call, after):
        yield event
        if event.outcome is not None:
            return


async def all_events(connection: HubConnection, call: ApiCall, after: int | None) -> AsyncGenerator[RunEvent]:
    """Yield events without end; raise a `RemitError` if the server refuses."""
    pause_s = PAUSE_S
    while True:
        more = {} if after is None else {"last-event-id": str(after)}
        try:
            async with connection.sent(call, accept="text/event-stream", **more) as reply:
                if reply.status == 200:
                    async for each in stream_events(reply, MOST_BYTES):
                        pause_s, event = PAUSE_S, _decode_event(each)
                        after = event.number or after
                        yield event
                elif reply.status not in BUSY:
                    raise await connection.refusal(reply)
        except LOST:
            pass  # or the server stopped: it, or another one, has the rest
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def _decode_event(event: StreamEvent) -> RunEvent:
    try:
        stored = msgspec.json.decode(event.data, type=_Stored)
        body = read_record(event.kind, bytes(stored.body))
    except msgspec.MsgspecError as error:
        raise RemitError(fault(Code.DELEGATION_FAILED, f"the server sent an invalid event: {error}")) from error
    number = None if event.number is None else int(event.number)
    return RunEvent(number=number, kind=event.kind, run=stored.run, at_ms=stored.at_ms, body=body)
