"""A real server that speaks OpenAI's chat completions over HTTP and says what its script says.

In a test:

    with OpenAIServer([say("Hello."), call("look_up", key="tea"), Status(429, retry_after=2)]) as server:
        ModelAgent("any", base_url=server.base_url)
    server.requests[0].messages

As a program, for those that start it beside them; it prints its address and serves until it is ended:

    python tests/openai_server.py --script script.json --port 8123

where the script is a list of replies: `{"say": "Hello."}`, `{"call": {"look_up": {"key": "tea"}}}` (several calls at
once: several names, or a list of such tables), `{"status": 429, "retry_after": 2}`, `{"hang": true}`,
`{"drop": "Hel"}`, `{"garbage": true}`, `{"echo": true}`, `{"think": "…", "say": "…"}`; each may say
`"usage": [prompt, completion]` (`null`: it reports none) and `"delay": seconds`. The last one is given again and again.
"""

import argparse
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

Usage = tuple[int, int] | None


@dataclass(frozen=True)
class Reply:
    """What a model answers: a text, calls of tools, or both, after some reasoning perhaps."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    thinking: str = ""
    pieces: tuple[str, ...] = ()
    """The text as it is streamed; else word by word."""
    usage: Usage = (20, 10)
    """Tokens of prompt and completion; None: it reports none."""
    delay: float = 0
    """Seconds before it begins, and between its pieces."""
    finish: str = ""
    cut: bool = False
    """Whether the arguments of its calls end in their middle."""

    @property
    def parts(self) -> tuple[str, ...]:
        return self.pieces or tuple(re.findall(r"\S+\s*|\s+", self.text))


@dataclass(frozen=True)
class Status:
    """An error of the provider's."""

    code: int
    retry_after: float | None = None
    message: str = "scripted"
    error_code: str | None = None


@dataclass(frozen=True)
class Hang:
    """No answer, after some pieces of one perhaps, until the server is closed."""

    pieces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drop:
    """The connection breaks after this much of the answer."""

    text: str = ""


@dataclass(frozen=True)
class Garbage:
    """Something that is not the protocol."""

    body: bytes = b"<html>Bad gateway</html>"


class Request:
    """What the server was sent."""

    def __init__(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.body = body
        self.headers = headers

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def text(self) -> str:
        """Everything that it says, as it came: for looking for what must not be there."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def message_texts(self) -> str:
        """What all messages say, one after another."""
        return "\n".join(_text_of(message.get("content")) for message in self.messages)

    @property
    def tools(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]

    @property
    def results(self) -> list[str]:
        """What tools gave back."""
        return [_text_of(message["content"]) for message in self.messages if message["role"] == "tool"]


Answer = Reply | Status | Hang | Drop | Garbage
Scripted = Answer | Callable[[Request], Answer]


def say(text: str, **options: Any) -> Reply:
    """Answer with a text."""
    return Reply(text, **options)


def call(tool: str, /, **arguments: Any) -> Reply:
    """Use a tool."""
    return Reply(calls=((tool, arguments),))


def calls(*wanted: tuple[str, dict[str, Any]], **options: Any) -> Reply:
    """Use several tools at once."""
    return Reply(calls=wanted, **options)


class OpenAIServer:
    """The server, in threads of its own, from entering it to leaving it; the last reply is given again and again."""

    def __init__(self, script: Sequence[Scripted] | Callable[[Request], Answer], *, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.hanging = threading.Event()
        """Set once someone waits for an answer that does not come."""
        self.on_hang: Callable[[], object] = lambda: None
        self.closed = threading.Event()
        self._script = script
        self._lock = threading.Lock()
        self._server = _Threads(("127.0.0.1", port), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="openai", daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def hang(self) -> None:
        """Wait until the server is closed."""
        self.hanging.set()
        self.on_hang()
        self.closed.wait()

    def answer(self, request: Request) -> Answer:
        """Note a request and return what the script says to it."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        if callable(self._script):
            return self._script(request)
        scripted = self._script[min(number, len(self._script) - 1)]
        return scripted(request) if callable(scripted) else scripted


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    model: OpenAIServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever cancels a call leaves in the middle of it; that is not worth a trace."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Threads  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send_json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body: dict[str, Any] = json.loads(raw)
        request = Request(body, {name.lower(): value for name, value in self.headers.items()})
        match self.server.model.answer(request):
            case Status() as status:
                headers = {} if status.retry_after is None else {"Retry-After": f"{status.retry_after:g}"}
                error = {"message": status.message, "type": "error", "code": status.error_code, "param": None}
                self._send_json(status.code, {"error": error}, headers)
            case Garbage(body=garbage):
                self._send(200, garbage, {"Content-Type": "text/html"})
            case Hang(pieces=pieces):
                self._stream(Reply(pieces=pieces), body, until=self.server.model.hang, whole=False)
            case Drop(text=text):
                self._stream(Reply(pieces=(text,)), body, until=lambda: None, whole=False)
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            case Reply() as reply:
                self._reply(reply, body)

    def _reply(self, reply: Reply, body: dict[str, Any]) -> None:
        if reply.delay:
            self.server.model.closed.wait(reply.delay)
        if body.get("stream"):
            self._stream(reply, body)
        else:
            self._send_json(200, _completion(reply, body))

    def _stream(
        self, reply: Reply, body: dict[str, Any], until: Callable[[], object] | None = None, *, whole: bool = True
    ) -> None:
        if not body.get("stream"):
            if until is not None:
                until()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in _chunks(reply, body, whole=whole):
            self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            if reply.delay:
                self.server.model.closed.wait(reply.delay)
        if until is not None:
            until()
            return
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send_json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)  # pyright: ignore
    return content if isinstance(content, str) else ""


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": body.get("model", "scripted")}


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _usage(reply: Reply) -> dict[str, int] | None:
    if reply.usage is None:
        return None
    prompt, completion = reply.usage
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"index": index, "id": f"call_{time.time_ns()}_{index}", "type": "function"}
        | {"function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (name, arguments) in enumerate(reply.calls)
    ]


