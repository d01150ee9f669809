"""`remit doctor`: check this machine and this folder, and suggest fixes."""

from pathlib import Path

import click

from remit.cli.options import json_option, store_option, team_options
from remit.cli.show.screen import many, print_json, styled
from remit.documents.team import Checkup
from remit.text.terminal import one_line

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@store_option
@team_options
@json_option
def doctor(store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check this machine and this folder for problems, and suggest fixes.

    Checks Python, the packages, the team file and its dependencies, the hubs of `[peers.NAME]`, the store with its
    disk, keys and clock, pending questions, and the terminal. Nothing is changed. The exit code is 0 if there is no
    problem and 3 if there is one. Warnings do not change the exit code.

    \b
    Example:
      remit doctor
      remit doctor --json
    """
    from remit.cli.doctor_checks import examine

    checks = tuple(examine(store_path, team_file, overrides))
    problems = sum(each.state == "problem" for each in checks)
    if as_json:
        print_json(Checkup(ok=not problems, checks=checks))
        raise SystemExit(3 if problems else 0)
    width = max(len(each.about) for each in checks)
    for each in checks:
        click.echo(styled(f"{each.state:7}", fg=_COLOURS[each.state]), nl=False)
        click.echo(f"  {each.about:{width}}  {one_line(each.says)}")
        if each.todo:
            click.echo(f"{'':{width + 9}}  → {one_line(each.todo)}")
    warnings = sum(each.state == "warning" for each in checks)
    click.echo(f"\n{many(problems, 'problem')}, {many(warnings, 'warning')}.")
    raise SystemExit(3 if problems else 0)
