"""`remit chat`: chat with an agent."""

from pathlib import Path
from typing import NoReturn

import click

from remit_cli.completion_words import agent_names, session_ids
from remit_cli.options import (
    budget_option,
    deadline_option,
    jsonl_option,
    team_options,
    user_option,
    verbose_option,
)


@click.command()
@click.argument("agent", shell_complete=agent_names)
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Continue this session.  [default: a new one]"
)
@user_option
@budget_option("Token budget for each answer.")
@deadline_option("Time limit for each answer: 30s, 5m.")
@verbose_option
@jsonl_option
@team_options
def chat(
    agent: str,
    session: str | None,
    user: str | None,
    max_tokens: int | None,
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
    from remit_cli.drive.order import Order
    from remit_cli.talk.conversation import chat_with_agent, new_session
    from remit_cli.teams import current_user, team_path

    try:
        msgspec.convert(session, Name | None)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"must have 1 to 200 characters, and {NAME_RULE}", param_hint="--session") from error
    order = Order(
        agent=agent,
        text="",
        user=user or current_user(),
        options={"session": session or new_session(), "max_tokens": max_tokens, "deadline_ms": deadline_ms},
        team_file=str(team_path(team_file).absolute()),
        overrides=overrides,
    )
    raise SystemExit(chat_with_agent(order, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file))
