"""The page of HTTP endpoints, from the declared operations."""

from remit_server.all_operations import OPERATIONS, PROTOCOLS
from remit_server.documents.api import ApiOperation
from remit_server.openapi import TAGS, group_of

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

TAIL = """
The endpoints below `/v1/console` are served with `--console` only ([The console](../how-to/console.md)).
`/v1/shared/…` has runs with other people's devices, on this machine alone: [The local API](relay-api.md).
"""

TITLES = "| endpoint | what it does | who | others' |\n|---|---|---|---|\n"


def http_page() -> str:
    """Return the page of endpoints, grouped as the OpenAPI document groups them."""
    parts = [HEAD]
    for tag, meaning in TAGS.items():
        rows = [_row(each) for each in OPERATIONS if group_of(each) == tag]
        parts.append(f"\n## {tag.capitalize()}\n\n{meaning}\n\n{TITLES}{''.join(rows)}")
    return "".join((*parts, "\n## Other protocols\n\n", TITLES, *map(_row, PROTOCOLS), TAIL))


def _row(each: ApiOperation) -> str:
    others = f"`{each.others}`" if each.others else ""
    return f"| `{each.method} {each.public_path}` | {each.summary} | {_who(each)} | {others} |\n"


def _who(each: ApiOperation) -> str:
    if each.needs is not None:
        return f"`{each.needs}`"
    return "anyone" if each.anyone else "known"
