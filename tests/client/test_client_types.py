"""The client fits the OpenAPI document: its addresses, what it sends, what it reads; and it is light."""

import inspect
import subprocess
import sys
from typing import Any, get_args, get_type_hints

import msgspec

from remit.client import HubClient, SyncHubClient, calls
from remit.documents.api_approvals import ApprovalAnswer, NamedAnswer
from remit.documents.api_delegations import FailureBody
from remit.server.openapi import PUBLISHED, document

ANSWER = NamedAnswer(id="q", agree=True, digest="d")
SAMPLES: dict[str, calls.ApiCall[Any]] = {
    "ask": calls.ask(calls.submission("a", "b", {"tools": ["c"], "user": "d"}, "e"), wait=False),
    "look": calls.look("a/b"),
    "cancel": calls.cancel("a", "b"),
    "agents": calls.agents(),
    "agent": calls.agent("a"),
    "runs": calls.runs({"limit": 1, "q": ""}),
    "run": calls.run("a"),
    "cancel_run": calls.cancel_run("a", None, ""),
    "retry_run": calls.retry_run("a", 1, None),
    "resume_run": calls.resume_run("a"),
    "approvals": calls.approvals({}),
    "approval": calls.approval("a"),
    "answer": calls.answer("a", ApprovalAnswer(agree=True, digest="d")),
    "answer_several": calls.answer_several([ANSWER]),
    "sessions": calls.sessions({}),
    "session": calls.session("a", {"limit": 1}),
    "events": calls.events("a"),
    "all_events": calls.all_events({"run": "a"}),
}


def test_every_call_is_an_operation_of_the_document_with_its_types() -> None:
    made = document()
    functions = {
        name for name, each in vars(calls).items() if inspect.isfunction(each) and each.__module__ == calls.__name__
    }
    assert {each for each in functions if not each.startswith("_")} - {"submission"} == SAMPLES.keys()
    for name, call in SAMPLES.items():
        operation = made["paths"][call.operation][call.method.lower()]
        told = {
            reference.rsplit("/", 1)[-1]
            for status, reply in operation["responses"].items()
            if status.startswith("2")
            for reference in [reply["content"].get("application/json", {}).get("schema", {}).get("$ref", "")]
            if reference
        }
        read = {_published(kind) for kind in get_args(call.kind) or (call.kind,) if kind is not None}
        assert told == read, name
        assert (call.body is not None) <= ("requestBody" in operation), name
        query = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        sent = call.path.partition("?")[2]
        assert {each.partition("=")[0] for each in sent.split("&") if each} <= query, name
    failure = made["components"]["schemas"]["Failure"]["properties"]
    assert set(failure) == set(FailureBody.__struct_fields__)


def _published(kind: type) -> str:
    return PUBLISHED.get(kind.__name__, kind.__name__)


def test_every_parameter_of_a_query_can_be_given() -> None:
    paths = document()["paths"]
    for path, kind, not_here in (
        ("/v1/runs", calls.RunsQuery, set[str]()),
        ("/v1/approvals", calls.ApprovalQuery, set[str]()),
        ("/v1/sessions", calls.SessionQuery, set[str]()),
        ("/v1/sessions/{id}", calls.MessageQuery, set[str]()),
        ("/v1/events", calls.EventQuery, {"after", "form"}),
    ):
        told = {
            each["name"]: {"string": str, "integer": int}[each["schema"]["type"]]
            for each in paths[path]["get"]["parameters"]
            if each["in"] == "query" and each["name"] not in not_here
        }
        assert get_type_hints(kind) == told, path


def test_names_in_paths_and_queries_are_quoted() -> None:
    assert SAMPLES["look"].path == "/v1/delegations/a%2Fb"
    assert SAMPLES["runs"].path == "/v1/runs?limit=1"
    assert msgspec.json.decode(SAMPLES["ask"].body or b"") == {
        "target": "a",
        "objective": "b",
        "id": "e",
        "tools": ["c"],
        "user": "d",
    }


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = {
            name: each for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")
        }
        return {
            name: [str(each) for each in inspect.signature(each).parameters.values()] for name, each in found.items()
        }

    assert methods(HubClient) == methods(SyncHubClient)


def test_the_client_loads_neither_a_server_nor_a_store() -> None:
    heavy = ("remit.server", "remit.stores", "remit.hub", "remit.config", "apsw", "starlette", "uvicorn", "aiohttp")
    program = f"import sys, remit.client; print([m for m in sys.modules if m.startswith({heavy!r})])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
