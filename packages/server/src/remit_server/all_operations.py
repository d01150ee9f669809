"""Every operation of the HTTP API, each declared once: those of the client in `documents/api.py`, the others here."""

from typing import Any, Literal, get_args

from remit.policy.reception import Permission
from remit_server.audit_endpoints import AuditPage, AuditRowView, AuditVerification, FoundRecords
from remit_server.delegation_views import DelegationDetail
from remit_server.dialects import NAMES
from remit_server.documents.api import (
    AGENT,
    CLIENT_OPERATIONS,
    KINDS,
    PAGE_BEFORE,
    RUN,
    TIMES,
    ApiOperation,
    Parameter,
    page_size,
)
from remit_server.documents.api_values import RunTable
from remit_server.documents.spend import (
    AgentGraph,
    AgentPage,
    BudgetState,
    Series,
    SeriesOf,
    SeriesStep,
    SpendBy,
    SpendTable,
)
from remit_server.documents.verdicts import Guards
from remit_server.documents.workflows import RunWorkflows
from remit_server.policy_endpoints import PolicyAnswer, PolicyQuestion, TeamView
from remit_server.public_console import CONSOLE, ENTER, LINKS, SIGN_IN, SIGN_OUT
from remit_server.session_endpoints import ErasedUser

_READ = Permission.READ
_TEXT = "text/plain"
_FILTERS = (
    Parameter(name="run", meaning="Only records of this run."),
    Parameter(name="session", meaning="Only records of this conversation."),
    Parameter(name="kind", meaning="Only records of these kinds.", some_of=KINDS),
    Parameter(name="user", meaning="Only records of this user's runs."),
    Parameter(name="agent", meaning="Only records about this agent."),
    *TIMES,
)
_PERIOD = (
    Parameter(name="since_ms", kind="integer", meaning="Begin of the period, in milliseconds since 1970."),
    Parameter(name="until_ms", kind="integer", meaning="End of the period; without it, now."),
)
_SPENT = (
    Parameter(name="user", meaning="Only this user."),
    Parameter(name="agent", meaning="Only this agent."),
    Parameter(name="capability", meaning="Only this capability."),
    Parameter(name="model", meaning="Only this model."),
)
_ROWS = (
    Parameter(name="after", kind="integer", meaning="Skip so many rows."),
    page_size(meaning="Maximum number of rows."),
)

# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

TREE = ApiOperation(
    method="GET",
    path="/v1/runs/{run}/tree",
    name="tree",
    summary="All delegations of a run in columns, or those that changed.",
    description="Columns are small: ten thousand delegations take some hundred kilobytes with gzip.",
    answer=RunTable,
    parameters=(
        RUN,
        Parameter(name="after", kind="integer", meaning="Only delegations that changed after this record."),
    ),
    is_large=True,
    others=_READ,
)
WORKFLOW = ApiOperation(
    method="GET",
    path="/v1/runs/{run}/workflow",
    name="workflow",
    summary="The workflows that a run follows, with the state of each step.",
    answer=RunWorkflows,
    parameters=(RUN,),
    others=_READ,
)
DELEGATION = ApiOperation(
    method="GET",
    path="/v1/runs/{run}/delegations/{path}",
    name="delegation_detail",
    summary="One delegation: its remit, what its callee saw, the verdicts, the answer and its records.",
    answer=DelegationDetail,
    parameters=(
        RUN,
        Parameter(
            name="path",
            place="path",
            meaning="The path of the delegation: the id of the run for the first one, `run.2.1` for others.",
        ),
    ),
    others=_READ,
)

# ── agents, figures ───────────────────────────────────────────────────────────────────────────────────────────────────

