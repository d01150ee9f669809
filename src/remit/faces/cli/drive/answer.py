"""Gives back the answer of a run that goes on, or went on, in another process."""

import asyncio
import sys
from pathlib import Path

import click

from remit.faces.cli.drive.data import Data
from remit.faces.cli.places import writing
from remit.faces.cli.show.failures import worded
from remit.faces.cli.show.report import exit_code, short
from remit.faces.outputs import RunAnswer
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.redactor import Redactor


def give_answer(path: Path, run: str, key: bytes | None, *, wait: bool, as_json: bool) -> int:
    """Print a run's answer as its user gets it, what was redacted included; return the exit code for how it ended."""
    response = asyncio.run(_answer(path, run, key, wait=wait))
    data = Data(sys.stdout)
    if as_json:
        data.document(
            RunAnswer(
                run=run,
                status=response.status,
                result=response.result,
                summary=response.summary,
                artifacts=response.artifacts,
                fault=response.fault,
                exit_code=exit_code(response),
            )
        )
    else:
        data.answer(response.result)
        if response.fault is not None:
            click.echo(worded(response.fault), err=True)
    return exit_code(response)


async def _answer(path: Path, run: str, key: bytes | None, *, wait: bool) -> Response:
    async with writing(path) as store:
        known = await store.runs(run=run, limit=1)
        if not known:
            raise RemitError(fault(Code.OUTCOME_UNKNOWN, f"run {short(run)} was refused before it began"))
        if known[0].response is None and not wait:
            advice = f"Wait for it with `remit runs answer {short(run)} --wait`, or follow it with `remit runs watch`."
            raise RemitError(fault(Code.TIMEOUT, f"run {short(run)} has not ended yet", suggestion=advice))
        redactor = Redactor(None, key)
        redactor.open(store)
        return await redactor.for_user(run, known[0].response or await store.wait(run))
