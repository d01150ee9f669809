"""Agents that speak A2A, asked by their card: also those that are not as they should be."""

import asyncio
import contextlib
import gzip
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_peers import asked_of, ended
from a2a_serving import speaking
from remit import Answer, Brief, Code, File, Hub, RemitError, Status
from remit_server import connect_a2a
from remit_server.a2a import agent as peers
from remit_server.transports.credentials.keys import HubKey
from remit_testing import MemoryStore

BINDINGS = ("JSONRPC", "HTTP+JSON")
both = pytest.mark.parametrize("binding", BINDINGS)


class Peer:
    """Something that has a card, and answers as a test says: it is given each request, and returns bytes to write."""

    def __init__(
        self,
        act: Callable[["Peer", str, Any], Awaitable[bytes | None]],
        *,
        binding: str = "JSONRPC",
        streaming: bool = False,
        card: dict[str, Any] | None = None,
    ) -> None:
        self._act = act
        self._binding = binding
        self.streaming = streaming
        self._card = card or {}
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        """The methods that were called, each with its headers and parameters."""
        self.cards = 0
        self._serving: set[asyncio.Task[Any]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                first, *lines = head.splitlines()
                headers = dict(line.split(": ", 1) for line in lines if line)
                headers = {name.lower(): value for name, value in headers.items()}
                if "agent-card" in first:
                    self.cards += 1
                    self.asked.append(("card", headers, None))
                    writer.write(reply(json.dumps(self.card()).encode()))
                else:
                    method, params = self._called(first, body)
                    self.asked.append((method, headers, params))
                    if (given := await self._act(self, method, params)) is None:
                        break
                    writer.write(given)
                await writer.drain()
        writer.close()

    def _called(self, first: str, body: bytes) -> tuple[str, Any]:
        if self._binding == "JSONRPC":
            call = json.loads(body)
            return call["method"], call["params"]
        verb, path, _ = first.split()
        names = {":stream": "SendStreamingMessage", ":send": "SendMessage", ":cancel": "CancelTask"}
        for end, name in (names | {":subscribe": "SubscribeToTask"}).items():
            if path.endswith(end):
                return name, json.loads(body or b"{}")
        return f"{verb} {path}", json.loads(body or b"{}")

    def card(self) -> dict[str, Any]:
        interface = {"url": f"{self.url}/rpc", "protocolBinding": self._binding, "protocolVersion": "1.0"}
        return {
            "name": "helper",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": self.streaming},
        } | self._card

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.stop = server.close
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        try:
            yield self.url
        finally:
            server.close()
            for task in self._serving:
                task.cancel()
            if self._serving:
                await asyncio.wait(self._serving)

    def result(self, value: Any) -> bytes:
        """Return a reply that holds a result."""
        return reply(json.dumps(self.framed(value)).encode())

    def framed(self, value: Any) -> Any:
        return {"jsonrpc": "2.0", "id": 1, "result": value} if self._binding == "JSONRPC" else value

    def stream(self, *values: Any, end: str = "\n\n") -> bytes:
        """Return a reply that is a stream."""
        body = "".join(f"data: {json.dumps(self.framed(each))}{end}" for each in values).encode()
        return reply(body, kind="text/event-stream")


def reply(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


def task(state: str, text: str = "", **more: Any) -> dict[str, Any]:
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    return {"id": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}"}, "artifacts": artifacts} | more


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_a_task_or_a_message_is_the_answer_and_what_it_cost_is_estimated(binding: str) -> None:
    for value in ({"task": task("COMPLETED", "ok")}, {"message": {"messageId": "m", "parts": [{"text": "ok"}]}}):

        async def act(peer: Peer, method: str, params: Any, value: Any = value) -> bytes:
            assert (method, params["configuration"]) == ("SendMessage", {"returnImmediately": True})
            return peer.result(value)

        response = await asked_of(Peer(act, binding=binding))
        assert (response.result, response.usage.estimated) == ("ok", True)
        assert response.usage.total > 0


@both
async def test_nothing_of_ours_is_told_to_who_does_not_know_the_extension(binding: str) -> None:
    """The remit stays on this side: no user, no chain, no session, and no header that says that it is used."""

    async def act(peer: Peer, _: str, __: Any) -> bytes:
        return peer.result({"task": task("COMPLETED", "ok")})

    peer = Peer(act, binding=binding)
    response = await asked_of(peer)
    _, headers, params = peer.asked[-1]
    assert params["message"] == {
        "messageId": response.id,
        "role": "ROLE_USER",
        "parts": [{"text": "Help"}],
    }
    assert headers["a2a-version"] == "1.0"
    assert headers["authorization"] == "Bearer t"
    assert headers["traceparent"].split("-")[1] == response.run
    assert "a2a-extensions" not in headers
    assert "anna" not in str(peer.asked)


@both
async def test_a_task_that_takes_its_time_is_looked_at_until_it_has_ended(binding: str) -> None:
    async def act(peer: Peer, method: str, _: Any) -> bytes:
        if method == "SendMessage":
            return peer.result({"task": task("SUBMITTED")})
        assert "t-1" in str(peer.asked[-1])
        looks = len([each for each in peer.asked if each[0] in ("GetTask", "GET /rpc/tasks/t-1")])
        return peer.result(task("WORKING") if looks < 3 else task("COMPLETED", "at last"))

    assert (await asked_of(Peer(act, binding=binding))).result == "at last"


@both
@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
async def test_a_stream_is_heard_as_it_comes(binding: str, end: str) -> None:
    events = (
        {"task": task("SUBMITTED")},
        {"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_WORKING",
                                                      "message": {"parts": [{"text": "thinking"}]}}}},
        {"artifactUpdate": {"taskId": "t-1", "artifact": {"artifactId": "a", "parts": [{"text": "One. "}]}}},
        {"artifactUpdate": {"taskId": "t-1", "artifact": {"artifactId": "a", "parts": [{"text": "Two."}]},
                            "append": True, "lastChunk": True}},
        {"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}}},
    )  # fmt: skip

    async def act(peer: Peer, method: str, _: Any) -> bytes:
        assert method == "SendStreamingMessage"
        return peer.stream(*events, end=end)

    response = await asked_of(Peer(act, binding=binding, streaming=True))
    assert response.result == "One. Two."


@both
async def test_a_stream_that_breaks_off_is_gone_on_with(binding: str) -> None:
    async def act(peer: Peer, method: str, _: Any) -> bytes:
        if method == "SendStreamingMessage":
            return peer.stream({"task": task("WORKING")})
        assert method == "SubscribeToTask"
        return peer.stream({"task": task("WORKING")}, {"task": task("COMPLETED", "after all")})

    assert (await asked_of(Peer(act, binding=binding, streaming=True))).result == "after all"


@both
async def test_a_question_to_the_user_comes_back_as_one_and_its_answer_goes_on_with_the_task(binding: str) -> None:
    async def act(peer: Peer, _: str, params: Any) -> bytes:
        message = params["message"]
        if "taskId" not in message:
            assert "contextId" not in message, "a foreign server gives contexts their names"
            question = {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "Which month?"}]}}
            return peer.result({"task": task("SUBMITTED") | {"status": question}})
        assert (message["taskId"], message["contextId"]) == ("t-1", "c-1")
        return peer.result({"task": task("COMPLETED", message["parts"][0]["text"])})

    peer = Peer(act, binding=binding)
    async with peer.listening() as url:
        hub = Hub(name="near", store=MemoryStore())
        connect_a2a(hub, "helper", url)

        async def boss(brief: Brief) -> list[Any]:
            first = await brief.delegate("helper", objective="Sort", session="s")
            second = await brief.delegate("helper", objective="May", session="s")
            return [first.result, first.requires_followup, second.result, second.requires_followup]

        hub.add("boss", boss, may_call=["helper"])
        async with hub:
            response = await hub.ask("boss", "Go", user="anna")
    assert response.unwrap() == ["Which month?", True, "May", False]


