"""The section of an MCP server whose tools agents may use."""

from typing import Annotated, Literal

from msgspec import Meta

from remit.agents.mcp.settings import MAX_OUTPUT, TIME_S
from remit.config.values import Duration, Kind, Positive, Secret, Section, Url, Variable, duration


class McpSection(Section, frozen=True, kw_only=True):
    """An MCP server, by `command` or `url`, with tools for agents, as `NAME.TOOL`; see `remit docs mcp-servers`."""

    command: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="The program that starts the server, looked up as in a shell and run in the team file's folder."
        ),
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="Arguments of the program.")] = ()
    env: Annotated[
        dict[str, Variable],
        Meta(
            description="Environment of the program, besides `PATH`, `HOME` and the like: plain texts, or "
            '`"$NAME"` for the value of that variable here.'
        ),
    ] = {}
    url: Annotated[
        Url | None, Meta(description="The URL of a server that runs elsewhere and speaks streamable HTTP.")
    ] = None
    token: Annotated[
        Secret | None, Meta(description="The token that authenticates this hub to a server with a `url`.")
    ] = None
    auth: Annotated[
        Literal["oauth"] | None,
        Meta(description='`"oauth"`: a person logs in, with `remit mcp login NAME`, for a server with a `url`.'),
    ] = None
    issuer: Annotated[
        Url | None,
        Meta(
            description="The authorization server (OAuth) that gives this hub tokens for a server with a `url` "
            "(default with `auth`: the one that the server names)."
        ),
    ] = None
    client_id: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="The id of this hub at the `issuer`.")
    ] = None
    client_secret: Annotated[Secret | None, Meta(description="The secret of that id.")] = None
    client_key: Annotated[
        Secret | None, Meta(description="The private key (PEM) of that id, in the place of a secret.")
    ] = None
    client_metadata_url: Annotated[
        Url | None,
        Meta(description="With `auth`: the https URL of a document that describes this hub, in the place of an id."),
    ] = None
    scope: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The scopes to ask for, with spaces between them (default: those that the server names)."),
    ] = None
    redirect_port: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(
            description="With `auth`: the port of this machine to which the browser is sent after a login (default: "
            "any); the redirect URI is `http://127.0.0.1:PORT/callback`."
        ),
    ] = None
    allow: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...],
        Meta(min_length=1, description="Tools of the server that agents may be given, by the server's names."),
    ]
    safe_to_repeat: Annotated[
        frozenset[str], Meta(description="Those of the tools that do no harm if they run twice.")
    ] = frozenset()
    sees: Annotated[
        frozenset[Kind] | dict[str, frozenset[Kind] | dict[str, frozenset[Kind]]],
        Meta(
            description='Kinds of personal data that its tools are given in clear: `["EMAIL"]`, or by tool `{ '
            'find = ["EMAIL"] }`, or by tool and parameter `{ find = { email = ["EMAIL"] } }`.'
        ),
    ] = frozenset()
    prefix: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(
            description="Prefix of the tools' names, followed by a dot (default: the server's name). If "
            "empty, there is no prefix."
        ),
    ] = None
    time: Annotated[Duration, Meta(description="Time for one tool call.")] = duration(TIME_S * 1_000)
    max_output: Annotated[
        Positive, Meta(description="Maximum characters of a result that an agent is given; the rest is cut off.")
    ] = MAX_OUTPUT
    files: Annotated[
        bool,
        Meta(
            description="Whether results are objects with `content` and `files`: pictures, sounds, other data, links."
        ),
    ] = False
    sampling: Annotated[
        bool, Meta(description="Whether the server may have the model of an agent that uses it write texts.")
    ] = True
