"""The messages of each session in a SQLite file: an index over the record, which alone has their texts.

A session is indexed when its messages are first read, never when they are written. `word` has the trigrams of the
texts. Each conversation and role has its own range of row numbers there, so a full-text query for one of them skips the
rest of the file. Its results are candidates; the text decides whether they match.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from remit.policy.context import Count, matches, message_of, messages_from_records, newest
from remit.protocol.envelope import ContextFilter, Message, Request
from remit.protocol.records import Kind, Record, read_request
from remit.stores.connection import SqliteConnection
from remit.stores.database import SqliteDatabase, at_once
from remit.stores.records import PAGE, FileQuery, numbered, page
from remit.stores.schema import KINDS

T = TypeVar("T")

# This many messages are searched one by one before their words are indexed: a few are not worth the write, and words in
# few large segments are found faster.
UNSPELT = 16
# How many messages' words are indexed at once, their total length, and how many pages of them are merged: this blocks
# the writer for some 20 ms.
SPELT, SPELT_LENGTH = 250, 50_000
MERGED = 100
# How many candidates are read at first, if no number is requested, and at most.
FIRST_PAGE, LARGEST_PAGE = 64, 1_024
# How many trigrams of a keyword are searched: each one costs, and the text is checked anyway.
MOST_TRIGRAMS = 6
# More messages than a file will ever hold; the rest of 63 bits is for 60 million conversations.
_IDS = 2**36

ROLES = {"user": 1, "assistant": 2}
ASKING = f"{KINDS[Kind.STARTED]}, {KINDS[Kind.DELEGATION]}"
SPEAKING = f"{ASKING}, {KINDS[Kind.RESULT]}"

_encode = msgspec.json.Encoder().encode


class MessageRow(NamedTuple):
    """An index row of a message."""

    id: int
    seq: int
    tokens: int


class IndexPosition(NamedTuple):
    """How far a session is indexed."""

    head: int
    """Its newest record."""
    number: int
    seq: int
    """Its messages are indexed up to this record,"""
    words: int
    """and their words up to this message."""
    newest: int
    """Its newest message that is indexed."""


_read_rows = msgspec.json.Decoder(list[MessageRow]).decode
_read_numbers = msgspec.json.Decoder(list[int]).decode


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def choose(
    session: str, wanted: ContextFilter, now_ms: int, tokens: int, *, behind: bool = False, words: bool = True
) -> FileQuery[list[Message] | None]:
    """Return the query for the messages that `policy.context.select` selects in a session.

    It returns None if the index is behind the record; with *behind*, the messages in the index. Without *words*, the
    word index is not used.
    """
    roles = [number for role, number in ROLES.items() if wanted.roles is None or role in wanted.roles]
    last, spelt, nothing = wanted.last_messages, words and by_words(wanted), wanted.keywords == ()
    after_ms = -1 if wanted.max_age_seconds is None else now_ms - wanted.max_age_seconds * 1_000
    match = _expression(wanted.keywords or ()) if spelt else ""

    def query(connection: SqliteConnection) -> list[Message] | None:
        place = _place(connection, session)
        if place is None or not roles or last == 0 or nothing:
            return []
        if not behind and (place.seq < place.head or (spelt and _worth_spelling(connection, place))):
            return None

        def scan(below: int, size: int) -> list[MessageRow]:
            above = place.words if spelt else 0
            return _rows(connection, _SCAN, (place.number, below, above, after_ms, roles[0], roles[-1], size))

        def hits(below: int, size: int) -> list[MessageRow]:
            ranges = [_range(place.number, role) for role in roles]
            found = [_rows(connection, _HITS, (match, each, below, after_ms, size)) for each in ranges]
            return sorted(chain.from_iterable(found), reverse=True)[:size]

        sources = [scan] * (not spelt or place.words < place.newest) + [hits] * (spelt and place.words > 0)
        pages = chain.from_iterable(_pages(source, last) for source in sources)
        if wanted.keywords is None:
            rows = newest(chain.from_iterable(pages), last=last, tokens=tokens)
            return list(_messages(connection, rows))
        candidates = (message for rows in pages for message in _messages(connection, rows))
        return newest((message for message in candidates if matches(message, wanted, now_ms)), last=last, tokens=tokens)

    return _in_snapshot(query)


def by_words(wanted: ContextFilter) -> bool:
    """Return whether a filter can use the word index: it has keywords, and none shorter than a trigram."""
    return bool(wanted.keywords) and all(len(plain(keyword)) >= 3 for keyword in wanted.keywords or ())


def seen(session: str, messages: Collection[int], *, behind: bool = False) -> FileQuery[frozenset[int] | None]:
    """Return the query for which of these messages belong to a session; None and *behind* as with `choose`."""
    numbers = _json(sorted(messages))

    def query(connection: SqliteConnection) -> frozenset[int] | None:
        place = _place(connection, session)
        if place is None:
            return frozenset()
        if not behind and place.seq < place.head:
            return None
        ((found,),) = connection.execute(_SEEN, (place.number, numbers)).fetchall()
        return frozenset(_read_numbers(found))

    return _in_snapshot(query)


_SEEN = """
    SELECT json_group_array(seq) FROM message WHERE conversation = ? AND seq IN (SELECT value FROM json_each(?))
