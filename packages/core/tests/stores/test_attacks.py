"""Attacks on the record by someone who can write every file and lacks the key: each has a finding of its own name."""

import logging
import shutil
import time
from pathlib import Path

import pytest

from forged_records import rehash, sql
from remit.protocol.records import ChainBreak, Kind
from remit.runtime.audit import AuditVerdict, Tampering
from remit.runtime.signing import Checkpoint, CheckpointKey, encode_checkpoint, read_anchors, read_key, sign
from remit.stores.audit import FileChain
from remit.stores.checkpoints import newest_checkpoint, read_checkpoints
from remit.stores.connection import connect_reader, connect_writer
from remit.stores.database import at_once
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import progress

HOUR_MS = 3_600_000
FILES = ("hub.db", "hub.db.checkpoints", "hub.db.key")


async def written(folder: Path, *, records: int = 20, every: int = 6, at_ms: int | None = None) -> Path:
    """Return the file of a store to which records of an hour ago were written, one commit each, and that was closed."""
    store = SqliteStore(folder / "hub.db", durability="process", checkpoint_every=every)
    await store.open()
    begun_ms = time.time_ns() // 1_000_000 - HOUR_MS if at_ms is None else at_ms
    for number in range(records):
        store.append(Kind.PROGRESS, begun_ms + number, "run", "session", progress(str(number)))
        await store.flush()
    await store.close()
    return store.path


def public_key(path: Path) -> bytes:
    return read_key(path.with_name("hub.db.key")).public


def names(verdict: AuditVerdict) -> set[Tampering]:
    return {finding.tampering for finding in verdict.findings}


def copied(source: Path, target: Path, *names: str) -> None:
    target.mkdir(exist_ok=True)
    for name in names:
        shutil.copy2(source / name, target / name)


def an_anchor(path: Path) -> Checkpoint:
    connection = connect_reader(path, 1)
    try:
        return at_once(FileChain(connection, path).newest_anchor())[0]
    finally:
        connection.close()


