"""The recorded steps of a run."""

from collections.abc import Iterable

import click

from remit.cli.show.report import State, short
from remit.cli.show.screen import cut, print_text, styled
from remit.cli.show.sentences import sentence
from remit.cli.show.tree import Tree
from remit.documents.runs import Replay, ReplayStep
from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Json, Request, Response
from remit.protocol.records import Record, Refusal, ToolUse
from remit.text.terminal import one_line

# So much of a preview fits beside what happened before it wraps.
WIDTH = 100


def replayed(run: str, state: State, records: Iterable[Record]) -> Replay:
    """Return the steps of a run in order; no agent is called."""
    tree, steps, began_ms, elapsed_ms = Tree(), list[ReplayStep](), None, 0
    for record in records:
        node = tree.feed(record)
        began_ms = record.at_ms if began_ms is None else began_ms
        # Each is dated by who wrote it, a moment before it found its place: the place is what counts.
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
    """Return what a record holds besides what its sentence tells."""
    match record.body:
        case Request(input=content) | Response(result=content) | ToolUse(input=content):
            return content
        case Refusal(request=request):
            return request.input
        case _:
            return None


def print_replay(found: Replay) -> None:
    """Print one line for each step, and below it how what was given, or what came of it, begins."""
    for step in found.steps:
        indent = "  " * step.delegation.removeprefix(found.run).count(".")
        print_text(f"{step.elapsed_ms / 1_000:8.2f}  {indent}{step.text}")
        if step.preview:
            click.echo(" " * 12 + indent + styled(cut(one_line(step.preview), WIDTH), dim=True))
    if found.state != "finished":
        click.echo(f"The run has not ended: {found.state}.\n→ remit runs resume {short(found.run)}", err=True)
