"""Lets the system start a command of Remit at login: a user unit of systemd, or an agent of launchd."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit_cli.show.screen import print_text


class LoginService(Struct, frozen=True, kw_only=True):
    """A command that is to run whenever its user is logged in."""

    name: str
    """What distinguishes it on this machine: `up-shop-1f3c…`."""
    title: str
    command: list[str]
    folder: Path
    """The working directory."""
    environment: Path
    """Variables for the process, such as the keys of models: neither systemd nor launchd reads those of a shell."""
    log: Path
    """What launchd writes its errors to; systemd has a journal."""
    typed: str
    """The command that installs it, as the user typed it."""
    variables: dict[str, str] = {}
    """Variables that it needs beside the path."""


def install(service: LoginService, *, prints: bool) -> int:
    """Write the file that starts it at login, and load it; *prints*: only print it."""
    is_mac = sys.platform == "darwin"
    path, text = launchd_agent(service) if is_mac else systemd_unit(service)
    if prints:
        click.echo(f"# {path}", err=True)
        print_text(text)
        return 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=f"See the file: {service.typed} --print")) from error
    print_text(f"Written: {path}")
    if is_mac:
        load = (["launchctl", "load", "-w", str(path)],)
        remove = f"launchctl unload -w {path} && rm {path}"
    else:
        load = (["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", path.name])
        remove = f"systemctl --user disable --now {path.name} && rm {path}"
    code = _load(load)
    if not is_mac:
        click.echo(f"Variables such as API keys are read from {service.environment}, if it exists.", err=True)
        click.echo("To run it while you are logged out: loginctl enable-linger", err=True)
    click.echo(f"To remove it: {remove}", err=True)
    return code


def _load(commands: Sequence[list[str]]) -> int:
    """Run the commands that start it, or print them where that is not possible."""
    typed = " && ".join(" ".join(each) for each in commands)
    if shutil.which(commands[0][0]) is None:
        click.echo(f"{commands[0][0]} was not found here.\n→ Where it is, type: {typed}", err=True)
        return 0
    for each in commands:
        done = subprocess.run(each, check=False, capture_output=True, text=True)
        if done.returncode:
            click.echo(f"`{' '.join(each)}` failed: {done.stderr.strip()}\n→ Try it yourself: {typed}", err=True)
            return 1
    print_text("Started. It starts at each login from now on.")
    return 0


def systemd_unit(service: LoginService) -> tuple[Path, str]:
    """Return the path and the text of the user unit."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    command = " ".join(map(_quoted, service.command))
    variables = " ".join(_quoted(f"{name}={value}", dollars=False) for name, value in _variables(service).items())
    text = f"""\
[Unit]
Description={service.title.replace("%", "%%")}

[Service]
ExecStart={command}
WorkingDirectory={str(service.folder.absolute()).replace("%", "%%")}
Environment={variables}
EnvironmentFile=-{str(service.environment.absolute()).replace("%", "%%")}
Restart=on-failure
RestartSec=2

[Install]
WantedBy=default.target
"""
    return home / "systemd" / "user" / f"remit-{service.name}.service", text


def _variables(service: LoginService) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), **service.variables}


def _quoted(word: str, *, dollars: bool = True) -> str:
    """Return a word as systemd reads it unchanged; `$` has a meaning only in commands."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if dollars else escaped}"'


def launchd_agent(service: LoginService) -> tuple[Path, str]:
    """Return the path and the text of the launchd agent."""
    label = f"remit.{service.name}"
    settings = {
        "Label": label,
        "ProgramArguments": service.command,
        "WorkingDirectory": str(service.folder.absolute()),
        "EnvironmentVariables": _variables(service),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": str(service.log.absolute()),
    }
    path = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
    import plistlib

    return path, plistlib.dumps(settings).decode()
