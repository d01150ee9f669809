"""Runs a server with several worker processes, which share its address and its store."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from remit.agents.restart_pause import RestartPause
from remit.runtime.registry import team_invalid
from remit_cli.config.team import Team
from remit_cli.drive.running import Data, interrupts
from remit_cli.drive.serving import tell_of_console
from remit_cli.places import relative_path
from remit_server.documents.team import ServerUp
from remit_server.transports.addresses import listening

# A worker that ends by itself is started again, later after each failure in a row.
PAUSES_S = (0.2, 1.0, 5.0, 15.0)
# A worker that ran for this long had started well.
STEADY_S = 30.0

_read = msgspec.json.Decoder(ServerUp).decode


class Workers:
    """The worker processes of one server: started together, started again, stopped together."""

    def __init__(self, command: Sequence[str], count: int, bound: socket.socket, folder: Path) -> None:
        self._command = command
        self._count = count
        self._bound = bound
        self._folder = folder
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        loop = asyncio.get_running_loop()
        self._first_up: asyncio.Future[bool] = loop.create_future()
        """Whether the first worker started: it makes what is missing (key, token), and says what is wrong."""
        self._all_up: asyncio.Future[ServerUp] = loop.create_future()
        self._up: set[int] = set()
        self.complaint = b""
        """The document in which a worker says why it could not start."""

    async def run(self) -> int:
        """Run the workers until they are stopped; return the exit code."""
        # A worker ends when it can read the end of this pipe: also if this process is killed.
        life, held = os.pipe()
        os.set_inheritable(life, True)
        try:
            codes = await asyncio.gather(*(self._keep(number, life) for number in range(1, self._count + 1)))
        finally:
            os.close(held)
            os.close(life)
        return max(codes)

    async def started(self) -> ServerUp:
        """Return what the workers serve, once all accept requests."""
        return await self._all_up

    def stop(self, _signal: str) -> None:
        """Let the workers finish what they have begun, and end."""
        self._stopping = True
        if not self._first_up.done():
            self._first_up.set_result(False)
        self._tell(signal.SIGTERM)

    def stop_at_once(self) -> None:
        """End the workers without waiting."""
        self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, number: int, life: int) -> int:
        """Keep one worker running; return its exit code once it is stopped, or if it cannot even start."""
        pause = RestartPause(PAUSES_S, time.monotonic)
        if number > 1 and not await asyncio.shield(self._first_up):
            return 0
        while not self._stopping:
            began = time.monotonic()
            code = await self._run_once(number, life)
            if self._stopping:
                return max(code, 0)
            if not self._first_up.done():
                self._first_up.set_result(False)
                return code or 1
            if time.monotonic() - began > STEADY_S:
                pause.reset()
            pause.fail()
            click.echo(f"Worker {number} ended with {code}; starting it again in {pause.left_s():.1f} s.", err=True)
            await asyncio.sleep(pause.left_s())
        return 0

    def _heard(self, number: int, line: bytes) -> None:
        try:
            up = _read(line)
        except msgspec.DecodeError:  # why it could not start
            self.complaint = line
            return
        self._up.add(number)
        if not self._first_up.done():
            self._first_up.set_result(True)
        if len(self._up) == self._count and not self._all_up.done():
            self._all_up.set_result(up)

    async def _run_once(self, number: int, life: int) -> int:
        place = f"{number}/{self._count}:{self._bound.fileno()}:{life}:{self._folder}"
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--worker",
            place,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._bound.fileno(), life),
            # Ctrl-C reaches this process alone, which then stops the workers in order.
            start_new_session=True,
        )
        self._running[number] = process
        if self._stopping:
            process.terminate()
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                self._heard(number, line)
            return await process.wait()
        finally:
            del self._running[number]


async def run_workers(
    team: Team, host: str | None, port: int | None, count: int, arguments: Sequence[str], data: Data | None
) -> int:
    """Serve a team with *count* worker processes until it is stopped, and return the exit code."""
    section = team.serve
    if any(agent.device is not None for agent in team.agents.values()):
        raise team_invalid("a team with agents on other devices is served by one process: leave out `workers`")
    command = [sys.executable, "-m", "remit_cli", "serve", "--json", *arguments]
    with (
        listening(host or section.host, section.port if port is None else port) as bound,
        tempfile.TemporaryDirectory(prefix="remit-workers-") as folder,
    ):
        workers = Workers(command, count, bound, Path(folder))
        with interrupts(workers.stop, workers.stop_at_once):
            running = asyncio.ensure_future(workers.run())
            telling = asyncio.ensure_future(_tell(workers, team, count, data))
            code = await running
            telling.cancel()
    if code and data is not None and workers.complaint:
        data.document(msgspec.Raw(workers.complaint))
    if code == 0:
        click.echo("Stopped. All workers have ended.", err=True)
    return code


async def _tell(workers: Workers, team: Team, count: int, data: Data | None) -> None:
    up = await workers.started()
    if data is not None:
        data.document(up)
    else:
        click.echo(f"Serving {team.name} at {up.address} with {count} workers (Ctrl-C to stop).", err=True)
        if up.token_file is not None:
            token = relative_path(Path(up.token_file))
            click.echo(f"The team has no [clients], so requests need the token in {token}.", err=True)
        if up.console is not None:
            tell_of_console(up.console, up.console_link)
