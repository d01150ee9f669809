"""The protocol of the employees: the document's own examples, journeys, attacks."""

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

import dialect_laws as laws
from dialect_laws import HEADERS, SIMPLE, Plain, a_message, body_of, refusal
from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive
from remit.protocol.codec import malformed
from remit.protocol.envelope import Artifact, Handoff, Request, Response, Source, Usage
from remit.protocol.errors import Code, Fault, Problem, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from remit_server.dialects import find
from remit_server.dialects.employee import DIALECT as EMPLOYEE
from remit_server.dialects.exchange import ForeignMessage, as_uuid
from samples import a_remit, a_request, a_response
from strategies import names


def simple(**changes: Any) -> Plain:
    return SIMPLE | changes


def without(name: str) -> Plain:
    return {each: value for each, value in SIMPLE.items() if each != name}


# ── the document's examples ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_simple_delegation_of_the_document_is_understood() -> None:
    """X1, X9: mode 1, with the headers of the document's example."""
    assert EMPLOYEE.submission(a_message(SIMPLE, **HEADERS)) == Submission(
        target="byte-doc",
        id="550e8400-e29b-41d4-a716-446655440000",
        origin="prime-boss",
        user="user-456",
        max_tokens=1_200,
        deadline_ms=15_000,
        max_depth=1,
        depth=1,
        objective="Extract receipt data",
        input="User uploaded receipt.jpg - extract all fields",
        parent_session="uuid-of-prime-session",
        hints=("receipt", "ocr"),
    )


def test_every_field_of_a_request_is_understood() -> None:
    """X1: all that the interface names, in the document's own values where it has some."""
    envelope = simple(
        child_session_id="child-1",
        context_hints=["receipt", "tax", "canadian"],
        handoff_data={
            "facts": ["lives in Canada"],
            "references": [{"owner_scope": "user-456", "source_id": "receipt-1"}],
            "intermediate_results": {"byte-doc": {"total": 12.5}},
        },
        current_depth=1,
        created_at="2025-10-09T12:00:00.250Z",
        version="1.0",
    )
    submission = EMPLOYEE.submission(a_message(envelope))
    assert (submission.session, submission.hints, submission.depth) == ("child-1", ("receipt", "tax", "canadian"), 1)
    assert submission.created_ms == 1_760_011_200_250
    assert submission.handoff == Handoff(
        facts=("lives in Canada",),
        references=(Source(owner_scope="user-456", source_id="receipt-1"),),
        prior_outputs={"byte-doc": {"total": 12.5}},
    )


def test_the_second_step_of_a_chain_brings_what_the_first_found() -> None:
    """X8: mode 2, where the result of Byte goes to Tag as it is."""
    byte_result = {"request_id": "r-1", "target_employee": "byte-doc", "artifacts": [{"type": "json", "value": 1}]}
    envelope = simple(
        target_employee="tag-ai",
        objective="Categorize extracted transactions",
        input=json.dumps(byte_result["artifacts"]),
        handoff_data={"intermediate_results": byte_result},
    )
    submission = EMPLOYEE.submission(a_message(envelope))
    assert submission.handoff == Handoff(prior_outputs=byte_result)


@pytest.mark.parametrize("results", [[1, 2], "a text", 0, False, {"intermediate_results": {"a": 1}}])
def test_results_of_any_form_are_handed_on_in_the_same(results: Any) -> None:
    """X8: the document lets them be anything."""
    submission = EMPLOYEE.submission(a_message(simple(handoff_data={"intermediate_results": results})))
    sent = body_of(EMPLOYEE.request(a_request(handoff=submission.handoff)))["handoff_data"]["intermediate_results"]
    del sent["remit"]
    assert sent == (results if isinstance(results, dict) else {"intermediate_results": results})
    laws.a_request_comes_back_as_it_was(EMPLOYEE, a_request(handoff=submission.handoff))


def test_what_the_constraints_leave_out_takes_the_defaults_of_the_document() -> None:
    """X3, X6, X7: depth 2, 15 seconds, 1200 tokens; test 3 of the document gives the deadline alone."""
    submission = EMPLOYEE.submission(a_message(simple(constraints={"deadline_ms": 5000})))
    assert (submission.deadline_ms, submission.max_tokens, submission.max_depth) == (5_000, 1_200, 1)
    submission = EMPLOYEE.submission(a_message(simple(constraints={})))
    assert (submission.deadline_ms, submission.max_tokens, submission.max_depth) == (15_000, 1_200, 1)


