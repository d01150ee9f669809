"""`remit chat`: talk to an agent, or have one's own talk to the one that somebody shares."""

from pathlib import Path
from typing import NoReturn, get_args

import click

from remit.cli.drive.order import Duration, Order
from remit.cli.options import json_option, jsonl_option, team_options
from remit.cli.suggest import chat_names, device_names, offered_agents, session_ids, shared_run_ids
from remit.relay.bridge.frames import Mode

# Which options belong to which chat: with a device, and without one.
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
@click.argument("agent", shell_complete=chat_names)
@click.argument("device", required=False, shell_complete=device_names)
@click.option(
    "--agent",
    "shared_agent",
    metavar="NAME",
    shell_complete=offered_agents,
    help="With DEVICE: which of the agents that it shares. Not needed if it shares one with you.",
)
@click.option("--objective", metavar="TEXT", help="With DEVICE: what the two agents shall work on.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    help="With DEVICE: which drafts you see first. Without it: as the profile says.",
)
@click.option(
    "--continue",
    "continued",
    is_flag=False,
    flag_value="newest",
    metavar="[RUN]",
    shell_complete=shared_run_ids,
    help="With DEVICE: go on with a run that is paused, the newest if none is named.",
)
@click.option(
    "--api", "serves", is_flag=True, help="With DEVICE: let other programs of yours show and steer the run, over HTTP."
)
@click.option("--session", metavar="ID", shell_complete=session_ids, help="Go on in a session, not in a new one.")
@click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
@click.option("--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help="What an answer may cost.")
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="How long one may take: 30s, 5m.")
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the hub logs.")
@json_option
@jsonl_option
@team_options
@click.pass_context
def chat(
    ctx: click.Context,
    agent: str,
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
    """Talk to AGENT: each line is a request, and all of them are one conversation.

    The answer comes on stdout as it is made; who is called meanwhile, and what that took, is said on stderr. The
    session's id is printed first: with --session the conversation goes on later, also after a crash.

    /help lists what can be typed besides requests: /agents, /history, /calls, /budget, /cancel, /quit. Ctrl-C cancels
    the answer that is being made and keeps the conversation; a second one leaves at once. A line that ends with \\ is
    continued in the next, and a text that is pasted is one request.

    Without a terminal each line of stdin is a request, one after the other. Exits as `remit run` does, with the code
    of the last request.

    With a DEVICE, AGENT is a profile of the team, and its agent works with the one that the device shares, towards
    --objective, while you watch. You approve, edit or reject drafts (`a`, `e`, `r WHY`), and /pause, /resume, /stop,
    /take over (then you write), /hand back, or change /objective and /mode; /help lists it all. Ctrl-C pauses, and a
    second one leaves: the run stays paused, and goes on with --continue. Without a terminal what is said comes as
    lines on stdout, and drafts are answered with `remit pending`. It exits with 0 if the run was completed or stopped,
    5 or 6 if it ended at a limit, 1 if something failed.

    \b
    Example:
      remit chat assistant
      remit chat assistant --session chat-5f0c2d81e9a4
      printf 'Sort my receipts\\nAnd the tax?\\n' | remit chat assistant --jsonl
      remit chat reviewer bobs-laptop --objective "Review the API" --mode semi_auto
      remit chat reviewer bobs-laptop --continue
    """
    foreign = _SHARED if device is None else _ALONE
    if wrong := [option for name, option in foreign.items() if ctx.params[name]]:
        where = "needs a DEVICE: remit chat PROFILE DEVICE" if device is None else "is for a chat without DEVICE"
        raise click.UsageError(f"{wrong[0]} {where}")
    if device is None:
        _alone(agent, session, user, max_tokens, deadline_ms, verbose, as_jsonl, team_file, overrides)
    if objective is None and continued is None:
        raise click.UsageError("say what they shall work on, --objective TEXT, or go on with a run, --continue")
    if objective is not None and not objective.strip():
        raise click.BadParameter("it must not be empty", param_hint="--objective")
    if as_json and as_jsonl:
        raise click.UsageError("--json prints one document at the end, --jsonl one per line: choose")
    from remit.cli.places import team_path
    from remit.cli.shared.hold import SharedOrder, hold_shared

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
    raise SystemExit(hold_shared(order))


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

    from remit.cli.places import team_path, whoever_types
    from remit.cli.talk.conversation import new_session
    from remit.cli.talk.hold import hold
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
