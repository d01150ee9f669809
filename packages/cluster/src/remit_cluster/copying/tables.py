"""What is copied of a store: records, the tables that its schema declares, and how far it has come."""

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.runtime.signing import Checkpoint
from remit.stores.checkpoints import Mark
from remit.stores.schema import RUNNING
from remit.stores.schema import TABLES as DECLARATIONS

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
    flags: frozenset[int] = frozenset()
    """The places of the columns that are true or false."""
    numbered: bool = False
    """Whether the engine numbers the rows in the key."""
    derived: int = 0
    """How many of the last columns are made from records where an engine does not store them."""

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
    flags=frozenset({13}),
    numbered=True,
    derived=8,
)


def _declared() -> dict[str, CopiedTable]:
    """Return the tables that both engines have, as the schema declares them."""
    declared: dict[str, CopiedTable] = {}
    for name, body in re.findall(r"CREATE TABLE remit\.(\w+) \((.*?)\)(?: /\* keyed \*/)?;", DECLARATIONS, re.DOTALL):
        parts = [part.split() for part in re.split(r",\s*(?![^()]*\))", body.strip())]
        columns = [part for part in parts if part[0] not in ("PRIMARY", "UNIQUE")]
        key = re.search(r"PRIMARY KEY \(([^)]*)\)", body)
        declared[name] = CopiedTable(
            name,
            tuple(key[1].split(", ")) if key else tuple(part[0] for part in columns if "PRIMARY" in part),
            tuple(part[0] for part in columns),
            frozenset(place for place, part in enumerate(columns) if part[1] == "boolean"),
            "GENERATED" in body,
        )
    return declared


# Not copied: the index of messages, which each store makes anew from its records when somebody reads a conversation;
# leases of workers, which are not at work; and what a process last saw of its clock.
_DECLARED = _declared()
# The keys come before what is encrypted under them.
TABLES: tuple[CopiedTable, ...] = (_DECLARED.pop("user_key"), REQUEST, *_DECLARED.values())

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
