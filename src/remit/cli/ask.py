"""`remit ask`: say what you want, and have the team find out who does it."""

from pathlib import Path

import click

from remit.cli.drive.order import Duration, Order, read_task
from remit.cli.options import json_option, jsonl_option, team_options
from remit.cli.suggest import session_ids


@click.command()
@click.argument("text", required=False)
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option("--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help="What all agents may spend.")
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="How long it may take: 30s, 5m.")
@click.option("--input", "given_input", metavar="JSON", help="Data for it: JSON, @FILE, or - for stdin.")
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Go on in a session: the reply to a question."
)
@click.option("--verbose", "-v", is_flag=True, help="Show who does what, and everything that the hub logs.")
@json_option
@jsonl_option
@team_options
def ask(
    text: str | None,
    user: str | None,
    max_tokens: int | None,
    deadline_ms: int | None,
    given_input: str | None,
    session: str | None,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Say in TEXT what you want, in your own words; the team's orchestrator finds out who does it.

    The team file has an `[orchestrator]`, which may be empty. What it asks back is the answer: reply in the session
    that is named then, with `remit ask --session ID`, or go on with `remit chat`. A TEXT of - is read from stdin.

    Meanwhile it is said in plain words what is being done; who does it is seen with --verbose, and afterwards with
    `remit runs show`.

    Exits as `remit run` does.

    \b
    Example:
      remit ask "What did we spend on travel, and is that more than last year?"
      remit ask --session trip-1 "the second"
    """
    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other")
    from remit.cli.drive.foreground import carry_out
    from remit.cli.places import team_path, whoever_types
    from remit.config.load import load_team

    path = team_path(team_file).absolute()
    team = load_team(path, overrides=overrides, secrets=False, code=False)
    orchestrator = team.orchestrator
    if orchestrator is None:
        raise click.UsageError(f"{path.name} has no `[orchestrator]`; add that line, or ask an agent with `remit run`")
    said, value = read_task(text, given_input, None)
    order = Order(
        agent=orchestrator.name,
        text=said,
        user=user or whoever_types(),
        input=value,
        session=session,
        max_tokens=max_tokens,
        deadline_ms=deadline_ms,
        team_file=str(path),
        overrides=overrides,
    )
    speakers = None if verbose else (orchestrator.name, *team.workflows)
    done = carry_out(
        order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file, speakers=speakers
    )
    raise SystemExit(done)
