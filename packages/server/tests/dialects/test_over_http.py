"""Dialects over HTTP and through a hub: answers, refusals in the words of each document, ids, streams."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from dialect_laws import CAPABILITY_REQUEST, HEADERS, QUERY, SIMPLE, Plain, a_message, body_of
from remit import Answer, Brief, Capability, Hub
from remit.policy.reception import Sender
from remit.protocol.envelope import NOBODY, VERSION, Response
from remit.protocol.errors import RemitError
from remit.protocol.lifecycle import Status
from remit_cli.main import main
from remit_server.dialects import find
from remit_server.dialects.exchange import ForeignMessage
from remit_testing.memory import MemoryStore
from serving import client_of, got, posted, serving

SERVICE = Sender(name="elsewhere", is_hub=True, users=frozenset({"user-456"}))

EMPLOYEE = SIMPLE | {"current_depth": 1}


@pytest.fixture
def team() -> Hub:
    hub = Hub(store=MemoryStore())

    @hub.agent("byte-doc")
    async def byte(brief: Brief) -> Answer:
        if brief.request.objective == "Sleep":
            await asyncio.Event().wait()
        return Answer(f"Read: {brief.input}", summary="Receipt read.", confidence=0.85)

    @hub.agent("ANL", capabilities=["ANL_NPV"])
    async def analyst(brief: Brief) -> Answer:
        flows = brief.input["cash_flows"]
        handoff = brief.request.handoff
        assert handoff is not None
        return Answer({"npv": sum(flows), "for": handoff.data["engagement_type"]}, confidence=0.9)

    @hub.agent("expert-librarian", may_call=["archive"])
    async def expert(brief: Brief) -> str:
        reply = await brief.delegate("archive", objective=brief.objective)
        return f"The archive says: {reply.unwrap()}"

    @hub.agent("archive")
    async def archive(brief: Brief) -> str:
        return f"three, at depth {brief.request.remit.depth}"

    return hub


async def exchange(hub: Hub, dialect: str, foreign: ForeignMessage) -> ForeignMessage:
    """Receive a message, carry it out, and reply, as a server does that speaks the dialect."""
    speaks = find(dialect)
    try:
        request = hub.receive(speaks.submission(foreign), SERVICE)
    except RemitError as error:
        refused = Response(version=VERSION, id=NOBODY, target=NOBODY, status=Status.REFUSED, fault=error.fault)
        return speaks.reply(refused, foreign)
    going = await hub.begin(request)
    return speaks.reply(going if isinstance(going, Response) else await going.task, foreign)


async def test_an_employee_is_answered(team: Hub) -> None:
    """X1, X2, X9."""
    async with team:
        reply = await exchange(team, "employee", a_message(EMPLOYEE, x_agent_depth="1", x_agent_origin="prime-boss"))
    body = body_of(reply)
    assert reply.status == 200
    assert body["request_id"] == EMPLOYEE["request_id"]
    assert body["result"] == "Read: User uploaded receipt.jpg - extract all fields"
    assert (body["status"], body["summary"], body["confidence"]) == ("success", "Receipt read.", 85)


@pytest.mark.parametrize(
    ("change", "error", "http"),
    [
        (
            {"current_depth": 2},
            "Delegation depth limit reached (2/2). Cannot delegate further. Return results to parent.",
            422,
        ),
        ({"objective": "Sleep", "constraints": {"deadline_ms": 40}}, "Delegation timeout after 40ms", 504),
        (
            {"input": "word " * 2_000, "constraints": {"max_tokens": 50}},
            " exceeds budget (50). Simplify task or increase budget.",
            422,
        ),
        ({"user_id": "someone else"}, "User ID mismatch - security violation", 403),
        ({"target_employee": "nobody"}, "there is no agent `nobody` here", 404),
        ({"objektive": "?"}, "$.objektive: unknown field; did you mean `objective`?", 400),
    ],
)
async def test_an_employee_is_refused_in_the_words_of_its_document(
    team: Hub, change: Plain, error: str, http: int
) -> None:
    """X1, X3, X6, X7, X10."""
    async with team:
        reply = await exchange(team, "employee", a_message(EMPLOYEE | change))
    assert (reply.status, body_of(reply)["status"]) == (http, "failed")
    assert error in body_of(reply)["error"]


async def test_a_platform_agent_is_answered(team: Hub) -> None:
    """K1, K2, K5."""
    async with team:
        reply = await exchange(team, "contract", a_message(CAPABILITY_REQUEST))
    body = body_of(reply)
    assert reply.status == 200
    assert (body["request_id"], body["status"]) == (CAPABILITY_REQUEST["request_id"], "SUCCESS")
    assert body["confidence_level"] == "HIGH"
    assert body["result_json"] == {"npv": 60000, "for": "business_case"}


async def test_a_capability_that_nobody_registered_is_an_error(team: Hub) -> None:
    """K1, K2, K10."""
    async with team:
        reply = await exchange(team, "contract", a_message(CAPABILITY_REQUEST | {"capability_code": "ANL_MAGIC"}))
    body = body_of(reply)
    assert (reply.status, body["status"], body["error_code"]) == (404, "ERROR", "CAPABILITY_NOT_FOUND")
    assert body["error_message"]


async def test_a_librarian_is_answered_below_where_it_says_it_is(team: Hub) -> None:
    """C2, C3: the callee is at the depth of the context, and whom it asks is one deeper."""
    async with team:
        reply = await exchange(team, "librarian", a_message(QUERY, target="expert-librarian"))
    assert (reply.status, body_of(reply)["answer"]) == (200, "The archive says: three, at depth 4")


@pytest.mark.parametrize(
    ("context", "target", "code"),
    [
        ({"delegationDepth": 6}, "expert-librarian", "MAX_DEPTH_EXCEEDED"),
        ({"delegationChain": ["a", "expert-librarian"]}, "expert-librarian", "LOOP_DETECTED"),
        ({"remainingTimeout": 5}, "expert-librarian", "TIMEOUT"),
        ({"delegationChain": [f"l-{n}" for n in range(11)]}, "expert-librarian", "MAX_DEPTH_EXCEEDED"),
        ({}, "nobody", "AGENT_NOT_FOUND"),
    ],
)
async def test_a_librarian_is_refused_with_a_code_of_its_document(
    team: Hub, context: dict[str, Any], target: str, code: str
) -> None:
    """C6, C7: also if what the context claims is less than its chain shows."""
    body = QUERY | {"context": QUERY["context"] | context}
    async with team:
        reply = await exchange(team, "librarian", a_message(body, target=target))
    error = body_of(reply)["error"]
    assert error["code"] == code
    assert error.keys() == {"code", "message", "recoverable", "suggestion"}


async def test_a_tool_call_is_answered(team: Hub) -> None:
    """O1, O7."""
    call = {"tool": "sub_agent", "args": {"agent_name": "byte-doc", "task": "Read it", "input": {"page": 1}}}
    async with team:
        reply = await exchange(team, "subagent", a_message(call))
    body = body_of(reply)
    assert (reply.status, body["success"], body["agent_name"]) == (200, True, "byte-doc")
    assert json.loads(body["output"].removeprefix("Read: ").replace("'", '"')) == {"page": 1}
    assert body["errors"] == []


async def test_a_sub_agent_may_ask_nobody_unless_it_is_told_so(team: Hub) -> None:
    """O1, O5: allow_nested_calls is false by default."""
    args = {"agent_name": "expert-librarian", "task": "Which papers?"}
    async with team:
        alone = body_of(await exchange(team, "subagent", a_message(args)))
        nested = body_of(await exchange(team, "subagent", a_message(args | {"allow_nested_calls": True})))
    assert (alone["success"], nested["success"]) == (False, True)
    assert "NESTED_CALLS_FORBIDDEN" in alone["errors"][0]
    assert nested["output"].startswith("The archive says: three")


def tagging(hub: Hub) -> Hub:
    @hub.agent("byte-doc", capabilities=[Capability(code="TAG")])
    async def tag(brief: Brief) -> str:
        return f"tagged at depth {brief.remit.depth}"

    assert tag
    return hub


async def sent(session: ClientSession, path: str, body: Any, headers: Any = None) -> tuple[int, Any]:
    async with session.post(path, json=body, headers=headers) as reply:
        assert reply.content_type == "application/json"
        return reply.status, json.loads(await reply.text())


async def test_an_employee_asks_at_the_address_of_its_document(hub: Hub) -> None:
    """X9: HTTP between services, with the document's headers."""
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        path = "/dialects/employee/.netlify/functions/chat-internal"
        headers = {name.replace("_", "-"): value for name, value in HEADERS.items()}
        status, body = await sent(session, path, SIMPLE, headers)
        assert (status, body["status"], body["result"]) == (200, "success", "tagged at depth 1"), body
        status, body = await sent(session, path, SIMPLE | {"request_id": "other"}, headers)
        assert status == 400
        assert "X-Agent-Request-ID".lower() in json.dumps(body).lower()