def _completion(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or "".join(reply.pieces) or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = _tool_calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def _chunks(reply: Reply, body: dict[str, Any], *, whole: bool = True) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**_head(body, "chat.completion.chunk"), "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if reply.thinking:
        yield chunk({"reasoning_content": reply.thinking})
    for piece in reply.parts:
        yield chunk({"content": piece})
    for each in _tool_calls(reply):
        arguments: str = each["function"]["arguments"]
        # In two pieces, as models send them.
        yield chunk({"tool_calls": [each | {"function": {**each["function"], "arguments": arguments[:3]}}]})
        if not reply.cut:
            yield chunk({"tool_calls": [{"index": each["index"], "function": {"arguments": arguments[3:]}}]})
    if not whole:
        return
    yield chunk({}, _finish(reply))
    if body.get("stream_options", {}).get("include_usage") and reply.usage is not None:
        yield {**_head(body, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)}


# ── as a program ──────────────────────────────────────────────────────────────────────────────────────────────────────


def scripted(step: dict[str, Any]) -> Scripted:
    """Return a reply as a script in JSON says it."""
    usage = tuple(step["usage"]) if step.get("usage") else (None if "usage" in step else (20, 10))
    match step:
        case {"status": int(code)}:
            return Status(code, step.get("retry_after"), step.get("message", "scripted"))
        case {"hang": _}:
            return Hang((step["say"],) if "say" in step else ())
        case {"drop": str(text)}:
            return Drop(text)
        case {"garbage": _}:
            return Garbage()
        case {"echo": _}:
            return lambda request: Reply(request.message_texts, usage=usage)
        case _:
            wanted: Any = step.get("call", [])
            tables = cast("list[dict[str, Any]]", wanted if isinstance(wanted, list) else [wanted])
            made = tuple((name, arguments) for table in tables for name, arguments in table.items())
            reply = Reply(step.get("say", ""), calls=made, thinking=step.get("think", ""), delay=step.get("delay", 0))
            return replace(reply, usage=usage)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A server that answers like a model, by a script.")
    parser.add_argument("--script", required=True, help="a list of replies in JSON, or a file that holds one")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--requests", type=Path, help="a file that each request is appended to, as a line of JSON")
    given = parser.parse_args(arguments)
    text = given.script if given.script.lstrip().startswith("[") else Path(given.script).read_text(encoding="utf-8")
    replies = [scripted(each) for each in json.loads(text)]
    numbered = iter(range(sys.maxsize))

    def answer(request: Request) -> Answer:
        if given.requests:
            with given.requests.open("a", encoding="utf-8") as file:
                file.write(request.text + "\n")
        reply = replies[min(next(numbered), len(replies) - 1)]
        return reply(request) if callable(reply) else reply

    with OpenAIServer(answer, port=given.port) as server, suppress(KeyboardInterrupt):
        print(server.base_url, flush=True)
        server.closed.wait()


if __name__ == "__main__":
    main()
