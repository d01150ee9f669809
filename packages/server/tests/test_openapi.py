"""The OpenAPI document: it is valid, complete, and what the server does."""

import asyncio
import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from random import randrange
from typing import Any, cast

import pytest
from aiohttp import ClientSession
from openapi_spec_validator import OpenAPIV31SpecValidator

from a2a_install import node
from checkout import ROOT
from doc_pages import page_text
from remit import Brief, Capability, Hub
from remit.protocol.errors import INWARD
from remit.stores.sqlite import SqliteStore
from remit_server import refusals
from remit_server.app import Api
from remit_server.openapi import document
from serving import OPERATOR, got, serving
from waiting import PATIENCE_S

# These speak protocols of others, which have descriptions of their own.
OTHERS = ("/mcp", "/a2a/", "/.well-known/")

# A request that leaves its agent no time (504) or too few tokens (422) is a good one. What is in the envelopes of
# dialects, their own documents say. An answer to a question makes nothing that could be looked up.
CONFIG = """
seed = {seed}
hooks = "steering"
[generation]
max-examples = {examples}
[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", "504"]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422", "504"]
[[operations]]
include-name = "POST /v1/delegations"
generation.max-examples = 60
[[operations]]
include-path-regex = "^/dialects/"
checks.positive_data_acceptance.enabled = false
[[operations]]
include-path-regex = "^/v1/approvals"
checks.ensure_resource_availability.enabled = false
"""
# What the document allows is made such that it seldom fails for reasons that no schema can say: who is there, who may
# speak for whom. To JSON Schema 1.0 is an integer, and to this server it is none.
HOOKS = """
import schemathesis

USELESS = ("remit", "capability", "depth", "chain", "max_depth", "max_tokens", "deadline_ms", "handoff", "input")

@schemathesis.hook
def before_call(context, case, **_):
    good = case.meta is not None and case.meta.generation.mode.is_positive
    if good and case.operation.label == "POST /v1/delegations" and isinstance(case.body, dict):
        target = "echo" if len(str(case.body)) % 4 else "nobody"
        kept = {name: whole(value) for name, value in case.body.items() if name not in USELESS}
        case.body = {**kept, "target": target, "user": "anna", "origin": "user", "input": str(case.body.get("input"))}
    if good and case.operation.label == "POST /v1/policy/explain" and isinstance(case.body, dict):
        case.body = {**whole(case.body), "input": str(case.body.get("input"))}
    if good and case.operation.label.startswith("POST /v1/approvals") and isinstance(case.body, dict):
        case.body = without_edits(whole(case.body))
    if good and case.operation.label == "POST /v1/runs/{run}/retry" and isinstance(case.body, dict):
        case.body = whole(case.body)

# Edited values are those of an input, of which a schema says nothing.
def without_edits(body):
    answers = {"answers": list(map(without_edits, body["answers"]))} if "answers" in body else {}
    return {name: value for name, value in body.items() if name != "edits"} | answers

def whole(value):
    match value:
        case dict():
            return {name: whole(each) for name, each in value.items()}
        case list():
            return [whole(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value
"""


def serving_hub(hub: Hub) -> Hub:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}

    @hub.agent("echo", capabilities=[Capability(code="ADD", input_schema=schema)])
    async def echo(brief: Brief) -> Any:
        brief.progress("at it")
        return brief.input

    assert echo
    return hub


async def paths_of(hub: Hub) -> set[str]:
    async with serving(serving_hub(hub), console=True) as server:
        api: Api = server.api
        # A path in a path has a mark that only the router needs.
        return {re.sub(r":\w+}", "}", getattr(route, "path", "")) for route in api.routes}


async def test_every_address_stands_in_the_document_and_in_the_docs(hub: Hub) -> None:
    paths = await paths_of(hub)
    described = set(document()["paths"])
    assert {path for path in paths if not path.startswith(OTHERS)} == described
    # A base stands for what is behind it.
    named = set(re.findall(r"^\| `[A-Z*]+ (/[^`\s]+)` \|", page_text("http"), re.MULTILINE))
    missing = {path for path in paths if path not in named and not any(path.startswith(f"{each}/") for each in named)}
    assert missing == set()


async def test_the_document_needs_no_proof_and_is_the_one_that_is_made_here(hub: Hub) -> None:
    async with serving(serving_hub(hub)) as server, ClientSession(server.address) as session:
        assert await got(session, "/openapi.json") == (200, json.loads(json.dumps(document())))


def test_no_schema_forbids_its_own_default_or_leaves_open_what_an_array_holds() -> None:
    def walk(value: Any) -> None:
        if isinstance(value, list):
            for each in cast("list[Any]", value):
                walk(each)
        if isinstance(value, dict):
            schema = cast("dict[str, Any]", value)
            assert not (schema.get("default") == "" and schema.get("minLength", 0) > 0), schema
            assert schema.get("type") != "array" or isinstance(schema.get("items"), dict), schema
            for each in schema.values():
                walk(each)

    walk(document()["components"])


