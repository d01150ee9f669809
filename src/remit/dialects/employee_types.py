"""The types of the inter-agent protocol 1.0, field by field."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.protocol.envelope import Artifact, Json, Text
from remit.protocol.remit import Count, Name


class EmployeeConstraints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget of a delegation; a callee's depth must stay below `max_depth`."""

    max_tokens: Count = 1_200
    max_depth: Count = 2
    deadline_ms: Count = 15_000


class Reference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document or record, and its owner."""

    owner_scope: Name
    source_id: Name


class HandoffData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the target may know of the work so far."""

    facts: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    intermediate_results: Json = None


class DelegationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One employee asks another."""

    request_id: Name
    origin_employee: Name
    target_employee: Name
    user_id: Name
    parent_session_id: Name
    objective: Text
    input: str
    constraints: EmployeeConstraints
    context_hints: tuple[str, ...]
    handoff_data: HandoffData
    child_session_id: Name | None = None
    current_depth: Count | None = None
    created_at: str | None = None
    version: str | None = None
    """Of the protocol: version 1.0 has no such field yet, later ones will."""


class UsedSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A consulted source; the document does not define the scale of relevance."""

    owner_scope: Name
    source_id: Name
    relevance: float | None = None


class TokenUsage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the target spent."""

    prompt: Count
    completion: Count
    total: Count


class DelegationResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The outcome of a delegation."""

    request_id: Name
    target_employee: Name
    summary: str
    result: str
    token_usage: TokenUsage
    status: Literal["success", "partial", "failed"]
    artifacts: tuple[Artifact, ...] = ()
    new_facts: tuple[str, ...] = ()
    used_sources: tuple[UsedSource, ...] = ()
    duration_ms: Count | None = None
    child_session_id: Name | None = None
    confidence: Annotated[float, Meta(ge=0, le=100)] | None = None
    requires_followup: bool = False
    error: str | None = None