AGENT_STATUS = ApiOperation(
    method="GET",
    path="/v1/agents/{name}/status",
    name="agent_status",
    summary="The state of one agent: load, breaker, ranking, last errors.",
    answer=AgentPage,
    parameters=(AGENT,),
    needs=_READ,
)
GRAPH = ApiOperation(
    method="GET",
    path="/v1/graph",
    name="graph",
    summary="The agents with their load, who may call whom, and who did.",
    answer=AgentGraph,
    parameters=_PERIOD,
    needs=_READ,
)
SPEND = ApiOperation(
    method="GET",
    path="/v1/spend",
    name="spend",
    summary="What was spent, by user, agent, capability, day or model.",
    answer=SpendTable,
    parameters=(
        Parameter(name="by", meaning="What the rows are about (default: `agent`).", one_of=get_args(SpendBy)),
        *_PERIOD,
        *_SPENT,
        *_ROWS,
    ),
    others=_READ,
)
SERIES = ApiOperation(
    method="GET",
    path="/v1/series",
    name="series",
    summary="Figures over time.",
    answer=Series,
    parameters=(
        Parameter(name="what", meaning="What is shown (default: `runs`).", one_of=get_args(SeriesOf)),
        Parameter(name="step", meaning="Length of a step (default: `hour`).", one_of=get_args(SeriesStep)),
        *_PERIOD,
        *_SPENT,
    ),
    others=_READ,
)
BUDGETS = ApiOperation(
    method="GET",
    path="/v1/budgets",
    name="budgets",
    summary="The limits in force, and what is used of them now.",
    answer=BudgetState,
    others=_READ,
)

# ── policy, record, users ─────────────────────────────────────────────────────────────────────────────────────────────

EXPLAIN = ApiOperation(
    method="POST",
    path="/v1/policy/explain",
    name="policy_explain",
    summary="What would happen to a call, optionally with a draft of the team file.",
    takes=PolicyQuestion,
    answer=PolicyAnswer,
    needs=_READ,
)
GUARDS = ApiOperation(
    method="GET",
    path="/v1/policy/guards",
    name="policy_guards",
    summary="The guards in order.",
    answer=Guards,
    needs=_READ,
)
TEAM = ApiOperation(
    method="GET",
    path="/v1/team",
    name="team",
    summary="The limits and permissions in force.",
    answer=TeamView,
    needs=_READ,
)
AUDIT = ApiOperation(
    method="GET",
    path="/v1/audit",
    name="audit",
    summary="The audit log, from its oldest record on.",
    answer=AuditPage,
    parameters=(
        Parameter(name="after", kind="integer", meaning="Only records after this number."),
        page_size(),
        _FILTERS[0],
    ),
    needs=_READ,
)
SEARCH_AUDIT = ApiOperation(
    method="GET",
    path="/v1/audit/search",
    name="search_audit",
    summary="The records of the audit log that a filter selects, newest first.",
    answer=FoundRecords,
    parameters=(PAGE_BEFORE, page_size(), *_FILTERS),
    needs=_READ,
)
EXPORT_AUDIT = ApiOperation(
    method="GET",
    path="/v1/audit/export",
    name="export_audit",
    summary="The audit log as JSON lines.",
    description="The records, one JSON document per line, newest first.",
    media="application/x-ndjson",
    parameters=_FILTERS,
    needs=_READ,
)
VERIFICATION = ApiOperation(
    method="GET",
    path="/v1/audit/verification",
    name="verification",
    summary="Whether the audit log is intact.",
    description="The first request verifies the whole log in the background, later ones what was recorded since.",
    answer=AuditVerification,
    needs=_READ,
)
VERIFY = ApiOperation(
    method="POST",
    path="/v1/audit/verification",
    name="verify",
    summary="Verify the whole audit log again, in the background.",
    answer=AuditVerification,
    needs=_READ,
)
AUDIT_ROW = ApiOperation(
    method="GET",
    path="/v1/audit/{seq}",
    name="audit_row",
    summary="One row of the audit log with its digest.",
    answer=AuditRowView,
    parameters=(Parameter(name="seq", place="path", meaning="The number of the row."),),
    needs=_READ,
)
ERASE = ApiOperation(
    method="DELETE",
    path="/v1/users/{user}",
    name="erase",
    summary="Erase a user with everything that is kept about them.",
    answer=ErasedUser,
    parameters=(Parameter(name="user", place="path", meaning="The user."),),
    needs=Permission.ERASE,
)

# ── other envelopes ───────────────────────────────────────────────────────────────────────────────────────────────────

