"""A hub's web application, asked without a network: any body gets an answer that the docs know."""

import asyncio
import json
from itertools import count
from typing import Any

from remit import Brief, Hub, Limits
from remit.policy.reception import Sender
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_testing import MemoryStore
from serving import gate_of

# What only ends a reader that hangs.
BOUND_S = 120
_INITIALIZE = (
    b'{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities":'
    b' {}, "clientInfo": {"name": "x", "version": "1"}}}'
)


class Doors:
    """Opens a hub at the first question; `close` closes it."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._session = ""
        self._ids = count()
        self._headers: dict[bytes, bytes] = {}
        self._hub: Hub
        self._api: Api

    def post(self, path: str, body: bytes, **headers: str) -> int:
        """Return the status of the answer; raise what the application raises, or if it is a fault of its own."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.run(self._open())
        # Under an id that was used before, a request is compared with the first one, and goes no further.
        body = body.replace(b"a-new-id", b"i-%d" % next(self._ids))
        return self._runner.run(asyncio.wait_for(self._post(path, body, headers), BOUND_S))

    def mcp(self, body: bytes) -> int:
        """Post a message to a session of MCP."""
        if not self._session:
            self.post("/mcp", _INITIALIZE)
            self._session = self._headers[b"mcp-session-id"].decode()
        status = self.post("/mcp", body, mcp_session_id=self._session, mcp_protocol_version="2025-06-18")
        if status == 404:  # a message may end the session
            self._session = ""
        return status

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self._close())
            self._runner.close()
            self._runner, self._session = None, ""

    async def _open(self) -> None:
        self._hub = Hub(store=MemoryStore(), limits=Limits(root_time_ms=2_000))

        @self._hub.agent("echo", capabilities=["TAG"])
        async def echo(brief: Brief) -> Any:
            return brief.input or brief.text

        assert echo
        await self._hub.__aenter__()
        gate = gate_of(Sender(name="anna", users=frozenset({"anna"})), Sender(name="north", is_hub=True))
        self._api = Api(self._hub, gate, a2a=Exposure(push=False))

    async def _close(self) -> None:
        await self._api.drain(BOUND_S)
        await self._hub.__aexit__(None, None, None)

    async def _post(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        given = {
            "host": "localhost",
            "authorization": "Bearer anna",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            **headers,
        }
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            return await asyncio.get_running_loop().create_future()  # the client stays until it is answered

        async def send(message: Any) -> None:
            sent.append(message)

        await self._api.app(scope, receive, send)
        status = sent[0]["status"]
        reply = b"".join(message.get("body", b"") for message in sent[1:])
        assert status < 500 or status in (503, 504), f"{status}: {reply[:500]!r}"
        self._headers = dict(sent[0]["headers"])
        if status != 202 and self._headers.get(b"content-type", b"").startswith(b"application/json"):
            json.loads(reply)
        return status
