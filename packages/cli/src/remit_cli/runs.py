"""`remit runs`: list, show, watch, cancel and resume runs."""

from pathlib import Path
from typing import Literal

import click

from remit_cli.completion import open_run_ids, run_ids
from remit_cli.options import (
    GivenStore,
    SubcommandGroup,
    budget_option,
    cost_option,
    deadline_option,
    json_option,
    jsonl_option,
    save_option,
    store_options,
    team_options,
    verbose_option,
)
from remit_cli.places import place_of, reading, record_file, relative_path, team_path, vault_key
from remit_cli.show.runs import (
    branches,
    details,
    export_records,
    find_run,
    print_details,
    print_runs,
    print_steps,
    print_tree,
    records_of,
    run_line,
    standing,
    steps_of,
    summary_of,
    tree_of,
)
from remit_cli.show.screen import now_ms, print_json

STATES = ("waiting", "running", "silent", "success", "partial", "failed", "timeout", "refused", "cancelled")
# How many of the newest runs are searched for those in a certain state.
LOOKED_AT = 10_000


@click.group(cls=SubcommandGroup)
def runs() -> None:
    """List, show, watch, cancel and resume runs.

    RUN is a run id, the unique start of one, or `last`.

    \b
    Example:
      remit runs list
      remit runs show last
    """


@runs.command("list")
@click.option("--user", metavar="NAME", help="Only runs of this user.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of runs, newest first."
)
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state or with this final status.")
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
    given: GivenStore,
) -> None:
    """List the newest runs.

    A run is `silent` if its process has shown no sign of life for some seconds. The next hub that starts resumes it, or
    records that its outcome is unknown.

    \b
    Example:
      remit runs list --state running
      remit runs list --user ana --limit 5 --json
      remit runs list --correlation order-17
    """
    from remit_server.documents.runs import Runs

    with reading(record_file(given)) as view:
        most = LOOKED_AT if state else limit
        summaries = view.runs(user=user, correlation=correlation, limit=most)
    summaries = [each for each in summaries if state is None or standing(each) == state][:limit]
    if as_json:
        print_json(Runs(runs=tuple(map(run_line, summaries))))
    elif as_jsonl:
        for each in summaries:
            print_json(run_line(each))
    elif summaries:
        print_runs(summaries)
    else:
        click.echo("No such run.\n→ List all: remit runs list. Start one: remit run AGENT TASK", err=True)


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@store_options
def show(run: str, as_json: bool, given: GivenStore) -> None:
    """Show the details of a RUN: the request, the answer, the calls, and the errors.

    Redacted values stay redacted. `remit runs answer` prints the answer with the original values.

    \b
    Example:
      remit runs show last
      remit runs show 0198f2 --json
    """

    path = record_file(given)
    with reading(path) as view:
        run = find_run(view, run)
        tree, known = tree_of(view, run), summary_of(view, run)
    shown = details(tree, run, known.state if known else "finished", relative_path(path), now_ms())
    if as_json:
        print_json(shown)
    else:
        print_details(shown, tree)


@runs.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--wait", is_flag=True, help="Wait until the run ends.")
@save_option
@json_option
@store_options
def answer(run: str, wait: bool, folder: Path | None, as_json: bool, given: GivenStore) -> None:
    """Print the answer of a RUN as the caller gets it, with the original values.

    These values are stored encrypted for a day, and need the store's key. The exit codes are those of `remit run`.

    \b
    Example:
      remit run assistant "Sort my receipts" --detach
      remit runs answer last --wait
    """
    from remit_cli.drive.control import give_answer

    path = record_file(given)
    with reading(path) as view:
        run = find_run(view, run)
    key = vault_key(given.team_file, given.overrides) if given.is_teams else None
    raise SystemExit(give_answer(path, run, key, wait=wait, as_json=as_json, folder=folder))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@store_options
def tree(run: str, as_json: bool, given: GivenStore) -> None:
    """Show the calls of a RUN as a tree, with their status and cost.

    \b
    Example:
      remit runs tree last
    """

    with reading(record_file(given)) as view:
        run = find_run(view, run)
        shown = tree_of(view, run)
    if as_json:
        print_json(branches(shown, run, now_ms()))
    else:
        print_tree(shown)


@runs.command()
@click.argument("run", shell_complete=run_ids)
@json_option
@jsonl_option
@store_options
def watch(run: str, as_json: bool, as_jsonl: bool, given: GivenStore) -> None:
    """Follow a RUN in any process, until it ends.

    The exit codes are those of `remit run`. Ctrl-C only stops watching; the run continues.

    \b
    Example:
      remit runs watch last
      remit runs watch 0198f2 --jsonl
    """
    from remit_cli.drive.control import follow

    path = record_file(given)
    raise SystemExit(follow(path, run, as_json=as_json, as_jsonl=as_jsonl))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--reason", default="", metavar="TEXT", help="Reason. It is recorded.")
