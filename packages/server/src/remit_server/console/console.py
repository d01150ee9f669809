"""The console of one server: its pages, sessions of browsers, and requests with a cookie."""

from collections.abc import Awaitable, Callable, Collection

from remit import __version__
from remit.hub.hub import Hub
from remit.policy.reception import Sender
from remit.protocol.codec import decode
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit_server.access import BROWSER
from remit_server.bodies import (
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    quality,
    read_json,
    send_bytes,
    send_fault,
    send_value,
)
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.pages import HEADERS, HOW_TO_BUILD, ConsolePages, is_built, not_built
from remit_server.console.sessions import LINK_MS, ConsoleSession, ConsoleSessions, SpentInStore
from remit_server.documents.api import (
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
from remit_server.operations import parameter, refuse_unknown, sends
from remit_server.refusals import REFUSALS, Failures, Refusals, note
from remit_server.transports.credentials.incoming import MAX_BEARER_CHARS, Authenticator
from remit_server.transports.credentials.proof import BEARER, PROOF

SESSION = "remit.console.session"
"""The key of the ASGI scope under which the session of a browser is stored."""
PAGE_KEY = "x-remit-page-key"

_READS = ("GET", "HEAD")
# The addresses at which a session counts.
_KNOWN = ("/v1/", "/openapi.json")


async def _start() -> str:
    return "/"


class Console:
    """Serves the pages, and lets browsers in."""

    def __init__(
        self,
        sessions: ConsoleSessions,
        hosts: ConsoleHosts,
        *,
        team: str,
        views: Collection[str],
        pages: ConsolePages | None = None,
        currency: str = "USD",
    ) -> None:
        self.start: Callable[[], Awaitable[str]] = _start
        """Returns the path of the page that a link opens."""
        self.sessions = sessions
        self.hosts = hosts
        self.team = team
        self.currency = currency
        self.views = tuple(views)
        self._pages = pages or ConsolePages()
        self.failures = Failures(LoopClock().now)

    def link(self, client: str) -> str:
        """Return a link that signs in one browser as a client, once."""
        return f"{self.hosts.address}{ENTER.path}?code={self.sessions.code(client)}"

    # ── before a request is routed ────────────────────────────────────────────────────────────────────────────────────

    async def answers(self, scope: Scope, send: Send) -> bool:
        """Answer a request for a page, or one with a cookie that is not let in; return whether it was answered.

        A request with a valid session has its sender in the scope afterwards.
        """
        path = scope["raw_path"].decode("ascii")
        headers: Headers = {}
        try:
            headers = headers_of(scope)
            file = self._pages.file_for(scope["method"], path, headers)
            if file is not None:
                self.hosts.origin(headers)
                await self._pages.send(scope, send, file, headers)
                return True
            if path == "/" and scope["method"] in _READS:
                text = f"This installation has no console.\n{HOW_TO_BUILD}\n"
                await send_bytes(send, 503, text.encode(), ((b"content-type", b"text/plain; charset=utf-8"), *HEADERS))
                return True
            await self._identify(scope, headers, path)
        except RemitError as error:
            note(scope, headers, error.fault)
            await send_fault(send, error.fault)
            return True
        return False

    async def _identify(self, scope: Scope, headers: Headers, path: str) -> None:
        """Put the sender of a request with a session into its scope; a token counts more than a cookie."""
        signs_in = path == ENTER.path or (path == SIGN_IN.path and scope["method"] == "POST")
        if signs_in or BEARER.lower() in headers or PROOF.lower() in headers or not path.startswith(_KNOWN):
            return
        opened = await self.sessions.open(self.hosts.cookie_in(headers))
        if opened is None:
            return
        session, sender = opened
        self.hosts.check(headers, scope["method"])
        # Browsers send the cookie to every port of this host, so whoever has it may be any server there. The key is
        # known to the page alone.
        if self.sessions.is_page_key(session, headers.get(PAGE_KEY, "")):
            scope[SESSION], scope[BROWSER] = session, sender


# A token and the field around it.
MOST_BODY = 2 * MAX_BEARER_CHARS
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

    @sends(CONSOLE)
    async def show(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        headers = headers_of(scope)
        refuse_unknown(scope)
        sender = await self._sender_of(scope, headers)
        session: ConsoleSession | None = scope.get(SESSION)
        more: tuple[tuple[bytes, bytes], ...] = ()
        if session is not None and (longer := self._sessions.prolonged(session)) is not None:
            more = (self._hosts.cookie(self._hosts.origin(headers), self._sessions.sealed(longer)),)
        await send_value(send, self._info(sender), headers=(*_NO_STORE, *more))

    @sends(SIGN_IN)
    async def sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        origin = self._hosts.check(headers, "POST")
        sign_in = decode(await read_json(headers, receive, MOST_BODY), SignIn)
        sender = await self._bearer(scope, headers, sign_in.token)
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

    @sends(SIGN_OUT)
    async def sign_out(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        headers = headers_of(scope)
        await self._sender_of(scope, headers)
        session: ConsoleSession | None = scope.get(SESSION)
        more: tuple[tuple[bytes, bytes], ...] = ()
        if session is not None:
            await self._sessions.leave(session)
            more = (self._hosts.cookie(self._hosts.origin(headers), ""),)
        await send_value(send, SignedOut(signed_out=session is not None), headers=(*_NO_STORE, *more))

    @sends(ENTER)
    async def enter(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
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

    @sends(LINKS)
    async def link(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
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


def operator_console(hub: Hub, hosts: ConsoleHosts, clients: Authenticator, *, team: str, currency: str) -> Console:
    """Return the console of an open hub; raise a `RemitError` if this installation has none."""
    if not is_built():
        raise not_built()
    wall_ms = LoopClock().wall_ms
    sessions = ConsoleSessions(hub.store.secret(), clients, SpentInStore(hub.store, wall_ms), wall_ms)
    return Console(sessions, hosts, team=team, views=("operator",), currency=currency)
