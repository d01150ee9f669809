"""What makes the OpenAPI document easy to read for people and tools: groups, descriptions, schemas without traps."""

from typing import Any, cast

from remit.server.openapi_parts import Document

TAGS = {
    "delegations": "Ask agents, follow and cancel what they do.",
    "runs": "Runs of all users: search, trees, one delegation in full, retry and resume.",
    "agents": "The agents, how they are doing, and who calls whom.",
    "approvals": "Questions to people, and their answers.",
    "policy": "Why a call is allowed or refused, and the limits in force.",
    "figures": "Tokens, costs and figures over time.",
    "sessions": "Conversations.",
    "audit": "The record, and whether it is intact.",
    "users": "What is kept about users.",
    "console": "Sessions of browsers.",
    "dialects": "The same in envelopes of other systems.",
    "server": "The state of the server itself.",
}

# The group of an address by its first part after `/v1/`; others are the server's.
_GROUPS = {
    "delegations": "delegations",
    "runs": "runs",
    "events": "runs",
    "agents": "agents",
    "graph": "agents",
    "approvals": "approvals",
    "policy": "policy",
    "team": "policy",
    "spend": "figures",
    "series": "figures",
    "budgets": "figures",
    "sessions": "sessions",
    "audit": "audit",
    "users": "users",
    "console": "console",
}


def tagged(paths: Document) -> Document:
    """Return the operations, each with its group and a description."""
    for path, operations in paths.items():
        for operation in operations.values():
            operation["tags"] = [_group(path)]
            operation.setdefault("description", operation["summary"])
    return paths


def _group(path: str) -> str:
    _, first, *rest = path.split("/")
    return "dialects" if first == "dialects" else _GROUPS.get(rest[0] if first == "v1" and rest else "", "server")


def valid(value: Any) -> Any:
    """Return schemas without defaults that they forbid, and with `items` at every array, which many tools want."""
    if isinstance(value, list):
        return [valid(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    made: Document = {name: valid(each) for name, each in cast("Document", value).items()}
    if made.get("default") == "" and made.get("minLength", 0) > 0:
        del made["default"]
    if made.get("type") == "array" and not made.get("items"):
        made["items"] = {}  # where it was false, the number of items bounds it
    return made
