"""Bytes that say two things at once, or more than they should: on the wire, in paths, streams, logs and terminals."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yarl
from aiohttp import ClientSession

from command_line import remit as command
from remit import Brief, Hub
from remit.policy.reception import Sender
from remit.runtime.clock import LoopClock
from remit_server import connections
from remit_server.app import Api
from remit_server.server import Server
from remit_server.transports.credentials.incoming import Authenticator, KnownSender
from serving import client_of, connected, events, gate_of, got, parsed, posted, replied, sent, serving
from waiting import PATIENCE_S, eventually

ASK = {"target": "echo", "user": "anna", "objective": "hello"}
HEAD = "POST /v1/delegations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer web\r\ncontent-type: application/json\r\n"


@asynccontextmanager
async def echoing(hub: Hub) -> AsyncGenerator[tuple[Server, list[str]]]:
    """Serve an agent that says what it is asked, and give what it was asked."""
    texts: list[str] = []

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        texts.append(brief.text)
        return brief.text

    assert echo
    async with serving(hub) as server, asyncio.timeout(PATIENCE_S):
        yield server, texts


def posting(body: bytes, more: str = "", head: str = HEAD) -> bytes:
    return f"{head}content-length: {len(body)}\r\n{more}\r\n".encode() + body


BODY = json.dumps(ASK).encode()


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", "Bearer ops"),
        ("content-type", "application/json"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-agent-depth", "0"),
        ("x-agent-origin", "user"),
        ("x-agent-request-id", "one"),
        ("x-agent-parent-session", "s"),
        ("remit-proof", "x"),
        ("remit-credential", "x"),
        ("last-event-id", "1"),
        ("content-encoding", "identity"),
    ],
)
async def test_a_header_that_could_be_read_in_two_ways_is_refused(hub: Hub, name: str, value: str) -> None:
    """What stands between may have believed the first, and this server the last."""
    async with echoing(hub) as (server, asked):
        reply = await sent(server, posting(BODY, f"{name}: {value}\r\n{name.upper()}: {value}\r\n"))
    assert (reply.status, reply.fault["code"]) == (400, "MALFORMED_ENVELOPE")
    assert [each["path"] for each in reply.fault["problems"]] == [name]
    assert asked == []


async def test_a_list_in_several_headers_is_one_list(hub: Hub) -> None:
    async with echoing(hub) as (server, _):
        reader, writer = await connected(server)
        writer.write(posting(BODY, "accept: text/html\r\naccept: text/event-stream\r\n"))
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert b"text/event-stream" in head


@pytest.mark.parametrize(
    "more",
    [
        "content-length: 3\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: identity\r\n",
        "content-length : 3\r\n",
        "x-a: b\r\n folded: c\r\n",
        "x-a: b\x00c\r\n",
        "x-a\r\n",
        "x a: b\r\n",
        ": b\r\n",
    ],
    ids=["two lengths", "chunked", "identity", "space", "folded", "nul", "no colon", "name", "no name"],
)
async def test_a_request_whose_end_could_be_seen_in_two_places_is_not_carried_out(hub: Hub, more: str) -> None:
    """Request smuggling: what one reader takes for a body another takes for the next request."""
    async with echoing(hub) as (server, asked):
        reader, writer = await connected(server)
        writer.write(posting(BODY, more) + posting(BODY))
        answer = await reader.read()
        writer.close()
    if more.startswith("x-a: b\r\n folded"):  # a header that goes on in the next line has one meaning, if an old one
        return
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") <= 1
    assert asked == []


async def test_what_is_wrong_with_a_second_request_is_no_answer_to_the_first(hub: Hub) -> None:
    """What stands between may have taken the first from one client, and the second from another."""
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert slow
    async with echoing(hub) as (server, asked):
        reader, writer = await connected(server)
        writer.write(posting(json.dumps(ASK | {"target": "slow"}).encode()))
        await eventually(lambda: hub.agent_status()["slow"].running)
        writer.write(b"no HTTP\r\n\r\n" + posting(BODY))
        async with client_of(server) as web:
            assert (await posted(web, ASK))[0] == 200, "meanwhile it has been read"
        go_on.set()
        reply = await replied(reader)
        assert await reader.read() == b"", "and nothing follows"
        writer.close()
    assert (reply.status, json.loads(reply.body)["result"], asked) == (200, "done", ["hello"])


async def test_what_follows_a_body_is_no_header(hub: Hub) -> None:
    """A proxy that takes `Authorization` out of the headers does not look there."""
    async with echoing(hub) as (server, asked):
        head = HEAD.replace("authorization: Bearer web\r\n", "")
        chunk = f"{len(BODY):x}\r\n".encode() + BODY + b"\r\n0\r\n"
        raw = f"{head}transfer-encoding: chunked\r\ntrailer: authorization\r\n\r\n".encode() + chunk
        reply = await sent(server, raw + b"authorization: Bearer web\r\n\r\n")
    assert (reply.status, asked) == (401, [])


async def test_a_client_that_offers_another_protocol_is_answered_in_this_one(hub: Hub) -> None:
    """Some clients offer HTTP/2 with their first request."""
    async with echoing(hub) as (server, _):
        offer = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"
        reply = await sent(server, posting(BODY, offer))
    assert (reply.status, json.loads(reply.body)["result"]) == (200, "hello")


async def test_a_client_that_knows_no_chunks_is_sent_none(hub: Hub) -> None:
    """HTTP/1.0: the end of a stream is that of its connection, and nobody is asked to go on."""
    async with echoing(hub) as (server, _):
        old = posting(BODY, "accept: text/event-stream\r\nexpect: 100-continue\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")
        reader, writer = await connected(server)
        writer.write(old)
        head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        assert head.startswith("HTTP/1.1 200 ")
        assert "transfer-encoding" not in head
        assert [each.kind for each in parsed(text)] == ["started", "result"]
        assert "".join(line for line in text.split("\n") if line.partition(":")[0] not in ("id", "event", "data")) == ""
        reply = await sent(server, old.replace(b"accept", b"x-accept"))
    assert (reply.status, json.loads(reply.body)["result"]) == (200, "hello")


async def test_headers_without_end_are_cut_off(hub: Hub) -> None:
    for beginning in (b"GET /healthz HTTP/1.1\r\nx-a: ", b"GET /", b"GET /healthz HTTP/1.1\r\n", b"G"):
        async with echoing(hub) if beginning == b"G" else reused(hub) as (server, _):
            assert await swallowed(server, beginning, b"a" * 65_536) < 4 * 1024 * 1024


async def test_what_follows_a_body_without_end_is_cut_off(hub: Hub) -> None:
    async with echoing(hub) as (server, _):
        beginning = b"POST /healthz HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-a: "
        assert await swallowed(server, beginning, b"a" * 65_536) < 4 * 1024 * 1024


@asynccontextmanager
async def reused(hub: Hub) -> AsyncGenerator[tuple[Server, list[str]]]:
    async with serving(hub) as server, asyncio.timeout(PATIENCE_S):
        yield server, []


async def swallowed(server: Server, beginning: bytes, part: bytes) -> int:
    """Send parts until the server hangs up, and return how much that was."""
    reader, writer = await connected(server)
    writer.write(beginning)
    given = 0
    try:
        while given < 8 * 1024 * 1024:
            writer.write(part)
            await writer.drain()
            given += len(part)
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    reader.feed_eof()
    writer.close()
    return given


async def test_large_headers_are_refused_by_name(hub: Hub) -> None:
    async with echoing(hub) as (server, asked):
        reply = await sent(server, posting(BODY, "".join(f"x-{n}: {'a' * 1_000}\r\n" for n in range(80))))
    assert (reply.status, reply.fault["code"], asked) == (431, "TOO_LARGE", [])


async def test_a_large_address_is_refused_by_name(hub: Hub) -> None:
    async with echoing(hub) as (server, _):
        reply = await sent(server, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (reply.status, reply.fault["code"]) == (431, "TOO_LARGE")


async def test_slow_headers_of_a_second_request_are_given_up_too(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.3)
    async with echoing(hub) as (server, _):
        reader, writer = await connected(server)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await replied(reader)).body == b"alive\n"
        writer.write(b"GET /hea")
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("ahead", [b"GET /hea", posting(BODY)[:-1]])
async def test_what_is_sent_ahead_too_slowly_does_not_cost_the_answer_before_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, ahead: bytes
) -> None:
    for name in ("HEADERS_S", "BODY_S"):
        monkeypatch.setattr(connections, name, 0.02)
    turns, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert slow
    async with serving(hub) as server, asyncio.timeout(PATIENCE_S):
        reader, writer = await connected(server)
        writer.write(posting(json.dumps(ASK | {"target": "slow"}).encode()) + ahead)
        while not (busy := list(server.server_state.connections)):
            await asyncio.sleep(0)
        connection = cast("connections.HttpConnection", busy[0])
        given_up = connection._give_up  # pyright: ignore[reportPrivateUsage]

        def counted() -> None:
            turns.set()
            given_up()

        monkeypatch.setattr(connection, "_give_up", counted)
        await turns.wait()
        go_on.set()
        assert (await replied(reader)).status == 200
        writer.close()


async def test_the_headers_of_a_second_request_in_one_packet_are_bounded_too(hub: Hub) -> None:
    large = posting(BODY, "".join(f"x-{n}: {'a' * 1_000}\r\n" for n in range(80)))
    async with echoing(hub) as (server, asked):
        reader, writer = await connected(server)
        while not server.server_state.connections:
            await asyncio.sleep(0)
        (connection,) = cast("set[connections.HttpConnection]", server.server_state.connections)
        connection.data_received(posting(BODY) + large)
        assert [(await replied(reader)).status for _ in range(2)] == [200, 431]
        writer.close()
    assert asked == ["hello"]


async def test_whoever_wants_nothing_makes_room_for_those_who_do(hub: Hub) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with hub, Server(Api(hub, gate_of(), exposed=None), connections=20) as server, asyncio.timeout(PATIENCE_S):
        idle = [await connected(server) for _ in range(60)]
        for reader, writer in idle[-10:]:  # some have been served before
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await replied(reader)).status == 200
        async with ClientSession(server.address) as session, session.get("/readyz") as reply:
            assert reply.status == 200
        assert len(server.server_state.connections) <= 21
        for _, writer in idle:
            writer.close()


async def test_more_than_there_is_room_for_are_told_to_come_back(hub: Hub) -> None:
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert slow
    door = Authenticator([KnownSender(name="web", token="web")], wall_ms=LoopClock().wall_ms)
    async with (
        hub,
        Server(Api(hub, door), connections=4) as server,
        asyncio.timeout(PATIENCE_S),
        client_of(server) as session,
        client_of(server) as other,
        asyncio.TaskGroup() as group,
    ):
        asks = [{"target": "slow", "user": "anna", "objective": str(number)} for number in range(4)]
        asking = [group.create_task(posted(session, ask)) for ask in asks]
        await eventually(lambda: hub.agent_status()["slow"].running == 4)
        async with other.get("/v1/agents") as reply:
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert (await reply.json())["fault"]["code"] == "OVERLOADED"
        go_on.set()
        assert [(await each)[0] for each in asking] == [200] * 4


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["a/b", "a b", "a%2Fb", "../agents", "ü?x=1#y", "a+b", "events", "x/events", "%"])
async def test_an_id_is_found_whatever_it_is_made_of(hub: Hub, name: str) -> None:
    async with echoing(hub) as (server, _), client_of(server) as web:
        _, answer = await posted(web, ASK | {"id": name})
        quoted = yarl.URL.build(path=name, encoded=False).raw_path.replace("/", "%2F").replace(".", "%2E")
        quoted = quoted.replace("+", "%2B")
        async with web.get(yarl.URL(f"{server.address}/v1/delegations/{quoted}", encoded=True)) as reply:
            assert (reply.status, (await reply.json())["run"]) == (200, answer["run"])
        async with web.get(yarl.URL(f"{server.address}/v1/delegations/{quoted}/events", encoded=True)) as reply:
            assert parsed(await reply.text())[-1].record["run"] == answer["run"]


@pytest.mark.parametrize(
    "path",
    [
        "/dialects/../v1/agents",
        "/dialects/%2e%2e/v1/agents",
        "/dialects/..%2fv1%2fagents",
        "/dialects/employee/../../v1/audit",
        "/dialects/employee/..%2f..%2f..%2fetc%2fpasswd",
        "/dialects/remit.cli",
        "/dialects/__init__",
        "/dialects/a2a",
        "/dialects/librarian/..%2fecho",
        "//v1/delegations",
        "/v1//delegations",
        "/v1/delegations/",
        "/V1/delegations",
        "/v1/delegations;x=1",
        "/v1/%64elegations",
        "/%",
        "/%zz",
        "/%00",
        "/v1/delegations/%0d%0ax-evil:%201",
        "/v1/delegations/%ff%fe",
        "/v1/runs/%00?user=%00",
        "/v1/agents/%0d%0aset-cookie:%20a=b",
    ],
)
async def test_odd_paths_lead_nowhere_and_no_answer_is_split_by_them(hub: Hub, path: str) -> None:
    async with echoing(hub) as (server, asked), client_of(server) as web:
        for method in ("GET", "POST"):
            url = yarl.URL(server.address + path, encoded=True)
            async with web.request(method, url, json=ASK, allow_redirects=False) as reply:
                assert reply.status in (400, 404, 405), (method, path, await reply.text())
                assert not {"x-evil", "set-cookie", "location"} & {name.lower() for name in reply.headers}
    assert asked == []


@pytest.mark.parametrize(
    "line", [b"GET /\xff\xfe HTTP/1.1", b"CONNECT x:80 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET http://[ HTTP/1.1"]
)
async def test_a_target_that_is_none_is_refused(hub: Hub, line: bytes) -> None:
    async with echoing(hub) as (server, _):
        reader, writer = await connected(server)
        writer.write(line + b"\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert int(head.split()[1]) in (400, 404, 405)
        writer.close()


async def test_the_host_that_a_client_names_comes_back_in_no_answer(hub: Hub) -> None:
    async with echoing(hub) as (server, _):
        for path in ("/v1/agents/", "/v1/delegations/x", "/nothing"):
            reply = await sent(server, f"GET {path} HTTP/1.1\r\nhost: evil.example\r\n\r\n".encode())
            assert "evil" not in reply.head + reply.body.decode()


# ── methods and what is accepted ──────────────────────────────────────────────────────────────────────────────────────


async def test_only_what_can_be_done_at_an_address_is_done(hub: Hub) -> None:
    async with echoing(hub) as (server, asked), client_of(server) as web:
        _, answer = await posted(web, ASK)
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "GET", "HEAD"):
            async with web.request(method, "/v1/delegations", json=ASK) as reply:
                assert (reply.status, reply.headers["allow"]) == (405, "POST"), method
        for path in ("/v1/agents", f"/v1/delegations/{answer['run']}", f"/v1/delegations/{answer['run']}/events"):
            async with web.head(path) as reply:
                assert (reply.status, await reply.read()) == (200, b""), path
            async with web.options(path) as reply:
                assert (reply.status, set(reply.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
    assert asked == ["hello"]


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("text/event-stream", True),
        ("TEXT/Event-Stream; q=0.5", True),
        ("application/json, text/event-stream", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=0.1, application/json", False),
        ("text/event-stream;q=nonsense", False),
        ("text/event-stream;q=nan", False),
        ("x/text/event-stream", False),
        ("text/event-streams", False),
        ("text/html", False),
        ("*/*", False),
        ("", False),
        (",;,;q=,", False),
        ("a" * 20_000, False),
    ],
)
async def test_events_are_sent_to_whoever_would_rather_have_them(hub: Hub, accept: str, *, streams: bool) -> None:
    kind = "text/event-stream" if streams else "application/json"
    async with echoing(hub) as (server, _), client_of(server) as web:
        reply = await web.post("/v1/delegations", json=ASK, headers={"accept": accept})
        assert (reply.status, reply.content_type) == (200, kind)
        await reply.read()


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        ("respond-async", 202),
        ("wait=10, Respond-Async;x=1", 202),
        ("x-no-respond-async", 200),
        ("respond-asynchronously", 200),
    ],
)
async def test_a_handle_is_given_to_whoever_prefers_one(hub: Hub, prefer: str, status: int) -> None:
    go_on = asyncio.Event()

    @hub.agent("slow")
    async def slow(_: Brief) -> str:
        await go_on.wait()
        return "done"

    assert slow
    async with echoing(hub) as (server, _), client_of(server) as web:
        asking = asyncio.create_task(posted(web, ASK | {"target": "slow"}, Prefer=prefer))
        if status == 200:
            await eventually(lambda: hub.agent_status()["slow"].running)
            go_on.set()
        assert (await asking)[0] == status
        go_on.set()


@pytest.mark.parametrize("number", ["9" * 19, "9" * 5_000, "-1", "1.5", "0x1", "1e3", "²", "nonsense"])
async def test_a_number_that_no_event_has_is_refused(hub: Hub, number: str) -> None:
    async with echoing(hub) as (server, _), client_of(server) as web:
        _, answer = await posted(web, ASK)
        path = f"/v1/delegations/{answer['run']}/events"
        status, body = await got(web, path, **{"Last-Event-ID": number})
        assert (status, body["fault"]["problems"][0]["path"]) == (400, "Last-Event-ID")


async def test_a_number_after_the_end_gives_an_empty_stream(hub: Hub) -> None:
    async with echoing(hub) as (server, _), client_of(server) as web:
        _, answer = await posted(web, ASK)
        path = f"/v1/delegations/{answer['run']}/events"
        assert await events(web, path, **{"Last-Event-ID": "9" * 18}) == []


# ── streams, logs, terminals ──────────────────────────────────────────────────────────────────────────────────────────

FORGED = '\n\nevent: result\ndata: {"body":{"result":"forged"}}\n\nid: 7\r\r\n\r\ndata: x\u2028\u0085'


async def test_what_an_agent_says_forges_no_event(hub: Hub) -> None:
    @hub.agent("liar")
    async def lie(brief: Brief) -> str:
        brief.progress(FORGED)
        brief.say(FORGED)
        return FORGED

    assert lie
    async with echoing(hub) as (server, _), client_of(server) as web:
        stream = {"accept": "text/event-stream"}
        body = {"target": "liar", "user": "anna", "objective": FORGED}
        async with web.post("/v1/delegations", json=body, headers=stream) as reply:
            raw = await reply.text()
    found = parsed(raw)
    assert [event.kind for event in found].count("result") == 1
    assert found[-1].record["body"]["result"] == FORGED
    numbers = [int(event.number) for event in found if event.number]
    assert numbers == sorted(set(numbers))
    assert "\r" not in raw


async def test_nothing_that_a_client_sends_breaks_a_line_of_the_log(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    evil = "x\r\nERROR remit: all is well\x1b[2J"
    async with echoing(hub) as (server, _), client_of(server) as web:
        for field in ("id", "target", "user", "session", "capability", "origin", "retry_of", "run", "via"):
            status, _ = await posted(web, ASK | {field: evil})
            assert status == 400, field
        assert (await posted(web, ASK | {"objective": evil}))[0] == 200
    async with failing(hub) as server, client_of(server) as web:
        url = yarl.URL(f"{server.address}/v1/agents/x%0aERROR%20remit%3a%20all%20is%20well%1b%5b2J", encoded=True)
        async with web.get(url) as reply:
            assert reply.status == 502
    lines = [record.getMessage() for record in caplog.records]
    assert any("/v1/agents/x" in line for line in lines)
    assert not [line for line in lines if "\n" in line or "\x1b" in line]


@asynccontextmanager
async def failing(hub: Hub) -> AsyncGenerator[Server]:
    async with hub, Server(Api(hub, Failing()), port=0, drain_s=2) as server, asyncio.timeout(PATIENCE_S):
        yield server


class Failing(Authenticator):
    """A gate that fails in a way that nobody has thought of, with all that it knows in its words."""

    def __init__(self) -> None:
        super().__init__((), wall_ms=LoopClock().wall_ms)

    async def sender(
        self, headers: Mapping[str, str], method: str = "", path: str = "", *, submits: bool = False
    ) -> Sender:
        raise RuntimeError(f"{dict(headers)} of joe@example.com")


async def test_a_server_that_fails_tells_nobody_what_it_knew(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    """Secrets and personal data stand in no answer, log or traceback."""
    caplog.set_level(logging.DEBUG)
    async with failing(hub) as server, client_of(server) as web:
        for path in ("/v1/agents", "/v1/delegations/x", "/metrics"):
            status, body = await got(web, path)
            assert (status, body["fault"]["message"]) == (502, "the server failed (RuntimeError)")
        status, body = await posted(web, ASK | {"objective": "joe@example.com"})
        assert (status, "joe" in json.dumps(body)) == (502, False)
        for name in ("employee", "librarian", "contract", "subagent"):
            async with web.post(f"/dialects/{name}", json=ASK) as reply:
                assert reply.status == 502
                assert "joe" not in await reply.text()
    logged = caplog.text + "".join(str(record.exc_info) for record in caplog.records)
    assert "failed: RuntimeError" in logged
    assert "Bearer" not in logged
    assert "joe@example.com" not in logged


async def test_what_came_over_http_does_not_steer_the_terminal_of_whoever_looks(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()
    evil = "pay\x1b[2J\x9b31m\u202e\r\nFinished; nothing is wrong."
    async with echoing(hub) as (server, _), client_of(server) as web:
        _, answer = await posted(web, ASK | {"objective": evil, "reason": evil, "hints": [evil], "correlation": evil})
    folder = Path(str(hub.store.path)).parent  # type: ignore[attr-defined]
    (folder / "remit.toml").write_text('name = "shop"\n[store]\npath = "hub.db"\n')
    for words in (
        ["runs", "list"],
        ["runs", "show", answer["run"]],
        ["runs", "tree", answer["run"]],
        ["audit", "tail"],
    ):
        done = await asyncio.to_thread(command, *words, folder=folder)
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(done.stdout + done.stderr), words
        if words[1] != "show":  # an answer may have several lines
            assert "\nFinished; nothing" not in done.stdout


# ── dialects ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("employee", {"request_id": "r", "origin_employee": "user", "target_employee": "echo", "user_id": "anna"}),
        ("librarian/echo", {"requestId": "r"}),
        ("contract", {"request_id": "r"}),
        ("subagent", {"agent_name": "echo", "task": "x"}),
        ("", {}),
    ],
)
async def test_a_key_that_stands_twice_is_refused_in_every_dialect(hub: Hub, path: str, body: dict[str, Any]) -> None:
    async with echoing(hub) as (server, asked), client_of(server) as web:
        once = json.dumps(body | {"same": 1})[1:-1]
        raw = f'{{{once}, "same": 2}}'.encode()
        address = f"/dialects/{path}" if path else "/v1/delegations"
        async with web.post(address, data=raw, headers={"content-type": "application/json"}) as reply:
            text = await reply.text()
    assert (reply.status, asked) == (400, [])
    assert "duplicate key in one object" in text
