"""Answers of peers that keep to A2A as TypeScript programs often do: what can be read is read, and nothing is lost."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from a2a_peers import asked_of
from remit import Artifact, Response, Status

PART = {"text": "done"}
ARTIFACT = {"artifactId": "a-1", "parts": [PART]}
TASK = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [ARTIFACT]}
OLD_PART = {"kind": "text"} | PART
OLD = {"kind": "task", "id": "t-1", "status": {"state": "completed"}, "artifacts": [{"parts": [OLD_PART]}]}
BARE = {"status": TASK["status"], "artifacts": [ARTIFACT]}
OURS = "urn:remit:delegation:v1"


def task(**fields: Any) -> dict[str, Any]:
    return {"task": TASK | fields}


def parts(*each: Any) -> dict[str, Any]:
    return task(artifacts=[ARTIFACT | {"parts": list(each)}])


class TypeScriptPeer:
    """Answers each message with the same JSON."""

    def __init__(self, body: str, *, kind: str = "application/json", streams: bool = False) -> None:
        self.body = body
        self.kind = kind
        self.streams = streams
        self.methods: list[str] = []

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        app = web.Application()
        app.add_routes([web.get("/.well-known/agent-card.json", self._card), web.post("/rpc", self._call)])
        async with TestServer(app) as server:
            self._url = str(server.make_url(""))
            yield self._url

    async def _card(self, _: web.Request) -> web.Response:
        interface = {"url": f"{self._url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response(
            {"name": "helper", "supportedInterfaces": [interface], "capabilities": {"streaming": self.streams}}
        )

    async def _call(self, request: web.Request) -> web.Response:
        self.methods.append((await request.json())["method"])
        return web.Response(text=self.body, content_type=self.kind)


def reply(result: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})


def events(*results: Any, end: str = "") -> str:
    return "".join(f"data: {reply(each)}\n\n" for each in results) + end


WORKING = task(status={"state": "TASK_STATE_WORKING"}, artifacts=[])
ENDED = {"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}, "final": True}}
NEWS = {"artifactUpdate": {"taskId": "t-1", "artifact": ARTIFACT}}

# What a peer sends as its reply, by what is unusual about it.
REPLIES = {
    "further fields": reply(task(kind="task", priority=3, artifacts=[ARTIFACT | {"createdAt": 5}])),
    "null where a field is optional": reply(task(history=None, metadata=None, artifacts=[ARTIFACT | {"name": None}])),
    "null for a part's other kinds": reply(parts(PART | {"raw": None, "url": None, "data": None, "filename": None})),
    "a part named by kind": reply(parts({"kind": "text"} | PART)),
    "a part named by type": reply(parts({"type": "text"} | PART)),
    "a part that is a string": reply(parts("done")),
    "metadata that is a list": reply(task(metadata=[], artifacts=[ARTIFACT | {"metadata": []}])),
    "numbers as ids": reply(task(id=17, contextId=4, artifacts=[ARTIFACT | {"artifactId": 1}])),
    "a time as a number": reply(task(status={"state": "TASK_STATE_COMPLETED", "timestamp": 1760000000000})),
    "a time with nanoseconds": reply(
        task(status={"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.123456789+02:00"})
    ),
    "a state in lower case": reply(task(status={"state": "completed"})),
    "a state without its prefix": reply(task(status={"state": "Completed"})),
    "a status that is its state": reply(task(status="completed")),
    "names in snake case": reply(
        {"task": BARE | {"id": "t-1", "context_id": "c", "artifacts": [{"artifact_id": "a", "parts": [PART]}]}}
    ),
    "no context id": reply({"task": {name: value for name, value in TASK.items() if name != "contextId"}}),
    "no task id": reply({"task": BARE}),
    "an artifact without an id": reply(task(artifacts=[{"parts": [PART]}])),
    "an artifact that is no list": reply(task(artifacts=ARTIFACT)),
    "a role of its own": reply({"message": {"messageId": "m", "role": "model", "parts": [PART]}}),
    "a bare task": reply(TASK),
    "a bare message": reply({"kind": "message", "messageId": "m", "role": "agent", "parts": [PART]}),
    "a bare text": reply("done"),
    "a task of version 0.3": reply(OLD),
    "no envelope": json.dumps({"task": TASK}),
    "an error that is null": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"task": TASK}, "error": None}),
    "a byte-order mark": "\ufeff" + reply({"task": TASK}),
    "text after the JSON": reply({"task": TASK}) + "\n;",
    "a number that is too long": reply(task(metadata={"ns": 10**20})),
    "a key twice": reply({"task": TASK}).replace('"contextId"', '"contextId": "x", "contextId"'),
    "a text with an extension of ours that says nothing": reply(
        task(artifacts=[ARTIFACT | {"artifactId": "result", "metadata": {OURS: "yes"}}])
    ),
    "more of our extension that is no JSON": reply(
        task(artifacts=[ARTIFACT | {"artifactId": "result", "metadata": {OURS: {"rest": "{"}}}])
    ),
    "usage that is none": reply(
        task(artifacts=[{"artifactId": "result", "parts": [PART], "metadata": {OURS: {"usage": {"prompt": "1.5k"}}}}])
    ),
}  # fmt: skip

STREAMS = {
    "[DONE] at the end": events(WORKING, NEWS, ENDED, end="data: [DONE]\n\n"),
    "events that are bare": events(
        {"kind": "status-update", "taskId": "t-1", "status": {"state": "working"}},
        {"kind": "artifact-update", "taskId": "t-1", "artifact": ARTIFACT},
        {"kind": "status-update", "taskId": "t-1", "final": True, "status": {"state": "completed"}},
    ),
    "an event that is none": events(WORKING, {"heartbeat": 1}, NEWS, ENDED),
    "an artifact in pieces without an id": events(
        WORKING,
        {"artifactUpdate": {"taskId": "t-1", "artifact": {"parts": [{"text": "do"}]}}},
        {"artifactUpdate": {"taskId": "t-1", "append": True, "artifact": {"parts": [{"text": "ne"}]}}},
        ENDED,
    ),
    "no line at the end": events(WORKING, NEWS, ENDED).rstrip("\n"),
}


@pytest.mark.parametrize("body", REPLIES.values(), ids=REPLIES.keys())
async def test_finished_work_is_read_however_it_is_written(body: str) -> None:
    response = await asked_of(TypeScriptPeer(body))
    assert (response.status, response.result, response.fault) == (Status.SUCCESS, "done", None)


@pytest.mark.parametrize("body", STREAMS.values(), ids=STREAMS.keys())
async def test_finished_work_is_read_however_it_is_streamed(body: str) -> None:
    peer = TypeScriptPeer(body, kind="text/event-stream", streams=True)
    response = await asked_of(peer)
    assert (response.status, response.result, response.fault) == (Status.SUCCESS, "done", None)
    assert peer.methods == ["SendStreamingMessage"]


async def test_json_with_another_content_type_is_read() -> None:
    assert (await asked_of(TypeScriptPeer(reply({"task": TASK}), kind="text/plain"))).result == "done"


async def given(*unusual: Any, **fields: Any) -> Response:
    return await asked_of(TypeScriptPeer(reply(parts(PART, *unusual) if unusual else task(**fields))))


async def test_a_part_that_cannot_be_read_is_a_warning_and_the_others_are_read() -> None:
    unknown = {"kind": "image", "image": {"width": 3}}
    response = await given(unknown, {"data": {"n": 1}}, {"kind": "data", "data": 5})
    assert response.result == "done"
    assert response.artifacts == (Artifact(type="json", value={"n": 1}), Artifact(type="json", value=5))
    assert response.warnings == ("A part of a-1 is left out: it is of an unknown kind.",)


async def test_files_of_version_0_3_are_files() -> None:
    response = await given({"kind": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}})
    assert [(file.name, file.media_type, file.data) for file in response.files] == [("a.txt", "text/plain", b"hi")]


async def test_artifacts_without_ids_are_not_taken_for_one() -> None:
    response = await given(artifacts=[{"parts": [PART]}, {"parts": [{"data": 1}]}, {"parts": [{"data": 2}]}])
    assert (response.result, [each.value for each in response.artifacts]) == ("done", [1, 2])


async def test_what_is_left_out_is_named() -> None:
    response = await given(metadata=[1], artifacts=[ARTIFACT | {"parts": [PART, 5]}])
    assert response.result == "done"
    assert response.warnings == (
        "$.task.artifacts[0].parts[1] was left out: Expected `object`, got `int`",
        "$.task.metadata was left out: Expected `object | null`, got `array`",
    )


async def test_a_task_that_stays_in_an_unknown_state_is_answered_with_what_it_has() -> None:
    peer = TypeScriptPeer(reply(task(status={"state": "TASK_STATE_ARCHIVED"})))
    response = await asked_of(peer, deadline_ms=20_000)
    assert (response.status, response.result) == (Status.PARTIAL, "done")
    assert response.warnings == ("The state 'TASK_STATE_ARCHIVED' of the task is unknown: it may be incomplete.",)


@pytest.mark.parametrize("body", [reply({}), reply(None), reply(17), "<html>", "", reply({"task": 5}), reply([])])
async def test_an_answer_without_a_result_is_none(body: str) -> None:
    response = await asked_of(TypeScriptPeer(body))
    assert (response.status, response.result) == (Status.FAILED, None)
