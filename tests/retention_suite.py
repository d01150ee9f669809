"""What every store promises about removal: of what is too old, and of everything of a user."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from msgspec.structs import replace

from ages import DAY_MS, Clock, ask
from remit.ports import FACTS, SealedValue, Store, StoreError
from remit.ports.keys import HubKeys
from remit.ports.upkeep import Erased, Pruned, RetainingStore, Retention
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter, Request
from remit.protocol.errors import TABLE, Code
from remit.protocol.records import Kind, Refusal
from remit.runtime.audit import AuditVerdict
from remit_cli.upkeep.store_upkeep import StoreUpkeep, subject_of
from remit_testing.samples import a_request, a_response
from waiting import eventually

ALL = Retention(records=5 * DAY_MS, messages=5 * DAY_MS, vault=5 * DAY_MS, facts=5 * DAY_MS)
TEXTS = Retention(messages=5 * DAY_MS)
KEYS = HubKeys(b"secret")

T = TypeVar("T")


class RemovingStore(Store, RetainingStore, Protocol):
    """A store of either engine."""

    async def erase(self, user: str) -> Erased: ...

    async def verify(self) -> AuditVerdict: ...


class AgedStore(Protocol):
    """A store whose records were written over ten days."""

    now_ms: int

    def opened(self, clock: Clock | None = None) -> AbstractAsyncContextManager[RemovingStore]: ...

    async def with_upkeep(self, work: Callable[[StoreUpkeep], T], now_ms: int | None = None) -> T: ...

    async def verdict(self) -> AuditVerdict: ...


async def pruned(aged: AgedStore, keep: Retention, *, now_ms: int | None = None, dry: bool = False) -> Pruned:
    return await aged.with_upkeep(lambda upkeep: upkeep.prune(keep, dry=dry), now_ms)


async def erased(aged: AgedStore, user: str) -> Erased:
    return await aged.with_upkeep(lambda upkeep: upkeep.erase(user, KEYS))


async def exported(aged: AgedStore, user: str) -> dict[str, list[str]]:
    exported_rows: dict[str, list[str]] = {}
    for what, content in await aged.with_upkeep(lambda upkeep: list(upkeep.kept_about(user, KEYS))):
        exported_rows.setdefault(what, []).append(encode(content).decode())
    return exported_rows


async def contents(aged: AgedStore) -> str:
    async with aged.opened() as store:
        records = " ".join(encode(record).decode() for record in await store.records(limit=10_000))
        return f"{records} {await store.facts('ann')} {await store.notes('session of ann')}"


async def verified(aged: AgedStore, removed: int) -> None:
    """Check that the record is intact, and how much was removed from it."""
    verdict = await aged.verdict()
    assert (verdict.ok, verdict.removed) == (True, removed), verdict


class RetentionSuite:
    """A class of tests for each engine; `aged` gives its store."""

    async def aged(self, folder: Path, *, runs: int = 4, users: tuple[str, ...] = ("ann", "bob")) -> AgedStore:
        raise NotImplementedError

    # ── by age ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_what_is_older_than_the_rule_keeps_goes_and_the_record_verifies(self, tmp_path: Path) -> None:
        """Y1: texts go after their time, and `verify` still proves that nothing else was removed."""
        aged = await self.aged(tmp_path)
        before = await aged.verdict()
        planned = await pruned(aged, ALL, dry=True)
        assert await aged.verdict() == before
        done = await pruned(aged, ALL)
        assert planned[:5] == done[:5]
        assert (done.rows, done.values, done.facts, done.bytes > 0) == (6 * 4 * 3, 2 * 6, 2 * 6 * 2, True)
        verdict = await aged.verdict()
        # A statement for each day.
        assert (verdict.ok, verdict.removed, verdict.rows, verdict.unchained) == (True, done.rows, before.rows + 6, 0)
        text = await contents(aged)
        assert "sort d5n0" not in text
        assert "sort d6n0" in text
        assert (await pruned(aged, ALL)).is_empty

    async def test_the_run_that_may_still_go_on_keeps_everything_it_needs(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path)
        await pruned(aged, ALL)
        async with aged.opened() as store:
            assert [each.kind for each in await store.records(run="run-open-one")] == [Kind.STARTED, Kind.PROGRESS]
            assert await store.unseal("run-open-one")
            (summary,) = await store.runs(run="run-open-one")
            assert (summary.objective, summary.response) == ("Please sort open-one", None)

    async def test_only_the_texts_go_where_records_are_kept_longer(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path)
        done = await pruned(aged, TEXTS)
        assert (done.rows, done.texts) == (0, 6 * 4 * 3)
        await verified(aged, done.texts)
        async with aged.opened() as store:
            summaries = {each.run: each for each in await store.runs(limit=100)}
            assert summaries["run-d0n0"].objective == ""
            assert summaries["run-d0n0"].agent == summaries["run-d9n0"].agent
            assert summaries["run-d0n0"].response is not None
            assert isinstance((await store.records(run="run-d0n0"))[0].body, Request)
        assert "half of d0n0" not in await contents(aged)
        # Later the rest goes, too.
        later = await pruned(aged, Retention(records=8 * DAY_MS, messages=5 * DAY_MS))
        assert (later.rows, later.texts) == (3 * 4 * 3, 0)
        await verified(aged, done.texts)

    async def test_the_words_of_what_was_pruned_are_found_no_more(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path, runs=20, users=("ann",))
        now_ms, clock = aged.now_ms, Clock(aged.now_ms)
        wanted = ContextFilter(keywords=("d0n19", "d9n19"), last_messages=500)
        async with aged.opened(clock) as store:
            assert len(await store.messages("session of ann", wanted, now_ms=now_ms, tokens=1_000_000)) == 4
        await pruned(aged, TEXTS)
        async with aged.opened(clock) as store:
            after = await store.messages("session of ann", wanted, now_ms=now_ms, tokens=1_000_000)
            assert [each.text for each in after] == ["Please sort d9n19", "sorted d9n19"]
            # And what is said later is indexed as before.
            await ask(store, clock, "later")
            wanted = ContextFilter(keywords=("later",), last_messages=500)
            assert len(await store.messages("session of ann", wanted, now_ms=now_ms, tokens=1_000_000)) == 2

    async def test_a_conversation_is_kept_while_a_run_in_it_is_open(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path)
        clock = Clock(aged.now_ms)
        async with aged.opened(clock) as store:
            request = await ask(store, clock, "long", ends=False)
            assert (await pruned(aged, ALL)).rows == 6 * 2 * 3, "only the records of bob"
            text = await contents(aged)
            assert "sort d0n0" in text
            assert "sort d0n1" not in text
            # The next pruning removes the rest.
            await store.finish(request.run, 1, a_response(request), clock())
            assert (await pruned(aged, ALL)).rows == 6 * 2 * 3
        assert "sort d0n0" not in await contents(aged)
        await verified(aged, 6 * 4 * 3)

    async def test_hubs_go_on_while_one_of_them_prunes_once_a_day(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path)
        clock = Clock(aged.now_ms)
        async with aged.opened(clock) as first, aged.opened(clock) as second:
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
        async with aged.opened(clock) as third:
            third.retention = Retention(records=1, messages=1)
            await third.sweep(max_attempts=3, keep_ms=DAY_MS)
        await verified(aged, 6 * 4 * 3)

    # ── of a user ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_user_gets_everything_that_is_kept_about_them_and_nothing_else(self, tmp_path: Path) -> None:
        """Y11: the export holds what the store holds about a user."""
        aged = await self.aged(tmp_path)
        kept = await exported(aged, "ann")
        counts = {what: len(lines) for what, lines in kept.items()}
        # Those of the conversation, and of each run whose outcome is not forgotten by the clock of the engine.
        assert counts.pop("value") >= 10
        assert counts == {"record": 60, "fact": 10, "note": 10, "session": 1, "request": 20}
        everything = " ".join(line for lines in kept.values() for line in lines)
        assert "d0n0" in everything
        assert "d0n1" not in everything
        assert await exported(aged, "nobody") == {}

    async def test_an_erased_user_is_gone_and_the_record_stays_whole(self, tmp_path: Path) -> None:
        """Y10: everything of a user goes, nothing of others, and that it was done is on record."""
        aged = await self.aged(tmp_path)
        scope = f"{FACTS}{KEYS.digest(b'ann').hex()}"
        async with aged.opened() as store:
            store.seal(scope, [SealedValue("<NAME_1>", KEYS.lock(b'"Ann"', f"{scope} <NAME_1>"), True)])
            for user in ("ann", "bob"):
                refused = a_request("refused")
                refused = replace(refused, objective=f"of {user}, too", remit=replace(refused.remit, user=user))
                body = Refusal(request=refused, response=a_response(refused, "no"))
                store.append(Kind.REFUSED, aged.now_ms, "run-refused", "elsewhere", body)
        assert '"value":"Ann"' in " ".join((await exported(aged, "ann"))["value"])
        done = await erased(aged, "ann")
        assert (done.rows, done.facts, done.refused) == (10 * 2 * 3 + 1, 10, ())
        await verified(aged, done.rows)
        text = await contents(aged)
        async with aged.opened() as store:
            assert len(await store.runs(limit=99)) == 21
        assert all(each not in text for each in ('"user":"ann"', "session of ann", "ann likes", "of ann, too"))
        assert text.count("Please sort") == 21
        assert await aged.with_upkeep(lambda upkeep: subject_of(upkeep.key, "ann")) == done.subject
        assert done.subject in text
        assert await exported(aged, "ann") == {}

    async def test_erasing_after_pruning_and_pruning_after_erasing(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path)
        clock = Clock(aged.now_ms)
        await pruned(aged, TEXTS)
        async with aged.opened(clock) as store:
            assert (await store.erase("ann")).rows == 60
            assert (await store.verify()).ok
        assert (await pruned(aged, Retention(records=5 * DAY_MS))).rows == 36
        await verified(aged, 96)
        async with aged.opened(clock) as store:
            await ask(store, clock, "later", user="ann")
        assert (await erased(aged, "ann")).rows == 3
        assert (await aged.verdict()).ok

    async def test_a_user_with_an_open_run_is_not_erased(self, tmp_path: Path) -> None:
        aged = await self.aged(tmp_path)
        with pytest.raises(StoreError, match="run run-open-one of this user is not over") as raised:
            await erased(aged, "eve")
        assert (raised.value.fault.code, TABLE[raised.value.fault.code].status) == (Code.USER_HAS_OPEN_RUN, 409)
        assert (await exported(aged, "eve"))["record"]
