"""Authenticates the hub to a remote MCP server by OAuth, with the credentials of a client of its own."""

from collections.abc import AsyncGenerator

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from remit.agents.mcp.settings import OauthClient


class _TokensInMemory:
    """Keeps the tokens of one connection; a new one is got in a moment."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing: the client is registered by the team."""


class _ClientTokens(ClientCredentialsOAuthProvider):
    """The SDK's provider, which asks for the scopes that the team names, and lets calls run at once."""

    def __init__(self, url: str, client: OauthClient) -> None:
        super().__init__(
            url,
            _TokensInMemory(),
            client_id=client.client_id,
            client_secret=client.client_secret,
            scope=client.scope,
            issuer=client.issuer,
        )
        self._scope = client.scope

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        # The SDK holds a lock until the response comes, so a slow call would hold up all others.
        if self.context.is_token_valid():
            self._add_auth_header(request)
            response = yield request
            if response.status_code != 401 and "insufficient_scope" not in response.headers.get("www-authenticate", ""):
                return
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _perform_authorization(self) -> httpx2.Request:
        if self._scope is not None:
            # The SDK has put those in their place that the server names.
            self.context.client_metadata.scope = self._scope
        return await super()._perform_authorization()


def provider_of(url: str, client: OauthClient) -> OAuthClientProvider:
    """Return what gets a token for each request; only the issuer that the team names is sent the secret."""
    return _ClientTokens(url, client)
