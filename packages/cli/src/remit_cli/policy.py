"""`remit policy`: explain the guards' decisions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from remit.protocol.codec import text_of
from remit.protocol.envelope import USER
from remit_cli.completion import agent_names, agents_and_user
from remit_cli.options import SubcommandGroup, cost_option, deadline_option, json_option, team_options
from remit_cli.show.screen import many, print_beside, print_fields, print_json, print_table, spoken

if TYPE_CHECKING:  # they bring the engine
    from remit import Hub
    from remit.protocol.envelope import Call, Json
    from remit_cli.config.team import Team
    from remit_server.documents.verdicts import Approving, Explanation, Placing


@click.group(cls=SubcommandGroup)
def policy() -> None:
    """Explain what each guard decides about a request.

    \b
    Example:
      remit policy guards
      remit policy explain user assistant "Sort my receipts"
    """


@policy.command()
@team_options
@json_option
def guards(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List the guards in evaluation order, with the condition that each one checks.

    \b
    Example:
      remit policy guards
    """
    from remit.runtime.preview import guards_with
    from remit_cli.config.composition import guards_of
    from remit_cli.config.team_search import find_team
    from remit_cli.places import team_of
    from remit_server.documents.verdicts import Guards, guard_lines

    team = team_of(team_file, overrides) if find_team(team_file) else None
    lines = guard_lines(*guards_with(guards_of(team) if team is not None else ()))
    if as_json:
        print_json(Guards(guards=lines))
    else:
        print_table(["guard", "passes if"], [(each.name, each.says) for each in lines])


