"""What the MCP hosts of a hub are offered besides the four tools that every hub has."""

from msgspec import Struct

EVERYONE = "*"


class McpOffer(Struct, frozen=True, kw_only=True):
    """The settings of a hub for MCP hosts."""

    tools: frozenset[str] = frozenset()
    """The agents that are tools of their own; `"*"` means all that a host may ask."""
    sampling: bool = True
    """Whether agents may ask the model of a host that offers it."""