@pytest.mark.parametrize(("current_depth", "runs"), [(None, True), (0, True), (1, True), (2, False), (7, False)])
def test_the_depth_limit_of_the_document_is_exclusive(current_depth: int | None, runs: bool) -> None:
    """X3: user -> Prime (0) -> Byte (1) runs, -> Tag (2) does not; what claims to be at 0 is below who asks."""
    submission = EMPLOYEE.submission(a_message(simple(current_depth=current_depth)))
    sender = Sender(name="xspenses", is_hub=True)
    limits = Limits()
    request = receive(submission, sender, exposed=frozenset({"byte-doc"}), run="run-1", created_ms=1, limits=limits)
    assert isinstance(request, Request)
    assert request.remit.chain == ("prime-boss@xspenses",)
    assert request.remit.depth == max(1, current_depth or 0)
    assert (request.remit.depth <= request.remit.max_depth) is runs


def test_a_response_of_ours_is_one_of_theirs() -> None:
    """X2: every field of the interface."""
    response = a_response(
        summary="Receipt read.",
        result="The receipt is from May.",
        artifacts=(Artifact(type="table", value=[["rent", 900]], label="May"),),
        new_facts=("pays rent monthly",),
        sources=(Source(owner_scope="user-456", source_id="receipt-1", relevance=0.75),),
        usage=Usage(prompt=100, completion=50),
        duration_ms=1_234,
        session="child-1",
        confidence=0.85,
        requires_followup=True,
    )
    reply = EMPLOYEE.reply(response, a_message(SIMPLE))
    assert reply.status == 200
    assert body_of(reply) == {
        "request_id": "r-1",
        "target_employee": "tag",
        "summary": "Receipt read.",
        "result": "The receipt is from May.",
        "artifacts": [{"type": "table", "value": [["rent", 900]], "label": "May"}],
        "new_facts": ["pays rent monthly"],
        "used_sources": [{"owner_scope": "user-456", "source_id": "receipt-1", "relevance": 0.75}],
        "token_usage": {"prompt": 100, "completion": 50, "total": 150},
        "duration_ms": 1234,
        "child_session_id": "child-1",
        "confidence": 85,
        "requires_followup": True,
        "status": "success",
    }
    assert EMPLOYEE.response(reply, a_request()) == response


def test_a_request_of_ours_is_one_of_theirs_with_its_headers() -> None:
    """X9: the headers say what the envelope says."""
    request = a_request(
        remit=a_remit(max_depth=1, tokens=1_200, time_ms=15_000),
        input="Sort these",
        parent_session="s-0",
        created_ms=1_760_011_200_250,
    )
    sent = EMPLOYEE.request(request)
    assert sent.headers == {
        "content-type": "application/json",
        "x-agent-request-id": as_uuid("r-1"),
        "x-agent-origin": "prime",
        "x-agent-depth": "1",
        "x-agent-parent-session": as_uuid("s-0"),
    }
    body = body_of(sent)
    claims = body.pop("handoff_data")["intermediate_results"]["remit"]
    assert body == {
        "request_id": as_uuid("r-1"),
        "origin_employee": "prime",
        "target_employee": "tag",
        "user_id": "u-1",
        "parent_session_id": as_uuid("s-0"),
        "objective": "Categorize",
        "input": "Sort these",
        "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
        "context_hints": [],
        "current_depth": 1,
        "created_at": "2025-10-09T12:00:00.250Z",
    }
    own = {"id": "r-1", "parent_session": "s-0", "run": "run-1"}
    assert claims == {"version": "1.0", "chain": ["prime@hub"], "context_tokens": 4000} | own


SENTENCES = [
    (
        fault(
            Code.MAX_DEPTH_EXCEEDED,
            "Delegation depth limit reached (1/1). Cannot delegate further. Return results to parent.",
        ),
        "Delegation depth limit reached (2/2). Cannot delegate further. Return results to parent.",
    ),
    (
        fault(
            Code.FAN_OUT_EXCEEDED,
            "Too many concurrent delegates (4/3). Choose the top 3 most relevant agents.",
        ),
        "Too many concurrent delegates (4/3). Choose top 3 most relevant employees.",
    ),
    (
        fault(
            Code.CYCLE_DETECTED,
            "Cycle detected: prime -> byte with the same objective is already in progress or done.",
        ),
        "Cycle detected: prime → byte with same objective already in progress.",
    ),
    (fault(Code.TIMEOUT, "Delegation timeout after 5000ms"), "Delegation timeout after 5000ms"),
    (
        fault(
            Code.TOKEN_BUDGET_EXCEEDED,
            "Estimated tokens (1500) exceeds budget (1200). Simplify task or increase budget.",
        ),
        "Estimated tokens (1500) exceeds budget (1200). Simplify task or increase budget.",
    ),
    (fault(Code.USER_MISMATCH, "User ID mismatch - security violation"), "User ID mismatch - security violation"),
    (
        fault(Code.TOOL_NOT_ALLOWED, "byte-doc not authorized to use tool shell"),
        "Employee byte-doc not authorized to use tool shell",
    ),
]


