"""Finds runs in a store, and shows them: in a list, with all details, as a tree, as steps, as JSON."""

import os
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import click
from msgspec.structs import replace

from remit.ports import RunSummary
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Json, Request, Response, Usage
from remit.protocol.errors import TABLE, Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Record, Refusal, ToolUse
from remit.runtime.run_tree import Node, Tree
from remit.words.failures import plain_failure, with_plain_summary
from remit.words.names import revealing, without_names
from remit.words.terminal import json_for_terminal, one_line, speaks_unicode
from remit_cli.places import Place, StoreView, reading
from remit_cli.show.screen import (
    clock_time,
    cut,
    indent_of,
    many,
    now_ms,
    output_width,
    print_beside,
    print_fields,
    print_table,
    print_text,
    spell_ms,
    styled,
    worded,
)
from remit_cli.show.tree_lines import STYLES, cost_text, history, in_columns, lines_of, sentence, tallied
from remit_server.documents.common import shown_as
from remit_server.documents.delegation_table import handling_of
from remit_server.documents.runs import (
    ApprovalLine,
    Branch,
    DelegationLine,
    NoticeLine,
    RunDetails,
    RunLine,
    RunStep,
    RunSteps,
    RunTree,
    Spent,
    record_line,
)

PAGE = 1_000
LAST = "last"
# A list of more candidates is of no use.
MANY = 10
# How many parts of one run are skipped at most to find the run that a user means by `last`.
NEWEST = 100


def find_run(view: StoreView, name: str) -> str:
    """Return the id of the run *name*: a full id, the unique start of one, or `last`."""
    if name == LAST:
        newest = view.runs(limit=NEWEST)
        if not newest:
            raise _not_found("no runs yet", "Start one: remit run AGENT TASK")
        # The parts of a run that other hubs of the team executed are shown in its tree.
        return next((each for each in newest if not _is_part(view, each)), newest[0]).run
    if not name:  # an unset shell variable; every id starts with it
        raise _not_found("empty run id", "List them with `remit runs list`.")
    fitting = {each.run: each for each in view.runs(run=name, limit=MANY + 1)}
    if not fitting and (shared := view.shared_runs(name, 1)):
        says = f"{shared[0]} is a run with an agent of another device, not a run of the hub"
        raise _not_found(says, f"See its steps: remit audit tail --run {shared[0]}")
    if name in fitting or view.records(name, 0, 1):
        return name  # a run that was refused before its start has records, but is not listed
    if not fitting:
        raise _not_found(f"no run id starts with `{one_line(name, 60)}`", "List them with `remit runs list`.")
    if len(fitting) > 1:
        shown = "\n".join(f"  {each.run}  {each.agent}: {one_line(each.objective, 60)}" for each in fitting.values())
        count = f"more than {MANY}" if len(fitting) > MANY else str(len(fitting))
        raise _not_found(f"ambiguous id `{name}`: {count} runs match:\n{shown}", _MORE)
    return next(iter(fitting))


def find_recorded(view: StoreView, name: str) -> str:
    """Return the same, also for a run with another device's agent, whose steps are in the record."""
    if name and not view.runs(run=name, limit=1):
        shared = view.shared_runs(name, MANY + 1)
        if name in shared or len(shared) == 1:
            return name if name in shared else shared[0]
        if shared:
            raise _not_found(f"ambiguous id `{name}`:\n" + "\n".join(f"  {run}" for run in shared), _MORE)
    return find_run(view, name)


def summary_of(view: StoreView, run: str) -> RunSummary | None:
    """Return the summary of a run; None if it was refused before its start."""
    return next((each for each in view.runs(run=run, limit=1) if each.run == run), None)


def _is_part(view: StoreView, each: RunSummary) -> bool:
    """Return whether a run was handed over by another run in this store."""
    return bool(each.via) and each.correlation != each.run and summary_of(view, each.correlation) is not None


def records_of(view: StoreView, run: str | None, after: int = 0) -> Iterator[Record]:
    """Yield the records of a run, or of all runs, in order."""
    while page := view.records(run, after, PAGE):
        yield from page
        after = page[-1].seq


def tree_of(view: StoreView, run: str) -> Tree:
    """Return the tree of a run, with the parts that other hubs of the team executed as runs of their own."""
    tree, parts = Tree(), [run]
    for part in parts:
        for record in records_of(view, part):
            tree.feed(record)
        if tree.user is not None:
            parts += tree.join(view.handed_over(part, tree.user))
    return tree


