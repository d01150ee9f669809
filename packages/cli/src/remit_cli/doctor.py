"""`remit doctor`, `remit validate` and `remit bench`: check this machine and the team file, and measure Remit here."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from remit.protocol.errors import Problem, RemitError
from remit_cli.options import GivenStore, json_option, store_options, team_options
from remit_cli.show.screen import many, print_json, print_table, print_text
from remit_server.documents.team import TeamProblem, Validation


@click.command()
@click.option("--all", "shows_all", is_flag=True, help="Show every check, also those that found nothing to do.")
@store_options
@json_option
def doctor(shows_all: bool, given: GivenStore, as_json: bool) -> None:
    """Check this machine and this folder for problems, and suggest fixes.

    Checks Python, the packages, the console's page, the team file and its dependencies, the hubs of `[peers.NAME]`, the
    store with its disk, keys and clock, pending questions, and the terminal. What needs doing comes first; what is fine
    is one line for each group of checks. Nothing is changed. The exit code is 0 if there is no problem and 3 if there
    is one. Warnings do not change the exit code.

    \b
    Example:
      remit doctor
      remit doctor --all
      remit doctor --json
    """
    from remit_cli.doctor_checks import examine, print_checkup
    from remit_server.documents.team import Checkup

    checks = tuple(examine(*given))
    checkup = Checkup(ok=not any(each.state == "problem" for each in checks), checks=checks)
    if as_json:
        print_json(checkup)
    else:
        print_checkup(checkup, shows_all=shows_all)
    raise SystemExit(0 if checkup.ok else 3)


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
    from remit_cli.places import relative_path, team_path

    file = relative_path(team_path(team_file).absolute())
    validation = _validated(file, overrides, code=code)
    if as_json:
        print_json(validation)
    elif validation.ok:
        kinds = ("agent", "workflow", "tool", "capability", "rule", "profile", "shared agent")
        counts = (
            *(validation.agents, validation.workflows, validation.tools, validation.capabilities, validation.rules),
            *(validation.profiles, validation.shared),
        )
        there = ", ".join(many(count, what) for count, what in zip(counts, kinds, strict=True) if count)
        print_text(f"ok: {there or 'no agents yet'} in {file}")
        for each in validation.warnings:
            print_text(f"warning: {each.where}: {each.message}")
    else:
        for problem in validation.problems:
            print_text(f"{problem.where}: {problem.message}")
        print_text(f"→ Fix {'this' if len(validation.problems) == 1 else 'these'}, then run `remit validate` again.")
    raise SystemExit(0 if validation.ok else 3)


def _validated(file: Path, overrides: Sequence[str], *, code: bool) -> Validation:
    from remit_cli.config.composition import hub_of
    from remit_cli.config.load import load_team, located, tools_in_source, warnings_about
    from remit_cli.config.team import tables
    from remit_cli.places import importing

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
    match = _PLACE.fullmatch(where)
    return (int(match["line"]), match["key"] or "") if match else (None, "")


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=600),
    default=10.0,
    show_default=True,
    help="How long to measure, about. The least times are taken, so that longer is more precise.",
)
@json_option
def bench(seconds: float, as_json: bool) -> None:
    """Measure how fast Remit is on this machine, in a temporary folder.

    Each time is compared with a floor that is measured in the same run: a bare task of asyncio, a commit of SQLite, an
    HTTP request, and a program that only imports asyncio. The ratio says what Remit adds, and depends little on the
    machine. A durable answer is on the disk before it is given; a delegation over HTTP waits for the disks of both
    hubs, three times in all.

    \b
    Example:
      remit bench
      remit bench --seconds 30 --json
    """
    from remit_cli.drive.bench import bench_report

    report = bench_report(seconds)
    if as_json:
        print_json(report)
        return
    rows = [
        (each.operation, _time(each.us), f"{each.ratio:.1f}x", each.floor, _time(each.floor_us))
        for each in report.figures
    ]
    print_table(("operation", "time", "ratio", "compared with", "its time"), rows)


def _time(us: float) -> str:
    return f"{us / 1_000:.3g} ms" if us >= 1_000 else f"{us:.3g} µs"