async def reopened(path: Path) -> None:
    """Start a hub's store on the file, let it write, and close it."""
    store = SqliteStore(path, durability="process")
    await store.open()
    store.append(Kind.PROGRESS, time.time_ns() // 1_000_000, "run", "session", progress("later"))
    await store.close()


# ── without the key ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_hashing_everything_anew_and_deleting_every_checkpoint_is_found(tmp_path: Path) -> None:
    path = await written(tmp_path)
    pinned = public_key(path)
    rehash(path)
    sql(path, "UPDATE checkpoint SET number = 0, seq = 0")
    (tmp_path / "hub.db.checkpoints").unlink()
    assert names(verify_file(path)) == {Tampering.UNSIGNED}
    assert names(verify_file(path, public_key=pinned)) == {Tampering.KEY_SIGNED_NOTHING, Tampering.UNSIGNED}


async def test_a_pinned_key_shows_it_though_the_rows_were_dated_anew(tmp_path: Path) -> None:
    path = await written(tmp_path)
    pinned = public_key(path)
    rehash(path, at_ms=time.time_ns() // 1_000_000)
    sql(path, "UPDATE checkpoint SET number = 0, seq = 0")
    (tmp_path / "hub.db.checkpoints").unlink()
    assert names(verify_file(path, public_key=pinned)) == {Tampering.KEY_SIGNED_NOTHING}


async def test_a_hub_that_starts_on_such_a_record_does_not_sign_it_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = await written(tmp_path)
    rehash(path)
    sql(path, "UPDATE checkpoint SET number = 0, seq = 0")
    (tmp_path / "hub.db.checkpoints").unlink()
    await reopened(path)
    assert "THE AUDIT CHAIN IS BROKEN (unsigned)" in caplog.text
    assert names(verify_file(path, public_key=public_key(path))) == {Tampering.BREAK_ANNOUNCED}


async def test_more_rows_than_a_hub_leaves_unsigned_are_found_however_new_they_are(tmp_path: Path) -> None:
    path = await written(tmp_path, records=30, at_ms=time.time_ns() // 1_000_000)
    (tmp_path / "hub.db.checkpoints").unlink()
    sql(path, "UPDATE checkpoint SET number = 0, seq = 0")
    assert names(verify_file(path)) == set()
    connection = connect_writer(path, "process", 1)
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 31 UNION ALL SELECT i + 1 FROM n WHERE i < 20100)"
        " INSERT INTO record SELECT i, 3, at_ms, run, session, body, digest FROM n JOIN record ON seq = 30"
    )
    connection.close()
    rehash(path)
    (finding,) = verify_file(path).findings
    assert (finding.tampering, finding.first, finding.last) == (Tampering.UNSIGNED, 1, 20_100)


@pytest.mark.parametrize("statement", ["DELETE FROM checkpoint", "DROP TABLE checkpoint"])
async def test_deleting_the_checkpoint_row_or_its_table_is_found(tmp_path: Path, statement: str) -> None:
    path = await written(tmp_path)
    sql(path, statement)
    assert names(verify_file(path)) == {Tampering.CHECKPOINT_ROW_MISSING}
    await reopened(path)
    verdict = verify_file(path)
    assert names(verdict) == {Tampering.BREAK_ANNOUNCED}
    assert verdict.unprotected == 0


@pytest.mark.parametrize("statement", ["DELETE FROM checkpoint", "DROP TABLE checkpoint"])
async def test_a_hub_at_work_goes_on_though_its_checkpoint_row_was_deleted(tmp_path: Path, statement: str) -> None:
    store = SqliteStore(tmp_path / "hub.db", durability="process", checkpoint_every=2)
    await store.open()
    for number in range(8):
        store.append(Kind.PROGRESS, 1, "run", "session", progress(str(number)))
        await store.flush()
        if number == 3:
            sql(store.path, statement)
    assert len(await store.records()) == 8
    await store.close()
    assert Tampering.CHECKPOINT_ROW_MISSING in names(verify_file(store.path))


@pytest.mark.parametrize("change", ["number = number - 2", "seq = seq - 1", "number = 0, seq = 0"])
async def test_a_checkpoint_row_that_disagrees_with_the_file_is_found(tmp_path: Path, change: str) -> None:
    path = await written(tmp_path)
    sql(path, f"UPDATE checkpoint SET {change}")
    assert names(verify_file(path)) == {Tampering.CHECKPOINTS_DISAGREE}
    await reopened(path)
    assert names(verify_file(path)) == {Tampering.BREAK_ANNOUNCED}


async def test_editing_the_signature_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    path = await written(tmp_path)
    lines = [each for each in read_checkpoints(path) if each]
    forged = Checkpoint(
        number=2, seq=lines[1].seq, digest=lines[1].digest, at_ms=1, key=lines[1].key, signature=lines[0].signature
    )
    raw = b"".join(encode_checkpoint(each) for each in (lines[0], forged, *lines[2:]))
    (tmp_path / "hub.db.checkpoints").write_bytes(raw)
    assert names(verify_file(path)) == {Tampering.CHECKPOINT_FORGED}


async def test_putting_back_an_older_database_is_found_by_the_checkpoints(tmp_path: Path) -> None:
    path = await written(tmp_path)
    copied(tmp_path, tmp_path / "older", "hub.db")
    await written(tmp_path)
    copied(tmp_path / "older", tmp_path, "hub.db")
    assert names(verify_file(path)) == {Tampering.TRUNCATED, Tampering.CHECKPOINTS_DISAGREE}


# ── with another key ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_replacing_the_key_and_signing_everything_with_it_is_found_by_whoever_pinned_the_key(
    tmp_path: Path,
) -> None:
    path = await written(tmp_path)
    pinned, anchor = public_key(path), an_anchor(path)
    rehash(path)
    thief = CheckpointKey(bytes(32))
    connection = connect_reader(path, 1)
    digest = bytes(connection.execute("SELECT digest FROM record WHERE seq = 20").fetchall()[0][0])
    connection.close()
    (tmp_path / "hub.db.key").write_text(f"remit-ed25519 {thief.seed.hex()}\n")
    line = encode_checkpoint(sign(thief, number=1, seq=20, digest=digest, at_ms=1))
    (tmp_path / "hub.db.checkpoints").write_bytes(line)
    sql(path, f"UPDATE checkpoint SET number = 1, signer = '{thief.fingerprint}'")
    assert verify_file(path).ok  # nothing in the files themselves tells; the page says so
    assert {Tampering.KEY_SIGNED_NOTHING, Tampering.CHECKPOINT_FORGED} <= names(verify_file(path, public_key=pinned))
    assert {Tampering.KEY_SIGNED_NOTHING, Tampering.ANCHOR_MISMATCH} <= names(verify_file(path, anchors=[anchor]))