async def test_a_dialect_that_does_not_say_for_whom_is_told_where_to_say_it(hub: Hub) -> None:
    """A peer that asks for many users has to; the place is one of its own envelope."""
    query: dict[str, Any] = {"query": "x", "version": "1.0", "requestId": "r-1", "timestamp": 1}
    context: dict[str, Any] = {
        "originalQuery": "x",
        "delegationChain": [],
        "delegationDepth": 0,
        "remainingTimeout": 5_000,
    }
    capability = {"source_agent": "A", "target_agent": "byte-doc", "capability_code": "TAG", "request_id": "r-1"}
    bodies: dict[str, tuple[dict[str, Any], str]] = {
        "librarian/byte-doc": (
            query | {"context": context | {"startTime": 1, "parentSpanId": ""}},
            "context.user",
        ),
        "contract": (capability | {"inputs_json": {}, "context": {}}, "context.user_id"),
        "subagent": ({"agent_name": "byte-doc", "task": "x"}, "remit.user"),
    }
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        for path, (body, place) in bodies.items():
            status, answer = await sent(session, f"/dialects/{path}", body)
            assert status == 400
            assert f"$.{place}: name the user of the request" in json.dumps(answer), answer
            assert "$.user" not in json.dumps(answer)
            assert "`problems`" not in json.dumps(answer), "there are none in these envelopes"


