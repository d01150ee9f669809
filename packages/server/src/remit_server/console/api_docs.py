"""The page that shows the OpenAPI description to people, with its files, for servers with and without the console."""

from remit.protocol.errors import RemitError
from remit_server.bodies import Receive, Scope, Send, headers_of, send_bytes, send_fault
from remit_server.console.pages import HEADERS, HOW_TO_BUILD, ConsolePages

LOCAL_PAGES = ("/docs", "/docs/shared")
"""The paths of the page at a device: for the API of its hub, and for its own."""
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


class ApiDocs:
    """Sends the page. It holds nothing of this server: the browser loads the description, by that one's own rule."""

    def __init__(self, pages: ConsolePages | None = None) -> None:
        self._pages = pages or ConsolePages()

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /docs`."""
        headers = headers_of(scope)
        file = self._pages.docs()
        if file is None:
            text = f"This installation has no page for its API; /openapi.json has the data.\n{HOW_TO_BUILD}\n"
            await send_bytes(send, 503, text.encode(), (_TEXT, *HEADERS))
            return
        await self._pages.send(scope, send, file, headers)

    async def sends_file(self, scope: Scope, send: Send) -> bool:
        """Send a script, style or picture that the page asks for; return whether the request was for one."""
        raw: bytes = scope["raw_path"]
        if not raw.startswith((b"/assets/", b"/icon.svg")) or scope["method"] not in ("GET", "HEAD"):
            return False
        try:
            headers = headers_of(scope)
        except RemitError as error:
            await send_fault(send, error.fault)
            return True
        file = self._pages.found(scope["method"], raw.decode("ascii"), headers)
        if file is None:
            return False
        await self._pages.send(scope, send, file, headers)
        return True
