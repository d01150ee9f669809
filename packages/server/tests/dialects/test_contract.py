"""The contract of the platform: the document's own examples, journeys, attacks."""

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

import dialect_laws as laws
from dialect_laws import CAPABILITY_REQUEST as REQUEST
from dialect_laws import Plain, a_message, body_of, refusal
from remit.protocol.envelope import Handoff, Request, Response, Usage, level_of
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Priority
from remit.protocol.submission import Submission
from remit_server.dialects.contract import DIALECT as CONTRACT
from remit_server.dialects.contract import Intent, classified, intents
from remit_server.dialects.exchange import ForeignMessage
from samples import a_remit, a_request, a_response

# "Context Handoff Format".
HANDOFF: Plain = {
    "session_id": "sess-789",
    "original_request": "Help me build a business case for market entry",
    "workflow_position": "Step 3 of 5 (Financial Analysis)",
    "prior_agents": ["ORC", "CST"],
    "prior_outputs": {
        "cst_framework": "market_entry_assessment",
        "cst_scenarios": ["conservative", "base", "aggressive"],
    },
    "constraints": {"budget_range": [1000000, 5000000], "timeline": "18_months", "risk_tolerance": "moderate"},
}

# "RESPONSE FORMAT EXAMPLES".
SUCCESS: Plain = {
    "request_id": "sess-789-20250118-143022",
    "status": "SUCCESS",
    "confidence_level": "HIGH",
    "result_json": {"npv": 24156.72, "currency": "USD", "discount_rate": 0.12, "periods": 5},
    "metadata": {"processing_time_ms": 245, "capability_version": "1.0"},
}
PARTIAL: Plain = {
    "request_id": "sess-789-20250118-143044",
    "status": "PARTIAL",
    "confidence_level": "MEDIUM",
    "result_json": {
        "market_size": 4200000000,
        "growth_rate": 0.15,
        "top_competitors": ["Competitor A", "Competitor B", "Competitor C"],
        "market_share": None,
    },
    "warnings": ["Market share data unavailable from primary source", "Growth rate based on 2023 data"],
}
ERROR: Plain = {
    "request_id": "sess-789-20250118-143105",
    "status": "ERROR",
    "error_code": "INPUT_VALIDATION_FAILED",
    "error_message": "Cash flows array must contain at least two values (initial investment and one return period)",
    "result_json": None,
}

# "Intent Classification Response Format".
INTENTS: Plain = {
    "primary_intent": "financial_projection",
    "intent_confidence": 0.85,
    "target_agent": "ANL",
    "target_capability": "ANL_PROJECTION",
    "secondary_intents": ["document_generation"],
    "secondary_targets": [{"agent": "DOC", "capability": "DOC_GENERATE"}],
}


def asks(**changes: Any) -> Plain:
    return REQUEST | changes


def in_context(**changes: Any) -> Plain:
    return REQUEST | {"context": REQUEST["context"] | changes}


def answer(body: Plain, status: int = 200) -> ForeignMessage:
    return ForeignMessage(body=json.dumps(body).encode(), status=status)


def npv(**changes: Any) -> Request:
    """Our request for what the document's responses answer."""
    return a_request(id=SUCCESS["request_id"], target="ANL", origin="CST", capability="ANL_NPV", **changes)


# ── the document's examples ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_request_of_the_document_is_understood() -> None:
    """K1: its example."""
    assert CONTRACT.submission(a_message(REQUEST)) == Submission(
        target="ANL",
        id="sess-789-20250118-143022",
        origin="CST",
        user="user-456",
        deadline_ms=15_000,
        input=REQUEST["inputs_json"],
        capability="ANL_NPV",
        session="sess-789",
        handoff=Handoff(data={"engagement_type": "business_case"}),
    )


def test_what_a_request_leaves_out_takes_the_defaults_of_the_document() -> None:
    """K1: NORMAL, 30 seconds, no context, no correlation."""
    required = {"source_agent", "target_agent", "capability_code", "request_id", "inputs_json"}
    submission = CONTRACT.submission(a_message({name: REQUEST[name] for name in required}))
    assert (submission.priority, submission.deadline_ms) == (None, 30_000)
    assert (submission.handoff, submission.user, submission.session, submission.correlation) == (None,) * 4


