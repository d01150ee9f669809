"""Servers that speak as models of Anthropic, Google and OpenAI, and do what a test decides; no model is behind them."""

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INPUT, CACHED, OUTPUT = 20, 5, 10
"""The tokens of each answer: read anew, read from a cache by the Responses API, written."""

# How a sub-agent of Gemini CLI reports; only its requests offer this tool.
REPORT = "complete_task"

Calls = list[tuple[str, dict[str, Any]]]
Decide = Callable[[list[str], list[str]], Calls]
"""From what the user and tools said so far, tools to call (`group.name` in the Responses API); none: it is done."""
Answers = Callable[["ScriptedModel", str, dict[str, Any]], tuple[str, Iterable[bytes]]]
"""How a request to a path is answered: with this type of content, as a whole or as events until the connection ends."""

_EVENTS, _JSON = "text/event-stream", "application/json"


class ScriptedModel:
    """Answers requests in one of the dialects below, and counts those that offer tools."""

    def __init__(self, decide: Decide, speaks: Answers | None = None) -> None:
        self.answers = 0
        self.results: list[str] = []
        """What tools returned to the model, refusals included."""
        self._decide = decide
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, speaks or anthropic))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spent(self) -> int:
        """The tokens of all answers, without those that were read from a cache."""
        return self.answers * (INPUT + OUTPUT)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def next_calls(self, prompts: list[str], results: list[str]) -> Calls:
        with self._lock:
            self.answers += 1
            self.results += [each for each in results if each not in self.results]
        return self._decide(prompts, results)


def _handler(model: ScriptedModel, answers: Answers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            kind, pieces = answers(model, self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            if isinstance(pieces, list):
                self.send_header("Content-Length", str(sum(map(len, pieces))))
            else:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            with suppress(OSError):
                for piece in pieces:
                    self.wfile.write(piece)

        def do_GET(self) -> None:
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler


def _sent(events: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


# ── Anthropic ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def anthropic(model: ScriptedModel, path: str, body: dict[str, Any]) -> tuple[str, list[bytes] | Iterator[bytes]]:
    """Answer requests for messages."""
    if "count_tokens" in path:
        return _JSON, [json.dumps({"input_tokens": 10}).encode()]
    calls = model.next_calls(*_messages(body)) if body.get("tools") else []  # none for a title, for instance
    return _EVENTS, _sent(_message_events(body.get("model", ""), calls))


def _messages(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts of the user and the results of tools, oldest first."""
    prompts, results = list[str](), list[str]()
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if message["role"] == "user" and block["type"] == "text":
                prompts.append(block["text"])
            elif block["type"] == "tool_result":
                results.append(json.dumps(block.get("content")))
    return prompts, results


def _message_events(model: str, calls: Calls) -> Iterator[dict[str, Any]]:
    start: dict[str, Any] = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
    }
    usage = {"input_tokens": INPUT, "output_tokens": 1}
    yield {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (
            {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": name, "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps(given)},
        )
        for name, given in calls
    ] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."})]
    for index, (block, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT}}
    yield {"type": "message_stop"}


# ── Google ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def gemini(model: ScriptedModel, path: str, body: dict[str, Any]) -> tuple[str, list[bytes] | Iterator[bytes]]:
    """Answer requests for content, whole or as a stream."""
    content = json.dumps(_content(_content_calls(model, body)))
    is_stream = ":streamGenerateContent" in path
    return (_EVENTS if is_stream else _JSON), [(f"data: {content}\n\n" if is_stream else content).encode()]


def _content_calls(model: ScriptedModel, body: dict[str, Any]) -> Calls:
    tools = {each["name"] for tool in body.get("tools", ()) for each in tool.get("functionDeclarations", ())}
    if not tools:  # a summary, for instance
        return []
    prompts, results = list[str](), list[str]()
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                results.append(json.dumps(part["functionResponse"]["response"]))
            elif content["role"] == "user" and "text" in part:
                prompts.append(part["text"])
    calls = model.next_calls(prompts, results)
    return calls or ([(REPORT, {"result": {"response": "Done."}})] if REPORT in tools else [])


def _content(calls: Calls) -> dict[str, Any]:
    parts = [{"functionCall": {"name": name, "args": given}} for name, given in calls] or [{"text": "Done."}]
    usage = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


# ── OpenAI ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def responses(model: ScriptedModel, _: str, body: dict[str, Any]) -> tuple[str, list[bytes] | Iterator[bytes]]:
    """Answer requests for responses."""
    return _EVENTS, _sent(_response_events(model.next_calls(*_items(body))))


def _items(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts of users and agents and the results of tools, oldest first; what the tool adds is left out."""
    prompts, results = list[str](), list[str]()
    for item in body["input"]:
        if item["type"] == "function_call_output":
            results.append(item["output"] if isinstance(item["output"], str) else json.dumps(item["output"]))
        elif item.get("role") == "user" or item["type"] == "agent_message":
            texts = [part.get("text") or part.get("encrypted_content") or "" for part in item["content"]]
            prompts += [text for text in texts if not text.startswith("<")]
    return prompts, results


def _response_events(calls: Calls) -> Iterator[dict[str, Any]]:
    response = {"id": f"resp_{uuid.uuid4().hex}"}
    yield {"type": "response.created", "response": response}
    for name, given in calls:
        group, _, name = name.rpartition(".")
        item = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": f"call_{uuid.uuid4().hex}"}
        item |= {"name": name, "arguments": json.dumps(given)} | ({"namespace": group} if group else {})
        yield {"type": "response.output_item.done", "item": item}
    if not calls:
        message = {"type": "message", "role": "assistant", "id": f"msg_{uuid.uuid4().hex}"}
        content = [{"type": "output_text", "text": "Done."}]
        yield {"type": "response.output_item.done", "item": {**message, "content": content}}
    usage = {
        "input_tokens": INPUT + CACHED,
        "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": OUTPUT,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": INPUT + CACHED + OUTPUT,
    }
    yield {"type": "response.completed", "response": {**response, "usage": usage}}