async def test_each_dialect_answers_garbage_in_its_own_words(hub: Hub) -> None:
    async with serving(tagging(hub)) as server, client_of(server, "north") as session:
        for name in ("employee", "librarian/byte-doc", "contract", "subagent"):
            status, body = await sent(session, f"/dialects/{name}", {"nonsense": 1})
            assert status == 400, (name, body)
            assert "fault" not in body


READ_RECEIPT: dict[str, Any] = EMPLOYEE | {"user_id": "anna", "constraints": {}}
STREAM = {"accept": "text/event-stream"}


@pytest.fixture
def receipt_office(tmp_path: Path) -> Hub:
    hub = Hub(store=str(tmp_path / "remit.db"))

    @hub.agent("byte-doc", may_call=["tag-ai"])
    async def byte(brief: Brief) -> str:
        if brief.objective == "Fail":
            raise ValueError("no")
        brief.progress("reading")
        for piece in ("All ", "of it"):
            brief.say(piece)
        await brief.delegate("tag-ai", objective="Tag it")
        return "All of it"

    @hub.agent("tag-ai")
    async def tag(brief: Brief) -> str:
        brief.progress("not for the employee")
        brief.say("nor this")
        return "tagged"

    assert byte
    assert tag
    return hub


async def ask_employee(session: ClientSession, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    async with session.post("/dialects/employee", json=body, headers=headers) as reply:
        return reply.status, await reply.json()


async def streamed(session: ClientSession, body: Any) -> list[tuple[str, Any]]:
    async with session.post("/dialects/employee", json=body, headers=STREAM) as reply:
        assert (reply.status, reply.content_type) == (200, "text/event-stream"), await reply.text()
        frames = (await reply.text()).strip().split("\n\n")
    parts = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in frames if not frame.startswith(":")]
    return [(part["event"], json.loads(part["data"])) for part in parts]


async def test_a_clients_token_is_no_service_credential(receipt_office: Hub) -> None:
    """X9: 401 for a token that nobody has, for none, and for a user's; the header says which request it was."""
    named = {"x-agent-request-id": READ_RECEIPT["request_id"]}
    async with serving(receipt_office) as server:
        for token in ("Bearer nobody", "Bearer web", ""):
            async with ClientSession(server.address, headers={"authorization": token}) as session:
                status, body = await ask_employee(session, READ_RECEIPT, named)
            assert (status, body["status"], body["request_id"]) == (401, "failed", READ_RECEIPT["request_id"]), token
            assert ("this token belongs to a client; only a peer may act for agents" in body["error"]) is (
                "web" in token
            )