_MORE = "Type more characters."


def _not_found(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))


# An id begins with the time of its run: this much of it is unique among the runs of one person.
SHORT_ID = 16


def short(run: str) -> str:
    """Return a run's id, shortened to what is needed to name it."""
    return run[:SHORT_ID]


def named(run: str) -> str:
    """Return a run's display name."""
    return f"run {short(run)}"


def standing(summary: RunSummary) -> str:
    """Return the outcome or current state of a run, in one word."""
    return summary.response.status if summary.response else summary.state


def print_runs(runs: Iterable[RunSummary]) -> None:
    """Print one row for each run; without the user, if that is the same one everywhere."""
    runs = list(runs)
    users = {each.user for each in runs}
    rows = [
        (
            short(each.run),
            clock_time(each.started_ms),
            each.agent,
            standing(each),
            spell_ms(each.response.duration_ms) if each.response else "",
            f"{each.response.usage.total:,}" if each.response and each.response.usage.total else "",
            each.user if len(users) > 1 else "",
            each.via,
            each.objective,
        )
        for each in runs
    ]
    headings = ("run", "started", "agent", "state", "time", "tokens", "user", "via", "task")
    print_table(headings, rows, folds=("via", "user", "tokens", "time", "started", "task"))


def run_line(summary: RunSummary) -> RunLine:
    """Return one run of a list, as a document."""
    response = summary.response
    return shown_as(
        RunLine,
        summary,
        status=response.status if response else None,
        code=response.fault.code if response and response.fault else None,
        tokens=response.usage.total if response else None,
        cost=response.usage.cost if response else None,
        duration_ms=response.duration_ms if response else None,
        via=summary.via or None,
    )


State = Literal["waiting", "running", "silent", "finished"]


def exit_code(response: Response) -> int:
    """Return the exit code for the outcome of a run; a partial answer is an answer."""
    if response.ok:
        return 0
    return TABLE[response.fault.code if response.fault else Code.DELEGATION_FAILED].exit_code


# ── in a few lines ────────────────────────────────────────────────────────────────────────────────────────────────────


def summary(tree: Tree, response: Response, *, interrupted: bool = False, plainly: bool = False) -> Iterator[str]:
    """Yield the outcome of a run, its cost and its warnings; for one that the user *interrupted*, without the reason.

    Said *plainly*, for a user, it names neither agents nor codes.
    """
    yield headline(tree, response)
    if response.fault is not None and not interrupted:
        yield plain_failure(response.fault) if plainly else worded(response.fault)
    if response.finished and response.status is not Status.SUCCESS:
        yield f"finished: {join_parts(response.finished)}"
    if response.unfinished:
        yield f"not finished: {join_parts(response.unfinished)}"
    hidden = revealing(_names_in(tree)) if plainly else ()
    for warning in response.warnings:
        yield f"warning: {one_line(without_names(warning, hidden))}"


def _names_in(tree: Tree) -> Iterator[str]:
    for node in tree.nodes.values():
        yield node.agent
        if node.request is not None and node.request.capability is not None:
            yield node.request.capability


def headline(tree: Tree, response: Response) -> str:
    """Return one line for the whole run."""
    parts = [response.status + (f" in {spell_ms(response.duration_ms)}" if response.duration_ms else "")]
    if total := response.usage.total:
        granted = f" of {tree.root.granted:,}" if tree.root and tree.root.granted else ""
        parts.append(f"{'about ' if response.usage.estimated else ''}{total:,}{granted} tokens")
    if cost := cost_text(response.usage, tree.root and tree.root.cost_granted):
        parts.append(f"cost {cost}")
    below = len(tree.nodes) - 1
    if below > 0:
        others = tree.tally.copy()
        others[response.status] -= 1
        ends = f" ({tallied(others)})" if others.total() else ""
        parts.append(f"{below:,} delegation{'s' if below > 1 else ''}{ends}")
    return ", ".join(parts)


MOST_PARTS = 10


def join_parts(parts: tuple[str, ...]) -> str:
    """Return the names of parts; if there are many, only the first ones."""
    shown = ", ".join(one_line(part, 60) for part in parts[:MOST_PARTS])
    return f"{shown} and {len(parts) - MOST_PARTS:,} more" if len(parts) > MOST_PARTS else shown


# ── as documents ──────────────────────────────────────────────────────────────────────────────────────────────────────


