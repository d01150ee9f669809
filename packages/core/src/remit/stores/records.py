"""Pages of the record, and how they are read from a SQLite file."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from remit.ports import RecordFilter
from remit.protocol.codec import encode
from remit.protocol.records import ENVELOPE_TEXTS, Kind, Record
from remit.stores.database import SqlConnection
from remit.stores.reader import NEWEST_OF_SESSIONS, Conditions, record_of
from remit.stores.schema import KINDS

RecordRow = tuple[int, int, int, str, str, bytes | msgspec.Raw]
"""The columns of a record: number, kind, at_ms, run, session and body."""

# How many records are looked through at once for their outlines.
PAGE = 100
# This much is read in some 30 ms.
RECENT_BYTES = 16 * 2**20
# After every record.
END = 2**62
_ENVELOPES = RecordFilter(kinds=frozenset({Kind.STARTED, Kind.DELEGATION, Kind.RESULT}))


class RecordPages(ABC):
    """Pages of the record, of which each engine reads a single one in its own way."""

    page_rows: int
    """How many records are read at once."""
    newest_sessions: str
    """The newest request of each conversation."""
    readable = ""
    """The condition that a page can be read with this row, where a row that was changed could make it unreadable."""

    @abstractmethod
    async def newest(self, database: SqlConnection) -> int:
        """Return the number of the newest record."""

    @abstractmethod
    async def numbered(self, database: SqlConnection, numbers: Sequence[int]) -> list[Record]:
        """Return the records with these numbers, at most `PAGE`."""

    @abstractmethod
    async def _rows(
        self, database: SqlConnection, wanted: Conditions, *, newest_first: bool = False
    ) -> Sequence[RecordRow]:
        """Return the rows for which conditions hold.

        Their first values are the number above which and the one below which these are, and how many are read.
        """

    async def page(self, database: SqlConnection, wanted: Conditions, *, newest_first: bool = False) -> list[Record]:
        """Return the records for which conditions hold, whose first values are as for `_rows`."""
        records: list[Record] = []
        above, below, limit = wanted.values[:3]
        while (size := min(self.page_rows, limit - len(records))) > 0:
            wanted.values[:3] = above, below, size
            rows = await self._rows(database, wanted, newest_first=newest_first)
            records += records_of(rows)
            if len(rows) < size:
                break
            above, below = (above, records[-1].seq) if newest_first else (records[-1].seq, below)
        return records

    async def records(
        self,
        database: SqlConnection,
        run: str | None,
        session: str | None,
        after: int,
        limit: int,
        profile: str | None = None,
    ) -> list[Record]:
        """Return committed records in order."""
        wanted = Conditions(after, END, limit).of(run, session, profile)
        if profile is not None and self.readable:
            wanted.add(self.readable)
        return await self.page(database, wanted)

    async def selected(
        self, database: SqlConnection, wanted: RecordFilter, above: int, below: int, size: int
    ) -> list[Record]:
        """Return the last records that a filter selects in a range, newest first."""
        return await self.page(database, Conditions(above, below, size).select(wanted), newest_first=True)

    async def before_newest(
        self, database: SqlConnection, count: int, run: str | None = None, profile: str | None = None
    ) -> int:
        """Return the number before the newest *count* rows, optionally of one run or profile."""
        last = await self.newest(database)
        if run is None and profile is None:
            return max(0, last - count)
        # Only the numbers: a row that was changed may hold anything.
        wanted = Conditions(count).of(run, profile=profile)
        sql = f"SELECT seq FROM remit.chained WHERE {wanted} ORDER BY seq DESC LIMIT $1"
        rows = await database.fetch(sql, *wanted.values)
        return rows[-1][0] - 1 if rows else last

    async def recent(self, database: SqlConnection, limit: int) -> list[Record]:
        """Return the outlines of the newest records."""
        end = last = await self.newest(database)
        records: list[Record] = []
        room = RECENT_BYTES
        while last > max(0, end - limit) and room > 0:
            first = max(0, end - limit, last - PAGE)
            rows = await self._rows(database, Conditions(first, last + 1, PAGE).select(_ENVELOPES))
            records[:0] = [record_of(*row[:-1], _without_texts(row[-1])) for row in rows]
            room, last = room - sum(len(bytes(row[-1])) for row in rows), first
        return records


def _without_texts(body: bytes | msgspec.Raw) -> bytes:
    return encode({name: value for name, value in _read_fields(body).items() if name not in ENVELOPE_TEXTS})


_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def records_of(rows: Iterable[RecordRow]) -> list[Record]:
    """Return records from their columns."""
    return [record_of(*row) for row in rows]


class FilePages(RecordPages):
    """Pages of the record in a SQLite file."""

    # A page is returned as one row of JSON. Each row releases the interpreter lock, which a busy event loop returns
    # late: beside such a loop 1,000 records took 560 ms row by row, and take 17 ms this way. A hundred of the largest
    # bodies stay below SQLite's limit for one value.
    page_rows = 100
    readable = "json_valid(CAST(body AS TEXT))"
    # No other request began in the session later. The index of sessions finds that.
    newest_sessions = NEWEST_OF_SESSIONS.replace(
        "{later}",
        f"""
            SELECT 1 FROM record AS later WHERE later.session = runs.session AND later.kind = {KINDS[Kind.STARTED]}
                AND later.seq > (SELECT coalesce(begun_seq, own.place) FROM request AS own
                    WHERE own.place = runs.place)
        """,
    )

    async def newest(self, database: SqlConnection) -> int:
        return await database.fetchval("SELECT coalesce(max(seq), 0) FROM record")

    async def numbered(self, database: SqlConnection, numbers: Sequence[int]) -> list[Record]:
        return records_of(_read_rows(await database.fetchval(_NUMBERED, list(numbers))))

    async def _rows(
        self, database: SqlConnection, wanted: Conditions, *, newest_first: bool = False
    ) -> Sequence[RecordRow]:
        sql = _PAGE.format(where=wanted, order="DESC" if newest_first else "ASC")
        rows = _read_rows(await database.fetchval(sql, *wanted.values))
        return sorted(rows, key=itemgetter(0), reverse=newest_first)


_AS_JSON = "SELECT json_group_array(json_array(seq, kind, at_ms, run, session, json(CAST(body AS TEXT)))) FROM"
_PAGE = f"""
    {_AS_JSON} (SELECT * FROM record WHERE seq > $1 AND seq < $2 AND {{where}} ORDER BY seq {{order}} LIMIT $3)
"""
_NUMBERED = f"{_AS_JSON} record WHERE seq = ANY ($1)"
_read_rows = msgspec.json.Decoder(list[tuple[int, int, int, str, str, msgspec.Raw]]).decode

FILE_PAGES = FilePages()
