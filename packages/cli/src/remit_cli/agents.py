"""`remit agents`: the agents of the team, their permissions, and their ranking from the record."""

from pathlib import Path

import click

from remit_cli.completion_words import agent_names, capability_codes
from remit_cli.options import SubcommandGroup, json_option, team_options


@click.group(cls=SubcommandGroup)
def agents() -> None:
    """Show the agents of the team.

    \b
    Example:
      remit agents list
      remit agents show assistant
    """


@agents.command(name="list")
@team_options
@json_option
def list_agents(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List agents and workflows: their purpose, and which agents they may call.

    \b
    Example:
      remit agents list
    """
    from remit_cli.show.agents_print import print_agents
    from remit_cli.teams import team_of

    print_agents(team_of(team_file, overrides), as_json=as_json)


@agents.command()
@click.argument("agent", required=False, shell_complete=agent_names)
@click.option(
    "--capability",
    metavar="CODE",
    shell_complete=capability_codes,
    help="Rank the agents that offer this capability, with reasons, instead of showing one agent.",
)
@team_options
@json_option
def show(
    agent: str | None, capability: str | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Show the settings of one AGENT (or the steps of a workflow), or rank the agents that offer a capability.

    If several agents offer a capability, Remit asks the one with the better recent results first. `--capability` shows
    that order. It is computed from the newest calls in the record, of all processes. It does not include open circuit
    breakers and used-up rate limits, since only the running hub knows them.

    \b
    Example:
      remit agents show assistant
      remit agents show --capability TAG
    """
    from remit_cli.show.agents_print import print_agent, print_ranking
    from remit_cli.teams import team_of

    if capability is not None and agent is None:
        print_ranking(capability, team_of(team_file, overrides), as_json=as_json)
    elif agent is not None and capability is None:
        print_agent(agent, team_of(team_file, overrides), as_json=as_json)
    else:
        raise click.UsageError("give an AGENT, or a capability with --capability")
