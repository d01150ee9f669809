"""Starts, shows and stops the process of `remit up`."""

import asyncio
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.words.terminal import one_line, several_lines
from remit_cli.config.team import Team
from remit_cli.drive.login_service import LoginService
from remit_cli.drive.running import Data
from remit_cli.options import same_team
from remit_cli.places import relative_path
from remit_cli.show.screen import clock_time, many, now_ms, print_json, print_text, spoken
from remit_relay.commands.shared.client import DeviceClient
from remit_relay.local_api.device_endpoints import OwnDeviceStatus
from remit_relay.local_api.views import shown_as
from remit_relay.team.device import device_path, using_device
from remit_relay.team.device_process import DeviceProcess, find_process, holder_of
from remit_server.documents.shared import DeviceDown, DeviceUp

LOG_FILE = "up.log"
ENVIRONMENT_FILE = "up.env"

# A process that starts imports the agents of the team, and one that stops lets its agents end.
START_S, STOP_S = 60.0, 60.0
_LOOK_S = 0.05
# The last messages of a process that died are at the end.
_LAST_WORDS = 2_000

_CONNECTIONS = {
    "connecting": "connecting to the gateway",
    "connected": "connected to the gateway",
    "silent": "the gateway does not answer",
    "waiting": "no connection to the gateway, retrying",
    "ended": "disconnected",
}


class UpOrder(Struct, frozen=True, kw_only=True):
    """The device that is meant, and its options."""

    team: Team
    overrides: tuple[str, ...]
    port: int
    verbose: bool
    named_team: Path | None

    @property
    def folder(self) -> Path:
        """The folder of the device."""
        return device_path(self.team).parent

    def command(self) -> list[str]:
        """Return the command that runs this device in the foreground."""
        # -P: files in the working directory cannot shadow modules.
        command = [sys.executable, "-P", "-m", "remit_cli", "up", "--team", str(self.team.file.absolute())]
        command += [word for each in self.overrides for word in ("--set", each)]
        command += ["--port", str(self.port)] if self.port else []
        return command + ["--verbose"] * self.verbose

    def service(self) -> LoginService:
        """Return this device as what the system starts at login."""
        plain = re.sub(r"[^A-Za-z0-9]+", "-", self.team.name).strip("-") or "team"
        file = self.team.file.absolute()
        return LoginService(
            name=f"up-{plain}-{hashlib.sha256(str(file).encode()).hexdigest()[:8]}",
            title=f"Remit device of {self.team.name}",
            command=self.command(),
            folder=file.parent,
            environment=self.folder / ENVIRONMENT_FILE,
            log=self.folder / LOG_FILE,
            typed="remit up --install",
        )


# ── status ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_status(order: UpOrder, *, as_json: bool) -> int:
    """Print whether the device runs, and what it does; return 0 if it does."""
    process = find_process(order.folder)
    if process is None:
        return _tell_down(order, as_json=as_json)
    status = asyncio.run(_status(order.folder, process))
    if as_json:
        print_json(document_of(status, process))
        return 0
    print_text(f"{process.title} runs the device {one_line(status.name)} since {_since(process.since_ms)}.")
    print_text(f"Local API: {process.address}")
    print_text(f"Gateway:   {status.gateway}, {_CONNECTIONS[status.connection]}")
    print_text(f"Shared:    {', '.join(one_line(each.name) for each in status.shared) or 'nothing'}")
    print_text(f"Runs:      {many(status.open_runs, 'open run')}, {many(status.waiting_drafts, 'waiting draft')}")
    if status.waiting_drafts:
        click.echo(f"→ remit pending list{same_team(order.named_team)}", err=True)
    return 0


def print_link(order: UpOrder) -> int:
    """Print a link that signs in a browser; return 0 if the device runs."""
    process = find_process(order.folder)
    if process is None:
        return _tell_down(order, as_json=False)
    print_text(asyncio.run(_link(order.folder, process)))
    return 0


def document_of(status: OwnDeviceStatus, process: DeviceProcess) -> DeviceUp:
    """Return the state of a device as a document."""
    return shown_as(
        DeviceUp,
        status,
        device=status.id,
        command=process.command,
        pid=process.pid,
        version=process.version,
        since_ms=process.since_ms,
        address=process.address,
    )


