"""The tool that calls sub-agents: the document's own examples, journeys, attacks."""

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

import dialect_laws as laws
from dialect_laws import Plain, a_message, body_of, refusal
from remit.protocol.envelope import ContextFilter, Request, Response, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Priority
from remit.protocol.submission import Submission
from remit_server.dialects.exchange import ForeignMessage
from remit_server.dialects.subagent import DIALECT as SUB_AGENT
from samples import a_remit, a_request, a_response

# "Agent A (Planner) calling Agent B (Coder)".
CALL: Plain = {
    "tool": "sub_agent",
    "args": {
        "agent_name": "coder",
        "task": "Implement the user_auth function in src/auth/user.rs based on these requirements:\n"
        "1. Email validation\n2. Password hashing (bcrypt)\n3. Return success/error tuple",
        "context": {
            "last_messages": 3,
            "roles": ["user", "assistant"],
            "include_workspace": True,
            "workspace_files": ["src/auth/user.rs", "src/auth/types.rs"],
            "max_age_seconds": 600,
        },
        "max_context_tokens": 6000,
        "allowed_tools": ["read", "write", "edit"],
        "allow_nested_calls": False,
    },
}
# "Agent B's result returned to Agent A".
RESULT: Plain = {
    "agent_name": "coder",
    "success": True,
    "output": "I've implemented the user_auth function in src/auth/user.rs with:\n- Email validation using regex\n"
    "- Password hashing with bcrypt (cost 12)\n- Returns Result<(User, UserError), UserError> tuple\n\n"
    "The function handles edge cases for invalid inputs and database errors.",
    "tool_calls": ["read", "write", "edit"],
    "tokens_used": 3245,
    "duration_seconds": 12,
    "errors": [],
}


def with_args(**changes: Any) -> Plain:
    return CALL | {"args": CALL["args"] | changes}


def answer(**changes: Any) -> ForeignMessage:
    return ForeignMessage(body=json.dumps(RESULT | changes).encode())


def coder(**changes: Any) -> Request:
    return a_request(target="coder", **changes)


# ── the document's examples ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_call_of_the_document_is_understood() -> None:
    """O1, O2, O6, O10: its example; a call has 300 seconds."""
    expected = Submission(
        target="coder",
        deadline_ms=300_000,
        context_tokens=6_000,
        tools=frozenset({"read", "write", "edit"}),
        may_delegate=False,
        objective=CALL["args"]["task"],
        context=ContextFilter(
            last_messages=3,
            roles=frozenset({"user", "assistant"}),
            include_workspace=True,
            workspace_files=("src/auth/user.rs", "src/auth/types.rs"),
            max_age_seconds=600,
            known="none",
        ),
    )
    assert SUB_AGENT.submission(a_message(CALL)) == expected
    assert SUB_AGENT.submission(a_message(CALL["args"])) == expected


def test_what_a_call_leaves_out_takes_the_defaults_of_the_document() -> None:
    """O1: 4000 tokens, its own tools, no nested calls; O2: without a filter the newest that fit."""
    expected = Submission(
        target="coder",
        deadline_ms=300_000,
        context_tokens=4_000,
        may_delegate=False,
        objective="Write hello world",
        context=ContextFilter(known="none"),
    )
    args = {"agent_name": "coder", "task": "Write hello world"}
    assert SUB_AGENT.submission(a_message(args)) == expected
    absent = ("context", "input", "max_context_tokens", "allowed_tools", "allow_nested_calls")
    assert SUB_AGENT.submission(a_message(args | dict.fromkeys(absent))) == expected


def test_every_part_of_a_filter_is_understood() -> None:
    """O2."""
    wanted = {
        "last_messages": 5,
        "roles": ["user"],
        "keywords": ["auth"],
        "include_summary": True,
        "include_workspace": True,
        "workspace_files": ["a.rs"],
        "max_age_seconds": 60,
        "known": "decisions",
    }
    submission = SUB_AGENT.submission(a_message(with_args(context=wanted, input={"cost": 12}, allow_nested_calls=True)))
    assert submission.context == ContextFilter(
        last_messages=5,
        roles=frozenset({"user"}),
        keywords=("auth",),
        include_summary=True,
        include_workspace=True,
        workspace_files=("a.rs",),
        max_age_seconds=60,
        known="decisions",
    )
    assert (submission.input, submission.may_delegate) == ({"cost": 12}, True)


def test_the_result_of_the_document_is_understood_and_told() -> None:
    """O7: its example, both ways."""
    response = SUB_AGENT.response(answer(), coder())
    assert response == Response(
        version="1.0",
        id="r-1",
        target="coder",
        status=Status.SUCCESS,
        result=RESULT["output"],
        tool_calls=("read", "write", "edit"),
        usage=Usage(completion=3_245),
        duration_ms=12_000,
    )
    assert body_of(SUB_AGENT.reply(response, a_message(CALL))) == RESULT


