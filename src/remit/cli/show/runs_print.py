"""Prints runs as text: the list, one run with its details, its tree, and its recorded steps."""

import os
import shutil
import sys
from collections.abc import Iterable

import click

from remit.cli.show.report import State, join_parts
from remit.cli.show.run_list import short
from remit.cli.show.screen import (
    clock_time,
    cut,
    now_ms,
    print_fields,
    print_text,
    spell_ms,
    styled,
    worded,
)
from remit.cli.show.tree_lines import history, in_columns, lines_of, sentence
from remit.documents.run_tree import Tree
from remit.documents.runs import ApprovalLine, Replay, ReplayStep, RunDetails
from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Json, Request, Response
from remit.protocol.records import Record, Refusal, ToolUse
from remit.text.terminal import one_line, speaks_unicode

# The width without a terminal: enough for a whole line.
WIDTH = 120


def print_details(found: RunDetails, tree: Tree) -> None:
    """Print everything that is known about a run."""
    print_fields(
        [
            ("run", found.run),
            ("asked", clock_time(found.started_ms) + (f" by {found.user}" if found.user else "")),
            ("via", f"{found.via}, as {found.request}" if found.via else ""),
            ("agent", found.agent + (f", for {found.capability}" if found.capability else "")),
            ("task", found.objective),
            ("input", text_of(found.input)),
            ("state", found.status or found.state),
            ("time", spell_ms(found.duration_ms)),
            ("tokens", _tokens(found, tree)),
            ("sure", "" if found.confidence is None else f"{found.confidence:.0%}"),
            ("finished", join_parts(found.finished)),
            ("not finished", join_parts(found.unfinished)),
            ("warnings", "\n".join(one_line(each) for each in found.warnings)),
            ("fault", worded(found.fault) if found.fault else ""),
            ("session", found.session if found.session and found.session != found.run else ""),
            ("record", found.store),
        ]
    )
    _heading("Answer", found.result)
    if found.result is not None:
        print_text(text_of(found.result))
    _heading("Calls", len(found.delegations) > 1)
    if len(found.delegations) > 1:
        print_tree(tree)
    calls = tuple(history(found.delegations))
    _heading("Sub-agent calls", calls)
    for line in calls:
        print_text(line)
    _heading("Approvals", found.approvals)
    for approval in found.approvals:
        print_text(_asked(approval, waits=found.status is None))
    _heading("Notices", found.notices)
    for notice in found.notices:
        print_text(f"{clock_time(notice.at_ms)}  {one_line(notice.agent)}: {one_line(notice.text)}")


def print_tree(tree: Tree) -> None:
    """Print the delegations as a tree, one per line."""
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1 if is_terminal else WIDTH
    rows = in_columns(lines_of(tree, now_ms()), width, unicode=speaks_unicode(sys.stdout))
    if is_terminal and os.environ.get("TERM", "dumb") != "dumb":
        from rich.console import Console

        from remit.cli.show.live import coloured

        Console(highlight=False).print(*map(coloured, rows), sep="\n")
        return
    for row in rows:
        click.echo("".join(text for text, _ in row).rstrip())


def _heading(title: str, content: object) -> None:
    if content is not None and content is not False and content != ():
        click.echo(f"\n{click.style(title, bold=True)}")


def _tokens(found: RunDetails, tree: Tree) -> str:
    granted = f" of {tree.root.granted:,}" if tree.root and tree.root.granted is not None else ""
    return f"{found.usage.total:,}{granted}" + (", estimated" if found.usage.estimated else "")


def _asked(approval: ApprovalLine, *, waits: bool) -> str:
    text = f"{clock_time(approval.asked_ms)}  {one_line(approval.agent)}: {one_line(approval.text)}"
    if approval.agreed is None:
        return f"{text}: no answer yet\n→ remit pending approve {approval.question}" if waits else f"{text}: no answer"
    answer = "agreed" if approval.agreed else "declined"
    reason = f" ({one_line(approval.reason)})" if approval.reason else ""
    edited = f", changed {', '.join(approval.edited)}" if approval.edited else ""
    return f"{text}: {one_line(approval.by) or 'the approver'} {answer}{reason}{edited}"


# This much of a preview fits beside the event without wrapping.
STEP_WIDTH = 100


def replayed(run: str, state: State, records: Iterable[Record]) -> Replay:
    """Return the steps of a run in order; no agent is called."""
    tree, steps, began_ms, elapsed_ms = Tree(), list[ReplayStep](), None, 0
    for record in records:
        node = tree.feed(record)
        began_ms = record.at_ms if began_ms is None else began_ms
        # A record is dated shortly before it gets its place in the order; the place counts.
        elapsed_ms = max(elapsed_ms, record.at_ms - began_ms)
        steps.append(
            ReplayStep(
                at_ms=record.at_ms,
                elapsed_ms=elapsed_ms,
                kind=record.kind,
                delegation=node.path,
                agent=node.agent,
                text=sentence(record, node),
                preview=text_of(_content(record))[:PREVIEW_LENGTH],
            )
        )
    return Replay(run=run, state=state, steps=tuple(steps))


def _content(record: Record) -> Json:
    """Return the content of a record that its sentence does not mention."""
    match record.body:
        case Request(input=content) | Response(result=content) | ToolUse(input=content):
            return content
        case Refusal(request=request):
            return request.input
        case _:
            return None


def print_replay(found: Replay) -> None:
    """Print one line for each step, and below it the start of its input or result."""
    for step in found.steps:
        indent = "  " * step.delegation.removeprefix(found.run).count(".")
        print_text(f"{step.elapsed_ms / 1_000:8.2f}  {indent}{step.text}")
        if step.preview:
            click.echo(" " * 12 + indent + styled(cut(one_line(step.preview), STEP_WIDTH), dim=True))
    if found.state != "finished":
        click.echo(f"The run has not ended: {found.state}.\n→ remit runs resume {short(found.run)}", err=True)
