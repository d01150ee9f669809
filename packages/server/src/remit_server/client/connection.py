"""Sends calls to a server: within a deadline, again where that is safe, with every failure as a fault."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from remit.protocol.codec import decode_response
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_server.client.calls import ApiCall
from remit_server.documents.api_delegations import FailureBody, Handle
from remit_server.transports.addresses import no_hub
from remit_server.transports.remote_calls import read_body

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
                    return self._read(call, reply.status, await read_body(reply, MOST_BYTES))
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

    def _read(self, call: ApiCall, status: int, body: bytes) -> Any:
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
