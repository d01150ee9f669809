"""Finds and loads the team of a command, its agents and its user."""

import getpass
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from remit.config.checks import secrets_of
from remit.config.load import load_team, salvaged
from remit.config.team import Team
from remit.config.team_search import find_team
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean


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
    from remit.config.composition import vault_key_of

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
    from remit.config.composition import hub_of

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
