"""The index of messages in a PostgreSQL database.

The texts of long conversations are copied into a table with a trigram index when somebody first searches for words:
adding to that index is slow.
"""

from collections.abc import Sequence
from typing import Any

from remit.protocol.records import Record
from remit.stores.database import SqlConnection
from remit.stores.messages import SPEAKING, IndexedWords, MessageIndex, MessageRow, SearchedWords, plain
from remit.stores.reader import record_of
from remit.stores.records import PAGE
from remit_cluster.postgres.records import DATABASE_PAGES
from remit_cluster.postgres.schema import SEQ

# The streams that have records of a session, found one by one in the index.
_STREAMS = """
    WITH RECURSIVE streams (id) AS (
        (SELECT stream FROM remit.record WHERE session = $1 ORDER BY stream LIMIT 1)
        UNION ALL
        SELECT (SELECT stream FROM remit.record WHERE session = $1 AND stream > streams.id ORDER BY stream LIMIT 1)
        FROM streams WHERE streams.id IS NOT NULL
    )
"""
# A removed record has no words left; it is passed over.
_NEW = f"""
    {_STREAMS}
    SELECT record.stream, record.number, kind IN ({SPEAKING}) AND NOT coalesce((
            SELECT removed.last >= seq FROM remit.removed WHERE removed.first <= seq ORDER BY removed.first DESC LIMIT 1
        ), FALSE), seq, kind, at_ms, run, session, body
    FROM streams LEFT JOIN remit.indexed ON indexed.conversation = $2 AND indexed.stream = streams.id
    CROSS JOIN LATERAL (
        SELECT * FROM remit.record WHERE record.session = $1 AND record.stream = streams.id
            AND record.number > coalesce(indexed.number, 0) ORDER BY record.number LIMIT {PAGE}
    ) AS record {SEQ}
    WHERE streams.id IS NOT NULL ORDER BY seq LIMIT {PAGE}
"""
# Materialized, or the server walks through all messages in order, which is slow for rare words.
_HITS = """
    WITH hits AS MATERIALIZED (
        SELECT id FROM remit.word WHERE conversation = $1 AND text LIKE ANY ($5::text[]) AND id < $2
    )
    SELECT id, seq, tokens FROM hits JOIN remit.message USING (id)
    WHERE at_ms > $3 AND role = ANY ($4::smallint[]) ORDER BY id DESC LIMIT $6
"""


class DatabaseIndex(MessageIndex):
    """The index in a database; everything that was committed is in the chain."""

    behind = f"""EXISTS (
        {_STREAMS}
        SELECT 1 FROM streams
        LEFT JOIN remit.indexed ON indexed.conversation = conversation.number AND indexed.stream = streams.id
        WHERE EXISTS (SELECT 1 FROM remit.record WHERE record.session = $1 AND record.stream = streams.id
            AND record.number > coalesce(indexed.number, 0))
    )"""

    async def rows(self, database: SqlConnection, sql: str, *values: Any) -> list[MessageRow]:
        return [MessageRow(*row) for row in await database.fetch(sql, *values)]

    async def take_new(self, database: SqlConnection, session: str, number: int) -> tuple[list[Record], bool]:
        rows = await database.fetch(_NEW, session, number)
        ends = {stream: last for stream, last, *_ in rows}
        await database.execute(
            "INSERT INTO remit.indexed SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])"
            " ON CONFLICT (conversation, stream) DO UPDATE SET number = excluded.number",
            *(number, list(ends), list(ends.values())),
        )
        records = [record_of(*columns) for _, _, speaks, *columns in rows if speaks]
        return records, len(rows) == PAGE

    async def hits(self, database: SqlConnection, searched: SearchedWords, below: int, size: int) -> list[MessageRow]:
        patterns = [f"%{_escaped(plain(keyword))}%" for keyword in searched.keywords]
        values = searched.number, below, searched.after_ms, list(searched.roles), patterns, size
        return await self.rows(database, _HITS, *values)

    async def add_words(self, database: SqlConnection, number: int, words: Sequence[IndexedWords]) -> None:
        await database.execute(
            "INSERT INTO remit.word SELECT id, $1, text FROM unnest($2::bigint[], $3::text[]) AS new (id, text)"
            " ON CONFLICT DO NOTHING",
            *(number, [each.id for each in words], [each.text for each in words]),
        )

    async def replace(self, database: SqlConnection, number: int, replaced: Sequence[int]) -> None:
        await database.execute(_DELETE.format(where="conversation = $2 AND"), replaced, number)

    async def forget(self, database: SqlConnection, numbers: Sequence[int]) -> None:
        # Whoever indexes a conversation holds its row: nobody copies words that are about to go.
        await database.execute(
            "SELECT 1 FROM remit.conversation WHERE number IN"
            " (SELECT conversation FROM remit.message WHERE seq = ANY ($1::bigint[])) ORDER BY number FOR UPDATE",
            numbers,
        )
        await database.execute(_DELETE.format(where=""), numbers)

    async def forget_conversations(self, database: SqlConnection, sessions: Sequence[str]) -> None:
        await database.execute(
            "WITH over AS (DELETE FROM remit.conversation WHERE session = ANY ($1::text[]) RETURNING number),"
            " places AS (DELETE FROM remit.indexed WHERE conversation IN (SELECT number FROM over)),"
            " gone AS (DELETE FROM remit.message WHERE conversation IN (SELECT number FROM over) RETURNING id)"
            " DELETE FROM remit.word WHERE id IN (SELECT id FROM gone)",
            sessions,
        )


_DELETE = (
    "WITH gone AS (DELETE FROM remit.message WHERE {where} seq = ANY ($1::bigint[]) RETURNING id)"
    " DELETE FROM remit.word WHERE id IN (SELECT id FROM gone)"
)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


DATABASE_INDEX = DatabaseIndex(DATABASE_PAGES)