def test_priority_and_correlation_are_understood() -> None:
    """K1, K3: one id across all requests of a workflow."""
    submission = CONTRACT.submission(a_message(asks(priority="HIGH", correlation_id="workflow-7")))
    assert (submission.priority, submission.correlation) == (Priority.HIGH, "workflow-7")


def test_the_handoff_context_of_the_document_is_understood() -> None:
    """K5: its example, and what it requires besides."""
    context = HANDOFF | {
        "user_id": "user-456",
        "history_reference": "sess-789",
        "decisions": ["enter by partnership"],
        "findings": ["the market grows"],
        "assumptions": ["no new tariffs"],
        "growth_rate": 0.15,
    }
    submission = CONTRACT.submission(a_message(asks(context=context)))
    assert (submission.session, submission.user) == ("sess-789", "user-456")
    assert submission.handoff == Handoff(
        original_request="Help me build a business case for market entry",
        history="sess-789",
        position="Step 3 of 5 (Financial Analysis)",
        prior_agents=("ORC", "CST"),
        prior_outputs=HANDOFF["prior_outputs"],
        decisions=("enter by partnership",),
        constraints=HANDOFF["constraints"],
        findings=("the market grows",),
        data={"growth_rate": 0.15},
        assumptions=("no new tariffs",),
    )


def test_a_request_of_ours_is_one_of_theirs() -> None:
    """K1, K5: the document's example, from our side."""
    handoff = Handoff(data={"engagement_type": "business_case"})
    request = npv(
        objective="",
        input=REQUEST["inputs_json"],
        session="sess-789",
        handoff=handoff,
        remit=a_remit(user="user-456", time_ms=15_000),
    )
    sent = body_of(CONTRACT.request(request))
    claims = sent["context"].pop("remit")
    assert sent == {name: value for name, value in REQUEST.items() if name != "priority"}
    assert claims == {
        "version": "1.0",
        "chain": ["prime@hub"],
        "context_tokens": 4000,
        "depth": 1,
        "max_depth": 5,
        "max_tokens": 1000,
        "run": "run-1",
    }


def test_what_was_said_in_words_is_told_as_the_original_request() -> None:
    sent = body_of(CONTRACT.request(npv(objective="Is it worth it?")))
    assert sent["context"]["original_request"] == "Is it worth it?"


def test_a_request_without_a_capability_cannot_be_said() -> None:
    """K1: the contract asks for capabilities."""
    assert refusal(lambda: CONTRACT.request(a_request())) == {
        "": "MALFORMED_ENVELOPE",
        "$.capability": "the contract dialect requires a capability",
    }


def test_the_success_of_the_document_is_understood_and_told() -> None:
    """K2: its example, both ways."""
    response = CONTRACT.response(answer(SUCCESS), npv())
    assert response == Response(
        version="1.0",
        id=SUCCESS["request_id"],
        target="ANL",
        status=Status.SUCCESS,
        result=SUCCESS["result_json"],
        confidence=0.9,
        usage=Usage(estimated=True),
        duration_ms=245,
        capability_version="1.0",
    )
    reply = CONTRACT.reply(response, a_message(REQUEST))
    assert reply.status == 200
    assert body_of(reply) == SUCCESS | {
        "metadata": SUCCESS["metadata"] | {"source_version": "1.0", "cache_status": "bypass"}
    }


def test_the_partial_response_of_the_document_is_understood_and_told() -> None:
    """K2: its example, both ways."""
    response = CONTRACT.response(answer(PARTIAL), replace(npv(), id=PARTIAL["request_id"]))
    assert (response.status, response.confidence, response.warnings) == (
        Status.PARTIAL,
        0.65,
        tuple(PARTIAL["warnings"]),
    )
    body = body_of(CONTRACT.reply(response, a_message(REQUEST)))
    del body["metadata"]
    assert body == PARTIAL


def test_the_error_of_the_document_is_understood_and_told() -> None:
    """K2, K10: its example, both ways."""
    response = CONTRACT.response(answer(ERROR, status=400), replace(npv(), id=ERROR["request_id"]))
    assert response.status is Status.REFUSED
    assert response.fault == fault(Code.INPUT_VALIDATION_FAILED, ERROR["error_message"])
    reply = CONTRACT.reply(response, a_message(REQUEST))
    assert reply.status == 400
    body = body_of(reply)
    del body["metadata"]
    assert body == ERROR


