"""A server that speaks as OpenAI's models do in the Responses API, and does what a test decides."""

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INPUT, CACHED, OUTPUT = 20, 5, 10
"""The tokens of each answer: read anew, read from a cache, written."""

Calls = list[tuple[str, dict[str, Any]]]
Decide = Callable[[list[str], list[str]], Calls]
"""From what the user and tools said so far, tools to call (`group.name`); none: the model says that it is done."""


class ScriptedResponses:
    """Answers requests for responses, and counts them."""

    def __init__(self, decide: Decide) -> None:
        self.answers = 0
        self.told: list[str] = []
        """What tools returned to the model, refusals included."""
        self._decide = decide
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
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

    def answer(self, body: dict[str, Any]) -> Calls:
        asked, results = _said(body)
        with self._lock:
            self.answers += 1
            self.told += [each for each in results if each not in self.told]
        return self._decide(asked, results)


def _said(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts of users and agents and the results of tools, oldest first; what the tool adds is left out."""
    asked, results = list[str](), list[str]()
    for item in body["input"]:
        if item["type"] == "function_call_output":
            results.append(item["output"] if isinstance(item["output"], str) else json.dumps(item["output"]))
        elif item.get("role") == "user" or item["type"] == "agent_message":
            texts = [part.get("text") or part.get("encrypted_content") or "" for part in item["content"]]
            asked += [text for text in texts if not text.startswith("<")]
    return asked, results


def _events(calls: Calls) -> Iterator[dict[str, Any]]:
    response = {"id": f"resp_{uuid.uuid4().hex}"}
    yield {"type": "response.created", "response": response}
    for name, given in calls:
        group, _, name = name.rpartition(".")
        item = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": f"call_{uuid.uuid4().hex}"}
        item |= {"name": name, "arguments": json.dumps(given)} | ({"namespace": group} if group else {})
        yield {"type": "response.output_item.done", "item": item}
    if not calls:
        said = {"type": "message", "role": "assistant", "id": f"msg_{uuid.uuid4().hex}"}
        content = [{"type": "output_text", "text": "Done."}]
        yield {"type": "response.output_item.done", "item": {**said, "content": content}}
    usage = {
        "input_tokens": INPUT + CACHED,
        "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": OUTPUT,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": INPUT + CACHED + OUTPUT,
    }
    yield {"type": "response.completed", "response": {**response, "usage": usage}}


def _handler(model: ScriptedResponses) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            events = _events(model.answer(body))
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

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler
