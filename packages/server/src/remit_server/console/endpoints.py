"""The endpoints of a browser's session: what is here, signing in and out, and one-time links."""

from collections.abc import Awaitable, Callable

from remit import __version__
from remit.policy.reception import Sender
from remit.protocol.codec import decode
from remit.protocol.errors import Code, RemitError, fault
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of, quality, read_json, send_bytes, send_value
from remit_server.console.console import SESSION, Console
from remit_server.console.pages import HEADERS
from remit_server.console.sessions import LINK_MS, ConsoleSession
from remit_server.documents.api import ApiOperation
from remit_server.parameters import parameter, refuse_unknown
from remit_server.public_console import (
    CONSOLE,
    ENTER,
    LINKS,
    SIGN_IN,
    SIGN_OUT,
    ConsoleInfo,
    ConsoleUser,
    OneTimeLink,
    SignedOut,
    SignIn,
)
from remit_server.refusals import REFUSALS, Endpoint, Refusals
from remit_server.transports.credentials.headers import BEARER, MAX_CHARS

# A token and the field around it.
MOST_BODY = 2 * MAX_CHARS
_NO_STORE = ((b"cache-control", b"no-store"), *HEADERS)

SenderOf = Callable[[Scope, Headers], Awaitable[Sender]]
"""Returns who sends a request, whether by a token or with a session; raises a `RemitError` if that is not known."""


class ConsoleEndpoints:
    """The endpoints of a browser's session."""

    def __init__(self, console: Console, sender_of: SenderOf) -> None:
        self._console = console
        self._sessions = console.sessions
        self._hosts = console.hosts
        self._sender_of = sender_of

    def operations(self) -> list[tuple[ApiOperation, Endpoint]]:
        """Return what each operation of a session is done by."""
        return [
            (CONSOLE, self.show),
            (SIGN_IN, self.sign_in),
            (SIGN_OUT, self.sign_out),
            (ENTER, self.enter),
            (LINKS, self.link),
        ]

    async def show(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/console`."""
        headers = headers_of(scope)
        refuse_unknown(scope)
        sender = await self._sender_of(scope, headers)
        session: ConsoleSession | None = scope.get(SESSION)
        more: tuple[tuple[bytes, bytes], ...] = ()
        if session is not None and (longer := self._sessions.prolonged(session)) is not None:
            more = (self._hosts.cookie(self._hosts.origin(headers), self._sessions.sealed(longer)),)
        await send_value(send, self._info(sender), headers=(*_NO_STORE, *more))

    async def sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/console/session`."""
        headers = headers_of(scope)
        origin = self._hosts.check(headers, "POST")
        said = decode(await read_json(headers, receive, MOST_BODY), SignIn)
        sender = await self._bearer(scope, headers, said.token)
        session = self._sessions.begin(sender.name)
        cookie = self._hosts.cookie(origin, self._sessions.sealed(session))
        key = self._sessions.page_key(session)
        await send_value(send, self._info(sender, page_key=key), 201, (*_NO_STORE, cookie))

    async def _bearer(self, scope: Scope, headers: Headers, token: str) -> Sender:
        """Return whose token it is. Wrong ones count like wrong ones in headers, so that guessing takes for ever."""
        refusals: Refusals | None = scope.get(REFUSALS)
        failures = self._console.failures if refusals is None else refusals.failures
        address = "this machine" if refusals is None else refusals.address_of(scope, headers)
        shown = {BEARER.lower(): f"Bearer {token.strip()}"}
        failures.admit(address, shown)
        try:
            sender = await self._sessions.clients.sender(shown)
        except RemitError as error:
            if error.fault.code is Code.UNAUTHENTICATED:
                failures.failed(address, shown)
            raise
        failures.proven(address, shown)
        return sender

    async def sign_out(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`DELETE /v1/console/session`."""
        headers = headers_of(scope)
        await self._sender_of(scope, headers)
        session: ConsoleSession | None = scope.get(SESSION)
        more: tuple[tuple[bytes, bytes], ...] = ()
        if session is not None:
            await self._sessions.leave(session)
            more = (self._hosts.cookie(self._hosts.origin(headers), ""),)
        await send_value(send, SignedOut(signed_out=session is not None), headers=(*_NO_STORE, *more))

    async def enter(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/console/enter`."""
        headers = headers_of(scope)
        refuse_unknown(scope, "code")
        origin = self._hosts.check(headers, "GET")
        if scope["method"] == "HEAD":  # a look at the link must not spend it
            await send_bytes(send, 200, b"", _NO_STORE)
            return
        try:
            session = await self._sessions.enter(parameter(scope, "code", ""))
        except RemitError as error:
            if error.fault.code is not Code.UNAUTHENTICATED or not quality(headers, "text/html"):
                raise
            await send_bytes(send, 303, b"", (*_NO_STORE, (b"location", b"/?link=used")))
            return
        cookie = self._hosts.cookie(origin, self._sessions.sealed(session))
        # What follows the # is for the page: no browser sends it to a server.
        page = f"{await self._console.start()}#key={self._sessions.page_key(session)}"
        await send_bytes(send, 303, b"", (*_NO_STORE, (b"location", page.encode("ascii")), cookie))

    async def link(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`POST /v1/console/links`."""
        sender = await self._sender_of(scope, headers_of(scope))
        if SESSION in scope:
            raise RemitError(fault(Code.PERMISSION_DENIED, "only a program with the token can make a link"))
        made = OneTimeLink(url=self._console.link(sender.name), expires_in_ms=LINK_MS)
        await send_value(send, made, 201, _NO_STORE)

    def _info(self, sender: Sender, page_key: str = "") -> ConsoleInfo:
        return ConsoleInfo(
            version=__version__,
            views=self._console.views,
            who=ConsoleUser(
                name=sender.name, permissions=tuple(sorted(sender.permissions)), may_approve=sender.may_approve
            ),
            page_key=page_key,
            team=self._console.team,
            currency=self._console.currency,
        )
