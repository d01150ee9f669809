"""One chain over the records of all hubs, and attacks on it by someone who can write to the database."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from postgres_server import PostgresServer, shared_server
from remit.protocol.records import Kind, Progress
from remit.runtime.audit import GENESIS, AuditVerdict, Tampering, link
from remit_cluster.postgres.chainer import Head, Unchained, in_order, linked
from remit_cluster.postgres.store import PostgresStore
from remit_testing.samples import LONG_MS, a_request, a_response, progress

HOUR_MS = 3_600_000


class Attacked:
    """A database with a record of an hour ago that was closed."""

    def __init__(self, server: PostgresServer, url: str, key: Path) -> None:
        self.server, self.url, self.key = server, url, key

    async def sql(self, statements: str) -> None:
        connection = await self.server.connect(self.url)
        try:
            await connection.execute(statements)
        finally:
            await connection.close()

    async def verdict(self) -> AuditVerdict:
        """Return what the next hub finds, without what it does about it when it opens the store."""
        store = PostgresStore(self.url, key=self.key)
        await store.open()
        try:
            return await store.verify()
        finally:
            await store.close()

    async def findings(self) -> set[Tampering]:
        return {finding.tampering for finding in (await self.verdict()).findings}


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


_MADE: list[tuple[str, Path]] = []
"""The database of the attacks and its key: emptied for each, because creating one takes longer."""


@pytest.fixture
async def attacked(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    if _MADE:
        await server.emptied(_MADE[0][0])
    else:
        _MADE.append((await server.database(), tmp_path_factory.mktemp("key") / "hub.key"))
    url, key = _MADE[0]
    store = PostgresStore(url, key=key, checkpoint_every=6)
    await store.open()
    begun_ms = time.time_ns() // 1_000_000 - HOUR_MS
    for number in range(20):
        store.append(Kind.PROGRESS, begun_ms + number, "run", "session", progress(str(number)))
        if number % 4 == 3:
            await store.flush()
            await store.records(limit=1)  # brings the chain up to date
    await store.close()
    return Attacked(server, url, key)


def test_streams_are_merged_by_their_transactions_and_each_keeps_its_own_order() -> None:
    rows = [(1, 1, b"a", 10), (1, 2, b"b", 30), (1, 3, b"c", 20), (2, 7, b"d", 15), (2, 8, b"e", 25)]
    assert [each.digest for each in in_order(rows, 100)] == [b"a", b"d", b"e", b"b", b"c"]


def test_what_may_come_after_the_end_of_a_full_page_waits() -> None:
    rows = [(1, 1, b"a", 10), (1, 2, b"b", 20), (2, 1, b"c", 15), (2, 2, b"d", 25)]
    assert [each.digest for each in in_order([*rows, (2, 3, b"e", 25)], 3)] == [b"a", b"c", b"b", b"d", b"e"]
    assert [each.digest for each in in_order(rows, 2)] == [b"a", b"c", b"b"]


def test_blocks_hold_the_digests_of_consecutive_records_of_a_stream() -> None:
    records = [Unchained(1, 5, 1, b"a"), Unchained(1, 5, 2, b"b"), Unchained(2, 6, 1, b"c"), Unchained(3, 5, 4, b"d")]
    blocks = linked(Head(10, GENESIS), records)
    assert [block[:4] for block in blocks] == [(11, 12, 5, 1), (13, 13, 6, 1), (14, 14, 5, 4)]
    first = link(GENESIS, 11, b"a")
    assert blocks[0].digests == first + link(first, 12, b"b")


async def test_a_record_that_nobody_touched_is_whole(attacked: Attacked) -> None:
    verdict = await attacked.verdict()
    assert (verdict.ok, verdict.rows, verdict.unprotected, verdict.unchained) == (True, 20, 0, 0)
    assert verdict.checkpoints >= 3


@pytest.mark.parametrize(
    ("attack", "findings"),
    [
        ('UPDATE remit.record SET body = \'{"text":"x"}\' WHERE number = 3', {Tampering.EDITED}),
        ("UPDATE remit.record SET at_ms = at_ms + 1 WHERE number = 3", {Tampering.EDITED}),
        ("UPDATE remit.record SET session = 'another' WHERE number = 20", {Tampering.EDITED}),
        ("DELETE FROM remit.record WHERE number = 5", {Tampering.DELETED}),
        (
            "UPDATE remit.record SET number = -number WHERE number IN (3, 4);"
            "UPDATE remit.record SET number = 7 + number WHERE number < 0",
            {Tampering.REORDERED},
        ),
        ("UPDATE remit.checkpoint SET signature = repeat('ab', 64) WHERE number = 1", {Tampering.CHECKPOINT_FORGED}),
        ("DELETE FROM remit.checkpoint WHERE number = 1", {Tampering.CHECKPOINT_MISSING}),
        ("DELETE FROM remit.checkpoint WHERE number > 1", {Tampering.CHECKPOINT_MISSING, Tampering.BREAK_ANNOUNCED}),
        ("UPDATE remit.chain SET digests = overlay(digests placing '\\x00' from 40) WHERE first = 1", None),
        (
            "DELETE FROM remit.chain WHERE first > 10",
            {Tampering.TRUNCATED, Tampering.BREAK_ANNOUNCED},
        ),
    ],
)
async def test_a_change_of_rows_chain_or_checkpoints_is_found(
    attacked: Attacked, attack: str, findings: set[Tampering] | None
) -> None:
    await attacked.sql(attack)
    reported = await attacked.findings()
    assert reported if findings is None else findings <= reported


async def test_a_part_of_the_record_is_held_to_the_chain(attacked: Attacked) -> None:
    await attacked.sql("UPDATE remit.record SET at_ms = at_ms + 1 WHERE number = 7")
    store = PostgresStore(attacked.url, key=attacked.key)
    await store.open()
    try:
        intact = await store.chain.intact(5, 9)
    finally:
        await store.close()
    assert intact == {5: True, 6: True, 7: False, 8: True, 9: True}


async def test_hashing_everything_anew_is_found_by_the_checkpoints(attacked: Attacked) -> None:
    """An attacker who knows how the chain is made, and lacks the key."""
    connection = await attacked.server.connect(attacked.url)
    await connection.execute("UPDATE remit.record SET digest = sha256('x') WHERE number = 3")
    await connection.execute("DELETE FROM remit.chain")
    await connection.execute("UPDATE remit.stream SET chained = 0, closed = false")
    await connection.close()
    findings = await attacked.findings()
    assert Tampering.BREAK_ANNOUNCED in findings
    assert findings & {Tampering.REWRITTEN, Tampering.TRUNCATED, Tampering.EDITED}


async def test_a_record_that_vanishes_before_it_is_chained_is_found(attacked: Attacked) -> None:
    """The moment in which a thief of the database can do most: see the page one-chain-for-many-hubs."""
    await attacked.sql(
        "INSERT INTO remit.stream (id, opened_ms, batch, number) VALUES (77, 1, 2, 2);"
        "INSERT INTO remit.record (stream, number, kind, at_ms, run, session, body, digest)"
        " SELECT 77, 2, kind, at_ms, run, session, body, digest FROM remit.record WHERE number = 1"
    )
    assert Tampering.DELETED in await attacked.findings()


async def test_a_break_is_announced_once_and_the_next_hub_signs_from_there(
    attacked: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    await attacked.sql("DELETE FROM remit.checkpoint WHERE number = (SELECT max(number) FROM remit.checkpoint)")
    first = await attacked.verdict()
    assert "THE AUDIT CHAIN IS BROKEN (checkpoint missing)" in caplog.text
    caplog.clear()
    second = await attacked.verdict()
    assert "BROKEN" not in caplog.text
    assert second.rows == first.rows == 21


async def test_records_of_several_hubs_at_once_are_one_chain(server: PostgresServer, tmp_path: Path) -> None:
    url, key = await server.database(), tmp_path / "hub.key"
    stores = [PostgresStore(url, key=key, checkpoint_every=50) for _ in range(3)]
    for store in stores:
        await store.open()

    async def work(place: int, store: PostgresStore) -> None:
        chance = random.Random(place)
        for number in range(40):
            request = a_request(f"{place}-{number}")
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            for step in range(chance.randrange(4)):
                store.append(Kind.PROGRESS, step, request.run, request.session or "", progress(f"{place} {number}"))
            assert await store.finish(request.run, 1, a_response(request), 7)

    async with asyncio.TaskGroup() as group:
        for place, store in enumerate(stores):
            group.create_task(work(place, store))
    everything = [await store.records(limit=10_000) for store in stores]
    assert everything[0] == everything[1] == everything[2]
    assert [record.seq for record in everything[0]] == list(range(1, len(everything[0]) + 1))
    for place in range(3):
        texts = [each.body.text for each in everything[0] if isinstance(each.body, Progress)]
        own = [text for text in texts if text.startswith(f"{place} ")]
        assert own == sorted(own, key=lambda text: int(text.split()[1]))
    for store in stores:
        await store.close()
    after = PostgresStore(url, key=key)
    await after.open()
    verdict = await after.verify()
    await after.close()
    assert (verdict.ok, verdict.rows, verdict.unprotected, verdict.unchained) == (True, len(everything[0]), 0, 0)


async def test_verification_says_how_many_records_are_not_chained_yet(server: PostgresServer, tmp_path: Path) -> None:
    url, key = await server.database(), tmp_path / "hub.key"
    store = PostgresStore(url, key=key)
    await store.open()
    connection = await server.connect(url)
    async with connection.transaction():
        # Nobody chains while the lock is held elsewhere; commits go on.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", 0x526D6974_00000002)
        for number in range(3):
            store.append(Kind.PROGRESS, 1, "run", "session", progress(str(number)))
        await store.flush()
        verdict = await store.verify()
        assert (verdict.ok, verdict.rows, verdict.unchained) == (True, 0, 3)
        assert "3 records not in the chain yet" in str(verdict)
    await connection.close()
    await store.close()


async def test_a_hub_hears_what_another_hub_finished(server: PostgresServer, tmp_path: Path) -> None:
    url, key = await server.database(), tmp_path / "hub.key"
    first, second = PostgresStore(url, key=key), PostgresStore(url, key=key)
    await first.open()
    await second.open()
    await first.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(second.wait("run-one"))
        await asyncio.sleep(0)
        await first.finish("run-one", 1, a_response(a_request()), 1)
    assert waiting.result() == a_response(a_request())
    await second.close()
    await first.close()
