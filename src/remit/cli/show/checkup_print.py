"""Prints the checks of `remit doctor`: what needs doing first, and what is fine in a few lines."""

from collections.abc import Sequence

import click

from remit.cli.show.screen import many, print_beside
from remit.documents.team import Check, Checkup

COLOURS = {"problem": "red", "warning": "yellow", "ok": "green"}


def print_checkup(found: Checkup, *, shows_all: bool) -> None:
    """Print problems, then warnings, then what is fine: one line for each group, or *shows_all* of it."""
    by_state = {state: [each for each in found.checks if each.state == state] for state in COLOURS}
    todo = [*by_state["problem"], *by_state["warning"]]
    _print_checks(todo)
    if todo:
        click.echo()
    if shows_all:
        _print_checks(by_state["ok"])
    else:
        _print_folded(by_state["ok"])
    problems, warnings = many(len(by_state["problem"]), "problem"), many(len(by_state["warning"]), "warning")
    more = "" if shows_all else " Every check: remit doctor --all"
    click.echo()
    print_beside("", f"{problems}, {warnings}.{more}")


def _print_checks(checks: Sequence[Check]) -> None:
    width = max((len(each.about) for each in checks), default=0)
    for each in checks:
        print_beside(f"{each.state:7}  {each.about:{width}}  ", each.says, fg=COLOURS[each.state])
        if each.todo:
            print_beside(" " * (width + 11) + "→ ", each.todo)


def _print_folded(checks: Sequence[Check]) -> None:
    groups = dict.fromkeys(each.group for each in checks)
    width = max(map(len, groups), default=0)
    for group in groups:
        names = [each.about for each in checks if each.group == group]
        said = dict.fromkeys("extras" if name.startswith("extra ") else name for name in names)
        print_beside(f"ok       {group:{width}}  ", ", ".join(said), fg=COLOURS["ok"])