"""


def _in_snapshot(query: FileQuery[T]) -> FileQuery[T]:
    """Return the same query, run in one snapshot, so that the file does not change between two statements."""

    def unchanging(connection: SqliteConnection) -> T:
        connection.execute("BEGIN")
        try:
            return query(connection)
        finally:
            connection.execute("ROLLBACK")

    return unchanging


def _place(connection: SqliteConnection, session: str) -> IndexPosition | None:
    """Return how far a session is indexed; None if nothing was ever recorded in it."""
    found = connection.execute(_PLACE, (session,)).fetchone()
    if found is None:
        ((head,),) = connection.execute(_HEAD, (session,)).fetchall()
        return None if head is None else IndexPosition(head, 0, 0, 0, 0)
    return IndexPosition(*found)


_HEAD = "SELECT max(seq) FROM record WHERE session = ?1"
_PLACE = f"""
    SELECT ({_HEAD}), number, seq, words, (SELECT coalesce(max(id), 0) FROM message WHERE conversation = number)
    FROM conversation WHERE session = ?1
"""


def _worth_spelling(connection: SqliteConnection, place: IndexPosition) -> bool:
    if place.words == place.newest:
        return False
    sql = "SELECT EXISTS (SELECT 1 FROM message WHERE conversation = ? AND id > ? LIMIT 1 OFFSET ?)"
    ((many,),) = connection.execute(sql, (place.number, place.words, UNSPELT)).fetchall()
    return bool(many)


def _pages(source: Callable[[int, int], list[MessageRow]], last: int | None) -> Iterator[list[MessageRow]]:
    """Yield the rows of a source, newest first, in pages of growing size."""
    below, size = _IDS, FIRST_PAGE if last is None else min(last, LARGEST_PAGE)
    while True:
        rows = source(below, size)
        yield rows
        if len(rows) < size:
            return
        below, size = rows[-1].id, min(2 * size, LARGEST_PAGE)


def _rows(connection: SqliteConnection, sql: str, values: Sequence[Any]) -> list[MessageRow]:
    ((raw,),) = connection.execute(sql, values).fetchall()
    return _read_rows(raw)


# A page is returned as one row, as for records.
_SCAN = """
    SELECT json_group_array(json_array(id, seq, tokens) ORDER BY id DESC) FROM (
        SELECT id, seq, tokens FROM message
        WHERE conversation = ?1 AND id < ?2 AND id > ?3 AND at_ms > ?4 AND role IN (?5, ?6) ORDER BY id DESC LIMIT ?7
    )
"""
_HITS = """
    SELECT json_group_array(json_array(id, seq, tokens) ORDER BY id DESC) FROM (
        SELECT id, seq, tokens FROM word CROSS JOIN message ON id = ?2 - word.rowid
        WHERE word MATCH ?1 AND word.rowid > ?2 - ?3 AND word.rowid < ?2 AND at_ms > ?4 ORDER BY word.rowid LIMIT ?5
    )
