"""Prints runs as text: the list, one run with its details, its tree, and its recorded steps."""

import sys
from collections.abc import Iterable

import click

from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Json, Request, Response
from remit.protocol.records import Record, Refusal, ToolUse
from remit.runtime.run_tree import Tree
from remit.words.terminal import one_line, speaks_unicode
from remit_cli.show.report import State, join_parts
from remit_cli.show.run_list import short
from remit_cli.show.screen import (
    clock_time,
    cut,
    indent_of,
    now_ms,
    output_width,
    print_beside,
    print_fields,
    print_text,
    spell_ms,
    styled,
    worded,
)
from remit_cli.show.tree_lines import STYLES, history, in_columns, lines_of, sentence
from remit_server.documents.runs import ApprovalLine, Replay, ReplayStep, RunDetails

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
        print_beside(indent_of(line), line.strip())
    _heading("Approvals", found.approvals)
    for approval in found.approvals:
        time, text = clock_time(approval.asked_ms), _asked(approval, waits=found.status is None)
        print_beside(f"{time}  ", text)
        if approval.agreed is None and found.status is None:
            click.echo(f"→ remit pending approve {approval.question}")
    _heading("Notices", found.notices)
    for notice in found.notices:
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


def _tokens(found: RunDetails, tree: Tree) -> str:
    granted = f" of {tree.root.granted:,}" if tree.root and tree.root.granted is not None else ""
    return f"{found.usage.total:,}{granted}" + (", estimated" if found.usage.estimated else "")


def _asked(approval: ApprovalLine, *, waits: bool) -> str:
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
        print_beside(f"{step.elapsed_ms / 1_000:8.2f}  {indent}", step.text)
        if step.preview:
            before = " " * 12 + indent
            room = min(STEP_WIDTH, max(STEP_LEAST, (output_width() or WIDTH) - len(before)))
            click.echo(before + styled(cut(one_line(step.preview), room), dim=True))
    if found.state != "finished":
        click.echo(f"The run has not ended: {found.state}.\n→ remit runs resume {short(found.run)}", err=True)
