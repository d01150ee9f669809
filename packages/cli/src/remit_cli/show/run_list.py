"""Names runs, and prints a list of them."""

from collections.abc import Iterable

from remit.runtime.ports import RunSummary
from remit_cli.show.screen import clock_time, print_table, spell_ms
from remit_server.documents.runs import RunLine

# An id begins with the time of its run: this much of it is unique among the runs of one person.
SHORT_ID = 16


def short(run: str) -> str:
    """Return a run's id, shortened to what is needed to name it."""
    return run[:SHORT_ID]


def named(run: str) -> str:
    """Return a run's display name."""
    return f"run {short(run)}"


def standing(summary: RunSummary) -> str:
    """Return the outcome or current state of a run, in one word."""
    return summary.response.status if summary.response else summary.state


def print_runs(found: Iterable[RunSummary]) -> None:
    """Print one row for each run; without the user, if that is the same one everywhere."""
    found = list(found)
    users = {each.user for each in found}
    rows = [
        (
            short(each.run),
            clock_time(each.started_ms),
            each.agent,
            standing(each),
            spell_ms(each.response.duration_ms) if each.response else "",
            f"{each.response.usage.total:,}" if each.response and each.response.usage.total else "",
            each.user if len(users) > 1 else "",
            each.via,
            each.objective,
        )
        for each in found
    ]
    headings = ("run", "started", "agent", "state", "time", "tokens", "user", "via", "task")
    print_table(headings, rows, folds=("via", "user", "tokens", "time", "started", "task"))


def run_line(summary: RunSummary) -> RunLine:
    """Return one run of a list, as a document."""
    response = summary.response
    return RunLine(
        run=summary.run,
        user=summary.user,
        agent=summary.agent,
        objective=summary.objective,
        started_ms=summary.started_ms,
        state=summary.state,
        status=response.status if response else None,
        code=response.fault.code if response and response.fault else None,
        tokens=response.usage.total if response else None,
        duration_ms=response.duration_ms if response else None,
        via=summary.via or None,
        correlation=summary.correlation,
    )