async def test_a_refused_envelope_is_answered_under_its_id(receipt_office: Hub) -> None:
    """X2: also a large one."""
    async with serving(receipt_office) as server, client_of(server, "north") as north:
        for text in ("short", "long " * 5_000):
            status, body = await ask_employee(north, READ_RECEIPT | {"surprise": text})
            assert (status, body["request_id"]) == (400, READ_RECEIPT["request_id"])
            assert body["target_employee"] == "byte-doc"


async def test_an_employee_that_wants_a_stream_gets_the_words_as_they_come_and_then_the_response(
    receipt_office: Hub,
) -> None:
    """X15: of the employee that was asked, and of nobody below it."""
    async with serving(receipt_office) as server, client_of(server, "north") as north:
        events = await streamed(north, READ_RECEIPT)
        again = await streamed(north, READ_RECEIPT)
        _, plain = await ask_employee(north, READ_RECEIPT)
    assert ("progress", {"text": "reading"}) in events
    assert "".join(data["text"] for kind, data in events if kind == "delta") == "All of it"
    assert not any("nor this" in json.dumps(data) or "not for" in json.dumps(data) for _, data in events)
    kind, response = events[-1]
    assert (kind, response["status"], response["result"]) == ("response", "success", "All of it")
    assert response["request_id"] == READ_RECEIPT["request_id"]
    assert again[-1][1] == response == plain, "the same request is answered as it was"
    assert [kind for kind, _ in events].count("response") == 1


async def test_what_fails_ends_its_stream_with_why_and_what_is_refused_begins_none(receipt_office: Hub) -> None:
    """X15: a failed response is the last event; a refusal has its HTTP status."""
    async with serving(receipt_office) as server, client_of(server, "north") as north:
        (*_, (kind, response)) = await streamed(north, READ_RECEIPT | {"request_id": "1", "objective": "Fail"})
        status, refused = await ask_employee(north, READ_RECEIPT | {"request_id": "2", "current_depth": 2}, STREAM)
    assert (kind, response["status"]) == ("response", "failed")
    assert (status, refused["request_id"]) == (422, "2")


NPV = CAPABILITY_REQUEST | {"inputs_json": {"discount_rate": 0.12}, "context": {"user_id": "anna"}}


@pytest.fixture
def platform(tmp_path: Path) -> Hub:
    hub = Hub(store=str(tmp_path / "remit.db"))
    schema = {"type": "object", "required": ["discount_rate"]}

    @hub.agent(
        "ANL",
        version="2.7",
        capabilities=[Capability(code="ANL_NPV", version="1.3", input_schema=schema)],
        may_call=["DOC"],
    )
    async def analyst(brief: Brief) -> Any:
        reply = await brief.delegate("DOC", objective="Write it down")
        return {"mine": brief.request.correlation, "below": reply.result}

    @hub.agent("DOC")
    async def scribe(brief: Brief) -> Any:
        return brief.request.correlation

    assert analyst
    assert scribe
    return hub


async def ask_platform(session: ClientSession, body: Any) -> tuple[int, Any]:
    async with session.post("/dialects/contract", json=body) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize(
    "change",
    [
        {"inputs_json": {}},
        {"capability_code": "ANL_OTHER"},
        {"context": {"user_id": "anna", "remit": {"version": "1.0", "depth": 99}}},
    ],
)
async def test_a_refusal_carries_the_version_of_the_agent(platform: Hub, change: Any) -> None:
    """K2: `source_version`, as in an answer."""
    async with serving(platform) as server, client_of(server, "north") as north:
        _, body = await ask_platform(north, NPV | change)
    assert (body["status"], body["metadata"]["source_version"]) == ("ERROR", "2.7"), body


