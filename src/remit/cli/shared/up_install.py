"""Lets the system start `remit up`: a user unit of systemd, or an agent of launchd."""

import hashlib
import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from remit.cli.shared.up_control import LOG_FILE, UpOrder
from remit.cli.show.screen import print_text
from remit.config.device import using_device
from remit.protocol.errors import Code, RemitError, fault

# Variables for the process, such as the keys of models: neither systemd nor launchd reads those of a shell.
ENVIRONMENT_FILE = "up.env"


def install(order: UpOrder, *, prints: bool) -> int:
    """Write the file that starts the device at login, and load it; *prints*: only print it."""
    with using_device(order.team):  # report what is missing before the system tries
        pass
    is_mac = sys.platform == "darwin"
    path, text = launchd_agent(order) if is_mac else systemd_unit(order)
    if prints:
        click.echo(f"# {path}", err=True)
        print_text(text)
        return 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
        raise RemitError(
            fault(Code.TEAM_INVALID, why, suggestion="See the file: remit up --install --print")
        ) from error
    print_text(f"Written: {path}")
    if is_mac:
        load = (["launchctl", "load", "-w", str(path)],)
        remove = f"launchctl unload -w {path} && rm {path}"
    else:
        load = (["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", path.name])
        remove = f"systemctl --user disable --now {path.name} && rm {path}"
    code = _load(load)
    if not is_mac:
        click.echo(
            f"Variables such as API keys are read from {order.folder / ENVIRONMENT_FILE}, if it exists.", err=True
        )
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


def _name(order: UpOrder) -> str:
    """Return a name that is different for each team file."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", order.team.name).strip("-") or "team"
    return f"{plain}-{hashlib.sha256(str(order.team.file.absolute()).encode()).hexdigest()[:8]}"


def systemd_unit(order: UpOrder) -> tuple[Path, str]:
    """Return the path and the text of the user unit."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    command = " ".join(map(_quoted, order.command()))
    folder = str(order.team.file.absolute().parent).replace("%", "%%")
    text = f"""\
[Unit]
Description=Remit device of {order.team.name.replace("%", "%%")}

[Service]
ExecStart={command}
WorkingDirectory={folder}
Environment={_quoted("PATH=" + os.environ.get("PATH", os.defpath), dollars=False)}
EnvironmentFile=-{str(order.folder.absolute() / ENVIRONMENT_FILE).replace("%", "%%")}
Restart=on-failure
RestartSec=2

[Install]
WantedBy=default.target
"""
    return home / "systemd" / "user" / f"remit-up-{_name(order)}.service", text


def _quoted(word: str, *, dollars: bool = True) -> str:
    """Return a word as systemd reads it unchanged; `$` has a meaning only in commands."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if dollars else escaped}"'


def launchd_agent(order: UpOrder) -> tuple[Path, str]:
    """Return the path and the text of the launchd agent."""
    label = f"remit.up.{_name(order)}"
    said = {
        "Label": label,
        "ProgramArguments": order.command(),
        "WorkingDirectory": str(order.team.file.absolute().parent),
        "EnvironmentVariables": {"PATH": os.environ.get("PATH", os.defpath)},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": str(order.folder.absolute() / LOG_FILE),
    }
    path = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
    return path, plistlib.dumps(said).decode()
