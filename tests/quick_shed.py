"""The tools of `toolshed.py` without the SDK, which takes a second to import: `python quick_shed.py`, over stdio.

`test_mcp.py` holds the two against each other.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import shed_tools

VERSION = "2026-07-28"
NEVER = object()
"""What a tool returns that never answers."""
_TYPES = {int: "integer", str: "string"}

Tools = dict[str, Callable[..., Any]]


def wait(file: str) -> object:
    """Touch a file, then wait for ever."""
    shed_tools.note_pid(file)
    return NEVER


def serve(*tools: Callable[..., Any]) -> None:
    """Answer until stdin ends; a tool takes numbers and texts, and is described by its docstring."""
    known = {each.__name__: each for each in tools}
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if "id" in message and "method" in message:
            _answer(known, message["id"], message["method"], message.get("params", {}))


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _answer(tools: Tools, number: Any, method: str, params: dict[str, Any]) -> None:
    match method:
        case "server/discover":
            result = {
                "supportedVersions": [VERSION],
                "capabilities": {"tools": {"listChanged": True}},
                "cacheScope": "private",
                "ttlMs": 0,
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "quick shed", "version": ""}},
            }
        case "tools/list":
            result = {"tools": [_listed(each) for each in tools.values()], "cacheScope": "private", "ttlMs": 0}
        case "tools/call":
            result = _called(tools, params["name"], params["arguments"])
        case "subscriptions/listen":
            about = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
            acknowledged = {**about, "notifications": params["notifications"]}
            _say(method="notifications/subscriptions/acknowledged", params=acknowledged)
            return
        case _:
            _say(id=number, error={"code": -32601, "message": "Method not found"})
            return
    if result is not None:
        _say(id=number, result={"resultType": "complete", **result})


def _listed(tool: Callable[..., Any]) -> dict[str, Any]:
    parameters = {name: {"type": _TYPES[kind]} for name, kind in tool.__annotations__.items() if name != "return"}
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"name": tool.__name__, "description": tool.__doc__, "inputSchema": schema}


def _called(tools: Tools, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    try:
        returned: Any = tools[name](**arguments)
    except Exception:  # noqa: BLE001 - told to whoever called, as the SDK does
        return {"content": [{"type": "text", "text": f"Error executing tool {name}"}], "isError": True}
    if returned is NEVER:
        return None
    text = returned if isinstance(returned, str) else json.dumps(returned)
    data: Any = {"result": returned} if isinstance(returned, str | int) else returned
    return {"content": [{"type": "text", "text": text}], "structuredContent": data, "isError": False}


if __name__ == "__main__":
    shed_tools.note_start(os.environ.get("SHED_STARTS"))
    serve(*shed_tools.PLAIN, wait)
