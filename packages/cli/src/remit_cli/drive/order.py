"""The order of a command line, as a value that another process can receive."""

import sys
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from remit.protocol.envelope import Json
from remit.protocol.submission import AskOptions


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to an agent, with user, limits and team."""

    agent: str
    text: str
    user: str
    options: AskOptions
    """What it asks for besides."""
    team_file: str
    overrides: tuple[str, ...] = ()


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
