"""Who reads personal values in clear from `remit serve`: every address, for clients with each permission."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from aiohttp import ClientSession
from mcp import MCPError

from a2a_grpc import metadata
from command_line import document, remit
from hosts import host_at
from remit.policy.reception import Permission
from remit_server.all_operations import OPERATIONS, PROTOCOLS
from serve_command import ServedTeam, serving
from waiting import PATIENCE_S

SECRETS = ("4111 1111 1111 1111", "anna@example.com", "ghp_16C7e42F292c6912E7710c838347Ae178B4a")
TASK = f"card {SECRETS[0]}, mail {SECRETS[1]}, key {SECRETS[2]}"

# One client that asks, one of the same user that did not ask, one of all users, and one for each permission.
CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "app": ("anna", ()),
    "twin": ("anna", ()),
    "other": ("*", ()),
    **{permission.value: ("ben", (permission.value,)) for permission in Permission},
    "support": ("ben", ("read", "control", "reveal")),
}
TEAM = """
name = "shop"

[store]
durability = "process"

[a2a]
grpc_port = 0

[[rules]]
then = "ask"
to = "vault"
say = "Open the vault?"

[agents.clerk]
run = "shop_code:clerk"
may_call = ["helper"]

[agents.helper]
run = "shop_code:helper"

[agents.vault]
run = "shop_code:helper"
""" + "".join(
    f'[clients.{name}]\ntoken = "${name.upper()}_TOKEN"\nusers = ["{user}"]\nagents = ["*"]\n'
    f"permissions = {json.dumps(permissions)}\n"
    for name, (user, permissions) in CLIENTS.items()
)
CODE = """
import asyncio
from pathlib import Path
from remit import Answer
from remit.protocol.envelope import Artifact

async def clerk(brief):
    if brief.objective.startswith("slowly"):
        while not Path("go").exists():
            await asyncio.sleep(0.01)
    brief.progress(f"working on {brief.text}")
    brief.say(f"I say {brief.text}. ")
    reply = await brief.delegate("helper", objective=brief.text, input={"text": brief.text})
    return Answer(f"Done: {brief.text} {reply.result}", summary=f"summary {brief.text}",
                  artifacts=(Artifact(type="json", value=brief.text),))

async def helper(brief):
    return f"helped with {brief.text}"
