"""`[a2a]` and agents with a `card` in a team file: what is wrong with them, and what comes of them."""

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from aiohttp import ClientSession, TCPConnector

from certificates import certificate
from remit import RemitError
from remit.installed import install_command
from remit.runtime.schemas import misfits
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.serving import serving
from remit_cli.config.team import team_schema
from remit_server.transports.credentials.keys import HubKey

TEAM = """
name = "shop"

[store]
durability = "process"

[agents.echo]
run = "shop_code:echo"
description = "Says it again."

[agents.hidden]
run = "shop_code:echo"

[clients.web]
token = "$WEB_TOKEN"
users = ["ada"]
agents = ["*"]

[serve]
port = 0
"""
CODE = """
async def echo(brief):
    return f"{brief.user}: {brief.text}"
"""
A2A = """
[a2a]
agents = ["echo"]
default = "echo"
url = "https://shop.example"
push_hosts = ["Hooks.internal"]
"""
SECRETS = {"WEB_TOKEN": "a-token-that-is-long-enough", "MAPS": "another-token-that-is-long-enough"}


def written(folder: Path, text: str) -> Path:
    # A module is imported once in a process, wherever it lies: each test has one of its own.
    name = f"shop_code_{next(_numbers)}"
    (folder / f"{name}.py").write_text(CODE)
    file = folder / "remit.toml"
    file.write_text(text.replace("shop_code", name), encoding="utf-8")
    return file


_numbers = count()


def problems(folder: Path, text: str) -> list[str]:
    try:
        load_team(written(folder, text), environ=SECRETS)
    except RemitError as error:
        return [f"{each.path}: {each.message}" for each in error.fault.problems]
    return []


CARD = '\n[agents.maps]\ncard = "https://maps.example"\n'


def test_what_is_right_is_right_for_editors_too(tmp_path: Path) -> None:
    text = TEAM + A2A + CARD + 'card_token = "$MAPS"\ncard_hosts = ["maps-2.example"]\n'
    assert problems(tmp_path, text) == []
    content: dict[str, Any] = {
        "agents": {"maps": {"card": "https://maps.example", "card_token": "$MAPS"}},
        "a2a": {"agents": ["*"], "push": False},
    }
    assert misfits(team_schema(), content, content) == ()


async def test_a_served_team_speaks_a2a(tmp_path: Path) -> None:
    file = written(tmp_path, TEAM + A2A)
    (tmp_path / ".remit").mkdir()
    HubKey.create(0).save(tmp_path / ".remit" / "hub.key")
    team = load_team(file, environ=SECRETS)
    async with serving(team, environ=SECRETS) as up, up.server as server, ClientSession(server.address) as session:
        async with session.get("/.well-known/agent-card.json") as reply:
            card = await reply.json()
        async with session.get("/a2a/hidden/.well-known/agent-card.json") as reply:
            assert reply.status == 404
        headers = {"authorization": f"Bearer {SECRETS['WEB_TOKEN']}", "a2a-version": "1.0"}
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        async with session.post("/a2a/echo/message:send", json={"message": message}, headers=headers) as reply:
            task = json.loads(await reply.read())["task"]
    assert card["supportedInterfaces"][0]["url"] == "https://shop.example/a2a/echo"
    assert task["artifacts"][0]["parts"][0]["text"] == "ada: hello"
    key = team.identity.key
    assert ("signatures" in card) is (tmp_path / key).exists()


def test_grpc_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    (problem,) = problems(tmp_path, TEAM + "[a2a]\ngrpc_port = 0\n")
    assert problem.endswith(f"a2a.grpc_port: A2A over gRPC needs the extra `a2a`: {install_command('a2a')}")


async def test_a_served_team_speaks_a2a_over_grpc_with_the_certificate_of_the_server(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    text = TEAM + f'certificate = "{made.file.name}"\nprivate_key = "{made.key.name}"\n' + A2A + "grpc_port = 0\n"
    team = load_team(written(tmp_path, text), environ=SECRETS)
    async with serving(team, environ=SECRETS) as up, up.server as server:
        async with (
            ClientSession(server.address, connector=TCPConnector(ssl=False)) as session,
            session.get("/.well-known/agent-card.json") as reply,
        ):
            interface = (await reply.json())["supportedInterfaces"][2]
        address = server.api.grpc_address
        assert address is not None
        credentials = grpc.ssl_channel_credentials(made.file.read_bytes())
        async with grpc.aio.secure_channel(address, credentials) as channel:
            stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
            message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hello")])
            metadata = (("authorization", f"Bearer {SECRETS['WEB_TOKEN']}"), ("a2a-version", "1.0"))
            answer = await stub.SendMessage(pb.SendMessageRequest(message=message), metadata=metadata)
    assert interface["url"] == f"shop.example:{address.rpartition(':')[2]}"
    assert answer.task.artifacts[0].parts[0].text == "ada: hello"


async def test_a_team_without_the_section_speaks_none(tmp_path: Path) -> None:
    team = load_team(written(tmp_path, TEAM), environ=SECRETS)
    async with serving(team, environ=SECRETS) as up, up.server as server, ClientSession(server.address) as session:
        for path in ("/.well-known/agent-card.json", "/a2a/echo/.well-known/agent-card.json"):
            async with session.get(path) as reply:
                assert reply.status == 404


async def test_an_agent_with_a_card_is_asked_by_a2a(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").mkdir()
    far = load_team(written(tmp_path / "far", TEAM + A2A.replace('url = "https://shop.example"', "")), environ=SECRETS)
    async with serving(far, environ=SECRETS) as up, up.server as server:
        near = f"""
            name = "home"
            [store]
            durability = "process"
            [agents.shop]
            card = "{server.address}/a2a/echo"
            card_token = "$WEB_TOKEN"
            card_binding = "HTTP+JSON"
            card_streaming = false
        """
        team = load_team(written(tmp_path / "near", near), environ=SECRETS)
        async with hub_of(team, environ=SECRETS) as hub:
            response = await hub.ask("shop", "hello", user="ada")
    assert response.unwrap() == "ada: hello"
