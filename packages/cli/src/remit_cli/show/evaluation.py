"""Prints how the cases of an evaluation ended, and where a replay differs from its recording."""

import click

from remit.protocol.codec import text_of
from remit.protocol.envelope import Usage
from remit_cli.show.screen import many, print_beside, print_table, print_text, spell_ms, styled, worded
from remit_cli.show.tree_lines import cost_text
from remit_server.documents.evaluation import Evaluation
from remit_server.documents.runs import ReplayReport


def print_evaluation(done: Evaluation) -> None:
    """Print a row for each case, then what was not as expected, then the share."""
    rows = [
        (
            each.name,
            each.agent,
            f"{each.passed} of {each.runs}",
            f"{each.usage.total:,}" if each.usage.total else "",
            cost_text(Usage(cost=each.usage.cost)),
            spell_ms(each.duration_ms),
        )
        for each in done.cases
    ]
    print_table(("case", "agent", "passed", "tokens", "cost", "time"), rows, folds=("time", "tokens", "agent"))
    for case in done.cases:
        for failed in case.failed:
            click.echo()
            click.echo(styled(case.name if case.runs == 1 else f"{case.name}, run {failed.run}", bold=True))
            for failure in failed.failures:
                print_beside("  ", failure)
    passed = f"{done.passed} of {many(done.runs, 'run')} passed ({done.share:.0%}, threshold {done.threshold:.0%})"
    below = [each.name for each in done.cases if not each.ok]
    note = f"; below their own threshold: {', '.join(below)}" if below else ""
    click.echo(f"\n{passed}{note}")


def print_replay(report: ReplayReport) -> None:
    """Print the first difference and those after it, and the answers if they may be new."""
    replies = many(report.replies, "reply") + " recorded"
    if report.same:
        click.echo(f"Same as the recording ({replies}).")
        return
    first, *others = report.differences
    click.echo(styled("Different from the recording:", bold=True))
    print_beside("  ", first.text)
    if others:
        click.echo("\nAfter that:")
        for each in others:
            print_beside("  ", each.text)
    if report.asked:
        click.echo(f"\n{many(report.asked, 'new call')} made.")
        for run in report.runs:
            print_text(f"{run.agent}: {run.status}: {worded(run.fault) if run.fault else text_of(run.result)}")
    else:
        click.echo("→ To see what comes of it, ask for the rest: --new ask. If it is meant, record it again.", err=True)
