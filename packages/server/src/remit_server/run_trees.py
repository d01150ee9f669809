"""The trees of runs that are looked at: folded from the record once, and brought up to date when they are asked for."""

import asyncio
from collections import OrderedDict

from msgspec import Struct

from remit.protocol.records import Record
from remit.runtime.aside import aside
from remit.runtime.ports import Store
from remit.runtime.run_tree import Node, Tree
from remit_server.documents.delegation_table import CostOf, DelegationTable, table_of

# A page of the record is folded in some milliseconds, and the event loop goes on between two of them.
PAGE = 500
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
        self._read: dict[str, int] = {run: 0}
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
        runs = list(self._read)
        for run in runs:
            await self._follow(store, run)
            if self.tree.user is not None:
                parts = self.tree.join(await store.handed_over(run, self.tree.user))
                self._read |= dict.fromkeys(parts, 0)
                runs += parts
        self.seq = newest

    async def _follow(self, store: Store, run: str) -> None:
        while page := await store.records(run=run, after=self._read[run], limit=PAGE):
            self._read[run] = page[-1].seq
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
