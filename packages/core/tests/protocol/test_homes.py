"""Every field that the source documents have is at home in exactly one place of our envelopes."""

from typing import Any, NamedTuple

import msgspec
import pytest

from remit.protocol.card import AgentCard
from remit.protocol.codec import decode, decode_request, decode_response, encode
from remit.protocol.envelope import Call, Request, Response
from samples import a_card, a_request, a_response

Plain = dict[str, Any]


class Field(NamedTuple):
    """A field of a source document, and where it lives here."""

    id: str
    name: str
    home: str
    value: Any
    shows: tuple[str, Any] | None = None
    """What is computed from it, where the document's own field is."""

    def __str__(self) -> str:
        return f"{self.id}-{self.name}"


REFERENCE = {"owner_scope": "u-1", "source_id": "receipt-1"}
SOURCE = REFERENCE | {"relevance": 0.75}

REQUEST_FIELDS = [
    # employees
    Field("X1", "request_id", "id", "550e8400-e29b-41d4-a716-446655440000"),
    Field("X1", "origin_employee", "origin", "prime-boss"),
    Field("X1", "target_employee", "target", "byte-doc"),
    Field("X1", "user_id", "remit.user", "user-456"),
    Field("X1", "parent_session_id", "parent_session", "s-0"),
    Field("X1", "child_session_id", "session", "s-1"),
    Field("X1", "objective", "objective", "Extract receipt data"),
    Field("X1", "input", "input", "User uploaded receipt.jpg - extract all fields"),
    Field("X1", "constraints.max_tokens", "remit.tokens", 1200),
    Field("X1", "constraints.max_depth", "remit.max_depth", 1),
    Field("X1", "constraints.deadline_ms", "remit.time_ms", 15_000),
    Field("X1", "context_hints", "hints", ["receipt", "tax", "canadian"]),
    Field("X1", "handoff_data.facts", "handoff.facts", ["lives in Canada"]),
    Field("X1", "handoff_data.references", "handoff.references", [REFERENCE]),
    Field("X1", "handoff_data.intermediate_results", "handoff.prior_outputs", {"byte-doc": {"total": 12.5}}),
    Field("X1", "current_depth", "remit.depth", 2),
    Field("X1", "created_at", "created_ms", 1_760_000_000_000),
    Field("X14", "version", "version", "1.0"),
    # librarians
    Field("C2", "version", "version", "1.0"),
    Field("C2", "requestId", "id", "req-1"),
    Field("C2", "timestamp", "created_ms", 1_760_000_000_000),
    Field("C2", "timeout", "remit.time_ms", 1_000),
    Field("C3", "query", "objective", "Which papers mention it?"),
    Field("C3", "originalQuery", "handoff.original_request", "What is known of it?"),
    Field("C3", "delegationChain", "remit.chain", ["a@hub", "b@hub"]),
    Field("C3", "delegationDepth", "remit.depth", 2),
    Field("C3", "remainingTimeout", "remit.time_ms", 200),
    Field("C3", "startTime", "created_ms", 1_760_000_000_000),
    Field("C3", "parentSpanId", "parent", "run-1.2"),
    Field("C3", "delegationReason", "reason", "Complex domain query"),
    Field("C3", "refinedBy", "refined_by", "librarian-a"),
    Field("C3", "availableDelegates", "remit.targets", ["expert-librarian"]),
    # platform contract
    Field("K1", "source_agent", "origin", "CST"),
    Field("K1", "target_agent", "target", "ANL"),
    Field("K1", "capability_code", "capability", "ANL_NPV"),
    Field("K1", "request_id", "id", "sess-789-20250118-143022"),
    Field("K1", "inputs_json", "input", {"cash_flows": [-100_000, 25_000], "discount_rate": 0.12}),
    Field("K1", "priority", "remit.priority", "HIGH"),
    Field("K1", "timeout_ms", "remit.time_ms", 30_000),
    Field("K1", "context.session_id", "session", "sess-789"),
    Field("K1", "context.user_id", "remit.user", "user-456"),
    Field("K1", "context.engagement_type", "handoff.data", {"engagement_type": "business_case"}),
    Field("K1", "correlation_id", "correlation", "workflow-7"),
    Field("K5", "session_id", "session", "sess-789"),
    Field("K5", "user", "remit.user", "user-456"),
    Field("K5", "conversation history reference", "handoff.history", "sess-789"),
    Field("K5", "original_request", "handoff.original_request", "Help me build a business case for market entry"),
    Field("K5", "workflow_position", "handoff.position", "Step 3 of 5 (Financial Analysis)"),
    Field("K5", "prior_agents", "handoff.prior_agents", ["ORC", "CST"]),
    Field("K5", "prior_outputs", "handoff.prior_outputs", {"cst_scenarios": ["conservative", "base"]}),
    Field("K5", "decisions already made", "handoff.decisions", ["enter by partnership"]),
    Field("K5", "constraints", "handoff.constraints", {"budget_range": [1_000_000, 5_000_000]}),
    Field("K5", "findings", "handoff.findings", ["the market grows"]),
    Field("K5", "data gathered", "handoff.data", {"growth_rate": 0.15}),
    Field("K5", "assumptions in effect", "handoff.assumptions", ["no new tariffs"]),
]

