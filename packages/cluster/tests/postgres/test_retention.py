"""What is older than the rule keeps goes from a database, the chain stays whole, and whoever removes more is found."""

from pathlib import Path

import pytest

from aged_databases import NOW_MS, AgedDatabase, aged
from ages import DAY_MS, Clock, ask
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter, Request
from remit.protocol.records import Kind
from remit.runtime.audit import AuditVerdict, Tampering, leaf
from remit.stores.retention import Retention
from remit.stores.store_upkeep import Pruned, prune
from remit_testing.conformance import a_response
from waiting import eventually

ALL = Retention(records=5 * DAY_MS, messages=5 * DAY_MS, vault=5 * DAY_MS, facts=5 * DAY_MS)
TEXTS = Retention(messages=5 * DAY_MS)


async def pruned(database: AgedDatabase, keep: Retention, *, now_ms: int = NOW_MS, dry: bool = False) -> Pruned:
    return await database.with_upkeep(lambda upkeep: prune(upkeep, keep, dry=dry), now_ms)


def names(verdict: AuditVerdict) -> set[Tampering]:
    return {finding.tampering for finding in verdict.findings}


async def texts(database: AgedDatabase) -> str:
    async with database.opened() as store:
        return " ".join(str(encode(record.body)) for record in await store.records())


async def test_what_is_older_than_the_rule_keeps_goes_and_the_record_verifies(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    before = await database.verdict()
    told = await pruned(database, ALL, dry=True)
    assert await database.verdict() == before
    found = await pruned(database, ALL)
    assert told[:5] == found[:5]
    assert (found.rows, found.values, found.facts) == (6 * 4 * 3, 2 * 6, 2 * 6 * 2)
    verdict = await database.verdict()
    assert verdict.ok, verdict
    assert (verdict.removed, verdict.rows, verdict.unchained) == (found.rows, before.rows + 6, 0)
    said = await texts(database)
    assert "sort d5n0" not in said
    assert "sort d6n0" in said
    # The run that may still go on keeps everything it needs.
    async with database.opened() as store:
        assert [each.kind for each in await store.records(run="run-open-one")] == [Kind.STARTED, Kind.PROGRESS]
        assert await store.unseal("run-open-one")
        assert [each.run for each in await store.runs(limit=100)][-1] == "run-open-one"
    assert (await pruned(database, ALL)).is_empty


async def test_only_the_texts_go_where_records_are_kept_longer(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    found = await pruned(database, TEXTS)
    assert (found.rows, found.texts) == (0, 6 * 4 * 3)
    verdict = await database.verdict()
    assert verdict.ok, verdict
    assert verdict.removed == found.texts
    async with database.opened() as store:
        summaries = {each.run: each for each in await store.runs(limit=100)}
        assert summaries["run-d0n0"].objective == ""
        assert summaries["run-d0n0"].response is not None
        assert isinstance((await store.records(run="run-d0n0"))[0].body, Request)
    assert "half of d0n0" not in await texts(database)
    # Later the rest goes, too.
    later = await pruned(database, Retention(records=8 * DAY_MS, messages=5 * DAY_MS))
    assert (later.rows, later.texts) == (3 * 4 * 3, 0)
    verdict = await database.verdict()
    assert verdict.ok, verdict
    assert verdict.removed == found.texts


async def test_the_words_of_what_was_pruned_are_found_no_more(tmp_path: Path) -> None:
    database = await aged(tmp_path, runs=8, users=("ann",))
    clock = Clock(NOW_MS)
    wanted = ContextFilter(keywords=("d0n7", "d9n7"), last_messages=20)
    async with database.opened(clock) as store:
        assert len(await store.messages("session of ann", wanted, now_ms=NOW_MS, tokens=1_000_000)) == 4
    await pruned(database, TEXTS)
    assert await database.sql("SELECT 1 FROM remit.word WHERE text LIKE '%d0n7%'") == []
    async with database.opened(clock) as store:
        after = await store.messages("session of ann", wanted, now_ms=NOW_MS, tokens=1_000_000)
        assert [each.text for each in after] == ["Please sort d9n7", "sorted d9n7"]
        await ask(store, clock, "later")
        wanted = ContextFilter(keywords=("later",), last_messages=20)
        assert len(await store.messages("session of ann", wanted, now_ms=NOW_MS, tokens=1_000_000)) == 2


async def test_hubs_go_on_while_it_is_pruned_and_one_of_them_prunes_once_a_day(tmp_path: Path) -> None:
    database, clock = await aged(tmp_path), Clock(NOW_MS)
    async with database.opened(clock) as first, database.opened(clock) as second:
        for store in (first, second):
            store.retention = ALL
            await store.sweep(max_attempts=3, keep_ms=DAY_MS)
        # Of a user without old records: while a run is open, nothing of its conversation is removed.
        await ask(first, clock, "meanwhile", user="zoe")

        async def removed() -> bool:
            return (await second.verify()).removed == 6 * 4 * 3

        await eventually(removed)
        assert len(await first.runs(run="run-meanwhile")) == 1
    # Half a day later nobody does.
    clock.now_ms += DAY_MS // 2
    async with database.opened(clock) as third:
        third.retention = Retention(records=1, messages=1)
        await third.sweep(max_attempts=3, keep_ms=DAY_MS)
    verdict = await database.verdict()
    assert (verdict.ok, verdict.removed) == (True, 6 * 4 * 3), verdict


async def test_a_conversation_is_kept_while_a_run_in_it_is_open(tmp_path: Path) -> None:
    database, clock = await aged(tmp_path), Clock(NOW_MS)
    async with database.opened(clock) as store:
        request = await ask(store, clock, "long", ends=False)
        assert (await pruned(database, ALL)).rows == 6 * 2 * 3, "only the records of bob"
        said = await texts(database)
        assert "sort d0n0" in said
        assert "sort d0n1" not in said
        # The next pruning removes the rest.
        await store.finish(request.run, 1, a_response(request), clock())
        assert (await pruned(database, ALL)).rows == 6 * 2 * 3
    assert "sort d0n0" not in await texts(database)
    verdict = await database.verdict()
    assert (verdict.ok, verdict.removed) == (True, 6 * 4 * 3), verdict


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
    found = await pruned(database, ALL)
    (refused,) = found.refused
    assert "was changed" in refused
    assert Tampering.EDITED in names(await database.verdict())
