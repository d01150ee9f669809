"""A server that speaks as Anthropic's models do, and does what a test decides; no model is behind it."""

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INPUT, OUTPUT = 20, 10
"""The tokens of each answer."""

Calls = list[tuple[str, dict[str, Any]]]
Decide = Callable[[list[str], list[str]], Calls]
"""From what the user and tools said so far, tools to call; none: the model says that it is done."""
Speaks = Callable[["ScriptedModel"], type[BaseHTTPRequestHandler]]
"""How requests to a model are read and answered."""


class ScriptedModel:
    """Answers requests for messages, and counts those that offer tools."""

    def __init__(self, decide: Decide, speaks: Speaks | None = None) -> None:
        self.answers = 0
        self.told: list[str] = []
        """What tools returned to the model, refusals included."""
        self._decide = decide
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), (speaks or _handler)(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, body: dict[str, Any]) -> Calls:
        if not body.get("tools"):  # a title, for instance
            return []
        return self.next_calls(*_said(body))

    def next_calls(self, asked: list[str], results: list[str]) -> Calls:
        with self._lock:
            self.answers += 1
            self.told += [each for each in results if each not in self.told]
        return self._decide(asked, results)


def _said(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts of the user and the results of tools, oldest first."""
    asked, results = list[str](), list[str]()
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if message["role"] == "user" and block["type"] == "text":
                asked.append(block["text"])
            elif block["type"] == "tool_result":
                results.append(json.dumps(block.get("content")))
    return asked, results


def _events(model: str, calls: Calls) -> Iterator[dict[str, Any]]:
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


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if "count_tokens" in self.path:
                self._whole({"input_tokens": 10})
                return
            events = _events(body.get("model", ""), model.answer(body))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            with suppress(OSError):
                for event in events:
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def do_GET(self) -> None:
            self.send_error(404)

        do_HEAD = do_GET

        def _whole(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler
