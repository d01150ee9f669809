"""`remit chat`: chat with an agent, or let a local agent work with a shared one."""

from pathlib import Path
from typing import NoReturn, get_args

import click

from remit.cli.completion_words import chat_names, device_names, offered_agents, session_ids, shared_run_ids
from remit.cli.options import Duration, json_option, jsonl_option, team_options
from remit.relay.bridge.ports import Mode

# The options that need a device, and those that exclude one.
_ALONE = {"session": "--session", "user": "--user", "max_tokens": "--budget", "deadline_ms": "--deadline"}
_SHARED = {
    "shared_agent": "--agent",
    "objective": "--objective",
    "mode": "--mode",
    "continued": "--continue",
    "as_json": "--json",
    "serves": "--api",
}


@click.command()
@click.argument("agent", required=False, shell_complete=chat_names)
@click.argument("device", required=False, shell_complete=device_names)
@click.option(
    "--agent",
    "shared_agent",
    metavar="NAME",
    shell_complete=offered_agents,
    help="With DEVICE: the shared agent to work with. Needed only if the device shares several with you.",
)
@click.option("--objective", metavar="TEXT", help="With DEVICE: the goal of the two agents.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    help="With DEVICE: which drafts you review before they are sent.  [default: from the profile]",
)
@click.option(
    "--continue",
    "continued",
    is_flag=False,
    flag_value="newest",
    metavar="[RUN]",
    shell_complete=shared_run_ids,
    help="With DEVICE: resume a paused run.  [default: the newest]",
)
@click.option(
    "--api", "serves", is_flag=True, help="With DEVICE: print where your other programs can show and control the run."
)
@click.option(
    "--session", metavar="ID", shell_complete=session_ids, help="Continue this session.  [default: a new one]"
)
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option(
    "--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help="Token budget for each answer."
)
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="Time limit for each answer: 30s, 5m.")
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the hub.")
@json_option
@jsonl_option
@team_options
@click.pass_context
def chat(
    ctx: click.Context,
    agent: str | None,
    device: str | None,
    shared_agent: str | None,
    objective: str | None,
    mode: Mode | None,
    continued: str | None,
    serves: bool,
    session: str | None,
    user: str | None,
    max_tokens: int | None,
    deadline_ms: int | None,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Chat with AGENT. Each line is a request in the same conversation.

    The answer is streamed to stdout. Calls of other agents and their cost are shown on stderr. The session id is
    printed first: use it with --session to continue the conversation later, also after a crash.

    /help lists the commands: /agents, /history, /calls, /budget, /cancel, /quit. Ctrl-C cancels the current answer and
    keeps the conversation. A second Ctrl-C exits. A line that ends with \\ continues on the next line. Pasted text is
    one request.

    Without a terminal, each line of stdin is a request, in order. The exit codes are those of `remit run`, for the last
    request.

    With a DEVICE, AGENT is a profile of the team. Its agent works with the agent that the device shares, towards
    --objective, while you watch. Without both, the only profile and the only paired device are taken; you are asked if
    there are several, and for the objective. You approve, edit or reject drafts (`a`, `e`, `r WHY`). Further commands
    are /pause, /resume, /stop, /take over (you write), /hand back, /objective and /mode; /help lists all. Ctrl-C
    pauses. A second Ctrl-C exits: the run stays paused until you resume it with --continue. Without a terminal,
    messages are printed as lines on stdout, and you answer drafts with `remit pending`. The exit code is 0 if the run
    was completed or stopped, 5 or 6 if it reached a limit, and 1 if something failed.

    \b
    Example:
      remit chat assistant
      remit chat assistant --session chat-5f0c2d81e9a4
      printf 'Sort my receipts\\nAnd the tax?\\n' | remit chat assistant --jsonl
      remit chat
      remit chat reviewer bobs-laptop --objective "Review the API" --mode semi_auto
      remit chat reviewer bobs-laptop --continue
    """
    is_named = device is not None
    if device is None:
        agent, device = _chosen(agent, team_file, overrides)
    assert agent is not None, "one was named or chosen"
    foreign = _SHARED if device is None else _ALONE
    if wrong := [option for name, option in foreign.items() if ctx.params[name]]:
        raise click.UsageError(f"{wrong[0]} {_where(agent, device, is_named=is_named)}")
    if device is None:
        _alone(agent, session, user, max_tokens, deadline_ms, verbose, as_jsonl, team_file, overrides)
    if objective is None and continued is None:
        from remit.cli.shared.choosing import ask_objective

        objective = ask_objective()
    if objective is not None and not objective.strip():
        raise click.BadParameter("must not be empty", param_hint="--objective")
    if as_json and as_jsonl:
        raise click.UsageError("--json (one document at the end) and --jsonl (one per line) cannot be combined")
    from remit.cli.shared.hold import SharedOrder, chat_with_shared_agent
    from remit.cli.teams import team_path

    order = SharedOrder(
        profile=agent,
        device=device,
        agent=shared_agent or "",
        objective=objective,
        mode=mode,
        continued=continued,
        serves=serves,
        team_file=str(team_path(team_file).absolute()),
        overrides=overrides,
        as_json=as_json,
        as_jsonl=as_jsonl,
        verbose=verbose,
        named_team=team_file,
    )
    raise SystemExit(chat_with_shared_agent(order))


def _chosen(agent: str | None, team_file: Path | None, overrides: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return the profile and the device of a chat without DEVICE, or the agent alone."""
    from remit.cli.shared.choosing import choose_pair

    return choose_pair(agent, team_file, overrides) or (agent, None)


def _where(agent: str, device: str | None, *, is_named: bool) -> str:
    if device is None:
        return "needs a DEVICE: remit chat PROFILE DEVICE"
    if is_named:
        return "is for a chat without DEVICE"
    return f"is for a chat with an agent of this team, and {agent} is a profile: it works with a shared agent"


def _alone(
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
    import msgspec

    from remit.cli.drive.order import Order
    from remit.cli.talk.conversation import new_session
    from remit.cli.talk.hold import chat_with_agent
    from remit.cli.teams import current_user, team_path
    from remit.protocol.remit import NAME_RULE, Name

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
