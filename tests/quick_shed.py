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
_TYPES = {int: "integer", str: "string"}
_TOOLS: dict[str, Callable[..., Any]] = {each.__name__: each for each in shed_tools.PLAIN}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def wait(file: str) -> None:
    """Touch a file, then wait for ever."""
    shed_tools.note_pid(file)


def listed(tool: Callable[..., Any]) -> dict[str, Any]:
    parameters = {name: {"type": _TYPES[kind]} for name, kind in tool.__annotations__.items() if name != "return"}
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"name": tool.__name__, "description": tool.__doc__, "inputSchema": schema}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        found: Any = _TOOLS[name](**arguments)
    except Exception:  # noqa: BLE001 - told to whoever called, as the SDK does
        text = f"Error executing tool {name}"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    text = found if isinstance(found, str) else json.dumps(found)
    data: Any = found if isinstance(found, dict) else {"result": found}
    return {"content": [{"type": "text", "text": text}], "structuredContent": data, "isError": False}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a request; None: there is none, now or ever."""
    match method:
        case "server/discover":
            capabilities = {"tools": {"listChanged": True}}
            return {
                "supportedVersions": [VERSION],
                "capabilities": capabilities,
                "cacheScope": "private",
                "ttlMs": 0,
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "quick shed", "version": ""}},
            }
        case "tools/list":
            return {"tools": [listed(each) for each in (*_TOOLS.values(), wait)], "cacheScope": "private", "ttlMs": 0}
        case "tools/call" if params["name"] == "wait":
            return wait(**params["arguments"])
        case "tools/call":
            return called(params["name"], params["arguments"])
        case _:
            raise LookupError(method)


def answer(message: dict[str, Any]) -> None:
    number, method, params = message["id"], message["method"], message.get("params", {})
    if method == "subscriptions/listen":
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
        acknowledged = {**about, "notifications": params["notifications"]}
        say(method="notifications/subscriptions/acknowledged", params=acknowledged)
        return
    try:
        result = result_of(method, params)
    except LookupError:
        say(id=number, error={"code": -32601, "message": "Method not found"})
    else:
        if result is not None:
            say(id=number, result={"resultType": "complete", **result})


def main() -> None:
    shed_tools.note_start(os.environ.get("SHED_STARTS"))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message)


if __name__ == "__main__":
    main()