RESPONSE_FIELDS = [
    # employees
    Field("X2", "request_id", "id", "550e8400-e29b-41d4-a716-446655440000"),
    Field("X2", "target_employee", "target", "byte-doc"),
    Field("X2", "summary", "summary", "Receipt read."),
    Field("X2", "result", "result", "The receipt is from May."),
    *(
        Field("X2", f"artifacts ({kind})", "artifacts", [{"type": kind, "value": value, "label": "May"}])
        for kind, value in {
            "table": [["rent", 900]],
            "json": {"rent": 900},
            "url": "https://example.org/r",
            "id": "r-1",
            "file": "receipt.jpg",
        }.items()
    ),
    Field("X2", "new_facts", "new_facts", ["pays rent monthly"]),
    Field("X2", "used_sources", "sources", [SOURCE]),
    Field("X2", "token_usage.prompt", "usage.prompt", 100),
    Field("X2", "token_usage.completion", "usage.completion", 50),
    Field("X2", "token_usage.total", "usage", {"prompt": 100, "completion": 50}, ("usage.total", 150)),
    Field("X2", "duration_ms", "duration_ms", 1_234),
    Field("X2", "child_session_id", "session", "s-1"),
    Field("X2", "confidence", "confidence", 0.85),
    Field("X2", "requires_followup", "requires_followup", True),
    *(Field("X2", f"status ({status})", "status", status) for status in ("success", "partial", "failed")),
    Field("X2", "error", "fault", {"code": "TIMEOUT", "message": "Delegation timeout after 5000ms"}),
    # platform contract
    Field("K2", "request_id", "id", "sess-789-20250118-143022"),
    *(
        Field("K2", f"status ({theirs})", "status", ours)
        for theirs, ours in {
            "SUCCESS": "success",
            "PARTIAL": "partial",
            "ERROR": "failed",
            "TIMEOUT": "timeout",
        }.items()
    ),
    Field("K2", "result_json", "result", {"npv": 24_156.72, "currency": "USD"}),
    Field("K2", "confidence_level", "confidence", 0.8),
    Field(
        "K2",
        "error_code",
        "fault",
        {"code": "DATA_MISSING_REQUIRED_INPUT", "message": "the input of ANL_NPV lacks discount_rate"},
    ),
    Field("K2", "error_message", "fault", {"code": "INPUT_VALIDATION_FAILED", "message": "At least two values"}),
    Field("K2", "warnings", "warnings", ["Growth rate based on 2023 data"]),
    Field("K2", "metadata.processing_time_ms", "duration_ms", 245),
    Field("K2", "metadata.source_version", "agent_version", "2.1"),
    Field("K2", "metadata.capability_version", "capability_version", "1.1"),
    Field("K2", "metadata.cache_status", "cache", "hit"),
    Field("K2", "metadata", "metadata", {"region": "eu"}),
    # sub-agents
    Field("O7", "agent_name", "target", "coder"),
    Field("O7", "success", "status", "success", ("ok", True)),
    Field("O7", "success (false)", "status", "failed", ("ok", False)),
    Field("O7", "output", "result", "I've implemented the function"),
    Field("O7", "tool_calls", "tool_calls", ["read", "write", "edit"]),
    Field("O7", "tokens_used", "usage", {"prompt": 3_000, "completion": 245}, ("usage.total", 3_245)),
    Field("O7", "duration_seconds", "duration_ms", 12_000),
    Field("O7", "errors", "fault", {"code": "DELEGATION_FAILED", "message": "the tests do not pass"}),
]

