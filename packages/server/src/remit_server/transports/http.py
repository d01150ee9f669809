"""Agents at another hub, called over HTTP: used exactly like local agents."""

import asyncio
import random
from contextlib import suppress
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from msgspec.structs import replace

from remit.ports import Credential, OutgoingRequest, Remote, RemoteHandle
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.files import MAX_FILES_JSON
from remit.protocol.generous import decode_response
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Delta, Progress, outcome_in
from remit.protocol.records import read_body as read_record
from remit.runtime.aside import SMALL_BODY, aside
from remit_server.transports.addresses import in_parts, no_hub
from remit_server.transports.credentials.outgoing import ReplyCheck, reply_check, unproven
from remit_server.transports.credentials.proof import REPLY_PROOF
from remit_server.transports.remote_calls import (
    CANCEL_S,
    CONNECT_S,
    PAUSE_S,
    RetryAllowed,
    StreamEvent,
    in_words,
    is_away,
    is_known_there,
    lost,
    outgoing,
    read_body,
    shielded,
    stream_events,
    with_retries,
)

T = TypeVar("T")

# A request that was sent is asked for until its deadline: a restarted server has the answer.
MOST_PAUSE_S = 1.0
# A hub closes a connection that is idle for 75 s; ours must close first, or a request may hit a closing connection.
KEEP_ALIVE_S = 60.0
# An answer may have the maximum size, and its files and its envelope add to that.
ENVELOPE_BYTES = 65_536 + MAX_FILES_JSON
PATH = "/v1/delegations"
STREAM = "text/event-stream"
# A server that is overloaded or restarting, or that its proxy cannot reach at the moment.
_BUSY = (429, 502, 503, 504)
_LOST = (ClientError, ConnectionError, TimeoutError)