_DIALECT = Parameter(name="name", place="path", meaning="The dialect.", one_of=NAMES)
_SPEAK = "Ask in the envelope of another system."
_ENVELOPES = "The documents of each dialect define its requests and responses."
SPEAK = ApiOperation(
    method="POST",
    path="/dialects/{name}",
    name="speak",
    summary=_SPEAK,
    description=_ENVELOPES,
    takes=dict[str, Any],
    answer=Any,
    failure=Any,
    parameters=(_DIALECT,),
)
SPEAK_AT = ApiOperation(
    method="POST",
    path="/dialects/{name}/{rest:path}",
    name="speak_at",
    summary=_SPEAK,
    description=_ENVELOPES,
    takes=dict[str, Any],
    answer=Any,
    failure=Any,
    parameters=(
        _DIALECT,
        Parameter(
            name="rest", place="path", meaning="The path that clients of the dialect append, or the agent to ask."
        ),
    ),
)

# ── the server itself ─────────────────────────────────────────────────────────────────────────────────────────────────

METRICS = ApiOperation(
    method="GET",
    path="/metrics",
    name="metrics",
    summary="Metrics for Prometheus.",
    media=_TEXT,
    needs=Permission.METRICS,
)
OPENAPI = ApiOperation(
    method="GET",
    path="/openapi.json",
    name="openapi",
    summary="This document.",
    answer=dict[str, Any],
    failure=None,
    anyone=True,
)
DOCS = ApiOperation(
    method="GET",
    path="/docs",
    name="docs",
    summary="This document as a page for people.",
    media="text/html",
    also=((503, None),),
    failure=None,
    anyone=True,
)
HEALTHZ = ApiOperation(
    method="GET",
    path="/healthz",
    name="healthz",
    summary="Whether the process is alive.",
    media=_TEXT,
    failure=None,
    anyone=True,
)
READYZ = ApiOperation(
    method="GET",
    path="/readyz",
    name="readyz",
    summary="Whether the server accepts requests.",
    media=_TEXT,
    also=((503, None),),
    failure=None,
    anyone=True,
)

OPERATIONS = (
    *CLIENT_OPERATIONS,
    *(TREE, DELEGATION, WORKFLOW),
    *(AGENT_STATUS, GRAPH, SPEND, SERIES, BUDGETS),
    *(EXPLAIN, GUARDS, TEAM),
    *(AUDIT, SEARCH_AUDIT, EXPORT_AUDIT, VERIFICATION, VERIFY, AUDIT_ROW),
    ERASE,
    *(CONSOLE, SIGN_IN, SIGN_OUT, ENTER, LINKS),
    *(SPEAK, SPEAK_AT),
    *(OPENAPI, DOCS, METRICS, HEALTHZ, READYZ),
)
"""Every operation that the OpenAPI document describes."""

# ── other protocols ───────────────────────────────────────────────────────────────────────────────────────────────────


def _mcp(method: Literal["GET", "POST", "DELETE"]) -> ApiOperation:
    meaning = "The agents as tools of an MCP host: [MCP](../how-to/mcp.md)."
    return ApiOperation(method=method, path="/mcp", name=f"mcp_{method.lower()}", summary=meaning)


MCP = tuple(map(_mcp, ("GET", "POST", "DELETE")))
A2A_CARD = ApiOperation(
    method="GET",
    path="/.well-known/agent-card.json",
    name="a2a_card",
    summary="The card of the default A2A agent.",
    anyone=True,
)
A2A_KEYS = ApiOperation(
    method="GET",
    path="/.well-known/jwks.json",
    name="a2a_keys",
    summary="The keys that sign cards of A2A agents.",
    anyone=True,
)
# Over A2A and MCP every sender sees only its own runs, and values in clear only of those that it asked for itself,
# whatever its permissions: hosts pass on to models what they get.
A2A_AGENT = ApiOperation(
    method="*",
    path="/a2a/{agent}",
    name="a2a_agent",
    summary="An agent by A2A, with any method: [A2A](../how-to/a2a.md).",
)
A2A_PATH = ApiOperation(
    method="*",
    path="/a2a/{agent}/{path:path}",
    name="a2a_path",
    summary="The same; its card (`.well-known/agent-card.json`) is for anyone.",
)

PROTOCOLS = (*MCP, A2A_CARD, A2A_KEYS, A2A_AGENT, A2A_PATH)
"""The operations that documents of other protocols describe."""