def details(tree: Tree, run: str, state: State, store: object, now_ms: int) -> RunDetails:
    """Return everything that is known about a run."""
    root, response = tree.root, tree.response
    assert root is not None, "there is no run without a record"
    request = root.request
    known = RunDetails(
        run=run,
        session=request.session if request else None,
        agent=root.agent,
        user=request.remit.user if request else None,
        via=request.via if request else None,
        request=request.id if request and request.via else None,
        objective=request.objective if request else "",
        input=request.input if request else None,
        capability=request.capability if request else None,
        started_ms=root.started_ms,
        state=state,
        status=None,
        exit_code=None,
        usage=spent(root.usage),
        duration_ms=root.taken_ms(now_ms),
        delegations=tuple(delegation(node, now_ms) for node in tree.nodes_in_order()),
        approvals=tuple(_approvals(tree)),
        notices=tuple(_notices(tree)),
        store=str(store),
    )
    if response is None:
        return known
    return replace(
        known,
        session=response.session or known.session,
        status=response.status,
        exit_code=exit_code(response),
        result=response.result,
        summary=with_plain_summary(response).summary,
        confidence=response.confidence,
        artifacts=response.artifacts,
        files=response.files,
        warnings=response.warnings,
        finished=response.finished,
        unfinished=response.unfinished,
        fault=response.fault,
    )


def delegation(node: Node, now_ms: int) -> DelegationLine:
    """Return one delegation."""
    request = node.request
    return DelegationLine(
        delegation=node.path,
        parent=node.parent.path if node.parent else None,
        origin=request.origin if request else None,
        agent=node.agent,
        capability=request.capability if request else None,
        objective=request.objective if request else "",
        state=node.state,
        started_ms=node.started_ms,
        duration_ms=node.taken_ms(now_ms),
        time_ms=request.remit.time_ms if request else None,
        usage=spent(node.usage),
        tokens=node.granted,
        context_tokens=node.shown,
        tools=dict(node.tools),
        said=node.last_message,
        preview=text_of(node.response.result)[:PREVIEW_LENGTH] if node.response else "",
        fault=node.fault,
        handling=handling_of(node),
    )


def spent(usage: Usage) -> Spent:
    """Return the usage, with every figure."""
    return shown_as(Spent, usage)


def branches(tree: Tree, run: str, now_ms: int) -> RunTree | None:
    """Return the delegations as a tree; None if nothing is known."""
    if tree.root is None:
        return None
    made: dict[str, Branch] = {}
    # Children are called after their parents, so in reverse order each node finds its children already made.
    for node in reversed(tree.nodes_in_order()):
        children = tuple(made.pop(child.path) for child in node.children)
        made[node.path] = Branch(delegation=delegation(node, now_ms), children=children)
    return RunTree(run=run, root=made[tree.root.path])


def _approvals(tree: Tree) -> Iterator[ApprovalLine]:
    for asked_ms, approval, answered_ms in tree.consents.values():
        yield shown_as(
            ApprovalLine,
            approval,
            question=approval.id,
            text=approval.question,
            asked_ms=asked_ms,
            answered_ms=answered_ms,
        )


def _notices(tree: Tree) -> Iterator[NoticeLine]:
    for at_ms, notice in tree.notes:
        yield shown_as(NoticeLine, notice, at_ms=at_ms)


# The width without a terminal: enough for a whole line.
WIDTH = 120


def print_details(run: RunDetails, tree: Tree) -> None:
    """Print everything that is known about a run."""
    print_fields(
        [
            ("run", run.run),
            ("asked", clock_time(run.started_ms) + (f" by {run.user}" if run.user else "")),
            ("via", f"{run.via}, as {run.request}" if run.via else ""),
            ("agent", run.agent + (f", for {run.capability}" if run.capability else "")),
            ("task", run.objective),
            ("input", text_of(run.input)),
            ("state", run.status or run.state),
            ("time", spell_ms(run.duration_ms)),
            ("tokens", _tokens(run, tree)),
            ("cost", cost_text(tree.root.usage, tree.root.cost_granted) if tree.root else ""),
            ("sure", "" if run.confidence is None else f"{run.confidence:.0%}"),
            ("finished", join_parts(run.finished)),
            ("not finished", join_parts(run.unfinished)),
            ("warnings", "\n".join(one_line(each) for each in run.warnings)),
            ("fault", worded(run.fault) if run.fault else ""),
            ("session", run.session if run.session and run.session != run.run else ""),
            ("record", run.store),
        ]
    )
    _heading("Answer", run.result)
    if run.result is not None:
        print_text(text_of(run.result))
    _heading("Calls", len(run.delegations) > 1)
    if len(run.delegations) > 1:
        print_tree(tree)
    calls = tuple(history(run.delegations))
    _heading("Sub-agent calls", calls)
    for line in calls:
        print_beside(indent_of(line), line.strip())
    _heading("Approvals", run.approvals)
    for approval in run.approvals:
        time, text = clock_time(approval.asked_ms), _describe_approval(approval, waits=run.status is None)
        print_beside(f"{time}  ", text)
        if approval.agreed is None and run.status is None:
            click.echo(f"→ remit pending approve {approval.question}")
    _heading("Notices", run.notices)
    for notice in run.notices:
        print_beside(f"{clock_time(notice.at_ms)}  ", f"{one_line(notice.agent)}: {one_line(notice.text)}")