async def test_a_hub_that_finds_its_key_gone_says_so_and_marks_the_break(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = await written(tmp_path)
    old = public_key(path)
    (tmp_path / "hub.db.key").unlink()
    store = SqliteStore(path)
    with caplog.at_level(logging.ERROR):
        await store.open()
    new = public_key(path)
    assert "THE AUDIT CHAIN IS BROKEN (key changed): the key file was missing and a new key was made" in caplog.text
    (marked,) = [record for record in await store.records() if record.kind is Kind.BREAK]
    assert isinstance(marked.body, ChainBreak)
    assert (marked.seq, marked.body.old_key, marked.body.new_key) == (21, old.hex(), new.hex())
    assert (await store.verify()).unprotected == 0  # signed at once
    await store.close()
    verdict = verify_file(path)
    assert [(each.tampering, each.first) for each in verdict.findings] == [(Tampering.KEY_CHANGED, 21)]
    assert "the hub announced a break in the record (1 finding)" in str(verdict)
    assert verdict.keys == (old.hex(), new.hex())
    # Whoever has seen to it pins both.
    assert names(verify_file(path, public_key=old)) == {Tampering.KEY_CHANGED}
    assert verify_file(path, public_key=[old, new]).ok


async def test_a_key_that_was_replaced_while_the_hub_was_down_is_announced(tmp_path: Path) -> None:
    path = await written(tmp_path)
    (tmp_path / "hub.db.key").write_text(f"remit-ed25519 {bytes(32).hex()}\n")
    await reopened(path)
    assert names(verify_file(path)) == {Tampering.KEY_CHANGED}


async def test_a_key_that_changes_twice_is_announced_twice(tmp_path: Path) -> None:
    path = await written(tmp_path)
    first = public_key(path)
    for _ in range(2):
        (tmp_path / "hub.db.key").unlink()
        await reopened(path)
    verdict = verify_file(path, public_key=first)
    assert [each.tampering for each in verdict.findings] == [Tampering.KEY_CHANGED] * 2
    assert len(verdict.keys) == 3


async def test_a_break_that_was_not_announced_by_this_record_excuses_no_other_key(tmp_path: Path) -> None:
    """An announcement between two keys says nothing of a third."""
    path = await written(tmp_path)
    (tmp_path / "hub.db.key").unlink()
    await reopened(path)
    lines = read_checkpoints(path)
    last = lines[-1]
    assert last is not None
    forged = sign(
        CheckpointKey(bytes(32)), number=last.number + 1, seq=last.seq, digest=bytes.fromhex(last.digest), at_ms=1
    )
    with (tmp_path / "hub.db.checkpoints").open("ab") as file:
        file.write(encode_checkpoint(forged))
    assert names(verify_file(path)) == {Tampering.KEY_CHANGED, Tampering.CHECKPOINT_FORGED}


# ── rolling back ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_rolling_back_database_and_checkpoints_together_is_found_by_an_anchor_alone(tmp_path: Path) -> None:
    path = await written(tmp_path)
    copied(tmp_path, tmp_path / "older", *FILES)
    await written(tmp_path)
    anchor, pinned = an_anchor(path), public_key(path)
    assert verify_file(path, anchors=[anchor]).anchors == 1
    copied(tmp_path / "older", tmp_path, *FILES)
    assert verify_file(path, public_key=pinned).ok
    assert names(verify_file(path, anchors=[anchor])) == {Tampering.ROLLED_BACK, Tampering.CHECKPOINT_MISSING}
    # Nor does it help to let the record grow again.
    await written(tmp_path, records=25)
    assert names(verify_file(path, public_key=pinned)) == set()
    assert names(verify_file(path, anchors=[anchor])) == {Tampering.ANCHOR_MISMATCH}


async def test_an_anchor_of_another_record_or_one_that_was_changed_is_named(tmp_path: Path) -> None:
    path = await written(tmp_path)
    other = an_anchor(await written(tmp_path / "other"))
    assert names(verify_file(path, public_key=public_key(path), anchors=[other])) == {Tampering.ANCHOR_FORGED}
    own = encode_checkpoint(an_anchor(path)).decode()
    (changed,) = read_anchors(own.replace('"seq":20', '"seq":19'))
    assert Tampering.ANCHOR_FORGED in names(verify_file(path, anchors=[changed]))


# ── what is no attack ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_killed_hub_left_unsigned_is_signed_by_the_next_that_opens_the_store(tmp_path: Path) -> None:
    path = await written(tmp_path, records=6)
    copied(tmp_path, tmp_path / "sealed", "hub.db.checkpoints")
    await written(tmp_path, records=3)
    # As if the hub had been killed before it could sign the last three rows.
    copied(tmp_path / "sealed", tmp_path, "hub.db.checkpoints")
    last = newest_checkpoint(path)
    assert last is not None
    sql(path, f"UPDATE checkpoint SET number = {last.number}, seq = 6, since_ms = {time.time_ns() // 1_000_000}")
    assert verify_file(path).ok
    sql(path, "UPDATE checkpoint SET since_ms = 1")
    assert names(verify_file(path)) == {Tampering.UNSIGNED}
    store = SqliteStore(path)
    await store.open()
    await store.close()
    verdict = verify_file(path)
    assert (verdict.ok, verdict.rows, verdict.unprotected) == (True, 9, 0)


async def test_the_file_of_checkpoints_is_never_two_lines_ahead_though_commits_fail(tmp_path: Path) -> None:
    """The line is written before the database remembers it, and the database may be unable to."""
    store = SqliteStore(tmp_path / "hub.db", durability="process", checkpoint_every=1)
    await store.open()
    sql(store.path, "CREATE TRIGGER full BEFORE UPDATE OF number ON checkpoint BEGIN SELECT raise(ABORT, 'no'); END")
    for number in range(5):
        store.append(Kind.PROGRESS, 1, "run", "session", progress(str(number)))
        await store.flush()
    assert (await store.verify()).ok
    assert len(read_checkpoints(store.path)) == 1
    sql(store.path, "DROP TRIGGER full")
    await store.close()
    verdict = verify_file(store.path)
    assert (verdict.ok, verdict.checkpoints, verdict.unprotected) == (True, 2, 0)
