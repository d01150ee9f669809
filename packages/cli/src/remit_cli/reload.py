"""`remit reload`: make running hubs apply the changed team file."""

from typing import TYPE_CHECKING

import click

from remit_cli.options import GivenStore, json_option, store_options
from remit_cli.show.screen import print_json, print_text
from remit_server.documents.team import Reloading

if TYPE_CHECKING:
    from remit_cli.store_view import Place


@click.command()
@store_options
@json_option
def reload(given: GivenStore, as_json: bool) -> None:
    """Make all running hubs on the team's store apply the changed team file.

    The file is checked first, as by `remit validate`. No run is stopped: calls in progress keep the time, tokens and
    tools that they were granted, and new calls follow the new settings. These settings apply at once: limits, budgets,
    breaker, rules, approvals.timeout, and may_call, allow_sub_agent_calls, recursive, authority, rate, time, tokens and
    draws of agents. Everything else needs a restart: code, new agents, capabilities, tools, redaction, the store.

    \b
    Example:
      remit reload
    """
    import asyncio

    from remit_cli.places import relative_path, store_file
    from remit_cli.teams import team_of

    team = team_of(given.team_file, given.overrides)
    path = store_file(given._replace(team_file=team.file))
    number = asyncio.run(_tell(path))
    file = relative_path(team.file)
    if as_json:
        print_json(Reloading(file=str(file), store=str(path), number=number))
        return
    print_text(f"{file} is valid. All hubs that run on {path} apply it now.")
    click.echo("→ To see what each hub applied: remit runs watch last, or remit audit tail.", err=True)


async def _tell(path: "Place") -> int:
    from remit_cli.places import writing
    from remit_cli.teams import current_user

    async with writing(path) as store:
        return await store.control("", "reload", current_user(), "")
