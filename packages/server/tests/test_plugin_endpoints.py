"""Endpoints of an installed plugin that nobody here knows: who may use them, and what the document says of them."""

import json
from pathlib import Path
from typing import Any

from plugins import install_plugin, run_python

PLUGIN = """
from msgspec import Struct

from remit_server import SENDER, Operation, Permission, send_value

class Response(Struct):  # a name that the document has already
    harbour: str
    agents: list[str]
    sender: str | None

def endpoints():
    return ["harbour:operations"]

def operations(hub):
    async def tide(scope, receive, send):
        answer = Response(scope["path_params"]["harbour"], sorted(hub.cards), scope.get(SENDER))
        await send_value(send, answer)

    def operation(path, name, **access):
        return Operation(
            method="GET", path=path, endpoint=tide, name=name, summary="The tide.", answer=Response, **access
        )

    yield operation("/v1/tides/{harbour}", "tide", needs=Permission.READ)
    yield operation("/tides/{harbour}", "public_tide", anyone=True)
    if "taker" in hub.cards:
        yield operation("/v1/agents", "other")
"""
PROGRAM = """
import asyncio, json, sys
from aiohttp import ClientSession
from remit import Hub, RemitError
from remit_server import serve

async def main():
    hub = Hub()
    hub.add(sys.argv[1], lambda brief: brief.text)
    tokens, found = {"ops": "ops", "web": "web"}, {}
    serving = serve(hub, clients=tokens, permissions={"ops": ["read"]})
    async with hub, serving as address, ClientSession(address) as http:
        for token in ("ops", "web", "nobody"):
            async with http.get("/v1/tides/Old%2FPort", headers={"authorization": f"Bearer {token}"}) as reply:
                body = await reply.json()
                found[token] = [reply.status, body if reply.status == 200 else body["fault"]["code"]]
        async with http.get("/tides/Rye") as reply:
            found["anyone"] = [reply.status, await reply.json()]
        async with http.get("/openapi.json") as reply:
            found["document"] = await reply.json()
    print(json.dumps(found))

try:
    asyncio.run(main())
except RemitError as error:
    print(json.dumps(error.fault.message))
"""


def found_with(folder: Path, agent: str) -> Any:
    install_plugin(folder, "harbour", PLUGIN)
    done = run_python(folder, "-c", PROGRAM, agent)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_an_installed_plugin_adds_endpoints_that_need_a_permission_and_stand_in_the_document(tmp_path: Path) -> None:
    found = found_with(tmp_path, "pilot")
    document = found.pop("document")
    assert found == {
        "ops": [200, {"harbour": "Old/Port", "agents": ["pilot"], "sender": "ops"}],
        "web": [403, "PERMISSION_DENIED"],
        "nobody": [401, "UNAUTHENTICATED"],
        "anyone": [200, {"harbour": "Rye", "agents": ["pilot"], "sender": None}],
    }
    described = document["paths"]["/v1/tides/{harbour}"]["get"]
    assert described["x-remit-permission"] == "read"
    assert described["tags"] == ["plugins"]
    assert [each["name"] for each in described["parameters"]] == ["harbour"]
    assert described["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/plugins.Response"
    }
    assert document["paths"]["/tides/{harbour}"]["get"]["security"] == []
    schemas = document["components"]["schemas"]
    assert schemas["plugins.Response"]["properties"].keys() == {"harbour", "agents", "sender"}
    assert "result" in schemas["Response"]["properties"]


def test_a_plugin_cannot_take_the_address_of_another_endpoint(tmp_path: Path) -> None:
    assert found_with(tmp_path, "taker") == "a plugin brings GET /v1/agents, which is there already"
