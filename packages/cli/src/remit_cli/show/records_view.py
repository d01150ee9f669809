"""Finds runs in a store by id, and reads their records."""

from collections.abc import Iterator

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Record
from remit.runtime.ports import RunSummary
from remit.runtime.run_tree import Tree
from remit.words.terminal import one_line
from remit_cli.store_view import StoreView

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
