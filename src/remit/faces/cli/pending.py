"""`remit pending`: what agents may only do if a person agrees."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from remit.faces.cli.options import json_option, jsonl_option, store_option, team_options
from remit.faces.cli.show.screen import clock_time, now_ms, print_fields, print_json, print_table, print_text, spoken
from remit.faces.cli.suggest import question_ids
from remit.faces.outputs import Decided, Pending, PendingQuestion
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json
from remit.runtime.ports import Decision, Question

F = TypeVar("F", bound=Callable[..., Any])

# How soon a question that is put is shown to whoever watches; nobody notices half a second.
WATCH_S = 0.5


@click.group()
def pending() -> None:
    """Answer what agents may only do if a person agrees.

    A rule of the team asks (`then = "ask"`), and the agent waits. Whoever may open the store may answer.

    \b
    Example:
      remit pending list
      remit pending approve 3f09c1.1-5be0a7f2 --reason "checked with Ann"
    """


def answering(command: F) -> F:
    """Add what approving and rejecting share: which question, why, and in whose name."""
    for add in (
        json_option,
        team_options,
        store_option,
        click.option("--as", "name", metavar="NAME", help="Who answers. Without it: the user of this machine."),
        click.option("--reason", default="", help="Why; it is recorded, and told to the agent if you reject."),
        click.argument("question", metavar="ID", shell_complete=question_ids),
    ):
        command = add(command)
    return command


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pending.command(name="list")
@click.option("--watch", is_flag=True, help="Go on, and show each question as it is put; end with Ctrl-C.")
@store_option
@team_options
@json_option
@jsonl_option
def list_pending(
    watch: bool,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
    as_jsonl: bool,
) -> None:
    """List the questions that wait for an answer, oldest first.

    \b
    Example:
      remit pending list
      remit pending list --watch --jsonl
    """
    from remit.faces.cli.places import store_file

    path = store_file(store_path, team_file, overrides)
    found = _questions(path)
    if as_json and not watch:
        print_json(Pending(questions=tuple(map(_document, found))))
        return
    if as_jsonl or as_json:
        for question in found:
            print_json(_document(question))
    elif found:
        print_table(["id", "asks", "question", "left"], [_row(each, found) for each in found])
        click.echo("→ remit pending show ID, then remit pending approve ID or remit pending reject ID", err=True)
    else:
        click.echo("Nothing is pending.", err=True)
    if watch:
        _watch(path, found, as_lines=as_json or as_jsonl)


@pending.command()
@click.argument("question", metavar="ID", shell_complete=question_ids)
@store_option
@team_options
@json_option
def show(
    question: str, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Show one question, and the request that it is about.

    ID is the id of a question, the beginning or end of one, or `last`.

    \b
    Example:
      remit pending show 3f09c1.1-5be0a7f2
    """
    from remit.faces.cli.places import store_file
    from remit.runtime.approvals import find

    found = find(_questions(store_file(store_path, team_file, overrides)), question)
    if as_json:
        print_json(_document(found))
        return
    print_fields(_fields(found))
    click.echo(f"→ remit pending approve {short_id(found)}, or remit pending reject {short_id(found)}", err=True)


def _questions(path: Path) -> list[Question]:
    """Return what waits in a store; one that is not there yet, because no run was started, has nothing that waits."""
    from remit.faces.cli.places import reading
    from remit.stores import inbox

    if not path.exists() and not path.parent.exists():
        return []
    with reading(path) as connection:
        return inbox.pending(connection, now_ms())


def _watch(path: Path, shown: Sequence[Question], *, as_lines: bool) -> None:
    known = {each.id for each in shown}
    while True:
        time.sleep(WATCH_S)
        found = _questions(path)
        for question in found:
            if question.id in known:
                continue
            if as_lines:
                print_json(_document(question))
            else:
                print_text("  ".join(_row(question, found)))
        known = {each.id for each in found}


def short_id(question: Question) -> str:
    """Return as much of an id as tells it from all others: the end of the run, its place in it, and what is asked.

    What is asked alone would not do: the same may be asked again, of another run, and be approved by mistake.
    """
    run = question.request.run
    return question.id[max(0, len(run) - 6) :] if question.id.startswith(run) else question.id


