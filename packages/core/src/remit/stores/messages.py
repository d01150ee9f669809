"""The messages of each session: an index over the record, which alone has their texts.

A session is indexed when its messages are first read, never when they are written. Words are indexed when somebody
first searches a long conversation for them. What the words find are candidates; the text decides whether they match.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from remit.policy.context import Count, matches, message_of, messages_from_records
from remit.protocol.envelope import ContextFilter, Message, Request
from remit.protocol.records import Kind, Record, read_request
from remit.stores.database import Query, SqlConnection
from remit.stores.reader import Conditions
from remit.stores.records import END, FILE_PAGES, PAGE, RecordPages
from remit.stores.schema import KINDS

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
_ASKING = f"{KINDS[Kind.STARTED]}, {KINDS[Kind.DELEGATION]}"
SPEAKING = f"{_ASKING}, {KINDS[Kind.RESULT]}"


class MessageRow(NamedTuple):
    """An index row of a message."""

    id: int
    seq: int
    tokens: int


class IndexPosition(NamedTuple):
    """How far a session is indexed."""

    number: int
    """The number of its conversation; 0: none of it is indexed."""
    is_behind: bool
    """Whether records of it are not indexed."""
    words: int
    """The words of its messages up to this one are indexed."""
    newest: int
    """Its newest message that is indexed."""


class IndexedWords(NamedTuple):
    """The words of a message, to be indexed."""

    id: int
    role: int
    text: str


class SearchedWords(NamedTuple):
    """The messages in which keywords are searched."""

    number: int
    """The conversation."""
    roles: Sequence[int]
    after_ms: int
    keywords: tuple[str, ...]


Step = Callable[[Query[bool]], Awaitable[bool]]
"""Does a step of indexing in a transaction that writes; false: there are no more."""


class MessageIndex(ABC):
    """The index of messages, of which each engine has the words in its own way."""

    behind: str
    """Whether the session $1 has records that are not indexed; in a query of its conversation."""

    def __init__(self, pages: RecordPages) -> None:
        self.pages = pages

    # ── what each engine does ─────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, database: SqlConnection) -> AbstractAsyncContextManager[object]:  # noqa: ARG002 - for who needs one
        """Hold one state of the store, where several statements would not be consistent otherwise."""
        return nullcontext()

    @abstractmethod
    async def rows(self, database: SqlConnection, sql: str, *values: Any) -> list[MessageRow]:
        """Return the rows of a query of id, seq and tokens."""

    @abstractmethod
    async def take_new(self, database: SqlConnection, session: str, number: int) -> tuple[list[Record], bool]:
        """Return the next records of a session in which somebody speaks, and whether there are more; note them."""

    @abstractmethod
    async def hits(self, database: SqlConnection, searched: SearchedWords, below: int, size: int) -> list[MessageRow]:
        """Return the newest messages before one that may contain a keyword."""

    @abstractmethod
    async def add_words(self, database: SqlConnection, number: int, words: Sequence[IndexedWords]) -> None: ...

    @abstractmethod
    async def replace(self, database: SqlConnection, number: int, replaced: Sequence[int]) -> None:
        """Delete the messages of a conversation that others take the place of."""

    @abstractmethod
    async def forget(self, database: SqlConnection, numbers: Sequence[int]) -> None:
        """Delete the messages of these records, and their words, before the records are removed."""

    @abstractmethod
    async def forget_conversations(self, database: SqlConnection, sessions: Sequence[str]) -> None:
        """Delete the index of these sessions."""

    async def merge(self, database: SqlConnection) -> bool:  # noqa: ARG002 - for who merges
        """Merge some of the index of words; False: no more is worth merging."""
        return False

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def choose(
        self,
        database: SqlConnection,
        session: str,
        wanted: ContextFilter,
        now_ms: int,
        tokens: int,
        *,
        behind: bool = False,
        words: bool = True,
    ) -> list[Message] | None:
        """Return the messages that `policy.context.select` selects in a session.

        None: the index is behind the record; with *behind*, the messages in the index. Without *words*, keywords are
        searched in one message after the other: beside encrypted texts, an index of plain words would give them away.
        """
        roles = [number for role, number in ROLES.items() if wanted.roles is None or role in wanted.roles]
        last, by_word = wanted.last_messages, words and by_words(wanted)
        after_ms = -1 if wanted.max_age_seconds is None else now_ms - wanted.max_age_seconds * 1_000
        async with self.snapshot(database):
            position = await self._position(database, session)
            if position is None or not roles or last == 0 or wanted.keywords == ():
                return []
            if not behind and (position.is_behind or (by_word and await self._is_worth_spelling(database, position))):
                return None
            number, above = position.number, position.words if by_word else 0

            async def scan(below: int, size: int) -> list[MessageRow]:
                return await self.rows(database, _SCAN, number, below, above, after_ms, roles[0], roles[-1], size)

            async def hits(below: int, size: int) -> list[MessageRow]:
                searched = SearchedWords(number, roles, after_ms, wanted.keywords or ())
                # Another hub may index the words of what is scanned meanwhile.
                return await self.hits(database, searched, min(below, above + 1), size)

            sources = [scan] * (not by_word or above < position.newest) + [hits] * (by_word and above > 0)
            kept = _Newest(last, tokens)
            for source in sources:
                below, size = END, FIRST_PAGE if last is None else min(last, LARGEST_PAGE)
                while not kept.is_full:
                    page = sorted(await source(below, size), reverse=True)
                    if wanted.keywords is None:
                        kept.add((row, None) for row in page)
                    else:
                        await self._add_matching(database, page, wanted, now_ms, kept)
                    if len(page) < size:
                        break
                    below, size = page[-1].id, min(2 * size, LARGEST_PAGE)
            if wanted.keywords is not None:
                return kept.messages[::-1]
            # Only what is chosen is read.
            return [message for _, message in await self._with_messages(database, kept.rows[::-1])]

    async def _add_matching(
        self, database: SqlConnection, page: Sequence[MessageRow], wanted: ContextFilter, now_ms: int, kept: "_Newest"
    ) -> None:
        for start in range(0, len(page), PAGE):
            if not kept.is_full:
                some = await self._with_messages(database, page[start : start + PAGE])
                kept.add((row, message) for row, message in some if matches(message, wanted, now_ms))

    async def seen(
        self, database: SqlConnection, session: str, messages: Collection[int], *, behind: bool = False
    ) -> frozenset[int] | None:
        """Return which of these messages belong to a session; None and *behind* as with `choose`."""
        async with self.snapshot(database):
            position = await self._position(database, session)
            if position is None:
                return frozenset()
            if position.is_behind and not behind:
                return None
            return frozenset(row.seq for row in await self.rows(database, _SEEN, position.number, sorted(messages)))

    async def _position(self, database: SqlConnection, session: str) -> IndexPosition | None:
        """Return how far a session is indexed; None if nothing was ever recorded in it."""
        row = await database.fetchrow(_POSITION.format(behind=self.behind), session)
        assert row
        position = IndexPosition(*row)
        return position if position.number or position.is_behind else None

    async def _is_worth_spelling(self, database: SqlConnection, position: IndexPosition) -> bool:
        if position.words == position.newest:
            return False
        sql = "SELECT 1 FROM remit.message WHERE conversation = $1 AND id > $2 LIMIT 1 OFFSET $3"
        return await database.fetchval(sql, position.number, position.words, UNSPELT) is not None

    async def _with_messages(
        self, database: SqlConnection, rows: Sequence[MessageRow]
    ) -> list[tuple[MessageRow, Message]]:
        """Return index rows with their messages, in the same order."""
        records = await self._numbered(database, [row.seq for row in rows])
        messages: list[tuple[MessageRow, Message]] = []
        for row in rows:
            record = records.get(row.seq)
            message = record and message_of(record, lambda _, tokens=row.tokens: tokens)
            if message:
                messages.append((row, message))
        return messages

    async def _numbered(self, database: SqlConnection, numbers: Sequence[int]) -> dict[int, Record]:
        messages: dict[int, Record] = {}
        for start in range(0, len(numbers), PAGE):
            some = await self.pages.numbered(database, numbers[start : start + PAGE])
            messages.update((record.seq, record) for record in some)
        return messages

    # ── indexing, in a transaction that writes ────────────────────────────────────────────────────────────────────────

    async def update(self, step: Step, session: str, count: Count, *, words: bool) -> None:
        """Update the index of a session, in small steps, so that other writes are not blocked."""
        while await step(lambda database: self.extend(database, session, count)):
            pass
        pieces = 0
        while words and await step(lambda database, begun=pieces > 0: self.spell(database, session, begun=begun)):
            pieces += 1
        # Words in two segments are found twice as fast as in twelve; SQLite merges single additions over time.
        while pieces > 1 and await step(self.merge):
            pass

    async def extend(self, database: SqlConnection, session: str, count: Count) -> bool:
        """Index the next messages of a session; False: there are no more."""
        # The lock of the row lets one hub at a time index a session.
        number = await database.fetchval(
            "INSERT INTO remit.conversation (session) VALUES ($1)"
            " ON CONFLICT (session) DO UPDATE SET session = excluded.session RETURNING number",
            session,
        )
        records, more = await self.take_new(database, session, number)
        requests = [record.body for record in records if isinstance(record.body, Request)]
        shown = {message.seq for request in requests if request.view for message in request.view.messages}
        new = messages_from_records(
            records,
            original=(await self._numbered(database, list(shown))).get,
            count=count,
            last_forms=await self._last_forms(database, session, requests, records[0].seq) if requests else {},
        )
        if new.replaced:
            await self.replace(database, number, list(new.replaced))
        rows = [(each.seq, ROLES[each.role], each.at_ms, each.tokens) for each in new.messages]
        for start in range(0, len(rows), PAGE):
            some = rows[start : start + PAGE]
            await database.execute(_adding(len(some)), number, *chain.from_iterable(some))
        return more

    async def _last_forms(
        self, database: SqlConnection, session: str, requests: Sequence[Request], before: int
    ) -> dict[str, int]:
        """Return the last form of each delegation that the runs of *requests* requested earlier in a session."""
        runs = sorted({request.run for request in requests})
        rows = await database.fetch(_FORMS, runs, session, before)
        return {read_request(body).path: seq for seq, body in rows}

    async def spell(self, database: SqlConnection, session: str, *, begun: bool = False) -> bool:
        """Index the words of the next messages of a session; False: there are no more, or too few to begin with."""
        position = await self._position(database, session)
        if position is None or not (begun or await self._is_worth_spelling(database, position)):
            return False
        # Another hub may do the same.
        sql = "SELECT words FROM remit.conversation WHERE number = $1 FOR UPDATE"
        rows = await self.rows(database, _NEXT, position.number, await database.fetchval(sql, position.number), SPELT)
        if not rows:
            return False
        words: list[IndexedWords] = []
        last, left = max(rows).id, SPELT_LENGTH
        for row, message in await self._with_messages(database, sorted(rows)):
            words.append(IndexedWords(row.id, ROLES[message.role], plain(message.text)))
            left -= len(message.text)
            if left <= 0:
                last = row.id
                break
        if words:
            await self.add_words(database, position.number, words)
        sql = "UPDATE remit.conversation SET words = $2 WHERE number = $1"
        await database.execute(sql, position.number, last)
        return True


class _Newest:
    """The newest messages that fit, newest first."""

    def __init__(self, most: int | None, tokens: int) -> None:
        self.rows: list[MessageRow] = []
        self.messages: list[Message] = []
        self.is_full = False
        self._most, self._left = most, tokens

    def add(self, candidates: Iterable[tuple[MessageRow, Message | None]]) -> None:
        """Keep as many of the next candidates as are wanted and fit."""
        for row, message in candidates:
            self._left -= row.tokens
            if self.is_full or self._left < 0:
                self.is_full = True
                return
            self.rows.append(row)
            self.messages += [] if message is None else [message]
            self.is_full = len(self.rows) == self._most


_POSITION = """
    SELECT coalesce(conversation.number, 0), {behind}, coalesce(conversation.words, 0),
        coalesce((SELECT max(id) FROM remit.message WHERE message.conversation = conversation.number), 0)
    FROM (SELECT 1 AS one) AS one LEFT JOIN remit.conversation ON conversation.session = $1