def test_a_code_of_the_platform_is_kept_and_passed_on() -> None:
    """K2: CATEGORY_SPECIFIC_ERROR."""
    code = "DATA_STALE_EXCHANGE_RATE"
    response = CONTRACT.response(answer(ERROR | {"error_code": code}), replace(npv(), id=ERROR["request_id"]))
    assert response.fault == fault(Code.DELEGATION_FAILED, ERROR["error_message"], foreign=code)
    assert body_of(CONTRACT.reply(response, a_message(REQUEST)))["error_code"] == code
    odd = replace(response, fault=fault(Code.TIMEOUT, "x", foreign="not a code"))
    assert body_of(CONTRACT.reply(odd, a_message(REQUEST)))["error_code"] == "TIMEOUT"


def test_a_time_out_tells_what_was_finished_and_what_was_not() -> None:
    """K10: partial results if there are any, and a note of what was not completed."""
    response = a_response(
        status=Status.TIMEOUT,
        result={"market_size": 4_200_000_000},
        warnings=("2023 data",),
        unfinished=("market share",),
        fault=fault(Code.TIMEOUT, "Delegation timeout after 15000ms"),
    )
    reply = CONTRACT.reply(response, a_message(REQUEST))
    assert reply.status == 504
    body = body_of(reply)
    assert body["status"] == "TIMEOUT"
    assert body["result_json"] == {"market_size": 4_200_000_000}
    assert body["warnings"] == ["2023 data", "Not completed: market share"]
    assert (body["error_code"], body["error_message"]) == ("TIMEOUT", "Delegation timeout after 15000ms")


@pytest.mark.parametrize("status", [Status.FAILED, Status.REFUSED, Status.CANCELLED])
def test_what_is_no_time_out_and_brought_nothing_is_an_error(status: Status) -> None:
    """K2: with a null result, a code and a message."""
    response = a_response(status=status, result={"half": 1}, fault=fault(Code.CANCELLED, ""))
    body = body_of(CONTRACT.reply(response, a_message(REQUEST)))
    assert (body["status"], body["result_json"], body["error_code"]) == ("ERROR", None, "CANCELLED")
    assert body["error_message"] == "The delegation, or one that it was part of, was cancelled."


def test_a_time_out_without_words_is_understood() -> None:
    body = {"request_id": SUCCESS["request_id"], "status": "TIMEOUT", "result_json": None}
    response = CONTRACT.response(answer(body), npv())
    assert response.status is Status.TIMEOUT
    assert response.fault == fault(Code.TIMEOUT, "ANL exceeded its time limit")


def test_an_error_that_a_time_out_further_down_caused_is_an_error() -> None:
    response = CONTRACT.response(answer(ERROR | {"error_code": "TIMEOUT"}), replace(npv(), id=ERROR["request_id"]))
    assert (response.status, response.fault and response.fault.code) == (Status.FAILED, Code.TIMEOUT)


@pytest.mark.parametrize("confidence", [1.0, 0.8, 0.79, 0.5, 0.49, 0.2, 0.19, 0.0])
def test_a_confidence_is_told_in_the_words_of_the_contract(confidence: float) -> None:
    """K2: HIGH, MEDIUM, LOW, SPECULATIVE; and the word comes back as the same word."""
    reply = CONTRACT.reply(a_response(confidence=confidence), a_message(REQUEST))
    assert body_of(reply)["confidence_level"] == level_of(confidence)
    response = CONTRACT.response(reply, a_request(capability="TAG"))
    assert response.confidence is not None
    assert level_of(response.confidence) == level_of(confidence)


def test_a_result_whose_agent_does_not_say_how_sure_it_is_is_speculative() -> None:
    """K2: a level is required, and none is claimed that nobody vouched for."""
    assert body_of(CONTRACT.reply(a_response(), a_message(REQUEST)))["confidence_level"] == "SPECULATIVE"


