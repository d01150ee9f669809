"""What every store must do, as tests that anyone can run on a store of their own.

    class TestMyStore(StoreConformance):
        async def make(self) -> Store:
            return MyStore(...)

Run it with pytest and pytest-asyncio (`asyncio_mode = "auto"`). A test gets a store that is open, and closes it.
"""

import asyncio

from msgspec.structs import replace

from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, ChainBreak, Kind, Notice, Record, Refusal, ToolUse
from remit.runtime.ports import (
    MOST_FACTS,
    AcceptedRequest,
    DuplicateRequest,
    NumberedRecord,
    OrphanedRun,
    ReusedProof,
    RunScope,
    RunState,
    RunSummary,
    SessionOwner,
    SingleUseProof,
    Store,
)
from remit.testing.asking import AskingConformance
from remit.testing.conversing import ConversingConformance
from remit.testing.samples import (
    LONG_MS,
    NEVER_MS,
    OVER_MS,
    PATIENCE,
    a_question,
    a_request,
    a_response,
    a_step,
    code_of,
    progress,
    texts,
)

__all__ = [
    "LONG_MS",
    "NEVER_MS",
    "OVER_MS",
    "PATIENCE",
    "StoreConformance",
    "a_question",
    "a_request",
    "a_response",
    "a_step",
    "code_of",
    "progress",
    "texts",
]


