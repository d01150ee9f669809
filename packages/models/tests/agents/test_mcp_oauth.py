"""A remote MCP server that wants a token of an authorization server."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from remit import Brief, Hub, RemitError
from remit_models.mcp import add_mcp
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S

SECRET = "open sesame"


def dsa_key() -> str:
    key = dsa.generate_private_key(1_024)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class Gatekeeper:
    """An MCP server that nobody gets past, and the authorization server that it leads to."""

    def __init__(self) -> None:
        self.proofs: list[str] = []
        self.scopes: list[object] = []
        self.assertions: list[str] = []
        self.tokens: list[str] = []
        self.address = ""
        self.challenge = "Bearer"
        self.endless = False
        self.sent = 0

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        app = web.Application()
        app.router.add_get("/.well-known/oauth-protected-resource/mcp", self._resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self._metadata)
        app.router.add_post("/token", self._token)
        app.router.add_route("*", "/mcp", self._mcp)
        async with TestServer(app) as server:
            self.address = str(server.make_url("")).rstrip("/")
            yield

    async def _resource(self, request: web.Request) -> web.StreamResponse:
        if self.endless:
            return await self._without_end(request)
        return web.json_response({"resource": f"{self.address}/mcp", "authorization_servers": [self.address]})

    async def _without_end(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        while self.sent < 100_000_000:
            await response.write(b" " * 100_000)
            self.sent += 100_000
        return response

    async def _metadata(self, _: web.Request) -> web.Response:
        about = {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "response_types_supported": ["code"],
        }
        return web.json_response(about)

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.scopes.append(form.get("scope"))
        self.assertions.append(str(form.get("assertion")))
        self.proofs.append(request.headers.get("authorization") or str(form["client_assertion"]))
        return web.json_response({"access_token": "a-token", "token_type": "Bearer", "expires_in": 60})

    async def _mcp(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("authorization", ""))
        status = 403 if self.tokens[-1] else 401
        return web.Response(status=status, headers={} if status == 403 else {"www-authenticate": self.challenge})


class Counter(Gatekeeper):
    """An MCP server that lets in whoever has a token, and serves two at once or none."""

    def __init__(self) -> None:
        super().__init__()
        self._both = asyncio.Barrier(2)

    async def _mcp(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization") != "Bearer a-token":
            return await super()._mcp(request)
        message: dict[str, Any] = await request.json() if request.method == "POST" else {}
        result: dict[str, Any]
        match message.get("method"):
            case "initialize":
                about = {"name": "counter", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
            case "tools/list":
                result = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                await self._both.wait()
                result = {"content": [{"type": "text", "text": "both"}]}
            case _:
                return web.Response(status=405 if request.method == "GET" else 202)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def used(url: str, issuer: str, **options: Any) -> None:
    hub = Hub(store=MemoryStore())
    proof = {} if "client_key" in options else {"client_secret": SECRET}
    add_mcp(hub, "far", url=url, issuer=issuer, client_id="office", allow=["read"], **proof, **options)

    @hub.agent("clerk", tools=["far.read"])
    async def clerk(brief: Brief) -> object:
        return await brief.use("far.read")

    assert clerk
    async with hub:
        answer = await hub.ask("clerk", "read", user="u")
    assert not answer.ok, "the server lets nobody in"
    assert answer.fault is not None
    assert options.get("client_key", SECRET) not in f"{answer}"


async def test_a_hub_shows_its_secret_to_the_issuer_and_the_token_to_the_server() -> None:
    gate = Gatekeeper()
    async with gate.serving():
        await used(f"{gate.address}/mcp", gate.address)
    assert set(gate.proofs) == {"Basic " + b64encode(b"office:open%20sesame").decode()}
    assert set(gate.tokens) == {"", "Bearer a-token"}


@pytest.mark.parametrize(("scope", "expected"), [("read", "read"), (None, "admin")])
async def test_a_server_names_the_scopes_only_if_the_team_names_none(scope: str | None, expected: str) -> None:
    gate = Gatekeeper()
    gate.challenge = 'Bearer scope="admin"'
    async with gate.serving():
        await used(f"{gate.address}/mcp", gate.address, scope=scope)
    assert set(gate.scopes) == {expected}


async def test_calls_of_a_server_run_at_once() -> None:
    counter = Counter()
    hub = Hub(store=MemoryStore())

    @hub.agent("clerk", tools=["far.read"])
    async def clerk(brief: Brief) -> object:
        async with asyncio.TaskGroup() as both:
            used = [both.create_task(brief.use("far.read")) for _ in range(2)]
        return [each.result() for each in used]

    assert clerk
    async with counter.serving(), asyncio.timeout(PATIENCE_S):
        address = counter.address
        add_mcp(
            hub, "far", url=f"{address}/mcp", issuer=address, client_id="office", client_secret=SECRET, allow=["read"]
        )
        async with hub:
            assert (await hub.ask("clerk", "read", user="u")).result == ["both", "both"]


async def test_a_server_cannot_lead_a_hub_to_another_issuer() -> None:
    gate = Gatekeeper()
    async with gate.serving():
        await used(f"{gate.address}/mcp", "https://login.example")
    assert gate.proofs == []
    assert set(gate.tokens) == {""}


async def test_a_server_cannot_have_a_hub_look_up_other_addresses() -> None:
    gate, seen = Gatekeeper(), list[str]()

    async def private(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.json_response({"resource": f"{gate.address}/mcp", "authorization_servers": [gate.address]})

    app = web.Application()
    app.router.add_get("/secrets", private)
    async with gate.serving(), TestServer(app) as inside:
        gate.challenge = f'Bearer resource_metadata="{inside.make_url("/secrets")}"'
        await used(f"{gate.address}/mcp", gate.address)
    assert seen == []
    assert set(gate.tokens) == {"", "Bearer a-token"}, "the address that every server has is looked up instead"


async def test_what_a_server_says_about_itself_is_not_read_without_end() -> None:
    gate = Gatekeeper()
    gate.endless = True
    async with gate.serving():
        await used(f"{gate.address}/mcp", gate.address)
    assert 0 < gate.sent < 100_000_000
    assert gate.proofs == []


async def test_the_scopes_of_the_team_are_asked_for() -> None:
    """Proves it for a server that names none, where the SDK alone would ask for none."""
    gate = Gatekeeper()
    async with gate.serving():
        await used(f"{gate.address}/mcp", gate.address, scope="read write")
    assert set(gate.scopes) == {"read write"}


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        (rsa.generate_private_key(65_537, 2_048), "RS256"),
    ],
)
async def test_a_hub_can_sign_a_proof_instead_of_showing_a_secret(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, algorithm: str
) -> None:
    """Proves that the issuer can check the proof with the public key, and that it is for this issuer."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    gate = Gatekeeper()
    async with gate.serving():
        await used(f"{gate.address}/mcp", gate.address, client_key=pem)
    claims = jwt.decode(gate.proofs[0], key.public_key(), [algorithm], audience=gate.address)
    assert (claims["iss"], claims["sub"]) == ("office", "office")
    assert pem not in "".join(gate.proofs)


