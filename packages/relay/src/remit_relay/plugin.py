"""Brings devices, and the agents that they share, to the `remit` command."""

from collections.abc import Mapping, Sequence

from remit.plugin import CommandSpec

_LINES = {
    "pair": "Connect this device with another one, over a short code.",
    "devices": "Pair this device with others, and set what they may do.",
    "share": "Let other devices call agents of the team, end-to-end encrypted.",
    "up": "Run this device: its runs, its shared agents and the local API.",
    "relay": "Run a gateway that forwards encrypted messages between devices.",
}


def commands() -> Mapping[str, Mapping[str, CommandSpec]]:
    """Return the commands that connect devices."""
    return {
        "Connect": {name: CommandSpec(f"remit_relay.commands.{name}:{name}", line) for name, line in _LINES.items()}
    }


def extensions() -> Mapping[str, str]:
    """Return what devices add: agents that they share, drafts to these, and a chat of two devices."""
    return {
        "chat": "remit_relay.commands.chat:with_devices",
        "dev": "remit_relay.commands.dev:chat_shown",
        "pending": "remit_relay.commands.pending:drafts_in",
    }


def checks() -> Sequence[str]:
    """Return the checks of a team's device."""
    return ["remit_relay.commands.doctor:check_device"]


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return tuple(f"remit_relay.team.section:{name}" for name in ("RELAY", "PROFILES", "SHARED"))
