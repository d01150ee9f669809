"""Tampering with the file of a store, its checkpoints or its key shows."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from remit.protocol.errors import Code
from remit.protocol.records import Kind
from remit.runtime.audit import AuditVerdict, Tampering
from remit.runtime.signing import decode_checkpoints, read_key
from remit.stores.connection import connect_writer
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import LONG_MS, a_request, a_response, code_of, progress
from waiting import PATIENCE_S, eventually


async def written(path: Path, *, records: int = 20, every: int = 10_000) -> Path:
    """Return the file of a store to which that many records were written, one commit each, and sealed at the end."""
    store = SqliteStore(path / "hub.db", durability="process", checkpoint_every=every)
    await store.open()
    for number in range(records):
        store.append(Kind.PROGRESS, number, "run", "session", progress(str(number)))
        await store.flush()
    await store.close()
    return store.path


def sql(path: Path, statements: str) -> None:
    connection = connect_writer(path, "process", 1)
    connection.execute(statements)
    connection.close()


def places(verdict: AuditVerdict) -> list[tuple[Tampering, int, int]]:
    return [(finding.tampering, finding.first, finding.last) for finding in verdict.findings]


async def test_an_untouched_file_is_whole(tmp_path: Path) -> None:
    """X13: the record of every delegation can be relied on."""
    path = await written(tmp_path, every=6)
    key = read_key(tmp_path / "hub.db.key").public
    assert verify_file(path) == AuditVerdict(rows=20, checkpoints=4, unprotected=0, keys=(key.hex(),))


async def test_an_open_store_judges_itself_and_counts_what_no_checkpoint_protects_yet(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db", checkpoint_every=6)
    await store.open()
    for number in range(20):
        store.append(Kind.PROGRESS, number, "run", "session", progress(str(number)))
        await store.flush()
    verdict = await store.verify()
    assert (verdict.ok, verdict.rows, verdict.checkpoints, verdict.unprotected) == (True, 20, 3, 2)
    await store.close()


@pytest.mark.parametrize(
    ("tampering", "statements", "first", "last"),
    [
        (Tampering.EDITED, """UPDATE record SET body = '{"text":"forged"}' WHERE seq = 7""", 7, 7),
        (Tampering.EDITED, "UPDATE record SET kind = 99 WHERE seq = 7", 7, 7),
        (Tampering.EDITED, "UPDATE record SET run = CAST(x'ff' AS TEXT) WHERE seq = 7", 7, 7),
        (Tampering.EDITED, "UPDATE record SET digest = zeroblob(32) WHERE seq = 7", 7, 7),
        (Tampering.DELETED, "DELETE FROM record WHERE seq BETWEEN 7 AND 9", 7, 9),
        (
            Tampering.INSERTED,
            "UPDATE record SET seq = -seq - 1 WHERE seq >= 7; UPDATE record SET seq = -seq WHERE seq < 0;"
            "INSERT INTO record SELECT 7, kind, at_ms, run, session, body, digest FROM record WHERE seq = 3",
            7,
            7,
        ),
        (Tampering.TRUNCATED, "DELETE FROM record WHERE seq > 15", 16, 20),
        (Tampering.TRUNCATED, "DELETE FROM record", 1, 20),
    ],
)
async def test_tampering_with_a_row_shows(
    tmp_path: Path, tampering: Tampering, statements: str, first: int, last: int
) -> None:
    path = await written(tmp_path)
    sql(path, statements)
    assert places(verify_file(path)) == [(tampering, first, last)]


async def test_rows_that_changed_places_show(tmp_path: Path) -> None:
    path = await written(tmp_path)
    sql(path, "UPDATE record SET seq = CASE seq WHEN 5 THEN -12 WHEN 12 THEN -5 END WHERE seq IN (5, 12)")
    sql(path, "UPDATE record SET seq = -seq WHERE seq < 0")
    assert places(verify_file(path)) == [(Tampering.REORDERED, 5, 5), (Tampering.REORDERED, 12, 12)]


async def test_rows_cut_off_before_any_checkpoint_show_if_a_request_points_at_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    await store.finish("run-one", 1, a_response(a_request()), 1)
    sql(store.path, "DELETE FROM record WHERE seq = 2")
    assert places(await store.verify()) == [(Tampering.TRUNCATED, 2, 2)]
    await store.close()


async def test_the_form_in_which_a_request_began_cannot_be_cut_off_unseen(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
    await store.begin("run-one", 1, replace(a_request(), objective="Sort one receipt"))
    assert (await store.verify()).ok
    sql(store.path, "DELETE FROM record WHERE seq = 2")
    assert places(await store.verify()) == [(Tampering.TRUNCATED, 2, 2)]
    await store.close()


@pytest.mark.parametrize("change", ["kind = 99", "body = '{}'", "body = 'no JSON'"])
async def test_a_row_that_cannot_be_read_any_more_is_an_error_and_not_a_crash(tmp_path: Path, change: str) -> None:
    path = await written(tmp_path)
    sql(path, f"UPDATE record SET {change} WHERE seq = 7")
    store = SqliteStore(path)
    await store.open()
    assert await code_of(store.records()) is Code.STORE_UNAVAILABLE
    assert len(await store.records(after=7)) == 13
    await store.close()


async def test_a_writer_survives_that_its_table_is_emptied(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db")
    await store.open()
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    sql(store.path, "DELETE FROM record")
    assert places(await store.verify()) == [(Tampering.TRUNCATED, 1, 1)]
    async with asyncio.timeout(PATIENCE_S):
        await store.close()


async def test_a_missing_checkpoint_file_shows(tmp_path: Path) -> None:
    path = await written(tmp_path, every=6)
    (tmp_path / "hub.db.checkpoints").unlink()
    verdict = verify_file(path)
    assert places(verdict) == [(Tampering.CHECKPOINT_MISSING, 1, 4), (Tampering.UNSIGNED, 1, 20)]
    assert verdict.unprotected == 20


async def test_a_shortened_checkpoint_file_shows(tmp_path: Path) -> None:
    path = await written(tmp_path, every=6)
    checkpoints = tmp_path / "hub.db.checkpoints"
    checkpoints.write_bytes(b"".join(checkpoints.read_bytes().splitlines(keepends=True)[:2]))
    assert places(verify_file(path)) == [(Tampering.CHECKPOINT_MISSING, 3, 4), (Tampering.UNSIGNED, 13, 20)]


async def test_checkpoints_of_someone_without_the_key_show(tmp_path: Path) -> None:
    path = await written(tmp_path)
    other = await written(tmp_path / "other")
    (tmp_path / "hub.db.checkpoints").write_bytes(other.with_name("hub.db.checkpoints").read_bytes())
    assert places(verify_file(path)) == [(Tampering.CHECKPOINT_FORGED, 1, 1), (Tampering.UNSIGNED, 1, 20)]


async def test_the_secret_key_is_not_needed(tmp_path: Path) -> None:
    path = await written(tmp_path)
    public_key = read_key(tmp_path / "hub.db.key").public
    (tmp_path / "hub.db.key").unlink()
    assert verify_file(path).ok
    assert verify_file(path, public_key=public_key).ok
    assert places(verify_file(path, public_key=bytes(32))) == [
        (Tampering.CHECKPOINT_FORGED, 1, 1),
        (Tampering.KEY_SIGNED_NOTHING, 0, 0),
        (Tampering.UNSIGNED, 1, 20),
    ]


async def test_a_crash_that_tears_off_a_checkpoint_is_no_tampering_and_the_next_stands_on_its_own_line(
    tmp_path: Path,
) -> None:
    path = await written(tmp_path)
    with (tmp_path / "hub.db.checkpoints").open("ab") as file:
        file.write(b'{"number":2,"seq":2')
    assert verify_file(path).ok
    await written(tmp_path)
    verdict = verify_file(path)
    assert (verdict.ok, verdict.rows, verdict.checkpoints, verdict.unprotected) == (True, 40, 2, 0)


async def test_a_crash_between_a_checkpoint_and_its_memory_is_no_tampering(tmp_path: Path) -> None:
    path = await written(tmp_path)
    sql(path, "UPDATE checkpoint SET number = 0, seq = 0")
    assert verify_file(path).ok
    await written(tmp_path)
    assert verify_file(path).ok
    assert [each.number for each in decode_checkpoints((tmp_path / "hub.db.checkpoints").read_bytes()) if each] == [
        1,
        2,
    ]


async def test_the_chain_is_sealed_when_the_time_has_come_though_nothing_more_is_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db", checkpoint_seconds=0.05)
    await store.open()
    store.append(Kind.PROGRESS, 1, "run", "session", progress("x"))
    await store.flush()
    await eventually(store.verify, when=lambda verification: not verification.unprotected)
    await store.close()


async def test_a_checkpoint_that_cannot_be_written_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "hub.db.checkpoints").mkdir()
    await written(tmp_path, every=1)
    assert "no checkpoint was written" in caplog.text


async def test_a_store_that_writes_nothing_seals_nothing(tmp_path: Path) -> None:
    path = await written(tmp_path)
    before = (tmp_path / "hub.db.checkpoints").read_bytes()
    store = SqliteStore(path)
    await store.open()
    await store.records()
    await store.close()
    assert (tmp_path / "hub.db.checkpoints").read_bytes() == before


async def test_verification_beside_a_writer_raises_no_false_alarm(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hub.db", durability="process", checkpoint_every=3)
    await store.open()
    done = False

    async def write() -> None:
        for number in range(300):
            store.append(Kind.PROGRESS, number, "run", "session", progress("x"))
            await store.flush()

    async def judge() -> None:
        while not done:
            verdict = await asyncio.to_thread(verify_file, store.path)
            assert verdict.ok, verdict

    async with asyncio.TaskGroup() as group:
        group.create_task(judge())
        await group.create_task(write())
        done = True
    await store.close()


async def test_what_was_verified_before_is_not_verified_again(tmp_path: Path) -> None:
    """Y13: verification can go on from the last verified checkpoint."""
    path = await written(tmp_path, every=6)
    assert verify_file(path, incremental=True).since == 0
    store = SqliteStore(path, durability="process", checkpoint_every=6)
    await store.open()
    for number in range(10):
        store.append(Kind.PROGRESS, number, "run", "session", progress(str(number)))
        await store.flush()
    await store.close()
    verdict = verify_file(path, incremental=True)
    assert (verdict.ok, verdict.since, verdict.rows) == (True, 20, 10)
    verdict = verify_file(path, incremental=True)
    assert (verdict.ok, verdict.since, verdict.rows) == (True, 30, 0)
    assert verify_file(path).rows == 30
    assert "rows 1 to 30 were verified before" in str(verdict)


@pytest.mark.parametrize(
    ("statements", "first"),
    [
        ("UPDATE record SET body = x'7b7d' WHERE seq = 25", 25),
        ("DELETE FROM record WHERE seq > 27", 28),
        ("DELETE FROM record WHERE seq = 22", 22),
    ],
)
async def test_tampering_with_later_rows_shows_incrementally(tmp_path: Path, statements: str, first: int) -> None:
    path = await written(tmp_path)
    assert verify_file(path, incremental=True).ok
    store = SqliteStore(path, durability="process")
    await store.open()
    for number in range(10):
        store.append(Kind.PROGRESS, number, "run", "session", progress(str(number)))
        await store.flush()
    await store.close()
    sql(path, statements)
    verdict = verify_file(path, incremental=True)
    assert (verdict.findings[0].first, verdict.since) == (first, 20)
    assert verify_file(path, incremental=True).since == 20  # not remembered as verified


async def test_a_forged_mark_or_another_chain_has_all_of_it_verified(tmp_path: Path) -> None:
    path = await written(tmp_path)
    assert verify_file(path, incremental=True).ok
    mark = tmp_path / "hub.db.verified"
    genuine = mark.read_bytes()
    mark.write_bytes(genuine.replace(b'"seq":20', b'"seq":19'))
    sql(path, "UPDATE record SET body = x'7b7d' WHERE seq = 3")
    verdict = verify_file(path, incremental=True)
    assert (verdict.ok, verdict.since) == (False, 0)
    mark.write_bytes(genuine)
    sql(path, "UPDATE record SET digest = zeroblob(32) WHERE seq = 20")
    verdict = verify_file(path, incremental=True)
    assert (verdict.ok, verdict.since) == (False, 0)
