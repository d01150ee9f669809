"""A server that speaks as Google's models do, and does what a test decides; no model is behind it."""

import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from anthropic_server import INPUT, OUTPUT, Calls, ScriptedModel

# How a sub-agent of Gemini CLI reports; only its requests offer this tool.
REPORT = "complete_task"


def gemini(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    """Answer requests for content, whole or as a stream."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            told = json.dumps(_content(_calls(model, body)))
            is_stream = ":streamGenerateContent" in self.path
            data = (f"data: {told}\n\n" if is_stream else told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(data)

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler


def _calls(model: ScriptedModel, body: dict[str, Any]) -> Calls:
    tools = {each["name"] for tool in body.get("tools", ()) for each in tool.get("functionDeclarations", ())}
    if not tools:  # a summary, for instance
        return []
    asked, results = list[str](), list[str]()
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                results.append(json.dumps(part["functionResponse"]["response"]))
            elif content["role"] == "user" and "text" in part:
                asked.append(part["text"])
    calls = model.next_calls(asked, results)
    return calls or ([(REPORT, {"result": {"response": "Done."}})] if REPORT in tools else [])


def _content(calls: Calls) -> dict[str, Any]:
    parts = [{"functionCall": {"name": name, "args": given}} for name, given in calls] or [{"text": "Done."}]
    usage = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
