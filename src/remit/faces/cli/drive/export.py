"""Writes records as JSON, to stdout or into a file that is there whole or not at all."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click

from remit.faces.cli.places import reading
from remit.faces.cli.show.records_view import find_run, records_of
from remit.faces.cli.show.report import record_line
from remit.faces.cli.show.safe_text import json_for_terminal
from remit.faces.cli.show.screen import many
from remit.protocol.codec import encode


def export_records(path: Path, name: str | None, form: Literal["jsonl", "json"], out: Path | None) -> None:
    """Write the records of one run, or of all."""
    with reading(path) as connection:
        run = None if name is None else find_run(connection, name)
        lines = (encode(record_line(record)).decode() for record in records_of(connection, run))
        pieces = (line + "\n" for line in lines) if form == "jsonl" else _as_one(lines)
        if out is None:
            shown = sys.stdout.isatty()
            for piece in pieces:
                sys.stdout.write(json_for_terminal(piece) if shown else piece)
            sys.stdout.flush()
            return
        count = _write(pieces, out)
    click.echo(f"{many(count, 'record')} written to {out}." if form == "jsonl" else f"Written to {out}.", err=True)


def _as_one(lines: Iterator[str]) -> Iterator[str]:
    yield '{"schema":"remit.export/1","records":['
    for place, line in enumerate(lines):
        yield f"{',' if place else ''}\n{line}"
    yield "\n]}\n"


def _write(pieces: Iterator[str], out: Path) -> int:
    """Write a file and return how many pieces it has; it holds what agents said, so only its owner may read it."""
    part = out.with_name(f"{out.name}.part")
    count = 0
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            for piece in pieces:
                file.write(piece)
                count += 1
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise click.BadParameter(f"{out} cannot be written: {error.strerror}", param_hint="--out") from error
    return count
