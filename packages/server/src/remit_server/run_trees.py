"""Runs that are looked at: their trees, folded from the record once and then kept up to date, and lists of runs."""

import asyncio
from collections import OrderedDict

from msgspec import Struct

from remit.ports import RunScope, RunSummary, Store
from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Record, Refusal
from remit.runtime.aside import aside
from remit.runtime.run_tree import Node, Tree
from remit_server.documents.api_values import PublicRun
from remit_server.documents.common import shown_as
from remit_server.documents.delegation_table import CostOf, DelegationTable, table_of

# A page of the record is folded in some milliseconds, and the event loop goes on between two of them.
RECORDS_PAGE = 500
# Trees that are kept. A delegation takes some 4 kB, so that all of them take less than 200 MB.
MOST_TREES = 16
MOST_NODES = 40_000
# Tables of fewer delegations are made in the event loop, in a millisecond.
SMALL_TABLE = 100


class TreeChanges(Struct, frozen=True, kw_only=True):
    """The delegations of a run that changed after a record."""

    seq: int
    """The number of the newest record that is counted."""
    count: int
    """All delegations of the run, also unchanged ones."""
    table: DelegationTable


class WatchedTree:
    """The tree of a run, with the parts that other hubs on the store executed, up to a record."""

    def __init__(self, run: str) -> None:
        self.tree = Tree()
        self.seq = 0
        self._read_up_to: dict[str, int] = {run: 0}
        """The last record that was read of the run, and of each part."""
        self._changed: dict[Node, int] = {}
        self._turn = asyncio.Lock()
        self._run = run

    async def changes(self, store: Store, after: int, now_ms: int, cost: CostOf | None) -> TreeChanges | None:
        """Return what changed after the record *after*; None if nothing is recorded of the run."""
        async with self._turn:
            await self._update(store)
            if self.tree.root is None:
                return None
            nodes = [node for node in self.tree.nodes_in_order() if self._changed.get(node, 0) > after]
            # A price may have to be looked up, which takes half a second once.
            if len(nodes) <= SMALL_TABLE and cost is None:
                table = table_of(self.tree, nodes, now_ms)
            else:
                table = await aside.run(table_of, self.tree, nodes, now_ms, cost)
            return TreeChanges(seq=self.seq, count=len(self._changed), table=table)

    async def _update(self, store: Store) -> None:
        # First the number, then the records: all up to it are read, and those after it are told once more.
        newest = await store.newest()
        if newest == self.seq:
            return
        runs = list(self._read_up_to)
        for run in runs:
            await self._follow(store, run)
            if self.tree.user is not None:
                parts = self.tree.join(await store.handed_over(run, self.tree.user))
                self._read_up_to |= dict.fromkeys(parts, 0)
                runs += parts
        self.seq = newest

    async def _follow(self, store: Store, run: str) -> None:
        while page := await store.records(run=run, after=self._read_up_to[run], limit=RECORDS_PAGE):
            self._read_up_to[run] = page[-1].seq
            for record in page:
                self._feed(record)

    def _feed(self, record: Record) -> None:
        goes_on = self.tree.response is None
        node = self.tree.feed(record)
        # A part that is found late has older records: what is told of them is news all the same.
        seq = max(record.seq, self.seq + 1)
        for each in node.lineage():
            self._changed[each] = seq
        if goes_on and self.tree.response is not None:
            # What had not ended by then is lost.
            self._changed |= {each: seq for each in self._changed if each.lost}

    async def read(self, store: Store) -> Tree:
        """Return the tree as it stands now."""
        async with self._turn:
            await self._update(store)
            return self.tree

    @property
    def size(self) -> int:
        """The number of delegations."""
        return len(self._changed)