@both
@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("FAILED", (Status.FAILED, Code.DELEGATION_FAILED)),
        ("REJECTED", (Status.REFUSED, Code.PERMISSION_DENIED)),
        ("CANCELED", (Status.CANCELLED, Code.CANCELLED)),
    ],
)
async def test_every_other_end_is_told_with_what_the_peer_says(
    binding: str, state: str, end: tuple[Status, Code]
) -> None:
    status = {"state": f"TASK_STATE_{state}", "message": {"parts": [{"text": "because"}]}}

    async def act(peer: Peer, _: str, __: Any) -> bytes:
        return peer.result({"task": task(state, "half") | {"status": status}})

    response = await asked_of(Peer(act, binding=binding))
    assert ended(response) == end
    assert response.fault is not None
    assert response.fault.message == "because"
    assert response.result == "half", "what came of it before is kept"


@both
async def test_addresses_and_data_come_as_artifacts_and_files_as_files(binding: str) -> None:
    artifacts = [
        {"artifactId": "1", "parts": [{"data": {"n": 2.0}}]},
        {"artifactId": "2", "name": "map", "parts": [{"url": "https://example.com/map.png"}, {"text": "north"}]},
        {"artifactId": "3", "parts": [{"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"}]},
        {"artifactId": "4", "name": "scan.pdf", "parts": [{"url": "https://x/y", "mediaType": "application/pdf"}]},
        {"artifactId": "5", "parts": [{"raw": "_-8", "filename": "../a"}, {"raw": ""}]},
    ]

    async def act(peer: Peer, _: str, __: Any) -> bytes:
        return peer.result({"task": task("COMPLETED") | {"artifacts": artifacts}})

    response = await asked_of(Peer(act, binding=binding))
    assert (response.result, type(response.result["n"])) == ({"n": 2}, int)
    assert [(each.type, each.label) for each in response.artifacts] == [("url", "map"), ("json", "map")]
    assert response.files == (
        File(name="hi.txt", media_type="text/plain", data=b"hi"),
        File(name="scan.pdf", media_type="application/pdf", url="https://x/y"),
        File(name="a", data=b"\xff\xef"),
        File(name="file-4", data=b""),
    )