async def test_a_correlation_id_is_generated_where_there_is_none_and_all_below_has_it(platform: Hub) -> None:
    """K1."""
    async with serving(platform) as server, client_of(server, "north") as north:
        _, named = await ask_platform(north, NPV | {"correlation_id": "order-17"})
        _, unnamed = await ask_platform(north, NPV | {"request_id": "2"})
    assert named["result_json"] == {"mine": "order-17", "below": "order-17"}
    made = unnamed["result_json"]["mine"]
    assert made
    assert unnamed["result_json"]["below"] == made


async def test_runs_are_found_by_their_correlation_id(platform: Hub, tmp_path: Path) -> None:
    """K1: for debugging and audit, over HTTP and on the command line."""
    async with serving(platform) as server, client_of(server, "north") as north, client_of(server) as web:
        for number in ("1", "2"):
            await ask_platform(north, NPV | {"request_id": number, "correlation_id": "order-17"})
        _, other = await posted(web, {"target": "DOC", "user": "anna", "objective": "x"})
        _, page = await got(north, "/v1/runs?correlation=order-17")
        _, alone = await got(web, f"/v1/runs?correlation={other['result']}")
        _, hidden = await got(north, f"/v1/runs?correlation={other['run']}")
        status, _ = await got(north, "/v1/runs?corelation=x")
    assert [each["correlation"] for each in page["runs"]] == ["order-17", "order-17"]
    assert [each["run"] for each in alone["runs"]] == [other["run"]] == [other["result"]]
    assert (hidden["runs"], status) == ([], 400)
    listed = ["runs", "list", "--store", str(tmp_path / "remit.db"), "--json", "--correlation"]
    listing = CliRunner().invoke(main, [*listed, "order-17"])
    assert listing.stdout.count('"correlation":') == listing.stdout.count("order-17") == 2, listing.output
    assert CliRunner().invoke(main, [*listed, "nothing"]).stdout.count('"run":') == 0


TO_DESK: dict[str, Any] = READ_RECEIPT | {"target_employee": "desk"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        *(
            ({field: "n" * 195}, f"$.{field}: use at most 194 characters")
            for field in ("origin_employee", "parent_session_id", "child_session_id")
        ),
        ({"origin": "boss"}, "$.origin"),  # and it is no wrong token
    ],
)
async def test_a_wrong_field_is_named_as_in_the_document(change: Plain, error: str) -> None:
    """X11, X16."""
    status, body = await refused_text("employee", json.dumps(TO_DESK | change))
    assert status == 400
    assert error in body["error"]


EMPLOYEE_TEXT = (
    '{"request_id": ID, "origin_employee": "b", "target_employee": "desk", "user_id": "anna", "objective": "o",'
    ' "parent_session_id": "s", "input": "i", "constraints": {"max_tokens": VALUE}, "context_hints": [],'
    ' "handoff_data": {}, "current_depth": 1}'
)
CONTRACT_TEXT = (
    '{"source_agent": "b", "target_agent": "desk", "capability_code": "LOOK", "request_id": ID, "inputs_json": {},'
    ' "context": {"user_id": "anna"}, "timeout_ms": VALUE}'
)


def desk_office() -> Hub:
    hub = Hub(store=MemoryStore())

    @hub.agent("desk", capabilities=["LOOK"])
    async def desk(_: Brief) -> str:
        return "done"

    return hub


async def refused_text(dialect: str, body: str) -> tuple[int, Any]:
    async with serving(desk_office()) as server, client_of(server, "north") as north:
        headers = {"content-type": "application/json"}
        async with north.post(f"/dialects/{dialect}", data=body.encode(), headers=headers) as reply:
            return reply.status, json.loads(await reply.text())


@pytest.mark.parametrize(("dialect", "body"), [("employee", EMPLOYEE_TEXT), ("contract", CONTRACT_TEXT)])
@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "9" * 5_000, '1, "VALUE": 1, "VALUE": 2'])
async def test_the_id_is_echoed_also_out_of_json_that_is_not_strict(dialect: str, body: str, value: str) -> None:
    """X1, K1: JavaScript and Python write such JSON; whoever sent it has to know which request was refused."""
    status, answer = await refused_text(dialect, body.replace("VALUE", value).replace("ID", '"r-7"'))
    assert (status, answer["request_id"]) == (400, "r-7")


