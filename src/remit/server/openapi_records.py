"""The part of the OpenAPI document about the audit log, conversations and workflows."""

from typing import Any

from remit.documents.api_sessions import SessionList, SessionView
from remit.documents.workflows import RunWorkflows
from remit.protocol.records import Kind
from remit.server.audit_endpoints import AuditPage, AuditRowView, FoundRecords
from remit.server.audit_verification import AuditVerification
from remit.server.openapi_parts import Document, in_path, look, query_parameter, reply

RECORD_TYPES = (AuditPage, AuditRowView, AuditVerification, FoundRecords, RunWorkflows, SessionList, SessionView)

_KINDS = [str(kind) for kind in Kind if kind is not Kind.DELTA]
_ONE_KIND = f"({'|'.join(_KINDS)})"
_TIMES = [
    query_parameter("since", "integer", "Only what happened at this time or later, in milliseconds since 1970."),
    query_parameter("until", "integer", "Only what happened at this time or earlier, in milliseconds since 1970."),
]
_KIND = query_parameter("kind", "string", f"Only records of these kinds, separated by commas: {', '.join(_KINDS)}.")
_KIND["schema"]["pattern"] = f"^({_ONE_KIND}(,{_ONE_KIND})*)?$"
_FILTERS = [
    query_parameter("run", "string", "Only records of this run."),
    query_parameter("session", "string", "Only records of this conversation."),
    _KIND,
    query_parameter("user", "string", "Only records of this user's runs."),
    query_parameter("agent", "string", "Only records about this agent."),
    *_TIMES,
]
_LIMIT = query_parameter("limit", "integer", "Maximum number of results.")


def record_paths(ref: dict[Any, Any]) -> Document:
    """Return the operations about the audit log, conversations and workflows."""
    workflows = reply("The workflows, the outermost first.", ref[RunWorkflows])
    summary = "The workflows that a run follows, with the state of each step."
    workflow = look("workflow", summary, workflows, ref, [in_path("run", "The run.")])
    return {"/v1/runs/{run}/workflow": {"get": workflow}, **_audit_paths(ref), **_session_paths(ref)}


def _audit_paths(ref: dict[Any, Any]) -> Document:
    verification = reply("The newest verification.", ref[AuditVerification])
    lines = {
        "description": "The records, one JSON document per line, newest first.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
    rows = look(
        "audit",
        "The audit log, from its oldest record on.",
        reply("A page of records.", ref[AuditPage]),
        ref,
        [query_parameter("after", "integer", "Only records after this number."), _LIMIT, _FILTERS[0]],
    )
    search = look(
        "search_audit",
        "The records of the audit log that a filter selects, newest first.",
        reply("A page of records.", ref[FoundRecords]),
        ref,
        [query_parameter("before", "integer", "The `next` of the page before."), _LIMIT, *_FILTERS],
    )
    row = look(
        "audit_row",
        "One row of the audit log with its digest.",
        reply("The row.", ref[AuditRowView]),
        ref,
        [in_path("seq", "The number of the row.")],
    )
    look_at = look("verification", "Whether the audit log is intact.", verification, ref)
    look_at["description"] = (
        "The first request verifies the whole log in the background, later ones what was recorded since."
    )
    again = look("verify", "Verify the whole audit log again, in the background.", verification, ref)
    return {
        "/v1/audit": {"get": rows},
        "/v1/audit/search": {"get": search},
        "/v1/audit/export": {"get": look("export_audit", "The audit log as JSON lines.", lines, ref, _FILTERS)},
        "/v1/audit/verification": {"get": look_at, "post": again},
        "/v1/audit/{seq}": {"get": row},
    }


def _session_paths(ref: dict[Any, Any]) -> Document:
    before = query_parameter("before", "integer", "The `next` of the page before.")
    return {
        "/v1/sessions": {
            "get": look(
                "sessions",
                "Conversations, the one with the newest request first.",
                reply("A page of conversations.", ref[SessionList]),
                ref,
                [
                    query_parameter("user", "string", "Only conversations of this user."),
                    query_parameter("agent", "string", "Only conversations with this agent."),
                    query_parameter("q", "string", "Only those whose last objective or id contains this text."),
                    *_TIMES,
                    before,
                    _LIMIT,
                ],
            )
        },
        "/v1/sessions/{id}": {
            "get": look(
                "session",
                "A conversation: its newest messages and its notes.",
                reply("The conversation.", ref[SessionView]),
                ref,
                [in_path("id", "The session."), before, _LIMIT],
            )
        },
    }