def test_metadata_is_told_and_understood() -> None:
    """K2: processing time, source version, capability version, cache status, and whatever else there is."""
    response = a_response(
        duration_ms=245,
        agent_version="2.1",
        capability_version="1.1",
        cache="hit",
        metadata={"region": "eu", "cache_status": "shadowed"},
        result={"npv": 1},
        confidence=0.9,
        usage=Usage(estimated=True),
    )
    reply = CONTRACT.reply(response, a_message(REQUEST))
    assert body_of(reply)["metadata"] == {
        "processing_time_ms": 245,
        "source_version": "2.1",
        "capability_version": "1.1",
        "cache_status": "hit",
        "region": "eu",
    }
    received = CONTRACT.response(reply, a_request(capability="TAG"))
    assert received == replace(response, metadata={"region": "eu"})


def test_versions_may_be_numbers_and_a_cache_may_say_more() -> None:
    """K2: the document's example writes 1.0 without quotes."""
    metadata = {"capability_version": 1.0, "source_version": 3, "cache_status": "STALE"}
    response = CONTRACT.response(answer(SUCCESS | {"metadata": metadata}), npv())
    assert (response.capability_version, response.agent_version, response.cache) == ("1.0", "3", "none")
    assert response.metadata == {"cache_status": "STALE"}
    response = CONTRACT.response(answer(SUCCESS | {"metadata": {"cache_status": "MISS"}}), npv())
    assert (response.cache, response.metadata) == ("miss", {})


def test_what_is_no_object_is_told_in_one() -> None:
    assert body_of(CONTRACT.reply(a_response(result="42"), a_message(REQUEST)))["result_json"] == {"result": "42"}
    assert body_of(CONTRACT.request(npv(input=[1, 2])))["inputs_json"] == {"input": [1, 2]}
    assert body_of(CONTRACT.request(npv()))["inputs_json"] == {}


# ── intents ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PROJECTION = Intent(name="financial_projection", agent="ANL", capability="ANL_PROJECTION", confidence=0.85)
DOCUMENT = Intent(name="document_generation", agent="DOC", capability="DOC_GENERATE")


def test_the_intent_classification_of_the_document_is_understood_and_written() -> None:
    """K7: its example, both ways."""
    assert intents(json.dumps(INTENTS).encode()) == (PROJECTION, DOCUMENT)
    assert json.loads(classified(PROJECTION, DOCUMENT)) == INTENTS


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"intent_confidence": 1.01}, "$.intent_confidence"),
        ({"intent_confidence": "high"}, "$.intent_confidence"),
        ({"target_agent": "A\nB"}, "$.target_agent"),
        ({"secondary_targets": []}, "$.secondary_targets"),
        ({"secondary_targets": [{"agent": "DOC"}]}, "$.secondary_targets[0].capability"),
        ({"teritary_intents": []}, "$.teritary_intents"),
    ],
)
def test_an_intent_classification_that_is_none_is_refused_by_field(change: Plain, path: str) -> None:
    """K7."""
    assert path in refusal(lambda: intents(json.dumps(INTENTS | change).encode()))


def test_an_intent_that_cannot_be_written_is_refused() -> None:
    problems = refusal(lambda: classified(Intent(name="", agent="ANL", capability="X", confidence=2.0)))
    assert problems.keys() == {"", "$.primary_intent", "$.intent_confidence"}


# ── refused by field ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["source_agent", "target_agent", "capability_code", "request_id", "inputs_json"])
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    """K1: every field that the document requires."""
    body = {each: value for each, value in REQUEST.items() if each != name}
    assert refusal(lambda: CONTRACT.submission(a_message(body))) == {
        "": "MALFORMED_ENVELOPE",
        f"$.{name}": "required field is missing",
    }