@pytest.mark.parametrize(("dialect", "body"), [("employee", EMPLOYEE_TEXT), ("contract", CONTRACT_TEXT)])
@pytest.mark.parametrize("id", [r'"\ud800"', r'"a\nb"', f'"{"i" * 201}"', "[]", "7", '""'])
async def test_what_is_no_id_is_not_echoed(dialect: str, body: str, id: str) -> None:
    status, answer = await refused_text(dialect, body.replace("VALUE", "1").replace("ID", id))
    assert (status, answer["request_id"]) == (400, "?")


async def test_the_name_of_a_peer_alone_is_a_session_like_any_other() -> None:
    """X16: what is returned can be sent back, and is never empty."""
    ask = {"user": "anna", "target": "desk", "objective": "Go", "origin": "boss"}
    async with serving(desk_office()) as server, client_of(server, "north") as north:
        first = (await posted(north, ask | {"session": "@north"}))[1]["session"]
        assert first == (await posted(north, ask | {"session": first, "objective": "On"}))[1]["session"] == "@north"


def echo(hub: Hub) -> None:
    @hub.agent("echo")
    async def say(brief: Brief) -> str:
        return brief.text

    assert say


@pytest.mark.parametrize(
    ("headers", "message", "suggestion"),
    [
        (
            {"content-type": "text/plain"},
            "content type text/plain is not supported",
            "Send plain JSON, with the header `Content-Type: application/json`.",
        ),
        (
            {"content-type": "application/json", "content-encoding": "br"},
            "compressed bodies are not supported",
            "Send the body without a Content-Encoding.",
        ),
    ],
)
async def test_a_body_that_cannot_be_read_is_told_once(
    hub: Hub, headers: dict[str, str], message: str, suggestion: str
) -> None:
    echo(hub)
    async with (
        serving(hub) as server,
        client_of(server) as session,
        session.post("/v1/delegations", data=b"{}", headers=headers) as reply,
    ):
        why = (await reply.json())["fault"]
    assert (reply.status, why["message"], why["suggestion"]) == (415, message, suggestion)


async def test_an_unknown_dialect_leads_to_those_there_are_and_not_to_runs(hub: Hub) -> None:
    echo(hub)
    async with (
        serving(hub) as server,
        client_of(server) as session,
        session.post("/dialects/klingon", json={}) as reply,
    ):
        why = (await reply.json())["fault"]
    assert (why["code"], why["message"]) == ("NOT_FOUND", "unknown dialect `klingon`")
    assert why["suggestion"] == "Use one of employee, librarian, contract, subagent."


ARGS = {"agent_name": "coder", "task": "Write hello world"}
NO_CONVERSATION = "The filter chose nothing, because the request names no conversation."


def coding(hub: Hub) -> Hub:
    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        return "Done."

    assert coder
    return hub


async def test_a_filter_without_a_conversation_is_told_in_the_result(hub: Hub) -> None:
    """O2: over HTTP nobody knows the caller's conversation unless its session is named."""
    async with serving(coding(hub)) as server, client_of(server) as session:

        async def errors(args: dict[str, Any], **claims: Any) -> list[str]:
            body = {"tool": "sub_agent", "args": ARGS | args, "remit": {"version": "1.0", "user": "u-1", **claims}}
            async with session.post("/dialects/subagent", json=body) as reply:
                answer = await reply.json()
                assert answer["success"], answer
                return answer["errors"]

        assert await errors({}) == []
        [warning] = await errors({"context": {"last_messages": 3}})
        assert warning.startswith(NO_CONVERSATION)
        assert await errors({"context": {"last_messages": 3, "include_summary": None}}, session="s-1") == []
        [warning] = await errors({"max_context_tokens": 6_000})
        assert warning.startswith("At most 4,000 tokens of context are passed on here, not 6,000")


async def test_the_warning_is_on_record_with_the_response(hub: Hub) -> None:
    async with serving(coding(hub)) as server, client_of(server) as session:
        ask = {"target": "coder", "user": "u-1", "objective": "Write", "context": {"roles": ["user"]}}
        status, body = await posted(session, ask)
        assert (status, body["status"]) == (200, "success")
        [warning] = body["warnings"]
        assert warning.startswith(NO_CONVERSATION)
        kept = await hub.outcome(body["run"])
        assert kept is not None
        assert kept.warnings == (warning,)
