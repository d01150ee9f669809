"""Brings devices, and the agents that they share, to the `remit` command."""

from collections.abc import Mapping, Sequence
from pathlib import Path

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
    """Return what lets `remit chat` work with an agent that a device shares."""
    return {"chat": "remit_relay.commands.chat:with_devices"}


def checks() -> Sequence[str]:
    """Return the checks of a team's device."""
    return ["remit_relay.commands.doctor:check_device"]


def drafts(folder: Path) -> str | None:
    """Return what lists and answers the drafts to shared agents, if there is a device."""
    from remit_relay.device.state import DEVICE_FILE

    return "remit_relay.commands.pending:DeviceDrafts" if (folder / DEVICE_FILE).exists() else None


def dev_chat() -> str | None:
    """Return what shows a chat of two devices, if the extra is installed."""
    from remit.protocol.errors import RemitError
    from remit_relay.e2e.account import olm

    try:
        olm()
    except RemitError:
        return None
    return "remit_relay.commands.dev:showing_chat"


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return tuple(f"remit_relay.team.section:{name}" for name in ("RELAY", "PROFILES", "SHARED"))
