"""The messages of each session in a PostgreSQL database: an index over the record.

A session is indexed when its messages are first read, never when they are written. The texts of long conversations are
copied into a table with a trigram index when somebody first searches for words: adding to that index is slow. What it
finds are candidates; the text decides whether they match.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, NamedTuple

from remit.policy.context import Count, matches, message_of, messages_from_records
from remit.protocol.envelope import ContextFilter, Message, Request
from remit.protocol.records import Kind, Record, read_request
from remit.stores.messages import ASKING, ROLES, by_words, plain
from remit.stores.reader import record_of
from remit.stores.records import PAGE
from remit.stores.schema import KINDS
from remit_cluster.postgres.connection import PgConnection
from remit_cluster.postgres.schema import SEQ

# How many messages are read one by one before the index of words is asked: common words are found among them.
FIRST_PAGE = 64
LARGEST_PAGE = 1_024
# How many messages' words are indexed at once.
SPELT = 250


class IndexedMessage(NamedTuple):
    """An index row of a message with its record."""

    id: int
    tokens: int
    message: Message


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def choose(
    connection: PgConnection, session: str, wanted: ContextFilter, now_ms: int, tokens: int, *, words: bool
) -> list[Message]:
    """Return the messages that `policy.context.select` selects in a session, which is indexed.

    Without *words*, keywords are searched in one message after the other: beside encrypted texts, an index of plain
    words would give them away.
    """
    roles = [number for role, number in ROLES.items() if wanted.roles is None or role in wanted.roles]
    last = wanted.last_messages
    if not roles or last == 0 or wanted.keywords == ():
        return []
    number = await connection.fetchval("SELECT number FROM remit.conversation WHERE session = $1", session)
    if number is None:
        return []
    after_ms = -1 if wanted.max_age_seconds is None else now_ms - wanted.max_age_seconds * 1_000
    kept: list[Message] = []
    async for row in _candidates(connection, number, wanted, roles, after_ms, words=words):
        if not matches(row.message, wanted, now_ms):
            continue
        tokens -= row.tokens
        if tokens < 0:
            break
        kept.append(row.message)
        if last is not None and len(kept) >= last:
            break
    kept.reverse()
    return kept


async def _candidates(
    connection: PgConnection, number: int, wanted: ContextFilter, roles: list[int], after_ms: int, *, words: bool
) -> AsyncIterator[IndexedMessage]:
    """Yield messages, newest first; with keywords, older ones only if the index of words finds them."""
    below, size = 2**62, FIRST_PAGE if wanted.last_messages is None else min(max(wanted.last_messages, 8), LARGEST_PAGE)
    while True:
        rows = await _page(connection, _SCAN, number, below, after_ms, roles, size)
        for row in rows:
            yield row
        if len(rows) < size:
            return
        below, size = rows[-1].id, min(2 * size, LARGEST_PAGE)
        if words and by_words(wanted):
            break
    await spell(connection, number)
    patterns = [f"%{_escaped(plain(keyword))}%" for keyword in wanted.keywords or ()]
    while True:
        rows = await _page(connection, _HITS, number, below, after_ms, roles, size, patterns)
        for row in rows:
            yield row
        if len(rows) < size:
            return
        below = rows[-1].id


async def _page(connection: PgConnection, sql: str, *values: Any) -> list[IndexedMessage]:
    found: list[IndexedMessage] = []
    for id, tokens, *columns in await connection.fetch(sql, *values):
        message = message_of(record_of(*columns), lambda _, tokens=tokens: tokens)
        if message is not None:
            found.append(IndexedMessage(id, tokens, message))
    return found


_FOUND = """
    SELECT message.id, message.tokens, message.seq, record.kind, record.at_ms, record.run, record.session, record.body
    FROM {source} JOIN remit.record USING (stream, number) ORDER BY message.id DESC