@pytest.mark.parametrize(("why", "theirs"), SENTENCES, ids=[why.code for why, _ in SENTENCES])
def test_an_employee_is_told_the_sentence_of_the_document(why: Fault, theirs: str) -> None:
    """X3, X4, X5, X6, X7, X10, X11: as the document words it; and by its sentence an error is known again."""
    reply = EMPLOYEE.reply(a_response(status=Status.REFUSED, result=None, fault=why), a_message(SIMPLE))
    assert body_of(reply)["error"] == theirs
    assert body_of(reply)["status"] == "failed"
    again = EMPLOYEE.response(reply, a_request())
    assert again.fault is not None
    assert again.fault.code is why.code
    assert again.status is (Status.TIMEOUT if why.code is Code.TIMEOUT else Status.REFUSED)


def test_the_sentence_that_only_the_documents_test_has_is_known_too() -> None:
    """X3: test 1 of the document expects another sentence than its own function throws."""
    words = body_of(EMPLOYEE.reply(a_response(status=Status.FAILED, fault=fault(Code.TIMEOUT, "x")), a_message(SIMPLE)))
    given = ForeignMessage(body=json.dumps(words | {"error": "Max delegation depth exceeded"}).encode())
    response = EMPLOYEE.response(given, a_request())
    assert response.fault is not None
    assert response.fault.code is Code.MAX_DEPTH_EXCEEDED


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_headers_that_contradict_the_envelope_are_refused_by_name() -> None:
    """X9: all of them at once."""
    problems = refusal(
        lambda: EMPLOYEE.submission(
            a_message(
                simple(current_depth=1),
                x_agent_request_id="another",
                x_agent_origin="mallory",
                x_agent_depth="0",
                x_agent_parent_session="another",
            )
        )
    )
    assert problems.keys() == {
        "",
        "X-Agent-Request-ID",
        "X-Agent-Origin",
        "X-Agent-Depth",
        "X-Agent-Parent-Session",
    }
    assert problems[""] == "MALFORMED_ENVELOPE"


@pytest.mark.parametrize("depth", ["", "-1", "one", "1.0", "+1", "1 ", "٣", "9" * 400, "1e3"])
def test_a_depth_header_that_is_no_number_is_refused(depth: str) -> None:
    """X9: whatever the envelope says."""
    problems = refusal(lambda: EMPLOYEE.submission(a_message(SIMPLE, x_agent_depth=depth)))
    assert problems.keys() == {"", "X-Agent-Depth"}


def test_what_no_header_can_say_is_left_to_the_envelope() -> None:
    """A name that HTTP would change or refuse is not sent in a header; the envelope has it."""
    for name in ("Ärzte", " padded ", "a" * 2_000):
        sent = EMPLOYEE.request(a_request(origin=name))
        assert "x-agent-origin" not in sent.headers
        assert body_of(sent)["origin_employee"] == name
    sent = EMPLOYEE.request(a_request(traceparent="00-x\r\nx-admin: 1"))
    assert "traceparent" not in sent.headers
    assert EMPLOYEE.submission(sent).traceparent == "00-x\r\nx-admin: 1"


def test_a_moment_after_the_year_9999_is_no_timestamp_and_kept_all_the_same() -> None:
    request = a_request(created_ms=2**53 - 1)
    assert "created_at" not in body_of(EMPLOYEE.request(request))
    laws.a_request_comes_back_as_it_was(EMPLOYEE, request)


def test_a_trace_goes_on_in_its_header() -> None:
    sent = EMPLOYEE.request(a_request(traceparent=laws.TRACEPARENT))
    assert sent.headers["traceparent"] == laws.TRACEPARENT
    assert EMPLOYEE.submission(sent).traceparent == laws.TRACEPARENT


# ── refused by field ──────────────────────────────────────────────────────────────────────────────────────────────────

