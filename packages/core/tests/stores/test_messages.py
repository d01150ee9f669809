"""The index of messages finds what the plain filter would, whatever was said, and is made from the record alone."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commands import run_program
from remit.policy.context import message_of, messages_from_records, select
from remit.ports import Store, TokenCounter
from remit.protocol.envelope import ContextFilter, Message, Request, View
from remit.protocol.records import Body, Kind, Record
from remit.stores import messages as index
from remit.stores.connection import SqliteConnection, connect_reader
from remit.stores.database import Query, SqliteDatabase, ask, at_once
from remit.stores.messages import FILE_INDEX
from remit.stores.records import FILE_PAGES
from remit.stores.schema import migrate
from remit.stores.sqlite import SqliteStore
from remit.stores.transaction import Transaction
from remit_testing.samples import a_request, a_response, progress
from waiting import PATIENCE_S

PLENTY = 10**9
EVERYTHING = ContextFilter()

# Sizes at which a short conversation goes through everything that a long one does.
SMALL = {"PAGE": 3, "UNSPELT": 2, "SPELT": 3, "SPELT_LENGTH": 12, "FIRST_PAGE": 2, "LARGEST_PAGE": 3, "MERGED": 1}


@asynccontextmanager
async def opened(path: Path, count: TokenCounter = len) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, count=count, durability="process")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def said_in(session: str, records: list[Record]) -> list[Message]:
    """Return all messages of a session, made without an index."""
    numbered = {record.seq: record for record in records}
    here = [record for record in records if record.session == session]
    return messages_from_records(here, original=numbered.get, count=len).messages


# ── the same as the plain filter ──────────────────────────────────────────────────────────────────────────────────────

# Letters that change their number when their case is taken away, marks of the query language, and what SQLite reads as
# something else: alone, and in words of which some are parts of others.
ALPHABET = "abAB sSßẞİıſKﬃΣςσ\"'()*:^-\0\x01\ufffd\ufffe\uffff半\u0301\U0001f600"
WORDS = (
    "Straße",
    "STRASSE",
    "ssß",
    "ﬃ",
    "ffiİb",
    'a"b"',
    "OR a",
    "a\0b",
    "a\ufffdb",
    "半夜三更",
    "夜三",
    "\U0001f600\ufffe\uffff",
)
texts = st.lists(st.sampled_from(WORDS) | st.text(st.sampled_from(ALPHABET), max_size=2), max_size=3).map("".join)
keywords = (
    st.sampled_from(WORDS)
    | st.sampled_from(WORDS).map(str.swapcase)
    | st.text(st.sampled_from(ALPHABET + "\ud800"), min_size=1, max_size=3)
)
SESSIONS = ("one", "two", "three")
RUNS = ("a", "b", "c", "d")


class Asked(NamedTuple):
    session: str
    run: str
    parent: str | None
    text: str
    input: str | None
    shows: list[int]
    at_ms: int


class Answered(NamedTuple):
    session: str
    text: str | None
    at_ms: int


class Inside(NamedTuple):
    session: str
    text: str


class Sought(NamedTuple):
    session: str
    wanted: ContextFilter
    now_ms: int
    tokens: int
    numbers: list[int]


sessions = st.sampled_from(SESSIONS)
moments = st.integers(0, 20_000)
filters = st.builds(
    ContextFilter,
    last_messages=st.none() | st.integers(0, 12),
    roles=st.none() | st.frozensets(st.sampled_from(["user", "assistant", "system"])),
    keywords=st.none() | st.lists(keywords, max_size=3).map(tuple),
    max_age_seconds=st.none() | st.integers(0, 20),
)
events = st.one_of(
    st.builds(
        Asked,
        sessions,
        st.sampled_from(RUNS),
        st.none() | st.sampled_from(RUNS),
        texts,
        st.none() | texts,
        st.lists(st.integers(0, 40), max_size=4),
        moments,
    ),
    st.builds(Answered, sessions, st.none() | texts, moments),
    st.builds(Inside, sessions, texts),
    st.builds(Sought, sessions, filters, moments, st.integers(0, 60), st.lists(st.integers(0, 40), max_size=8)),
)


def a_request_of(question: Asked, recorded: int) -> Request:
    """Return the request, which can only show what was said before."""
    shown = [number for number in question.shows if number <= recorded]
    view = View(messages=tuple(Message(role="user", text="", tokens=seq % 7, seq=seq) for seq in shown))
    return replace(
        a_request(question.run),
        parent=question.parent,
        session=question.session,
        objective=question.text,
        input=question.input,
        view=view if shown else None,
    )


class Indexer:
    """Writes to a file in memory, and looks for messages there as the store does."""

    def __init__(self) -> None:
        self.connection = cast(SqliteConnection, apsw.Connection(":memory:"))
        migrate(self.connection, Path(":memory:"), 1)
        self.database = SqliteDatabase(self.connection)
        self.counted: list[str] = []

    def records(self) -> list[Record]:
        return ask(self.connection, lambda database: FILE_PAGES.records(database, None, None, 0, 1_000))

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        transaction = Transaction(self.connection, 0, {}, keep_records=False)
        transaction.extend([(kind, at_ms, run, session, body, 0)])
        transaction.write()

    def messages(self, sought: "Sought") -> list[Message] | None:
        session, wanted, now_ms, tokens, _ = sought
        choose = partial(FILE_INDEX.choose, self.database, session, wanted, now_ms, tokens)
        if (chosen := at_once(choose())) is not None:
            return chosen
        self.update(session, words=index.by_words(wanted))
        return at_once(choose(behind=True))

    def seen(self, session: str, numbers: list[int]) -> frozenset[int] | None:
        seen = partial(FILE_INDEX.seen, self.database, session, numbers)
        if (known := at_once(seen())) is not None:
            return known
        self.update(session, words=False)
        return at_once(seen(behind=True))

    def update(self, session: str, *, words: bool) -> None:
        async def step(query: Query[bool]) -> bool:
            return await query(self.database)

        at_once(FILE_INDEX.update(step, session, self.count, words=words))

    def count(self, text: str) -> int:
        self.counted.append(text)
        return len(text)


def happen(indexer: Indexer, event: Asked | Answered | Inside | Sought) -> None:
    match event:
        case Asked(session=session, at_ms=at_ms):
            request = a_request_of(event, len(indexer.records()))
            indexer.append(Kind.STARTED, at_ms, request.run, session, request)
        case Answered(session, text, at_ms):
            indexer.append(Kind.RESULT, at_ms, "run", session, a_response(a_request(), text))
        case Inside(session, text):
            indexer.append(Kind.PROGRESS, 1, "run", session, progress(text))
        case Sought(session, wanted, now_ms, tokens, numbers):
            messages = said_in(session, indexer.records())
            assert indexer.messages(event) == select(messages, wanted, now_ms=now_ms, tokens=tokens)
            assert indexer.seen(session, numbers) == {each.seq for each in messages}.intersection(numbers)


@given(st.lists(events, min_size=5, max_size=40), st.booleans())
def test_the_index_finds_what_the_plain_filter_finds(
    story: list[Asked | Answered | Inside | Sought], small: bool
) -> None:
    """O2: the SQL and `policy.context` agree, and the tokens of a message are counted once ever."""
    indexer = Indexer()
    with pytest.MonkeyPatch.context() as patch:
        for name, size in SMALL.items() if small else ():
            patch.setattr(index, name, size)
        for event in story:
            happen(indexer, event)
        for session, keywords in product(SESSIONS, (("STRAß",), ('A"b', "a\0B"), None)):
            happen(indexer, Sought(session, ContextFilter(keywords=keywords), 0, PLENTY, [1]))
    spoken = [message_of(record, len) for record in indexer.records()]
    assert sorted(indexer.counted) == sorted(message.text for message in spoken if message)
    indexer.connection.close()


# ── long conversations ────────────────────────────────────────────────────────────────────────────────────────────────


def converse(store: Store, session: str, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        request = replace(
            a_request(f"{session}-{number}"), session=session, objective=f"question {number} of {session}"
        )
        store.append(Kind.STARTED, number, request.run, session, request)
        store.append(Kind.RESULT, number, request.run, session, a_response(request, f"answer {number} to {session}"))


async def texts_of(store: Store, session: str, **wanted: Any) -> list[str]:
    messages = await store.messages(session, ContextFilter(**wanted), now_ms=0, tokens=PLENTY)
    return [message.text for message in messages]


class Indexed(NamedTuple):
    """How much there is in the index."""

    conversations: int
    messages: int
    spelt: int


def indexed(path: Path) -> Indexed:
    connection = connect_reader(path, 1)
    sql = (
        "SELECT count(DISTINCT number), count(id), count(iif(id <= words, id, NULL))"
        " FROM conversation JOIN message ON conversation = number"
    )
    (row,) = connection.execute(sql).fetchall()
    connection.close()
    return Indexed(*row)


async def test_nothing_is_indexed_before_someone_asks(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with opened(path) as store:
        for session in ("one", "two"):
            converse(store, session, 100)
        await store.flush()
        assert indexed(path) == Indexed(0, 0, 0)
        await texts_of(store, "one", keywords=("of",))
        assert indexed(path) == Indexed(1, 200, 0)
        await texts_of(store, "one", keywords=("question",))
        assert indexed(path) == Indexed(1, 200, 200)


async def test_the_words_of_a_few_messages_are_not_worth_indexing(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with opened(path) as store:
        converse(store, "one", index.UNSPELT // 2)
        await store.flush()
        assert await texts_of(store, "one", keywords=("Question 7 ",)) == ["question 7 of one"]
        assert indexed(path).spelt == 0
        converse(store, "one", 1, start=1_000)
        await store.flush()
        assert await texts_of(store, "one", keywords=("Question 7 ",)) == ["question 7 of one"]
        assert indexed(path).spelt == index.UNSPELT + 2


async def test_a_message_in_full_text_is_still_stored_once(tmp_path: Path) -> None:
    """O8: the record alone has the text."""
    path = tmp_path / "hub.db"
    async with opened(path) as store:
        converse(store, "one", 100)
        await store.flush()
        assert await texts_of(store, "one", keywords=("answer 77",)) == ["answer 77 to one"]
        assert indexed(path).spelt == 200
    assert path.read_bytes().count(b"answer 77 to one") == 1


async def test_many_long_keywords_are_looked_for_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "hub.db") as store:
        converse(store, "one", 100)
        await store.flush()
        keywords = tuple(f'{number} "({"x" * 190}' for number in range(99))
        assert await texts_of(store, "one", keywords=(*keywords, "answer 77 to")) == ["answer 77 to one"]


async def test_conversations_in_one_file_do_not_mix(tmp_path: Path) -> None:
    async with opened(tmp_path / "hub.db") as store:
        for session in ("one", "two"):
            converse(store, session, 80)
        await store.flush()
        for session in ("one", "two"):
            assert await texts_of(store, session, keywords=("question 7 ",)) == [f"question 7 of {session}"]
            assert await texts_of(store, session, keywords=("of one",), last_messages=1) == (
                ["question 79 of one"] if session == "one" else []
            )


# ── several at once, and one that dies ────────────────────────────────────────────────────────────────────────────────


async def test_many_who_ask_at_once_make_the_index_once(tmp_path: Path) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    path = tmp_path / "hub.db"
    async with opened(path, count) as first, opened(path, count) as second:
        converse(first, "one", 300)
        await first.flush()
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            asking = [
                group.create_task(texts_of(store, "one", keywords=("answer 7",)))
                for store in (first, second)
                for _ in range(5)
            ]
        expected = [f"answer {number} to one" for number in range(300) if str(number).startswith("7")]
        assert [each.result() for each in asking] == [expected] * 10
        assert (len(counted), indexed(path)) == (600, Indexed(1, 600, 600))


async def test_others_may_write_while_a_long_conversation_is_indexed(tmp_path: Path) -> None:
    async with opened(tmp_path / "hub.db") as store:
        converse(store, "one", 1_000)
        await store.flush()
        async with asyncio.timeout(PATIENCE_S):
            asking = asyncio.ensure_future(texts_of(store, "one", keywords=("answer 7 ",)))
            flushed = 0
            while not asking.done():
                converse(store, "two", 1, start=flushed)
                await store.flush()
                flushed += 1
            assert await asking == ["answer 7 to one"]
        assert flushed > 3


# Indexes a conversation and is killed before the commit of that number.
VICTIM = """
import asyncio, os, signal, sys
from remit.protocol.envelope import ContextFilter
from remit.stores.sqlite import SqliteStore

left = int(sys.argv[2])

def commit():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = SqliteStore(sys.argv[1], count=len, commit_hook=commit)
    await store.open()
    await store.messages("one", ContextFilter(keywords=("answer 7",)), now_ms=0, tokens=10**9)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("commit", [1, 2, 5, 7, 8])
async def test_an_indexer_that_is_killed_takes_nothing_with_it(tmp_path: Path, commit: int) -> None:
    """Each piece is whole or not there, so that the next who asks goes on where the dead one was."""
    path = tmp_path / "hub.db"
    async with opened(path) as store:
        converse(store, "one", 300)
    done = run_program([sys.executable, "-c", VICTIM, str(path), str(commit)])
    assert done.returncode == -9
    assert indexed(path).messages == min(100 * (commit - 1), 600)
    async with opened(path) as store:
        expected = said_in("one", await store.records(limit=1_000))
        assert await store.messages("one", EVERYTHING, now_ms=0, tokens=PLENTY) == expected
        assert await texts_of(store, "one", keywords=("answer 7",)) == [
            message.text for message in expected if message.text.startswith("answer 7")
        ]
        assert indexed(path).spelt == 600
