"""A server that speaks as the models of two providers do, and says what a test tells it to: no model is behind it."""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

Event = tuple[str | None, dict[str, Any]]


@dataclass
class Script:
    """What the model does: it calls each tool, in turn, and once it has seen what came of them, says something."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    say: str = "Hello."
    hang: bool = False
    """Whether it begins to answer, and goes on only when the server is closed."""
    status: int = 200

    def next(self, results: int) -> tuple[str, dict[str, Any]] | None:
        """Return the tool to call after that many results; None: it is time to say something."""
        return self.calls[results] if results < len(self.calls) else None


class ModelServer:
    """Serves Anthropic's messages and Google's contents, streamed.

    A request that offers no tools is about something else, a title for instance, and is answered with a word.
    """

    def __init__(self) -> None:
        self.script = Script()
        self.bodies: list[dict[str, Any]] = []
        """What was asked with tools."""
        self.hung = threading.Event()
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def seen(self) -> str:
        """Return all that the model was shown, as JSON."""
        return json.dumps(self.bodies)

    def wait(self) -> None:
        """Hold an answer back until the server is closed."""
        self.hung.set()
        self._closed.wait()


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            path = urlsplit(self.path).path
            body = json.loads(self._body() or b"{}")
            dialect = next((each for end, each in DIALECTS.items() if end in path), None)
            if dialect is None or path.endswith(("count_tokens", "countTokens")):
                self._answer(200, {"input_tokens": 10, "totalTokens": 10})
            elif server.script.status != 200:
                self._answer(server.script.status, {"error": {"type": "error", "message": "scripted"}})
            else:
                self._stream(dialect(body))

        def do_GET(self) -> None:
            self._answer(404, {})

        do_HEAD = do_GET

        def _stream(self, spoken: "Dialect") -> None:
            script = server.script
            if spoken.body.get("tools"):
                server.bodies.append(spoken.body)
            else:
                script = Script(say="word")
            call = script.next(spoken.results())
            events = spoken.call(*call) if call is not None else spoken.say(script.say)
            if not spoken.streams:
                self._answer(200, spoken.whole(script.say if call is None else ""))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            with suppress(OSError):
                for name, data in events:
                    if script.hang:
                        server.wait()
                    lines = ([f"event: {name}"] if name else []) + [f"data: {json.dumps(data)}", "", ""]
                    self.wfile.write("\n".join(lines).encode())
                    self.wfile.flush()

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts: list[bytes] = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler


class Dialect:
    """How one provider's model is asked, and answers."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        # Of each answer: an agent takes two with the same for parts of one.
        self.id = uuid.uuid4().hex

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream", False))

    def results(self) -> int:
        """Return how many results of tools follow the last thing that the user said."""
        raise NotImplementedError

    def say(self, text: str) -> Iterator[Event]:
        raise NotImplementedError

    def call(self, name: str, given: dict[str, Any]) -> Iterator[Event]:
        raise NotImplementedError

    def whole(self, text: str) -> dict[str, Any]:
        raise NotImplementedError


class Anthropic(Dialect):
    def results(self) -> int:
        count = 0
        for message in reversed(self.body["messages"]):
            content: Any = message["content"]
            kinds = ["text"] if isinstance(content, str) else [each["type"] for each in content]
            if message["role"] == "user" and "tool_result" not in kinds:
                break
            count += kinds.count("tool_result")
        return count

    def say(self, text: str) -> Iterator[Event]:
        return self._message({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn")

    def call(self, name: str, given: dict[str, Any]) -> Iterator[Event]:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{self.id}", "name": name, "input": {}}
        return self._message(block, {"type": "input_json_delta", "partial_json": json.dumps(given)}, "tool_use")

    def whole(self, text: str) -> dict[str, Any]:
        return {**self._start(), "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}

    def _start(self) -> dict[str, Any]:
        usage = {"input_tokens": 20, "output_tokens": 1}
        start = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "model": self.body.get("model", "")}
        return {**start, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}

    def _message(self, block: dict[str, Any], delta: dict[str, Any], stop: str) -> Iterator[Event]:
        yield "message_start", {"type": "message_start", "message": self._start()}
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        end = {"stop_reason": stop, "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}}
        yield "message_stop", {"type": "message_stop"}


class Google(Dialect):
    @property
    def streams(self) -> bool:
        # Also what is asked aside, which model to take: whoever can make nothing of the answer takes the usual one.
        return True

    def results(self) -> int:
        count = 0
        for content in reversed(self.body["contents"]):
            kinds = [kind for part in content.get("parts", ()) for kind in part]
            if content.get("role") == "user" and "functionResponse" not in kinds:
                break
            count += kinds.count("functionResponse")
        return count

    def say(self, text: str) -> Iterator[Event]:
        yield None, self.whole(text)

    def call(self, name: str, given: dict[str, Any]) -> Iterator[Event]:
        yield None, self._candidate({"functionCall": {"name": name, "args": given}})

    def whole(self, text: str) -> dict[str, Any]:
        return self._candidate({"text": text})

    def _candidate(self, part: dict[str, Any]) -> dict[str, Any]:
        usage = {"promptTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 30}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


DIALECTS: dict[str, type[Dialect]] = {
    "/messages": Anthropic,
    "GenerateContent": Google,
    "generateContent": Google,
}