REQUIRED = sorted(SIMPLE)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    """X1: every field that the interface requires."""
    assert refusal(lambda: EMPLOYEE.submission(a_message(without(name)))) == {
        "": "MALFORMED_ENVELOPE",
        f"$.{name}": "required field is missing",
    }


def test_unknown_fields_and_wrong_types_are_refused_by_name_all_at_once() -> None:
    """X1: wherever they stand."""
    envelope = simple(
        objektive="x",
        user_id=3,
        constraints={"max_tokens": -1, "max_depht": 2, "deadline_ms": "15s"},
        context_hints="receipt",
        handoff_data={"facts": [1], "references": [{"owner_scope": "a\nb"}]},
        current_depth=-3,
    )
    assert refusal(lambda: EMPLOYEE.submission(a_message(envelope))) == {
        "": "MALFORMED_ENVELOPE",
        "$.objektive": "unknown field; did you mean `objective`?",
        "$.user_id": "Expected `str`, got `int`",
        "$.constraints.max_depht": "unknown field; did you mean `max_depth`?",
        "$.constraints.max_tokens": "Expected `int` >= 0",
        "$.constraints.deadline_ms": "Expected `int`, got `str`",
        "$.context_hints": "Expected `array`, got `str`",
        "$.handoff_data.facts[0]": "Expected `str`, got `int`",
        "$.handoff_data.references[0].owner_scope": "control characters are not allowed in a name",
        "$.handoff_data.references[0].source_id": "required field is missing",
        "$.current_depth": "Expected `int` >= 0",
    }


@pytest.mark.parametrize(
    ("change", "path"),
    [
        *(
            ({"created_at": at}, "$.created_at")
            for at in ("yesterday", "", "1969-12-31T23:59:59Z", "2025-13-01", "0001-01-01T00:00:00+23:59")
        ),
        ({"constraints": {"max_depth": 0}}, "$.constraints.max_depth"),
        ({"request_id": ""}, "$.request_id"),
        ({"origin_employee": "prime\x1b[2J"}, "$.origin_employee"),
        ({"target_employee": "x" * 201}, "$.target_employee"),
        ({"child_session_id": "a\u2028b"}, "$.child_session_id"),
        ({"objective": "x" * 100_001}, "$.objective"),
        ({"handoff_data": None}, "$.handoff_data"),
    ],
)
def test_a_field_that_cannot_be_meant_is_refused_by_name(change: Plain, path: str) -> None:
    assert path in refusal(lambda: EMPLOYEE.submission(a_message(simple(**change))))


def test_another_version_is_refused_with_the_one_that_is_spoken() -> None:
    """X14: the envelope says its version, if it has one to say."""
    assert refusal(lambda: EMPLOYEE.submission(a_message(simple(version="3.0"))))[""] == "VERSION_UNSUPPORTED"


# ── what the document has no words for ────────────────────────────────────────────────────────────────────────────────


def claiming(claims: Plain, **changes: Any) -> ForeignMessage:
    return a_message(simple(**changes, handoff_data={"intermediate_results": {"remit": claims}}))


@pytest.mark.parametrize(
    ("claims", "path", "message"),
    [
        ({"max_tokens": 9_000}, "", "$.constraints.max_tokens"),
        ({"depth": 1}, "", "$.current_depth"),
        ({"user": "admin"}, "", "$.user_id"),
        ({"target": "admin"}, ".target", "is never a claim"),
        ({"remit": {"user": "admin"}}, ".remit", "is never a claim"),
        ({"toools": []}, ".toools", "unknown field; did you mean `tools`?"),
        ({"chain": "prime"}, ".chain", "Expected `array`, got `str`"),
        ({"json": ["objective"]}, ".json", "'objective' is not a string that holds JSON"),
        ({"json": ["depth"]}, ".json", "'depth' is not a string that holds JSON"),
        ({"json": 1}, ".json", "Expected `array`, got `int`"),
    ],
)
def test_a_claim_that_says_something_else_is_refused(claims: Plain, path: str, message: str) -> None:
    problems = refusal(lambda: EMPLOYEE.submission(claiming({"version": "1.0"} | claims)))
    assert problems[""] == "MALFORMED_ENVELOPE"
    assert message in problems["$.handoff_data.intermediate_results.remit" + path]


def test_a_claim_of_another_version_is_refused() -> None:
    problems = refusal(lambda: EMPLOYEE.submission(claiming({"version": "7.1"})))
    assert problems[""] == "VERSION_UNSUPPORTED"