"""


class Shop(NamedTuple):
    """A served team with a run that has ended and one that waits for a person, both asked for by `app`."""

    up: ServedTeam
    folder: Path
    run: str
    question: str

    @property
    def address(self) -> str:
        return str(self.up.said["address"])


def token(client: str) -> str:
    return f"{client}-token-that-is-long-enough"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "remit.toml").write_text(TEAM)
    (folder / "shop_code.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with serving(**{f"{name.upper()}_TOKEN": token(name) for name in CLIENTS}) as up:
            task = {"user": "anna", "objective": TASK, "input": {"note": TASK}}
            _, done = up.get("/v1/delegations", {"target": "clerk", **task}, token=token("app"))
            assert clear_in(done.get("result", "")), done
            _, waits = up.get("/v1/delegations", {"target": "vault", **task}, token=token("app"))
            assert waits["question"] == "Open the vault?"
            (approval,) = up.get("/v1/approvals", token=token("app"))[1]["waiting"]
            yield Shop(up, folder, done["run"], approval["id"])


def addresses(shop: Shop) -> list[str]:
    """Return every address of the API that is read, for the run that has ended and for the question."""
    newest = json.loads(shop.up.send("/v1/audit", token=token("read"))[1])["records"][-1]["seq"]
    values = {"id": shop.run, "run": shop.run, "name": "clerk", "agent": "clerk"}
    paths: list[str] = []
    for path in (each.path for each in (*OPERATIONS, *PROTOCOLS) if each.method == "GET"):
        if path in ("/mcp", "/docs", "/v1/events", "/v1/console/enter"):
            continue
        if path == "/v1/audit/{seq}":
            paths += [f"/v1/audit/{seq}" for seq in range(1, newest + 1)]
        elif path == "/v1/approvals/{id}":
            paths.append(f"/v1/approvals/{shop.question}")
        elif path == "/v1/runs/{run}/delegations/{path}":
            paths += [f"/v1/runs/{shop.run}/delegations/{each}" for each in (shop.run, f"{shop.run}.1")]
        else:
            paths.append(path.format(**values))
    return [*paths, f"/v1/sessions/{shop.run}/clerk", "/v1/audit/search?q=card"]


async def read(client: str, shop: Shop, path: str, **request: Any) -> str:
    """Return what a client is sent, from an address and its headers."""
    headers = {"authorization": f"Bearer {token(client)}", **request.pop("headers", {})}
    async with (
        ClientSession(shop.address) as session,
        session.request(request.pop("method", "GET"), path, headers=headers, **request) as reply,
    ):
        return f"{dict(reply.headers)} {await reply.text()}"


async def read_all_events(client: str, shop: Shop) -> str:
    """Return the stream of all runs up to the newest record."""
    newest = json.loads(shop.up.send("/v1/audit", token=token("read"))[1])["records"][-1]["seq"]
    text = ""
    async with (
        ClientSession(shop.address, headers={"authorization": f"Bearer {token(client)}"}) as session,
        session.get("/v1/events?after=0") as reply,
    ):
        while f"id: {newest}\n" not in text:
            text += (await reply.content.readuntil(b"\n\n")).decode()
    return text


async def read_over_mcp(client: str, shop: Shop) -> str:
    user = CLIENTS[client][0].replace("*", "anna")
    async with host_at(shop.address, token(client), user=user) as host:
        text = repr(await host.call_tool("delegation_status", {"id": shop.run}))
        text += repr(await host.call_tool("delegation_status", {}))
        for uri in (f"remit://runs/{shop.run}{end}" for end in ("", "/answer", "/audit")):
            with suppress(MCPError):  # who may not see it is told that there is none
                text += repr(await host.read_resource(uri))
    return text


async def read_over_a2a(client: str, shop: Shop) -> str:
    headers = {"a2a-version": "1.0"}
    text = ""
    for method, params in (
        ("GetTask", {"id": shop.run, "historyLength": 10}),
        ("ListTasks", {"includeArtifacts": True, "historyLength": 10}),
    ):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        text += await read(client, shop, "/a2a/clerk", method="POST", json=body, headers=headers)
    return text


@asynccontextmanager
async def stub(shop: Shop) -> AsyncGenerator[Any]:
    card = json.loads(shop.up.send("/a2a/clerk/.well-known/agent-card.json")[1])
    (url,) = [each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
    async with grpc.aio.insecure_channel(url) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


async def read_over_grpc(client: str, shop: Shop) -> str:
    async with stub(shop) as service:
        credentials = metadata(token(client))
        try:
            return repr(await service.GetTask(pb.GetTaskRequest(id=shop.run, tenant="clerk"), metadata=credentials))
        except grpc.aio.AioRpcError as error:
            return repr(error)


def clear_in(text: str) -> bool:
    """Return whether a text holds one of the values; all or none of them are in clear."""
    clear_secrets = [each for each in SECRETS if each in text]
    assert clear_secrets in ([], [*SECRETS])
    return bool(clear_secrets)


async def test_values_in_clear_are_for_the_client_that_asked_and_for_those_that_may_reveal(shop: Shop) -> None:
    paths = addresses(shop)
    leaks: set[tuple[str, str]] = set()
    for client in CLIENTS:
        texts = {path: await read(client, shop, path) for path in paths}
        texts["cancel"] = await read(client, shop, f"/v1/delegations/{shop.run}/cancel", method="POST")
        texts |= {"events": await read_all_events(client, shop), "mcp": await read_over_mcp(client, shop)}
        texts |= {"a2a": await read_over_a2a(client, shop), "grpc": await read_over_grpc(client, shop)}
        leaks |= {(client, path) for path, text in texts.items() if clear_in(text)}
    own = {f"/v1/delegations/{shop.run}", f"/v1/delegations/{shop.run}/events", "cancel"}
    expected = {("app", path) for path in own | {"mcp", "a2a", "grpc"}} | {("support", path) for path in own}
    assert leaks == expected


def test_each_reveal_is_a_row_of_the_record_before_anything_is_sent(shop: Shop) -> None:
    def rows() -> list[str]:
        output = remit("audit", "tail", "-n", "1000", "--jsonl", folder=shop.folder).stdout.splitlines()
        notices = [each for each in map(json.loads, output) if each["kind"] == "notice" and each["run"] == shop.run]
        return [each["body"]["text"] for each in notices]

    before = rows()
    for client in ("app", "read", "support", "support"):
        shop.up.get(f"/v1/delegations/{shop.run}", token=token(client))
    assert rows()[len(before) :] == ["support revealed personal values of anna in the answer"] * 2


async def test_live_text_is_in_clear_for_the_client_that_asked_alone(shop: Shop) -> None:
    task = {"target": "clerk", "user": "anna", "objective": f"slowly {TASK}", "id": "live"}
    headers = {"prefer": "respond-async"}
    handle = json.loads(
        (await read("app", shop, "/v1/delegations", method="POST", json=task, headers=headers)).split("} ", 1)[1]
    )
    subscribe = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": handle["run"]}}
    opened = {
        **dict.fromkeys(("app", "twin", "read", "support"), ("GET", f"/v1/delegations/{handle['run']}/events", None)),
        **{f"a2a {client}": ("POST", "/a2a/clerk", subscribe) for client in ("app", "twin")},
    }

    async def stream(client: str, method: str, path: str, body: Any, begun: asyncio.Event) -> str:
        headers = {"authorization": f"Bearer {token(client)}", "a2a-version": "1.0"}
        async with (
            ClientSession(shop.address) as session,
            session.request(method, path, json=body, headers=headers) as reply,
        ):
            begun.set()
            return await reply.text()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        events = {name: asyncio.Event() for name in opened}
        tasks = {
            name: group.create_task(stream(name.split()[-1], *each, events[name])) for name, each in opened.items()
        }
        for each in events.values():
            await each.wait()
        (shop.folder / "go").touch()
    texts = {name: task.result() for name, task in tasks.items()}
    assert {name: text for name, text in texts.items() if "I say" not in text} == {}
    assert {name for name, text in texts.items() if clear_in(text)} == {"app", "support", "a2a app"}
    live = {
        name: [line for line in texts[name].splitlines() if '"kind":"delta"' in line] for name in ("app", "support")
    }
    assert {name: clear_in("".join(lines)) for name, lines in live.items()} == {"app": True, "support": False}


def test_commands_that_show_runs_show_tokens(shop: Shop) -> None:
    for command in (
        ("runs", "show", shop.run),
        ("runs", "show", shop.run, "--json"),
        ("runs", "tree", shop.run),
        ("runs", "watch", shop.run),
        ("runs", "export", shop.run),
        ("runs", "list"),
        ("audit", "tail", "--jsonl", "-n", "1000"),
        ("pending", "list"),
        ("pending", "show", shop.question),
    ):
        done = remit(*command, folder=shop.folder)
        assert (done.returncode, clear_in(done.stdout + done.stderr)) == (0, False), command
    assert clear_in(document("runs", "answer", shop.run, folder=shop.folder)["result"])
