"""A file that an older version wrote is brought up to date when it is opened, and goes on from where it was."""

from pathlib import Path

import pytest

from remit.ports import StoreError
from remit.protocol.records import Kind
from remit.stores import schema
from remit.stores.connection import connect_reader
from remit.stores.schema import KINDS, MIGRATIONS
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import progress, texts


async def test_a_file_of_an_older_version_keeps_what_was_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hub.db"
    older = SqliteStore(path)
    await older.open()
    older.append(Kind.PROGRESS, 1, "run", "session", progress("half"))
    await older.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE newer (one INTEGER)"))
    with pytest.raises(StoreError, match=f"has version {len(MIGRATIONS)}, and this program reads version"):
        verify_file(path)
    store = SqliteStore(path)
    await store.open()
    assert texts(await store.records()) == ["half"]
    await store.close()
    assert verify_file(path).ok
    connection = connect_reader(path, 1)
    assert connection.execute("SELECT count(*) FROM newer").fetchall() == [(0,)]
    connection.close()


def test_the_number_of_a_kind_is_never_changed() -> None:
    assert KINDS == {
        Kind.STARTED: 1,
        Kind.DELEGATION: 2,
        Kind.PROGRESS: 3,
        Kind.TOOL: 4,
        Kind.NOTICE: 5,
        Kind.RESULT: 6,
        Kind.REFUSED: 7,
        Kind.APPROVAL: 8,
        Kind.SHARED: 9,
        Kind.BREAK: 10,
        Kind.REMOVED: 11,
    }
