"""Scripted counterparts of the recipes, on real sockets: a model of OpenAI's protocol, and a Slack channel.

They stand for services that cost money or need an account. With the real ones only the addresses change.
"""

import hmac
import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

Message = dict[str, Any]
Turn = str | dict[str, Any]
Step = Turn | Callable[[list[Message]], Turn]
Body = tuple[str, bytes]
"""A media type and the content."""


@contextmanager
def listening(answer: Callable[[dict[str, Any]], Body]) -> Generator[str]:
    """Serve POST requests of JSON on a free port, and give the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kind, body = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def scripted_model(steps: Iterable[Step], seen: list[list[Message]] | None = None) -> Generator[str]:
    """Serve a model that answers with one step after another, and give its base URL.

    A text is what it says, a table the tools that it calls with their arguments, a function says either by what it is
    asked. The messages of each request are added to *seen*.
    """
    left, numbers = iter(steps), itertools.count()

    def answer(request: dict[str, Any]) -> Body:
        if seen is not None:
            seen.append(request["messages"])
        step = next(left)
        if callable(step):
            step = step(request["messages"])
        calls: list[tuple[str, Any]] = [] if isinstance(step, str) else list(step.items())
        tools = [
            {"index": index, "id": f"call-{next(numbers)}", "type": "function"}
            | {"function": {"name": name, "arguments": json.dumps(arguments)}}
            for index, (name, arguments) in enumerate(calls)
        ]
        message: Message = {"role": "assistant", "content": step if isinstance(step, str) else None}
        message |= {"tool_calls": tools} if tools else {}
        prompt = len(json.dumps(request["messages"])) // 4  # about four characters are a token
        usage = {"prompt_tokens": prompt, "completion_tokens": 10, "total_tokens": prompt + 10}
        about = {"id": "c-1", "created": 0, "model": request["model"], "usage": usage}
        end = {"index": 0, "finish_reason": "tool_calls" if tools else "stop"}
        if not request.get("stream"):
            whole = about | {"object": "chat.completion", "choices": [end | {"message": message}]}
            return "application/json", json.dumps(whole).encode()
        piece = about | {"object": "chat.completion.chunk", "choices": [end | {"delta": message}]}
        return "text/event-stream", f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n".encode()

    with listening(answer) as address:
        yield f"{address}/v1"


def slack_signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the `X-Slack-Signature` of a request."""
    return "v0=" + hmac.digest(secret, b"v0:" + timestamp.encode() + b":" + body, "sha256").hex()


@contextmanager
def scripted_channel(approved: str, secret: bytes, clicks: str) -> Generator[str]:
    """Serve the webhook of a channel in which Carla approves what says *approved* alone; give its address.

    A click is sent to the address *clicks*, signed with *secret*, as Slack does.
    """

    def shown(message: dict[str, Any]) -> Body:
        *sections, actions = message["blocks"]
        shown = "".join(each["text"]["text"] for each in sections)
        wanted = "approve" if approved in shown else "reject"
        (button,) = (each for each in actions["elements"] if each["action_id"] == wanted)
        payload = {"type": "block_actions", "user": {"username": "carla"}, "actions": [button]}
        body, now = urlencode({"payload": json.dumps(payload)}).encode(), str(int(time.time()))
        signed = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": slack_signature(secret, now, body)}
        urllib.request.urlopen(urllib.request.Request(clicks, data=body, headers=signed)).close()
        return "text/plain", b"ok"

    with listening(shown) as address:
        yield address
