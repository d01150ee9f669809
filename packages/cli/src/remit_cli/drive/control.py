"""Follows, answers for and cancels a run of any process through its records."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from remit.ports import RunSummary, Store, StoreError
from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.errors import Code, RemitError, fault, in_sentences
from remit.protocol.lifecycle import Status
from remit.runtime.redactor import Redactor
from remit.runtime.root_runs import LEASE_MS
from remit.runtime.run_tree import Tree
from remit.words.terminal import one_line
from remit_cli.drive.order import tell_files
from remit_cli.drive.running import Data, data_only
from remit_cli.places import Place, StoreView, current_user, reading, relative_path, team_hubs, writing
from remit_cli.show.display import Display, display_for
from remit_cli.show.runs import details, exit_code, find_run, named, records_of, short, summary, summary_of, tree_of
from remit_cli.show.screen import now_ms, print_json, worded
from remit_redaction.pipeline import detector_pipeline
from remit_server.documents.common import shown_as
from remit_server.documents.runs import Cancellation, RunAnswer, record_line

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
    return shown_as(RunAnswer, response, run=run, exit_code=exit_code(response))


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


# A hub reads the command within a fifth of a second and gives its agents three seconds to clean up. A dead hub has lost
# its lease by then. Either way the outcome is known after this time.
WAIT_S = LEASE_MS / 1_000 + 1


# The store finds a run by less than its id; the other hubs are asked for it by the whole.
_WHOLE_ID = re.compile("[0-9a-f]{32}")


async def cancel_run(path: Place, name: str, reason: str, part: str | None = None, *, as_json: bool) -> int:
    """Cancel the run *name*, or *part* of it, print the outcome, and return the exit code."""
    # In a thread, because reading the store blocks, and it may be away.
    elsewhere = asyncio.get_running_loop().run_in_executor(None, _cancel_elsewhere, path, name, part, reason)
    try:
        done = await _cancel_in_store(path, name, reason, part)
    except StoreError as error:
        done = await elsewhere
        if done is None:
            raise _unreached(path, name, error) from error
    if as_json:
        print_json(done)
    click.echo(_cancellation_text(done), err=True)
    return 1 if done.outcome == "over" else 0


def _cancel_elsewhere(path: Place, run: str, part: str | None, reason: str) -> Cancellation | None:
    """Tell the other hubs of the team to cancel a run; None if no hub confirms it."""
    hubs = None if isinstance(path, Path) or not _WHOLE_ID.fullmatch(run) else team_hubs(path.team)
    if hubs is None:
        return None
    from remit.runtime.shared_requests import CancelOrder  # most teams have one hub

    order = CancelOrder(run, current_user(), reason, _path_of(run, part) if part else "")
    if not hubs.cancel(order):
        return None
    return Cancellation(run=run, delegation=order.delegation, outcome="asked", status=None)


def _unreached(path: Place, name: str, error: StoreError) -> StoreError:
    if isinstance(path, Path) or _WHOLE_ID.fullmatch(name) or team_hubs(path.team) is None:
        return error
    how = in_sentences(error.fault.suggestion, "Or give the whole id of the run: it is then cancelled over the bus.")
    return StoreError(fault(error.fault.code, error.fault.message, suggestion=how))


async def _cancel_in_store(path: Place, name: str, reason: str, part: str | None) -> Cancellation:
    """Find a run in the store, and cancel it or *part* of it."""
    with reading(path) as view:
        run = find_run(view, name)
        known = summary_of(view, run)
        tree = tree_of(view, run) if part is not None else None
    if tree is not None and part is not None:
        return await _part_cancelled(path, tree, run, part, reason)
    if known is None:
        return Cancellation(run=run, outcome="over", status=Status.REFUSED)
    if known.response is not None:
        return Cancellation(run=run, outcome="over", status=known.response.status)
    async with writing(path) as store:
        return await _cancelled(store, run, reason)


def _path_of(run: str, part: str) -> str:
    return part if part == run or part.startswith(f"{run}.") else f"{run}.{part}"


async def _part_cancelled(path: Place, tree: Tree, run: str, part: str, reason: str) -> Cancellation:
    """Ask the hub of a run to cancel one delegation of it, and wait briefly until it has ended."""
    full = _path_of(run, part)
    node = tree.nodes.get(full)
    if node is None:
        why = f"no delegation `{one_line(part, 60)}` in the {named(run)}"
        raise RemitError(
            fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=f"List them: remit runs show {short(run)} --json")
        )
    if node.response is not None or node.lost:
        status = node.response.status if node.response else None
        return Cancellation(run=run, delegation=full, outcome="over", status=status)
    async with writing(path) as store:
        await store.control(run, "cancel", current_user(), reason, full)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with reading(path) as view:
            node = tree_of(view, run).nodes[full]
        if node.response is not None:
            heeded = node.fault is not None and node.fault.code is Code.CANCELLED
            outcome = "cancelled" if heeded else "over"
            return Cancellation(run=run, delegation=full, outcome=outcome, status=node.response.status)
        await asyncio.sleep(POLL_S)
    return Cancellation(run=run, delegation=full, outcome="asked", status=None)


def _cancellation_text(done: Cancellation) -> str:
    run = short(done.run)
    what = f"delegation {one_line(done.delegation)}" if done.delegation else named(run)
    match done.outcome:
        case "cancelled":
            return f"The {what} is cancelled.\n→ remit runs show {run}"
        case "asked":
            return f"Requested to cancel the {what}; its hub has not confirmed yet.\n→ remit runs watch {run}"
        case "over":
            ended = done.status or "its outcome was not recorded"
            return f"The {what} had already ended: {ended}.\n→ remit runs show {run}"


async def _cancelled(store: Store, run: str, reason: str) -> Cancellation:
    """Notify the run's hub, or end the run if there is no hub; then wait briefly for the outcome."""
    by = current_user()
    await store.control(run, "cancel", by, reason)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        known = next(each for each in await store.runs(run=run, limit=1) if each.run == run)
        if (response := known.response) is not None:
            # A run that waited for approval never started, so it is refused as cancelled.
            heeded = response.fault is not None and response.fault.code is Code.CANCELLED
            return Cancellation(run=run, outcome="cancelled" if heeded else "over", status=response.status)
        if await _taken_over(store, known, f"by {by}" + (f", {reason}" if reason else "")):
            return Cancellation(run=run, outcome="cancelled", status=Status.CANCELLED)
        await asyncio.sleep(POLL_S)
    return Cancellation(run=run, outcome="asked", status=None)


async def _taken_over(store: Store, known: RunSummary, why: str) -> bool:
    """End a run whose hub lost its lease; return False if the lease is held."""
    epoch = await store.claim(known.run, f"cancel-{os.getpid()}", LEASE_MS)
    if epoch is None:
        return False
    (first,) = await store.records(run=known.run, limit=1)
    assert isinstance(first.body, Request), "a run begins with its request"
    response = Response(
        version=VERSION,
        id=first.body.id,
        target=known.agent,
        status=Status.CANCELLED,
        run=known.run,
        session=first.session,
        fault=fault(Code.CANCELLED, f"{known.agent} was cancelled: {_clean(store, known.run, why)}; its hub was gone"),
    )
    for question in await store.pending():
        if question.request.run == known.run:
            await store.withdraw(question.id)
    # A run that had not started may be requested again under the same id.
    return await store.finish(known.run, epoch, response, now_ms(), keep=known.state != "waiting")


def _clean(store: Store, run: str, text: str) -> str:
    """Return a person's text redacted, as the run's own hub would record it."""
    redactor = Redactor(detector_pipeline(), None)
    redactor.open(store)
    return redactor.clean(text, redactor.sealing(run))
