"""The hub that the conformance suite of MCP tests: `python suite_server.py` prints its address, and ends with stdin.

The suite calls tools and reads resources by names of its own. The tools are agents of these names. A thin layer before
the server, which knows nothing but names, reads the answer of a run for a resource of the suite, also where a prompt
attaches one. It also shows the token that the suite cannot show.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from remit import Answer, Artifact, Ask, Brief, Capability, Facts, Hub, Request, Verdict
from remit.policy.reception import Sender
from remit.policy.verdict import ALLOW
from remit_server.app import Api
from remit_server.bodies import Receive, Scope, Send
from remit_server.mcp.host_delegations import McpOffer
from remit_server.server import Server
from remit_testing.memory import MemoryStore
from serving import gate_of

SUITE = Sender(name="suite", users=frozenset({"ada"}), may_approve=True)
runs: dict[str, str] = {}
"""The resources of runs that stand for resources of the suite."""


def asks(request: Request, facts: Facts) -> Verdict:
    if request.target == "test_elicitation" and not facts.approved:
        return Ask("Please provide your information", editable=frozenset({"objective"}))
    return ALLOW


hub = Hub(store=MemoryStore(), approver="inbox", guards=[asks])


def takes(**schema: Any) -> list[Capability]:
    """Return the one capability of an agent, which takes an object."""
    return [Capability(code="GO", description="Goes.", input_schema={"type": "object", **schema})]


@hub.agent("test_simple_text", description="Answers with a text.", capabilities=takes())
async def simple(brief: Brief) -> str:
    return f"This is a simple text response for testing: {brief.objective}."


@hub.agent("test_error_handling", description="Fails.", capabilities=takes())
async def fails(brief: Brief) -> str:
    raise ValueError("This tool intentionally returns an error for testing")


@hub.agent("test_tool_with_progress", description="Says how far it is.", capabilities=takes())
async def progresses(brief: Brief) -> str:
    for part in ("a third", "two thirds", "all"):
        brief.progress(part)
    return "done"


@hub.agent(
    "test_tool_with_logging", description="Asks another agent.", capabilities=takes(), may_call=["test_simple_text"]
)
async def logs(brief: Brief) -> str:
    await brief.delegate("test_simple_text", objective="say something")
    return "logged"


@hub.agent("test_sampling", description="Asks the model of the host.", capabilities=takes())
async def samples(brief: Brief) -> str:
    given = brief.input_as(dict[str, str])
    return "LLM response: " + await brief.sample(given["prompt"], max_tokens=100)


@hub.agent("test_elicitation", description="Works once a person agrees.", capabilities=takes())
async def elicits(brief: Brief) -> str:
    return "agreed"


@hub.agent("test_elicitation_sep1034_defaults", description="Asks with a form.", capabilities=takes())
async def elicits_with_defaults(brief: Brief) -> object:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await brief.fill("Please check this", {"type": "object", "properties": fields})


@hub.agent("test_elicitation_sep1330_enums", description="Asks with lists.", capabilities=takes())
async def elicits_choices(brief: Brief) -> object:
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{at}", "title": f"Option {at}"} for at in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await brief.fill("Please choose", {"type": "object", "properties": fields})


@hub.agent("test_reconnection", description="Takes a moment.", capabilities=takes())
async def reconnects(brief: Brief) -> str:
    return "Reconnection test completed successfully"


@hub.agent("test_simple_prompt", description="Has a prompt.", capabilities=takes())
async def prompted(brief: Brief) -> str:
    return "prompted"


@hub.agent("test_prompt_with_arguments", description="Has a prompt with arguments.", capabilities=takes())
async def prompted_with(brief: Brief) -> str:
    return "prompted"


@hub.agent(
    "json_schema_2020_12_tool",
    description="Takes what a schema with references describes.",
    capabilities=takes(
        **{
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        }
    ),
)
async def takes_much(brief: Brief) -> object:
    return brief.input


PICTURE, SOUND, TEXT = (
    Artifact(type="file", value={"raw": "iVBORw0KGgo=", "mediaType": kind})
    for kind in ("image/png", "audio/wav", "text/plain")
)
FILES = {
    "test_image_content": (PICTURE,),
    "test_audio_content": (SOUND,),
    "test_embedded_resource": (TEXT,),
    "test_multiple_content_types": (PICTURE, TEXT),
}


async def shows(brief: Brief) -> Answer:
    return Answer(result="see", artifacts=FILES[brief.request.target])


for name in FILES:
    hub.add(name, shows, description="Answers with files.", capabilities=takes())


ATTACHED = {
    "test_prompt_with_embedded_resource": "test://static-text",
    "test_prompt_with_image": "test://static-binary",
}
"""The prompts of the suite that carry something, and the resource that is attached to them."""
for name in ATTACHED:
    hub.add(name, prompted, description="Has a prompt with an attachment.", capabilities=takes())


def translated(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the suite in the names of Remit."""
    params: dict[str, Any] = message.get("params") or {}
    match message.get("method"):
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            uri = runs.get(str(params.get("uri")))
            return message if uri is None else {**message, "params": {**params, "uri": uri}}
        case "prompts/get" if str(params.get("name")) in ATTACHED:
            given = {"attach": runs[ATTACHED[str(params["name"])]]}
            return {**message, "params": {**params, "arguments": given}}
        case _:
            return message


class Translation:
    """The server, in the names of the suite."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer suite")]
        if scope["method"] == "POST":
            body = b""
            more = True
            while more:
                part = await receive()
                body, more = body + part.get("body", b""), part.get("more_body", False)
            whole = [json.dumps(translated(json.loads(body))).encode()]
            length = str(len(whole[0])).encode()
            kept = [each for each in scope["headers"] if each[0] != b"content-length"]
            scope["headers"] = [*kept, (b"content-length", length)]
            following = receive

            async def replay() -> Any:
                if whole:
                    return {"type": "http.request", "body": whole.pop(), "more_body": False}
                return await following()

            receive = replay
        await self._api.app(scope, receive, send)


async def main() -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(hub)
        api: Any = Translation(Api(hub, gate_of(SUITE), mcp=McpOffer(tools=frozenset({"*"}))))
        server = await stack.enter_async_context(Server(api, port=0, drain_s=1))
        for uri, agent, part in (
            ("test://static-text", "test_simple_text", "answer"),
            ("test://template/123/data", "test_simple_text", "answer"),
            ("test://static-binary", "test_image_content", "artifacts/0"),
            ("test://watched-resource", "test_simple_text", "answer"),
        ):
            runs[uri] = f"remit://runs/{(await hub.ask(agent, uri, user='ada')).run}/{part}"
        print(f"{server.address}/mcp", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
