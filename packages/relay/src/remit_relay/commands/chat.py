"""`remit chat` with a DEVICE: a local agent works with a shared one."""

from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

import click

from remit_cli.options import json_option
from remit_relay.bridge.ports import Mode
from remit_relay.commands.completion_words import chat_names, device_names, offered_agents, shared_run_ids

# The options that need a device, and those that exclude one.
_ALONE = {
    "session": "--session",
    "user": "--user",
    "max_tokens": "--budget",
    "max_cost": "--max-cost",
    "deadline_ms": "--deadline",
}
_SHARED = {
    "shared_agent": "--agent",
    "objective": "--objective",
    "mode": "--mode",
    "continued": "--continue",
    "as_json": "--json",
    "serves": "--api",
}

_HELP = """
With a DEVICE, AGENT is a profile of the team. Its agent works with the agent that the device shares, towards
--objective, while you watch. Without both, the only profile and the only paired device are taken; you are asked if
there are several, and for the objective. You approve, edit or reject drafts (`a`, `e`, `r WHY`). Further commands
are /pause, /resume, /stop, /take over (you write), /hand back, /objective and /mode; /help lists all. Ctrl-C
pauses. A second Ctrl-C exits: the run stays paused until you resume it with --continue. Without a terminal,
messages are printed as lines on stdout, and you answer drafts with `remit pending`. The exit code is 0 if the run
was completed or stopped, 5 or 6 if it reached a limit, and 1 if something failed.
"""
_EXAMPLES = """
  remit chat
  remit chat reviewer bobs-laptop --objective "Review the API" --mode semi_auto
  remit chat reviewer bobs-laptop --continue
"""


def with_devices(alone: click.Command) -> click.Command:
    """Return `remit chat` with what it does with a DEVICE, beside a chat *alone* with an agent of the team."""

    @click.command("chat", help=_help(alone.help or ""))
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
        "--api",
        "serves",
        is_flag=True,
        help="With DEVICE: print where your other programs can show and control the run.",
    )
    @json_option
    @click.pass_context
    def chat(ctx: click.Context, agent: str | None, device: str | None, **options: Any) -> None:
        is_named = device is not None
        if device is None:
            agent, device = _chosen(agent, options["team_file"], options["overrides"])
        assert agent is not None, "one was named or chosen"
        foreign = _SHARED if device is None else _ALONE
        if wrong := [option for name, option in foreign.items() if options[name]]:
            raise click.UsageError(f"{wrong[0]} {_where(agent, device, is_named=is_named)}")
        if device is None:
            ctx.invoke(alone, agent=agent, **{name: each for name, each in options.items() if name not in _SHARED})
        else:
            _chat(agent, device, **{name: each for name, each in options.items() if name not in _ALONE})

    # Its own options first, except for --json, which stands beside --jsonl.
    *own, as_json = chat.params
    before = [each for each in alone.params if isinstance(each, click.Option)]
    place = [each.name for each in before].index("as_jsonl")
    chat.params = [*own, *before[:place], as_json, *before[place:]]
    return chat


def _help(alone: str) -> str:
    text, examples = cleandoc(alone).split("\b\nExample:\n")
    return f"{text}{_HELP.strip()}\n\n\b\nExample:\n{examples.rstrip()}{_EXAMPLES}"


def _chat(
    profile: str,
    device: str,
    *,
    shared_agent: str | None,
    objective: str | None,
    mode: Mode | None,
    continued: str | None,
    serves: bool,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    if objective is None and continued is None:
        from remit_relay.commands.shared.hold import ask_objective

        objective = ask_objective()
    if objective is not None and not objective.strip():
        raise click.BadParameter("must not be empty", param_hint="--objective")
    from remit_cli.places import team_path
    from remit_relay.commands.shared.hold import SharedOrder, chat_with_shared_agent

    order = SharedOrder(
        profile=profile,
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
    from remit_relay.commands.shared.hold import choose_pair

    return choose_pair(agent, team_file, overrides) or (agent, None)


def _where(agent: str, device: str | None, *, is_named: bool) -> str:
    if device is None:
        return "needs a DEVICE: remit chat PROFILE DEVICE"
    if is_named:
        return "is for a chat without DEVICE"
    return f"is for a chat with an agent of this team, and {agent} is a profile: it works with a shared agent"
