"""The state of the guard of coding tools, for people."""

from remit_cli.show.screen import clock_time, many, print_text
from remit_server.documents.common import GuardedTool, GuardReport


def print_guard_status(found: GuardReport) -> None:
    """Print whether the guard runs, and a line or two for each file that it was put into."""
    if found.unanswering is not None:
        print_text(
            f"The guard runs as process {found.unanswering or 'unknown'}, but does not answer: no sub-agent starts in "
            "the tools that have it.\n→ remit guard stop, then remit guard serve"
        )
    elif found.process is None:
        print_text("The guard does not run: no sub-agent starts in the tools that have it.\n→ remit guard serve")
    else:
        print_text(f"The guard runs as process {found.process}; {many(found.sessions, 'session')} open.")
    for tool in found.tools:
        print_text(f"{tool.tool}  {tool.path}: {_state(tool)}")
        if tool.obstacle:
            print_text(tool.obstacle)
        if tool.is_untried:
            print_text(f"{tool.tool}  {tool.version} was not tried; tried: {', '.join(tool.tried)}")
    if not found.tools:
        print_text("No tool has it.\n→ remit guard claude-code")


def _state(tool: GuardedTool) -> str:
    if tool.state == "gone":
        return f"the guard is gone from it\n→ remit guard {tool.tool}"
    if tool.state == "silent" or tool.heard_ms is None:
        return "not heard since the guard was put in\n→ Start a session of the tool; it is heard at its start."
    return f"last heard {clock_time(tool.heard_ms)}, {many(tool.events, 'event')} since the guard was started"
