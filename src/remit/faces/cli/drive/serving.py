"""A server that someone watches: where it is, and that it ends well."""

import click

from remit.faces.cli.drive.data import Data
from remit.faces.cli.places import shorter
from remit.faces.outputs import ServerUp
from remit.faces.serving import Serving, serving
from remit.faces.team.sections import Team


async def attend(team: Team, host: str | None, port: int | None, data: Data | None) -> int:
    """Serve a team until it is told to end, and return the exit code."""
    async with serving(team, host=host, port=port) as up:
        up.server.when_started = lambda: _tell(team, up, data)
        await up.server.serve()
    click.echo("Ended; nothing is lost.", err=True)
    return 0


def _tell(team: Team, up: Serving, data: Data | None) -> None:
    address = up.server.address
    if data is not None:
        agents = tuple(sorted(up.server.api.delegations.exposed()))
        token_file = None if up.token is None else str(up.token)
        data.document(ServerUp(team=team.name, address=address, agents=agents, token_file=token_file))
        return
    click.echo(f"Serving {team.name} at {address} (Ctrl-C ends it).", err=True)
    if up.token is not None:
        token = shorter(up.token)
        click.echo(f"The team names no clients: only who knows the token in {token} is let in. Try:", err=True)
        click.echo(f'  curl -H "Authorization: Bearer $(cat {token})" {address}/v1/agents', err=True)
