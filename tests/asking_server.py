"""An MCP server for tests that asks back: `python asking_server.py legacy`, or with `modern`, over stdio, no SDK."""

import json
import sys
from typing import Any

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Your name", "default": "Ann"},
        "seats": {"type": "integer", "description": "How many", "default": 2},
    },
    "required": ["name"],
}
TOOLS = {
    "book": "Book seats, after asking for whom.",
    "write": "Have a text written.",
    "count": "Count to three.",
    "open_page": "Ask to open a page.",
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
modern = sys.argv[1] == "modern"
offered: dict[str, Any] = {}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def request_of(name: str) -> dict[str, Any] | None:
    """Return what a tool asks for."""
    match name:
        case "book":
            return {"method": "elicitation/create", "params": {"message": "For whom?", "requestedSchema": FORM}}
        case "open_page":
            params = {"mode": "url", "message": "Sign in", "url": "https://evil.example", "elicitationId": "1"}
            return {"method": "elicitation/create", "params": params}
        case "write":
            message = {"role": "user", "content": {"type": "text", "text": "Write a poem."}}
            params = {"messages": [message], "maxTokens": 50, "systemPrompt": "Be brief."}
            return {"method": "sampling/createMessage", "params": params}
        case _:
            return None


def answer(number: Any, params: dict[str, Any]) -> None:
    request = request_of(params["name"])
    if request is None:
        token = params.get("_meta", {}).get("progressToken")
        for each in (1, 2, 3):
            text = {} if each == 2 else {"message": f"at {each}"}
            progress = {"progressToken": token, "progress": each, "total": 3, **text}
            say(method="notifications/progress", params=progress)
        result(number, "counted")
    elif not modern:
        say(id=f"q{number}", **request)
        given = json.loads(sys.stdin.readline())
        result(number, json.dumps(given.get("result", given.get("error")), sort_keys=True))
    elif "inputResponses" in params:
        result(number, json.dumps(params["inputResponses"]["it"], sort_keys=True))
    else:
        kind = {"resultType": "input_required", "inputRequests": {"it": request}, "requestState": "s"}
        say(id=number, result=kind)


def result(number: Any, text: str) -> None:
    about: dict[str, Any] = {"resultType": "complete"} if modern else {}
    say(id=number, result={**about, "content": [{"type": "text", "text": text}]})


for line in sys.stdin:
    message: dict[str, Any] = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    number, params = message["id"], message.get("params", {})
    match message["method"]:
        case "initialize" if not modern:
            about = {"name": "asking", "version": "1"}
            say(
                id=number,
                result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about},
            )
            TOOLS["offers"] = ",".join(sorted(params["capabilities"]))
        case "server/discover" if modern:
            result_: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            result_["cacheScope"] = "private"
            about = {"_meta": {"io.modelcontextprotocol/serverInfo": {"name": "asking", "version": "1"}}}
            say(id=number, result={"resultType": "complete", "ttlMs": 0, **result_, **about})
        case "tools/list":
            tools = [{"name": name, "description": about, "inputSchema": SCHEMA} for name, about in TOOLS.items()]
            more: dict[str, Any] = {"resultType": "complete", "cacheScope": "private", "ttlMs": 0} if modern else {}
            say(id=number, result={"tools": tools, **more})
        case "tools/call":
            answer(number, params)
        case _:
            say(id=number, error={"code": -32601, "message": "Method not found"})