async def test_a_grant_of_an_identity_provider_goes_to_the_issuer_alone() -> None:
    """Proves which issuer and server the grant is got for, and that a server cannot lead it elsewhere."""
    requests: list[tuple[str, str]] = []

    async def assertion(issuer: str, resource: str) -> str:
        requests.append((issuer, resource))
        return "the grant"

    gate, evil = Gatekeeper(), Gatekeeper()
    async with gate.serving(), evil.serving():
        await used(f"{evil.address}/mcp", gate.address, assertion=assertion)
        assert set(requests) == {(gate.address, f"{evil.address}/mcp")}
    assert set(gate.proofs) == {"Basic " + b64encode(b"office:open%20sesame").decode()}
    assert set(gate.assertions) == {"the grant"}
    assert evil.proofs == []


def test_an_assertion_needs_a_secret() -> None:
    async def assertion(issuer: str, resource: str) -> str:
        return issuer + resource

    with pytest.raises(RemitError, match="assertion goes with issuer, client_id and client_secret"):
        add_mcp(Hub(store=MemoryStore()), "far", url="https://x", assertion=assertion, allow=["read"])


@pytest.mark.parametrize("pem", ["no key in PEM", dsa_key()])
async def test_a_key_that_cannot_sign_is_an_error_that_does_not_show_it(pem: str) -> None:
    gate = Gatekeeper()
    async with gate.serving():
        await used(f"{gate.address}/mcp", gate.address, client_key=pem)
    assert gate.proofs == []


def test_credentials_go_together() -> None:
    with pytest.raises(RemitError, match="`issuer` needs `client_id`, too"):
        add_mcp(Hub(store=MemoryStore()), "far", url="https://x", issuer="https://y", allow=["read"])
