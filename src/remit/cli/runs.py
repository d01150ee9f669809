"""`remit runs`: look at runs, follow them, cancel them, go on with them."""

from pathlib import Path
from typing import Any, Literal

import click

from remit.cli.drive.order import Duration
from remit.cli.options import json_option, jsonl_option, store_option, team_options
from remit.cli.suggest import open_run_ids, run_ids

STATES = ("waiting", "running", "silent", "success", "partial", "failed", "timeout", "refused", "cancelled")
# So many of the newest are looked at for those in a certain state.
LOOKED_AT = 10_000


def store_options(command: Any) -> Any:
    """Add `--store`, `--team` and `--set`: which record is meant."""
    return store_option(team_options(command))


@click.group()
def runs() -> None:
    """Look at runs, follow them, cancel them, go on with them.

    A RUN is named by its id, by an unmistakable beginning of it, or as `last`.

    \b
    Example:
      remit runs list
      remit runs show last
    """


@runs.command("list")
@click.option("--user", metavar="NAME", help="Only those in this name.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, the newest first.")
@click.option("--state", type=click.Choice(STATES), help="Only those that stand, or ended, like this.")
@click.option("--correlation", metavar="ID", help="Only runs with this correlation id.")
@json_option
@jsonl_option
@store_options
def list_runs(
    user: str | None,
    limit: int,
    state: str | None,
    correlation: str | None,
    as_json: bool,
    as_jsonl: bool,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """List the newest runs.

    `silent` is a run whose process has not been heard of for some seconds; the next hub that opens takes it up, or
    records that nobody knows how it ended.

    \b
    Example:
      remit runs list --state running
      remit runs list --user ana --limit 5 --json
      remit runs list --correlation order-17
    """
    from remit.cli.places import reading, store_file
    from remit.cli.show.records_view import standing
    from remit.cli.show.runs_print import print_runs, run_line
    from remit.cli.show.screen import now_ms, print_json
    from remit.documents.runs import Runs
    from remit.stores import reader

    with reading(store_file(store_path, team_file, overrides)) as connection:
        most = LOOKED_AT if state else limit
        found = reader.runs(user, None, most, now_ms(), correlation=correlation)(connection)
    found = [each for each in found if state is None or standing(each) == state][:limit]
    if as_json:
        print_json(Runs(runs=tuple(map(run_line, found))))
    elif as_jsonl:
        for each in found:
            print_json(run_line(each))
    elif found:
        print_runs(found)
    else:
        click.echo("There is no such run.\n→ remit runs list shows all, remit run AGENT TASK starts one.", err=True)


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@store_options
def show(run: str, as_json: bool, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Show all of one RUN: what was asked, the answer, who did what, and what went wrong.

    What was redacted stays so; `remit runs answer` gives the answer itself as whoever asked gets it.

    \b
    Example:
      remit runs show last
      remit runs show 0198f2 --json
    """
    from remit.cli.places import reading, shorter, store_file
    from remit.cli.show.records_view import find_run, summary_of, tree_of
    from remit.cli.show.report import details
    from remit.cli.show.runs_print import print_details
    from remit.cli.show.screen import now_ms, print_json

    path = store_file(store_path, team_file, overrides)
    with reading(path) as connection:
        run = find_run(connection, run)
        tree, known = tree_of(connection, run), summary_of(connection, run)
    found = details(tree, run, known.state if known else "finished", shorter(path), now_ms())
    if as_json:
        print_json(found)
    else:
        print_details(found, tree)


@runs.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--wait", is_flag=True, help="Wait for a run that has not ended yet.")
@json_option
@store_options
def answer(
    run: str,
    wait: bool,
    as_json: bool,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Print the answer of a RUN as whoever asked gets it, what was redacted included.

    That is kept for a day, encrypted, for who can read the store's key. Exits as `remit run` would have.

    \b
    Example:
      remit run assistant "Sort my receipts" --detach
      remit runs answer last --wait
    """
    from remit.cli.drive.answer import give_answer
    from remit.cli.places import reading, store_file, vault_key
    from remit.cli.show.records_view import find_run

    path = store_file(store_path, team_file, overrides)
    with reading(path) as connection:
        run = find_run(connection, run)
    key = vault_key(team_file, overrides) if store_path is None or team_file is not None else None
    raise SystemExit(give_answer(path, run, key, wait=wait, as_json=as_json))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@store_options
def tree(run: str, as_json: bool, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Show who asked whom in a RUN, how each ended, and what it took.

    \b
    Example:
      remit runs tree last
    """
    from remit.cli.places import reading, store_file
    from remit.cli.show.records_view import find_run, tree_of
    from remit.cli.show.report import branches
    from remit.cli.show.runs_print import print_tree
    from remit.cli.show.screen import now_ms, print_json

    with reading(store_file(store_path, team_file, overrides)) as connection:
        run = find_run(connection, run)
        found = tree_of(connection, run)
    if as_json:
        print_json(branches(found, run, now_ms()))
    else:
        print_tree(found)


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@jsonl_option
@store_options
def watch(
    run: str,
    as_json: bool,
    as_jsonl: bool,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Follow a RUN in whichever process it goes on, until it ends.

    Exits as `remit run` would have. Ctrl-C only ends the watching; the run goes on.

    \b
    Example:
      remit runs watch last
      remit runs watch 0198f2 --jsonl
    """
    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other")
    from remit.cli.drive.watch import follow
    from remit.cli.places import store_file

    path = store_file(store_path, team_file, overrides)
    raise SystemExit(follow(path, run, as_json=as_json, as_jsonl=as_jsonl))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--reason", default="", metavar="TEXT", help="Why; it is recorded.")
@json_option
@store_options
def cancel(
    run: str,
    reason: str,
    as_json: bool,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Cancel a RUN, in whichever process it goes on.

    Exits with 0 if it is cancelled, or will be; with 1 if it had ended before.

    \b
    Example:
      remit runs cancel last --reason "wrong month"
    """
    from asyncio import run as carry_out

    from remit.cli.drive.cancel import cancel_run
    from remit.cli.places import store_file

    path = store_file(store_path, team_file, overrides)
    raise SystemExit(carry_out(cancel_run(path, run, reason, as_json=as_json)))


@runs.command()
@click.argument("run", required=False, shell_complete=open_run_ids)
@json_option
@store_options
def resume(
    run: str | None, as_json: bool, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...]
) -> None:
    """Go on with a RUN whose process is gone, or with all of them, and print the answer.

    Finished steps are not repeated; one that was under way is done again only if that is safe, or a person says so. Of
    a run that has ended the answer is printed; one on which another process is at work, or that waits for a person, is
    waited for if it is named, else only said. Ctrl-C leaves what has not ended for later.

    Exits as `remit run` would have; of several runs, as the first that is no success.

    \b
    Example:
      remit runs resume
      remit runs resume last --json
    """
    from remit.cli.drive.resume import resume as take_up
    from remit.cli.places import team_path
    from remit.config.load import load_team

    team = load_team(team_path(team_file), overrides=overrides, serving=False)
    raise SystemExit(take_up(team, store_path or team.store_path, run, as_json=as_json))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help="How long it may take this time: 5m.")
@click.option("--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help="What all agents may spend.")
@click.option("--verbose", "-v", is_flag=True, help="Show everything that the hub logs.")
@json_option
@jsonl_option
@team_options
def retry(
    run: str,
    deadline_ms: int | None,
    max_tokens: int | None,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Ask again for what a RUN did not come to: it timed out, failed, or ended with a part.

    It is asked in the same words and the same name, as a new run, and may have more time or tokens. In a workflow, and
    with any agent that is resumable, what succeeded is taken over and not done again, if that was within a day.

    Exits as `remit run` does.

    \b
    Example:
      remit runs retry last --deadline 10m
    """
    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other")
    from remit.cli.drive.foreground import carry_out
    from remit.cli.drive.retry import order_again
    from remit.cli.places import team_path
    from remit.config.load import load_team

    team = load_team(team_path(team_file), overrides=overrides, serving=False)
    order = order_again(team, run, deadline_ms=deadline_ms, max_tokens=max_tokens)
    raise SystemExit(carry_out(order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@store_options
def replay(
    run: str, as_json: bool, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...]
) -> None:
    """Show a RUN step by step as it was recorded: when, who, what, and how what came of it begins.

    No agent is called.

    \b
    Example:
      remit runs replay last
    """
    from remit.cli.places import reading, store_file
    from remit.cli.show.records_view import find_run, records_of, summary_of
    from remit.cli.show.replay import print_replay, replayed
    from remit.cli.show.screen import print_json

    with reading(store_file(store_path, team_file, overrides)) as connection:
        run = find_run(connection, run)
        known = summary_of(connection, run)
        found = replayed(run, known.state if known else "finished", records_of(connection, run))
    if as_json:
        print_json(found)
    else:
        print_replay(found)


@runs.command()
@click.argument("run", required=False, shell_complete=run_ids)
@click.option("--all", "everything", is_flag=True, help="The record of all runs.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="One document per line, or one for all.",
)
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it to FILE.")
@store_options
def export(
    run: str | None,
    everything: bool,
    form: Literal["jsonl", "json"],
    out: Path | None,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Write the records of a RUN, or of all, as JSON.

    \b
    Example:
      remit runs export last
      remit runs export --all -o record.jsonl
    """
    if (run is None) != everything:
        raise click.UsageError("name a RUN, or say --all")
    from remit.cli.drive.export import export_records
    from remit.cli.places import store_file

    export_records(store_file(store_path, team_file, overrides), run, form, out)
