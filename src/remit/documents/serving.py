"""Documents of servers: a served hub, and the tools of an MCP server."""

from typing import Annotated, Any

from msgspec import Meta, Struct


class ServerUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.serving/1"):
    """A running server. Printed by `remit serve --json` when it accepts requests."""

    team: Annotated[str, Meta(description="The hub's name.")]
    address: Annotated[str, Meta(description="The address of the server.")]
    agents: Annotated[tuple[str, ...], Meta(description="The agents that can be called.")]
    token_file: Annotated[
        str | None, Meta(description="The file with the access token, if the team has no clients.")
    ] = None


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool of an MCP server, as the server describes it."""

    name: Annotated[str, Meta(description="Its name on the server.")]
    tool: Annotated[str | None, Meta(description="Its name in the hub; null if it is not in `allow`.")]
    description: Annotated[str, Meta(description="The server's description.")] = ""
    input_schema: Annotated[dict[str, Any], Meta(description="JSON Schema of its input.")] = {}


class McpTools(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.mcp-tools/1"):
    """The tools of an MCP server. Printed by `remit mcp --tools SERVER --json`."""

    server: Annotated[str, Meta(description="The server's name in the team file.")]
    tools: Annotated[tuple[McpTool, ...], Meta(description="Its tools, in the server's order.")]
    missing: Annotated[tuple[str, ...], Meta(description="Tools in `allow` that the server does not have.")] = ()
