"""The last five messages of a role with a keyword, out of a session of 100,000, against reading all of them.

Reading all is to fetch the session's rows and to look at each in Python, as lightly as they can be read. The query is
what a caller awaits, but for the thread's turn, of which reading all has none either.
"""

import asyncio
import random
import secrets
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from harness import Figure, at_least, at_most, main, sized
from remit.protocol.envelope import VERSION, ContextFilter, Message, Request, Response
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.protocol.remit import Remit
from remit.stores.connection import SqliteConnection, connect_reader, connect_writer, write_lock
from remit.stores.database import ask as run_query
from remit.stores.messages import FILE_INDEX
from remit.stores.schema import KINDS
from remit.stores.sqlite import SqliteStore

LONG, SHORT = sized((100_000, 1_000), (200, 100))
TOKENS = 100_000
ROUNDS, SCANS = sized((300, 5), (2, 1))
# In one of so many exchanges: often, now and then, and hardly ever.
KEYWORDS = {"invoice": 10, "warranty": 250, "marmalade": 10_000}
SESSION = "session"


def texts(count: int) -> list[str]:
    """Return texts of about 200 characters, 20 MB in 100,000 of them; each keyword is in at least five questions."""
    chance = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 9))) for _ in range(5_000)]
    lines: list[str] = []
    for number in range(count):
        named = [word.title() for word, every in KEYWORDS.items() if number // 2 % min(every, count // 10) == 1]
        lines.append(" ".join([*chance.choices(words, k=31), *named]))
    return lines


async def say(store: SqliteStore, messages: list[str]) -> None:
    """Record that all of it was said in one session, asked and answered in turns."""
    remit = Remit(user="u", depth=0, max_depth=5, time_ms=30_000, tokens=8_000)
    for number in range(0, len(messages), 2):
        run = secrets.token_hex(8)
        request = Request(
            version=VERSION,
            id=run,
            origin="user",
            target="a",
            remit=remit,
            run=run,
            session=SESSION,
            objective=messages[number],
        )
        response = Response(
            version=VERSION,
            id=run,
            target="a",
            status=Status.SUCCESS,
            run=run,
            session=SESSION,
            result=messages[number + 1],
        )
        if store.full:
            await store.room()
        store.append(Kind.STARTED, number, run, SESSION, request)
        store.append(Kind.RESULT, number, run, SESSION, response)
    await store.flush()


async def filled(path: Path, messages: list[str]) -> tuple[SqliteStore, float, float]:
    """Return a store in which all of it was said, and the seconds in which messages and words were indexed."""
    store = SqliteStore(path, durability="process")
    await store.open()
    await say(store, messages)
    start = time.perf_counter()
    await store.messages(SESSION, ContextFilter(last_messages=1), now_ms=0, tokens=TOKENS)
    middle = time.perf_counter()
    await ask(store, "anything")
    end = time.perf_counter()
    return store, middle - start, end - middle


class Row(msgspec.Struct):
    """No more of a record's body than is looked at."""

    objective: str = ""
    result: str = ""


read_row = msgspec.json.Decoder(Row).decode


def read_all(connection: SqliteConnection, keyword: str) -> list[str]:
    sql = "SELECT kind, body FROM record WHERE session = ? AND kind IN (1, 2, 6) ORDER BY seq"
    rows = connection.execute(sql, (SESSION,)).fetchall()
    objectives = (read_row(body).objective for kind, body in rows if kind != KINDS[Kind.RESULT])
    return [text for text in objectives if keyword in text.casefold()][-5:]


def read_plain(connection: SqliteConnection, keyword: str) -> list[str]:
    rows = connection.execute("SELECT role, text FROM message WHERE session = ? ORDER BY id", (SESSION,)).fetchall()
    return [text for role, text in rows if role == "user" and keyword in text.casefold()][-5:]


def plain(path: Path, messages: list[str]) -> SqliteConnection:
    """Return a table with nothing but the messages, which is read faster than records are."""
    connection = connect_writer(path, "process", 1)
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, session TEXT, role TEXT, text TEXT)")
    with write_lock(connection):
        for number, text in enumerate(messages):
            role = "assistant" if number % 2 else "user"
            connection.execute("INSERT INTO message (session, role, text) VALUES (?,?,?)", (SESSION, role, text))
    return connection


def wanted(keyword: str) -> ContextFilter:
    return ContextFilter(last_messages=5, roles=frozenset({"user"}), keywords=(keyword,))


async def ask(store: SqliteStore, keyword: str) -> list[Message]:
    return await store.messages(SESSION, wanted(keyword), now_ms=0, tokens=TOKENS)


async def medians(rounds: int, runs: Mapping[str, Callable[[], Awaitable[object]]]) -> dict[str, float]:
    """The median of the microseconds that each takes, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            await run()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) * 1e6 for name, each in taken.items()}


async def compare(keyword: str, table: SqliteConnection, long: SqliteStore, short: SqliteStore) -> list[Figure]:
    reader = connect_reader(long.path, 1)
    chosen = partial(FILE_INDEX.choose, session=SESSION, wanted=wanted(keyword), now_ms=0, tokens=TOKENS)

    def query(connection: SqliteConnection) -> list[Message] | None:
        return run_query(connection, chosen)

    async def soon(run: Callable[[], object]) -> object:
        return run()

    expected = read_plain(table, keyword)
    assert read_all(reader, keyword) == expected == [message.text for message in await ask(long, keyword)]
    taken = await medians(
        ROUNDS,
        {
            "long": partial(ask, long, keyword),
            "short": partial(ask, short, keyword),
            "query": partial(soon, partial(query, reader)),
        },
    )
    taken |= await medians(
        SCANS,
        {
            "all": partial(soon, partial(read_all, reader, keyword)),
            "plain": partial(soon, partial(read_plain, table, keyword)),
        },
    )
    reader.close()
    return [
        Figure(
            name=f"context: reading all for “{keyword}”",
            value=taken["all"],
            floor=taken["query"],
            unit="µs",
            bound=at_least(500),
        ),
        Figure(name=f"context: “{keyword}” from a plain table", value=taken["plain"], floor=taken["query"], unit="µs"),
        Figure(
            name=f"context: “{keyword}” in 100,000, not 1,000",
            value=taken["long"],
            floor=taken["short"],
            unit="µs",
            bound=at_most(3),
        ),
    ]


async def measured(folder: Path) -> list[Figure]:
    conversation = texts(LONG)
    table = plain(folder / "plain.db", conversation)
    long, rows, words = await filled(folder / "long.db", conversation)
    short, _, _ = await filled(folder / "short.db", texts(SHORT))
    figures = [
        Figure(name="context: 100,000 messages indexed", value=rows, unit="s"),
        Figure(name="context: their words indexed", value=words, unit="s"),
    ]
    for keyword in KEYWORDS:
        figures += await compare(keyword, table, long, short)
    table.close()
    await long.close()
    await short.close()
    return figures


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(Path(folder)))


if __name__ == "__main__":
    main(measure)
