"""Runs the guard of coding tools in the foreground, starts it in the background, and stops it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click
from msgspec import Struct

from remit.policy.budget import amounts
from remit.ports import Question
from remit.protocol.errors import Code, RemitError, fault
from remit.words.terminal import several_lines
from remit_cli.config.composition import price_book_of
from remit_cli.config.team import Team
from remit_cli.drive.login_service import LoginService
from remit_cli.places import current_user
from remit_guard.daemon import running_guard
from remit_guard.lock import holder, is_guarded
from remit_guard.places import guard_folder, stopped_without, usable
from remit_guard.section import GUARD
from remit_guard.settings import GuardRules, GuardSettings
from remit_guard.status import guard_status
from remit_server.model_prices import PriceBook

LOG_FILE = "guard.log"
ENVIRONMENT_FILE = "guard.env"
START_S, STOP_S = 60.0, 60.0
_LOOK_S = 0.05
# The last messages of a process that died are at the end.
_LAST_WORDS = 2_000


class GuardOrder(Struct, frozen=True, kw_only=True):
    """The guard that is meant, and its options."""

    settings: GuardSettings
    rules: GuardRules
    prices: PriceBook
    team_file: Path | None
    """Where the settings are from; None: they are the defaults."""
    overrides: tuple[str, ...]

    def command(self) -> list[str]:
        """Return the command that runs this guard in the foreground."""
        # -P: files in the working directory cannot shadow modules.
        command = [sys.executable, "-P", "-m", "remit_cli", "guard", "serve"]
        command += [] if self.team_file is None else ["--team", str(self.team_file.absolute())]
        return command + [word for each in self.overrides for word in ("--set", each)]

    def service(self) -> LoginService:
        """Return this guard as what the system starts at login."""
        folder = guard_folder()
        return LoginService(
            name="guard",
            title="Remit guard for coding tools",
            command=self.command(),
            folder=folder if self.team_file is None else self.team_file.absolute().parent,
            environment=folder / ENVIRONMENT_FILE,
            log=folder / LOG_FILE,
            typed="remit guard serve --install",
            # The hooks that were put in ask there, and the system does not know the variable of a shell.
            variables={"REMIT_GUARD": str(folder)} if os.environ.get("REMIT_GUARD") else {},
        )


@asynccontextmanager
async def guarding(
    settings: GuardSettings, rules: GuardRules, prices: PriceBook, part_of: str = ""
) -> AsyncGenerator[Path]:
    """Answer the hooks of this user's tools while the block lasts, as a part of another command; yield the socket."""
    folder = guard_folder()
    with usable(folder):
        (folder / "lock").touch()
    async with running_guard(
        folder, lambda _: settings, current_user(), show_question, rules=rules, prices=prices, part_of=part_of
    ) as socket:
        yield socket


@asynccontextmanager
async def guarding_beside(team: Team, command: str) -> AsyncGenerator[None]:
    """Run the guard of a team beside what a command does in the first place, if no other runs."""
    section = GUARD.of(team)
    assert section is not None, "the plugin names it only then"
    async with AsyncExitStack() as stack:
        try:
            settings, rules, prices = section.settings(), section.team_rules(), price_book_of(team)
            socket = await stack.enter_async_context(guarding(settings, rules, prices, command))
            click.echo(f"The guard of coding tools answers at {socket}.", err=True)
        except RemitError as error:
            click.echo(f"The guard of coding tools is not served here: {error.fault.message}.", err=True)
        yield


async def run_guard(settings: GuardSettings, rules: GuardRules, prices: PriceBook) -> None:
    """Run a guard until it is told to stop."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with guarding(settings, rules, prices) as socket:
        click.echo(f"The guard answers at {socket}.")
        if rules.are_about_tools:
            click.echo("Its rules judge each use of a tool.", err=True)
        money = "" if settings.cost is None else f" and {amounts(settings.cost)[0]} {prices.currency}"
        click.echo(
            f"At most {settings.tokens:,} tokens{money} for a session, {settings.depth} levels, {settings.at_once} "
            f"sub-agents at once. At the limit: {settings.at_limit}.\n"
            "→ See who started whom: remit guard console, or remit runs tree last --store guard\n"
            "→ Answer its questions: remit pending list --store guard",
            err=True,
        )
        sys.stdout.flush()
        await stopping.wait()


def detach(order: GuardOrder) -> None:
    """Start a guard in a background process, and return once it answers; what fails before is raised here."""
    folder = guard_folder()
    if (running := guard_status(folder)) is not None:
        click.echo(f"The guard already runs, as process {running.process}.")
        return
    log = folder / LOG_FILE
    with usable(folder), open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        process = subprocess.Popen(
            order.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    until = time.monotonic() + START_S
    while (status := guard_status(folder)) is None:
        if process.poll() is not None:
            last_words = several_lines(log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:]).strip()
            raise RemitError(
                fault(
                    Code.DELEGATION_FAILED,
                    f"the process of the guard exited with code {process.returncode}:\n{last_words}",
                    suggestion="Run it without --detach to see more.",
                )
            )
        if time.monotonic() > until:
            process.terminate()
            raise RemitError(fault(Code.TIMEOUT, "the guard has not started in time", suggestion=f"Its log is {log}"))
        time.sleep(_LOOK_S)
    process.returncode = 0  # it outlives this process; prevents Python's warning
    click.echo(f"The guard runs as process {status.process}.")
    click.echo(f"Its log is {log}\n→ remit guard status, or remit guard stop", err=True)


def stop() -> None:
    """Stop the guard, and return once it is gone."""
    folder = guard_folder()
    running = guard_status(folder)
    # One whose socket is gone, or that hangs, does not answer, and runs all the same.
    process = int(holder(folder) or 0) if running is None else running.process
    if not process:
        click.echo("The guard does not run.")
        return
    if running is not None and running.part_of:
        why = f"the guard is a part of `{running.part_of}`, process {process}, which would end with it"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"To end both: {running.part_of} --stop"))
    os.kill(process, signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while is_guarded(folder):
        if time.monotonic() > until:
            raise RemitError(
                fault(
                    Code.TIMEOUT,
                    f"process {process} has not ended in time",
                    suggestion=f"To end it at once: kill -9 {process}",
                )
            )
        time.sleep(_LOOK_S)
    click.echo(f"Stopped process {process}. In the tools that have the guard, {stopped_without(folder)}.")


def show_question(question: Question) -> None:
    """Print a question with the command that answers it, and ring the bell of a terminal."""
    bell = "\a" if sys.stderr.isatty() else ""
    answer = f"remit pending approve {question.id} --store guard"
    click.echo(f"{bell}{several_lines(question.text)}\n→ {answer}   (or: reject)", err=True)
