"""What a store consists of besides its engine: records, tables, and the position of an unfinished copy."""

from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from remit.protocol.errors import Code, fault
from remit.runtime.audit import AuditVerdict
from remit.runtime.ports import StoreError
from remit.runtime.signing import Checkpoint, CheckpointKey
from remit.stores.checkpoints import Mark
from remit.stores.schema import RUNNING

# A page of records is written in one transaction. More rows in one save nothing.
PAGE_ROWS = 2_000
# A page of long texts has fewer rows: this much is held in memory a few times.
PAGE_BYTES = 8 * 2**20


class CopiedTable(NamedTuple):
    """A table that both engines have, with its columns in one form."""

    name: str
    key: tuple[str, ...]
    """The columns by which it is read in order."""
    columns: tuple[str, ...]
    derived: int = 0
    """How many of the last columns are made from records where an engine does not store them."""
    numbered: bool = False
    """Whether the engine numbers the rows in the key."""
    texts: bool = False
    """Whether the key is a text."""

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that every engine stores."""
        return self.columns[: len(self.columns) - self.derived]


REQUEST = CopiedTable(
    "request",
    ("place",),
    (
        *("place", "begun_seq", "last_seq", "id", "by_user", "origin", "digest", "run", "state", "epoch", "spared"),
        *("worker", "lease_until_ms", "waiting", "ended_ms"),
        *("session", "target", "via", "correlation", "started_ms", "begun_ms", "status", "asks_back"),
    ),
    derived=8,
    numbered=True,
)
_TIMES = ("asked_ms", "expires_ms", "over_ms")

# Not copied: the index of messages, which each store makes anew from its records when somebody reads a conversation;
# leases of workers, which are not at work; and what a process last saw of its clock.
TABLES: tuple[CopiedTable, ...] = (
    # Before what is encrypted under these keys.
    CopiedTable("user_key", ("id",), ("id", "by_user", "wrapped")),
    REQUEST,
    CopiedTable("session", ("id",), ("id", "by_user", "agent"), texts=True),
    CopiedTable("journal", ("run", "step"), ("run", "step", "value"), texts=True),
    CopiedTable("fact", ("id",), ("id", "by_user", "digest", "text", "run", "at_ms"), numbered=True),
    CopiedTable("note", ("id",), ("id", "session", "kind", "digest", "text", "by_agent", "at_ms"), numbered=True),
    CopiedTable("counter", ("key",), ("key", "start_ms", "end_ms", "total"), texts=True),
    CopiedTable("cell", ("key",), ("key", "revision", "value"), texts=True),
    CopiedTable("transferred", ("source",), ("source", "number"), texts=True),
    CopiedTable("sealed", ("scope", "token"), ("scope", "token", "value", "of_user", "at_ms"), texts=True),
    CopiedTable("question", ("number",), ("number", "id", "run", "content", *_TIMES, "decision"), numbered=True),
    CopiedTable("control", ("seq",), ("seq", "run", "action", "by_user", "reason", "at_ms")),
    CopiedTable("last_control", ("one",), ("one", "seq")),
    CopiedTable("fence", ("one",), ("one", "backup_ms", "restored_ms")),
)

Row = Sequence[Any]


class CopiedRecord(NamedTuple):
    """A record as it is stored."""

    seq: int
    kind: int
    at_ms: int
    run: str
    session: str
    body: bytes
    digest: bytes
    """Its digest in the chain."""


class RemovedDigest(NamedTuple):
    """What the chain keeps of a record that was removed, or of which only an outline is kept."""

    seq: int
    leaf: bytes
    digest: bytes | None


class CopiedRecords(NamedTuple):
    """All records after one number up to another."""

    last: int
    records: list[CopiedRecord]
    removed: list[RemovedDigest]


class TablePage(NamedTuple):
    """Rows of a table, and where to go on after them."""

    after: list[Any]
    rows: list[Row]


class StoreFacts(Struct, frozen=True, kw_only=True):
    """What a store says about itself."""

    head: int
    digest: bytes
    """The digest of the last record."""
    records: int
    removed: int
    """How many records were removed, or have only an outline left."""
    removals: int
    """How many statements about removals there are."""
    counts: dict[str, int]
    """The number of rows in each table."""
    mark: Mark | None
    checkpoints: tuple[Checkpoint, ...]


class TablePosition(Struct, frozen=True, kw_only=True):
    """How far a table was copied."""

    after: list[Any] = []
    rows: int = 0
    done: bool = False


class CopyState(Struct, frozen=True, kw_only=True):
    """How far a copy has come; kept in the target, in the same transaction as the rows."""

    source: str
    """The name of the source, for people to read."""
    removals: int
    """How many statements about removals the source had: more mean that rows were removed since."""
    seq: int = 0
    """The records up to this one were copied."""
    digest: bytes = bytes(32)
    """The digest of that record."""
    known: tuple[int, bytes] = (0, b"")
    """The last copied record that the source still has, with its digest: the source must still have it."""
    stream: int = 0
    """The stream of the copied records, in a PostgreSQL database."""
    tables: dict[str, TablePosition] = {}


class CopyReader(Protocol):
    """Reads a store to which nobody else writes."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> CheckpointKey | None:
        """The key of the store; None: it is missing."""
        ...

    def stores(self, table: CopiedTable) -> int:
        """Return how many columns of a table are stored; the others are derived from records."""
        ...

    async def facts(self) -> StoreFacts: ...

    async def digest_of(self, seq: int) -> bytes | None: ...

    async def page(self, after: int) -> CopiedRecords | None:
        """Return the records after a number; None: there are no more."""
        ...

    def rows(self, table: CopiedTable, after: Row) -> AsyncIterator[TablePage]: ...

    async def verify(self) -> AuditVerdict: ...