"""
_SCAN = _FOUND.format(
    source="""(
        SELECT * FROM remit.message WHERE conversation = $1 AND id < $2 AND at_ms > $3 AND role = ANY ($4::smallint[])
        ORDER BY id DESC LIMIT $5
    ) AS message"""
)
# Materialized, or the server walks through all messages in order, which is slow for rare words.
_HITS = f"""
    WITH hits AS MATERIALIZED (
        SELECT id FROM remit.word WHERE conversation = $1 AND text LIKE ANY ($6::text[]) AND id < $2
    ) {
    _FOUND.format(
        source='''(
        SELECT message.* FROM hits JOIN remit.message USING (id) WHERE at_ms > $3 AND role = ANY ($4::smallint[])
        ORDER BY id DESC LIMIT $5
    ) AS message'''
    )
}"""


async def seen(connection: PgConnection, session: str, messages: Collection[int]) -> frozenset[int]:
    """Return which of these messages belong to a session, which is indexed."""
    rows = await connection.fetch(
        "SELECT message.seq FROM remit.conversation JOIN remit.message ON conversation = conversation.number"
        " WHERE session = $1 AND message.seq = ANY ($2::bigint[])",
        session,
        list(messages),
    )
    return frozenset(seq for (seq,) in rows)


# ── indexing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

# The streams that have records of a session, found one by one in the index.
_STREAMS = """
    WITH RECURSIVE streams (id) AS (
        (SELECT stream FROM remit.record WHERE session = $1 ORDER BY stream LIMIT 1)
        UNION ALL
        SELECT (SELECT stream FROM remit.record WHERE session = $1 AND stream > streams.id ORDER BY stream LIMIT 1)
        FROM streams WHERE streams.id IS NOT NULL
    )
"""
_NEW = f"""
    {_STREAMS}
    SELECT record.stream, record.number, seq, kind, at_ms, run, session, body
    FROM streams LEFT JOIN remit.indexed ON indexed.conversation = $2 AND indexed.stream = streams.id
    CROSS JOIN LATERAL (
        SELECT * FROM remit.record WHERE record.session = $1 AND record.stream = streams.id
            AND record.number > coalesce(indexed.number, 0) ORDER BY record.number LIMIT {PAGE}
    ) AS record {SEQ}
    WHERE streams.id IS NOT NULL ORDER BY seq LIMIT {PAGE}
"""


async def update(connection: PgConnection, session: str, count: Count) -> None:
    """Update the index of a session, in small steps; everything that was committed is in the chain."""
    while await _extend(connection, session, count):
        pass


async def _extend(connection: PgConnection, session: str, count: Count) -> bool:
    number = await connection.fetchval("SELECT number FROM remit.conversation WHERE session = $1", session)
    if not await connection.fetch(_NEW, session, number or 0):
        return False
    async with connection.transaction():
        # The row's lock lets one hub at a time index a session.
        number = await connection.fetchval(
            "INSERT INTO remit.conversation (session) VALUES ($1)"
            " ON CONFLICT (session) DO UPDATE SET session = excluded.session RETURNING number",
            session,
        )
        rows = await connection.fetch(_NEW, session, number)
        places = {row[2]: (row[0], row[1]) for row in rows}
        speaking = {KINDS[kind] for kind in (Kind.STARTED, Kind.DELEGATION, Kind.RESULT)}
        records = [record_of(*row[2:]) for row in rows if row[3] in speaking]
        await _add(connection, number, session, records, places, count)
        ends = {stream: last for stream, last, *_ in rows}
        await connection.execute(
            "INSERT INTO remit.indexed SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])"
            " ON CONFLICT (conversation, stream) DO UPDATE SET number = excluded.number",
            *(number, list(ends), list(ends.values())),
        )
    return len(rows) == PAGE


async def _add(
    connection: PgConnection,
    number: int,
    session: str,
    records: list[Record],
    places: dict[int, tuple[int, int]],
    count: Count,
) -> None:
    """Add what some records say to the messages of a conversation."""
    requests = [record.body for record in records if isinstance(record.body, Request)]
    shown = {message.seq for request in requests if request.view for message in request.view.messages}
    originals: dict[int, Record] = {}
    for stream, at, *columns in await connection.fetch(_NUMBERED, list(shown)) if shown else ():
        original = record_of(*columns)
        originals[original.seq] = original
        places[original.seq] = (stream, at)
    first = min((record.seq for record in records), default=0)
    forms = await _last_forms(connection, session, first, {request.run for request in requests})
    new = messages_from_records(records, original=originals.get, count=count, asked=forms)
    if new.replaced:
        await connection.execute(
            "WITH gone AS (DELETE FROM remit.message WHERE conversation = $1 AND seq = ANY ($2::bigint[]) RETURNING id)"
            " DELETE FROM remit.word WHERE id IN (SELECT id FROM gone)",
            number,
            list(new.replaced),
        )
    # Messages that a callee was shown before are ignored here: they are indexed where they were first shown.
    await connection.execute(
        "INSERT INTO remit.message (conversation, seq, stream, number, role, at_ms, tokens)"
        " SELECT $1, seq, stream, number, role, at_ms, tokens FROM unnest($2::bigint[], $3::bigint[], $4::bigint[],"
        " $5::smallint[], $6::bigint[], $7::integer[]) WITH ORDINALITY"
        " AS new (seq, stream, number, role, at_ms, tokens, place) ORDER BY place ON CONFLICT DO NOTHING",
        number,
        [each.seq for each in new.messages],
        [places[each.seq][0] for each in new.messages],
        [places[each.seq][1] for each in new.messages],
        [ROLES[each.role] for each in new.messages],
        [each.at_ms for each in new.messages],
        [each.tokens for each in new.messages],
    )


_NUMBERED = """
    SELECT record.stream, record.number, wanted.seq, kind, at_ms, run, session, body
    FROM unnest($1::bigint[]) AS wanted (seq) JOIN LATERAL (
        SELECT * FROM remit.chain WHERE chain.first <= wanted.seq ORDER BY chain.first DESC LIMIT 1
    ) AS chain ON chain.last >= wanted.seq
    JOIN remit.record ON record.stream = chain.stream AND record.number = chain.number + wanted.seq - chain.first
