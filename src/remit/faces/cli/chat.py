"""`remit chat`: talk to an agent, line by line."""

from pathlib import Path

import click

from remit.faces.cli.drive.order import Duration, Order
from remit.faces.cli.options import jsonl_option, team_options
from remit.faces.cli.suggest import agent_names, session_ids


@click.command()
@click.argument("agent", shell_complete=agent_names)
@click.option("--session", metavar="ID", shell_complete=session_ids, help="Go on in a session, not in a new one.")
@click.option("--user", metavar="NAME", help="In whose name. Without it: yours, as the system knows it.")
@click.option("--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help="What an answer may cost.")
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="How long one may take: 30s, 5m.")
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the hub logs.")
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
) -> None:
    """Talk to AGENT: each line is a request, and all of them are one conversation.

    The answer comes on stdout as it is made; who is called meanwhile, and what that took, is said on stderr. The
    session's id is printed first: with --session the conversation goes on later, also after a crash.

    /help lists what can be typed besides requests: /agents, /history, /calls, /budget, /cancel, /quit. Ctrl-C cancels
    the answer that is being made and keeps the conversation; a second one leaves at once. A line that ends with \\ is
    continued in the next, and a text that is pasted is one request.

    Without a terminal each line of stdin is a request, one after the other. Exits as `remit run` does, with the code
    of the last request.

    \b
    Example:
      remit chat orchestrator
      remit chat orchestrator --session chat-5f0c2d81e9a4
      printf 'Sort my receipts\\nAnd the tax?\\n' | remit chat orchestrator --jsonl
    """
    import msgspec

    from remit.faces.cli.places import team_path, whoever_types
    from remit.faces.cli.talk.conversation import new_session
    from remit.faces.cli.talk.hold import hold
    from remit.protocol.remit import NAME_RULE, Name

    try:
        msgspec.convert(session, Name | None)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"it has 1 to 200 characters, and {NAME_RULE}", param_hint="--session") from error
    order = Order(
        agent=agent,
        text="",
        user=user or whoever_types(),
        session=session or new_session(),
        max_tokens=max_tokens,
        deadline_ms=deadline_ms,
        team_file=str(team_path(team_file).absolute()),
        overrides=overrides,
    )
    raise SystemExit(hold(order, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file))