class StoreConformance(AskingConformance, ConversingConformance):
    """The promises of `remit.runtime.ports.Store`, one test each."""

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_what_was_appended_and_flushed_can_be_read_in_order(self) -> None:
        async with self.opened() as store:
            for number in range(250):
                store.append(Kind.PROGRESS, number, "run-one", "session-one", progress(f"step {number}"))
            await store.flush()
            found = await store.records(run="run-one")
        assert texts(found) == [f"step {number}" for number in range(250)]
        assert [record.at_ms for record in found] == list(range(250))

    async def test_records_are_numbered_without_gaps_from_one(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            await store.finish("run-one", 1, a_response(a_request()), 2)
            assert [record.seq for record in await store.records()] == [1, 2, 3]

    async def test_every_kind_of_body_comes_back_as_it_was_appended(self) -> None:
        request = a_request()
        bodies = {
            Kind.STARTED: request,
            Kind.DELEGATION: request,
            Kind.PROGRESS: progress("“half” \x00\\ 半 \U0001f600"),
            Kind.TOOL: ToolUse(
                delegation="d", agent="a", tool="t", input={"n": [1, -2.5, 1e300, 2**53 - 1, None, True]}
            ),
            Kind.NOTICE: Notice(delegation="d", agent="a", text="late", code=Code.TIMEOUT),
            Kind.RESULT: a_response(request, {"deep": [{"x": ""}], "ö": 0.1}),
            Kind.REFUSED: Refusal(request=request, response=a_response(request)),
            Kind.APPROVAL: Approval(delegation="d", agent="a", id="q", question="May it?", agreed=True, by="ann"),
            Kind.SHARED: a_step(),
            Kind.BREAK: ChainBreak(finding="key changed", text="a new key", old_key="aa", new_key="bb"),
        }
        async with self.opened() as store:
            for kind, body in bodies.items():
                store.append(kind, 5, "run", "session", body)
            await store.flush()
            found = await store.records()
        assert {record.kind: record.body for record in found} == bodies

    async def test_what_stands_in_another_log_is_recorded_once(self) -> None:
        entries = [
            NumberedRecord(number, Kind.SHARED, number, "run", "session", a_step(turn=number)) for number in range(1, 8)
        ]
        async with self.opened() as store:
            assert await store.transfer("one", ()) == 0
            assert await store.transfer("one", entries[:3]) == 3
            assert await store.transfer("one", entries[1:5]) == 5
            assert await store.transfer("one", entries[:2]) == 5
            assert await store.transfer("other", entries[6:]) == 7
            assert await store.transfer("one", ()) == 5
            assert [(record.seq, record.body) for record in await store.records(run="run")] == [
                (seq, a_step(turn=turn)) for seq, turn in enumerate((1, 2, 3, 4, 5, 7), start=1)
            ]

    async def test_how_far_another_log_was_recorded_is_known_after_a_restart(self) -> None:
        entries = [NumberedRecord(number, Kind.SHARED, 4, "run", "session", a_step()) for number in (3, 8)]
        async with self.opened() as store:
            await store.transfer("one", entries)
        async with self.opened(await self.reopen(store)) as store:
            assert await store.transfer("one", entries) == 8
            assert len(await store.records()) == 2

    async def test_what_comes_of_another_log_is_heard_like_any_record(self) -> None:
        heard: list[Record] = []
        async with self.opened() as store:
            leave = store.listen(heard.extend)
            await store.transfer("one", [NumberedRecord(1, Kind.SHARED, 4, "run", "session", a_step())])
            await store.flush()
            await asyncio.sleep(0)
            leave()
        assert heard == [Record(seq=1, kind=Kind.SHARED, at_ms=4, run="run", session="session", body=a_step())]

    async def test_records_of_one_run_or_session_are_found_page_by_page(self) -> None:
        async with self.opened() as store:
            for number in range(30):
                run, session = f"run-{number % 3}", f"session-{number % 2}"
                store.append(Kind.PROGRESS, number, run, session, progress(str(number)))
            await store.flush()
            assert texts(await store.records(run="run-1", limit=3)) == ["1", "4", "7"]
            assert texts(await store.records(run="run-1", after=8, limit=2)) == ["10", "13"]
            assert texts(await store.records(session="session-1", after=26)) == ["27", "29"]
            assert texts(await store.records(run="run-0", session="session-1")) == ["3", "9", "15", "21", "27"]
            assert await store.records(run="nobody's") == []

    async def test_of_the_newest_records_it_is_known_who_was_asked_and_how_it_ended_but_not_what_was_said(self) -> None:
        asked = replace(a_request(), input={"much": ["more"]}, capability="SORT")
        ended = a_response(asked, "x" * 1_000)
        async with self.opened() as store:
            for number in range(250):
                store.append(Kind.DELEGATION, number, f"run-{number}", "session-one", asked)
                store.append(Kind.PROGRESS, number, f"run-{number}", "session-one", progress("half"))
                store.append(Kind.RESULT, number, f"run-{number}", "session-one", ended)
            await store.flush()
            everything, some = await store.recent(10_000), await store.recent(4)
            assert await store.recent(0) == []
        silent = replace(asked, objective="", input=None), replace(ended, result=None)
        assert [(each.at_ms, each.body) for each in everything] == [(at, body) for at in range(250) for body in silent]
        assert some == everything[-3:]

    async def test_listeners_get_every_committed_record_in_order_until_they_leave(self) -> None:
        heard: list[Record] = []
        enough = asyncio.Event()

        def listener(records: list[Record]) -> None:
            heard.extend(records)
            if len(heard) >= 3:
                enough.set()

        async with self.opened() as store:
            leave = store.listen(listener)
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            await store.finish("run-one", 1, a_response(a_request()), 2)
            async with asyncio.timeout(PATIENCE):
                await enough.wait()
            leave()
            store.append(Kind.PROGRESS, 3, "run-one", "session-one", progress("unheard"))
            await store.flush()
            assert heard == (await store.records())[:3]

    async def test_a_listener_hears_of_a_record_though_nobody_flushes(self) -> None:
        heard = asyncio.Event()
        async with self.opened() as store:
            store.listen(lambda _: heard.set())
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            async with asyncio.timeout(PATIENCE):
                await heard.wait()

    async def test_there_is_room_again_after_a_flood(self) -> None:
        async with self.opened() as store:
            for number in range(10_000):
                if store.full:
                    async with asyncio.timeout(PATIENCE):
                        await store.room()
                store.append(Kind.PROGRESS, number, "run-one", "session-one", progress("x"))
            await store.flush()
            assert not store.full
            assert len(await store.records(limit=20_000)) == 10_000

    async def test_closing_keeps_everything_that_was_appended(self) -> None:
        """K13: session state survives a restart."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            store.journal("run-one", 1, "step", b"value")
            store.remember("u-1", "run-one", ("likes tea",))
            await store.session("given", "u-2", "tag")
            await store.cas("key", 0, b"value")
        async with self.opened(await self.reopen(store)) as store:
            assert texts(await store.records()) == ["half"]
            assert await store.load("run-one") == {"step": b"value"}
            assert await store.facts("u-1") == ("likes tea",)
            assert await store.session("given", "u-1", "prime") == SessionOwner("u-2", "tag")
            assert await store.get("key") == (1, b"value")
            assert await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS) == DuplicateRequest(
                "run-one", True, None
            )

    async def test_a_closed_store_says_so(self) -> None:
        store = await self.make()
        await store.open()
        await store.close()
        for attempt in (store.flush(), store.records(), store.submit(a_request(), b"", worker="w", lease_ms=1)):
            assert await code_of(attempt) is Code.STORE_UNAVAILABLE

    async def test_closing_twice_is_closing_once(self) -> None:
        async with self.opened() as store:
            await store.close()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_new_request_is_accepted_and_recorded(self) -> None:
        """X13: who asks whom, for which user and what is in the record from the start."""
        request = a_request()
        async with self.opened() as store:
            assert await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS) == AcceptedRequest(1)
            assert await store.records() == [
                Record(seq=1, kind=Kind.STARTED, at_ms=1_000, run="run-one", session="session-one", body=request)
            ]

    async def test_a_request_that_is_known_is_not_accepted_again(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            again = a_request("other", id="id-one")
            assert await store.submit(again, b"digest", worker="w", lease_ms=LONG_MS) == DuplicateRequest(
                "run-one", True, None
            )
            assert await store.submit(again, b"another", worker="w", lease_ms=LONG_MS) == DuplicateRequest(
                "run-one", False, None
            )
            assert len(await store.records()) == 1

    async def test_the_same_id_of_another_user_or_origin_is_another_request(self) -> None:
        async with self.opened() as store:
            for place, (user, origin) in enumerate((("u-1", "user"), ("u-2", "user"), ("u-1", "peer"))):
                request = a_request(str(place), id="same", user=user, origin=origin)
                assert await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS) == AcceptedRequest(1)

    async def test_the_same_id_brought_by_another_is_another_request(self) -> None:
        """Decision 6: ids are their sender's own, and two senders do not know of each other's."""
        async with self.opened() as store:
            for place, via in enumerate((None, "web", "app")):
                request = replace(a_request(str(place), id="same"), via=via)
                assert await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS) == AcceptedRequest(1)
                assert await store.find(request, b"digest") == DuplicateRequest(request.run, True, None)

    async def test_of_many_that_submit_the_same_request_at_once_one_is_accepted(self) -> None:
        answers: list[AcceptedRequest | DuplicateRequest | ReusedProof] = []

        async def submit(store: Store) -> None:
            answers.append(await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS))

        async with self.opened() as store, asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(submit(store))
        assert sorted(answers, key=len) == [AcceptedRequest(1)] + [DuplicateRequest("run-one", True, None)] * 19

    async def test_what_counts_once_submits_one_request(self) -> None:
        """The proof of a hub: remembered in the step that submits the request, until it could not be used any more."""
        once, another = SingleUseProof("proof:1", 10**14), SingleUseProof("proof:2", 10**14)
        first, second = a_request(), a_request("two", id="second")
        async with self.opened() as store:
            assert await store.submit(first, b"d", worker="w", lease_ms=LONG_MS, once=once) == AcceptedRequest(1)
            for request in (first, second):
                found = await store.submit(request, b"d", worker="w", lease_ms=LONG_MS, once=once)
                assert isinstance(found, ReusedProof)
            assert await store.find(second, b"d") is None
            known = await store.submit(first, b"d", worker="w", lease_ms=LONG_MS, once=another)
            assert known == DuplicateRequest(first.run, True, None)
            assert await store.incr(another.key, 1, another.until_ms) == 2

    async def test_a_finished_request_is_answered_from_the_store(self) -> None:
        request = a_request()
        response = a_response(request, {"n": 1})
        async with self.opened() as store:
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.finish("run-one", 1, response, 7)
            assert await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS) == DuplicateRequest(
                "run-one", True, response
            )
            last = (await store.records())[-1]
        assert last == Record(seq=2, kind=Kind.RESULT, at_ms=7, run="run-one", session="session-one", body=response)

    async def test_an_outcome_that_is_not_kept_lets_the_same_request_come_again(self) -> None:
        """A request that was never begun may be sent again under its id; what happened stays in the record."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.finish("run-one", 1, a_response(a_request()), 7, keep=False)
            assert await store.find(a_request(), b"digest") is None
            assert [record.kind for record in await store.records(run="run-one")] == [Kind.STARTED, Kind.RESULT]

    async def test_what_is_known_of_a_request_can_be_asked_without_submitting_it(self) -> None:
        async with self.opened() as store:
            assert await store.find(a_request(), b"digest") is None
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.find(a_request(), b"digest") == DuplicateRequest("run-one", True, None)
            assert await store.find(a_request(), b"another") == DuplicateRequest("run-one", False, None)

    async def test_to_ask_whose_a_session_is_gives_it_to_nobody(self) -> None:
        async with self.opened() as store:
            assert await store.owner("free") is None
            assert await store.session("free", "u-2", "tag") == SessionOwner("u-2", "tag")
            assert await store.owner("free") == SessionOwner("u-2", "tag")

    async def test_a_request_is_finished_once(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.finish("run-one", 1, a_response(a_request(), "first"), 1)
            assert not await store.finish("run-one", 1, a_response(a_request(), "second"), 2)
            assert (await store.wait("run-one")).result == "first"
            assert len(await store.records()) == 2

    async def test_what_was_never_submitted_cannot_be_finished(self) -> None:
        async with self.opened() as store:
            assert not await store.finish("run-one", 1, a_response(a_request()), 1)
            assert await store.records() == []

    async def test_a_claimed_request_cannot_be_claimed_before_its_lease_ends(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.claim("run-one", "other", LONG_MS) is None

    async def test_one_of_two_workers_takes_up_what_expired(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS)
            assert await store.claim("run-one", "first", LONG_MS) == 2
            assert await store.claim("run-one", "second", LONG_MS) is None

    async def test_a_worker_that_was_replaced_can_no_longer_finish_or_note_anything(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="slow", lease_ms=OVER_MS)
            await store.claim("run-one", "quick", LONG_MS)
            store.journal("run-one", 1, "step", b"stale")
            store.journal("run-one", 2, "step", b"fresh")
            store.journal("run-one", 1, "step", b"stale again")
            assert not await store.finish("run-one", 1, a_response(a_request(), "stale"), 1)
            assert await store.load("run-one") == {"step": b"fresh"}
            assert await store.finish("run-one", 2, a_response(a_request(), "fresh"), 2)
            assert (await store.wait("run-one")).result == "fresh"

    async def test_a_heartbeat_keeps_what_its_worker_has_claimed(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request("one"), b"digest", worker="alive", lease_ms=OVER_MS)
            await store.submit(a_request("two"), b"digest", worker="dead", lease_ms=OVER_MS)
            await store.heartbeat("alive", LONG_MS)
            assert await store.claim("run-one", "other", LONG_MS) is None
            assert await store.claim("run-two", "other", LONG_MS) == 2

    async def test_what_is_finished_cannot_be_claimed(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS)
            await store.finish("run-one", 1, a_response(a_request()), 1)
            assert await store.claim("run-one", "other", LONG_MS) is None
            assert await store.claim("run-unknown", "other", LONG_MS) is None

    async def test_a_sweep_returns_what_expired_until_someone_claims_it(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request("one"), b"digest", worker="w", lease_ms=OVER_MS)
            await store.submit(a_request("two"), b"digest", worker="w", lease_ms=LONG_MS)
            expired = [OrphanedRun("run-one", a_request("one"))]
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == expired
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == expired
            await store.claim("run-one", "other", LONG_MS)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == []

    async def test_what_expires_again_and_again_ends_with_an_unknown_outcome(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS)
            await store.claim("run-one", "other", OVER_MS)
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == []
            response = await store.wait("run-one")
            assert response.status is Status.FAILED
            assert response.fault is not None
            assert response.fault.code is Code.OUTCOME_UNKNOWN
            last = (await store.records())[-1]
            assert (last.kind, last.session, last.body) == (Kind.RESULT, "session-one", response)
            assert not await store.finish("run-one", 2, a_response(a_request()), 1)

    async def test_the_id_of_a_forgotten_outcome_may_be_used_again(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            await store.finish("run-one", 1, a_response(a_request()), 1)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS * 24 * 365 * 1_000) == []
            known = await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            assert isinstance(known, DuplicateRequest)
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            assert len(await store.records()) == 2
            assert await store.submit(a_request(), b"new digest", worker="w", lease_ms=LONG_MS) == AcceptedRequest(1)
            assert len(await store.runs()) == 2

    async def test_waiting_ends_when_the_outcome_comes(self) -> None:
        request = a_request()
        async with self.opened() as store:
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                waits = [group.create_task(store.wait("run-one")) for _ in range(3)]
                await asyncio.sleep(0)
                await store.finish("run-one", 1, a_response(request), 1)
            assert [wait.result() for wait in waits] == [a_response(request)] * 3

    async def test_waiting_for_what_has_ended_returns_at_once(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            await store.finish("run-one", 1, a_response(a_request()), 1)
            assert await store.wait("run-one") == a_response(a_request())

    async def test_nobody_waits_for_ever_for_a_run_that_was_never_submitted(self) -> None:
        async with self.opened() as store:
            async with asyncio.timeout(PATIENCE):
                assert await code_of(store.wait("run-unknown")) is Code.OUTCOME_UNKNOWN

    # ── journal ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_later_value_of_a_step_replaces_the_earlier(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "a", b"begun")
            store.journal("run-one", 1, "b", b"\x00\xff")
            store.journal("run-one", 1, "a", b"done")
            await store.flush()
            assert await store.load("run-one") == {"a": b"done", "b": b"\x00\xff"}
            assert await store.load("run-other") == {}

    async def test_a_step_that_is_noted_before_its_effects_is_durable_with_what_was_appended_before(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            assert await store.journal_durably("run-one", 1, "a", b"begun")
            assert await store.load("run-one") == {"a": b"begun"}
            assert texts(await store.records()) == ["half"]
            store.journal("run-one", 1, "a", b"done")
            await store.flush()
            assert await store.load("run-one") == {"a": b"done"}

    async def test_whoever_lost_a_run_is_told_before_it_begins_anything_more(self) -> None:
        """Decision 4: two hubs that both believe to have a run do not both carry out its next step."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="slow", lease_ms=OVER_MS)
            await store.claim("run-one", "quick", LONG_MS)
            assert not await store.journal_durably("run-one", 1, "a", b"stale")
            assert await store.journal_durably("run-one", 2, "a", b"fresh")
            assert not await store.journal_durably("run-other", 1, "a", b"nobody's")
            await store.finish("run-one", 2, replace(a_response(a_request()), status=Status.PARTIAL), 1)
            assert not await store.journal_durably("run-one", 2, "b", b"late")
            assert await store.load("run-one") == {"a": b"fresh"}

    async def test_the_journal_of_a_run_that_did_not_succeed_is_known_until_its_outcome_is_forgotten(self) -> None:
        """Whoever tries it again need not do again what was done."""
        failed = replace(a_response(a_request()), status=Status.PARTIAL)
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "a", b"done")
            await store.finish("run-one", 1, failed, 1)
            store.journal("run-one", 1, "b", b"late")
            await store.flush()
            assert await store.load("run-one") == {"a": b"done"}
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            assert await store.load("run-one") == {}

    async def test_the_journal_of_a_finished_run_is_gone_and_stays_gone(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "a", b"done")
            await store.finish("run-one", 1, a_response(a_request()), 1)
            store.journal("run-one", 1, "b", b"late")
            await store.flush()
            assert await store.load("run-one") == {}

    # ── counters ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_counter_adds_up_within_its_window(self) -> None:
        async with self.opened() as store:
            assert [await store.incr("key", n, LONG_MS) for n in (1, 2, 3)] == [1, 3, 6]
            assert await store.incr("other", 1, LONG_MS) == 1

    async def test_a_value_is_written_only_at_the_revision_that_its_writer_has_seen(self) -> None:
        async with self.opened() as store:
            assert await store.get("key") is None
            assert await store.cas("key", 1, b"too early") is None
            assert await store.cas("key", 0, b"first") == 1
            assert await store.cas("key", 0, b"too late") is None
            assert await store.get("key") == (1, b"first")
            assert await store.cas("key", 1, b"second") == 2
            assert await store.get("key") == (2, b"second")

    async def test_of_many_that_write_at_once_one_gets_through(self) -> None:
        async with self.opened() as store, asyncio.TaskGroup() as group:
            writes = [group.create_task(store.cas("key", 0, bytes([n]))) for n in range(10)]
        assert sorted(write.result() or 0 for write in writes) == [0] * 9 + [1]

    # ── archive ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_session_belongs_to_the_first_who_asks_for_it(self) -> None:
        async with self.opened() as store:
            assert await store.session("s", "u-1", "prime") == SessionOwner("u-1", "prime")
            assert await store.session("s", "u-2", "tag") == SessionOwner("u-1", "prime")

    async def test_a_session_in_use_belongs_to_the_user_and_agent_of_its_first_request(self) -> None:
        """X16: a child session is the callee's conversation with that user."""
        async with self.opened() as store:
            store.append(Kind.DELEGATION, 1, "run", "session-one", a_request())
            assert await store.session("session-one", "u-2", "tag") == SessionOwner("u-1", "prime")

    async def test_runs_are_listed_newest_first_and_by_user(self) -> None:
        async with self.opened() as store:
            for name, user in (("one", "u-1"), ("two", "u-2"), ("three", "u-1")):
                await store.submit(a_request(name, user=user), b"digest", worker="w", lease_ms=LONG_MS)
            response = a_response(a_request("one"))
            await store.finish("run-one", 1, response, 1)
            found = await store.runs(user="u-1")
            assert [run.run for run in await store.runs(limit=2)] == ["run-three", "run-two"]
        one, three = "session-one", "session-three"
        assert found == [
            RunSummary(
                "run-three", "u-1", "prime", "Sort receipts", 1_000, None, "running", "", three, 1_000, "run-three"
            ),
            RunSummary("run-one", "u-1", "prime", "Sort receipts", 1_000, response, "finished", "", one, 1, "run-one"),
        ]

    async def test_runs_are_found_by_what_links_them(self) -> None:
        """K1: by the correlation id; a run without one is found by its own."""
        async with self.opened() as store:
            for name, user, correlation in (("one", "u-1", "c"), ("two", "u-2", "c"), ("three", "u-1", None)):
                request = replace(a_request(name, user=user), correlation=correlation)
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            found = await store.runs(correlation="c")
            assert [(run.run, run.correlation) for run in found] == [("run-two", "c"), ("run-one", "c")]
            assert [run.run for run in await store.runs(correlation="c", user="u-1")] == ["run-one"]
            assert [run.run for run in await store.runs(correlation="run-three")] == ["run-three"]
            assert await store.runs(correlation="run-one") == []

    async def test_where_an_agents_runs_stand_is_told_by_what_changed_last(self) -> None:
        asking = replace(a_request("two", user="u-2"), correlation="c", via="north", created_ms=2_000)
        async with self.opened() as store:
            for request in (a_request(), asking, replace(a_request("three"), target="tag", created_ms=3_000)):
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            one = RunState("run-one", "id-one", "u-1", "", "session-one", "", 1_000, 1, None, False, False)
            two = RunState("run-two", "id-two", "u-2", "north", "session-two", "c", 2_000, 2, None, False, False)
            assert await store.states(agent="prime") == [two, one]
            await store.finish("run-one", 1, a_response(a_request()), 4_000)
            question = replace(a_response(asking, "Which?"), requires_followup=True)
            await store.finish("run-two", 1, question, 3_000)
            one = one._replace(changed_ms=4_000, seq=4, status=Status.SUCCESS)
            two = two._replace(changed_ms=3_000, seq=5, status=Status.SUCCESS, asks_back=True)
            assert await store.states(agent="prime") == [one, two]
            assert await store.states(agent="prime", limit=1) == [one]
            assert await store.states(agent="prime", users=["u-2", "u-3"]) == [two]
            assert await store.states(agent="prime", session="session-one") == [one]
            assert await store.states(agent="prime", session="session-one", users=["u-2"]) == []
            for run in ("run-one", "run-two"):
                body = Notice(delegation=run, agent="prime", text="cancelled", code=Code.CANCELLED)
                store.append(Kind.NOTICE, 5_000, run, "session", body)
            await store.flush()
            assert await store.states(agent="prime") == [two._replace(changed_ms=5_000, called_off=True), one]

    async def test_runs_are_found_by_how_their_id_begins(self) -> None:
        names = ("a-1", "a-2", "b-1", "a%2", "A-1", "a_3")
        async with self.opened() as store:
            for name in names:
                await store.submit(a_request(name, user=f"u-{name[-1]}"), b"digest", worker="w", lease_ms=LONG_MS)
            found = {
                prefix: [run.run for run in await store.runs(run=prefix)]
                for prefix in ("run-a-", "run-b-1", "run-a%", "run-a_", "run-c", "run-b-1-", "")
            }
            assert found == {
                "run-a-": ["run-a-2", "run-a-1"],
                "run-b-1": ["run-b-1"],
                "run-a%": ["run-a%2"],
                "run-a_": ["run-a_3"],
                "run-c": [],
                "run-b-1-": [],
                "": [f"run-{name}" for name in reversed(names)],
            }
            assert [run.run for run in await store.runs(run="run-a", user="u-2")] == ["run-a%2", "run-a-2"]
            assert [run.run for run in await store.runs(run="run-a", limit=1)] == ["run-a_3"]

    async def test_only_those_runs_are_found_that_somebody_may_see(self) -> None:
        async with self.opened() as store:
            for name, user, agent, via in (
                ("one", "u-1", "prime", None),
                ("two", "u-2", "prime", "web"),
                ("three", "u-4", "tag", "web"),
                ("four", "u-3", "tag", "app"),
            ):
                request = replace(a_request(name, id="same", user=user), target=agent, via=via)
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            found = {
                of: ([run.run[4:] for run in await store.runs(of=of, limit=2)], await store.named("same", of))
                for of in (
                    RunScope(),
                    RunScope(users=("u-1", "u-3")),
                    RunScope(agents=("prime",)),
                    RunScope(via="web"),
                    RunScope(users=("u-4",), agents=("tag",), via="web"),
                    RunScope(users=()),
                )
            }
            assert await store.runs(user="u-1", of=RunScope(users=("u-2",))) == []
            assert await store.named("other", RunScope()) == []
            await store.finish("run-one", 1, a_response(a_request()), 1, keep=False)
            assert await store.named("same", RunScope(users=("u-1",))) == []
        all_runs = ["run-four", "run-three", "run-two", "run-one"]
        assert found == {
            RunScope(): (["four", "three"], all_runs),
            RunScope(users=("u-1", "u-3")): (["four", "one"], ["run-four", "run-one"]),
            RunScope(agents=("prime",)): (["two", "one"], ["run-two", "run-one"]),
            RunScope(via="web"): (["three", "two"], ["run-three", "run-two"]),
            RunScope(users=("u-4",), agents=("tag",), via="web"): (["three"], ["run-three"]),
            RunScope(users=()): ([], []),
        }

    async def test_a_run_whose_outcome_is_forgotten_is_still_found_by_its_id(self) -> None:
        async with self.opened() as store:
            for name in ("old", "older"):
                await store.submit(a_request(name), b"digest", worker="w", lease_ms=LONG_MS)
                await store.finish(f"run-{name}", 1, a_response(a_request(name)), 1)
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            await store.submit(a_request("old", id="another"), b"digest", worker="w", lease_ms=LONG_MS)
            found = [(run.run, run.state) for run in await store.runs(run="run-old")]
        assert found == [("run-old", "running"), ("run-older", "finished"), ("run-old", "finished")]

    async def test_a_run_says_how_far_it_is(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request("asks"), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            await store.submit(a_request("silent"), b"digest", worker="w", lease_ms=OVER_MS)
            await store.submit(a_request("works"), b"digest", worker="w", lease_ms=LONG_MS)
            await store.submit(a_request("done"), b"digest", worker="w", lease_ms=OVER_MS)
            await store.finish("run-done", 1, a_response(a_request("done")), 1)
            found = {run.run: run.state for run in await store.runs()}
        assert found == {
            "run-asks": "waiting",
            "run-silent": "silent",
            "run-works": "running",
            "run-done": "finished",
        }

    async def test_facts_are_kept_once_per_user_oldest_first(self) -> None:
        """X16: new facts are saved for the user, and for no other."""
        async with self.opened() as store:
            store.remember("u-1", "run-one", ("likes tea", "is 40"))
            store.remember("u-1", "run-two", ("likes tea", "has a dog"))
            store.remember("u-2", "run-three", ("likes coffee",))
            await store.flush()
            assert await store.facts("u-1") == ("likes tea", "is 40", "has a dog")
            assert await store.facts("u-2") == ("likes coffee",)
            assert await store.facts("u-3") == ()
            many = tuple(str(number) for number in range(MOST_FACTS + 1))
            store.remember("u-4", "run", many)
            await store.flush()
            assert await store.facts("u-4") == many[1:]
