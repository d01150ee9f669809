"""Checks that the section of the guard names coding tools that it knows."""

from collections.abc import Iterator

from remit.config.team import TeamFile
from remit.protocol.problems import WrongPart


def misnamed_tools(team: TeamFile) -> Iterator[WrongPart]:
    """Return tools that the guard does not know."""
    if team.guard is None or not team.guard.tools:
        return
    from remit.guard.tools.known_tools import TOOLS  # they bring a hub

    for name in team.guard.tools:
        if name not in TOOLS:
            message = f"there is no coding tool `{name}`; known tools: {', '.join(TOOLS)}"
            yield WrongPart(("guard", "tools", name), message)