async def _link(folder: Path, process: DeviceProcess) -> str:
    async with DeviceClient(folder, process) as client:
        return await client.link()


async def _status(folder: Path, process: DeviceProcess) -> OwnDeviceStatus:
    async with DeviceClient(folder, process) as client:
        return await client.status()


def _tell_down(order: UpOrder, *, as_json: bool) -> int:
    pid = holder_of(order.folder)
    if as_json:
        print_json(DeviceDown(pid=pid))
    elif pid is None:
        print_text("The device is not running.")
        click.echo(f"→ remit up --detach{same_team(order.named_team)}", err=True)
    else:
        print_text(f"The device runs in process {pid or 'unknown'}, which has no local API (remit serve, or a run).")
    return 1


def _since(at_ms: int) -> str:
    ago_ms = max(0, now_ms() - at_ms)
    return f"{clock_time(at_ms)} ({spoken(ago_ms - ago_ms % 1_000)})" if ago_ms >= 1_000 else clock_time(at_ms)


# ── stop ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stop(order: UpOrder, *, as_json: bool) -> int:
    """Stop the process of `remit up`, and return once it is gone."""
    process = find_process(order.folder)
    if process is None:
        if holder_of(order.folder) is None:
            if as_json:
                print_json(DeviceDown(pid=None))
            else:
                print_text("The device is not running.")
            return 0
        return _tell_down(order, as_json=as_json)
    if process.command != "up":
        why = f"the device runs in {process.title}, which `remit up --stop` does not stop"
        todo = "Press Ctrl-C in its terminal."
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))
    os.kill(process.pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while holder_of(order.folder) == process.pid:
        if time.monotonic() > until:
            why = f"{process.title} has not ended within {spoken(int(STOP_S * 1_000))}"
            todo = f"To end it at once: kill -9 {process.pid}"
            raise RemitError(fault(Code.TIMEOUT, why, suggestion=todo))
        time.sleep(_LOOK_S)
    if as_json:
        print_json(DeviceDown(pid=None))
    else:
        print_text(f"Stopped {process.title}. Active runs come back paused.")
    return 0


# ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def detach(order: UpOrder, *, as_json: bool) -> int:
    """Start the device in a background process, and return once it runs; what fails before is raised here."""
    with using_device(order.team):  # report what is missing at once
        pass
    _refuse_second(order)
    log = order.folder / LOG_FILE
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        process = subprocess.Popen(
            order.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    until = time.monotonic() + START_S
    while (running := find_process(order.folder)) is None or running.pid != process.pid:
        if process.poll() is not None:
            raise _died(process.returncode, log)
        if time.monotonic() > until:
            process.terminate()
            raise RemitError(fault(Code.TIMEOUT, "the device has not started in time", suggestion=f"Its log is {log}"))
        time.sleep(_LOOK_S)
    process.returncode = 0  # it outlives this process; prevents Python's warning
    if as_json:
        Data(sys.stdout).document(document_of(asyncio.run(_status(order.folder, running)), running))
        return 0
    team = same_team(order.named_team)
    print_text(f"The device is up: {running.title}, local API at {running.address}")
    click.echo(f"Its log is {relative_path(log)}\n→ remit up --status{team}, or remit up --stop{team}", err=True)
    return 0


def _refuse_second(order: UpOrder) -> None:
    pid = holder_of(order.folder)
    if pid is None:
        return
    process = find_process(order.folder)
    where = process.title if process else f"process {pid or 'unknown'}"
    todo = "See: remit up --status" if process and process.command == "up" else "End that process first."
    raise RemitError(fault(Code.STATE_CONFLICT, f"the device is already running, in {where}", suggestion=todo))


def _died(code: int, log: Path) -> RemitError:
    words = several_lines(log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:]).strip()
    output = f":\n{words}" if words else ""
    why = f"the process of the device exited with code {code}{output}"
    todo = "Run it without --detach to see more."
    return RemitError(fault(Code.DELEGATION_FAILED, why, suggestion=todo))
