"""Follows a run of any process by reading its records, and prints its answer."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.ports import Store
from remit.runtime.redactor import Redactor
from remit.runtime.run_tree import Tree
from remit_cli.drive.files import tell_files
from remit_cli.drive.running import Data, data_only
from remit_cli.places import reading, relative_path, writing
from remit_cli.show.display import Display, display_for
from remit_cli.show.records_view import find_run, records_of, summary_of
from remit_cli.show.report import details, exit_code, summary
from remit_cli.show.run_list import named, short
from remit_cli.show.screen import now_ms, worded
from remit_cli.store_view import Place, StoreView
from remit_server.documents.runs import RunAnswer, record_line

# Short enough to look live, long enough not to load the store.
POLL_S = 0.1
# How often to check whether the run's process is alive.
STANDING_S = 1.0


def follow(path: Place, name: str, *, as_json: bool, as_jsonl: bool) -> int:
    """Show a run until it ends, and return its exit code."""
    with reading(path) as view, data_only() as data:
        run = find_run(view, name)
        tree = Tree()
        display = display_for(tree)
        try:
            _follow(view, run, tree, display, data if as_jsonl else None)
        except KeyboardInterrupt:
            display.close()
            click.echo(f"\nStopped watching; the {named(run)} continues.\n→ remit runs cancel {short(run)}", err=True)
            return 130
        finally:
            display.close()
        response = tree.response
        assert response is not None, "it is followed until it has ended"
        for line in ("", *summary(tree, response), f"→ remit runs show {short(run)}"):
            click.echo(line, err=True)
        if as_json:
            data.document(details(tree, run, "finished", relative_path(path), now_ms()))
        elif not as_jsonl:
            data.answer(response.result, bold=True)
        return exit_code(response)


def _follow(view: StoreView, run: str, tree: Tree, display: Display, data: Data | None) -> None:
    seen, looked, was_silent = 0, time.monotonic(), False
    announced: set[str] = set()
    while tree.response is None:
        for record in records_of(view, run, seen):
            seen = record.seq
            display.show(record, tree.feed(record))
            if data is not None:
                data.document(record_line(record))
        _announce(tree, display, announced)
        display.tick()
        if time.monotonic() - looked > STANDING_S:
            looked = time.monotonic()
            was_silent = _warn_if_silent(view, run, display, before=was_silent)
        if tree.response is None:
            time.sleep(POLL_S)


def _announce(tree: Tree, display: Display, announced: set[str]) -> None:
    """Print once for each pending question how to answer it, or where, if another hub asks it."""
    for question, consent in tree.consents.items():
        if consent.answered_ms is None and question not in announced and tree.response is None:
            announced.add(question)
            display.say(f"→ {consent.todo}")


def _warn_if_silent(view: StoreView, run: str, display: Display, *, before: bool) -> bool:
    """Print once that no process executes the run any more; return whether that is so."""
    known = summary_of(view, run)
    silent = known is not None and known.state == "silent"
    if silent and not before:
        display.say(
            f"The process of the {named(run)} shows no sign of life. The next hub that starts resumes it.\n"
            f"→ Ctrl-C stops watching; remit runs cancel {short(run)} ends it."
        )
    return silent


def give_answer(
    path: Place, run: str, key: bytes | None, *, wait: bool, as_json: bool, folder: Path | None = None
) -> int:
    """Print a run's answer with redacted values restored; return the exit code. Its files are written to *folder*."""
    (response,) = asyncio.run(answered(path, [run], key, wait=wait)).values()
    data = Data(sys.stdout)
    if as_json:
        data.document(document_of(run, response))
    else:
        give(data, response)
    tell_files(response.files, folder)
    return exit_code(response)


def document_of(run: str, response: Response) -> RunAnswer:
    """Return an answer as a document."""
    return RunAnswer(
        run=run,
        status=response.status,
        result=response.result,
        summary=response.summary,
        artifacts=response.artifacts,
        files=response.files,
        fault=response.fault,
        exit_code=exit_code(response),
    )


def give(data: Data, response: Response) -> None:
    """Print an answer on stdout, or the error on stderr."""
    data.answer(response.result, bold=True)
    if response.fault is not None:
        click.echo(worded(response.fault), err=True)


async def answered(path: Place, runs: Sequence[str], key: bytes | None, *, wait: bool = False) -> dict[str, Response]:
    """Return the responses of runs, as their users get them."""
    async with writing(path) as store:
        redactor = Redactor(None, key)
        redactor.open(store)
        return {run: await redactor.for_user(run, await _response(store, run, wait=wait)) for run in runs}


async def _response(store: Store, run: str, *, wait: bool) -> Response:
    known = await store.runs(run=run, limit=1)
    if not known:
        see = f"See why with `remit runs show {short(run)}`."
        raise RemitError(fault(Code.OUTCOME_UNKNOWN, f"run {short(run)} was refused before it started", suggestion=see))
    if known[0].response is None and not wait:
        advice = f"Wait with `remit runs answer {short(run)} --wait`, or watch it with `remit runs watch`."
        raise RemitError(fault(Code.TIMEOUT, f"run {short(run)} has not ended yet", suggestion=advice))
    return known[0].response or await store.wait(run)
