"""The flows of the MCP SDK that get tokens from an authorization server, each driven one request at a time."""

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from html import escape
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from aiohttp import web
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.registry import team_invalid
from remit_models.mcp.logins import StoredLogin
from remit_models.mcp.oauth_settings import OauthClient, OauthLogin
from remit_models.mcp.reading import visible_text
from remit_models.mcp.streams import BoundedTransport

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
        redirected = await self._answer
        if "code" not in redirected:
            error = redirected.get("error", "")
            why = f"the login was refused ({error if _ERROR.fullmatch(error) else 'no reason given'})"
            how = "Log in again, as somebody who may do that, and agree."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how))
        return redirected

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


# The SDK logs errors of a flow with the answers of the authorization server, which may hold tokens.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)

# An authorization server answers at once, or not at all.
TIME_S = 20.0
# A token is renewed this long before it expires, so that it does not expire on its way.
EARLY_S = 30
_MAX_REASON = 200


class FlowStorage:
    """What a flow starts from and what it ends with; nothing is stored on the way."""

    def __init__(self, client: OAuthClientInformationFull | None = None, tokens: OAuthToken | None = None) -> None:
        self.client = client
        self.tokens = tokens

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


# ── without a person ──────────────────────────────────────────────────────────────────────────────────────────────────


def client_provider(url: str, client: OauthClient, storage: FlowStorage) -> OAuthClientProvider:
    """Return the flow by which a hub gets a token with its own credentials; only the team's issuer is sent them."""
    if client.client_key is not None:
        parameters = SignedJWTParameters(
            issuer=client.client_id,
            subject=client.client_id,
            signing_key=client.client_key,
            signing_algorithm=signing_algorithm(client.client_key),
        )
        return PrivateKeyJWTOAuthProvider(
            url,
            storage,
            client_id=client.client_id,
            assertion_provider=parameters.create_assertion_provider(),
            scope=client.scope,
            issuer=client.issuer,
        )
    assert client.client_secret is not None, "the team gives a secret or a key"
    return ClientCredentialsOAuthProvider(
        url,
        storage,
        client_id=client.client_id,
        client_secret=client.client_secret,
        scope=client.scope,
        issuer=client.issuer,
    )


def assertion_provider(url: str, client: OauthClient, storage: FlowStorage) -> httpx2.Auth:
    """Return the flow by which a hub gets a token for the grant of an identity provider."""
    assert client.assertion is not None
    assert client.client_secret is not None
    return IdentityAssertionOAuthProvider(
        url,
        storage,
        client_id=client.client_id,
        client_secret=client.client_secret,
        issuer=client.issuer,
        assertion_provider=client.assertion,
        scope=client.scope,
        token_endpoint_auth_method="client_secret_basic",
    )


def signing_algorithm(pem: str) -> str:
    """Return the algorithm (JWA) of a private key, or raise a `RemitError`."""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise team_invalid("client_key is not a private key in PEM without a password") from error
    match key:
        case rsa.RSAPrivateKey():
            return "RS256"
        case ed25519.Ed25519PrivateKey():
            return "EdDSA"
        case ec.EllipticCurvePrivateKey(curve=ec.SECP256R1()):
            return "ES256"
        case ec.EllipticCurvePrivateKey(curve=ec.SECP384R1()):
            return "ES384"
        case _:
            raise team_invalid("client_key is of a kind that cannot sign: use RSA, P-256, P-384 or Ed25519")


# ── by a login ────────────────────────────────────────────────────────────────────────────────────────────────────────


