"""Agent cards: what they say, who signed them, and that they are not sent twice."""

import json
import warnings
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from aiohttp import ClientSession
from google.protobuf.json_format import MessageToDict, ParseDict
from joserfc import jws
from joserfc.jwk import OKPKey
from jwt.api_jwk import PyJWK

from a2a_serving import speaking
from remit import Brief, Capability, Hub
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.server import Server
from remit_server.transports.credentials.keys import HubKey
from remit_testing import MemoryStore


@pytest.fixture
def hub() -> Hub:
    hub = Hub(store=MemoryStore())
    tags = Capability(code="TAG", description="Sorts “receipts” – alle.", examples=("Sort my receipts",))

    @hub.agent("tagger", description="Sorts things.", version="2.1", capabilities=[tags, Capability(code="COUNT")])
    async def tag(_: Brief) -> str:
        return "ok"

    @hub.agent("plain")
    async def plain(_: Brief) -> str:
        return "ok"

    assert tag
    assert plain
    return hub


async def card_of(server: Server, agent: str = "tagger", **headers: str) -> tuple[int, dict[str, str], Any]:
    path = f"/a2a/{agent}/.well-known/agent-card.json" if agent else "/.well-known/agent-card.json"
    async with ClientSession(server.address, headers=headers) as session, session.get(path) as reply:
        body = await reply.read()
        found = {name.lower(): value for name, value in reply.headers.items()}
        return reply.status, found, json.loads(body) if body else None


async def test_a_card_says_what_an_agent_can_do_and_how_to_ask_it(hub: Hub) -> None:
    """8.3: the card declares every binding, with its address and version."""
    async with speaking(hub) as server:
        status, headers, card = await card_of(server)
        url = f"{server.address}/a2a/tagger"
    assert (status, headers["content-type"]) == (200, "application/json")
    assert card == {
        "name": "tagger",
        "description": "Sorts things.",
        "version": "2.1",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": False,
            "extensions": [
                {
                    "uri": EXTENSION,
                    "description": "Carries the remit of a delegation: for whom, how deep, how long, how many tokens, "
                    "which tools.",
                }
            ],
        },
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {"list": ["ask"]}}}],
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [
            {
                "id": "TAG",
                "name": "TAG",
                "description": "Sorts “receipts” – alle.",
                "tags": ["tagger"],
                "examples": ["Sort my receipts"],
            },
            {"id": "COUNT", "name": "COUNT", "description": "Sorts things.", "tags": ["tagger"]},
        ],
    }


@pytest.mark.parametrize("agent", ["tagger", "plain"])
async def test_a_card_has_every_field_that_is_required_and_nothing_that_is_unknown(hub: Hub, agent: str) -> None:
    """5.7: required fields are present, and required lists are not empty."""
    async with speaking(hub) as server:
        _, _, card = await card_of(server, agent)
    message = ParseDict(card, pb.AgentCard())
    validate_proto_required_fields(message)
    assert MessageToDict(message) == card, "also what has its default value is left out as protobuf does it"


async def test_a_card_is_public_and_the_agents_that_are_not_served_have_none(hub: Hub) -> None:
    """8.1: a card is available, before anything is proven."""
    async with speaking(hub, agents=lambda: {"tagger"}, default="tagger") as server:
        assert (await card_of(server))[0] == 200
        assert (await card_of(server, ""))[2]["name"] == "tagger"
        for hidden in ("plain", "nobody"):
            assert (await card_of(server, hidden))[0] == 404
    hub = Hub(store=MemoryStore())
    async with speaking(hub) as server:
        assert (await card_of(server, ""))[0] == 404


async def test_a_card_that_a_client_has_is_not_sent_again(hub: Hub) -> None:
    """8.6.1: ETag and Cache-Control."""
    async with speaking(hub, url="https://agents.example.com/") as server:
        _, headers, card = await card_of(server)
        assert headers["cache-control"] == "public, max-age=300"
        status, again, body = await card_of(server, **{"if-none-match": f'W/"x", {headers["etag"]}'})
        assert (status, body, again["etag"]) == (304, None, headers["etag"])
        assert (await card_of(server, **{"if-none-match": '"another"'}))[0] == 200
    assert card["supportedInterfaces"][0]["url"] == "https://agents.example.com/a2a/tagger"


@pytest.mark.parametrize("host", ["a@b", "x y", "[::1", "evil.example.com/path"])
async def test_a_host_that_is_none_is_not_made_an_address_of(hub: Hub, host: str) -> None:
    async with speaking(hub) as server:
        assert (await card_of(server, host=host))[0] == 400


async def test_a_card_is_signed_with_the_hubs_key_and_the_sdk_verifies_that(hub: Hub) -> None:
    """8.4: JWS over the canonical card, with alg, typ and kid."""
    key = HubKey.create(0)
    async with speaking(hub, key=lambda: key) as server:
        _, _, card = await card_of(server)
        async with ClientSession(server.address) as session, session.get("/.well-known/jwks.json") as reply:
            (public,) = (await reply.json())["keys"]
        header = json.loads(_unpacked(card["signatures"][0]["protected"]))
        assert header == {
            "alg": "EdDSA",
            "typ": "JOSE",
            "kid": key.signing(0).public,
            "jku": f"{server.address}/.well-known/jwks.json",
        }
    assert public["kid"] == header["kid"]
    verify = create_signature_verifier(lambda kid, _: {public["kid"]: PyJWK(public)}[kid or ""], ["EdDSA"])
    verify(ParseDict(card, pb.AgentCard()))
    with pytest.raises(InvalidSignaturesError):
        verify(ParseDict(card | {"description": "Sorts everything."}, pb.AgentCard()))
    signature = card["signatures"][0]
    payload = json.dumps({k: v for k, v in card.items() if k != "signatures"}, sort_keys=True, separators=(",", ":"),
                         ensure_ascii=False)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RFC 9864 has a new name for it, which the SDKs do not know yet
        jws.deserialize_json(
            {"payload": _packed(payload), "protected": signature["protected"], "signature": signature["signature"]},
            OKPKey.import_key(public),
            algorithms=["EdDSA"],
        )


async def test_without_a_key_nothing_is_signed(hub: Hub) -> None:
    async with speaking(hub) as server:
        assert "signatures" not in (await card_of(server))[2]
        async with ClientSession(server.address) as session, session.get("/.well-known/jwks.json") as reply:
            assert await reply.json() == {"keys": []}


async def test_a_card_says_that_the_extension_is_required_and_that_nobody_is_notified(hub: Hub) -> None:
    async with speaking(hub, required=True, push=False) as server:
        _, _, card = await card_of(server)
    assert card["capabilities"]["extensions"][0]["required"] is True
    assert card["capabilities"]["pushNotifications"] is False


def _unpacked(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _packed(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")
