"""`remit policy`: explain the guards' decisions."""

from pathlib import Path

import click

from remit.cli.command_groups import SubcommandGroup
from remit.cli.completion_words import agent_names, agents_and_user
from remit.cli.options import Duration, json_option, team_options
from remit.cli.show.screen import many, print_fields, print_json, print_table, print_text, spoken, styled
from remit.documents.policy import Explanation, Guards, Placing
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Call


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
    from remit.cli.teams import team_of
    from remit.cli.verdicts import team_guards
    from remit.config.team_search import find_team

    team = team_of(team_file, overrides) if find_team(team_file) else None
    lines = team_guards(team)
    if as_json:
        print_json(Guards(guards=lines))
    else:
        print_table(["guard", "passes if"], [(each.name, each.says) for each in lines])


@policy.command()
@click.argument("origin", metavar="FROM", shell_complete=agents_and_user)
@click.argument("target", metavar="TO", shell_complete=agent_names)
@click.argument("objective")
@click.option("--capability", metavar="CODE", help="Capability to request.")
@click.option("--input", "given", metavar="JSON", help="Input for the agent: JSON, @FILE, or - for stdin.")
@click.option("--user", default="someone", show_default=True, help="User to ask as.")
@click.option("--budget", type=click.IntRange(min=0), metavar="TOKENS", help="Token budget of the request.")
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="Time limit: 30s, 5m.")
@click.option("--tools", metavar="NAMES", help="Limit it to these tools, separated by commas.")
@click.option("--simple", is_flag=True, help="Treat the task as simple enough to do without a specialist.")
@click.option("--lacks-data", is_flag=True, help="Treat the current agent as lacking data or context that others have.")
@team_options
@json_option
def explain(
    origin: str,
    target: str,
    objective: str,
    capability: str | None,
    given: str | None,
    user: str,
    budget: int | None,
    deadline_ms: int | None,
    tools: str | None,
    simple: bool,
    lacks_data: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Explain what would happen if FROM asked TO for OBJECTIVE. No agent runs, and nothing is recorded.

    FROM is `user`, or an agent, as if a user had asked it first. All guards are evaluated in order, also after one
    objects. The first objection decides. Rate limits and circuit breakers of TO are not included, since only a running
    hub knows them.

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
    """
    from remit.cli.drive.order import read_task
    from remit.cli.teams import known_agent, team_of
    from remit.cli.verdicts import explained

    text, value = read_task(objective, given, capability)
    call = Call(
        target=target,
        objective=text,
        input=value,
        capability=capability,
        max_tokens=budget,
        deadline_ms=deadline_ms,
        tools=None if tools is None else frozenset(each.strip() for each in tools.split(",") if each.strip()),
    )
    team = team_of(team_file, overrides)
    if origin != USER:
        known_agent(origin, team.everyone)
    found = explained(team, origin, call, user, simple=simple, lacks_data=lacks_data)
    if as_json:
        print_json(found)
    else:
        _print(found, team.approvals.otherwise)
    raise SystemExit(found.exit_code)


_SHOWN = {"allow": ("ok", "green"), "rewrite": ("rewrite", "cyan"), "ask": ("ask", "yellow")}
_OBJECTION = ("refuse", "red")


def _print(found: Explanation, asked_at: str) -> None:
    width = max(len(each.guard) for each in found.guards)
    for each in found.guards:
        word, colour = _SHOWN.get(each.verdict, _OBJECTION)
        code = f"{each.code}: " if each.code else ""
        click.echo(styled(f"{word:7}", fg=colour), nl=False)
        print_text(f"  {each.guard:{width}}  {code}{each.says}")
    click.echo()
    if found.struck:
        seen = {False: f"{found.target} sees a token", True: f"{found.target} sees it in clear, by the team file"}
        print_fields((each.kind, f"in {each.place}; {seen[each.shown]}") for each in found.struck)
        click.echo()
        print_fields([("objective", found.request.objective), ("input", text_of(found.request.input))])
        click.echo()
    if found.authority is not None:
        print_text(_authority(found))
    if found.place is not None:
        print_text(_placing(found.place))
    print_text(_conclusion(found, asked_at))
    if found.fault is not None:
        for problem in found.fault.problems:
            print_text(f"  {problem.path}: {problem.message}")
        print_text(f"→ {found.fault.suggestion}")


def _authority(found: Explanation) -> str:
    is_own = found.authority == "own" or found.origin == USER
    whose = "its own permissions" if is_own else f"at most the permissions of {found.origin}"
    tools, targets = ", ".join(found.tools) or "none", ", ".join(found.targets) or "nobody"
    return f"{found.target} has {whose} (authority = {found.authority}): tools {tools}; may call {targets}."


def _placing(place: Placing) -> str:
    what = "should delegate it" if place.decision == "route" else "should handle it itself"
    sure = "" if place.confidence is None else f", {place.confidence:.0%} sure"
    return f"{place.agent} {what} ({place.reason}): {place.why} [{place.capability}{sure}]."


def _conclusion(found: Explanation, asked_at: str) -> str:
    what = f"{found.origin} asking {found.target}"
    match found.outcome:
        case "allowed":
            remit = found.request.remit
            return f"{what} would be allowed, with {spoken(remit.time_ms)} and {many(remit.tokens, 'token')}."
        case "asks":
            where = "on the terminal" if asked_at == "terminal" else "in the inbox (`remit pending`)"
            edits = f" They may edit: {', '.join(found.editable)}." if found.editable else ""
            return f"{what} would wait for a person, asked {where} by {found.by}: {found.question}{edits}"
        case "refused":
            why = f"{found.fault.code}: {found.fault.message}" if found.fault else ""
            return f"{what} would be refused by {found.by}. {why}"