class LoginProvider(OAuthClientProvider):
    """The flow in which a person logs in (authorization code with PKCE), and that which renews its tokens."""

    def __init__(
        self,
        url: str,
        login: OauthLogin,
        storage: FlowStorage,
        redirect: LoopbackRedirect | None = None,
        browser: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        self._login = login
        self._redirect = redirect
        self._browser = browser
        uri = AnyUrl(f"http://{HOST}{PATH}" if redirect is None else redirect.uri)
        super().__init__(
            url,
            OAuthClientMetadata(redirect_uris=[uri], client_name="Remit", scope=login.scope),
            storage,
            redirect_handler=self._open,
            callback_handler=self._answered,
            client_metadata_url=login.client_metadata_url,
        )

    def restore(self, stored: StoredLogin, client: OAuthClientInformationFull | None) -> None:
        """Continue after a login: only its own issuer renews its tokens."""
        if stored.metadata is not None:
            self.context.oauth_metadata = OAuthMetadata.model_validate(stored.metadata)
        if stored.resource is not None:
            self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(stored.resource)
        self.context.auth_server_url = stored.issuer
        self.context.token_expiry_time = 1  # long ago: the flow begins with the refresh token
        self._choose_method(client)

    def _choose_method(self, client: OAuthClientInformationFull | None) -> None:
        """Choose how a secret is sent, where the registration leaves it open (RFC 8414: in a header)."""
        if client is not None and client.client_secret and client.token_endpoint_auth_method is None:
            metadata = self.context.oauth_metadata
            known = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
            by_post = "client_secret_post" in known and "client_secret_basic" not in known
            client.token_endpoint_auth_method = "client_secret_post" if by_post else "client_secret_basic"

    def _select_authorization_server(self, advertised: list[str]) -> str:
        pinned = self._login.issuer
        if pinned is None:
            return advertised[0]
        for each in advertised:
            if issuers_match(each, pinned):
                return each
        raise _another_issuer(advertised[0], pinned)

    def accepted(self, response: httpx2.Response) -> httpx2.Response:
        """Return the metadata of a server of 2025-03-26 as the SDK accepts them.

        Such a server is its own authorization server, and names as issuer any address of its origin, from which the
        metadata come, too. RFC 8414 wants them to name the one address that they are served for.
        """
        origin = _origin(self.context.server_url)
        legacy = f"{origin}/.well-known/oauth-authorization-server"
        if self.context.auth_server_url or self._login.issuer or str(response.request.url) != legacy:
            return response
        try:
            about = msgspec.json.decode(response.content, type=dict[str, Any])
        except msgspec.MsgspecError:
            return response
        if _origin(str(about.get("issuer"))) != origin:
            return response
        return httpx2.Response(response.status_code, json={**about, "issuer": origin}, request=response.request)

    async def _open(self, url: str) -> None:
        context, pinned = self.context, self._login.issuer
        metadata = context.oauth_metadata
        if pinned is not None and (metadata is None or not issuers_match(str(metadata.issuer), pinned)):
            raise _another_issuer("nowhere" if metadata is None else str(metadata.issuer), pinned)
        # The specification wants this refused; only servers of 2025-03-26 without any metadata may leave it out.
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise OAuthFlowError(f"{metadata.issuer} does not say that it supports PKCE with S256")
        if context.server_url.startswith("https:") and not url.startswith("https:"):
            raise OAuthFlowError(f"the page for the login at {urlsplit(url).hostname} is not encrypted")
        self._choose_method(context.client_info)
        assert self._redirect is not None
        assert self._browser is not None
        (state,) = parse_qs(urlsplit(url).query)["state"]
        self._redirect.expect(state)
        await self._browser(url)

    async def _answered(self) -> AuthorizationCodeResult:
        assert self._redirect is not None
        answer = await self._redirect.answer()
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))


def client_of(login: OauthLogin, stored: StoredLogin | None, redirect: str | None) -> OAuthClientInformationFull | None:
    """Return this hub as the issuer knows it; None: it must be registered first.

    *redirect* is the page to which a browser will be sent; None if nobody logs in.
    """
    if login.client_id is not None:
        return OAuthClientInformationFull(
            client_id=login.client_id,
            client_secret=login.client_secret,
            token_endpoint_auth_method=None if login.client_secret else "none",
            issuer=login.issuer,
        )
    if stored is None:
        return None
    client = OAuthClientInformationFull.model_validate(stored.client)
    if redirect is not None and redirect not in map(str, client.redirect_uris or ()):
        return None
    expires = client.client_secret_expires_at
    return None if expires and expires < time.time() else client


def port_before(stored: StoredLogin | None) -> int | None:
    """Return the port of the login before, so that this hub need not be registered again."""
    uris = cast("list[object]", (stored.client.get("redirect_uris") if stored else None) or [])
    return port_of(uris[0]) if uris else None