"""


def _range(conversation: int, role: int) -> int:
    """Return the end of a range of numbers in `word`; a message's number is the end minus its id.

    So the newest come first, which SQLite finds three times as fast as the last ones.
    """
    return (2 * conversation + role) * _IDS


def _messages(connection: SqliteConnection, rows: Sequence[MessageRow]) -> Iterator[Message]:
    """Return the messages of index rows, in the same order."""
    for start in range(0, len(rows), PAGE):
        some = rows[start : start + PAGE]
        records = _records(connection, [row.seq for row in some])
        for row in some:
            record = records.get(row.seq)
            message = record and message_of(record, lambda _, tokens=row.tokens: tokens)
            if message:
                yield message


def _records(connection: SqliteConnection, numbers: Sequence[int]) -> dict[int, Record]:
    pages = (numbers[start : start + PAGE] for start in range(0, len(numbers), PAGE))
    return {record.seq: record for some in pages for record in at_once(numbered(SqliteDatabase(connection), some))}


# ── indexing, in a transaction that writes ────────────────────────────────────────────────────────────────────────────


async def update(
    change: Callable[[FileQuery[bool]], Awaitable[bool]], session: str, count: Count, *, words: bool
) -> None:
    """Update the index of a session, in small steps, so that other writes are not blocked."""
    while await change(lambda connection: extend(connection, session, count)):
        pass
    pieces = 0
    while words and await change(lambda connection, begun=pieces > 0: spell(connection, session, begun=begun)):
        pieces += 1
    # Words in two segments are found twice as fast as in twelve; SQLite merges single additions over time.
    while pieces > 1 and await change(merge):
        pass


def extend(connection: SqliteConnection, session: str, count: Count) -> bool:
    """Index the next messages of a session; False: there are no more."""
    place = _place(connection, session)
    if place is None:
        return False
    if not place.number:
        sql = "INSERT INTO conversation (session, seq, words) VALUES (?,0,0) RETURNING number"
        ((number,),) = connection.execute(sql, (session,)).fetchall()
        place = place._replace(number=number)
    # A removed record has no words left.
    unremoved = "NOT EXISTS (SELECT 1 FROM removed WHERE removed.seq = record.seq)"
    wanted = f"session = $3 AND seq > $1 AND kind IN ({SPEAKING}) AND {unremoved}"
    database = SqliteDatabase(connection)
    records = at_once(page(database, wanted, place.seq, PAGE, session))
    requests = [record.body for record in records if isinstance(record.body, Request)]
    shown = {message.seq for request in requests if request.view for message in request.view.messages}
    new = messages_from_records(
        records,
        original=_records(connection, list(shown)).get,
        count=count,
        asked=_last_forms(connection, session, place.seq, {request.run for request in requests}),
    )
    if new.replaced:
        sql = "DELETE FROM message WHERE conversation = ? AND seq IN (SELECT value FROM json_each(?))"
        connection.execute(sql, (place.number, _json(list(new.replaced))))
    rows = [(each.seq, ROLES[each.role], each.at_ms, each.tokens) for each in new.messages]
    connection.execute(_INSERT, (place.number, _json(rows)))
    more = len(records) == PAGE
    indexed = records[-1].seq if more else place.head
    connection.execute("UPDATE conversation SET seq = ? WHERE number = ?", (indexed, place.number))
    return more


# Messages that a callee was shown before are ignored here: they are indexed where they were first shown.
_INSERT = """
    INSERT OR IGNORE INTO message (conversation, seq, role, at_ms, tokens)
    SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?2) ORDER BY key
"""


def _last_forms(connection: SqliteConnection, session: str, upto: int, runs: Collection[str]) -> dict[str, int]:
    """Return the last form of each delegation that these runs requested earlier in a session."""
    rows = connection.execute(_FORMS, (_json(sorted(runs)), session, upto))
    return {read_request(body).path: seq for seq, body in rows}


_FORMS = f"""
    SELECT record.seq, body FROM json_each(?1) AS named CROSS JOIN record ON run = named.value
    WHERE +session = ?2 AND +record.seq <= ?3 AND kind IN ({ASKING}) ORDER BY record.seq
