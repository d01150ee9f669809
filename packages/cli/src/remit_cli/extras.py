"""Names the extra of Remit that brings what is missing here, so that an error says what to install."""

from remit.installed import install_command

_SECTIONS = {"bus": "nats", "profiles": "relay", "relay": "relay", "shared": "relay", "telemetry": "otel"}
_COMMANDS = {**dict.fromkeys(("devices", "pair", "relay", "share", "up"), "relay"), "worker": "nats"}


def section_needs(key: object) -> str:
    """Return what a section of the team file needs, as a sentence; empty if no package of Remit brings it."""
    return _needs("this section", _SECTIONS.get(str(key)))


def command_needs(name: str) -> str:
    """Return what a command needs, as a sentence; empty if no package of Remit brings it."""
    return _needs(f"`remit {name}`", _COMMANDS.get(name))


def _needs(what: str, extra: str | None) -> str:
    return f"{what} needs the extra `{extra}`, which is not installed: {install_command(extra)}" if extra else ""