def _row(question: Question, among: Sequence[Question]) -> tuple[str, str, str, str]:
    request, name = question.request, short_id(question)
    if sum(each.id.endswith(name) for each in among) > 1:
        name = question.id
    left = spoken(max(0, question.expires_ms - now_ms()))
    return name, f"{request.origin} → {request.target}", question.text, left


def _document(question: Question) -> PendingQuestion:
    left_ms = max(0, question.expires_ms - now_ms())
    return PendingQuestion(question=question, run=question.request.run, left_ms=left_ms)


def _fields(question: Question) -> Iterator[tuple[str, str]]:
    request = question.request
    yield "question", question.text
    yield "asks", f"{request.origin} → {request.target}" + (f" for {request.capability}" if request.capability else "")
    yield "objective", request.objective
    yield "input", text_of(request.input)
    yield "because", request.reason
    yield "for user", request.remit.user
    yield "through", " → ".join(request.remit.chain)
    yield "may spend", f"{spoken(request.remit.time_ms)}, {request.remit.tokens} tokens"
    yield "you may change", ", ".join(sorted(question.editable)) or "nothing"
    yield "asked", clock_time(question.asked_ms)
    yield "too late in", spoken(max(0, question.expires_ms - now_ms()))
    yield "run", request.run
    yield "id", question.id


# ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pending.command()
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change something before agreeing, if the rule lets you: objective=TEXT or input=JSON.",
)
@answering
def approve(
    question: str,
    edits: tuple[str, ...],
    reason: str,
    name: str | None,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Agree to what is asked in question ID, and let the run go on.

    Tokens such as [EMAIL:…] may stand in what you write: the agent gets what they stand for.

    \b
    Example:
      remit pending approve 3f09c1.1-5be0a7f2
      remit pending approve 3f09c1.1-5be0a7f2 --edit 'objective=Pay 20 euros'
    """
    from remit.faces.cli.places import store_file, whoever_types

    changes = dict(map(_edit, edits))
    decision = Decision(agreed=True, by=name or whoever_types(), reason=reason, edits=changes)
    _answer(store_file(store_path, team_file, overrides), question, decision, as_json=as_json)


@pending.command()
@answering
def reject(
    question: str,
    reason: str,
    name: str | None,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Decline what is asked in question ID; the agent that asked is told so, and why.

    \b
    Example:
      remit pending reject 3f09c1.1-5be0a7f2 --reason "not this month"
    """
    from remit.faces.cli.places import store_file, whoever_types

    decision = Decision(agreed=False, by=name or whoever_types(), reason=reason)
    _answer(store_file(store_path, team_file, overrides), question, decision, as_json=as_json)


def _edit(text: str) -> tuple[str, Json]:
    import msgspec

    field, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}: write objective=TEXT or input=JSON", param_hint="--edit")
    if field != "input":
        return field, value
    try:
        return field, msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        message = f"the input is not JSON: {error}; a text stands in quotes: 'input=\"…\"'"
        raise click.BadParameter(message, param_hint="--edit") from error


def _answer(path: Path, name: str, decision: Decision, *, as_json: bool) -> None:
    import asyncio

    question = asyncio.run(_decide(path, name, decision))
    request, state = question.request, _state(path, question.request.run)
    if as_json:
        print_json(Decided(question=question.id, run=request.run, state=state, decision=decision))
        return
    agreed = "Approved" if decision.agreed else "Rejected"
    print_text(f"{agreed} by {decision.by}: {question.text} ({request.origin} → {request.target})")
    goes_on = f"Run {request.run} goes on" if decision.agreed else f"{request.origin} is told, in run {request.run}"
    click.echo(f"{goes_on}, as soon as its hub, or the next one on this store, hears of it.")
    click.echo(f"→ remit runs watch {request.run}", err=True)


async def _decide(path: Path, name: str, decision: Decision) -> Question:
    from remit.faces.cli.places import writing
    from remit.runtime.approvals import decide

    async with writing(path) as store:
        return await decide(store, name, decision)


def _state(path: Path, run: str) -> Any:
    from remit.faces.cli.places import reading
    from remit.stores.reader import runs

    with reading(path) as connection:
        found = runs(None, run, 1, now_ms())(connection)
    return found[0].state if found else "silent"