"""
_SCAN = """
    SELECT id, seq, tokens FROM remit.message WHERE conversation = $1 AND id < $2 AND id > $3 AND at_ms > $4
        AND role BETWEEN $5 AND $6 ORDER BY id DESC LIMIT $7
"""
_NEXT = "SELECT id, seq, tokens FROM remit.message WHERE conversation = $1 AND id > $2 ORDER BY id LIMIT $3"
_SEEN = "SELECT id, seq, tokens FROM remit.message WHERE conversation = $1 AND seq = ANY ($2::bigint[])"
# By the index of runs: what is added to or joined with nothing is not looked up in the others.
_FORMS = f"""
    SELECT seq, body FROM remit.chained WHERE run = ANY ($1::text[]) AND session || '' = $2 AND seq + 0 < $3
        AND kind IN ({_ASKING}) ORDER BY seq + 0
"""


@cache
def _adding(rows: int) -> str:
    # Messages that a callee was shown before are ignored here: they are indexed where they were first shown.
    values = ", ".join(f"($1, ${4 * n + 2}, ${4 * n + 3}, ${4 * n + 4}, ${4 * n + 5})" for n in range(rows))
    columns = "conversation, seq, role, at_ms, tokens"
    return f"INSERT INTO remit.message ({columns}) VALUES {values} ON CONFLICT DO NOTHING"


def by_words(wanted: ContextFilter) -> bool:
    """Return whether a filter can use the word index: it has keywords, and none shorter than a trigram."""
    return bool(wanted.keywords) and all(len(plain(keyword)) >= 3 for keyword in wanted.keywords or ())


def plain(text: str) -> str:
    """Return a text as it is indexed and searched: without case, and without characters that SQLite cannot read."""
    return text.casefold().replace("\0", "\ufffd").encode(errors="replace").decode()


# ── in a SQLite file ──────────────────────────────────────────────────────────────────────────────────────────────────


class FileIndex(MessageIndex):
    """The index in a SQLite file.

    `word` has the trigrams of the texts. Each conversation and role has its own range of row numbers there, so a
    full-text query for one of them skips the rest of the file.
    """

    behind = "coalesce((SELECT max(seq) FROM record WHERE session = $1) > coalesce(conversation.seq, 0), 0)"

    def snapshot(self, database: SqlConnection) -> AbstractAsyncContextManager[object]:
        return database.transaction()

    async def rows(self, database: SqlConnection, sql: str, *values: Any) -> list[MessageRow]:
        # As one row, as pages of records are.
        query = f"SELECT json_group_array(json_array(id, seq, tokens)) FROM ({sql})"
        return _read_rows(await database.fetchval(query, *values))

    async def take_new(self, database: SqlConnection, session: str, number: int) -> tuple[list[Record], bool]:
        indexed = await database.fetchval("SELECT seq FROM conversation WHERE number = $1", number)
        wanted = Conditions(indexed, END, PAGE).of(session=session)
        # A removed record has no words left.
        wanted.add(f"kind IN ({SPEAKING}) AND NOT EXISTS (SELECT 1 FROM removed WHERE removed.seq = record.seq)")
        records = await self.pages.page(database, wanted)
        more = len(records) == PAGE
        sql = "SELECT coalesce(max(seq), 0) FROM record WHERE session = $1"
        indexed = records[-1].seq if more else await database.fetchval(sql, session)
        await database.execute("UPDATE remit.conversation SET seq = $2 WHERE number = $1", number, indexed)
        return records, more

    async def hits(self, database: SqlConnection, searched: SearchedWords, below: int, size: int) -> list[MessageRow]:
        match = _expression(searched.keywords)
        rows: list[MessageRow] = []
        for role in searched.roles:
            end = _end_of_range(searched.number, role)
            rows += await self.rows(database, _HITS, match, end, min(below, _IDS), searched.after_ms, size)
        return sorted(rows, reverse=True)[:size]

    async def add_words(self, database: SqlConnection, number: int, words: Sequence[IndexedWords]) -> None:
        # In ascending order: SQLite would begin a new segment at a lower number.
        rows = sorted((_end_of_range(number, role) - id, text) for id, role, text in words)
        await database.execute(_spelling(len(rows)), *chain.from_iterable(rows))

    async def replace(self, database: SqlConnection, number: int, replaced: Sequence[int]) -> None:
        sql = "DELETE FROM remit.message WHERE conversation = $1 AND seq = ANY ($2)"
        await database.execute(sql, number, replaced)

    async def forget(self, database: SqlConnection, numbers: Sequence[int]) -> None:
        # The word index deletes only words that it is told again.
        indexed = await database.fetch(_INDEXED, list(numbers))
        spelt = {MessageRow(*row[:3]): row[3:5] for row in indexed if row[0] <= row[5]}
        for row, message in await self._with_messages(database, list(spelt)):
            end = _end_of_range(*spelt[row])
            sql = "INSERT INTO word (word, rowid, text) VALUES ('delete', $1, $2)"
            await database.execute(sql, end - row.id, plain(message.text))
        await database.execute("DELETE FROM remit.message WHERE id = ANY ($1)", [row[0] for row in indexed])

    async def forget_conversations(self, database: SqlConnection, sessions: Sequence[str]) -> None:
        await database.execute("DELETE FROM remit.conversation WHERE session = ANY ($1)", list(sessions))

    async def merge(self, database: SqlConnection) -> bool:
        total = "SELECT total_changes()"
        before: int = await database.fetchval(total)
        await database.execute("INSERT INTO word (word, rank) VALUES ('merge', $1)", MERGED)
        # The merge command itself counts as one change.
        return await database.fetchval(total) - before > 1


_HITS = """
    SELECT id, seq, tokens FROM word CROSS JOIN message ON id = $2 - word.rowid
    WHERE word MATCH $1 AND word.rowid > $2 - $3 AND word.rowid < $2 AND at_ms > $4 ORDER BY word.rowid LIMIT $5
"""
_INDEXED = """
    SELECT id, message.seq, tokens, conversation, role, words FROM message
    JOIN conversation ON number = conversation WHERE message.seq = ANY ($1)
"""
_read_rows = msgspec.json.Decoder(list[MessageRow]).decode


def _end_of_range(conversation: int, role: int) -> int:
    """Return the end of a range of numbers in `word`; a message's number is the end minus its id.

    So the newest come first, which SQLite finds three times as fast as the last ones.
    """
    return (2 * conversation + role) * _IDS


@cache
def _spelling(rows: int) -> str:
    return "INSERT INTO word (rowid, text) VALUES " + ", ".join(f"(${2 * n + 1}, ${2 * n + 2})" for n in range(rows))


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


FILE_INDEX = FileIndex(FILE_PAGES)
