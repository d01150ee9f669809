"""The employee dialect to the letter: ids, versions, numbers and sentences."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from msgspec.structs import replace

from dialect_laws import SIMPLE, a_message, body_of, refusal
from remit.protocol.codec import Versions, VersionStep
from remit.protocol.envelope import NOBODY, VERSION, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit_server.dialects import find
from remit_server.dialects.employee import Employee
from remit_server.dialects.exchange import ForeignMessage, as_uuid
from samples import a_request, a_response
from strategies import names

EMPLOYEE = find("employee")
REFUSED = Response(
    version=VERSION, id=NOBODY, target=NOBODY, status=Status.REFUSED, fault=fault(Code.MALFORMED_ENVELOPE, "wrong")
)


# ── ids ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(name=names)
def test_an_id_of_ours_goes_out_as_the_same_uuid_each_time(name: str) -> None:
    """X1."""
    made = as_uuid(name)
    assert (UUID(made).version, as_uuid(name), as_uuid(made)) == (4, made, made)


def test_what_is_sent_has_uuids_where_the_document_says_so() -> None:
    """X1: request and parent session; a UUID stays as it is, and a new child session is null."""
    request = a_request(id="run.1", session="run.1", parent_session="s-1")
    sent = EMPLOYEE.request(request)
    body = body_of(sent)
    assert UUID(body["request_id"]).version == UUID(body["parent_session_id"]).version == 4
    assert sent.headers["x-agent-request-id"] == body["request_id"]
    assert sent.headers["x-agent-parent-session"] == body["parent_session_id"]
    assert "child_session_id" not in body
    assert body_of(EMPLOYEE.request(replace(request, session="theirs-7")))["child_session_id"] == "theirs-7"
    own = "550e8400-e29b-41d4-a716-446655440000"
    assert body_of(EMPLOYEE.request(replace(request, id=own)))["request_id"] == own


def test_a_hub_that_is_asked_by_uuid_knows_the_id_and_answers_by_the_uuid() -> None:
    """X2: the response says the request's id, also between two hubs."""
    request = a_request(id="run.1", session="run.1", parent_session="s-1")
    sent = EMPLOYEE.request(request)
    submission = EMPLOYEE.submission(sent)
    assert (submission.id, submission.session, submission.parent_session) == ("run.1", "run.1", "s-1")
    reply = EMPLOYEE.reply(replace(a_response(), id="run.1", target=request.target), sent)
    assert body_of(reply)["request_id"] == body_of(sent)["request_id"]
    assert EMPLOYEE.response(reply, request).id == "run.1"


def test_an_answer_to_another_request_is_refused() -> None:
    """X2."""
    request = a_request(id="run.1")
    reply = EMPLOYEE.reply(replace(a_response(), id="run.1", target=request.target), EMPLOYEE.request(request))
    other = ForeignMessage(body=json.dumps(body_of(reply) | {"request_id": as_uuid("run.2")}).encode())
    assert "$.request_id" in refusal(lambda: EMPLOYEE.response(other, request))


@pytest.mark.parametrize("dialect", ["employee", "contract"])
@pytest.mark.parametrize(
    ("body", "echoed"),
    [
        (b'{"request_id": "r-1", "surprise": 1}', "r-1"),
        (b'{"request_id": ""}', NOBODY),
        (b'{"request_id": 7}', NOBODY),
        (b'{"request_id": "r\\u0007"}', NOBODY),
        (b"[1]", NOBODY),
        (b"{", NOBODY),
        (b"", NOBODY),
    ],
)
def test_a_refused_envelope_is_answered_under_its_id(dialect: str, body: bytes, echoed: str) -> None:
    """X2, K2: whatever else is wrong with it."""
    reply = find(dialect).reply(REFUSED, ForeignMessage(body=body))
    assert body_of(reply)["request_id"] == echoed


