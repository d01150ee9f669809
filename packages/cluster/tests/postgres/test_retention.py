"""What is older than the rule keeps goes from a database, the chain stays whole, and whoever removes more is found."""

from pathlib import Path

import pytest

from aged_databases import NOW_MS, AgedDatabase, aged
from ages import DAY_MS
from remit.ports.upkeep import Retention
from remit.runtime.audit import AuditVerdict, Tampering, leaf
from retention_suite import ALL, TEXTS, RetentionSuite, pruned


def names(verdict: AuditVerdict) -> set[Tampering]:
    return {finding.tampering for finding in verdict.findings}


class TestDatabaseRetention(RetentionSuite):
    async def aged(self, folder: Path, *, runs: int = 4, users: tuple[str, ...] = ("ann", "bob")) -> AgedDatabase:
        return await aged(folder, runs=runs, users=users)


async def test_a_clock_that_is_ahead_removes_nothing(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    ahead_ms = NOW_MS + 400 * DAY_MS
    assert (await pruned(database, Retention(records=300 * DAY_MS), now_ms=ahead_ms)).is_empty


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_OF = "(stream, number) = (SELECT stream, number FROM remit.record WHERE run = 'run-d7n1' ORDER BY number LIMIT 1)"


async def test_removing_more_than_was_stated_is_found(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    await pruned(database, ALL)
    ((first, number, stream, at, *content),) = await database.sql(
        "SELECT chain.first, chain.number, record.stream, record.number, at_ms, run, session, body FROM remit.record"
        " JOIN remit.chain ON chain.stream = record.stream"
        " AND record.number BETWEEN chain.number AND chain.number + chain.last - chain.first"
        " WHERE record.run = 'run-d7n1' AND kind = 1"
    )
    assert isinstance(first, int)
    assert isinstance(number, int)
    assert isinstance(at, int)
    seq = first + at - number
    await database.sql("DELETE FROM remit.record WHERE stream = $1 AND number = $2", stream, at)
    assert names(await database.verdict()) == {Tampering.DELETED}
    # As pruning does it, but without the key.
    digest = leaf("started", *content)  # pyright: ignore[reportArgumentType]
    await database.sql("INSERT INTO remit.removed VALUES ($1, $1, $2)", seq, digest)
    (finding,) = (await database.verdict()).findings
    assert (finding.tampering, finding.first) == (Tampering.DELETED, seq)
    assert "no signed statement" in finding.message


@pytest.mark.parametrize(
    ("keep", "statement"),
    [
        (ALL, "UPDATE remit.removed SET leaves = overlay(leaves PLACING '\\x00' FROM 40) WHERE first = 1"),
        (ALL, "DELETE FROM remit.removed WHERE first = 1"),
        (ALL, "UPDATE remit.record SET body = overlay(body PLACING '4' FROM position('5d' IN body)) WHERE kind = 11"),
        (TEXTS, "UPDATE remit.record SET at_ms = at_ms + 1 WHERE run = 'run-d0n0'"),
    ],
)
async def test_what_is_kept_of_removed_rows_cannot_be_changed(tmp_path: Path, keep: Retention, statement: str) -> None:
    database = await aged(tmp_path)
    await pruned(database, keep)
    assert (await database.verdict()).ok
    await database.sql(statement)
    assert not (await database.verdict()).ok


async def test_a_segment_that_was_tampered_with_is_not_pruned(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    await database.sql("UPDATE remit.record SET at_ms = at_ms + 1 WHERE run = 'run-d0n1' AND kind = 1")
    pruning = await pruned(database, ALL)
    (refused,) = pruning.refused
    assert "was changed" in refused
    assert Tampering.EDITED in names(await database.verdict())
