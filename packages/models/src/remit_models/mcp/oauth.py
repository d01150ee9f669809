"""Authenticates the hub to a remote MCP server by OAuth: with credentials of its own, or by the login of a person."""

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import OAuthToken
from msgspec.structs import replace

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_models.mcp.logins import LoginFile, StoredLogin, login_file, scopes_of, usable
from remit_models.mcp.oauth_flows import (
    FlowStorage,
    LoginProvider,
    LoopbackRedirect,
    assertion_provider,
    client_of,
    client_provider,
    drive,
    port_before,
    renewal,
    result_of,
)
from remit_models.mcp.oauth_settings import OauthClient, OauthLogin
from remit_models.mcp.settings import Address
from remit_models.mcp.streams import CONNECT_S, BoundedTransport

# A token is renewed to the end even if nobody waits for it any more, because the old one no longer works.
CLOSE_S = 30.0


class OauthTokens(httpx2.Auth):
    """Adds its token to each request to one MCP server, and gets a new one when the server wants that.

    The flows are those of the SDK. Its own way to run them would hold a lock while the server answers, lose the address
    that renews tokens and the time at which they expire with the process, and ignore the scopes of the team.
    """

    def __init__(
        self, name: str, address: Address, logins: LoginFile | None = None, now: Callable[[], float] = time.time
    ) -> None:
        assert address.oauth is not None
        self._name = name
        self._url = address.url
        self._origin = httpx2.URL(address.url)
        self._oauth: OauthClient | OauthLogin = address.oauth
        self._logins = logins or login_file(name, address)
        self._now = now
        self._lock = asyncio.Lock()
        self._renewals: set[asyncio.Task[str | None]] = set()
        self.problem: Fault | None = None
        """Why the newest request has no token that the server accepts."""

    async def close(self) -> None:
        """Wait until tokens that are being renewed are stored."""
        if self._renewals:
            await asyncio.wait(self._renewals, timeout=CLOSE_S)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token, and again with a new one."""
        if not self._is_ours(request.url):
            yield request
            return
        token = await self._valid()
        tried: set[str] = set()
        while True:
            if token is not None:
                request.headers["authorization"] = f"Bearer {token}"
            response = yield request
            if not _is_challenge(response):
                self.problem = None
                return
            try:
                token = await self._another(request, response, token, tried)
            except RemitError as error:
                self.problem = error.fault
                return

    def _is_ours(self, url: httpx2.URL) -> bool:
        return (url.scheme, url.host, url.port) == (self._origin.scheme, self._origin.host, self._origin.port)

    async def _valid(self) -> str | None:
        """Return the stored token, renewed if it has expired; the server judges one that cannot be renewed."""
        stored = self.stored()
        if stored is None:
            return None
        if self._expired(stored):
            with suppress(RemitError):  # tried again if the server refuses the old one
                return await self._renewed(stored.access_token) or stored.access_token
        return stored.access_token

    async def _another(
        self, request: httpx2.Request, response: httpx2.Response, token: str | None, tried: set[str]
    ) -> str:
        """Return another token after an answer that refuses the one that was sent, or raise a `RemitError`.

        *tried* are the ways that this request has taken; each is taken once.
        """
        further = response.status_code == HTTPStatus.FORBIDDEN
        if not further and "renewal" not in tried:
            tried.add("renewal")
            fresh = await self._renewed(token)
            if fresh is not None:
                return fresh
        async with self._lock:
            stored = self.stored()
            if stored is not None and stored.access_token != token and "other" not in tried:
                tried.add("other")  # another request got it meanwhile
                return stored.access_token
            way = "further scopes" if further else "login"
            if way in tried:
                raise RemitError(fault(Code.TEAM_INVALID, f"MCP server {self._name} refuses the token that it wanted"))
            tried.add(way)
            if further:
                self._refuse_asked(response, stored)
            match self._oauth:
                case OauthClient(assertion=None) as client:
                    storage = FlowStorage(tokens=_tokens(stored) if stored and further else None)
                    provider = client_provider(self._url, client, storage)
                    await drive(provider, request, self._challenge(response), self._name, self._oauth.issuer)
                    new = self._result(provider)
                    self._logins.write(new)
                case OauthClient() as client:
                    new = await self._asserted(client, request, self._challenge(response), stored)
                    self._logins.write(new)
                case OauthLogin(browser=None):
                    raise self._login_needed(response)
                case OauthLogin(browser=browser):
                    assert browser is not None
                    new = await self._logged_in(request, self._challenge(response), browser)
            return new.access_token

    async def _asserted(
        self, client: OauthClient, request: httpx2.Request, challenge: httpx2.Response, stored: StoredLogin | None
    ) -> StoredLogin:
        further = challenge.status_code == HTTPStatus.FORBIDDEN
        storage = FlowStorage(tokens=_tokens(stored) if stored and further else None)
        await drive(assertion_provider(self._url, client, storage), request, challenge, self._name, self._oauth.issuer)
        assert storage.tokens is not None, "the flow ends with tokens or raises"
        return StoredLogin(
            url=self._url,
            issuer=client.issuer,
            access_token=storage.tokens.access_token,
            renew_at=renewal(storage.tokens, self._now()),
            scope=storage.tokens.scope,
            requested=union_scopes(client.scope, extract_scope_from_www_auth(challenge)),
            client={"client_id": client.client_id},
        )

    def _result(self, provider: OAuthClientProvider) -> StoredLogin:
        new = result_of(provider, self._oauth, self._now())
        if new is None:
            why = f"MCP server {self._name} names no authorization server that gives a token"
            raise RemitError(fault(Code.TEAM_INVALID, why))
        return new

    def _refuse_asked(self, response: httpx2.Response, stored: StoredLogin | None) -> None:
        """Raise a `RemitError` if a login could not get more than the last one."""
        wanted = scopes_of(extract_scope_from_www_auth(response))
        if not set(wanted) - set(scopes_of(stored.requested if stored else None)):
            why = f"MCP server {self._name} wants further rights, which the last login did not get"
            raise RemitError(fault(Code.PERMISSION_DENIED, why, detail=f"scopes: {' '.join(wanted) or 'not named'}"))

    def _login_needed(self, response: httpx2.Response) -> RemitError:
        command = f"remit mcp login {shlex.quote(self._name)}"
        if response.status_code == HTTPStatus.FORBIDDEN:
            scopes = " ".join(scopes_of(extract_scope_from_www_auth(response)))
            why = f"MCP server {self._name} wants a login with further rights"
            return RemitError(
                fault(Code.TEAM_INVALID, why, suggestion=f"Log in again: {command} --scope {shlex.quote(scopes)}")
            )
        why = f"MCP server {self._name} wants a login"
        return RemitError(fault(Code.TEAM_INVALID, why, suggestion=f"A person logs in: {command}"))

    def _challenge(self, response: httpx2.Response | None, *further: str) -> httpx2.Response:
        """Return an answer with the scopes that the team wants in the place of those that the server names."""
        status = HTTPStatus.UNAUTHORIZED if response is None else response.status_code
        named = None if response is None else extract_scope_from_www_auth(response)
        about = None if response is None else extract_resource_metadata_from_www_auth(response)
        scope = named if status == HTTPStatus.FORBIDDEN else self._oauth.scope or named
        # Without a scope the SDK chooses those that the metadata name.
        parts = [f'scope="{" ".join(scopes_of(" ".join((scope or "", *further))))}"'] if scope or further else []
        parts += [] if about is None else [f'resource_metadata="{about}"']
        parts += ['error="insufficient_scope"'] if status == HTTPStatus.FORBIDDEN else []
        return httpx2.Response(status, headers={"www-authenticate": f"Bearer {', '.join(parts)}"})

    # ── logins ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def log_in(self, browser: Callable[[str], Awaitable[object]], *scopes: str) -> StoredLogin:
        """Let a person log in, whether or not there is a login; raise a `RemitError` if that fails."""
        greeting = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        request = httpx2.Request(
            "POST", self._url, json=greeting, headers={"accept": "application/json, text/event-stream"}
        )
        try:
            async with httpx2.AsyncClient(transport=BoundedTransport(), timeout=CONNECT_S) as client:
                response = await client.send(request, stream=True)
                await response.aclose()
        except httpx2.HTTPError as error:
            why = f"MCP server {self._name} cannot be reached"
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, detail=type(error).__name__)) from error
        refused = response if response.status_code == HTTPStatus.UNAUTHORIZED else None
        async with self._lock:
            before = self.stored()
            further = (before.requested or "", *scopes) if before and scopes else scopes
            return await self._logged_in(request, self._challenge(refused, *further), browser)

    async def _logged_in(
        self, request: httpx2.Request, challenge: httpx2.Response, browser: Callable[[str], Awaitable[object]]
    ) -> StoredLogin:
        login, stored = self._oauth, self.stored()
        assert isinstance(login, OauthLogin)
        async with LoopbackRedirect(login.redirect_port, port_before(stored)) as redirect:
            tokens = _tokens(stored) if stored and challenge.status_code == HTTPStatus.FORBIDDEN else None
            storage = FlowStorage(client_of(login, stored, redirect.uri), tokens)
            provider = LoginProvider(self._url, login, storage, redirect, browser)
            await drive(provider, request, challenge, self._name, self._oauth.issuer)
        new = self._result(provider)
        async with self._logins.locked():
            self._logins.write(new)
        return new

    def stored(self) -> StoredLogin | None:
        """Return the login if it is for this server, issuer and client."""
        return usable(self._logins.read(), self._url, self._oauth)

    # ── renewal ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _expired(self, stored: StoredLogin) -> bool:
        return stored.renew_at is not None and stored.renew_at <= self._now()

    async def _renewed(self, stale: str | None) -> str | None:
        """Return a token other than *stale* without a person; None if there is none; raise a `RemitError` if that is
        not known.
        """
        if isinstance(self._oauth, OauthClient):
            return None
        renewal = asyncio.get_running_loop().create_task(self._renew(self._oauth, stale))
        self._renewals.add(renewal)
        renewal.add_done_callback(self._ended)
        return await asyncio.shield(renewal)

    def _ended(self, renewal: "asyncio.Task[str | None]") -> None:
        self._renewals.discard(renewal)
        if not renewal.cancelled():
            renewal.exception()  # whoever waits gets the error; without anybody it does not matter

    async def _renew(self, login: OauthLogin, stale: str | None) -> str | None:
        async with self._lock, self._logins.locked():
            stored = self.stored()
            if stored is None:
                return None
            if stored.access_token != stale and not self._expired(stored):
                return stored.access_token  # another process renewed it
            if stored.refresh_token is None:
                return None
            client = client_of(login, stored, None)
            tokens = OAuthToken(
                access_token=stored.access_token, refresh_token=stored.refresh_token, scope=stored.scope
            )
            provider = LoginProvider(self._url, login, FlowStorage(client, tokens))
            provider.restore(stored, client)
            request = httpx2.Request("POST", self._url)
            await drive(provider, request, None, self._name, self._oauth.issuer)
            new = result_of(provider, login, self._now())
            if new is None:  # the issuer no longer accepts it, and need not be asked again
                self._logins.write(replace(stored, refresh_token=None))
                return None
            self._logins.write(replace(new, requested=stored.requested))
            return new.access_token


def _tokens(stored: StoredLogin) -> OAuthToken:
    """Return the token of a login, with the scopes that a further login must keep."""
    scope = " ".join(scopes_of(f"{stored.requested or ''} {stored.scope or ''}")) or None
    return OAuthToken(access_token=stored.access_token, scope=scope)


def _is_challenge(response: httpx2.Response) -> bool:
    if response.status_code == HTTPStatus.FORBIDDEN:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == HTTPStatus.UNAUTHORIZED
