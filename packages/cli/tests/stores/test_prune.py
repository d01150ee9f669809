"""What is older than the rule keeps goes, the chain stays whole, and whoever removes more is found."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from ages import DAY_MS, START_MS, AgedFile, Clock, ask, days, opened, upkeep
from commands import popen
from remit.ports.upkeep import Pruned, Retention
from remit.protocol.codec import encode
from remit.runtime.audit import AuditVerdict, Tampering, leaf, link
from remit.runtime.audit.chain import sign_removal
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores.audit import FileChain
from remit.stores.connection import connect_reader, connect_writer
from remit.stores.database import at_once
from remit.stores.sqlite import verify_file
from retention_suite import ALL, TEXTS, RetentionSuite, erased, exported

NOW_MS = AgedFile.now_ms


def pruned(path: Path, keep: Retention, *, now_ms: int = NOW_MS, dry: bool = False) -> Pruned:
    with upkeep(path, now_ms) as store_upkeep:
        return store_upkeep.prune(keep, dry=dry)


def sql(path: Path, statements: str) -> None:
    connection = connect_writer(path, "process", 1)
    connection.execute(statements)
    connection.close()


def names(verdict: AuditVerdict) -> set[Tampering]:
    return {finding.tampering for finding in verdict.findings}


class TestFileRetention(RetentionSuite):
    async def aged(self, folder: Path, *, runs: int = 4, users: tuple[str, ...] = ("ann", "bob")) -> AgedFile:
        return AgedFile(await days(folder, runs=runs, users=users))


async def test_the_file_shrinks(tmp_path: Path) -> None:
    path = await days(tmp_path, runs=60)
    before = path.stat().st_size
    report = pruned(path, ALL)
    assert report.returned > 0
    assert path.stat().st_size < 0.7 * before


async def test_nothing_of_an_erased_user_is_left_in_the_file(tmp_path: Path) -> None:
    path = await days(tmp_path)
    done = await erased(AgedFile(path), "ann")
    connection = connect_reader(path, 1)
    stated = [each for _, each in at_once(FileChain(connection, path).removals())]
    connection.close()
    assert {each.subject for each in stated} == {done.subject}
    assert b"ann likes" not in path.read_bytes()
    with upkeep(path, NOW_MS) as store_upkeep:
        store_upkeep.rebuild()
    assert b"session of ann" not in path.read_bytes()


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_row_removed_beyond_the_pruned_range_is_found(tmp_path: Path) -> None:
    """Y2: removing a row as pruning does, without the key, is found and named."""
    path = await days(tmp_path)
    pruned(path, ALL)
    connection = connect_writer(path, "process", 1)
    ((seq, kind, at_ms, run, session, body, digest),) = connection.execute(
        "SELECT seq, kind, at_ms, run, session, body, digest FROM record WHERE run = 'run-d7n1' LIMIT 1"
    ).fetchall()
    connection.execute("INSERT INTO removed VALUES (?,?,?)", (seq, leaf("started", at_ms, run, session, body), digest))
    connection.execute("DELETE FROM record WHERE seq = ?", (seq,))
    connection.close()
    assert kind == 1
    (finding,) = [each for each in verify_file(path).findings if each.first == seq]
    assert finding.tampering is Tampering.DELETED
    assert "no signed statement" in finding.message


@pytest.mark.parametrize("run", ["run-d7n1", "run-open-one"])
async def test_a_row_that_is_simply_deleted_is_found(tmp_path: Path, run: str) -> None:
    path = await days(tmp_path)
    pruned(path, ALL)
    sql(path, f"DELETE FROM record WHERE seq = (SELECT min(seq) FROM record WHERE run = '{run}')")
    assert names(verify_file(path)) == {Tampering.DELETED}


async def test_what_the_chain_keeps_of_a_pruned_row_cannot_be_changed(tmp_path: Path) -> None:
    path = await days(tmp_path)
    pruned(path, ALL)
    sql(path, "UPDATE removed SET leaf = zeroblob(32) WHERE seq = 5")
    assert not verify_file(path).ok
    sql(path, "DELETE FROM removed WHERE seq = 5")
    assert Tampering.DELETED in names(verify_file(path))


async def test_an_outline_cannot_be_changed(tmp_path: Path) -> None:
    path = await days(tmp_path)
    pruned(path, TEXTS)
    sql(path, "UPDATE record SET body = replace(CAST(body AS TEXT), 'ann', 'bob') WHERE seq = 1")
    (finding,) = verify_file(path).findings
    assert (finding.tampering, finding.first) == (Tampering.EDITED, 1)


def _forge(path: Path, key: CheckpointKey, row: int) -> None:
    """Remove a row, and append a statement about it that is signed with *key*, hashed as the chain demands."""
    connection = connect_writer(path, "process", 1)
    _, genuine = at_once(FileChain(connection, path).removals())[0]
    ((head, last),) = connection.execute("SELECT seq, digest FROM record ORDER BY seq DESC LIMIT 1").fetchall()
    ((at_ms, run, session, body, digest),) = connection.execute(
        "SELECT at_ms, run, session, body, digest FROM record WHERE seq = ?", (row,)
    ).fetchall()
    connection.execute("INSERT INTO removed VALUES (?,?,?)", (row, leaf("started", at_ms, run, session, body), digest))
    ((before,),) = connection.execute("SELECT digest FROM record WHERE seq = ?", (row - 1,)).fetchall()
    connection.execute("DELETE FROM record WHERE seq = ?", (row,))
    forged = sign_removal(
        key,
        replace(genuine, first=row, last=row, gone=(row, row), before=before.hex(), after=digest.hex(), outlined=()),
    )
    raw = encode(forged)
    own = link(last, head + 1, leaf("removed", NOW_MS, "remit-store", "remit-store", raw))
    connection.execute(
        "INSERT INTO record VALUES (?,?,?,?,?,?,?)", (head + 1, 11, NOW_MS, "remit-store", "remit-store", raw, own)
    )
    connection.close()


async def test_a_forged_statement_is_found(tmp_path: Path) -> None:
    """Y3: a statement that the store's key did not sign covers nothing."""
    path = await days(tmp_path)
    pruned(path, ALL)
    connection = connect_reader(path, 1)
    ((row,),) = connection.execute("SELECT min(seq) FROM record WHERE run = 'run-d7n1'").fetchall()
    connection.close()
    _forge(path, CheckpointKey(bytes(32)), row)
    assert {Tampering.REMOVAL_FORGED, Tampering.DELETED} <= names(verify_file(path))