def test_without_a_body_the_header_says_which_request_was_refused() -> None:
    """X9: of a sender that proved nothing no body is read."""
    reply = EMPLOYEE.reply(REFUSED, ForeignMessage(headers={"x-agent-request-id": "r-1"}))
    assert body_of(reply)["request_id"] == "r-1"


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _renaming(version: str, old: str, new: str) -> VersionStep:
    def renamed(value: dict[str, Any], one: str, other: str) -> dict[str, Any]:
        return {other if name == one else name: each for name, each in value.items()}

    return VersionStep(
        version=version,
        upgrade=lambda value: renamed(value, old, new),
        downgrade=lambda value: renamed(value, new, old),
    )


# As if 1.0 had said `goal` and `outcome`, and 1.1 and 1.2 had given them the names of today.
LATER = Versions("1.0").then(_renaming("1.1", "goal", "objective")).then(_renaming("1.2", "outcome", "result"))


@pytest.mark.parametrize(("version", "goal", "outcome"), [(None, "goal", "outcome"), ("1.1", "objective", "outcome")])
def test_the_two_versions_before_are_read_and_answered_in_their_own_words(
    version: str | None, goal: str, outcome: str
) -> None:
    """X14."""
    envelope = {goal if name == "objective" else name: value for name, value in SIMPLE.items()}
    old = a_message(envelope | ({} if version is None else {"version": version}))
    dialect = Employee(LATER)
    assert dialect.submission(old).objective == "Extract receipt data"
    reply = body_of(dialect.reply(replace(a_response(), result="done"), old))
    assert reply[outcome] == "done"
    assert "version" not in reply


def test_the_third_version_before_is_refused_with_those_that_are_read() -> None:
    """X14."""
    dialect = Employee(LATER.then(_renaming("1.3", "x", "y")))
    for envelope in (SIMPLE, SIMPLE | {"version": "1.0"}, SIMPLE | {"version": "9"}):
        problems = refusal(lambda envelope=envelope: dialect.submission(a_message(envelope)))
        assert problems[""] == "VERSION_UNSUPPORTED"
    assert refusal(lambda: EMPLOYEE.submission(a_message(SIMPLE | {"version": 1})))["$.version"]


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fractions_of_a_peer_are_read_and_never_written() -> None:
    """X2: a peer in JavaScript measures 12.5 ms."""
    request = a_request(target="byte-doc")
    usage = {"prompt": 10.0, "completion": 2.9, "total": 12.9}
    answer = {
        "request_id": as_uuid(request.id),
        "target_employee": "byte-doc",
        "summary": "",
        "result": "done",
        "token_usage": usage,
        "duration_ms": 12.5,
        "confidence": 87.5,
        "status": "success",
    }
    response = EMPLOYEE.response(ForeignMessage(body=json.dumps(answer).encode()), request)
    assert (response.duration_ms, response.usage.prompt, response.usage.completion) == (12, 10, 2)
    assert response.confidence == 0.875
    limits = {"max_tokens": 1200.9, "max_depth": 2.0, "deadline_ms": 1500.5}
    submission = EMPLOYEE.submission(a_message(SIMPLE | {"constraints": limits, "current_depth": 1.0}))
    assert (submission.max_tokens, submission.deadline_ms, submission.depth) == (1_200, 1_500, 1)


# ── sentences ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Agent byte-doc not authorized to use tool shell", "Employee byte-doc not authorized to use tool shell"),
        ("byte-doc not authorized to use tool shell", "Employee byte-doc not authorized to use tool shell"),
        ("byte-doc not authorized to use tools a, b", "Employee byte-doc not authorized to use tool a, b"),
    ],
)
def test_the_sentence_for_a_tool_is_the_documents(ours: str, theirs: str) -> None:
    """X11."""
    response = replace(a_response(), status=Status.REFUSED, result=None, fault=fault(Code.TOOL_NOT_ALLOWED, ours))
    assert body_of(EMPLOYEE.reply(response, a_message(SIMPLE)))["error"] == theirs