class RunTrees:
    """The trees that were asked for last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trees: OrderedDict[str, WatchedTree] = OrderedDict()

    async def changes(self, run: str, after: int, now_ms: int, cost: CostOf | None = None) -> TreeChanges | None:
        """Return the delegations of a run that changed after the record *after*; None if nothing is recorded of it."""
        return await self._watched(run).changes(self._store, after, now_ms, cost)

    async def tree(self, run: str) -> Tree:
        """Return the tree of a run as it stands now; without a root if nothing is recorded of it."""
        return await self._watched(run).read(self._store)

    def _watched(self, run: str) -> WatchedTree:
        watched = self._trees.setdefault(run, WatchedTree(run))
        self._trees.move_to_end(run)
        while len(self._trees) > MOST_TREES or (len(self._trees) > 1 and self._size > MOST_NODES):
            self._trees.popitem(last=False)
        return watched

    @property
    def _size(self) -> int:
        return sum(each.size for each in self._trees.values())


# How many runs a request reads at most to find those that fit: some hundred milliseconds.
MOST_SEARCHED = 2_000
# As many are read at once: enough that a search is quick, and few enough that their answers fit into memory.
PAGE = 200


# How much of an answer is searched: what a person would find again by a few words stands at its beginning.
SEARCHED_LENGTH = 4_000


class RunFilter(Struct, frozen=True, kw_only=True):
    """The texts, states and outcomes that a run must have; an empty field selects every run."""

    text: str = ""
    """A part of its id, objective, answer or error message, in small or capital letters."""
    states: frozenset[str] = frozenset()
    statuses: frozenset[Status] = frozenset()
    codes: frozenset[Code] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether every run fits."""
        return self == RunFilter()

    def fits(self, summary: RunSummary) -> bool:
        """Return whether a run is searched for."""
        response = summary.response
        if self.states and summary.state not in self.states:
            return False
        if self.statuses and (response is None or response.status not in self.statuses):
            return False
        if self.codes and (response is None or response.fault is None or response.fault.code not in self.codes):
            return False
        return not self.text or self._says(summary)

    def _says(self, summary: RunSummary) -> bool:
        wanted, response = self.text.casefold(), summary.response
        if summary.run.startswith(wanted) or wanted in summary.objective.casefold():
            return True
        if response is None:
            return False
        # What is not shown to a reader cannot be found by it either.
        why = response.fault.outward().message if response.fault is not None else ""
        answer = text_of(response.result)[:SEARCHED_LENGTH]
        return any(wanted in each.casefold() for each in (why, response.summary, answer))


def preview_of(response: Response) -> str:
    """Return the beginning of an answer: its summary, or its result as text."""
    return (response.summary or text_of(response.result))[:PREVIEW_LENGTH]


def run_line(summary: RunSummary, questions: int = 0) -> PublicRun:
    """Return a run in one line."""
    response = summary.response
    return shown_as(
        PublicRun,
        summary,
        status=response.status if response else None,
        code=response.fault.code if response and response.fault else None,
        preview=preview_of(response) if response else "",
        tokens=response.usage.total if response else None,
        cost=response.usage.cost if response else None,
        duration_ms=response.duration_ms if response else None,
        questions=questions,
    )


class FoundRuns(Struct, frozen=True, kw_only=True):
    """The runs that a search found, how many it has read, and where it goes on."""

    runs: list[RunSummary]
    searched: int
    next: str | None


async def search(
    store: Store, wanted: RunFilter, of: RunScope, limit: int, *, user: str | None, correlation: str | None
) -> FoundRuns:
    """Return at most *limit* of the newest runs that fit.

    The store selects by user, agent, time and correlation. Everything else is looked for in what it returns.
    """
    runs: list[RunSummary] = []
    searched, size = 0, limit + 1 if wanted.is_empty else PAGE
    while True:
        some = await store.runs(user=user, correlation=correlation, of=of, limit=size)
        for place, summary in enumerate(some):
            if len(runs) == limit:
                return FoundRuns(runs=runs, searched=searched, next=some[place - 1].run if place else of.before)
            searched += 1
            if wanted.fits(summary):
                runs.append(summary)
        if len(some) < size:
            return FoundRuns(runs=runs, searched=searched, next=None)
        of = of._replace(before=some[-1].run)
        if searched >= MOST_SEARCHED:
            return FoundRuns(runs=runs, searched=searched, next=of.before)


async def summary_of(store: Store, run: str) -> RunSummary | None:
    """Return the summary of a run, also of one that was refused before it started; None if there is no such run."""
    for summary in await store.runs(run=run, limit=1):
        if summary.run == run:
            return summary
    for record in await store.records(run=run, limit=1):
        match record.body:
            case Refusal(request=request, response=response) if request.parent is None:
                return RunSummary(
                    run,
                    request.remit.user,
                    request.target,
                    request.objective,
                    record.at_ms,
                    response,
                    "finished",
                    request.via or "",
                    record.session,
                    record.at_ms,
                    request.correlation or run,
                )
            case _:
                pass
    return None
