"""`remit validate`: list all problems of a team file."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from remit.protocol.errors import Problem, RemitError
from remit_cli.options import json_option, team_options
from remit_cli.show.screen import many, print_json, print_text
from remit_server.documents.team import TeamProblem, Validation

# The pattern of places in a team file; overrides have other places.
_PLACE = re.compile(r"[^ ]+:(?P<line>\d+)(?: (?P<key>.+))?")


@click.command()
@click.option("--code", is_flag=True, help="Also import the agents' code, as a run would. This executes it.")
@team_options
@json_option
def validate(code: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check the team file, and list all problems.

    Prints file, line and key of each problem, and the expected value. No code is executed: functions are looked up in
    the source files of the team's folder. With --code they are also imported, as a run would do. The exit code is 0 if
    the team is valid and 3 if it is not. A warning marks a valid setting that may not do what was intended.

    \b
    Example:
      remit validate
      remit validate --code
      remit validate --team other.toml --set limits.max_depth=3
    """
    from remit_cli.places import relative_path
    from remit_cli.teams import team_path

    file = relative_path(team_path(team_file).absolute())
    found = _validated(file, overrides, code=code)
    if as_json:
        print_json(found)
    elif found.ok:
        kinds = ("agent", "workflow", "tool", "capability", "rule", "profile", "shared agent")
        counts = (
            *(found.agents, found.workflows, found.tools, found.capabilities, found.rules),
            *(found.profiles, found.shared),
        )
        there = ", ".join(many(count, what) for count, what in zip(counts, kinds, strict=True) if count)
        print_text(f"ok: {there or 'no agents yet'} in {file}")
        for each in found.warnings:
            print_text(f"warning: {each.where}: {each.message}")
    else:
        for problem in found.problems:
            print_text(f"{problem.where}: {problem.message}")
        print_text(f"→ Fix {'this' if len(found.problems) == 1 else 'these'}, then run `remit validate` again.")
    raise SystemExit(0 if found.ok else 3)


def _validated(file: Path, overrides: Sequence[str], *, code: bool) -> Validation:
    from remit_cli.config.composition import hub_of
    from remit_cli.config.load import load_team, located
    from remit_cli.config.team_section import tables
    from remit_cli.config.team_warnings import tools_in_source, warnings_about
    from remit_cli.teams import importing

    try:
        with importing():
            team = load_team(file, overrides=overrides, code=code, thorough=True)
            # The hub is not opened; creating it shows whether all parts fit together.
            tools = hub_of(team).tool_cards if code else tools_in_source(team)
    except RemitError as error:
        why = error.fault
        if not why.problems and not file.is_file():
            raise
        problems = _placed(why.problems)
        # A mismatch between parts has no single place in the file.
        problems = problems or (TeamProblem(where=str(file), message=why.message),)
        return Validation(ok=False, file=str(file), imported=code, problems=problems)
    return Validation(
        ok=True,
        file=str(file),
        agents=len(team.agents),
        workflows=len(team.workflows),
        tools=len(team.tools) + sum(len(server.allow) for server in tables(team, "mcp").values()),
        capabilities=len(team.capabilities),
        rules=len(team.rules),
        profiles=len(tables(team, "profiles")),
        shared=len(tables(team, "shared")),
        imported=code,
        warnings=_placed(located(team, warnings_about(team, tools))),
    )


def _placed(problems: Iterable[Problem]) -> tuple[TeamProblem, ...]:
    return tuple(
        TeamProblem(where=each.path, line=line, key=key, message=each.message)
        for each in problems
        for line, key in [_split(each.path)]
    )


def _split(where: str) -> tuple[int | None, str]:
    found = _PLACE.fullmatch(where)
    return (int(found["line"]), found["key"] or "") if found else (None, "")
