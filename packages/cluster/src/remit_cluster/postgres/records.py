"""Pages of the record in a PostgreSQL database."""

from collections.abc import Sequence

from remit.protocol.records import Kind, Record
from remit.stores.database import FORGOTTEN, KEPT, SqlConnection
from remit.stores.reader import NEWEST_OF_SESSIONS, Conditions
from remit.stores.records import RecordPages, RecordRow, records_of
from remit.stores.schema import KINDS

# How many rows of the chain are searched at first; each time that is not enough, eight times as many.
_FIRST_SPAN = 200
_WIDER = 8


class DatabasePages(RecordPages):
    """Pages of the record in a database: of what is in the chain."""

    page_rows = 1_000
    # No other request began in the session later. Both indexes of runs are used only if the condition names them.
    newest_sessions = NEWEST_OF_SESSIONS.replace(
        "{later}",
        f"""
            SELECT 1 FROM remit.record AS begun JOIN remit.request AS later ON later.run = begun.run
            WHERE begun.session = runs.session AND begun.kind = {KINDS[Kind.STARTED]} AND later.session = runs.session
                AND later.place > runs.place AND (later.{KEPT} OR later.{FORGOTTEN})
        """,
    )

    async def newest(self, database: SqlConnection) -> int:
        sql = "SELECT coalesce((SELECT last FROM remit.chain ORDER BY first DESC LIMIT 1), 0)"
        return await database.fetchval(sql)

    async def numbered(self, database: SqlConnection, numbers: Sequence[int]) -> list[Record]:
        return records_of(await database.fetch(_NUMBERED, list(numbers)))

    async def _rows(
        self, database: SqlConnection, wanted: Conditions, *, newest_first: bool = False
    ) -> Sequence[RecordRow]:
        order = "DESC" if newest_first else "ASC"
        if wanted.has_index:
            return await database.fetch(_INDEXED.format(where=wanted, order=order), *wanted.values)
        # A range is searched in pieces that grow: all of it would be sorted for one page.
        rows: list[RecordRow] = []
        above, below, size = wanted.values[:3]
        below, span = min(below, await self.newest(database) + 1), max(size, _FIRST_SPAN)
        while below > above + 1 and len(rows) < size:
            low, high = (max(above, below - 1 - span), below) if newest_first else (above, min(below, above + 1 + span))
            wanted.values[:3] = low, high, size - len(rows)
            rows += await database.fetch(_OF_RANGE.format(where=wanted, order=order), *wanted.values)
            above, below = (above, low + 1) if newest_first else (high - 1, below)
            span *= _WIDER
        return rows


_INDEXED = """
    SELECT seq, kind, at_ms, run, session, body FROM remit.chained
    WHERE seq > $1 AND seq < $2 AND {where} ORDER BY seq {order} LIMIT $3
"""
_OF_RANGE = """
    SELECT chain.first + record.number - chain.number AS seq, kind, at_ms, run, session, body
    FROM remit.chain JOIN remit.record ON record.stream = chain.stream
        AND record.number BETWEEN chain.number + greatest($1 + 1 - chain.first, 0)
        AND chain.number + least($2 - 1, chain.last) - chain.first
    WHERE chain.last > $1 AND chain.first < $2 AND {where} ORDER BY seq {order} LIMIT $3
"""
_NUMBERED = """
    SELECT wanted.seq, kind, at_ms, run, session, body
    FROM unnest($1::bigint[]) AS wanted (seq) JOIN LATERAL (
        SELECT * FROM remit.chain WHERE chain.first <= wanted.seq ORDER BY chain.first DESC LIMIT 1
    ) AS chain ON chain.last >= wanted.seq
    JOIN remit.record ON record.stream = chain.stream AND record.number = chain.number + wanted.seq - chain.first
"""

DATABASE_PAGES = DatabasePages()
