"""Where a hub is served, and what it offers there."""

from typing import Annotated, Any

from msgspec import Meta, Struct


class ServerUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.serving/1"):
    """A server that takes requests. Printed by `remit serve --json` once it does."""

    team: Annotated[str, Meta(description="The hub's name.")]
    address: Annotated[str, Meta(description="Where it can be reached.")]
    agents: Annotated[tuple[str, ...], Meta(description="The agents that can be asked.")]
    token_file: Annotated[
        str | None, Meta(description="The file of the token that is let in, where the team names no clients.")
    ] = None


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool of an MCP server, in the server's own words."""

    name: Annotated[str, Meta(description="What the server calls it.")]
    tool: Annotated[str | None, Meta(description="What it is called in the hub; null if `allow` does not name it.")]
    description: Annotated[str, Meta(description="What the server says that it does.")] = ""
    input_schema: Annotated[dict[str, Any], Meta(description="What it takes, as JSON Schema.")] = {}


class McpTools(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.mcp-tools/1"):
    """The tools of an MCP server. Printed by `remit mcp --tools SERVER --json`."""

    server: Annotated[str, Meta(description="The server's name in the team file.")]
    tools: Annotated[tuple[McpTool, ...], Meta(description="Its tools, as it lists them.")]
    missing: Annotated[tuple[str, ...], Meta(description="Tools that `allow` names and the server does not have.")] = ()
