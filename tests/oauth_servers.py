"""A remote MCP server that wants logins, and its authorization server, both on this machine."""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from waiting import PATIENCE_S, eventually

TOOL = {"name": "read", "description": "Read it.", "inputSchema": {"type": "object"}}


async def browser(address: str) -> None:
    """Log in as somebody whom the authorization server knows already: it sends the browser back at once."""
    async with ClientSession() as session, session.get(address) as reply:
        await reply.read()


class LoginServer:
    """An authorization server: authorization codes with PKCE, registration, refresh tokens that work once."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Each request for a login or a token: its path, the proof of the client and the parameters."""
        self.registered = 0
        self.valid: dict[str, str] = {}
        """The scopes of the access tokens that are valid."""
        self.lasts_s = 3_600
        self.gives_refresh = True
        self.pkce: list[str] | None = ["S256"]
        self.declines = False
        self.token_reply: tuple[int, Mapping[str, object]] | None = None
        """What it answers to requests for tokens instead of a token."""
        self.before_refresh = asyncio.Event()
        self.before_refresh.set()
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}

    @property
    def grants(self) -> list[str]:
        return [each["grant_type"] for path, _, each in self.requests if path == "/token"]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        app = web.Application()
        app.router.add_get("/.well-known/oauth-authorization-server", self._metadata)
        app.router.add_post("/register", self._register)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        async with TestServer(app) as server:
            self.address = str(server.make_url("")).rstrip("/")
            yield

    async def _metadata(self, _: web.Request) -> web.Response:
        return web.json_response(self.about())

    def about(self) -> dict[str, object]:
        """Return what it says of itself."""
        about: dict[str, object] = {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "registration_endpoint": f"{self.address}/register",
            "response_types_supported": ["code"],
        }
        if self.pkce is not None:
            about["code_challenge_methods_supported"] = self.pkce
        return about

    async def _register(self, request: web.Request) -> web.Response:
        self.registered += 1
        about = await request.json()
        given = {"client_id": f"client-{self.registered}", "token_endpoint_auth_method": "none"}
        return web.json_response({**about, **given}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        params = dict(request.query)
        self.requests.append(("/authorize", "", params))
        answer = {"state": params["state"]}
        if self.declines:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self._codes[answer["code"]] = params
        raise web.HTTPFound(f"{params['redirect_uri']}?{urlencode(answer)}")

    async def _token(self, request: web.Request) -> web.Response:
        params = {key: str(value) for key, value in (await request.post()).items()}
        self.requests.append(("/token", request.headers.get("authorization", ""), params))
        if self.token_reply is not None:
            status, body = self.token_reply
            return web.json_response(body, status=status)
        if params["grant_type"] == "refresh_token":
            async with asyncio.timeout(PATIENCE_S):
                await self.before_refresh.wait()
            scope = self._refresh.pop(params["refresh_token"], None)
        elif params["grant_type"] == "authorization_code":
            scope = self._redeemed(params)
        else:
            scope = params.get("scope", "")
        if scope is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response(self._tokens(scope))

    def _redeemed(self, params: dict[str, str]) -> str | None:
        login = self._codes.pop(params["code"], None)
        digest = hashlib.sha256(params["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if login is None or login["code_challenge"] != challenge or login["redirect_uri"] != params["redirect_uri"]:
            return None
        return login.get("scope", "")

    def _tokens(self, scope: str) -> dict[str, object]:
        access = f"access-{secrets.token_urlsafe(16)}"
        self.valid[access] = scope
        tokens: dict[str, object] = {"access_token": access, "token_type": "Bearer", "expires_in": self.lasts_s}
        if self.gives_refresh:
            refresh = f"refresh-{secrets.token_urlsafe(16)}"
            self._refresh[refresh] = scope
            tokens["refresh_token"] = refresh
        return tokens

    def expire(self) -> None:
        """Let no access token be valid any more."""
        self.valid.clear()

    def withdraw(self) -> None:
        """Let no token of any kind be valid any more."""
        self.expire()
        self._refresh.clear()


class GuardedMcp:
    """An MCP server with one tool, `read`, for those who bring a token of its authorization server."""

    def __init__(self, logins: LoginServer, legacy_issuer: str | None = None) -> None:
        self.logins = logins
        self.legacy_issuer = legacy_issuer
        """The issuer that a server of 2025-03-26 names, with its own address as SELF."""
        self.address = ""
        self.tokens: list[str] = []
        """The `Authorization` headers of all requests."""
        self.refused = 0
        self.needs = ""
        """The scope that a use of the tool needs."""
        self.together = 1
        """So many uses of the tool must be under way before it answers one."""
        self._uses = 0

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        app = web.Application()
        if self.legacy_issuer is None:
            app.router.add_get("/.well-known/oauth-protected-resource/mcp", self._resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self._legacy)
        app.router.add_post("/mcp", self._post)
        async with TestServer(app) as server:
            self.address = str(server.make_url("")).rstrip("/")
            yield

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    async def refuses(self, times: int) -> None:
        """Return once it has refused so many requests."""
        await eventually(lambda: self.refused >= times, "a refused request")

    async def _resource(self, _: web.Request) -> web.Response:
        return web.json_response({"resource": self.url, "authorization_servers": [self.logins.address]})

    async def _legacy(self, _: web.Request) -> web.Response:
        if self.legacy_issuer is None:
            raise web.HTTPNotFound
        issuer = self.legacy_issuer.replace("SELF", self.address)
        return web.json_response({**self.logins.about(), "issuer": issuer})

    async def _post(self, request: web.Request) -> web.Response:
        proof = request.headers.get("authorization", "")
        self.tokens.append(proof)
        scope = self.logins.valid.get(proof.removeprefix("Bearer "))
        if scope is None:
            self.refused += 1
            about = f"{self.address}/.well-known/oauth-protected-resource/mcp"
            return web.Response(status=401, headers={"www-authenticate": f'Bearer resource_metadata="{about}"'})
        message = await request.json()
        if message["method"] == "tools/call" and self.needs and self.needs not in scope.split():
            wants = f'Bearer error="insufficient_scope", scope="{self.needs}"'
            return web.Response(status=403, headers={"www-authenticate": wants})
        if message["method"] == "tools/call":
            self._uses += 1
            await eventually(lambda: self._uses >= self.together, "another use at the same time")
        if "id" not in message:
            return web.Response(status=202)
        results: dict[str, object] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "the letter"}]},
        }
        reply: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in results:
            reply["result"] = results[message["method"]]
        else:
            reply["error"] = {"code": -32601, "message": "unknown method"}
        return web.json_response(reply)


@asynccontextmanager
async def guarded(legacy_issuer: str | None = None) -> AsyncGenerator[GuardedMcp]:
    """Serve an MCP server and its authorization server."""
    logins = LoginServer()
    server = GuardedMcp(logins, legacy_issuer)
    async with logins.serving(), server.serving():
        yield server