def test_unknown_fields_and_wrong_types_are_refused_by_name_all_at_once() -> None:
    """K1: wherever they stand; a context may hold anything else, but what it names is checked."""
    body = asks(
        source_agent="CST\x1b[2J",
        prioriti="HIGH",
        priority="URGENT",
        timeout_ms=-1,
        inputs_json=[1],
        context={"user_id": 4, "prior_agents": "ORC", "engagement_type": "x"},
    )
    assert refusal(lambda: CONTRACT.submission(a_message(body))) == {
        "": "MALFORMED_ENVELOPE",
        "$.prioriti": "unknown field; did you mean `priority`?",
        "$.source_agent": "control characters are not allowed in a name",
        "$.priority": "'URGENT' is not one of HIGH, NORMAL, LOW",
        "$.timeout_ms": "Expected `int` >= 0",
        "$.inputs_json": "Expected `object`, got `array`",
        "$.context.user_id": "Expected `str | null`, got `int`",
        "$.context.prior_agents": "Expected `array`, got `str`",
    }


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"request_id": "another"}, "$.request_id"),
        ({"status": "DONE"}, "$.status"),
        ({"status": "ERROR"}, "$.error_message"),
        ({"status": "ERROR", "error_message": ""}, "$.error_message"),
    ],
)
def test_an_answer_that_is_none_is_the_fault_of_who_gave_it(change: Plain, path: str) -> None:
    """K2: a message with ERROR, the request's own id."""
    problems = refusal(lambda: CONTRACT.response(answer(SUCCESS | change), npv()))
    assert problems[""] == "RESULT_VALIDATION_FAILED"
    assert path in problems


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"confidence_level": "SURE"}, "$.confidence_level"),
        ({"error_code": "A\tB"}, "$.error_code"),
        ({"surprise": 1}, "$.surprise"),
        ({"metadata": {"processing_time_ms": -5}}, "$.metadata.processing_time_ms"),
        ({"metadata": {"remit": {"version": "1.0", "status": "failed"}}}, "$.metadata.remit"),
        ({"metadata": {"remit": {"version": "1.0", "target": "x"}}}, "$.metadata.remit"),
    ],
)
def test_what_cannot_be_read_of_an_answer_is_a_warning(change: Plain, path: str) -> None:
    response = CONTRACT.response(answer(SUCCESS | change), npv())
    assert (response.status, response.result) == (Status.SUCCESS, SUCCESS["result_json"])
    (warning,) = response.warnings
    assert warning.startswith(f"{path} was left out: ")


def test_a_result_that_is_no_object_and_has_no_level_is_read() -> None:
    body = {name: value for name, value in SUCCESS.items() if name != "confidence_level"} | {"result_json": "24156.72"}
    response = CONTRACT.response(answer(body), npv())
    assert (response.result, response.confidence, response.warnings) == ({"result": "24156.72"}, None, ())


def test_a_result_must_be_said_even_if_it_is_none() -> None:
    """K2: result_json is required."""
    body = {name: value for name, value in SUCCESS.items() if name != "result_json"}
    assert "$.result_json" in refusal(lambda: CONTRACT.response(answer(body), npv()))


# ── what the document has no words for ────────────────────────────────────────────────────────────────────────────────


def test_a_claim_that_says_something_else_is_refused() -> None:
    for claims, field in (
        ({"user": "admin"}, "context.user_id"),
        ({"deadline_ms": 10**9}, "timeout_ms"),
        ({"priority": "HIGH"}, "priority"),
        ({"capability": "ANL_ALL"}, "capability_code"),
        ({"handoff": {"data": {"engagement_type": "audit"}}}, "data"),
    ):
        body = in_context(remit={"version": "1.0"} | claims)
        problems = refusal(lambda body=body: CONTRACT.submission(a_message(body)))
        assert field in problems["$.context.remit"]


def test_who_does_not_know_of_claims_is_told_none() -> None:
    response = a_response(finished=("part one",))
    assert "remit" not in body_of(CONTRACT.reply(response, a_message(REQUEST)))["metadata"]
    knows = a_message(in_context(remit={"version": "1.0"}))
    assert body_of(CONTRACT.reply(response, knows))["metadata"]["remit"]["finished"] == ["part one"]


# ── journeys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(laws.ended_responses)
def test_a_response_in_the_documents_words_alone_keeps_what_they_can_say(response: Response) -> None:
    """K2: for a client that knows nothing but the document."""
    response = replace(response, id="r-1", target="tag")
    received = CONTRACT.response(CONTRACT.reply(response, a_message(REQUEST)), a_request(capability="TAG"))
    for name in ("ok", "duration_ms", "agent_version", "capability_version", "cache"):
        assert getattr(received, name) == getattr(response, name)
    assert (received.status is Status.TIMEOUT) is (response.status is Status.TIMEOUT)
    assert received.warnings[: len(response.warnings)] == response.warnings
    if response.confidence is not None:
        assert received.confidence is not None
        assert level_of(received.confidence) == level_of(response.confidence)
    if response.ok:
        is_object = isinstance(response.result, dict | None)
        assert received.result == (response.result if is_object else {"result": response.result})
