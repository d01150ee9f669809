"""Runs a device in the foreground, and logs what happens to it as plain lines."""

import asyncio
from contextlib import AsyncExitStack

import click

from remit.words.terminal import one_line
from remit_cli.config.team import Team, sections
from remit_cli.drive.running import Data, until_stopped
from remit_cli.places import relative_path
from remit_relay.commands.shared.sharing import EventPrinter
from remit_relay.commands.shared.up_control import document_of
from remit_relay.local_api.device_endpoints import EndedNews
from remit_relay.team.device import device_path
from remit_relay.team.device_host import DeviceHere, device_here
from remit_server.console.hosts import TOKEN_FILE
from remit_server.server import freeze_loaded


async def run_device(team: Team, overrides: tuple[str, ...], port: int, data: Data | None) -> int:
    """Run the team's device until it is stopped, and return the exit code."""
    with until_stopped() as stop_signal:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(device_here(team, command="up", overrides=overrides, port=port))
            for section in sections():
                await stack.enter_async_context(section.beside_device(team, "remit up"))
            logging = asyncio.create_task(_log_news(here))
            _announce(team, here, data)
            freeze_loaded()
            await asyncio.wait({stop_signal, here.relay.ended}, return_when=asyncio.FIRST_COMPLETED)
            logging.cancel()
            if here.relay.ended.done():
                raise here.relay.ended.result()
            click.echo("Stopping. Active runs come back paused.", err=True)
    click.echo("Stopped.", err=True)
    return 0


def _announce(team: Team, here: DeviceHere, data: Data | None) -> None:
    """Say that the device runs, and where its local API is."""
    status = here.status()
    if data is not None:
        data.document(document_of(status, here.process))
        return
    click.echo(f"The device {one_line(status.name)} is up (process {status.pid}; Ctrl-C stops it).", err=True)
    token = relative_path(device_path(team).with_name(TOKEN_FILE))
    click.echo(f"Local API: {here.process.address}, with the token in {token}", err=True)
    click.echo(f"Console, once within 5 minutes: {here.links.new()}", err=True)
    for each in status.shared:
        called = each.agent if each.name == each.agent else f"{each.agent} as {each.name}"
        click.echo(f"Sharing {called} with {', '.join(map(one_line, each.devices)) or 'nobody'}.", err=True)


async def _log_news(here: DeviceHere) -> None:
    printer = EventPrinter(None)
    with here.news.reading() as queue:
        printer.show(here.status())
        while True:
            news = await queue.get()
            if not isinstance(news, EndedNews):  # the command fails with it
                printer.show(here.status() if news is None else news)