@policy.command()
@click.argument("origin", metavar="FROM", shell_complete=agents_and_user)
@click.argument("target", metavar="TO", shell_complete=agent_names)
@click.argument("objective", required=False)
@click.option("--capability", metavar="CODE", help="Capability to request.")
@click.option("--input", "given", metavar="JSON", help="Input for the agent: JSON, @FILE, or - for stdin.")
@click.option("--user", default="someone", show_default=True, help="User to ask as.")
@click.option("--budget", type=click.IntRange(min=0), metavar="TOKENS", help="Token budget of the request.")
@cost_option("Money that the models may cost for the request.")
@deadline_option()
@click.option("--tools", metavar="NAMES", help="Limit it to these tools, separated by commas.")
@click.option("--tool", "is_tool", is_flag=True, help="TO is a tool that FROM would use, with --input as arguments.")
@click.option("--answer", "is_answer", is_flag=True, help="FROM would answer TO, which may be `user`, with OBJECTIVE.")
@click.option("--simple", is_flag=True, help="Treat the task as simple enough to do without a specialist.")
@click.option("--lacks-data", is_flag=True, help="Treat the current agent as lacking data or context that others have.")
@team_options
@json_option
def explain(
    origin: str,
    target: str,
    objective: str | None,
    capability: str | None,
    given: str | None,
    user: str,
    budget: int | None,
    max_cost: str | None,
    deadline_ms: int | None,
    tools: str | None,
    is_tool: bool,
    is_answer: bool,
    simple: bool,
    lacks_data: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Explain what would happen if FROM asked TO for OBJECTIVE, used the tool TO, or gave TO an answer. Nothing runs.

    FROM is `user`, or an agent, as if a user had asked it first. The outcome comes first, with what to do about a
    refusal. Then all guards follow in order, also those after the first objection, which decides. Rate limits and
    circuit breakers of TO are not included, since only a running hub knows them.

    If the request names a capability, or its text asks for one, a line says whether FROM (or the agent that the user
    asks) should delegate it or handle it itself, and for which reason. Quality and speed of each agent are taken from
    the record.

    The exit code is 0 if the request would be allowed, 4 if a person would be asked first, and otherwise the exit code
    of the refusal (`remit errors CODE`).

    \b
    Example:
      remit policy explain assistant tax "What can be claimed back?"
      remit policy explain user assistant "Write to ann@example.org" --json
      remit policy explain assistant tax "What can be claimed?" --capability CLAIM --input @receipts.json
      remit policy explain teller pay --tool --input '{"to": "bob", "amount": 500}'
      remit policy explain tutor user "The answer is 42" --answer
    """
    from remit.installed import brought_under, named
    from remit.protocol.envelope import Call
    from remit_cli.config.composition import hub_of
    from remit_cli.drive.order import cost_in, read_task
    from remit_cli.places import importing, known_agent, placeholder_secrets, team_of
    from remit_server.documents.verdicts import explanation, explanation_of_answer

    of_calls = {
        "OBJECTIVE": objective,
        "--capability": capability,
        "--budget": budget,
        "--max-cost": max_cost,
        "--deadline": deadline_ms,
        "--tools": tools,
        "--simple": simple or None,
        "--lacks-data": lacks_data or None,
    }
    text, value = read_task(objective, given, capability)
    if is_tool:
        _check_use(origin, value, of_calls)
    if is_answer and (is_tool or origin == USER):
        raise click.UsageError("--answer needs an agent as FROM, and is not for tools")
    team = team_of(team_file, overrides)
    call = Call(
        target=target,
        objective=text,
        input=value,
        capability=capability,
        max_tokens=budget,
        max_cost=cost_in(max_cost, team.currency),
        deadline_ms=deadline_ms,
        tools=None if tools is None else frozenset(each.strip() for each in tools.split(",") if each.strip()),
    )
    if origin != USER:
        known_agent(origin, team.everyone)
    if is_answer and target != USER:
        known_agent(target, team.everyone)
    with importing():
        hub = hub_of(team, environ=placeholder_secrets(team))  # it is not opened
    if is_tool:
        ruling = _explanation_of_use(team, hub, origin, call, user)
    elif is_answer:
        ruling = explanation_of_answer(hub, origin, target, text if value is None else value, user, _approving(team))
    else:
        advisers = map(named, brought_under("extensions", "policy explain"))
        places = (partial(each, team, hub.cards, call, simple=simple, lacks_data=lacks_data) for each in advisers)
        ruling = explanation(hub, origin, call, user, approving=_approving(team), place=next(places, None))
    if as_json:
        print_json(ruling)
    else:
        print_explanation(ruling, team.approvals.otherwise)
        if is_tool and _is_unknown_tool(team, hub, origin, target):
            print_beside("", f"The team has no tool {target}: it is judged as one that {origin} brings along.")
    raise SystemExit(ruling.exit_code)


def _check_use(origin: str, arguments: Json, of_calls: Mapping[str, object]) -> None:
    """Refuse options that say nothing about the use of a tool."""
    if origin == USER or not isinstance(arguments, dict):
        raise click.UsageError("--tool needs an agent as FROM, and an object as --input: its arguments")
    if without := [name for name, option in of_calls.items() if option is not None]:
        raise click.UsageError(f"{' and '.join(without)}: not for the use of a tool, which has --input alone")


def _explanation_of_use(team: Team, hub: Hub, origin: str, call: Call, user: str) -> Explanation:
    """Explain what would happen if an agent used the tool that *call* names, with its input as arguments."""
    from remit_server.documents.verdicts import explanation_of_use

    tool, arguments = call.target or "", cast("dict[str, Json]", call.input)
    own = _is_unknown_tool(team, hub, origin, tool)
    return explanation_of_use(hub, origin, tool, arguments, user, own=own, approving=_approving(team))


def _is_unknown_tool(team: Team, hub: Hub, origin: str, tool: str) -> bool:
    """Return whether an agent in code may bring that tool along: the names of its own are known only when it runs."""
    in_code = origin in team.agents and team.agents[origin].run is not None
    return in_code and tool not in {*hub.tool_cards, *hub.cards[origin].tools}


def _approving(team: Team) -> Approving:
    from remit_server.documents.verdicts import Approving

    return Approving(team.approvals.allow, team.approvals.otherwise)


_SHOWN = {"allow": ("ok", "green"), "rewrite": ("rewrite", "cyan"), "ask": ("ask", "yellow")}
_OBJECTION = ("refuse", "red")


_OUTCOMES = {"allowed": "green", "asks": "yellow", "refused": "red"}


def print_explanation(ruling: Explanation, asked_at: str) -> None:
    """Print what would happen to a request, what to do about it, and then what each guard says."""
    print_beside(f"{ruling.outcome}  ", _conclusion(ruling, asked_at), fg=_OUTCOMES[ruling.outcome])
    if ruling.fault is not None:
        for problem in ruling.fault.problems:
            print_beside("  ", f"{problem.path}: {problem.message}")
        print_beside("→ ", ruling.fault.suggestion)
    if ruling.authority is not None:
        print_beside("", _authority(ruling))
    if ruling.place is not None:
        print_beside("", _placing(ruling.place))
    click.echo()
    width = max(len(each.guard) for each in ruling.guards)
    for each in ruling.guards:
        word, colour = _SHOWN.get(each.verdict, _OBJECTION)
        code = f"{each.code}: " if each.code else ""
        print_beside(f"{word:7}  {each.guard:{width}}  ", f"{code}{each.says}", fg=colour)
    if ruling.struck:
        click.echo()
        seen = {False: f"{ruling.target} sees a token", True: f"{ruling.target} sees it in clear, by the team file"}
        print_fields((each.kind, f"in {each.place}; {seen[each.shown]}") for each in ruling.struck)
        click.echo()
        print_fields([("objective", ruling.request.objective), ("input", text_of(ruling.request.input))])


def _authority(ruling: Explanation) -> str:
    is_own = ruling.authority == "own" or ruling.origin == USER
    whose = "its own permissions" if is_own else f"at most the permissions of {ruling.origin}"
    tools, targets = ", ".join(ruling.tools) or "none", ", ".join(ruling.targets) or "nobody"
    return f"{ruling.target} has {whose} (authority = {ruling.authority}): tools {tools}; may call {targets}."


def _placing(place: Placing) -> str:
    what = "should delegate it" if place.decision == "route" else "should handle it itself"
    sure = "" if place.confidence is None else f", {place.confidence:.0%} sure"
    return f"{place.agent} {what} ({place.reason}): {place.why} [{place.capability}{sure}]."


_ACTS = {"tool": "using", "answer": "answering"}


def _conclusion(ruling: Explanation, asked_at: str) -> str:
    what = f"{ruling.origin} {_ACTS.get(ruling.request.act, 'asking')} {ruling.target}"
    match ruling.outcome:
        case "allowed" if ruling.request.act == "answer":
            return f"{what} would be allowed."
        case "allowed":
            remit = ruling.request.remit
            return f"{what} would be allowed, with {spoken(remit.time_ms)} and {many(remit.tokens, 'token')}."
        case "asks":
            where = "on the terminal" if asked_at == "terminal" else "in the inbox (`remit pending`)"
            edits = f" They may edit: {', '.join(ruling.editable)}." if ruling.editable else ""
            return f"{what} would wait for a person, asked {where} by {ruling.by}: {ruling.question}{edits}"
        case "refused":
            why = f"{ruling.fault.code}: {ruling.fault.message}" if ruling.fault else ""
            return f"{what} would be refused by {ruling.by}. {why}"