async def test_a_statement_cannot_be_made_to_say_more(tmp_path: Path) -> None:
    path = await days(tmp_path)
    pruned(path, ALL)
    sql(path, "UPDATE record SET body = replace(CAST(body AS TEXT), '\"gone\":[1,', '\"gone\":[1,') WHERE kind = 11")
    assert verify_file(path).ok
    sql(path, "UPDATE record SET body = replace(CAST(body AS TEXT), '5d', '4d') WHERE kind = 11")
    assert {Tampering.REMOVAL_FORGED, Tampering.EDITED} <= names(verify_file(path))


async def test_a_segment_that_was_tampered_with_is_not_pruned(tmp_path: Path) -> None:
    path = await days(tmp_path)
    sql(path, """UPDATE record SET body = '{"delegation":"x","agent":"y","text":"z"}' WHERE seq = 2""")
    report = pruned(path, ALL)
    assert report.rows == 5 * 4 * 3
    (refused,) = report.refused
    assert "row 2 was changed" in refused
    assert (Tampering.EDITED, 2) in [(each.tampering, each.first) for each in verify_file(path).findings]


async def test_a_statement_of_an_announced_key_counts(tmp_path: Path) -> None:
    path = await days(tmp_path)
    pruned(path, ALL)
    (tmp_path / "hub.db.key").unlink()
    async with opened(path, Clock(NOW_MS)) as store:
        assert store.secret()
    assert names(verify_file(path)) == {Tampering.KEY_CHANGED}
    assert pruned(path, ALL, now_ms=NOW_MS + 2 * DAY_MS).rows > 0
    assert names(verify_file(path)) == {Tampering.KEY_CHANGED}
    assert read_key(tmp_path / "hub.db.key")


async def test_a_statement_says_when_and_by_which_rule(tmp_path: Path) -> None:
    path = await days(tmp_path)
    pruned(path, ALL)
    connection = connect_reader(path, 1)
    stated = [each for _, each in at_once(FileChain(connection, path).removals())]
    connection.close()
    assert [(each.why, each.rule, each.at_ms) for each in stated] == [
        ("pruned", "records 5d, messages 5d, vault 5d, facts 5d", NOW_MS)
    ] * 6


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

PRUNER = Path(__file__).with_name("pruner.py")


@pytest.mark.processes
@pytest.mark.parametrize("what", ["rows", "texts"])
async def test_being_killed_anywhere_leaves_the_store_whole(tmp_path: Path, what: str) -> None:
    """Y4: kill -9 in the middle of pruning loses nothing and breaks nothing; the next one goes on."""
    path = await days(tmp_path, days=10, runs=6)
    rows = 6 * 6 * 3
    seen: set[int] = set()
    for kill in range(12):
        process = popen([sys.executable, str(PRUNER), what, str(path), str(NOW_MS)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.012 * kill)  # anywhere in its work: that there is no event to wait for is the point
        process.kill()
        process.communicate()
        async with opened(path, Clock(NOW_MS)):
            pass  # whoever opens it next signs what the killed process did not
        verdict = verify_file(path)
        assert verdict.ok, verdict
        seen.add(verdict.removed)
        if verdict.removed == rows:
            break
    pruned(path, ALL)
    verdict = verify_file(path)
    assert (verdict.ok, verdict.removed) == (True, rows)


async def test_a_store_that_nobody_used_for_years_loses_even_its_last_row(tmp_path: Path) -> None:
    path = await days(tmp_path, days=1)
    async with opened(path, Clock(START_MS)) as store:
        await store.sweep(max_attempts=3, keep_ms=0)
    assert pruned(path, ALL).rows == 12
    assert verify_file(path).ok
    async with opened(path, Clock(NOW_MS)) as store:
        await ask(store, Clock(NOW_MS), "again")
    assert verify_file(path).ok


async def test_being_killed_leaves_the_record_whole_and_the_rest_is_erased_the_next_time(tmp_path: Path) -> None:
    """Y12: kill -9 in the middle of an erasure leaves a record that verifies."""
    path = await days(tmp_path)
    for kill in range(8):
        process = popen([sys.executable, str(PRUNER), "erase", str(path), str(NOW_MS)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.02 * kill)  # anywhere in its work
        process.kill()
        process.communicate()
        async with opened(path, Clock(NOW_MS)):
            pass
        assert verify_file(path).ok
    aged = AgedFile(path)
    await erased(aged, "ann")
    assert verify_file(path).ok
    assert await exported(aged, "ann") == {}
