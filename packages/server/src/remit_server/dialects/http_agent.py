"""An agent that calls a server of another system over HTTP, in that system's dialect."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import count
from urllib.parse import quote

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
)
from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.codec import MAX_BYTES
from remit.protocol.envelope import Answer, AnswerContent, Request, Response, fields_of
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_server.dialects import NAMES, find
from remit_server.dialects.exchange import Dialect, ForeignMessage, retry_after_ms
from remit_server.dialects.librarian import Librarian
from remit_server.transports.addresses import in_parts, no_hub
from remit_server.transports.remote_calls import AWAY_MS, CONNECT_S, PAUSE_S, in_words

log = logging.getLogger("remit")

MOST_SESSIONS = 500
"""How many peer sessions of one conversation are remembered, the newest: in 100 kB."""

_OF = "of "

_MOST_PAUSE_S = 2.0

RETRIES = 2
"""The default number of retries: with the first attempt, as many attempts as between hubs."""


def dialect_agent(
    dialect: str, url: str, *, token: str | None = None, retries: int = RETRIES
) -> Callable[[Brief], Awaitable[Answer]]:
    """Return an agent that forwards its requests to *url* in a dialect, and returns the answers.

    A request is sent again, under the same id, only if nothing can have started: at most *retries* times on status 503
    with `Retry-After`, and, unless that is 0, within the deadline if no connection could be made. Otherwise a lost
    request ends as `OUTCOME_UNKNOWN`.
    """
    why = no_hub(url)
    if dialect not in NAMES:
        why = f"unknown dialect {dialect!r}; known dialects: {', '.join(NAMES)}"
    if retries < 0:
        why = f"retries: expected 0 or more, got {retries}"
    if why is not None:
        raise RemitError(fault(Code.TEAM_INVALID, why))
    return _DialectAgent(find(dialect), url.rstrip("/"), token, retries)


class _DialectAgent:
    def __init__(self, dialect: Dialect, url: str, token: str | None, retries: int) -> None:
        self._dialect = dialect
        self._url = url
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._retries = retries

    async def __call__(self, brief: Brief) -> Answer:
        # A client chooses its id, and another may choose the same; to the server both are this hub.
        request = replace(brief.request, id=brief.request.path)
        # Not the id alone, which may be that of an argument; nor next to a word by which detectors recognise secrets.
        kept_as = f"{_OF}{request.session or request.id}"
        is_new = request.session in (None, request.path)
        theirs = None if is_new else (await brief.state()).get(kept_as)
        # The peer's name of the session; a session that it has not named yet is new there.
        sent = replace(request, session=theirs if isinstance(theirs, str) else request.id)
        sent = replace(sent, traceparent=brief.traceparent)
        given = await self._exchanged(brief, sent)
        if isinstance(self._dialect, Librarian) and (calls := self._dialect.calls(given, request)):
            return Answer(calls=calls)
        response = self._dialect.response(given, request)
        if response.session not in (None, theirs):
            await _keep(brief, kept_as, response.session)
        return _answer(response)

    async def _exchanged(self, brief: Brief, request: Request) -> ForeignMessage:
        """Return the server's answer, with retries where they are safe, allowed, and useful."""
        waits = ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with ClientSession(timeout=waits, cookie_jar=DummyCookieJar(), headers=self._headers) as session:
            least_left_ms = brief.time_left_ms() - AWAY_MS
            for attempt in count():
                given = await self._attempt(session, brief, request)
                # Nothing was sent, and the peer may be restarting.
                waits = isinstance(given, Fault) and self._retries > 0 and brief.time_left_ms() > least_left_ms
                wait_ms = given.retry_after_ms if isinstance(given, Fault) else _after_ms(given)
                step_s = min(PAUSE_S * 2 ** min(attempt, 10), _MOST_PAUSE_S)
                pause_s = max((wait_ms or 0) / 1_000, step_s * random.uniform(0.5, 1.5))
                over = (attempt >= self._retries and not waits) or pause_s * 1_000 >= brief.time_left_ms() / 2
                if isinstance(given, ForeignMessage) and (wait_ms is None or over):
                    return given
                if isinstance(given, Fault) and over:
                    raise RemitError(given)
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, session: ClientSession, brief: Brief, request: Request) -> ForeignMessage | Fault:
        """Return the server's answer; a fault if it was not reached."""
        left = replace(request, remit=replace(request.remit, time_ms=brief.time_left_ms()))
        message = self._dialect.request(left)
        url = self._url if not isinstance(self._dialect, Librarian) else f"{self._url}/{quote(message.target, safe='')}"
        try:
            async with session.post(
                url, data=in_parts(message.body), headers=dict(message.headers), allow_redirects=False
            ) as reply:
                body = await reply.content.read(MAX_BYTES + 1)
                while len(body) <= MAX_BYTES and (more := await reply.content.read(MAX_BYTES + 1 - len(body))):
                    body += more
                headers = {name.lower(): value for name, value in reply.headers.items()}
                return ForeignMessage(headers=headers, body=body, status=reply.status)
        except (ClientConnectorError, ConnectionTimeoutError) as error:
            detail = f"{self._url}: {in_words(error)}"
            return fault(Code.DELEGATION_UNAVAILABLE, f"{request.target} cannot be reached", detail=detail)
        except (ClientError, OSError, TimeoutError) as error:
            why, detail = f"the connection to {request.target} was lost", f"{self._url}: {type(error).__name__}"
            raise RemitError(fault(Code.OUTCOME_UNKNOWN, why, detail=detail)) from error


async def _keep(brief: Brief, name: str, theirs: str) -> None:
    """Store the peer's name of a session; a failure to store it does not undo what was done there."""
    try:
        kept = await brief.update_state(**{name: theirs})
        # Most are sessions that nobody named or continues; their ids grow with time.
        surplus = sorted(each for each in kept if each.startswith(_OF))[:-MOST_SESSIONS]
        if surplus:
            await brief.update_state(**dict.fromkeys(each for each in surplus if each != name))
    except RemitError as error:
        if error.fault.code not in (Code.STATE_CONFLICT, Code.TOO_LARGE):
            raise
        # Another request of the same session started one there, too: the one that was stored first is continued.
        log.warning("could not store a session of %s: %s", brief.request.target, error.fault.message)


def _after_ms(given: ForeignMessage) -> int | None:
    """Return how long to wait before a retry; None if there is none."""
    return retry_after_ms(given) if given.status == 503 else None


def _answer(response: Response) -> Answer:
    if not response.ok:
        raise RemitError(response.fault or fault(Code.DELEGATION_FAILED, f"{response.target} gave no reason"))
    return Answer(usage=response.usage, **fields_of(AnswerContent, response))
