"""Executes a run in the foreground: answer or records on stdout, summary on stderr."""

import asyncio
import gc
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import click

from remit.hub.hub import Hub
from remit.protocol.lifecycle import Status
from remit.protocol.records import Record
from remit_cli.config.load import load_team
from remit_cli.drive import running
from remit_cli.drive.files import tell_files
from remit_cli.drive.order import Order
from remit_cli.drive.run_order import FinishedRun, run_order
from remit_cli.drive.running import INTERRUPTED, Data, data_only
from remit_cli.places import relative_path
from remit_cli.show.report import details, exit_code, summary
from remit_cli.show.run_list import short
from remit_cli.show.screen import now_ms, styled
from remit_server.documents.runs import record_line


def carry_out(
    order: Order,
    *,
    as_json: bool,
    as_jsonl: bool,
    verbose: bool,
    named_team: Path | None,
    speakers: Collection[str] | None = None,
    folder: Path | None = None,
) -> int:
    """Execute an order, and return the exit code; *speakers* are the agents that address the user.

    Files of the answer are written to *folder*.
    """
    gc.freeze()  # the modules stay until the end; what agents create from here on is collected as usual
    with data_only() as data:

        async def heard(record: Record, _: Hub) -> None:
            if as_jsonl:
                data.document(record_line(record))

        team = load_team(Path(order.team_file), overrides=order.overrides, serving=False)
        try:
            ended, stuck = running.run(run_order(order, team, heard, verbose=verbose, speakers=speakers))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        if speakers is None:
            _tell(_closing_lines(ended, named_team), dim=ended.response.ok)
        _give(ended, data, as_json=as_json, as_jsonl=as_jsonl)
        tell_files(ended.response.files, folder)
        if speakers is not None:
            # The reply command comes after the question.
            _tell(_told_plainly(ended, named_team), dim=False)
        if stuck:
            running.leave(exit_code(ended.response))
        return exit_code(ended.response)


def _tell(lines: Iterable[str], *, dim: bool) -> None:
    for line in lines:
        click.echo(styled(line, dim=dim), err=True)


def _give(ended: FinishedRun, data: Data, *, as_json: bool, as_jsonl: bool) -> None:
    if as_json:
        run = ended.response.run
        data.document(details(ended.tree, run, "finished", ended.store, now_ms()))
    elif not as_jsonl:
        if data.is_terminal and sys.stderr.isatty() and ended.response.result is not None:
            click.echo(err=True)  # the answer stands apart from what was said about the run
        data.answer(ended.response.result, bold=True)


def _closing_lines(ended: FinishedRun, named_team: Path | None) -> Iterator[str]:
    """Yield the summary of a run, or what remains of an interrupted one."""
    response = ended.response
    interrupted = ended.interrupted and exit_code(response) == INTERRUPTED
    yield ""
    yield from summary(ended.tree, response, interrupted=interrupted)
    if interrupted:
        kept = "The answer so far is below" if response.result is not None else "There is no answer yet"
        yield f"{kept}; the record is in {relative_path(ended.store)}."
    if response.requires_followup and response.session:
        yield _reply(f"remit chat {response.target} --session {shlex.quote(response.session)}{_team(named_team)}")
    if response.status in (Status.PARTIAL, Status.TIMEOUT):
        yield f"→ remit runs retry {short(response.run)} --deadline TIME{_team(named_team)}"
    yield f"→ remit runs show {short(response.run)}{_team(named_team)}"


def _told_plainly(ended: FinishedRun, named_team: Path | None) -> Iterator[str]:
    """Yield the summary of a run in plain words, for the user who asked."""
    response = ended.response
    yield ""
    yield from summary(ended.tree, response, plainly=True)
    if response.requires_followup and response.session:
        yield _reply(f'remit ask --session {shlex.quote(response.session)}{_team(named_team)} "…"')
    yield f"→ remit runs show {short(response.run)}{_team(named_team)}"


def _reply(command: str) -> str:
    return f"It asks you a question. Reply with: {command}"


def _team(named: Path | None) -> str:
    return f" --team {shlex.quote(str(named))}" if named else ""