def test_everything_that_the_document_refers_to_is_in_it() -> None:
    made = document()
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(made)))
    assert names <= made["components"]["schemas"].keys()
    operations = {each["operationId"] for path in made["paths"].values() for each in path.values()}
    assert set(re.findall(r'"operationId": "([^"]+)"', json.dumps(made))) == operations


@pytest.mark.hypothesis  # so that `make fuzz` runs it, with more of them
@pytest.mark.timeout(1_800)  # many requests, and thousands in `make fuzz`
async def test_the_server_does_what_the_document_says_whatever_it_is_sent(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Every operation, with what the document allows and what it does not, also one after the other."""
    # Each of them is also tried with wrong tokens, more often than an address may do that within a minute.
    monkeypatch.setattr(refusals, "FAILURES", 10_000)
    is_fuzz = pytestconfig.getoption("--fuzz") is not None
    config = CONFIG.format(seed=randrange(10**6) if is_fuzz else 7, examples=60 if is_fuzz else 6)
    async with serving(serving_hub(hub), OPERATOR, console=True) as server:
        (tmp_path / "schemathesis.toml").write_text(config)
        (tmp_path / "steering.py").write_text(HOOKS)
        command = ["--config-file", "schemathesis.toml", "run", f"{server.address}/openapi.json"]
        command += ["--header", "Authorization: Bearer ops", "--request-timeout", f"{PATIENCE_S}"]
        # A stream that never ends; it has tests of its own.
        command += ["--exclude-path", "/v1/events"]
        # Every bound of every schema in turn takes twice as long as all the rest.
        phases = "coverage,fuzzing,stateful" if is_fuzz else "fuzzing,stateful"
        # How fast a machine draws examples says nothing of the server.
        command += ["--phases", phases, "--no-color", "--warnings", "off", "--suppress-health-check", "too_slow"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "schemathesis.cli",
            *command,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        runs = await hub.store.runs(limit=1_000)
        assert isinstance(hub.store, SqliteStore)
        verdict = await hub.store.verify()
    assert process.returncode == 0, said.decode()
    assert verdict.ok
    # Users were erased, too, and two records with each of their runs.
    answered = sum(run.response is not None and run.response.ok for run in runs) + verdict.removed // 2
    assert answered > 20, "it came as far as the agent"


def test_what_only_the_operator_is_told_of_a_fault_is_not_in_the_document() -> None:
    found = document()
    schemas = found["components"]["schemas"]
    assert {"code", "message", "suggestion", "problems"} <= schemas["Fault"]["properties"].keys()
    assert not set(INWARD) & schemas["Fault"]["properties"].keys()
    assert not {"Origin", "SourceLine"} & schemas.keys()
    assert "schemas/Origin" not in str(found)


WEB = ROOT / "web"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    made = subprocess.run([sys.executable, WEB / "schemas.py"], capture_output=True, text=True, check=True)
    return json.loads(made.stdout)


def wrong_in(document: dict[str, Any]) -> list[str]:
    found = OpenAPIV31SpecValidator(document).iter_errors()
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message[:200]}" for each in found]


@pytest.mark.parametrize("name", ["operator", "shared"])
def test_a_document_is_valid(documents: dict[str, Any], name: str) -> None:
    assert wrong_in(documents[name]) == []


@pytest.mark.parametrize("name", ["operator", "shared"])
def test_every_operation_has_a_group_and_a_description(documents: dict[str, Any], name: str) -> None:
    document = documents[name]
    groups = {each["name"] for each in document["tags"]}
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert {tag for each in operations for tag in each["tags"]} <= groups
    assert all(each["description"] and each["summary"] for each in operations)
    texts = [schema.get("description", "") for schema in document["components"]["schemas"].values()]
    assert [text for text in texts if "\n  " in text] == [], "four spaces are a code block in Markdown"


def test_a_document_that_is_not_valid_is_found(documents: dict[str, Any]) -> None:
    spoilt = copy.deepcopy(documents["operator"])
    del spoilt["paths"]["/v1/runs/{run}"]["get"]["parameters"]
    spoilt["components"]["schemas"]["Submission"]["properties"]["target"]["type"] = "text"
    assert len(wrong_in(spoilt)) >= 2


@pytest.mark.parametrize("name", ["operator", "shared"])
def test_a_linter_finds_nothing_wrong(documents: dict[str, Any], name: str, tmp_path: Path) -> None:
    if not (WEB / "node_modules").exists():
        pytest.skip("the packages of web/ are not installed: there was no registry when the console was built")
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(documents[name]), encoding="utf-8")
    command = [node() / "bin" / "node", WEB / "lint.mjs", file]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=True, timeout=200)
    assert json.loads(done.stdout) == []
