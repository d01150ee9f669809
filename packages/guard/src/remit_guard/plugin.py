"""Brings the guard of coding tools to the `remit` command."""

from collections.abc import Mapping

from remit.plugin import CommandSpec, NamedStore


def commands() -> Mapping[str, Mapping[str, CommandSpec]]:
    """Return the commands of the guard."""
    line = "Put limits on the sub-agents of coding tools."
    return {"Decide": {"guard": CommandSpec("remit_guard.commands.guard:guard", line)}}


def named_stores() -> Mapping[str, NamedStore]:
    """Return the store with the sessions of all tools."""
    return {"guard": NamedStore("remit_guard.places:users_store", "coding tools")}


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return ("remit_guard.section:GUARD",)
