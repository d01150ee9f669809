"""Runs a worker in the foreground until it is stopped."""

import click

from remit.runtime.engine import AFTER_ANSWERS_S
from remit_cli.config.composition import hub_of
from remit_cli.config.team import Team
from remit_cli.config.values import duration_ms
from remit_cli.drive.running import until_stopped
from remit_cli.show.screen import many, spoken
from remit_cluster.nats.bus import Bus


async def run_worker(team: Team) -> int:
    """Host agents for other hubs until a stop signal, then drain; return the exit code."""
    hub = hub_of(team, takes=True)
    bus = hub.kept(Bus)
    assert bus is not None, "a team without a bus has no workers"
    async with hub:
        with until_stopped() as stopped:
            click.echo(f"Hosting {', '.join(bus.hosted) or 'nothing'} for {team.name} (Ctrl-C to stop).", err=True)
            await stopped
            drain_ms = duration_ms(team.serve.drain)
            if running := bus.in_progress:
                wait = f"waiting up to {spoken(drain_ms)} for {many(running, 'request')}"
                click.echo(f"Stopping: {wait}. Press Ctrl-C again to stop at once.", err=True)
            hub.closing.begin(drain_ms / 1_000)
            async with hub.closing.leaving(AFTER_ANSWERS_S, "the bus"):
                await bus.drain(drain_ms / 1_000)
            left = bus.in_progress
    click.echo(f"Stopped with {many(left, 'request')} in progress." if left else "Stopped.", err=True)
    return 0