"""


def spell(connection: SqliteConnection, session: str, *, begun: bool = False) -> bool:
    """Index the words of the next messages of a session; False: there are no more, or too few to begin with."""
    place = _place(connection, session)
    if place is None or not (begun or _worth_spelling(connection, place)):
        return False
    rows = _rows(connection, _NEXT, (place.number, place.words, SPELT))
    if not rows:
        return False
    ids = {row.seq: row.id for row in rows}
    words: list[tuple[int, str]] = []
    last, left = rows[-1].id, SPELT_LENGTH
    for message in _messages(connection, rows):
        id = ids[message.seq]
        words.append((_range(place.number, ROLES[message.role]) - id, plain(message.text)))
        left -= len(message.text)
        if left <= 0:
            last = id
            break
    if words:
        # In ascending order: SQLite would begin a new segment at a lower number.
        connection.execute(_spelling(len(words)), list(chain.from_iterable(sorted(words))))
    connection.execute("UPDATE conversation SET words = ? WHERE number = ?", (last, place.number))
    return True


_NEXT = """
    SELECT json_group_array(json_array(id, seq, tokens) ORDER BY id) FROM (
        SELECT id, seq, tokens FROM message WHERE conversation = ? AND id > ? ORDER BY id LIMIT ?
    )
"""


@cache
def _spelling(rows: int) -> str:
    return "INSERT INTO word (rowid, text) VALUES " + ",".join(["(?,?)"] * rows)


def merge(connection: SqliteConnection) -> bool:
    """Merge some segments of the word index; False: no more are worth merging."""
    before = connection.total_changes()
    connection.execute("INSERT INTO word (word, rank) VALUES ('merge', ?)", (MERGED,))
    # The merge command itself counts as one change.
    return connection.total_changes() - before > 1


def forget(connection: SqliteConnection, numbers: Sequence[int]) -> int:
    """Delete the messages of these records, and their words, from the index; return how many there were.

    It is called before the records are removed: the word index deletes only words that it is told again.
    """
    rows = connection.execute(_INDEXED, (_json(list(numbers)),)).fetchall()
    spelt = [row for row in rows if row[0] <= row[5]]
    texts = {each.seq: each.text for each in _messages(connection, [MessageRow(*row[:3]) for row in spelt])}
    for id, seq, _, conversation, role, _ in spelt:
        if seq in texts:
            sql = "INSERT INTO word (word, rowid, text) VALUES ('delete', ?, ?)"
            connection.execute(sql, (_range(conversation, role) - id, plain(texts[seq])))
    connection.execute(
        "DELETE FROM message WHERE id IN (SELECT value FROM json_each(?))", (_json([row[0] for row in rows]),)
    )
    return len(rows)


_INDEXED = """
    SELECT id, message.seq, tokens, conversation, role, words FROM message
    JOIN conversation ON number = conversation WHERE message.seq IN (SELECT value FROM json_each(?))
"""


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def plain(text: str) -> str:
    """Return a text as it is indexed and searched: without case, and without characters that SQLite cannot read."""
    return text.casefold().replace("\0", "\ufffd").encode(errors="replace").decode()


def _expression(keywords: Sequence[str]) -> str:
    """Return the full-text query for any of the keywords; it may find more than real matches."""
    return " OR ".join(f"({' AND '.join(map(_quoted, _trigrams(keyword)))})" for keyword in map(plain, keywords))


def _trigrams(keyword: str) -> list[str]:
    """Return a few trigrams, spread over a keyword."""
    end = len(keyword) - 3
    step = max(3, -(-end // (MOST_TRIGRAMS - 1)))
    return list(dict.fromkeys(keyword[start : start + 3] for start in [*range(0, end, step), end]))


def _quoted(trigram: str) -> str:
    return '"' + trigram.replace('"', '""') + '"'


def _json(value: object) -> str:
    return _encode(value).decode()