class CopyWriter(Protocol):
    """Writes a store that nobody else opens before it is finished."""

    @property
    def reader(self) -> CopyReader: ...

    async def begin(self, new: CopyState) -> CopyState:
        """Return the state of an unfinished copy, or begin one; raises `StoreError` if the target is not empty."""
        ...

    async def add_records(self, page: CopiedRecords, state: CopyState) -> CopyState: ...

    async def add_rows(self, table: CopiedTable, rows: list[Row], state: CopyState) -> None: ...

    async def clear(self, table: CopiedTable | None, state: CopyState) -> None:
        """Delete what was copied of a table, or everything."""
        ...

    async def seal(self, facts: StoreFacts) -> None:
        """Write the checkpoints."""
        ...

    async def finish(self) -> None:
        """Make a store of the copy, which hubs can open."""
        ...


Progress = Callable[[str, int, int], None]
"""Called with a table, the number of its rows that were copied, and how many there are."""


def fenced(table: CopiedTable, row: Row) -> Row:
    """Return a row as it is in the copy: whoever works on an open run of the source cannot write to the copy."""
    if table is not REQUEST or row[8] != RUNNING:
        return row
    # A claim that counts as no attempt, and that nobody holds.
    changed = dict(zip(table.columns, row, strict=True))
    changed |= {"epoch": row[9] + 1, "spared": row[10] + 1, "worker": "", "lease_until_ms": 0}
    return tuple(changed.values())


class RowSum:
    """The number of rows and a digest of them that does not depend on their order."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self.rows = 0
        self.total = 0

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            digest = blake2b(_packed(tuple(row[: self._columns])), digest_size=16).digest()
            self.total = (self.total + int.from_bytes(digest)) % 2**128
        self.rows += len(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSum) and (self.rows, self.total) == (other.rows, other.total)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes


_packed = msgspec.msgpack.Encoder().encode


def refused(message: str, advice: str) -> StoreError:
    """Return the error for something that cannot be copied."""
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def not_empty(name: str, head: tuple[int, bytes], facts: StoreFacts, advice: str) -> StoreError:
    """Return the error for a target that has records, of which *head* is the last one."""
    if head[0] and head == (facts.head, facts.digest):
        return refused(
            f"{name} holds this record already: it ends with the same row {head[0]}",
            "An earlier copy is complete: name it in `[store]` of the team file.",
        )
    return refused(f"{name} is not empty: a store cannot be copied into another one ({head[0]} records)", advice)