def result_of(provider: OAuthClientProvider, login: OauthClient | OauthLogin, now: float) -> StoredLogin | None:
    """Return what a flow ended with; None if it got no tokens."""
    context = provider.context
    tokens, metadata, prm, client = (
        context.current_tokens,
        context.oauth_metadata,
        context.protected_resource_metadata,
        context.client_info,
    )
    if tokens is None or client is None:
        return None
    kept = {"client_secret"} if login.client_id is not None else set[str]()
    return StoredLogin(
        url=context.server_url,
        issuer=_origin(context.server_url) if metadata is None else str(metadata.issuer),
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        renew_at=renewal(tokens, now),
        scope=tokens.scope,
        requested=context.client_metadata.scope,
        client=client.model_dump(mode="json", exclude_none=True, exclude=kept),
        metadata=None if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
        resource=None if prm is None else prm.model_dump(mode="json", exclude_none=True),
    )


def renewal(tokens: OAuthToken, now: float) -> float | None:
    """Return when a token should be renewed; None if it does not say when it expires."""
    lasts = tokens.expires_in
    return None if lasts is None else now + max(lasts - EARLY_S, lasts / 2)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


# ── driving ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _another_issuer(led: str, pinned: str) -> OAuthFlowError:
    return OAuthFlowError(f"the server leads to {led}, and the issuer of the team is {pinned}")


async def drive(
    provider: httpx2.Auth,
    request: httpx2.Request,
    challenge: httpx2.Response | None,
    server: str,
    issuer: str | None,
) -> None:
    """Run a flow up to the point where it would send *request* itself, or raise a `RemitError`.

    The flow begins with the server's answer to the request, the *challenge*; without one, it renews tokens. If the team
    names the *issuer*, nothing is looked up elsewhere.
    """
    refused: str | None = None
    secure = request.url.scheme == "https"
    transport = BoundedTransport(() if issuer is None else (str(request.url), issuer))
    flow = provider.async_auth_flow(request)
    try:
        async with aclosing(flow), httpx2.AsyncClient(transport=transport, timeout=TIME_S) as client:
            outgoing = await anext(flow)
            if challenge is not None:
                outgoing = await flow.asend(challenge)
            while outgoing is not request:
                if secure and outgoing.url.scheme != "https":
                    raise OAuthFlowError(f"{outgoing.url.copy_with(query=None)} is not encrypted")
                outgoing.headers["accept-encoding"] = "identity"
                response = await client.send(outgoing, follow_redirects=False)
                await response.aread()
                if outgoing.method == "POST" and (response.status_code >= 500 or response.status_code == 429):
                    raise _unavailable(server, f"{outgoing.url.host} answered {response.status_code}")
                if outgoing.method == "POST" and response.is_error:
                    refused = _reason(response)
                outgoing = await flow.asend(
                    provider.accepted(response) if isinstance(provider, LoginProvider) else response
                )
    except httpx2.HTTPError as error:
        raise _unavailable(server, type(error).__name__) from error
    # The causes are left out below: their texts quote the authorization server, which may repeat secrets.
    except OAuthRegistrationError:
        why = f"the authorization server of MCP server {server} does not register this hub ({refused or 'invalid'})"
        how = "Register it there by hand, and set issuer and client_id."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=how)) from None
    except OAuthTokenError:
        why = f"the authorization server of MCP server {server} gave no token ({refused or 'invalid reply'})"
        raise RemitError(fault(Code.TEAM_INVALID, why)) from None
    except OAuthFlowError as error:
        why = f"no token for MCP server {server}: {visible_text(str(error), _MAX_REASON)}"
        raise RemitError(fault(Code.TEAM_INVALID, why)) from error


def _reason(response: httpx2.Response) -> str:
    """Return the error code of an answer; its text could repeat a secret."""
    try:
        reason = json.loads(response.content)["error"]
    except (ValueError, TypeError, KeyError):
        reason = None
    return reason if isinstance(reason, str) and _ERROR.fullmatch(reason) else f"status {response.status_code}"


def _unavailable(server: str, how: str) -> RemitError:
    why = f"the authorization server of MCP server {server} cannot be reached"
    return RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, detail=how))