class HubPeer:
    """Another hub: its address, and how this hub authenticates to it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        credential: Credential | None = None,
        max_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        if (why := no_hub(url)) is not None:
            raise RemitError(fault(Code.TEAM_INVALID, why))
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._credential = credential
        self.max_bytes = max_bytes + ENVELOPE_BYTES
        self._session: ClientSession | None = None

    def agent(self, name: str) -> "HttpAgent":
        """Return the agent with this name at the peer."""
        return HttpAgent(self, name)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @property
    def session(self) -> ClientSession:
        """The connection pool of the peer, kept between requests."""
        if self._session is None:
            # The caller enforces deadlines: they travel with the request, and stop while a person is asked.
            waits = ClientTimeout(total=None, sock_connect=CONNECT_S)
            connector = TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
            self._session = ClientSession(
                connector=connector, timeout=waits, cookie_jar=DummyCookieJar(), auto_decompress=False
            )
        return self._session

    async def headers(self, request: Request, sending: OutgoingRequest) -> dict[str, str]:
        """Return the headers of a request; the envelope repeats what the peer may not trust in a header alone (X9)."""
        headers = {
            **self._headers,
            "x-agent-request-id": quote(request.id, safe="@:+~ "),
            "x-agent-origin": quote(request.origin, safe="@:+~ "),
            "x-agent-depth": str(request.remit.depth),
            "traceparent": request.traceparent or "",
        }
        if request.parent_session is not None:
            headers["x-agent-parent-session"] = quote(request.parent_session, safe="@:+~ ")
        return headers if self._credential is None else headers | await self._credential(request, sending)


class _Stored(msgspec.Struct):
    """The fields of a record that are needed to decode the rest."""

    run: str
    body: msgspec.Raw


_stored = msgspec.json.Decoder(_Stored)


class _Handle(msgspec.Struct):
    """The handle of a delegation that has not ended."""

    run: str


class _Envelope(msgspec.Struct):
    """The field that tells an envelope from other bodies."""

    version: str = ""


class _Failure(msgspec.Struct):
    """Why there was no delegation."""

    fault: Fault


class HttpAgent(Remote):
    """One agent at another hub."""

    validates = True
    judges_tools = True

    def __init__(self, peer: HubPeer, name: str) -> None:
        self._peer = peer
        self._name = name

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Send a request, with retries, and return its outcome; if cancelled, cancel it at the peer, too."""
        try:
            left = await line.depart(self._location)
            if left is not None and not is_known_there(line, left):
                return await self._look_up(request, line, "the request is too old to be sent again")
            attempt = partial(self._attempt, request, line)
            return await with_retries(request, line, attempt, sent=left is not None, most_pause_s=MOST_PAUSE_S)
        except asyncio.CancelledError:
            # A resumed run sends the same request under the same id, and gets its outcome.
            if line.in_doubt and not line.handed_back:
                await shielded(self._cancel(request, line), CANCEL_S)
            raise

    async def _attempt(self, request: Request, line: RemoteHandle, sent: bool) -> Response:
        line.doubt(f"the outcome at {request.target} is unknown")
        submission = replace(outgoing(request, line), target=self._name)
        raw = encode(submission)
        headers = {**line.passed_on, **await self._peer.headers(submission, OutgoingRequest("POST", PATH, raw))}
        if line.has_listeners:
            headers["accept"] = STREAM
        try:
            async with self._peer.session.post(
                f"{self._peer.url}{PATH}", data=in_parts(raw), headers=headers, allow_redirects=False
            ) as reply:
                return await self._reply(reply, request, line, reply_check(headers), sent=sent)
        except (ClientConnectorError, ConnectionTimeoutError) as error:
            detail = f"{self._location}: {in_words(error)}"
            why = fault(Code.DELEGATION_UNAVAILABLE, f"{request.target} cannot be reached", detail=detail)
            raise RetryAllowed(why, sent=False, away=is_away(error)) from error
        except _LOST as error:
            detail = f"{self._location}: {type(error).__name__}"
            why = fault(Code.OUTCOME_UNKNOWN, f"the connection to {request.target} was lost", detail=detail)
            raise RetryAllowed(why, sent=True) from error

    async def _reply(
        self, reply: ClientResponse, request: Request, line: RemoteHandle, check: ReplyCheck | None, *, sent: bool
    ) -> Response:
        """Return the peer's answer; *sent* says that it may have received the same request before."""
        if reply.status == 200 and reply.content_type == STREAM:
            await self._checked(reply, check)
            return await self._read_along(reply, request, line, check)
        if check is not None and reply.status in _BUSY and REPLY_PROOF not in reply.headers:
            # Somebody between the hubs answers, who does not know what was started.
            raise RetryAllowed(self._busy(reply), sent=True)
        if check is None and reply.content_type != "application/json":
            if reply.status in _BUSY:  # a proxy before the peer answers
                raise RetryAllowed(self._busy(reply), sent=reply.status not in (429, 503))
            raise RemitError(self._garbage(f"status {reply.status} with a body of type {reply.content_type[:100]}"))
        raw = await self._checked(reply, check)
        if reply.status == 202:  # it waits for approval there
            return await self._end_of(self._decoded(raw, _Handle).run, request, line, "0")
        if reply.status == 200 or self._decoded(raw, _Envelope).version:
            response = await self._response(raw)
            code = None if response.fault is None else response.fault.code
            if response.fault is not None and code is Code.STORE_UNAVAILABLE:
                # If it was refused, it did not begin; else it ran, and its outcome could not be recorded yet.
                raise RetryAllowed(response.fault, sent=response.status is not Status.REFUSED)
            if response.fault is not None and code is Code.OVERLOADED and response.status is Status.REFUSED:
                raise RetryAllowed(response.fault, sent=False)
            if sent and code is Code.DUPLICATE_REQUEST:
                # Its context has changed since, such as the messages that the agent may see.
                return await self._look_up(request, line, "the request has changed since")
            return response
        why = self._decoded(raw, _Failure).fault.outward()  # this hub sets origin and detail itself
        if reply.status in (429, 503):
            raise RetryAllowed(why, sent=False)
        # A reader would take "here" for this hub.
        why = replace(why, message=f"the hub of {request.target} says: {why.message}", detail=self._location)
        # A refusal before execution says nothing about an earlier attempt.
        return lost(request, why, sent=sent)

    async def _look_up(self, request: Request, line: RemoteHandle, because: str) -> Response:
        """Return the outcome of a request that cannot be sent again, without starting anything."""
        path = f"{PATH}/{quote(request.id, safe='')}"
        address = f"{self._peer.url}{path}"
        pause_s = PAUSE_S
        line.doubt(f"the outcome at {request.target} is unknown")
        while True:
            why = f"the hub of {request.target} does not report an outcome, and {because}"
            headers = await self._peer.headers(request, OutgoingRequest("GET", path))
            try:
                async with self._peer.session.get(address, headers=headers, allow_redirects=False) as reply:
                    raw = b"" if reply.status in _BUSY else await self._checked(reply, reply_check(headers))
                    if reply.status == 200:
                        return await self._response(raw)
                    if reply.status == 202:
                        return await self._end_of(self._decoded(raw, _Handle).run, request, line, "0")
                    if reply.status not in _BUSY:
                        detail = f"{self._location}: status {reply.status}"
                        return lost(request, fault(Code.OUTCOME_UNKNOWN, why, detail=detail), sent=True)
            except _LOST:
                pass  # retry until the deadline
            if pause_s * 1_000 >= line.time_left_ms() / 2:
                return lost(request, fault(Code.OUTCOME_UNKNOWN, why, detail=self._location), sent=True)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _busy(self, reply: ClientResponse) -> Fault:
        wait = reply.headers.get("retry-after", "")
        after_ms = int(wait) * 1_000 if wait.isascii() and wait.isdecimal() and len(wait) <= 6 else None
        why = f"the peer answered with status {reply.status}"
        return fault(Code.DELEGATION_UNAVAILABLE, why, retry_after_ms=after_ms, detail=self._location)

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _checked(self, reply: ClientResponse, check: ReplyCheck | None) -> bytes:
        """Return the body of a reply; of a stream nothing. Raise a `RemitError` if the peer should have signed it."""
        streams = reply.status == 200 and reply.content_type == STREAM
        raw = b"" if streams else await read_body(reply, self._peer.max_bytes)
        if check is not None and not check.is_proven(reply.status, reply.headers, raw):
            why = "it was changed on the way" if REPLY_PROOF in reply.headers else "it has no signature"
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                why += f", and says: {msgspec.json.decode(raw, type=_Failure).fault.message[:300]}"
            raise unproven(why, self._location)
        return raw

    async def _read_along(
        self, reply: ClientResponse, request: Request, line: RemoteHandle, check: ReplyCheck | None
    ) -> Response:
        """Forward the events of the peer, and return the outcome; a broken stream is resumed."""
        run = reply.headers.get("location", "").rpartition("/")[2]
        seen = "0"
        with suppress(*_LOST):
            async for event in stream_events(reply, self._peer.max_bytes, check):
                seen = event.number or seen
                if (ended := await self._take_event(event, line)) is not None:
                    return ended
        # The stream ended without an outcome: the server stopped, and it or another one has the rest.
        return await self._end_of(run, request, line, seen)

    async def _take_event(self, event: StreamEvent, line: RemoteHandle) -> Response | None:
        stored = self._decoded(event.data, _Stored, _stored)
        try:
            body = read_record(event.kind, bytes(stored.body))
        except msgspec.MsgspecError as error:
            raise RemitError(self._garbage(f"an invalid event: {error}")) from error
        match body:
            case Progress(text=text):
                line.progress(text, None)
            case Delta(text=text, delegation=delegation) if delegation == stored.run:
                line.say(text)
            case Approval() as approval:
                await line.record_approval(approval)
            case _ if (response := outcome_in(stored.run, body)) is not None:
                return await self._response(encode(response))
            case _:
                pass
        return None

    async def _end_of(self, run: str, request: Request, line: RemoteHandle, after: str) -> Response:
        """Follow the events from where the stream broke off, reconnecting as needed, and return the outcome."""
        path = f"{PATH}/{quote(run, safe='')}/events"
        address = f"{self._peer.url}{path}"
        pause_s = PAUSE_S
        while True:
            headers = await self._peer.headers(request, OutgoingRequest("GET", path))
            headers |= {"accept": STREAM, "last-event-id": after}
            try:
                async with self._peer.session.get(address, headers=headers, allow_redirects=False) as reply:
                    check = reply_check(headers)
                    if reply.status not in _BUSY:
                        await self._checked(reply, check)
                    if reply.status == 200:
                        async for event in stream_events(reply, self._peer.max_bytes, check):
                            pause_s = PAUSE_S
                            after = event.number or after
                            if (ended := await self._take_event(event, line)) is not None:
                                return ended
                    elif reply.status not in _BUSY:
                        # It was started there, and may have finished.
                        why = f"the hub of {request.target} reports nothing more: status {reply.status}"
                        return lost(request, fault(Code.OUTCOME_UNKNOWN, why, detail=self._location), sent=True)
            except _LOST:
                pass  # retry from where it broke off, until the deadline
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, CONNECT_S)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _cancel(self, request: Request, line: RemoteHandle) -> None:
        """Cancel a request at the peer, and keep what it had finished."""
        sending = OutgoingRequest("POST", f"{PATH}/{quote(request.id, safe='')}/cancel", b"{}")
        address = f"{self._peer.url}{sending.path}"
        pause_s = PAUSE_S
        while True:
            headers = await self._peer.headers(request, sending)  # a proof is valid for one request
            # The request may still be on its way: then the peer does not know it yet.
            async with self._peer.session.post(
                address, data=sending.body, headers=headers, allow_redirects=False
            ) as reply:
                raw = await self._checked(reply, reply_check(headers))
                if reply.status == 200:
                    line.settle(await self._response(raw))
                if reply.status != 404:
                    return
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def _response(self, raw: bytes) -> Response:
        try:
            response = decode_response(raw) if len(raw) <= SMALL_BODY else await aside.run(decode_response, raw)
        except RemitError as error:
            raise RemitError(self._garbage(f"an invalid envelope: {error.fault.message}")) from error
        return response.outward()  # this hub sets origin and detail itself

    def _decoded(self, raw: bytes, kind: type[T], decoder: msgspec.json.Decoder[T] | None = None) -> T:
        try:
            return decoder.decode(raw) if decoder is not None else msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RemitError(self._garbage(f"an invalid body: {error}")) from error

    def _garbage(self, what: str) -> Fault:
        return fault(Code.RESULT_VALIDATION_FAILED, f"the peer sent {what}", detail=self._location)

    @property
    def _location(self) -> str:
        """Where the agent is, for the operator of this hub."""
        return f"{self._name} at {self._peer.url}"