@both
async def test_a_file_of_a_peer_that_cannot_be_taken_is_left_out_with_a_warning(binding: str) -> None:
    parts = [{"text": "done"}, {"raw": "?", "filename": "a"}, {"url": "a b", "filename": "b"}, {"raw": "aGk="}]

    async def act(peer: Peer, _: str, __: Any) -> bytes:
        return peer.result({"task": task("COMPLETED") | {"artifacts": [{"artifactId": "1", "parts": parts}]}})

    response = await asked_of(Peer(act, binding=binding))
    assert (response.result, response.files) == ("done", (File(name="file-1", data=b"hi"),))
    assert response.warnings == (
        "The file a is left out: its content is not base64.",
        "The file b is left out: its URL is not valid.",
    )


@both
async def test_a_peer_of_another_maker_gets_files_as_parts(binding: str) -> None:
    async def act(peer: Peer, _: str, __: Any) -> bytes:
        return peer.result({"task": task("COMPLETED", "ok")})

    peer = Peer(act, binding=binding)
    picture = File(name="a.png", media_type="image/png", data=b"\x89PNG")
    link = File(name="b.pdf", media_type="application/pdf", url="https://example.com/b.pdf")
    await asked_of(peer, files=(picture, link))
    assert peer.asked[-1][2]["message"]["parts"] == [
        {"text": "Help"},
        {"raw": "iVBORw==", "filename": "a.png", "mediaType": "image/png"},
        {"url": "https://example.com/b.pdf", "filename": "b.pdf", "mediaType": "application/pdf"},
    ]


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def error(peer: str, rpc: int, status: int, reason: str) -> bytes:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}
    fields = {"@type": "type.googleapis.com/google.rpc.BadRequest",
              "fieldViolations": [{"field": "message.parts", "description": "too few"}]}  # fmt: skip
    if peer == "JSONRPC":
        body = {"jsonrpc": "2.0", "id": 1, "error": {"code": rpc, "message": "no", "data": [info, fields]}}
        return reply(json.dumps(body).encode())
    body = {"error": {"code": status, "status": "X", "message": "no", "details": [info, fields]}}
    return reply(json.dumps(body).encode(), f"{status} X", "application/a2a+json")