def print_tree(tree: Tree) -> None:
    """Print the delegations as a tree, one per line."""
    rows = in_columns(lines_of(tree, now_ms()), output_width() or WIDTH, unicode=speaks_unicode(sys.stdout))
    for row in rows:
        *parts, (last, style) = row
        click.echo("".join(_coloured(text, each) for text, each in [*parts, (last.rstrip(), style)]))


def _coloured(text: str, part: str) -> str:
    words = STYLES[part].split()
    colour = next((word for word in words if word not in ("bold", "dim")), None)
    return styled(text, fg=colour, bold="bold" in words, dim="dim" in words)


def _heading(title: str, content: object) -> None:
    if content is not None and content is not False and content != ():
        click.echo(f"\n{styled(title, bold=True)}")


def _tokens(run: RunDetails, tree: Tree) -> str:
    granted = f" of {tree.root.granted:,}" if tree.root and tree.root.granted is not None else ""
    return f"{run.usage.total:,}{granted}" + (", estimated" if run.usage.estimated else "")


def _describe_approval(approval: ApprovalLine, *, waits: bool) -> str:
    text = f"{one_line(approval.agent)}: {one_line(approval.text)}"
    if approval.agreed is None:
        return f"{text}: no answer yet" if waits else f"{text}: no answer"
    answer = "agreed" if approval.agreed else "declined"
    reason = f" ({one_line(approval.reason)})" if approval.reason else ""
    edited = f", changed {', '.join(approval.edited)}" if approval.edited else ""
    return f"{text}: {one_line(approval.by) or 'the approver'} {answer}{reason}{edited}"


# This much of a preview fits beside the event without wrapping.
STEP_WIDTH = 100
STEP_LEAST = 20


def steps_of(run: str, state: State, records: Iterable[Record]) -> RunSteps:
    """Return the steps of a run in order; no agent is called."""
    tree, steps, began_ms, elapsed_ms = Tree(), list[RunStep](), None, 0
    for record in records:
        node = tree.feed(record)
        began_ms = record.at_ms if began_ms is None else began_ms
        # A record is dated shortly before it gets its place in the order; the place counts.
        elapsed_ms = max(elapsed_ms, record.at_ms - began_ms)
        steps.append(
            RunStep(
                at_ms=record.at_ms,
                elapsed_ms=elapsed_ms,
                kind=record.kind,
                delegation=node.path,
                agent=node.agent,
                text=sentence(record, node),
                preview=text_of(_content(record))[:PREVIEW_LENGTH],
            )
        )
    return RunSteps(run=run, state=state, steps=tuple(steps))


def _content(record: Record) -> Json:
    """Return the content of a record that its sentence does not mention."""
    match record.body:
        case Request(input=content) | Response(result=content) | ToolUse(input=content):
            return content
        case Refusal(request=request):
            return request.input
        case _:
            return None


def print_steps(run: RunSteps) -> None:
    """Print one line for each step, and below it the start of its input or result."""
    for step in run.steps:
        indent = "  " * step.delegation.removeprefix(run.run).count(".")
        print_beside(f"{step.elapsed_ms / 1_000:8.2f}  {indent}", step.text)
        if step.preview:
            before = " " * 12 + indent
            room = min(STEP_WIDTH, max(STEP_LEAST, (output_width() or WIDTH) - len(before)))
            click.echo(before + styled(cut(one_line(step.preview), room), dim=True))
    if run.state != "finished":
        click.echo(f"The run has not ended: {run.state}.\n→ remit runs resume {short(run.run)}", err=True)


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
