"""Exports records as JSON, to stdout or atomically to a file."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import click

from remit.protocol.codec import encode
from remit.words.terminal import json_for_terminal
from remit_cli.places import reading
from remit_cli.show.records_view import find_run, records_of
from remit_cli.show.screen import many
from remit_cli.store_view import Place
from remit_server.documents.runs import record_line


def export_records(path: Place, name: str | None, form: Literal["jsonl", "json"], out: Path | None) -> None:
    """Write the records of one run, or of all."""
    with reading(path) as view:
        run = None if name is None else find_run(view, name)
        lines = (encode(record_line(record)).decode() for record in records_of(view, run))
        pieces = (line + "\n" for line in lines) if form == "jsonl" else _as_one(lines)
        shown = out is None and sys.stdout.isatty()
        count = 0
        with written_whole(out) as file:
            for piece in pieces:
                file.write(json_for_terminal(piece) if shown else piece)
                count += 1
    if out is not None:
        click.echo(f"Wrote {many(count, 'record')} to {out}." if form == "jsonl" else f"Wrote {out}.", err=True)


def _as_one(lines: Iterator[str]) -> Iterator[str]:
    yield '{"schema":"remit.export/1","records":['
    for place, line in enumerate(lines):
        yield f"{',' if place else ''}\n{line}"
    yield "\n]}\n"


@contextmanager
def written_whole(out: Path | None) -> Generator[IO[str]]:
    """Open the output, stdout by default; a file is renamed into place when complete.

    It contains the text of agents, so only its owner may read it. Pipes and devices are written directly.
    """
    try:
        if out is None or (out.exists() and not out.is_file()):
            with click.open_file("-" if out is None else str(out), "w", encoding="utf-8") as stream:
                yield stream
                stream.flush()
            return
        draft = out.with_name(f"{out.name}.{os.getpid()}.part")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(handle, "w", encoding="utf-8", newline="\n") as stream:
                yield stream
            draft.replace(out)
        finally:
            draft.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "stdout" if out is None else out
        raise click.BadParameter(f"cannot write {where}: {error.strerror}", param_hint="--out") from error
