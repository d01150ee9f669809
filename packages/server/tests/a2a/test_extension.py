"""The extension that carries a remit: its schema, and the kit that says whether an agent keeps its rules."""

import asyncio
import json
import os
import re
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from aiohttp import ClientSession
from msgspec import Struct

from a2a_serving import speaking
from remit import Brief, Hub, Limits
from remit_server import connect_a2a
from remit_server.a2a.extension_schema import extension_schema
from remit_server.dialects.a2a.errors import OutcomeWords, RemitWords
from remit_server.model_prices import Price, PriceBook
from remit_testing import MemoryStore
from remit_testing.a2a_extension import EXTENSION, RULES, CalledAgent, CheckedRule, check

BINDINGS = ("JSONRPC", "HTTP+JSON")


def a_hub(called: CalledAgent) -> Hub:
    prices = PriceBook({"acme:small": Price(input=1, output=1)})
    hub = Hub(name="travel", store=MemoryStore(), prices=prices.cost, limits=Limits(delegation_time_ms=20_000))

    @hub.agent("trains", may_call=["called"])
    async def trains(brief: Brief) -> str:
        if brief.text == "Work for long.":
            await asyncio.sleep(60)
        if brief.text == "Call the other.":
            reply = await brief.delegate("called", objective="Go")
            return reply.unwrap()
        brief.spend(prompt=30, completion=10, model="acme:small")
        return "9:40, platform 3"

    connect_a2a(hub, "called", called.url)
    return hub


# ── the schema ────────────────────────────────────────────────────────────────────────────────────────────────────────

PAGE = (Path(__file__).parents[4] / "docs/reference/a2a-extension.md").read_text(encoding="utf-8")


async def test_everyone_gets_the_schema_from_a_hub() -> None:
    with CalledAgent().listening() as called:
        path = "/.well-known/remit-delegation-v1.json"
        async with (
            speaking(a_hub(called)) as server,
            ClientSession(server.address) as session,
            session.get(path) as reply,
        ):
            assert (reply.status, reply.content_type) == (200, "application/json")
            schema = await reply.json()
    assert schema == json.loads(json.dumps(extension_schema()))
    assert schema["$id"] == EXTENSION


def test_every_field_of_the_extension_is_described() -> None:
    objects = [extension_schema()["$defs"][name] for name in ("Remit", "Outcome", "Usage")]
    fields = [(name, each.get("description")) for kind in objects for name, each in kind["properties"].items()]
    assert [name for name, description in fields if not description] == []
    assert [name for name, _ in fields if f"| `{name}` |" not in PAGE] == []


@pytest.mark.parametrize(("kind", "read"), [("remit", RemitWords), ("outcome", OutcomeWords)])
def test_the_examples_of_the_page_are_as_the_schema_and_the_code_read_them(kind: str, read: type[Struct]) -> None:
    (example,) = re.findall(rf"^```json {kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    schema = extension_schema()
    one = {**schema, "anyOf": [{"$ref": f"#/$defs/{kind.capitalize()}"}]}
    assert list(jsonschema_rs.validator_for(one).iter_errors(json.loads(example))) == []
    value = msgspec.json.decode(example, type=read)
    assert json.loads(msgspec.json.encode(value)) == json.loads(example), "nothing of it is unknown"


# ── the kit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", BINDINGS)
async def test_agents_of_a_hub_keep_every_rule(binding: str) -> None:
    with CalledAgent().listening() as called:
        async with speaking(a_hub(called)) as server:
            findings = await asyncio.to_thread(
                check,
                f"{server.address}/a2a/trains",
                token="north",
                slow="Work for long.",
                calls="Call the other.",
                called=called,
                binding=binding,
            )
    assert [each.rule for each in findings] == list(RULES)
    assert {each.rule: each.why for each in findings if each.verdict != "kept"} == {}


async def test_the_command_says_line_by_line_what_is_kept_and_what_it_needs_to_check_the_rest() -> None:
    with CalledAgent().listening() as called:
        async with speaking(a_hub(called)) as server:
            url = f"{server.address}/a2a/trains/.well-known/agent-card.json"
            words = (sys.executable, "-m", "remit_testing.a2a_extension", url)
            environ = {**os.environ, "A2A_TOKEN": "north"}
            process = await asyncio.create_subprocess_exec(*words, env=environ, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
    *lines, end = printed.decode().splitlines()
    assert process.returncode == 0
    assert [line[:12].strip() for line in lines] == ["kept"] * 11 + ["not checked"] * 18
    assert [line[13:29].strip() for line in lines] == list(RULES)
    assert all("--slow TEXT" in line or "--calls TEXT" in line for line in lines[11:])
    assert end == "11 kept, 0 broken, 18 not checked"


# ── agents that keep nothing ──────────────────────────────────────────────────────────────────────────────────────────


class WrongAgent(BaseHTTPRequestHandler):
    """An agent that names the extension nowhere, sends its content to everyone, keeps no limit and narrows nothing."""

    called: CalledAgent
    fails: bool
    """Whether it answers nothing at all."""

    def do_GET(self) -> None:
        url = f"http://{self.headers['Host']}"
        self._reply(200, {"supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC"}], "capabilities": {}})

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["params"]["message"]
        words = message["metadata"][EXTENSION]
        if self.fails:
            self._reply(500, {"error": {"code": -32603, "message": "the server failed"}})
            return
        if "ofALaterVersion" in words or words["tokens"] == 20_000:
            self._reply(200, {"error": {"code": -32602, "message": "unexpected"}})
            return
        if message["parts"][0]["text"] == "Call the other.":
            self._call(words)
        usage = {"prompt": 5, "completion": None, "cost": "9"}
        artifact = {"artifactId": "result", "parts": [{"text": "done"}], "metadata": {EXTENSION: {"usage": usage}}}
        task = {"id": "1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]}
        self._reply(200, {"jsonrpc": "2.0", "id": 1, "result": {"task": task}})

    def _call(self, words: dict[str, Any]) -> None:
        """Call the agent of the kit with more than it was given."""
        more = {
            "user": "root",
            "tokens": "90000",
            "timeMs": "90000",
            "contextTokens": "900",
            "maxDepth": "9",
            "priority": "HIGH",
        }
        content = {**words, **more, "tools": None}
        content.pop("cost", None)
        message = {"messageId": "m", "parts": [{"text": "Go"}], "metadata": {EXTENSION: content}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        asked = urllib.request.Request(self.called.url, json.dumps(body).encode())
        with urllib.request.urlopen(asked) as reply:
            reply.read()

    def _reply(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def findings_about_a_wrong_agent(*, fails: bool = False) -> dict[str, CheckedRule]:
    with CalledAgent().listening() as called:
        kind = type("Wrong", (WrongAgent,), {"called": called, "fails": fails})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            findings = check(url, slow="Work for long.", calls="Call the other.", called=called)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    assert [each.rule for each in findings] == list(RULES)
    return {each.rule: each for each in findings}


def test_an_agent_that_breaks_a_rule_is_found_out_for_each_of_them() -> None:
    findings = findings_about_a_wrong_agent()
    assert [rule for rule, each in findings.items() if each.verdict != "broken"] == ["answers"]
    assert findings["narrows tokens"].why == "`tokens`: 90000 of 20000"
    assert findings["delegation"].why.startswith("it called the agent of this kit 1 times")


def test_an_agent_that_fails_keeps_no_limit_by_that() -> None:
    findings = findings_about_a_wrong_agent(fails=True)
    kept = [rule for rule, each in findings.items() if each.verdict == "kept"]
    assert kept == ["inactive"], "it sends nothing to anybody"
