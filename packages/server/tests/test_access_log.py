"""The access log: a line for each request, and nothing in it that is not for every reader of logs."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Brief, Hub
from remit.protocol.errors import RemitError
from remit_server.access_log import AccessLog
from remit_server.app import Api
from remit_server.server import Server
from serving import OPERATOR, WEB, client_of, console_of, events, gate_of, got, posted
from waiting import eventually

SECRETS = ("canary-token", "canary-objective", "canary-id", "canary-query", "canary-answer", "canary-path")


class Lines:
    """The lines of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.path.read_text().splitlines()]


@asynccontextmanager
async def logged(hub: Hub, folder: Path, *, console: bool = False) -> AsyncGenerator[tuple[Server, Lines]]:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        brief.progress("at it")
        return f"canary-answer {brief.objective}"

    gate = gate_of(WEB, OPERATOR)
    log = AccessLog(folder / "access.jsonl")
    async with hub:
        shown = console_of(hub, gate) if console else None
        async with Server(Api(hub, gate, console=shown, access_log=log), drain_s=2) as server:
            yield server, Lines(folder / "access.jsonl")
    log.close()


def shown(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("method", "path", "status", "client", "complete"))


async def test_every_request_has_a_line_and_none_says_what_was_asked(hub: Hub, tmp_path: Path) -> None:
    asked = {"target": "echo", "user": "anna", "objective": "canary-objective", "id": "canary-id"}
    async with logged(hub, tmp_path) as (server, lines):
        trace = "0123456789abcdef0123456789abcdef"
        async with client_of(server) as session:
            status, answer = await posted(session, asked, traceparent=f"00-{trace}-0123456789abcdef-01")
            assert (status, answer["status"]) == (200, "success")
            async with session.get(f"/v1/delegations/{answer['id']}?canary-query=1") as reply:
                assert reply.status == 200
            read = await events(session, f"/v1/delegations/{answer['id']}/events")
            assert read[-1].kind == "result"
            async with session.get("/canary-path/x") as reply:
                assert reply.status == 404
                name = reply.headers["x-request-id"]
            async with session.put("/v1/runs/canary-id") as reply:
                assert reply.status == 405
            async with session.get("/v1/audit") as reply:
                assert reply.status == 403
        async with ClientSession(server.address) as stranger:
            wrong = {"authorization": "Bearer canary-token"}
            assert (await got(stranger, "/v1/runs/canary-id?token=canary-token", **wrong))[0] == 401
            assert (await got(stranger, "/openapi.json"))[0] == 200
        found = lines.read()
    assert [shown(each) for each in found] == [
        ("POST", "/v1/delegations", 200, "web", True),
        ("GET", "/v1/delegations/{id}", 200, "web", True),
        ("GET", "/v1/delegations/{id}/events", 200, "web", True),
        ("GET", None, 404, None, True),
        ("PUT", None, 405, None, True),
        ("GET", "/v1/audit", 403, "web", True),
        ("GET", "/v1/runs/{run}", 401, None, True),
        ("GET", "/openapi.json", 200, None, True),
    ]
    assert found[0]["trace"] == trace
    assert found[3]["id"] == name
    assert len({each["id"] for each in found}) == len(found)
    assert {each["address"] for each in found} == {"127.0.0.1"}
    assert all(each["bytes"] > 0 and each["ms"] >= 0 for each in found)
    text = lines.path.read_text()
    assert [each for each in SECRETS if each in text] == []
    assert lines.path.stat().st_mode & 0o777 == 0o600


async def test_a_stream_has_its_line_when_it_ends_and_says_if_its_reader_left(hub: Hub, tmp_path: Path) -> None:
    async with logged(hub, tmp_path) as (server, lines):
        async with client_of(server, "ops") as session:
            reply = await session.get("/v1/events")
            assert reply.status == 200
            assert lines.read() == []
            reply.close()
        (line,) = await eventually(lines.read, "the line of the stream")
    assert shown(line) == ("GET", "/v1/events", 200, "ops", False)


async def test_a_file_that_is_moved_away_is_made_anew(hub: Hub, tmp_path: Path) -> None:
    async with logged(hub, tmp_path, console=True) as (server, lines), ClientSession(server.address) as session:
        async with session.get("/healthz"):
            pass
        lines.path.rename(tmp_path / "access.1")
        async with session.get("/readyz"):
            pass
        assert [each["path"] for each in lines.read()] == ["/readyz"]
        async with session.get("/icon.svg"):
            pass
        assert [each["path"] for each in lines.read()][1:] in (["/{page}"], [None]), "none where it is not built"


def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RemitError, match="cannot be written"):
        AccessLog(tmp_path / "none" / "access.jsonl")
