"""Shell completion of the names of profiles, devices and shared agents, and of the ids of their runs.

As in `remit_cli.completion`, no function here raises, and none imports more than it needs.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from remit_cli.completion import MOST, agent_items, plain, short, store_of, tables_of, team_content


@plain
def chat_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the possible first arguments of `remit chat`: the agents, workflows and profiles of the team."""
    profiles = tables_of(ctx, "profiles")
    return agent_items(ctx, incomplete) + [
        CompletionItem(name, help="a profile, to work with an agent that a device shares")
        for name in profiles
        if name.startswith(incomplete)
    ]


@plain
def shared_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that the team shares; if there are none, all its agents, which can be shared with --device."""
    shared = [CompletionItem(name) for name in tables_of(ctx, "shared") if name.startswith(incomplete)]
    return shared or agent_items(ctx, incomplete)


@plain
def granted_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that the team shares, which another device may be let to ask."""
    return [CompletionItem(name) for name in tables_of(ctx, "shared") if name.startswith(incomplete)]


@plain
def granted_profiles(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the profiles of the team, which may be let to ask another device."""
    return [CompletionItem(name) for name in tables_of(ctx, "profiles") if name.startswith(incomplete)]


@plain
def device_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the devices and groups that the profile in the previous argument may call."""
    profile, named = ctx.params.get("agent") or next(iter(ctx.args), None), dict[str, None]()
    with suppress(AttributeError, TypeError):  # the values need not be tables yet
        named = dict.fromkeys(team_content(ctx).get("profiles", {}).get(profile, {}).get("devices", []))
    for peer in _read_device(ctx, _peers):
        if peer.may_be_asked_by(profile) or (not peer.revoked and named.keys() & peer.names):
            named |= dict.fromkeys(sorted(peer.groups))
        if peer.may_be_asked_by(profile):
            named[peer.card.name] = None
    return [CompletionItem(name) for name in named if name.startswith(incomplete)]


@plain
def known_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the paired devices that are not revoked."""
    return [
        CompletionItem(peer.card.name, help=peer.device)
        for peer in _read_device(ctx, _peers)
        if not peer.revoked and peer.card.name.startswith(incomplete)
    ]


@plain
def device_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the groups of devices."""
    return [each for each in _groups(_read_device(ctx, _peers)) if each.value.startswith(incomplete)]


def devices_and_groups(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the paired devices that are not revoked, and the groups."""
    return [*known_devices(ctx, parameter, incomplete), *device_groups(ctx, parameter, incomplete)]


def _peers(state: Any) -> list[Any]:
    from remit_relay.device.peers import Peers

    return Peers(state).list()


def _groups(known: list[Any]) -> list[CompletionItem]:
    names = sorted({group for peer in known for group in peer.groups})
    return [
        CompletionItem(name, help=short(", ".join(peer.card.name for peer in known if name in peer.groups)))
        for name in names
    ]


@plain
def offered_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that the paired devices, or the device in the previous argument, share with this one."""
    named = {ctx.params.get("device"), *ctx.args} - {None}

    def query(state: Any) -> list[Any]:
        from remit_relay.device.peers import Peers
        from remit_relay.messages.types import latest_offers

        peers = [peer for peer in Peers(state).list() if not peer.revoked]
        chosen = [peer for peer in peers if named & peer.names] or peers
        return [offer for peer in chosen for offer in latest_offers(state, peer.device) or ()]

    return [
        CompletionItem(offer.name, help=short(offer.description))
        for offer in _read_device(ctx, query)
        if offer.name.startswith(incomplete)
    ]


@plain
def shared_run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs with shared agents that can be continued."""

    def query(state: Any) -> list[Any]:
        from remit_relay.session.moves import ENDED
        from remit_relay.session.repository import kept_runs

        return [run for run in reversed(kept_runs(state)) if run.state not in ENDED]

    runs = [run for run in _read_device(ctx, query) if run.id.startswith(incomplete)]
    return [CompletionItem(run.id, help=f"{run.profile}: {short(run.objective)}") for run in runs[:MOST]]


def _read_device(ctx: click.Context, query: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the rows of a query on the file of the team's device; none if it needs a passphrase."""
    with suppress(Exception):  # no device yet, a locked file, or one of another version: there is nothing to complete
        return read_device(store_of(ctx).parent, query)
    return []


def read_device(folder: Path, query: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the rows of a query on the file of the device in a folder; none if there is none."""
    from remit_relay.device.state import DEVICE_FILE, KEY_FILE, DeviceFile, open_keys

    path = folder / DEVICE_FILE
    # Both would be created if they were missing.
    if not (path.exists() and path.with_name(KEY_FILE).exists()):
        return []
    state = DeviceFile.open(path, open_keys(path.with_name(KEY_FILE), ""))
    try:
        return query(state)
    finally:
        state.close()
