"""Who may use which address, and see which runs: one table for the server and its OpenAPI document."""

from msgspec import Struct

from remit.policy.reception import Permission, Sender
from remit.runtime.ports import ANYONES, RunScope, RunSummary


class Access(Struct, frozen=True, kw_only=True):
    """Who may use an address."""

    anyone: bool = False
    """Whether unauthenticated requests are allowed. If not, authenticated senders may use it for what is their own."""
    needs: Permission | None = None
    """The permission required to use the address at all."""
    others: Permission | None = None
    """The permission required to use it for what belongs to others."""


ACCESS = "remit.access"
"""The key of the ASGI scope under which the access rule of the address is stored."""

_KNOWN, _ANYONE = Access(), Access(anyone=True)
_READ, _CONTROL = Access(others=Permission.READ), Access(others=Permission.CONTROL)

# Over A2A and MCP every sender sees only its own runs, whatever its permissions: hosts pass on to models what they get.
TABLE: dict[tuple[str, str], Access] = {
    ("POST", "/v1/delegations"): _KNOWN,
    ("GET", "/v1/delegations/{id}"): _READ,
    ("GET", "/v1/delegations/{id}/events"): _READ,
    ("POST", "/v1/delegations/{id}/cancel"): _CONTROL,
    ("GET", "/v1/agents"): _KNOWN,
    ("GET", "/v1/agents/{name}"): _KNOWN,
    ("GET", "/v1/runs"): _READ,
    ("GET", "/v1/runs/{run}"): _READ,
    ("GET", "/v1/audit"): Access(needs=Permission.READ),
    ("GET", "/metrics"): Access(needs=Permission.METRICS),
    ("POST", "/dialects/{name}"): _KNOWN,
    ("POST", "/dialects/{name}/{rest:path}"): _KNOWN,
    ("GET", "/mcp"): _KNOWN,
    ("POST", "/mcp"): _KNOWN,
    ("DELETE", "/mcp"): _KNOWN,
    ("GET", "/openapi.json"): _ANYONE,
    ("GET", "/healthz"): _ANYONE,
    ("GET", "/readyz"): _ANYONE,
    ("GET", "/.well-known/agent-card.json"): _ANYONE,
    ("GET", "/.well-known/jwks.json"): _ANYONE,
    ("*", "/a2a/{agent}"): _KNOWN,
    ("*", "/a2a/{agent}/{path:path}"): _KNOWN,
}


def access_to(method: str, path: str) -> Access:
    """Return who may use an address of the server, given the pattern of its path."""
    return TABLE.get((method, path)) or TABLE["*", path]


def visible(sender: Sender, others: Permission | None = None) -> RunScope:
    """Return the runs that a sender may see: those that it could have asked for; all, with the permission *others*."""
    if others is not None and others in sender.may:
        return ANYONES
    return RunScope(users=sender.users, agents=sender.targets, via=sender.name if sender.is_hub else None)


def may_see(sender: Sender, summary: RunSummary, others: Permission | None = None) -> bool:
    """Say whether a sender may see a run."""
    users, agents, via = visible(sender, others)
    return (
        (users is None or summary.user in users)
        and (agents is None or summary.agent in agents)
        and via in (None, summary.via)
    )