def test_a_request_of_ours_is_a_call_of_theirs() -> None:
    """O1, O6: what the remit allows, as arguments."""
    request = coder(
        remit=a_remit(tools=frozenset({"read", "edit"}), may_delegate=False),
        input={"cost": 12},
        context=ContextFilter(last_messages=3, include_contents=True),
    )
    sent = body_of(SUB_AGENT.request(request))
    claims = sent.pop("remit")
    assert sent == {
        "tool": "sub_agent",
        "args": {
            "agent_name": "coder",
            "task": "Categorize",
            "context": {"last_messages": 3},
            "input": {"cost": 12},
            "max_context_tokens": 4000,
            "allowed_tools": ["edit", "read"],
            "allow_nested_calls": False,
        },
    }
    assert claims == {
        "version": "1.0",
        "chain": ["prime@hub"],
        "context": {"include_contents": True, "known": None},
        "deadline_ms": 10_000,
        "depth": 1,
        "id": "r-1",
        "max_depth": 5,
        "max_tokens": 1000,
        "origin": "prime",
        "run": "run-1",
        "user": "u-1",
    }


def test_a_request_of_ours_without_a_filter_shows_no_message() -> None:
    """O2: theirs without one would show the newest."""
    assert body_of(SUB_AGENT.request(coder()))["args"]["context"] == {"last_messages": 0}


def test_a_request_that_has_only_an_input_has_a_task_as_well() -> None:
    args = body_of(SUB_AGENT.request(coder(objective="", input="x" * 500)))["args"]
    assert (args["task"], args["input"]) == ("x" * 200, "x" * 500)


def test_a_failure_is_told_with_its_code_and_what_to_do() -> None:
    """O7: errors."""
    why = fault(Code.TOOL_NOT_ALLOWED, "coder not authorized to use tool shell")
    response = a_response(status=Status.REFUSED, result=None, fault=why, warnings=("old data",))
    reply = SUB_AGENT.reply(response, a_message(CALL))
    assert reply.status == 403
    body = body_of(reply)
    assert (body["success"], body["output"]) == (False, "")
    assert body["errors"] == [
        "TOOL_NOT_ALLOWED: coder not authorized to use tool shell. "
        "Use a tool that its card and its remit both name, or have the team add it to the agent's `tools`.",
        "old data",
    ]
    received = SUB_AGENT.response(reply, a_request())
    assert (received.status, received.fault and received.fault.code) == (Status.REFUSED, Code.TOOL_NOT_ALLOWED)
    assert received.warnings == ("old data",)


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ("Agent 'planner' is not allowed to call other agents", Code.PERMISSION_DENIED, Status.REFUSED),
        ("Not found: Target agent 'coder' not found", Code.AGENT_NOT_FOUND, Status.REFUSED),
        ("Recursive sub-agent calls detected (max depth exceeded)", Code.LOOP_DETECTED, Status.REFUSED),
        ("the tests do not pass", Code.DELEGATION_FAILED, Status.FAILED),
        ("NONSENSE: the tests do not pass", Code.DELEGATION_FAILED, Status.FAILED),
    ],
)
def test_an_error_is_known_by_the_sentence_of_the_document(error: str, code: Code, status: Status) -> None:
    """O5, O7."""
    response = SUB_AGENT.response(answer(success=False, output="", errors=[error, "and more"]), coder())
    assert response.fault == fault(code, error)
    assert (response.status, response.warnings) == (status, ("and more",))


def test_a_failure_without_a_reason_is_said_to_have_none() -> None:
    response = SUB_AGENT.response(answer(success=False), coder())
    assert response.fault == fault(Code.DELEGATION_FAILED, "coder gave no reason")


def test_a_success_with_errors_keeps_them_as_warnings() -> None:
    response = SUB_AGENT.response(answer(errors=["one test was skipped"]), coder())
    assert (response.status, response.warnings) == (Status.SUCCESS, ("one test was skipped",))


# ── refused by field ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["agent_name", "task"])
def test_a_missing_argument_is_refused_by_name(name: str) -> None:
    """O1: with the name of the tool, and without."""
    args = {each: value for each, value in CALL["args"].items() if each != name}
    assert refusal(lambda: SUB_AGENT.submission(a_message(args))) == {
        "": "MALFORMED_ENVELOPE",
        f"$.{name}": "required field is missing",
    }
    assert f"$.args.{name}" in refusal(lambda: SUB_AGENT.submission(a_message(CALL | {"args": args})))


