"""However large the file has grown, what a hub does all the time reads only the rows that it is about."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from remit.ports import Decision, NumberedRecord, RunScope, SealedValue
from remit.protocol.envelope import ContextFilter, Note
from remit.protocol.records import Kind
from remit.stores.audit import FileChain
from remit.stores.connection import connect_reader
from remit.stores.database import SqliteDatabase, at_once
from remit.stores.messages import UNSPELT
from remit.stores.reader import shared_runs
from remit.stores.records import FILE_PAGES
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import LONG_MS, a_question, a_request, a_response, a_step

# These keep a row for everything that ever was, or may wait for long.
GROWING = ("record", "request", "journal", "sealed", "question", "control", "conversation", "message", "note")

# The newest row, by its number.
HEAD = "SELECT seq, digest FROM record ORDER BY seq DESC LIMIT 1"


@pytest.fixture
def statements() -> Generator[dict[str, Any]]:
    """Every statement that any connection executes during the test, with what was bound to it."""
    seen: dict[str, Any] = {}

    def note(_: object, sql: str, bindings: Any) -> bool:
        seen[sql] = bindings
        return True

    def trace(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    apsw.connection_hooks.append(trace)
    yield seen
    apsw.connection_hooks.remove(trace)


async def test_no_statement_reads_a_whole_table_that_grows(tmp_path: Path, statements: dict[str, Any]) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    statements.clear()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=0, waiting=True)
    store.seal("run-one", [SealedValue("<EMAIL_1>", b"value", True)])
    store.journal("run-one", 1, "step", b"value")
    await store.put(a_question())
    await store.pending()
    await store.decide("question-one", Decision(agreed=True, by="ann"))
    await store.decision("question-one")
    await store.withdraw("question-one")
    await store.begin("run-one", 1, a_request("one", id="edited"))
    await store.release("run-one", 1)
    await store.sweep(max_attempts=3, keep_ms=LONG_MS)
    await store.claim("run-one", "w", LONG_MS)
    await store.heartbeat("w", LONG_MS)
    await store.late_workers(LONG_MS)
    await store.end_leases("w", 1)
    await store.load("run-one")
    await store.unseal("run-one")
    await store.records(run="run-one")
    await store.recent(10)
    await store.control("run-one", "cancel", "ann", "")
    await store.controls(0, "run-one")
    await store.controls(0)
    await store.runs(run="run-o")
    await store.named("id-one", RunScope(users=("u-1",), agents=("prime",), via="web"))
    await store.finish("run-one", 3, a_response(a_request()), 1)
    await store.wait("run-one")
    await store.find(a_request(), b"digest")
    for number in range(UNSPELT):
        store.append(Kind.STARTED, 1, f"run-{number}", "session-one", a_request(str(number)))
    await store.flush()
    await store.messages("session-one", ContextFilter(last_messages=1), now_ms=0, tokens=10)
    await store.messages("session-one", ContextFilter(keywords=("receipts", "x" * 200)), now_ms=0, tokens=10)
    await store.seen("session-one", [1, 2])
    store.note("session-one", [Note("fact", "likes tea")])
    await store.notes("session-one")
    await store.transfer("device/here", [NumberedRecord(1, Kind.SHARED, 1, "run", "session", a_step())])
    with closing(connect_reader(store.path, 1)) as reading:
        database = SqliteDatabase(reading)
        assert len(at_once(FILE_PAGES.records(database, None, None, 0, 9, "reviewer"))) == 1
        linked = at_once(FileChain(reading, store.path).linked(0, 9, profile="reviewer"))
        assert [each.row.run for each in linked] == ["run"]
        before = at_once(FILE_PAGES.before_newest(database, 1, profile="reviewer"))
        (newest,) = at_once(FILE_PAGES.records(database, None, None, before, 9))
        assert newest.body == a_step()
        assert at_once(shared_runs(database, "ru", 9)) == ["run"]
    seen = {sql: bindings for sql, bindings in statements.items() if sql not in (HEAD, "COMMIT", "BEGIN IMMEDIATE")}
    await store.close()
    assert len(seen) > 30
    connection = connect_reader(store.path, 1)
    plans = {
        sql: [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings or ())]
        for sql, bindings in seen.items()
    }
    connection.close()
    whole = {f"SCAN {table}" for table in GROWING}
    assert {sql: plan for sql, plan in plans.items() if whole & set(plan)} == {}
