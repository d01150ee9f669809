"""Chooses the profile, the device and the objective of a chat that the command line does not name."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from remit.cli.teams import team_path
from remit.config.load import load_team
from remit.config.team import Team
from remit.protocol.errors import Code, RemitError, fault
from remit.words.terminal import one_line

_CHAT = "remit chat PROFILE DEVICE"


def choose_pair(profile: str | None, team_file: Path | None, overrides: Sequence[str]) -> tuple[str, str] | None:
    """Return a profile and a device: the only ones, or those that the person at the terminal chooses.

    None if *profile* is not a profile of the team, or is an agent of it, too: then no shared agent is meant.
    """
    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    if profile is None and not team.profiles:
        raise click.UsageError("Missing argument 'AGENT'.")
    if profile is not None and (profile not in team.profiles or profile in team.agents or profile in team.workflows):
        return None
    named = profile or _one("profile", [(name, _local_agent(team, name)) for name in team.profiles])
    return named, _one("device", _devices(team))


def ask_objective() -> str:
    """Return what the two agents should do, from the person at the terminal."""
    if not _can_ask():
        raise click.UsageError("give --objective TEXT to start a run, or --continue to resume one")
    return click.prompt("Objective of the two agents", value_proc=_objective, err=True)


def _objective(text: str) -> str:
    if not text.strip():
        raise click.BadParameter("the objective must not be empty")
    return text.strip()


def _local_agent(team: Team, name: str) -> str:
    said = team.profiles[name]
    return said.agent or " ".join(said.run or said.acp or ())


def _devices(team: Team) -> list[tuple[str, str]]:
    # Slow to load; a chat with an agent of the team does not need them.
    from remit.config.device import using_device
    from remit.relay.device.peers import Peers

    with using_device(team) as own:
        known = [each for each in Peers(own.state).list() if not each.revoked]
    able = [each for each in known if each.may_talk]
    if not able:
        why = "no device is paired yet" if not known else "no known device may be asked from here"
        advice = "Connect with another device: remit pair" if not known else "See them with `remit devices list`."
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion=advice))
    names = [each.card.name for each in able]
    # Two devices may have the same name; then the id tells them apart.
    return [(name if names.count(name) == 1 else each.device, "") for name, each in zip(names, able, strict=True)]


def _one(what: str, found: list[tuple[str, str]]) -> str:
    names = [name for name, _ in found]
    if len(names) == 1:
        return names[0]
    if not _can_ask():
        raise click.UsageError(f"there are several {what}s: {', '.join(names)}; name one: {_CHAT}")
    for number, (name, about) in enumerate(found, 1):
        click.echo(f"{number:3}  {one_line(name)}  {one_line(about, 60)}".rstrip(), err=True)

    def meant(typed: str) -> str:
        if typed in names:
            return typed
        if typed.isdecimal() and 1 <= int(typed) <= len(names):
            return names[int(typed) - 1]
        raise click.BadParameter(f"enter a number from 1 to {len(names)}, or a name")

    return click.prompt(f"Which {what}?", value_proc=meant, err=True)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