CALL_FIELDS = [
    Field("O1", "agent_name", "target", "coder"),
    Field("O1", "task", "objective", "Implement the user_auth function"),
    Field("O1", "context.last_messages", "context.last_messages", 3),
    Field("O1", "context.roles", "context.roles", ["assistant", "user"]),
    Field("O1", "context.keywords", "context.keywords", ["auth"]),
    Field("O1", "context.include_summary", "context.include_summary", True),
    Field("O1", "context.include_workspace", "context.include_workspace", True),
    Field("O1", "context.workspace_files", "context.workspace_files", ["src/auth/user.rs"]),
    Field("O1", "context.max_age_seconds", "context.max_age_seconds", 600),
    Field("O1", "input", "input", {"cost": 12}),
    Field("O1", "max_context_tokens", "context_tokens", 6_000),
    Field("O1", "allowed_tools", "tools", ["edit", "read", "write"]),
    Field("O1", "allow_nested_calls", "may_delegate", False),
    # An answer that is itself a delegation.
    Field("C3", "delegate.to", "target", "expert-librarian"),
    Field("C3", "delegate.query", "objective", "refined query"),
    Field("C3", "delegate.context.reason", "reason", "Complex domain query"),
]

CARD_FIELDS = [
    Field("X11", "tools_allowed", "tools", ["read"]),
    Field("O5", "allow_sub_agent_calls", "allow_sub_agent_calls", True),
    Field("O5", "max_sub_agent_depth", "max_sub_agent_depth", 5),
    Field("K1", "registered capability", "capabilities", [{"code": "ANL_NPV", "input_schema": {"type": "object"}}]),
]


def put(plain: Plain, home: str, value: Any) -> Plain:
    """Return *plain* with *value* at *home*."""
    name, _, rest = home.partition(".")
    return plain | {name: put(plain.get(name, {}), rest, value) if rest else value}


def at(value: Any, home: str) -> Any:
    for name in home.split("."):
        value = getattr(value, name)
    return value


def plainly(value: Any) -> Any:
    return msgspec.json.decode(encode(value))


def lives_where_it_is_said(field: Field, value: Any, again: Any) -> None:
    assert plainly(at(value, field.home)) == field.value
    assert again == value
    if field.shows:
        assert at(value, field.shows[0]) == field.shows[1]


@pytest.mark.parametrize("field", REQUEST_FIELDS, ids=str)
def test_a_field_of_a_request_has_its_home(field: Field) -> None:
    """X1, C3, K1, K5: every field has one canonical home, and crosses the wire there."""
    request: Request = decode_request(encode(put(plainly(a_request()), field.home, field.value)))
    lives_where_it_is_said(field, request, decode_request(encode(request)))


@pytest.mark.parametrize("field", RESPONSE_FIELDS, ids=str)
def test_a_field_of_a_response_has_its_home(field: Field) -> None:
    """X2, K2, O7: every field has one canonical home, and crosses the wire there."""
    response: Response = decode_response(encode(put(plainly(a_response()), field.home, field.value)))
    lives_where_it_is_said(field, response, decode_response(encode(response)))


@pytest.mark.parametrize("field", CALL_FIELDS, ids=str)
def test_a_field_of_a_wanted_call_has_its_home(field: Field) -> None:
    """O1, C3: every field has one canonical home, and crosses the wire there."""
    call = decode(encode(put({}, field.home, field.value)), Call)
    lives_where_it_is_said(field, call, decode(encode(call), Call))


@pytest.mark.parametrize("field", CARD_FIELDS, ids=str)
def test_a_field_of_a_card_has_its_home(field: Field) -> None:
    """X11, O5, K1: what a team says of an agent has one canonical home."""
    card = decode(encode(put(plainly(a_card()), field.home, field.value)), AgentCard)
    lives_where_it_is_said(field, card, decode(encode(card), AgentCard))


@pytest.mark.parametrize("fields", [REQUEST_FIELDS, RESPONSE_FIELDS, CALL_FIELDS, CARD_FIELDS])
def test_no_field_of_a_document_has_two_homes(fields: list[Field]) -> None:
    names = [(field.id, field.name) for field in fields]
    assert len(names) == len(set(names))


def test_what_a_caller_leaves_open_takes_the_defaults_of_the_team() -> None:
    """O1: max_context_tokens, allowed_tools and the filter may be left out; K1: so may priority and timeout_ms."""
    assert decode(b"{}", Call) == Call(
        target=None,
        max_tokens=None,
        deadline_ms=None,
        context_tokens=None,
        tools=None,
        priority=None,
        context=None,
        may_delegate=True,
    )
