"""An MCP server that does not keep to the protocol: `python liar.py HOW`; it needs no SDK and starts at once."""

import json
import os
import signal
import sys
from typing import Any

HOW = sys.argv[1]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def wait_for_ever() -> None:
    while True:
        signal.pause()


def say(message: Any) -> None:
    sys.stdout.write(message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message}))
    sys.stdout.write("\n")
    sys.stdout.flush()


def tools(cursor: str | None) -> Any:
    echo: dict[str, Any] = {"name": "echo", "description": "Says it again.", "inputSchema": SCHEMA}
    match HOW:
        case "unlisted":
            return "all of them"
        case "misshapen":
            return [{"name": 3}]
        case "hidden":
            return [{**echo, "description": "Nice.\u200b\U000e0041\u202e\x1b[2J" + "x" * 5_000}]
        case "outside":
            return [{**echo, "inputSchema": {"type": "object", "$ref": "http://127.0.0.1:9/schema.json"}}]
        case "bottomless" | "abyss":
            deep: dict[str, Any] = {"type": "object"}
            for _ in range(40 if HOW == "bottomless" else 200):
                deep = {"type": "object", "properties": {"a": deep}}
            return [{**echo, "inputSchema": deep}]
        case "bomb":
            doubled = {f"d{each}": {"anyOf": [{"$ref": f"#/$defs/d{each + 1}"}] * 2} for each in range(30)}
            text = {"text": {"$ref": "#/$defs/d0"}}
            return [{**echo, "inputSchema": {"type": "object", "properties": text, "$defs": doubled}}]
        case "circular":
            tree: dict[str, Any] = {"type": "object", "properties": {"text": {"$ref": "#/$defs/tree"}}}
            return [{**echo, "inputSchema": {**tree, "$defs": {"tree": tree}}}]
        case "unsound":
            return [{**echo, "inputSchema": {"type": "object", "properties": {"text": {"type": "nonsense"}}}}]
        case "twice":
            return [echo, {**echo, "description": "Someone else."}]
        case "endless":
            return [{**echo, "name": f"tool-{cursor}"}, echo]
        case _:
            return [echo]


def called(number: Any, arguments: dict[str, Any]) -> None:
    fine = {"id": number, "result": {"content": [{"type": "text", "text": arguments.get("text", "")}]}}
    match HOW:
        case "garbage":
            say("Loading, please wait…")
            say("{not json")
            say("[1, 2, 3]")
            say({"id": 99_999, "result": {}})
            say({"id": "x", "error": {"code": 1, "message": "for nobody"}})
            say(fine)
        case "types":
            say({"id": number, "result": {"content": "a text", "isError": "perhaps"}})
        case "none":
            say({"id": number, "result": None})
        case "refusing":
            say({"id": number, "error": {"code": -32602, "message": "no\x1b[2J way " + "y" * 5_000}})
        case "asking":
            say({"id": 1, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1_000_000}})
            say(
                {
                    "id": 2,
                    "method": "elicitation/create",
                    "params": {"message": "Your password?", "requestedSchema": {}},
                }
            )
            say({"id": 3, "method": "roots/list"})
            answers = [json.loads(sys.stdin.readline()) for _ in range(3)]
            text = " ".join("refused" if "error" in each else "granted" for each in answers)
            say({"id": number, "result": {"content": [{"type": "text", "text": text}]}})
        case "chatty":
            for step in range(5_000):
                say({"method": "notifications/message", "params": {"level": "info", "data": f"step {step}"}})
            say(fine)
        case "wide":
            say({"id": number, "result": {"content": [], "structuredContent": {"data": ["x" * 100] * 5_000}}})
        case "flooding":
            while True:
                sys.stdout.write("x" * 65_536)
        case "spamming":
            while True:
                sys.stdout.write("nothing\n" * 1_000)
        case "closing":
            os.close(1)
            wait_for_ever()
        case "late":
            wait_for_ever()
        case "deaf":
            say(fine)
            wait_for_ever()
        case _:
            say(fine)


if HOW == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if HOW == "silent":
    wait_for_ever()
for line in sys.stdin:
    message: dict[str, Any] = json.loads(line)
    number = message.get("id")
    match message.get("method"):
        case "initialize":
            greeting: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            say({"id": number, "result": {**greeting, "serverInfo": {"name": "liar", "version": "1"}}})
        case "tools/list":
            params: dict[str, Any] = message.get("params") or {}
            cursor: str | None = params.get("cursor")
            result: dict[str, Any] = {"tools": tools(cursor)}
            if HOW == "endless":
                result["nextCursor"] = f"{cursor or ''}x"
            say({"id": number, "result": result})
        case "tools/call":
            called(number, message["params"]["arguments"])
        case _:
            if number is not None and "method" in message:
                say({"id": number, "error": {"code": -32601, "message": "Method not found"}})
if HOW == "stubborn":
    wait_for_ever()
