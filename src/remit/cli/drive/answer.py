"""Prints the answer of a run of another process."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from remit.cli.drive.data import Data
from remit.cli.places import writing
from remit.cli.show.failures import worded
from remit.cli.show.report import exit_code, short
from remit.documents.runs import RunAnswer
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.redactor import Redactor
from remit.stores.sqlite import SqliteStore


def give_answer(path: Path, run: str, key: bytes | None, *, wait: bool, as_json: bool) -> int:
    """Print a run's answer with redacted values restored; return the exit code."""
    (response,) = asyncio.run(answered(path, [run], key, wait=wait)).values()
    data = Data(sys.stdout)
    if as_json:
        data.document(document_of(run, response))
    else:
        give(data, response)
    return exit_code(response)


def document_of(run: str, response: Response) -> RunAnswer:
    """Return an answer as a document."""
    return RunAnswer(
        run=run,
        status=response.status,
        result=response.result,
        summary=response.summary,
        artifacts=response.artifacts,
        fault=response.fault,
        exit_code=exit_code(response),
    )


def give(data: Data, response: Response) -> None:
    """Print an answer on stdout, or the error on stderr."""
    data.answer(response.result)
    if response.fault is not None:
        click.echo(worded(response.fault), err=True)


async def answered(path: Path, runs: Sequence[str], key: bytes | None, *, wait: bool = False) -> dict[str, Response]:
    """Return the responses of runs, as their users get them."""
    async with writing(path) as store:
        redactor = Redactor(None, key)
        redactor.open(store)
        return {run: await redactor.for_user(run, await _response(store, run, wait=wait)) for run in runs}


async def _response(store: SqliteStore, run: str, *, wait: bool) -> Response:
    known = await store.runs(run=run, limit=1)
    if not known:
        see = f"See why with `remit runs show {short(run)}`."
        raise RemitError(fault(Code.OUTCOME_UNKNOWN, f"run {short(run)} was refused before it started", suggestion=see))
    if known[0].response is None and not wait:
        advice = f"Wait with `remit runs answer {short(run)} --wait`, or watch it with `remit runs watch`."
        raise RemitError(fault(Code.TIMEOUT, f"run {short(run)} has not ended yet", suggestion=advice))
    return known[0].response or await store.wait(run)
