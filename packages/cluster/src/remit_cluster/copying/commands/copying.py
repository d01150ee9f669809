"""What `remit store copy` reads from its words, and what it prints."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import click

from remit.runtime.registry import team_invalid
from remit.stores import POSTGRES
from remit.stores.checkpoints import key_path
from remit_cli.config.checks import secret_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.config.team_search import find_team
from remit_cli.places import DEFAULT_STORE, relative_path, team_path
from remit_cli.show.screen import many, print_text
from remit_cluster.copying.copy import Copied, CopyPlace, DatabaseToCopy
from remit_server.documents.common import shown_as
from remit_server.documents.store import StoreCopy

TEAM = "team"

# A log is not flooded; a person sees that it goes on.
_EVERY_SECONDS = 2.0


def place(
    word: str, password: str | None, key_file: Path | None, team_file: Path | None, overrides: Sequence[str]
) -> CopyPlace:
    """Return the store that a word of the command stands for."""
    if word == TEAM:
        return _of_team(load_team(team_path(team_file), overrides=overrides, secrets=False, code=False), key_file)
    if not word.startswith(POSTGRES):
        return Path(word)
    try:
        secret = None if password is None else secret_of(password)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from-password / --to-password") from error
    path = find_team(team_file)
    team = None if path is None else load_team(path, overrides=overrides, secrets=False, code=False)
    if team is not None and secret is None and team.store.url == word:
        return _of_team(team, key_file)
    beside = DEFAULT_STORE if team is None else relative_path(team.store_path)
    return DatabaseToCopy(url=word, password=secret, key_file=key_file or key_path(beside))


def _of_team(team: Team, key_file: Path | None) -> CopyPlace:
    path, section = relative_path(team.store_path), team.store
    if section.url is None:
        return path
    try:
        secret = None if section.password is None else secret_of(section.password)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return DatabaseToCopy(url=section.url, password=secret, pooler=section.pooler, key_file=key_file or key_path(path))


class CopyProgress:
    """Prints on stderr how far a copy has come."""

    def __init__(self) -> None:
        self._what = ""
        self._began = self._shown = time.monotonic()
        self._first = 0
        self._open = False

    def __enter__(self) -> "CopyProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._first = what, now, done
        if now < self._shown + _EVERY_SECONDS and not (self._open and done == total):
            return
        self._shown = now
        line = what
        if total:
            rate = (done - self._first) / max(now - self._began, 0.001)
            line = f"{what}: {done:,} of {total:,}" + (f", {rate:,.0f} rows/s" if done > self._first else "")
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
            self._open = True
        else:
            click.echo(line, err=True)

    def _end(self) -> None:
        if self._open:
            click.echo(err=True)
            self._open = False


def report(copied: Copied) -> None:
    """Print what was copied."""
    click.echo(f"Copied {copied.source} to {copied.target}; {many(copied.written, 'row')} in {copied.seconds:.1f} s.")
    shown = ", ".join(f"{name} {count}" for name, count in copied.rows.items() if count)
    click.echo(f"  rows, each of them compared: {shown or 'none'}")
    click.echo(f"  last row of the record in both: {copied.head}, {copied.digest}")
    print_text(str(copied.verdict))
    for each in copied.notices:
        click.echo(f"Note: {each}.", err=True)
    if copied.key:
        click.echo(f"The key of the copy is {copied.key}: all hubs need it.", err=True)
    if copied.open_runs:
        runs = many(copied.open_runs, "open run")
        click.echo(f"A hub that opens the copy takes up {runs}: do not start one with {copied.source}.", err=True)


def document(copied: Copied) -> StoreCopy:
    """Return what was copied as a document."""
    verdict = copied.verdict
    return shown_as(
        StoreCopy,
        copied,
        ok=verdict.ok,
        checkpoints=verdict.checkpoints,
        findings=verdict.findings,
        keys=verdict.keys,
        seconds=round(copied.seconds, 3),
    )