"""


async def _last_forms(connection: PgConnection, session: str, below: int, runs: Collection[str]) -> dict[str, int]:
    """Return the last form of each delegation that these runs requested earlier in a session."""
    rows = await connection.fetch(_FORMS, session, sorted(runs), below) if runs else []
    return {read_request(body).path: seq for seq, body in rows}


_FORMS = f"""
    SELECT seq, body FROM remit.record {SEQ}
    WHERE run = ANY ($2::text[]) AND session = $1 AND seq < $3 AND kind IN ({ASKING}) ORDER BY seq
"""


async def forget(connection: PgConnection, numbers: Sequence[int]) -> None:
    """Delete the messages of these records, and their words, from the index."""
    # Whoever indexes a conversation holds its row: nobody copies words that are about to go.
    await connection.execute(
        "SELECT 1 FROM remit.conversation WHERE number IN"
        " (SELECT conversation FROM remit.message WHERE seq = ANY ($1::bigint[])) ORDER BY number FOR UPDATE",
        numbers,
    )
    await connection.execute(
        "WITH gone AS (DELETE FROM remit.message WHERE seq = ANY ($1::bigint[]) RETURNING id)"
        " DELETE FROM remit.word WHERE id IN (SELECT id FROM gone)",
        numbers,
    )


async def forget_conversations(connection: PgConnection, sessions: Sequence[str]) -> None:
    """Delete the index of these sessions."""
    await connection.execute(
        "WITH over AS (DELETE FROM remit.conversation WHERE session = ANY ($1::text[]) RETURNING number),"
        " places AS (DELETE FROM remit.indexed WHERE conversation IN (SELECT number FROM over)),"
        " gone AS (DELETE FROM remit.message WHERE conversation IN (SELECT number FROM over) RETURNING id)"
        " DELETE FROM remit.word WHERE id IN (SELECT id FROM gone)",
        sessions,
    )


async def spell(connection: PgConnection, number: int) -> None:
    """Index the words of a conversation's messages."""
    while True:
        async with connection.transaction():
            sql = "SELECT words FROM remit.conversation WHERE number = $1 FOR UPDATE"
            words: int = await connection.fetchval(sql, number)
            rows = await _page(connection, _NEXT, number, words, SPELT)
            if not rows:
                return
            await connection.execute(
                "INSERT INTO remit.word SELECT id, $1, text FROM unnest($2::bigint[], $3::text[]) AS new (id, text)"
                " ON CONFLICT DO NOTHING",
                number,
                [row.id for row in rows],
                [plain(row.message.text) for row in rows],
            )
            await connection.execute(
                "UPDATE remit.conversation SET words = $2 WHERE number = $1", number, max(row.id for row in rows)
            )


_NEXT = _FOUND.format(
    source="""(
        SELECT * FROM remit.message WHERE conversation = $1 AND id > $2 ORDER BY id LIMIT $3
    ) AS message"""
)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
