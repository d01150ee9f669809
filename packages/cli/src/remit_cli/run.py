"""`remit run`, `remit ask` and `remit chat`: start runs, and watch them."""

from pathlib import Path
from typing import NoReturn

import click

from remit_cli.completion import agent_names, session_ids
from remit_cli.options import (
    budget_option,
    cost_option,
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
@cost_option()
@deadline_option()
@click.option("--capability", metavar="CODE", help="Capability of the agent to request.")
@click.option("--input", "given_input", metavar="JSON", help="Input for the agent: JSON, @FILE, or - for stdin.")
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Continue this session.  [default: a new one]"
)
@click.option(
    "--handover", metavar="AGENT", help="Agent of AGENT's team that answers from now on.  [default: who is in charge]"
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
@click.option(
    "--record",
    "recording",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep what models, tools and people reply in FILE, for `remit runs replay`.",
)
@verbose_option
@json_option
@jsonl_option
@team_options
def run(
    agent: str,
    task: str | None,
    user: str | None,
    max_tokens: int | None,
    max_cost: str | None,
    deadline_ms: int | None,
    capability: str | None,
    given_input: str | None,
    session: str | None,
    handover: str | None,
    paths: tuple[Path, ...],
    folder: Path | None,
    detach: bool,
    recording: Path | None,
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
      remit run assistant "Sort my receipts" --max-cost "0.50 USD"
      remit run assistant - --json < task.txt
      remit run assistant "What did I pay?" --file receipt.png --save results
      remit run assistant "Sort my receipts" --detach
      remit run assistant "Sort my receipts" --record receipts.jsonl
    """
    if detach and recording is not None:
        raise click.UsageError("--detach and --record cannot be combined: the file is written at the end of the run")
    if detach and as_jsonl:
        raise click.UsageError(
            "--detach and --jsonl cannot be combined; follow the run with `remit runs watch --jsonl`"
        )
    if detach and folder is not None:
        raise click.UsageError(
            "--detach and --save cannot be combined; use `remit runs answer RUN --wait --save FOLDER`"
        )
    from remit_cli.drive.order import cost_in_team, order_of, read_files, read_task
    from remit_cli.places import team_path

    text, value = read_task(task, given_input, capability)
    path = team_path(team_file)
    order = order_of(agent, text, user, path, overrides).asking(
        input=value,
        capability=capability,
        session=session,
        handover=handover,
        files=read_files(paths),
        max_tokens=max_tokens,
        max_cost=cost_in_team(max_cost, path, overrides),
        deadline_ms=deadline_ms,
    )
    if detach:
        from remit_cli.drive.detach import detach as let_go

        raise SystemExit(let_go(order, as_json=as_json))
    from remit_cli.drive.run_order import carry_out

    raise SystemExit(
        carry_out(
            order,
            as_json=as_json,
            as_jsonl=as_jsonl,
            verbose=verbose,
            named_team=team_file,
            folder=folder,
            recording=recording,
        )
    )


@click.command()
@click.argument("text", required=False)
@user_option
@budget_option()
@cost_option()
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
    max_cost: str | None,
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
    from remit_cli.drive.order import cost_in, order_of, read_task
    from remit_cli.drive.run_order import carry_out
    from remit_cli.places import team_path

    path = team_path(team_file).absolute()
    team = load_team(path, overrides=overrides, secrets=False, code=False)
    orchestrator = team.orchestrator
    if orchestrator is None:
        raise click.UsageError(
            f"{path.name} has no `[orchestrator]`; add that section, or call an agent with `remit run`"
        )
    text, value = read_task(text, given_input, None)
    bare = order_of(orchestrator.name, text, user, path, overrides)
    order = bare.asking(
        input=value,
        session=session,
        max_tokens=max_tokens,
        max_cost=cost_in(max_cost, team.currency),
        deadline_ms=deadline_ms,
    )
    speakers = None if verbose else (orchestrator.name, *team.workflows)
    done = carry_out(
        order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file, speakers=speakers
    )
    raise SystemExit(done)


@click.command()
@click.argument("agent", shell_complete=agent_names)
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Continue this session.  [default: a new one]"
)
@user_option
@budget_option("Token budget for each answer.")
@cost_option("Money that the models may cost for each answer.")
@deadline_option("Time limit for each answer: 30s, 5m.")
@verbose_option
@jsonl_option
@team_options
def chat(
    agent: str,
    session: str | None,
    user: str | None,
    max_tokens: int | None,
    max_cost: str | None,
    deadline_ms: int | None,
    verbose: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> NoReturn:
    """Chat with AGENT. Each line is a request in the same conversation.

    The answer is streamed to stdout. Calls of other agents and their cost are shown on stderr. The session id is
    printed first: use it with --session to continue the conversation later, also after a crash.

    /help lists the commands: /agents, /history, /calls, /budget, /cancel, /quit. Ctrl-C cancels the current answer and
    keeps the conversation. A second Ctrl-C exits. A line that ends with \\ continues on the next line. Pasted text is
    one request.

    Without a terminal, each line of stdin is a request, in order. The exit codes are those of `remit run`, for the last
    request.

    \b
    Example:
      remit chat assistant
      remit chat assistant --session chat-5f0c2d81e9a4
      printf 'Sort my receipts\\nAnd the tax?\\n' | remit chat assistant --jsonl
    """
    import msgspec

    from remit.protocol.remit import NAME_RULE, Name
    from remit_cli.drive.order import cost_in_team, order_of
    from remit_cli.places import team_path
    from remit_cli.talk.conversation import chat_with_agent, new_session

    try:
        msgspec.convert(session, Name | None)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"must have 1 to 200 characters, and {NAME_RULE}", param_hint="--session") from error
    path = team_path(team_file)
    order = order_of(agent, "", user, path, overrides).asking(
        session=session or new_session(),
        max_tokens=max_tokens,
        max_cost=cost_in_team(max_cost, path, overrides),
        deadline_ms=deadline_ms,
    )
    raise SystemExit(chat_with_agent(order, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file))
