"""Receives the answer of an authorization server at a port of this machine, where the browser of a person is sent."""

import asyncio
import re
import secrets
from collections.abc import Mapping
from html import escape
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web

from remit.protocol.errors import Code, RemitError, fault

HOST = "127.0.0.1"
PATH = "/callback"
_ERROR = re.compile(r"[a-z_]{1,40}")
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'",
}


class LoopbackRedirect:
    """A page of this machine that ends a login; a context manager that listens while it is open."""

    def __init__(self, port: int | None = None, preferred: int | None = None) -> None:
        self._port = port
        self._preferred = preferred
        self._runner: web.ServerRunner | None = None
        self._state: str | None = None
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self.uri = ""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._received, access_log=None))
        await self._runner.setup()
        for port in dict.fromkeys((self._port or self._preferred or 0, self._port or 0)):
            site = web.TCPSite(self._runner, HOST, port)
            try:
                await site.start()
            except OSError:
                continue
            (address,) = self._runner.addresses
            self.uri = f"http://{HOST}:{address[1]}{PATH}"
            return self
        await self._runner.cleanup()
        raise RemitError(fault(Code.TEAM_INVALID, f"port {self._port} is in use", suggestion="Choose another one."))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answer.cancel()
        assert self._runner is not None
        await self._runner.cleanup()

    def expect(self, state: str) -> None:
        """Accept only the answer to the request with this secret; any page could call the port."""
        self._state = state

    async def answer(self) -> Mapping[str, str]:
        """Return the parameters of the answer, or raise a `RemitError` if the login was refused."""
        found = await self._answer
        if "code" not in found:
            error = found.get("error", "")
            why = f"the login was refused ({error if _ERROR.fullmatch(error) else 'no reason given'})"
            how = "Log in again, as somebody who may do that, and agree."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how))
        return found

    async def _received(self, request: web.BaseRequest) -> web.StreamResponse:
        query = request.query
        state = query.get("state", "").encode()
        if request.path != PATH or self._state is None or not secrets.compare_digest(state, self._state.encode()):
            return _page(404, "This page belongs to no login that is in progress.")
        if not self._answer.done():
            self._answer.set_result(dict(query))
        if "code" not in query:
            return _page(200, "The login was refused. You can close this window.")
        return _page(200, "Remit has the answer. You can close this window.")


def port_of(uri: object) -> int | None:
    """Return the port of an address of such a page; None if it is not one."""
    parts = urlsplit(str(uri))
    return parts.port if parts.hostname == HOST else None


def _page(status: int, text: str) -> web.Response:
    body = f"<!doctype html><meta charset=utf-8><title>Remit</title><p>{escape(text)}</p>"
    return web.Response(status=status, text=body, content_type="text/html", headers=_HEADERS)
