"""The order of a command line as a value that another process can receive, and the order that repeats a run."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from remit.cli.places import reading, writing
from remit.cli.show.records_view import find_run, named, records_of, summary_of
from remit.cli.show.report import short
from remit.cli.store_view import place_of
from remit.config.composition import vault_key_of
from remit.config.team import Team
from remit.policy.redaction import TOKEN
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.files import File
from remit.protocol.lifecycle import Status
from remit.runtime.redactor import Redactor, has_tokens_in
from remit.runtime.root_request import AskOptions


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to an agent, with user, limits and team."""

    agent: str
    text: str
    user: str
    input: Json = None
    capability: str | None = None
    session: str | None = None
    files: tuple[File, ...] = ()
    max_tokens: int | None = None
    deadline_ms: int | None = None
    retry_of: str | None = None
    """The id of the request that it retries."""
    besides: dict[str, Any] = {}
    """Other properties of that request, which are sent again."""
    team_file: str
    overrides: tuple[str, ...] = ()

    def options(self) -> AskOptions:
        """Return the options for a hub besides agent, text and user."""
        return AskOptions(
            input=self.input,
            capability=self.capability,
            session=self.session,
            files=self.files,
            max_tokens=self.max_tokens,
            deadline_ms=self.deadline_ms,
            retry_of=self.retry_of,
            **self.besides,
        )


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


def order_again(team: Team, name: str, *, deadline_ms: int | None, max_tokens: int | None) -> Order:
    """Return an order that repeats the run *name*, with the given time and tokens or those that it had.

    Raises a `RemitError` if the run cannot be retried, or its request is no longer stored.
    """
    with reading(place_of(team)) as view:
        run = find_run(view, name)
        known = summary_of(view, run)
        asked = [each.body for each in records_of(view, run) if isinstance(each.body, Request)]
    if known is None or not asked:
        raise _nothing(f"the {named(run)} was refused before it started", "Start a new run: remit run AGENT TASK")
    if known.response is None:
        raise _nothing(f"the {named(run)} has not ended", f"Resume it: remit runs resume {short(run)}")
    if known.response.status is Status.SUCCESS:
        raise _nothing(f"the {named(run)} succeeded", "To repeat it, start a new run: remit run AGENT TASK")
    request = asyncio.run(_whole(team, run, asked[0]))
    remit = request.remit
    besides = {
        "handoff": request.handoff,
        "context": request.context,
        "hints": request.hints,
        "tools": remit.tools,
        "targets": remit.targets,
        "may_delegate": remit.may_delegate,
    }
    return Order(
        agent=request.target,
        text=request.objective,
        user=remit.user,
        input=request.input,
        capability=request.capability,
        session=request.session if request.session != run else None,
        files=request.files,
        max_tokens=remit.tokens if max_tokens is None else max_tokens,
        deadline_ms=remit.time_ms if deadline_ms is None else deadline_ms,
        retry_of=request.id,
        besides=besides,
        team_file=str(team.file.absolute()),
        overrides=team.overrides,
    )


async def _whole(team: Team, run: str, request: Request) -> Request:
    """Return a request with its original values restored."""
    async with writing(place_of(team)) as store:
        redactor = Redactor(None, vault_key_of(team))
        redactor.open(store)
        whole = await redactor.said(run, request)
    said = encode((whole.objective, whole.input, whole.handoff, whole.files)).decode()
    if TOKEN.search(said) or has_tokens_in(whole.files):
        raise _nothing(
            f"the redacted values of the {named(run)} are no longer stored",
            "Start a new run: remit run AGENT TASK. Redacted values are kept for a day, and longer in a session.",
        )
    return whole


def _nothing(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))
