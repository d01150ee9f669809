"""The levels of log messages that MCP hosts want to hear."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, get_args

import mcp_types as types
from mcp.server.connection import allowed_log_levels
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

# Of a host that has not chosen: what its user should know, and not every step.
DEFAULT_LEVEL: types.LoggingLevel = "notice"
# As many as there are sessions; the least used is forgotten first, and has the default again.
MOST_CHOICES = 1_000

_LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)


class LogLevels:
    """The levels that hosts have chosen, by session."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[tuple[str, ...], types.LoggingLevel] = OrderedDict()

    def choose(self, session: tuple[str, ...], level: types.LoggingLevel) -> None:
        """Set the lowest level that a host wants to hear (`logging/setLevel`)."""
        self._chosen[session] = level
        self._chosen.move_to_end(session)
        if len(self._chosen) > MOST_CHOICES:
            self._chosen.popitem(last=False)

    def wanted(
        self, session: tuple[str, ...], version: str, meta: Mapping[str, Any] | None
    ) -> frozenset[types.LoggingLevel]:
        """Return the levels that a host wants to hear during a request, which names them itself in new versions."""
        if version in MODERN_PROTOCOL_VERSIONS:
            return allowed_log_levels(version, meta)
        return frozenset(_LEVELS[_LEVELS.index(self._chosen.get(session, DEFAULT_LEVEL)) :])