@click.option("--delegation", metavar="PATH", help="Cancel only this delegation and everything below it.")
@json_option
@store_options
def cancel(run: str, reason: str, delegation: str | None, as_json: bool, given: GivenStore) -> None:
    """Cancel a RUN in any process, or one delegation of it.

    PATH is the path of a delegation as `remit runs show RUN --json` prints it, with or without the id of the run. Its
    caller gets a cancelled response, and goes on.

    The exit code is 0 if the run or the delegation is cancelled, or will be, and 1 if it had already ended.

    \b
    Example:
      remit runs cancel last --reason "wrong month"
      remit runs cancel last --delegation 2.1
    """
    from asyncio import run as carry_out

    from remit_cli.drive.control import cancel_run

    path = record_file(given)
    raise SystemExit(carry_out(cancel_run(path, run, reason, delegation, as_json=as_json)))


@runs.command()
@click.argument("run", required=False, shell_complete=open_run_ids)
@json_option
@store_options
def resume(run: str | None, as_json: bool, given: GivenStore) -> None:
    """Resume a RUN whose process is gone, or all such runs, and print the answer.

    Finished steps are not repeated. A step that was interrupted is repeated only if that is safe, or if a person
    approves. If the run has ended, its answer is printed. If another process executes it, or it waits for a person, the
    command waits for it when RUN is given, and otherwise only reports it. Ctrl-C leaves unfinished runs for later.

    The exit codes are those of `remit run`; for several runs, that of the first that did not succeed.

    \b
    Example:
      remit runs resume
      remit runs resume last --json
    """
    from remit_cli.config.load import load_team
    from remit_cli.drive.resume import resume as take_up

    team = load_team(team_path(given.team_file), overrides=given.overrides, serving=False)
    raise SystemExit(take_up(team, given.store_path or place_of(team), run, as_json=as_json))


@runs.command()
@click.argument("run", shell_complete=run_ids)
@deadline_option("Time limit of the new run: 5m.")
@budget_option()
@cost_option()
@verbose_option
@json_option
@jsonl_option
@team_options
def retry(
    run: str,
    deadline_ms: int | None,
    max_tokens: int | None,
    max_cost: str | None,
    verbose: bool,
    as_json: bool,
    as_jsonl: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Repeat a RUN that timed out, failed, or gave a partial answer.

    The new run has the same request and the same user, and may have more time, tokens or money. In a workflow, and with
    any resumable agent, steps that succeeded within the last day are reused.

    The exit codes are those of `remit run`.

    \b
    Example:
      remit runs retry last --deadline 10m
    """
    from remit_cli.config.load import load_team
    from remit_cli.drive.order import cost_in
    from remit_cli.drive.resume import order_again
    from remit_cli.drive.run_order import carry_out

    team = load_team(team_path(team_file), overrides=overrides, serving=False)
    cost = cost_in(max_cost, team.currency)
    order = order_again(team, run, deadline_ms=deadline_ms, max_tokens=max_tokens, max_cost=cost)
    raise SystemExit(carry_out(order, as_json=as_json, as_jsonl=as_jsonl, verbose=verbose, named_team=team_file))


@runs.command("print")
@click.argument("run", shell_complete=run_ids)
@json_option
@store_options
def print_(run: str, as_json: bool, given: GivenStore) -> None:
    """Print the recorded steps of a RUN in order: time, agent, event, and the start of each result.

    No agent is called.

    \b
    Example:
      remit runs print last
    """

    with reading(record_file(given)) as view:
        run = find_run(view, run)
        known = summary_of(view, run)
        steps = steps_of(run, known.state if known else "finished", records_of(view, run))
    if as_json:
        print_json(steps)
    else:
        print_steps(steps)


@runs.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--new",
    type=click.Choice(["refuse", "ask"]),
    default="refuse",
    show_default=True,
    help="Refuse calls that are not in the recording, or really make them, from the first difference on.",
)
@verbose_option
@json_option
@team_options
def replay(
    recording: Path,
    new: Literal["refuse", "ask"],
    verbose: bool,
    as_json: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Run the agents' code again on a RECORDING that `remit run --record` made, and name the first difference.

    Calls that are in the recording get the recorded replies, so that neither a network nor a key is needed. What the
    team records goes into a store that is deleted at the end.

    The exit code is 0 if nothing differs, and 1 if something does.

    \b
    Example:
      remit runs replay receipts.jsonl
      remit runs replay receipts.jsonl --set agents.assistant.prompt="Be brief." --new ask
    """
    from remit_cli.drive import replaying
    from remit_cli.show.evaluation import print_replay

    team = replaying.recorded_team(team_path(team_file), overrides, offline=new == "refuse")
    report = replaying.carry_out(team, recording, new, verbose=verbose)
    if as_json:
        print_json(report)
    else:
        print_replay(report)
    raise SystemExit(0 if report.same else 1)


@runs.command()
@click.argument("run", required=False, shell_complete=run_ids)
@click.option("--all", "everything", is_flag=True, help="Export all runs.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or one JSON document.",
)
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it to FILE.")
@store_options
def export(
    run: str | None, everything: bool, form: Literal["jsonl", "json"], out: Path | None, given: GivenStore
) -> None:
    """Write the records of a RUN, or of all runs, as JSON.

    \b
    Example:
      remit runs export last
      remit runs export --all -o record.jsonl
    """

    if (run is None) != everything:
        raise click.UsageError("give a RUN, or --all")

    export_records(record_file(given), run, form, out)
