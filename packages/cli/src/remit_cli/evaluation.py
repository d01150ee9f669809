"""`remit eval`: run the cases of a file, and check answers and calls."""

from pathlib import Path

import click

from remit_cli.options import json_option, team_options


@click.command("eval")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this case. Repeatable.")
@click.option("--runs", type=click.IntRange(min=1), help="How often to run each case.  [default: as the file says]")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of all runs that must pass, from 0 to 1.  [default: as the file says, or 1]",
)
@click.option("--record", is_flag=True, help="Ask for real, and write the recordings that the file names.")
@click.option("--at-once", type=click.IntRange(min=1), default=4, show_default=True, help="Runs at the same time.")
@json_option
@team_options
def eval(
    file: Path,
    cases: tuple[str, ...],
    runs: int | None,
    threshold: float | None,
    record: bool,
    at_once: int,
    as_json: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Run the cases of FILE, and check their answers and the calls between agents.

    Each run has a hub of its own with an empty store. `remit docs evaluating` lists what a case can expect. If FILE
    names a folder of recordings, they answer in place of models and tools, and neither a network nor a key is needed.

    The exit code is 1 if fewer runs pass than the threshold, and 3 if FILE or the team file is invalid.

    \b
    Example:
      remit eval cases.toml
      remit eval cases.toml --record
      remit eval cases.toml --runs 5 --threshold 0.9 --json
    """
    from remit_cli.config.cases import load_cases
    from remit_cli.config.load import load_team
    from remit_cli.config.sections.cases import EvalFile
    from remit_cli.config.team import Team
    from remit_cli.drive import running
    from remit_cli.drive.evaluating import EvalOrder
    from remit_cli.drive.evaluating import evaluate as run_cases
    from remit_cli.drive.replaying import recorded_team
    from remit_cli.places import team_path
    from remit_cli.show.evaluation import print_evaluation

    def load(cases: EvalFile) -> Team:
        if cases.recordings is None:
            return load_team(team_path(team_file), overrides=overrides, serving=False)
        return recorded_team(team_path(team_file), overrides, offline=not record)

    known, team = load_cases(file, load)
    if record and known.recordings is None:
        raise click.UsageError(f"--record needs a folder for the recordings: `recordings` in {file}")
    if unknown := [name for name in cases if name not in known.cases]:
        from remit.protocol.problems import did_you_mean

        near = did_you_mean(unknown[0], known.cases) or f"; the file has: {', '.join(known.cases)}"
        raise click.BadParameter(f"no such case `{unknown[0]}`{near}", param_hint="--case")
    order = EvalOrder(
        cases=cases,
        runs=runs,
        threshold=threshold,
        at_once=at_once,
        recordings=None if known.recordings is None else file.parent / known.recordings,
        record=record,
    )
    with running.data_only() as data:
        done, stuck = running.run(run_cases(team, known, order, lambda line: click.echo(line, err=True)))
        if as_json:
            data.document(done)
    if not as_json:
        print_evaluation(done)
    code = 0 if done.ok else 1
    if stuck:
        running.leave(code)
    raise SystemExit(code)