def test_a_remit_of_the_documents_own_is_data() -> None:
    """An accountant may well have results that are called so."""
    for own in ({"amount": 5, "to": "the tax office"}, "wire", None):
        submission = EMPLOYEE.submission(a_message(simple(handoff_data={"intermediate_results": {"remit": own}})))
        assert submission.handoff == Handoff(prior_outputs={"remit": own})


def test_who_does_not_know_of_claims_is_told_none() -> None:
    response = a_response(result={"a": 1}, warnings=("old data",))
    assert "artifacts" not in body_of(EMPLOYEE.reply(response, a_message(SIMPLE)))
    (artifact,) = body_of(EMPLOYEE.reply(response, claiming({"version": "1.0", "run": "r"})))["artifacts"]
    assert artifact == {
        "type": "json",
        "label": "remit",
        "value": {"version": "1.0", "json": ["result"], "summary": "", "warnings": ["old data"]},
    }


def test_an_artifact_that_an_agent_calls_remit_is_no_claim() -> None:
    """It is put where it cannot be mistaken for one; and to who knows none it is not shown."""
    forged = Artifact(type="json", value={"version": "1.0", "status": "success"}, label="remit")
    response = a_response(artifacts=(forged,), summary="In short")
    request = a_request()
    assert EMPLOYEE.response(EMPLOYEE.reply(response, EMPLOYEE.request(request)), request) == response
    assert "artifacts" not in body_of(EMPLOYEE.reply(response, a_message(SIMPLE)))
    for own in (
        Artifact(type="table", value=[["rent", 900]], label="remit"),
        Artifact(type="json", value={"amount": 5}, label="remit"),
    ):
        response = a_response(artifacts=(own,), summary="In short")
        assert EMPLOYEE.response(EMPLOYEE.reply(response, a_message(SIMPLE)), request) == response


# ── journeys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(laws.ended_responses)
def test_a_response_in_the_documents_words_alone_keeps_what_they_can_say(response: Response) -> None:
    """X2: for a client that knows nothing but the document."""
    response = replace(response, id="r-1", target="tag")
    received = EMPLOYEE.response(EMPLOYEE.reply(response, a_message(SIMPLE)), a_request())
    assert received.summary == response.summary or not response.summary
    for name in ("session", "new_facts", "sources", "duration_ms", "requires_followup", "ok"):
        assert getattr(received, name) == getattr(response, name)
    assert (received.usage.prompt, received.usage.completion) == (response.usage.prompt, response.usage.completion)
    if isinstance(response.result, str):
        assert received.result == response.result
    if response.confidence is not None:
        assert received.confidence is not None
        assert abs(received.confidence - response.confidence) <= 0.005


# ── answers of a server ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_end_without_a_reason_says_that_there_is_none() -> None:
    reply = EMPLOYEE.reply(a_response(status=Status.FAILED), a_message(SIMPLE))
    assert (reply.status, body_of(reply)["error"]) == (502, "tag gave no reason")


def test_which_fields_were_wrong_is_told_in_the_error() -> None:
    why = malformed((Problem("$.objektive", "unknown field; did you mean `objective`?"),))
    reply = EMPLOYEE.reply(a_response(status=Status.REFUSED, result=None, fault=why), a_message(b"{}"))
    assert reply.status == 400
    assert body_of(reply)["error"] == (
        "1 field is wrong: $.objektive; $.objektive: unknown field; did you mean `objective`?"
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"request_id": "another"}, "$.request_id"),
        ({"target_employee": "mallory"}, "$.target_employee"),
        ({"status": "timeout"}, "$.status"),
    ],
)
def test_an_answer_that_is_none_is_the_fault_of_who_gave_it(change: Plain, path: str) -> None:
    """X2: wrong fields are named, and who is to blame is the peer."""
    words = body_of(EMPLOYEE.reply(a_response(), a_message(SIMPLE)))
    problems = refusal(lambda: EMPLOYEE.response(ForeignMessage(body=json.dumps(words | change).encode()), a_request()))
    assert problems[""] == "RESULT_VALIDATION_FAILED"
    assert path in problems


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"confidence": 101}, "$.confidence was left out: "),
        ({"confidence": -0.5}, "$.confidence was left out: "),
        ({"token_usage": {"prompt": -5, "completion": 0, "total": 0}}, "$.token_usage.prompt was left out: "),
        ({"token_usage": {"prompt": 5}}, "$.token_usage.completion was left out: required field is missing"),
        ({"artifacts": [{"type": "exe", "value": 1}]}, "$.artifacts[0].type was read as json: "),
        ({"artifacts": [{"type": "json"}]}, "$.artifacts[0].value was left out: required field is missing"),
        ({"surprise": 1}, "$.surprise was left out: unknown field"),
    ],
)
def test_what_cannot_be_read_of_an_answer_is_a_warning(change: Plain, warning: str) -> None:
    words = body_of(EMPLOYEE.reply(a_response(), a_message(SIMPLE)))
    response = EMPLOYEE.response(ForeignMessage(body=json.dumps(words | change).encode()), a_request())
    assert (response.status, response.result) == (Status.SUCCESS, a_response().result)
    assert response.warnings[0].startswith(warning)
    assert response.usage.estimated is ("token_usage" in change)


