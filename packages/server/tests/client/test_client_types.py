"""The client fits the OpenAPI document: its addresses, what it sends, what it reads; and it is light."""

import inspect
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from remit_server.client import HubClient, SyncHubClient
from remit_server.client.connection import ApiCall, HubConnection
from remit_server.documents.api_values import FailureBody, NamedAnswer, WaitingApproval
from remit_server.openapi import PUBLISHED, document

ANSWER = NamedAnswer(id="q", agree=True, digest="d")
QUESTION = WaitingApproval(
    id="q/1",
    run="q",
    delegation="q",
    question="May it?",
    sentence="The user asks a: b",
    origin="user",
    target="a",
    capability=None,
    user="d",
    objective="b",
    asked_ms=0,
    expires_ms=1,
    editable=(),
    form=None,
    rule=None,
    digest="d",
    may_answer=True,
)
USES: dict[str, Callable[[HubClient], Awaitable[Any] | AsyncGenerator[Any]]] = {
    "ask": lambda client: client.ask("a", "b", tools=["c"], user="d", request_id="e"),
    "begin": lambda client: client.begin("a"),
    "stream": lambda client: client.stream("a"),
    "look": lambda client: client.look("a/b"),
    "wait": lambda client: client.wait("a"),
    "cancel": lambda client: client.cancel("a", "b"),
    "events": lambda client: client.events("a"),
    "agents": lambda client: client.agents(),
    "agent": lambda client: client.agent("a"),
    "runs": lambda client: client.runs(limit=1, q=""),
    "run": lambda client: client.run("a"),
    "cancel_run": lambda client: client.cancel_run("a"),
    "retry_run": lambda client: client.retry_run("a", max_tokens=1),
    "resume_run": lambda client: client.resume_run("a"),
    "all_events": lambda client: client.all_events(run="a"),
    "approvals": lambda client: client.approvals(),
    "approval": lambda client: client.approval("a"),
    "reveal": lambda client: client.reveal("a"),
    "answer": lambda client: client.answer(QUESTION, True),
    "answer_several": lambda client: client.answer_several([ANSWER]),
    "sessions": lambda client: client.sessions(),
    "session": lambda client: client.session("a", limit=1),
}
# These wait for the end, or return a part of what is answered.
OTHERWISE = {"ask": {"Response"}, "wait": {"Response"}, "agents": {"PublicCard"}}


class Sent(Exception):
    """What a method of the client would have sent first."""

    def __init__(self, call: ApiCall) -> None:
        super().__init__(call.path)
        self.call = call


async def sent_by(use: Callable[[HubClient], Any], monkeypatch: pytest.MonkeyPatch) -> ApiCall:
    def send(_: HubConnection, call: ApiCall, *__: object, **___: object) -> Any:
        raise Sent(call)

    monkeypatch.setattr(HubConnection, "result", send)
    monkeypatch.setattr(HubConnection, "sent", send)
    async with HubClient("http://127.0.0.1:1") as client:
        used = use(client)
        with pytest.raises(Sent) as raised:
            await (anext(used) if inspect.isasyncgen(used) else used)
    return raised.value.call


async def test_every_method_sends_an_operation_of_the_document_and_returns_its_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = document()
    public = {name for name, each in vars(HubClient).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert public - {"close"} == USES.keys()
    for name, use in USES.items():
        call = await sent_by(use, monkeypatch)
        operation = made["paths"][call.operation.path][call.operation.method.lower()]
        described = {
            reference.rsplit("/", 1)[-1]
            for status, reply in operation["responses"].items()
            if status.startswith("2")
            for reference in [reply["content"].get("application/json", {}).get("schema", {}).get("$ref", "")]
            if reference
        }
        returned = get_type_hints(getattr(HubClient, name))["return"]
        read = {_published(kind) for kind in get_args(returned) or (returned,) if isinstance(kind, type)}
        assert read == OTHERWISE.get(name, described) or "RunEvent" in read, name
        assert (call.body is not None) <= ("requestBody" in operation), name
        query = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        sent = call.path.partition("?")[2]
        assert {each.partition("=")[0] for each in sent.split("&") if each} <= query, name
    failure = made["components"]["schemas"]["Failure"]["properties"]
    assert set(failure) == set(FailureBody.__struct_fields__)


def _published(kind: type) -> str:
    return PUBLISHED.get(kind.__name__, kind.__name__)


async def test_names_in_paths_and_queries_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {name: await sent_by(USES[name], monkeypatch) for name in ("look", "answer", "runs", "ask")}
    assert sent["look"].path == "/v1/delegations/a%2Fb"
    assert sent["answer"].path == "/v1/approvals/q%2F1"
    assert sent["runs"].path == "/v1/runs?limit=1"
    assert msgspec.json.decode(sent["ask"].body or b"") == {
        "target": "a",
        "objective": "b",
        "id": "e",
        "tools": ["c"],
        "user": "d",
    }


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        methods = {
            name: each for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")
        }
        return {
            name: [str(each) for each in inspect.signature(each).parameters.values()] for name, each in methods.items()
        }

    assert methods(HubClient) == methods(SyncHubClient)


def test_the_client_loads_neither_a_server_nor_a_store() -> None:
    servers = ("remit_server.app", "remit_server.bodies", "remit_server.server", "starlette", "uvicorn", "aiohttp")
    heavy = (*servers, "remit.stores", "remit.hub", "remit_cli.config", "apsw")
    program = f"import sys, remit_server.client; print([m for m in sys.modules if m.startswith({heavy!r})])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
