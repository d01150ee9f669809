"""Checks that the section of the guard names coding tools that it knows, and folders that can be found."""

from collections.abc import Iterator
from pathlib import Path

from remit.config.team import TeamFile
from remit.protocol.problems import WrongPart


def misnamed(team: TeamFile) -> Iterator[WrongPart]:
    """Return tools that the guard does not know, and folders that depend on where it is started."""
    if team.guard is None:
        return
    for name in team.guard.projects:
        if not name.startswith("~") and not Path(name).is_absolute():
            message = "expected the folder of a project from the root or your home on, such as `~/shop`"
            yield WrongPart(("guard", "projects", name), message)
    if not team.guard.tools:
        return
    from remit.guard.tools.known_tools import TOOLS  # they bring a hub

    for name in team.guard.tools:
        if name not in TOOLS:
            message = f"there is no coding tool `{name}`; known tools: {', '.join(TOOLS)}"
            yield WrongPart(("guard", "tools", name), message)
