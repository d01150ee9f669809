"""The order of a command line: task, input, files and limits, as a value that another process can receive."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.files import MAX_FILE_BYTES, MAX_FILES, File, safe_name
from remit.protocol.submission import AskOptions
from remit.words.terminal import one_line
from remit_cli.config.values import millionths
from remit_cli.places import current_user


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to an agent, with user, limits and team."""

    agent: str
    text: str
    user: str
    options: AskOptions
    """What it asks for besides."""
    team_file: str
    overrides: tuple[str, ...] = ()

    def asking(self, **options: Unpack[AskOptions]) -> "Order":
        """Return the order with what it asks for besides."""
        return replace(self, options=options)


def order_of(agent: str, text: str, user: str | None, team_file: Path, overrides: tuple[str, ...]) -> Order:
    """Return the order of a command line; without a *user*, that of the current one."""
    return Order(
        agent=agent,
        text=text,
        user=user or current_user(),
        options={},
        team_file=str(team_file.absolute()),
        overrides=overrides,
    )


def cost_in_team(amount: str | None, team_file: Path, overrides: tuple[str, ...]) -> int | None:
    """Return an amount in millionths of the team's currency; None if there is none."""
    if amount is None:
        return None
    from remit_cli.config.load import load_team  # most commands read the file later

    return cost_in(amount, load_team(team_file, overrides=overrides, secrets=False, code=False).currency)


def cost_in(amount: str | None, currency: str) -> int | None:
    """Return an amount in millionths of *currency*; raise a usage error if it is in another one."""
    if amount is None:
        return None
    if not amount.endswith(currency):
        why = f"{amount} is not in the team's currency; give it in {currency}"
        raise click.BadParameter(why, param_hint="--max-cost")
    return millionths(amount)


def read_task(task: str | None, given_input: str | None, capability: str | None) -> tuple[str, Json]:
    """Return text and input from the arguments; `-` reads stdin, `@` reads a file."""
    if task == "-" and given_input == "-":
        raise click.UsageError("TASK and --input cannot both be read from stdin")
    if task is None and given_input is None and capability is None:
        raise click.UsageError("give TASK, --input, or both")
    text = _stdin("TASK") if task == "-" else task or ""
    return text.rstrip("\n") if task == "-" else text, None if given_input is None else _read_input(given_input)


def _read_input(given: str) -> Json:
    raw = _raw_input(given)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"invalid JSON: {error}. Put text in quotes: '\"like this\"'.", param_hint="--input"
        ) from error


def _raw_input(given: str) -> bytes | str:
    if given == "-":
        return _stdin("--input")
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"cannot read {given[1:]}: {error.strerror}", param_hint="--input") from error


def _stdin(what: str) -> str:
    if sys.stdin.isatty():
        click.echo(f"Type {what}, then Ctrl-D on a line of its own.", err=True)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} on stdin is not text in {sys.stdin.encoding}") from error


# The longest name that common file systems take is 255 bytes; a number may be added.
_LONGEST = 240
# Not allowed in file names of Windows.
_RESERVED = re.compile(r'[<>:"|?*]')
# So many files of one name are written; then something else is wrong.
_MOST_ALIKE = 1_000


def read_files(paths: Sequence[Path]) -> tuple[File, ...]:
    """Return the files at *paths* for a request; raise a usage error that names the one that cannot be sent."""
    if len(paths) > MAX_FILES:
        raise click.BadParameter(f"{len(paths)} files; at most {MAX_FILES} can be sent", param_hint="--file")
    return tuple(_read_file(path, number) for number, path in enumerate(paths, start=1))


def _read_file(path: Path, number: int) -> File:
    from remit.words.file_types import guessed  # few requests have files

    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--file") from error
    if len(data) > MAX_FILE_BYTES:
        raise click.BadParameter(f"{path} has more than {MAX_FILE_BYTES} bytes", param_hint="--file")
    return File(name=safe_name(path.name, f"file-{number}"), media_type=guessed(path.name, data), data=data)


def tell_files(files: Sequence[File], folder: Path | None) -> None:
    """Name the files of an answer on stderr, and write them to *folder*, if there is one."""
    for line in _lines(files, folder):
        click.echo(one_line(line), err=True)


def _lines(files: Sequence[File], folder: Path | None) -> Iterator[str]:
    for file in files:
        if file.data is None:
            yield f"File {file.name} ({file.media_type}) is at {file.url}"
            continue
        shown = f"File {file.name} ({file.media_type}, {file.size:,} bytes)"
        yield shown if folder is None else f"{shown} is saved as {save(file.name, file.data, folder)}"
    if folder is None and any(file.data is not None for file in files):
        yield "Save files with --save FOLDER."


def save(name: str, data: bytes, folder: Path) -> Path:
    """Write a file under a safe name that is not in use yet, and return its path."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in _free_paths(folder, name):
            try:
                # Created by this process, so no link leads elsewhere.
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            return path
    except OSError as error:
        why = f"cannot save {name} in {folder}: {error.strerror}"
        raise RemitError(fault(Code.STORE_UNAVAILABLE, why, suggestion="Name a folder that is writable.")) from error
    why = f"cannot save {name} in {folder}: {_MOST_ALIKE} files have this name already"
    raise RemitError(fault(Code.STORE_UNAVAILABLE, why, suggestion="Name another folder."))


def _free_paths(folder: Path, name: str) -> Iterator[Path]:
    """Yield the paths to try: the name, then with a number."""
    # A name that begins with a dot would be hidden, or configure a program.
    clean = _RESERVED.sub("_", name).lstrip(". ").rstrip(". ") or "file"
    stem, dot, end = clean.rpartition(".")
    if not stem or len(end) > 16:  # an ending is short
        stem, dot, end = clean, "", ""
    stem = stem.encode(errors="replace")[: _LONGEST - len(end.encode())].decode(errors="ignore")
    yield folder / f"{stem}{dot}{end}"
    for number in range(2, _MOST_ALIKE + 1):
        yield folder / f"{stem} ({number}){dot}{end}"
