"""MCP servers as tools of a hub's agents. The SDK is an extra, and is loaded when the first server starts."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {"remit_models.mcp.hub_servers": ("add_mcp",)}

if TYPE_CHECKING:
    from remit_models.mcp.hub_servers import add_mcp as add_mcp
else:
    __getattr__ = lazy_names(__name__, _HOMES)
