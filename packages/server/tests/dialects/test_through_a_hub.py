"""Clients that know nothing but their document ask a hub, and are answered as their document promises."""

import asyncio
import json
from typing import Any

import pytest

from dialect_laws import Plain, asked, body_of
from remit import Answer, Brief, Hub
from remit.policy.reception import Sender
from remit.protocol.envelope import NOBODY, VERSION, Response
from remit.protocol.errors import RemitError
from remit.protocol.lifecycle import Status
from remit_server.dialects import find
from remit_server.dialects.exchange import ForeignMessage
from remit_testing.memory import MemoryStore

SERVICE = Sender(name="elsewhere", is_hub=True, users=frozenset({"user-456"}))

EMPLOYEE: Plain = {
    "request_id": "550e8400-e29b-41d4-a716-446655440000",
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "user-456",
    "parent_session_id": "uuid-of-prime-session",
    "objective": "Extract receipt data",
    "input": "User uploaded receipt.jpg - extract all fields",
    "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
    "context_hints": ["receipt", "ocr"],
    "handoff_data": {},
    "current_depth": 1,
}
CONTRACT: Plain = {
    "source_agent": "CST",
    "target_agent": "ANL",
    "capability_code": "ANL_NPV",
    "request_id": "sess-789-20250118-143022",
    "timeout_ms": 15000,
    "inputs_json": {"cash_flows": [-100000, 25000, 35000, 45000, 55000], "discount_rate": 0.12},
    "context": {"session_id": "sess-789", "user_id": "user-456", "engagement_type": "business_case"},
}
QUERY: Plain = {
    "query": "Which papers mention it?",
    "context": {
        "originalQuery": "What is known of it?",
        "delegationChain": ["a", "b"],
        "delegationDepth": 2,
        "remainingTimeout": 29_500,
        "startTime": 1_760_000_000_000,
        "parentSpanId": "span-7",
    },
    "version": "1.0",
    "requestId": "req-1",
    "timestamp": 1_760_000_000_500,
}


@pytest.fixture
def hub() -> Hub:
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


async def test_an_employee_is_answered(hub: Hub) -> None:
    """X1, X2, X9."""
    async with hub:
        reply = await exchange(hub, "employee", asked(EMPLOYEE, x_agent_depth="1", x_agent_origin="prime-boss"))
    told = body_of(reply)
    assert reply.status == 200
    assert told["request_id"] == EMPLOYEE["request_id"]
    assert told["result"] == "Read: User uploaded receipt.jpg - extract all fields"
    assert (told["status"], told["summary"], told["confidence"]) == ("success", "Receipt read.", 85)


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
    hub: Hub, change: Plain, error: str, http: int
) -> None:
    """X1, X3, X6, X7, X10."""
    async with hub:
        reply = await exchange(hub, "employee", asked(EMPLOYEE | change))
    assert (reply.status, body_of(reply)["status"]) == (http, "failed")
    assert error in body_of(reply)["error"]


async def test_a_platform_agent_is_answered(hub: Hub) -> None:
    """K1, K2, K5."""
    async with hub:
        reply = await exchange(hub, "contract", asked(CONTRACT))
    told = body_of(reply)
    assert reply.status == 200
    assert (told["request_id"], told["status"]) == (CONTRACT["request_id"], "SUCCESS")
    assert told["confidence_level"] == "HIGH"
    assert told["result_json"] == {"npv": 60000, "for": "business_case"}


async def test_a_capability_that_nobody_registered_is_an_error(hub: Hub) -> None:
    """K1, K2, K10."""
    async with hub:
        reply = await exchange(hub, "contract", asked(CONTRACT | {"capability_code": "ANL_MAGIC"}))
    told = body_of(reply)
    assert (reply.status, told["status"], told["error_code"]) == (404, "ERROR", "CAPABILITY_NOT_FOUND")
    assert told["error_message"]


async def test_a_librarian_is_answered_below_where_it_says_it_is(hub: Hub) -> None:
    """C2, C3: the callee is at the depth of the context, and whom it asks is one deeper."""
    async with hub:
        reply = await exchange(hub, "librarian", asked(QUERY, target="expert-librarian"))
    assert (reply.status, body_of(reply)["answer"]) == (200, "The archive says: three, at depth 3")


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
    hub: Hub, context: dict[str, Any], target: str, code: str
) -> None:
    """C6, C7: also if what the context claims is less than its chain shows."""
    body = QUERY | {"context": QUERY["context"] | context}
    async with hub:
        reply = await exchange(hub, "librarian", asked(body, target=target))
    error = body_of(reply)["error"]
    assert error["code"] == code
    assert error.keys() == {"code", "message", "recoverable", "suggestion"}


async def test_a_tool_call_is_answered(hub: Hub) -> None:
    """O1, O7."""
    call = {"tool": "sub_agent", "args": {"agent_name": "byte-doc", "task": "Read it", "input": {"page": 1}}}
    async with hub:
        reply = await exchange(hub, "subagent", asked(call))
    told = body_of(reply)
    assert (reply.status, told["success"], told["agent_name"]) == (200, True, "byte-doc")
    assert json.loads(told["output"].removeprefix("Read: ").replace("'", '"')) == {"page": 1}
    assert told["errors"] == []


async def test_a_sub_agent_may_ask_nobody_unless_it_is_told_so(hub: Hub) -> None:
    """O1, O5: allow_nested_calls is false by default."""
    args = {"agent_name": "expert-librarian", "task": "Which papers?"}
    async with hub:
        alone = body_of(await exchange(hub, "subagent", asked(args)))
        nested = body_of(await exchange(hub, "subagent", asked(args | {"allow_nested_calls": True})))
    assert (alone["success"], nested["success"]) == (False, True)
    assert "NESTED_CALLS_FORBIDDEN" in alone["errors"][0]
    assert nested["output"].startswith("The archive says: three")