@both
async def test_what_a_peer_declines_is_refused_with_its_own_reason(binding: str) -> None:
    async def act(_: Peer, __: str, ___: Any) -> bytes:
        return error(binding, -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED")

    response = await asked_of(Peer(act, binding=binding))
    assert ended(response) == (Status.REFUSED, Code.INPUT_VALIDATION_FAILED)
    assert response.fault is not None
    assert (response.fault.message, response.fault.foreign) == ("helper declined: no", "CONTENT_TYPE_NOT_SUPPORTED")
    assert [each.path for each in response.fault.problems] == ["$.message.parts"]
    assert response.usage.total == 0


@both
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_a_busy_peer_is_asked_again_when_it_says(binding: str, kind: str) -> None:
    async def act(peer: Peer, _: str, __: Any) -> bytes:
        if len(peer.asked) - peer.cards < 3:
            return reply(b"{}", "503 Unavailable", kind)
        return peer.result({"task": task("COMPLETED", "now")})

    peer = Peer(act, binding=binding)
    assert (await asked_of(peer)).result == "now"
    assert len(peer.asked) - peer.cards == 3


@both
@pytest.mark.parametrize("status", [401, 403])
async def test_who_is_not_let_in_learns_why(binding: str, status: int) -> None:
    async def act(_: Peer, __: str, ___: Any) -> bytes:
        return reply(b"{}", f"{status} X")

    response = await asked_of(Peer(act, binding=binding))
    code = Code.UNAUTHENTICATED if status == 401 else Code.PERMISSION_DENIED
    assert ended(response) == (Status.REFUSED, code)


GARBAGE = {
    "html": reply(b"<html>", kind="text/html"),
    "half": reply(b"{"),
    "list": reply(b"[]"),
    "bytes": reply(b"\xff\xfe"),
    "deep": reply(b"[" * 100_000),
    "nothing": reply(b"{}"),
    "neither": reply(b'{"jsonrpc": "2.0", "id": 1, "result": {}}'),
    "typed": reply(b'{"jsonrpc": "2.0", "id": 1, "result": {"task": {"id": 7}}, "task": {"id": 7}}'),
    "twice": reply(b'{"jsonrpc": "2.0", "id": 1, "result": {"task": {"id": "a", "id": "b"}}}'),
    "redirect": reply(b"", "302 Found", more="location: http://127.0.0.1:1/\r\n"),
    "stream": reply(b"data: x\n\n", kind="text/event-stream"),
    "zipped": reply(gzip.compress(b" " * 10_000_000), more="content-encoding: gzip\r\n"),
    "status": b"HTTP/9.9 banana\r\n\r\n",
}


@both
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_is_a_fault_of_the_peer(binding: str, garbage: bytes) -> None:
    async def act(_: Peer, __: str, ___: Any) -> bytes:
        return garbage

    response = await asked_of(Peer(act, binding=binding))
    assert not response.ok
    assert response.fault is not None
    assert response.fault.code in (Code.RESULT_VALIDATION_FAILED, Code.OUTCOME_UNKNOWN, Code.DELEGATION_FAILED)


@pytest.mark.parametrize("state", ["TASK_STATE_UNSPECIFIED", "archived", ""])
async def test_a_state_that_nobody_knows_is_not_waited_for_for_ever(state: str) -> None:
    async def act(peer: Peer, method: str, _: Any) -> bytes:
        value = task("X") | {"status": {"state": state}}
        return peer.result({"task": value} if method == "SendMessage" else value)

    # Nor does it say that it was stopped.
    assert ended(await asked_of(Peer(act), deadline_ms=400)) == (Status.FAILED, Code.OUTCOME_UNKNOWN)


async def test_an_answer_about_another_task_is_none() -> None:
    async def act(peer: Peer, method: str, _: Any) -> bytes:
        if method == "SendMessage":
            return peer.result({"task": task("WORKING")})
        return peer.result(task("COMPLETED", "another's") | {"id": "t-2"})

    assert ended(await asked_of(Peer(act))) == (Status.FAILED, Code.RESULT_VALIDATION_FAILED)


@both
async def test_a_flood_is_cut_off(binding: str) -> None:
    async def endless(peer: Peer, _: str, __: Any) -> bytes:
        piece = {"artifactUpdate": {"taskId": "t-1", "append": True,
                                    "artifact": {"artifactId": "a", "parts": [{"text": "x" * 50_000}]}}}  # fmt: skip
        return peer.stream({"task": task("WORKING")}, *[piece] * 100)

    async def huge(peer: Peer, _: str, __: Any) -> bytes:
        return peer.result({"task": task("COMPLETED", "x" * 5_000_000)})

    flooding = Peer(endless, binding=binding, streaming=True)
    assert ended(await asked_of(flooding)) == (Status.FAILED, Code.TOO_LARGE)
    assert flooding.asked[-1][0] == "CancelTask", "what nobody can use need not go on"
    assert ended(await asked_of(Peer(huge, binding=binding))) == (Status.FAILED, Code.TOO_LARGE)


@both
async def test_a_peer_that_takes_too_long_is_told_to_stop_and_given_up(binding: str) -> None:
    """X6: the deadline is kept on this side, and a cancel crosses, whatever the other side does."""

    async def act(peer: Peer, method: str, _: Any) -> bytes:
        if method == "SendMessage":
            return peer.result({"task": task("WORKING")})
        if method == "CancelTask":
            return peer.result(task("CANCELED"))
        return peer.result(task("WORKING"))

    peer = Peer(act, binding=binding)
    assert ended(await asked_of(peer, deadline_ms=300)) == (Status.TIMEOUT, Code.TIMEOUT)
    assert peer.asked[-1][0] == "CancelTask"


async def test_a_peer_that_says_nothing_is_given_up_in_time() -> None:
    async def act(_: Peer, __: str, ___: Any) -> None:
        await asyncio.Event().wait()

    # Whether it did anything, or still does, nobody knows: it was not cancelled there.
    assert ended(await asked_of(Peer(act), deadline_ms=300)) == (Status.FAILED, Code.OUTCOME_UNKNOWN)


async def test_a_message_that_may_have_arrived_is_not_sent_twice_to_who_does_not_know_ids() -> None:
    """C2: retries only where it is safe: others may carry out the same message twice."""

    async def act(_: Peer, __: str, ___: Any) -> None:
        return None

    peer = Peer(act)
    response = await asked_of(peer, max_tokens=700)
    assert ended(response) == (Status.FAILED, Code.OUTCOME_UNKNOWN)
    assert (response.usage.total, response.usage.estimated) == (700, True)
    assert [method for method, _, _ in peer.asked] == ["card", "SendMessage"]


async def test_nobody_at_an_address_is_unreachable_and_nothing_is_spent() -> None:
    async def act(_: Peer, __: str, ___: Any) -> None: ...

    async with Peer(act).listening() as url:
        pass
    hub = Hub(name="near", store=MemoryStore())
    connect_a2a(hub, "helper", url)
    async with hub:
        response = await hub.ask("helper", "Help", user="anna", deadline_ms=500)
    assert ended(response) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
    assert response.fault is not None
    assert response.fault.detail.endswith("/.well-known/agent-card.json: Connection refused")
    assert response.usage.total == 0


# ── cards ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def completed(peer: Peer, _: str, __: Any) -> bytes:
    return peer.result({"task": task("COMPLETED", "ok")})


CARDS: dict[str, dict[str, Any]] = {
    "nothing": {"supportedInterfaces": []},
    "soap": {"supportedInterfaces": [{"url": "http://x", "protocolBinding": "SOAP", "protocolVersion": "1.0"}]},
    "grpc": {"supportedInterfaces": [{"url": "x:y", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]},
    "old": {"supportedInterfaces": [{"url": "http://x", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}]},
    "nowhere": {"supportedInterfaces": [{"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
    "typed": {"supportedInterfaces": "none"},
    "required": {"capabilities": {"extensions": [{"uri": "urn:x", "required": True}]}},
}


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())
async def test_a_card_that_is_of_no_use_is_refused_before_anything_is_sent(card: dict[str, Any]) -> None:
    peer = Peer(completed, card=card)
    assert ended(await asked_of(peer)) == (Status.FAILED, Code.DELEGATION_UNAVAILABLE)
    assert {method for method, _, _ in peer.asked} == {"card"}


async def test_a_card_that_leads_to_another_host_is_not_followed_unless_it_is_named() -> None:
    """SSRF through cards: what this hub knows goes only where its team has said."""
    for url in ("http://169.254.169.254/rpc", "http://localhost:1/rpc", "https://elsewhere.example.com/rpc"):
        interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        peer = Peer(completed, card={"supportedInterfaces": [interface]})
        assert ended(await asked_of(peer)) == (Status.FAILED, Code.PERMISSION_DENIED)


async def test_the_first_interface_that_is_spoken_is_used() -> None:
    """8.3.2: the order of the card counts."""
    peer = Peer(completed, binding="HTTP+JSON")
    async with peer.listening() as url:
        several = [
            ("GRPC", "1.0", "/grpc"),
            ("JSONRPC", "0.3", "/old"),
            ("HTTP+JSON", "1.0", "/rpc"),
            ("JSONRPC", "1.0", "/x"),
        ]
        peer._card["supportedInterfaces"] = [  # pyright: ignore[reportPrivateUsage]
            {"url": f"{url}{path}", "protocolBinding": binding, "protocolVersion": version}
            for binding, version, path in several
        ]
        hub = Hub(store=MemoryStore())
        connect_a2a(hub, "helper", f"{url}/.well-known/agent-card.json")
        async with hub:
            for _ in range(2):
                (await hub.ask("helper", "x", user="anna")).unwrap()
    assert [method for method, _, _ in peer.asked] == ["card", "SendMessage", "SendMessage"], "a card is kept"


async def test_a_card_that_is_too_large_is_not_read() -> None:
    peer = Peer(completed, card={"description": "x" * peers.CARD_BYTES})
    assert ended(await asked_of(peer)) == (Status.FAILED, Code.TOO_LARGE)


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "nonsense", "http://u:p@host/", "http://host\\@evil/", "http://a b/"]
)
def test_an_address_that_is_none_is_refused_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(RemitError) as refused:
        connect_a2a(Hub(store=MemoryStore()), "helper", url)
    assert refused.value.fault.code is Code.TEAM_INVALID
    assert "u:p" not in str(refused.value)


async def test_a_card_has_to_be_signed_where_a_key_is_named_for_it() -> None:
    key, other = HubKey.create(0), HubKey.create(0)
    far = Hub(name="far", store=MemoryStore())

    @far.agent("helper")
    async def helper(_: Brief) -> Answer:
        return Answer("ok")

    assert helper
    async with speaking(far, key=lambda: key) as server:
        for trusted, expected in ((key, (Status.SUCCESS, None)), (other, (Status.FAILED, Code.PERMISSION_DENIED))):
            near = Hub(name="near", store=MemoryStore())
            keys = [trusted.signing(0).public]
            connect_a2a(near, "helper", f"{server.address}/a2a/helper", token="anna-app", keys=keys)
            async with near:
                assert ended(await near.ask("helper", "x", user="anna")) == expected


@both
async def test_what_ended_before_it_could_be_stopped_is_told_all_the_same(binding: str) -> None:
    """K10: what was finished is kept, also of what was over when its time was."""

    async def act(peer: Peer, method: str, _: Any) -> bytes:
        if method == "CancelTask":
            return error(binding, -32002, 400, "TASK_NOT_CANCELABLE")
        if method == "SendMessage":
            return peer.result({"task": task("WORKING")})
        stopped = any(each[0] == "CancelTask" for each in peer.asked)
        return peer.result(task("FAILED", "half of it") if stopped else task("WORKING"))

    response = await asked_of(Peer(act, binding=binding), deadline_ms=300)
    assert (ended(response), response.result) == ((Status.TIMEOUT, Code.TIMEOUT), "half of it")


KNOWS = {"capabilities": {"extensions": [{"uri": "urn:remit:delegation:v1"}]}}


async def test_a_message_to_who_knows_ids_is_sent_again_until_its_answer_is_had() -> None:
    """C2: the same id, so that it is carried out at most once."""

    async def act(peer: Peer, _: str, __: Any) -> bytes | None:
        if len(peer.asked) - peer.cards < 3:
            return None
        return peer.result({"task": task("COMPLETED", "at last")})

    peer = Peer(act, card=KNOWS)
    response = await asked_of(peer)
    assert response.result == "at last"
    ids = {params["message"]["messageId"] for method, _, params in peer.asked if method == "SendMessage"}
    assert ids == {response.id}


async def test_what_was_sent_once_counts_as_spent_though_nobody_is_there_any_more() -> None:
    async def act(peer: Peer, _: str, __: Any) -> None:
        peer.stop()

    response = await asked_of(Peer(act, card=KNOWS), max_tokens=700)
    assert ended(response) == (Status.FAILED, Code.OUTCOME_UNKNOWN)
    assert (response.usage.total, response.usage.estimated) == (700, True)


async def test_a_stream_that_ends_without_a_word_is_not_begun_again() -> None:
    async def act(peer: Peer, _: str, __: Any) -> bytes:
        return peer.stream()

    peer = Peer(act, streaming=True)
    assert ended(await asked_of(peer, max_tokens=700)) == (Status.FAILED, Code.OUTCOME_UNKNOWN)
    assert [method for method, _, _ in peer.asked] == ["card", "SendStreamingMessage"]


async def test_a_tenant_is_named_in_every_call() -> None:
    async def act(peer: Peer, method: str, params: Any) -> bytes:
        assert params["tenant"] == "t/1"
        return peer.result({"task": task("WORKING")} if method == "SendMessage" else task("COMPLETED", "ok"))

    peer = Peer(act)
    async with peer.listening() as url:
        interface = {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t/1"}
        peer._card["supportedInterfaces"] = [interface]  # pyright: ignore[reportPrivateUsage]
        hub = Hub(store=MemoryStore())
        connect_a2a(hub, "helper", url)
        async with hub:
            assert (await hub.ask("helper", "x", user="anna")).unwrap() == "ok"


async def test_an_agent_that_could_stream_is_polled_if_that_is_wanted() -> None:
    async def act(peer: Peer, method: str, _: Any) -> bytes:
        return peer.result({"task": task("WORKING")} if method == "SendMessage" else task("COMPLETED", "ok"))

    peer = Peer(act, streaming=True)
    async with peer.listening() as url:
        hub = Hub(store=MemoryStore())
        connect_a2a(hub, "helper", url, streaming=False)
        async with hub:
            assert (await hub.ask("helper", "x", user="anna")).unwrap() == "ok"
    assert [method for method, _, _ in peer.asked] == ["card", "SendMessage", "GetTask"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"binding": "GRPCS"}, "helper: `GRPCS` is not a binding of A2A; did you mean `GRPC`?"),
        ({"notify": "hooks.example"}, "helper: `notify` is not a URL: `hooks.example`"),
    ],
)
def test_an_agent_is_not_added_with_an_option_that_is_wrong(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RemitError, match=re.escape(why)):
        connect_a2a(Hub(store=MemoryStore()), "helper", "https://helper.example", **options)


def test_an_agent_has_no_options_that_do_not_exist() -> None:
    unknown: Any = {"tokn": "x"}
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'tokn'"):
        connect_a2a(Hub(store=MemoryStore()), "helper", "https://helper.example", **unknown)
