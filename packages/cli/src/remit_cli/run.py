"""`remit run`: ask an agent to do a task, and watch the calls."""

from pathlib import Path

import click

from remit_cli.completion_words import agent_names, session_ids
from remit_cli.options import (
    budget_option,
    deadline_option,
    json_option,
    jsonl_option,
    save_option,
    team_options,
    user_option,
    verbose_option,
)


@click.command()
@click.argument("agent", shell_complete=agent_names)
@click.argument("task", required=False)
@user_option
@budget_option()
@deadline_option()
@click.option("--capability", metavar="CODE", help="Capability of the agent to request.")
@click.option("--input", "given_input", metavar="JSON", help="Input for the agent: JSON, @FILE, or - for stdin.")
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Continue this session.  [default: a new one]"
)
@click.option(
    "--file",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="File to send with the request. Repeatable.",
)
@save_option
@click.option("--detach", is_flag=True, help="Run in the background; print the run id once it is recorded.")
@verbose_option
@json_option
@jsonl_option
@team_options
def run(
    agent: str,
    task: str | None,
    user: str | None,
    max_tokens: int | None,
    deadline_ms: int | None,
    capability: str | None,
    given_input: str | None,
    session: str | None,
    paths: tuple[Path, ...],
    folder: Path | None,
    detach: bool,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Ask AGENT to do TASK, and watch the calls between agents.

    The answer goes to stdout, everything else to stderr. If TASK is -, it is read from stdin. Ctrl-C cancels the run
    and keeps the finished parts. A second Ctrl-C exits at once.

    Exit codes: 0 for an answer, also a partial one; 1 if the run failed; 2 for a usage error; 3 for an invalid team
    file; 4 if it was refused; 5 for a limit or budget; 6 for a timeout; 7 if an agent is unreachable; and 130 if it was
    cancelled.

    \b
    Example:
      remit run assistant "Sort my receipts" --deadline 2m --budget 20000
      remit run assistant - --json < task.txt
      remit run assistant "What did I pay?" --file receipt.png --save results
      remit run assistant "Sort my receipts" --detach
    """
    if detach and as_jsonl:
        raise click.UsageError(
            "--detach and --jsonl cannot be combined; follow the run with `remit runs watch --jsonl`"
        )
    if detach and folder is not None:
        raise click.UsageError(
            "--detach and --save cannot be combined; use `remit runs answer RUN --wait --save FOLDER`"
        )
    from remit_cli.drive.files import read_files
    from remit_cli.drive.order import Order, read_task
    from remit_cli.teams import current_user, team_path

    text, value = read_task(task, given_input, capability)
    order = Order(
        agent=agent,
        text=text,
        user=user or current_user(),
        options={
            "input": value,
            "capability": capability,
            "session": session,
            "files": read_files(paths),
            "max_tokens": max_tokens,
            "deadline_ms": deadline_ms,
        },
        team_file=str(team_path(team_file).absolute()),
        overrides=overrides,
    )
    if detach:
        from remit_cli.drive.detach import detach as let_go

        raise SystemExit(let_go(order, as_json=as_json))
    from remit_cli.drive.foreground import carry_out

    raise SystemExit(
        carry_out(order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file, folder=folder)
    )
