"""`remit policy`: explain the guards' decisions."""

from functools import partial
from pathlib import Path

import click

from remit_cli.completion_words import agent_names, agents_and_user
from remit_cli.options import SubcommandGroup, deadline_option, json_option, team_options


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
    from remit.policy.guards import GUARDS
    from remit_cli.config.composition import guards_of
    from remit_cli.config.team_search import find_team
    from remit_cli.show.screen import print_json, print_table
    from remit_cli.teams import team_of
    from remit_server.documents.verdicts import Guards, guard_lines

    team = team_of(team_file, overrides) if find_team(team_file) else None
    lines = guard_lines((*GUARDS, *(guards_of(team) if team is not None else ())))
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
@deadline_option()
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
    """
    from remit.plugin import brought, named
    from remit.protocol.envelope import USER, Call
    from remit_cli.config.composition import hub_of
    from remit_cli.drive.order import read_task
    from remit_cli.show.policy_print import print_explanation
    from remit_cli.show.screen import print_json
    from remit_cli.teams import importing, known_agent, placeholder_secrets, team_of
    from remit_server.documents.verdicts import Approving, explanation

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
    with importing():
        hub = hub_of(team, environ=placeholder_secrets(team))  # it is not opened
    advisers = (named(bring()) for bring in brought("placing"))
    places = (partial(each, team, hub.cards, call, simple=simple, lacks_data=lacks_data) for each in advisers)
    approving = Approving(team.approvals.allow, team.approvals.otherwise)
    found = explanation(hub, origin, call, user, approving=approving, place=next(places, None))
    if as_json:
        print_json(found)
    else:
        print_explanation(found, team.approvals.otherwise)
    raise SystemExit(found.exit_code)