def test_unknown_arguments_and_wrong_types_are_refused_by_name_all_at_once() -> None:
    """O1, O2."""
    args = {
        "agent_name": "coder\u2029",
        "tasks": "x",
        "context": {"last_messages": -1, "include_contents": True, "keywords": [""], "roles": "user"},
        "max_context_tokens": "all",
        "allowed_tools": ["read", 3],
        "allow_nested_calls": "yes",
    }
    assert refusal(lambda: SUB_AGENT.submission(a_message(args))) == {
        "": "MALFORMED_ENVELOPE",
        "$.tasks": "unknown field; did you mean `task`?",
        "$.agent_name": "control characters are not allowed in a name",
        "$.task": "required field is missing",
        "$.context.include_contents": "unknown field; did you mean `include_workspace`?",
        "$.context.last_messages": "Expected `int` >= 0",
        "$.context.roles": "Expected `array | null`, got `str`",
        "$.context.keywords[0]": "Expected `str` of length >= 1",
        "$.max_context_tokens": "Expected `int | null`, got `str`",
        "$.allowed_tools[1]": "Expected `str`, got `int`",
        "$.allow_nested_calls": "Expected `bool | null`, got `str`",
    }


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (CALL | {"tool": "shell"}, "$.tool"),
        ({"tool": "sub_agent"}, "$.args"),
        ({"args": CALL["args"]}, "$.tool"),
        (CALL | {"id": "call-1"}, "$.id"),
        (with_args(context={"keywords": ["a"] * 101}), "$.args.context.keywords"),
        (with_args(task="x" * 100_001), "$.args.task"),
        (with_args(allowed_tools=[f"t-{n}" for n in range(1_001)]), "$.args.allowed_tools"),
    ],
)
def test_a_call_that_is_none_is_refused_by_field(body: Plain, path: str) -> None:
    assert path in refusal(lambda: SUB_AGENT.submission(a_message(body)))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"agent_name": "mallory"}, "$.agent_name"),
        ({"success": "yes"}, "$.success"),
        ({"output": None}, "$.output"),
    ],
)
def test_an_answer_that_is_none_is_the_fault_of_who_gave_it(change: Plain, path: str) -> None:
    """O7."""
    problems = refusal(lambda: SUB_AGENT.response(answer(**change), coder()))
    assert problems[""] == "RESULT_VALIDATION_FAILED"
    assert path in problems


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"tokens_used": -1}, "$.tokens_used"),
        ({"tokens_used": 10**18}, "$.tokens_used"),
        ({"duration_seconds": [1]}, "$.duration_seconds"),
        ({"surprise": 1}, "$.surprise"),
        ({"remit": {"version": "1.0", "id": "x"}}, "$.remit"),
        ({"remit": {"version": "1.0", "usage": {"completion": 1}}}, "$.remit"),
        ({"remit": {"version": "1.0", "status": "failed"}}, "$.remit"),
    ],
)
def test_what_cannot_be_read_of_an_answer_is_a_warning(change: Plain, path: str) -> None:
    response = SUB_AGENT.response(answer(**change), coder())
    assert (response.status, response.result) == (Status.SUCCESS, RESULT["output"])
    assert any(each.startswith(path) for each in response.warnings)
    assert response.usage.estimated is ("tokens_used" in change)


# ── what the document has no words for ────────────────────────────────────────────────────────────────────────────────


def test_who_calls_for_whom_can_be_said_beside_the_arguments() -> None:
    """The document knows it without being told; a hub elsewhere does not."""
    claims = {"version": "1.0", "id": "c-1", "user": "u-1", "origin": "planner", "priority": "LOW", "deadline_ms": 5}
    submission = SUB_AGENT.submission(a_message(CALL | {"remit": claims}))
    assert (submission.id, submission.user, submission.origin) == ("c-1", "u-1", "planner")
    assert (submission.priority, submission.deadline_ms) == (Priority.LOW, 5)


def test_a_call_has_never_more_time_than_the_document_gives_it() -> None:
    """O10."""
    submission = SUB_AGENT.submission(a_message(CALL | {"remit": {"version": "1.0", "deadline_ms": 10**9}}))
    assert submission.deadline_ms == 300_000


def test_a_claim_that_says_something_else_is_refused() -> None:
    for claims, field in (
        ({"may_delegate": True}, "allow_nested_calls"),
        ({"tools": ["shell"]}, "allowed_tools"),
        ({"tools": None}, "allowed_tools"),
        ({"context_tokens": 10**6}, "max_context_tokens"),
        ({"context": {"last_messages": 100}}, "context.last_messages"),
    ):
        body = CALL | {"remit": {"version": "1.0"} | claims}
        problems = refusal(lambda body=body: SUB_AGENT.submission(a_message(body)))
        assert field in problems["$.remit"]


def test_who_does_not_know_of_claims_is_told_none() -> None:
    """O7: a model reads the result, and nothing that it cannot use."""
    response = a_response(result={"a": 1}, confidence=0.9)
    assert body_of(SUB_AGENT.reply(response, a_message(CALL))).keys() == RESULT.keys()
    knows = a_message(CALL | {"remit": {"version": "1.0"}})
    assert body_of(SUB_AGENT.reply(response, knows))["remit"] == {
        "version": "1.0",
        "json": ["result"],
        "confidence": 0.9,
    }


# ── journeys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(laws.ended_responses)
def test_a_response_in_the_documents_words_alone_keeps_what_they_can_say(response: Response) -> None:
    """O7: for a client that knows nothing but the document."""
    response = replace(response, id="r-1", target="tag")
    received = SUB_AGENT.response(SUB_AGENT.reply(response, a_message(CALL)), a_request())
    assert (received.ok, received.tool_calls, received.warnings) == (
        response.ok,
        response.tool_calls,
        response.warnings,
    )
    assert received.duration_ms == response.duration_ms // 1_000 * 1_000
    assert received.usage.total == min(response.usage.total, 2**53 - 1)
    if response.fault is not None:
        assert received.fault is not None
        assert received.fault.code is response.fault.code
