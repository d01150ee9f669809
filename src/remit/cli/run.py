"""`remit run`: ask an agent, and watch who asks whom."""

from pathlib import Path

import click

from remit.cli.drive.order import Duration, Order, read_task
from remit.cli.options import json_option, jsonl_option, team_options
from remit.cli.suggest import agent_names, session_ids


@click.command()
@click.argument("agent", shell_complete=agent_names)
@click.argument("task", required=False)
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option("--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help="What all agents may spend.")
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="How long it may take: 30s, 5m.")
@click.option("--capability", metavar="CODE", help="Which of the agent's capabilities is wanted.")
@click.option("--input", "given_input", metavar="JSON", help="Input for the agent: JSON, @FILE, or - for stdin.")
@click.option("--session", metavar="ID", shell_complete=session_ids, help="Go on in a session, not in a new one.")
@click.option("--detach", is_flag=True, help="Let it go on by itself; print its id as soon as it is safely recorded.")
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the hub logs.")
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
    detach: bool,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Ask AGENT to do TASK, and watch who asks whom.

    The answer goes to stdout, everything else to stderr. A TASK of - is read from stdin. Ctrl-C cancels the run and
    keeps what it has finished; a second one leaves at once.

    Exits with 0 if there is an answer, be it a partial one; with 1 if the run failed, 2 for a wrong command, 3 for a
    wrong team file, 4 if it was refused, 5 for a limit or budget, 6 for a time-out, 7 if someone could not be reached,
    and 130 if it was cancelled.

    \b
    Example:
      remit run assistant "Sort my receipts" --deadline 2m --budget 20000
      remit run assistant - --json < task.txt
      remit run assistant "Sort my receipts" --detach
    """
    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other")
    if detach and as_jsonl:
        raise click.UsageError("--detach has no records to print; follow the run with `remit runs watch --jsonl`")
    from remit.cli.places import team_path, whoever_types

    text, value = read_task(task, given_input, capability)
    order = Order(
        agent=agent,
        text=text,
        user=user or whoever_types(),
        input=value,
        capability=capability,
        session=session,
        max_tokens=max_tokens,
        deadline_ms=deadline_ms,
        team_file=str(team_path(team_file).absolute()),
        overrides=overrides,
    )
    if detach:
        from remit.cli.drive.detach import detach as let_go

        raise SystemExit(let_go(order, as_json=as_json))
    from remit.cli.drive.foreground import carry_out

    raise SystemExit(carry_out(order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file))
