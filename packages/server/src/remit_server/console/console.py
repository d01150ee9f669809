"""The console of one server: it sends the pages, and checks requests with a cookie."""

from collections.abc import Awaitable, Callable, Collection

from remit.protocol.errors import RemitError
from remit.runtime.clock import LoopClock
from remit_server.access import BROWSER
from remit_server.bodies import Headers, Scope, Send, headers_of, send_bytes, send_fault
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.pages import HEADERS, HOW_TO_BUILD, ConsolePages
from remit_server.console.sessions import ConsoleSessions
from remit_server.public_console import ENTER, SIGN_IN
from remit_server.refusals import Failures, note
from remit_server.transports.credentials.headers import BEARER, PROOF

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
            file = self._pages.found(scope["method"], path, headers)
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
        found = await self.sessions.open(self.hosts.cookie_in(headers))
        if found is None:
            return
        session, sender = found
        self.hosts.check(headers, scope["method"])
        # Browsers send the cookie to every port of this host, so whoever has it may be any server there. The key is
        # known to the page alone.
        if self.sessions.is_page_key(session, headers.get(PAGE_KEY, "")):
            scope[SESSION], scope[BROWSER] = session, sender
