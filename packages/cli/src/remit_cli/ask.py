"""`remit ask`: describe what you want; the orchestrator chooses the agents."""

from pathlib import Path

import click

from remit_cli.completion_words import session_ids
from remit_cli.options import (
    budget_option,
    deadline_option,
    json_option,
    jsonl_option,
    team_options,
    user_option,
)


@click.command()
@click.argument("text", required=False)
@user_option
@budget_option()
@deadline_option()
@click.option("--input", "given_input", metavar="JSON", help="Input data: JSON, @FILE, or - for stdin.")
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Continue this session, to reply to a question."
)
@click.option("--verbose", "-v", is_flag=True, help="Show which agent does what, and all log messages of the hub.")
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
    """Describe in TEXT what you want; the team's orchestrator chooses the agents for it.

    The team file needs an `[orchestrator]` section, which may be empty. If the orchestrator asks you something, reply
    with `remit ask --session ID`, or continue with `remit chat`. If TEXT is -, it is read from stdin.

    Progress is shown in plain words. To see which agent does what, use --verbose, or `remit runs show` afterwards.

    The exit codes are those of `remit run`.

    \b
    Example:
      remit ask "What did we spend on travel, and is that more than last year?"
      remit ask --session trip-1 "the second"
    """
    from remit_cli.config.load import load_team
    from remit_cli.drive.foreground import carry_out
    from remit_cli.drive.order import Order, read_task
    from remit_cli.teams import current_user, team_path

    path = team_path(team_file).absolute()
    team = load_team(path, overrides=overrides, secrets=False, code=False)
    orchestrator = team.orchestrator
    if orchestrator is None:
        raise click.UsageError(
            f"{path.name} has no `[orchestrator]`; add that section, or call an agent with `remit run`"
        )
    said, value = read_task(text, given_input, None)
    order = Order(
        agent=orchestrator.name,
        text=said,
        user=user or current_user(),
        options={"input": value, "session": session, "max_tokens": max_tokens, "deadline_ms": deadline_ms},
        team_file=str(path),
        overrides=overrides,
    )
    speakers = None if verbose else (orchestrator.name, *team.workflows)
    done = carry_out(
        order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file, speakers=speakers
    )
    raise SystemExit(done)
