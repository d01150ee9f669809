"""A hub behind a real server that speaks A2A, in the test's own event loop."""

import json
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiohttp import ClientSession

from remit import Hub
from remit.policy.reception import Permission, Sender
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.server import Server
from remit_server.transports.addresses import OutboundHosts
from serving import gate_of
from waiting import eventually

ANNA = Sender(name="anna-app", users=frozenset({"anna"}))
BERT = Sender(name="bert-app", users=frozenset({"bert"}))
MANY = Sender(name="many")
NORTH = Sender(name="north", is_hub=True)
OPERATOR = Sender(name="ops", permissions=frozenset(Permission))

# Tests are told of their tasks on this machine.
HERE = OutboundHosts(hosts=frozenset({"127.0.0.1"}))


@asynccontextmanager
async def speaking(hub: Hub, *, proxies: Collection[str] = (), **options: Any) -> AsyncGenerator[Server, None]:
    """Open the hub and serve its agents by A2A, to clients behind *proxies*."""
    options.setdefault("reach", HERE)
    exposure = Exposure(**options)
    async with hub:
        api = Api(hub, gate_of(ANNA, BERT, MANY, NORTH, OPERATOR), a2a=exposure, proxies=proxies)
        async with Server(api, port=0, drain_s=2) as server:
            yield server


def client_of(
    server: Server, name: str = "anna-app", *, extended: bool = False, headers: dict[str, str] | None = None
) -> ClientSession:
    """Return a session that proves to be the sender of that name, and speaks A2A 1.0."""
    all_headers = {"authorization": f"Bearer {name}", "a2a-version": "1.0"} | (headers or {})
    if extended:
        all_headers["a2a-extensions"] = EXTENSION
    return ClientSession(server.address, headers={key: value for key, value in all_headers.items() if value})


# ── asking in either binding ──────────────────────────────────────────────────────────────────────────────────────────

BINDINGS = ("JSONRPC", "HTTP+JSON")

_REST = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


class Wrong(Exception):
    """What a server says that it will not do."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status}: {error}")
        self.status = status
        self.error = error
        details = error.get("data", error.get("details", []))
        infos = [each for each in details if each["@type"].endswith("ErrorInfo")]
        self.reasons = {each["domain"]: each["reason"] for each in infos}
        self.about: dict[str, str] = infos[0].get("metadata", {}) if infos else {}
        self.fields = {
            each["field"]: each["description"] for detail in details for each in detail.get("fieldViolations", ())
        }

    @property
    def reason(self) -> str:
        """The word that A2A has for it."""
        return self.reasons.get("a2a-protocol.org", "")


class Caller:
    """Asks one agent, in one binding, with nothing between a test and the wire."""

    def __init__(self, session: ClientSession, agent: str, binding: str = "JSONRPC", **headers: str) -> None:
        self.session = session
        self.base = f"/a2a/{agent}"
        self.binding = binding
        self.headers = headers

    def _request(self, method: str, params: dict[str, Any]) -> Any:
        if self.binding == "JSONRPC":
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            return self.session.post(self.base, json=body, headers=self.headers)
        verb, path = _REST[method]
        named = {key: value for key, value in params.items() if f"{{{key}}}" in path}
        rest = {key: value for key, value in params.items() if key not in named}
        url = self.base + path.format(**named)
        if verb == "POST":
            return self.session.post(url, json=rest, headers=self.headers)
        query = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in rest.items()}
        return self.session.request(verb, url, params=query, headers=self.headers)

    async def __call__(self, method: str, **params: Any) -> Any:
        """Return what a method gives, or raise what is wrong."""
        async with self._request(method, params) as reply:
            return self._opened(reply.status, await reply.json(content_type=None))

    def _opened(self, status: int, body: Any) -> Any:
        if "error" in body:
            raise Wrong(status, body["error"])
        assert status == 200
        if self.binding == "JSONRPC":
            assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
            return body["result"]
        return body

    async def events(self, method: str, **params: Any) -> list[Any]:
        """Return the events of a stream, read to its end."""
        return [each async for each in self.stream(method, **params)]

    async def stream(self, method: str, **params: Any) -> AsyncGenerator[Any, None]:
        """Return the events of a stream as they come."""
        async with self._request(method, params) as reply:
            if reply.content_type != "text/event-stream":
                self._opened(reply.status, await reply.json(content_type=None))
            text = ""
            async for part in reply.content.iter_any():
                *whole, text = (text + part.decode()).split("\n\n")
                for frame in whole:
                    if frame.startswith("data: "):
                        yield self._opened(200, json.loads(frame.removeprefix("data: ")))

    async def until(self, task: str, *states: str) -> Any:
        """Return a task once it is in one of these states."""

        async def look() -> Any:
            task_now = await self("GetTask", id=task)
            return task_now if state(task_now) in states else None

        return await eventually(look, f"a task that is {' or '.join(states)}")

    async def send(self, text: str, **more: Any) -> Any:
        """Return the task that a text begins."""
        configuration = {key: more.pop(key) for key in list(more) if key in _CONFIGURATION}
        return (await self("SendMessage", message=message(text, **more), configuration=configuration))["task"]


_CONFIGURATION = ("acceptedOutputModes", "taskPushNotificationConfig", "historyLength", "returnImmediately")


def message(text: str, **more: Any) -> dict[str, Any]:
    """Return a message of a client."""
    return {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]} | more


_numbers = count(1)


def state(task: Any) -> str:
    """Return where a task stands, in one word."""
    return task["status"]["state"].removeprefix("TASK_STATE_")


def text_of(task: Any) -> str:
    """Return what came of a task."""
    return task["artifacts"][0]["parts"][0]["text"]
