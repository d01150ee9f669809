"""The page of HTTP endpoints, from the OpenAPI document and the table of permissions."""

from typing import Any

from remit.server.access import TABLE, Access, access_to
from remit.server.openapi import document

HEAD = """\
# HTTP endpoints

Every endpoint of `remit serve`. [Serve agents over HTTP](../how-to/serving.md) starts a server, [The HTTP
API](http-api.md) explains how to ask. This page is made from the code; `make docs` makes it anew.

`GET /openapi.json` of a running server describes all parameters, bodies and answers for programs, from the same types
that the server reads. `GET /docs` shows them in a browser, with a command for each, and loads nothing from other hosts.
Neither needs a token: they describe the server, not its data.

*Who* may use it: `anyone`; a client with a token (`known`); a client with that permission. *Others'* is the
[permission](http-api.md#who-may-do-what) that a client needs for what belongs to other users.
"""

PROTOCOLS = {
    "/mcp": "The agents as tools of an MCP host: [MCP](../how-to/mcp.md).",
    "/a2a/{agent}": "An agent by A2A, with any method: [A2A](../how-to/a2a.md).",
    "/a2a/{agent}/{path}": "The same; its card (`.well-known/agent-card.json`) is for anyone.",
    "/.well-known/agent-card.json": "The card of the default A2A agent.",
    "/.well-known/jwks.json": "The keys that sign cards of A2A agents.",
}
"""What the OpenAPI document leaves to the documents of other protocols."""

TAIL = """
The endpoints below `/v1/console` are served with `--console` only ([The console](../how-to/console.md)).
`/v1/shared/…` has runs with other people's devices, on this machine alone: [The local API](relay-api.md).
"""

TITLES = "| endpoint | what it does | who | others' |\n|---|---|---|---|\n"
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
        parts.append(TITLES + "".join(rows))
    others = {(method, path.replace(":path", "")): access for (method, path), access in TABLE.items()}
    rows = [
        _line(method, path, PROTOCOLS[path], access)
        for (method, path), access in others.items()
        if path not in described["paths"]
    ]
    return "".join((*parts, "\n## Other protocols\n\n", TITLES, *rows, TAIL))


def _row(path: str, method: str, operation: dict[str, Any]) -> str:
    access = access_to(method.upper(), path.replace("/{rest}", "/{rest:path}"))
    return _line(method.upper(), path, operation["summary"], access)


def _line(method: str, path: str, meaning: str, access: Access) -> str:
    others = f"`{access.others}`" if access.others else ""
    return f"| `{method} {path}` | {meaning} | {_who(access)} | {others} |\n"


def _who(access: Access) -> str:
    if access.needs is not None:
        return f"`{access.needs}`"
    return "anyone" if access.anyone else "known"