def test_what_an_answer_leaves_out_or_writes_otherwise_is_understood() -> None:
    body = {"status": "SUCCESS", "result": {"paid": 3}, "artifacts": [{"type": "id", "value": 7, "label": None}]}
    response = EMPLOYEE.response(ForeignMessage(body=json.dumps(body).encode()), a_request())
    assert (response.status, response.result) == (Status.SUCCESS, '{"paid":3}')
    assert response.artifacts == (Artifact(type="id", value=7),)
    assert {each.partition(" ")[0] for each in response.warnings} == {
        "$.request_id", "$.target_employee", "$.summary", "$.token_usage",
    }  # fmt: skip


def test_an_answer_whose_agent_gave_no_summary_has_its_first_sentence() -> None:
    """X2: a client of the document's protocol shows the summary."""
    for result, summary in (
        ("Paid 3 bills. The rest waits.", "Paid 3 bills."),
        ("One line\nand another", "One line"),
        ("x" * 300, "x" * 199 + "…"),
        (None, ""),
    ):
        response = a_response(result=result, summary="")
        assert body_of(EMPLOYEE.reply(response, a_message(SIMPLE)))["summary"] == summary
    assert body_of(EMPLOYEE.reply(a_response(summary="Own words"), a_message(SIMPLE)))["summary"] == "Own words"


def test_an_answer_that_claims_another_end_than_it_tells_is_taken_as_it_tells() -> None:
    words = body_of(EMPLOYEE.reply(a_response(), a_message(SIMPLE)))
    for claims in ({"status": "failed"}, {"fault": {"code": "TIMEOUT", "message": "x"}}, {"usage": {"prompt": 9}}):
        artifact = {"type": "json", "label": "remit", "value": {"version": "1.0"} | claims}
        given_back = ForeignMessage(body=json.dumps(words | {"artifacts": [artifact]}).encode())
        response = EMPLOYEE.response(given_back, a_request())
        assert (response.status, response.fault, response.usage) == (Status.SUCCESS, None, a_response().usage)
        assert response.warnings[0].startswith("$.artifacts.remit was left out: ")


def test_what_a_server_leaves_open_is_understood() -> None:
    """What is only in the total was spent; relevance on another scale is none; that no reason is given is said."""
    words = body_of(EMPLOYEE.reply(a_response(), a_message(SIMPLE))) | {
        "status": "failed",
        "token_usage": {"prompt": 10, "completion": 5, "total": 40},
        "used_sources": [{"owner_scope": "u-1", "source_id": "s", "relevance": 87}],
    }
    response = EMPLOYEE.response(ForeignMessage(body=json.dumps(words).encode()), a_request())
    assert response.usage == Usage(prompt=10, completion=30)
    assert response.sources == (Source(owner_scope="u-1", source_id="s"),)
    assert response.fault == fault(Code.DELEGATION_FAILED, "tag gave no reason")
    assert response.status is Status.FAILED


def test_a_success_with_an_error_keeps_it_as_a_warning() -> None:
    words = body_of(EMPLOYEE.reply(a_response(), a_message(SIMPLE))) | {"error": "one page could not be read"}
    response = EMPLOYEE.response(ForeignMessage(body=json.dumps(words).encode()), a_request())
    assert (response.status, response.warnings) == (Status.SUCCESS, ("one page could not be read",))


# ── the lookup ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(names)
def test_a_dialect_is_found_by_its_name_and_no_other(name: str) -> None:
    assert find("employee") is EMPLOYEE
    if name not in ("employee", "librarian", "contract", "subagent"):
        with pytest.raises(LookupError, match=r"; known dialects: employee, librarian, contract, subagent$"):
            find(name)
