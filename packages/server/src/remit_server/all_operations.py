"""Every operation of the HTTP API; each is declared with the method that answers it."""

from remit_server.agent_endpoints import AgentEndpoints
from remit_server.approval_endpoints import ApprovalEndpoints
from remit_server.audit_endpoints import AuditEndpoints
from remit_server.console.pages import ApiDocs
from remit_server.delegation_endpoints import DelegationEndpoints
from remit_server.dialect_endpoints import DialectEndpoints
from remit_server.documents.api import BROWSER_OPERATIONS, ApiOperation
from remit_server.event_endpoints import EventEndpoints
from remit_server.figures_endpoints import FiguresEndpoints
from remit_server.mcp.endpoint import MCP
from remit_server.operations import get, operations_of
from remit_server.policy_endpoints import PolicyEndpoints
from remit_server.run_endpoints import RunEndpoints
from remit_server.server_endpoints import ServerEndpoints
from remit_server.session_endpoints import SessionEndpoints, UserEndpoints

OPERATIONS = (
    *operations_of(
        DelegationEndpoints,
        AgentEndpoints,
        RunEndpoints,
        EventEndpoints,
        FiguresEndpoints,
        ApprovalEndpoints,
        SessionEndpoints,
        PolicyEndpoints,
        AuditEndpoints,
        UserEndpoints,
    ),
    *BROWSER_OPERATIONS,
    *operations_of(DialectEndpoints, ApiDocs, ServerEndpoints),
)
"""Every operation that the OpenAPI document describes."""

# What answers these is loaded only where A2A is served. Over A2A and MCP every sender sees only its own runs, and
# values in clear only of those that it asked for itself, whatever its permissions: hosts pass them on to models.
A2A_CARD = get(
    "/.well-known/agent-card.json", name="a2a_card", summary="The card of the default A2A agent.", anyone=True
)
A2A_KEYS = get(
    "/.well-known/jwks.json", name="a2a_keys", summary="The keys that sign cards of A2A agents.", anyone=True
)
A2A_SCHEMA = get(
    "/.well-known/remit-delegation-v1.json",
    name="a2a_schema",
    summary="The JSON Schema of [the A2A extension](a2a-extension.md).",
    anyone=True,
)
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

PROTOCOLS = (*MCP, A2A_CARD, A2A_KEYS, A2A_SCHEMA, A2A_AGENT, A2A_PATH)
"""The operations that documents of other protocols describe."""
