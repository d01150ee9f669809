"""The page of HTTP endpoints, from the OpenAPI document and the table of permissions."""

from typing import Any

from remit.server.access import Access, access_to
from remit.server.openapi import document

HEAD = """\
# HTTP endpoints

Every endpoint of `remit serve`. `GET /openapi.json` of a running server describes them for programs, with all
parameters, bodies and answers, and `/docs` shows that in a browser. [Serving agents over HTTP](serving.md) explains how
to ask, who may come and what is refused. This page is made from the code; `make docs` makes it anew.

*Who* may use it: `anyone`; a client with a token (`known`); a client with that permission. *Others'* is the permission
that a client needs for runs of users that are not its own.
"""

TAIL = """
## Other protocols

| address | protocol |
|---|---|
| `/mcp` | the agents as tools of an MCP host: [MCP](../how-to/mcp.md) |
| `/a2a/{agent}`, `/.well-known/agent-card.json` | the agents by A2A: [A2A](../how-to/a2a.md) |
| `/v1/shared/…` | runs with other people's devices, on this machine alone: [The local API](relay-api.md) |
"""

METHODS = ("get", "post", "put", "patch", "delete")


def http_page() -> str:
    """Return the page of endpoints, grouped as the OpenAPI document groups them."""
    described: dict[str, Any] = document()
    operations = [
        (path, method, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    ]
    parts = [HEAD]
    for tag in described["tags"]:
        rows = [_row(*each) for each in operations if tag["name"] in each[2]["tags"]]
        parts.append(f"\n## {tag['name'].capitalize()}\n\n{tag['description']}\n\n")
        parts.append("| endpoint | what it does | who | others' |\n|---|---|---|---|\n" + "".join(rows))
    return "".join(parts) + TAIL


def _row(path: str, method: str, operation: dict[str, Any]) -> str:
    access = access_to(method.upper(), path.replace("/{rest}", "/{rest:path}"))
    others = f"`{access.others}`" if access.others else ""
    return f"| `{method.upper()} {path}` | {operation['summary']} | {_who(access)} | {others} |\n"


def _who(access: Access) -> str:
    if access.needs is not None:
        return f"`{access.needs}`"
    return "anyone" if access.anyone else "known"
