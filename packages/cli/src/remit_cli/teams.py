"""Finds and loads the team of a command: its file, its agents, its other hubs, its user."""

import getpass
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from remit.plugin import brought, named
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit_cli.config.checks import secrets_of
from remit_cli.config.load import load_team, salvaged
from remit_cli.config.team import Team
from remit_cli.config.team_search import find_team

if TYPE_CHECKING:  # slow to load, and most teams have one hub
    from remit.runtime.shared_requests import CancelOrder


def team_path(team_file: Path | None) -> Path:
    """Return the team file: the given one, else the nearest, or raise a `RemitError` if there is none."""
    found = find_team(team_file)
    if found is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                "no team file remit.toml here or in a parent folder",
                suggestion="Create one with `remit init`, or give one with --team.",
            )
        )
    return found


@contextmanager
def importing() -> Generator[None]:
    """Import the code of agents; its output goes to stderr, because stdout is data."""
    with redirect_stdout(sys.stderr):
        yield


def team_of(team_file: Path | None, overrides: Sequence[str]) -> Team:
    """Return the team of a command, with its code found; secrets that only a run needs may be missing."""
    with importing():
        return load_team(team_path(team_file), overrides=overrides, secrets=False)


def vault_key(team_file: Path | None, overrides: Sequence[str]) -> bytes | None:
    """Return the key with which the team, if there is one, encrypts redacted values."""
    from remit_cli.config.composition import vault_key_of

    found = find_team(team_file)
    if found is None:
        return None
    try:
        return vault_key_of(load_team(found, overrides=overrides, secrets=False, code=False))
    except RemitError:
        part = salvaged(found, overrides=overrides)
        if part is None:
            raise
        return vault_key_of(part)


def cards_of(team: Team) -> dict[str, AgentCard]:
    """Return the cards of a team's agents as a hub would have them; no hub is opened, so no secret is needed."""
    from remit_cli.config.composition import hub_of

    with importing():
        return hub_of(team, environ=placeholder_secrets(team)).cards


def placeholder_secrets(team: Team) -> dict[str, str]:
    """Return values in place of the secrets of a team whose hub is not opened."""
    return {reference.removeprefix("$"): "0" * 64 for _, reference in secrets_of(team)}


def known_agent(name: str, known: Iterable[str]) -> str:
    """Return the name of an existing agent, or raise a `RemitError` that lists those that exist."""
    if name in known:
        return name
    near = did_you_mean(name, known) or f"; known agents: {', '.join(known) or 'none'}"
    raise RemitError(
        fault(
            Code.AGENT_NOT_FOUND,
            f"no such agent `{name}`{near}",
            suggestion="List them with `remit agents list`.",
        )
    )


def current_user() -> str:
    """Return the current user's name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, and no variable with the name
        return "someone"


class TeamHubs(Protocol):
    """The other hubs of a team."""

    def hosted(self) -> tuple[Mapping[str, str], Mapping[str, AgentCard]]:
        """Return where agents are hosted, in words, and the cards of all agents that another hub hosts.

        Raise a `RemitError` if the hubs cannot be asked.
        """
        ...

    def cancel(self, order: "CancelOrder") -> bool:
        """Tell the hubs to cancel a run, and return whether one of them confirms it."""
        ...


def team_hubs(team: "Team") -> TeamHubs | None:
    """Return the other hubs of a team; None if it has no way to them."""
    addresses = (bring(team) for bring in brought("team_hubs"))
    return next((named(address)(team) for address in addresses if address is not None), None)
