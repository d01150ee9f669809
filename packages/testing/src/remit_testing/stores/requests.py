"""What every store must do with requests: accept each once, claim, wait for persons, end, and clean up."""

import asyncio

from msgspec.structs import replace

from remit.ports import (
    MOST_EPOCHS,
    AcceptedRequest,
    DuplicateRequest,
    OrphanedRun,
    ReusedProof,
    RunEpoch,
    SessionOwner,
    SingleUseProof,
    Store,
    Submitted,
    TakenRequest,
)
from remit.protocol.envelope import Note
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice, Record
from remit_testing.samples import (
    LONG_MS,
    OVER_MS,
    PATIENCE,
    YES,
    StoreCase,
    a_question,
    a_request,
    a_response,
    code_of,
)

# The lease of a worker that will soon be late, longer than a test takes.
SOME_MS = 30_000


class RequestConformance(StoreCase):
    """The promises of a store about requests."""

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
        """Decision 6: each sender chooses its own ids, and two senders do not know of each other's."""
        async with self.opened() as store:
            for place, via in enumerate((None, "web", "app")):
                request = replace(a_request(str(place), id="same"), via=via)
                assert await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS) == AcceptedRequest(1)
                assert await store.find(request, b"digest") == DuplicateRequest(request.run, True, None)

    async def test_of_many_that_submit_the_same_request_at_once_one_is_accepted(self) -> None:
        answers: list[Submitted] = []

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
                submitted = await store.submit(request, b"d", worker="w", lease_ms=LONG_MS, once=once)
                assert isinstance(submitted, ReusedProof)
            assert await store.find(second, b"d") is None
            known = await store.submit(first, b"d", worker="w", lease_ms=LONG_MS, once=another)
            assert known == DuplicateRequest(first.run, True, None)
            assert await store.incr(another.key, 1, another.until_ms) == 2

    async def test_a_request_that_begins_early_is_durable_with_its_outcome(self) -> None:
        request, response = a_request(), a_response(a_request())
        async with self.opened() as store:
            soon = store.submit_soon(request, b"digest", worker="w", lease_ms=LONG_MS)
            if soon is None:
                return  # the store gains nothing
            assert await store.finish("run-one", 1, response, 7)
            assert await soon == AcceptedRequest(1)
            assert await store.find(request, b"digest") == DuplicateRequest("run-one", True, response)
            assert [record.kind for record in await store.records()] == [Kind.STARTED, Kind.RESULT]
            assert store.submit_soon(request, b"digest", worker="w", lease_ms=LONG_MS) is None

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
        """A request that never began may be sent again under its id; the events stay in the record."""
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

    async def test_nothing_is_written_of_a_run_by_a_worker_that_was_replaced(self) -> None:
        def a_notice(text: str) -> Notice:
            return Notice(delegation="run-one", agent="tag", text=text)

        async with self.opened() as store:
            records: list[Record] = []
            store.listen(records.extend)
            await store.submit(a_request(), b"digest", worker="slow", lease_ms=OVER_MS)
            store.append(Kind.NOTICE, 1, "run-one", "session-one", a_notice("before"), 1)
            await store.flush()
            await store.claim("run-one", "quick", LONG_MS)
            for epoch, text in ((1, "stale"), (2, "fresh"), (1, "stale again"), (0, "of nobody's work")):
                store.append(Kind.NOTICE, 2, "run-one", "session-one", a_notice(text), epoch)
                store.remember("u-1", "run-one", (text,), epoch)
                store.note("session-one", [Note("fact", text)], RunEpoch("run-one", epoch))
            await store.finish("run-one", 2, a_response(a_request()), 3)
            store.append(Kind.NOTICE, 4, "run-one", "session-one", a_notice("late and stale"), 1)
            store.append(Kind.NOTICE, 4, "run-one", "session-one", a_notice("late"), 2)
            store.append(Kind.NOTICE, 5, "run-two", "session-two", a_notice("not submitted"), 1)
            await store.flush()
            written = [each.body.text for each in await store.records() if isinstance(each.body, Notice)]
            assert written == ["before", "fresh", "of nobody's work", "late", "not submitted"]
            assert await store.facts("u-1") == ("fresh", "of nobody's work")
            assert [each.text for each in await store.notes("session-one")] == ["fresh", "of nobody's work"]
            await asyncio.sleep(0)
            assert records == await store.records()

    async def test_nothing_is_written_of_a_run_that_was_given_up_by_its_worker(self) -> None:
        """The worker only stood still, and goes on after the sweep has ended its run."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="slow", lease_ms=OVER_MS)
            assert await store.sweep(max_attempts=1, keep_ms=LONG_MS) == []
            late = Notice(delegation="run-one", agent="tag", text="late")
            store.append(Kind.NOTICE, 2, "run-one", "session-one", late, 1)
            await store.flush()
            assert [each.kind for each in await store.records()] == [Kind.STARTED, Kind.RESULT]

    async def test_a_request_for_any_host_is_taken_once_and_only_before_it_begins(self) -> None:
        """Many machines: submitted by one hub, claimed by whichever host is free first."""
        request = a_request()
        async with self.opened() as store:
            submitted = await store.submit(request, b"digest", worker="", lease_ms=0, waiting=True)
            assert submitted == AcceptedRequest(1)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", request, True)]
            assert await store.take("run-one", "first", OVER_MS) == TakenRequest(2, request)
            assert await store.take("run-one", "second", LONG_MS) == TakenRequest(3, request)
            assert await store.take("run-one", "third", LONG_MS) is None
            assert not await store.begin("run-one", 2, request)
            assert await store.begin("run-one", 3, request)
            assert await store.finish("run-one", 3, a_response(request), 1)
            assert await store.take("run-one", "late", LONG_MS) is None
            assert await store.take("run-unknown", "late", LONG_MS) is None

    async def test_a_request_that_has_begun_is_not_taken_again(self) -> None:
        """It may have been executed: only `claim`, which leads to a resumption or an unknown outcome, may have it."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS)
            assert await store.take("run-one", "other", LONG_MS) is None
            assert await store.claim("run-one", "other", LONG_MS) == 2

    async def test_a_request_that_begins_as_it_is_taken_is_not_taken_again_unless_nothing_of_it_was_executed(
        self,
    ) -> None:
        async with self.opened() as store:
            request = a_request()
            await store.submit(request, b"digest", worker="", lease_ms=0, waiting=True)
            assert await store.take("run-one", "first", OVER_MS, begin=True) == TakenRequest(2, request)
            assert await store.take("run-one", "second", LONG_MS) is None
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", request)]
            assert await store.release("run-one", 2, begun=False)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", request, waiting=True)]
            assert await store.take("run-one", "second", OVER_MS, begin=True) == TakenRequest(4, request)
            # This is its first attempt.
            for epoch in (5, 6):
                assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", request)]
                assert await store.claim("run-one", "third", OVER_MS) == epoch
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == []
            assert (await store.wait("run-one")).status is Status.FAILED

    async def test_requests_that_are_taken_and_begin_at_the_same_time_do_so_once_each(self) -> None:
        """Whether a store writes them together or one by one: the claims that fail change nothing for the others."""
        async with self.opened() as store:
            names = [f"{number}" for number in range(8)]
            for name in names:
                await store.submit(a_request(name), b"digest", worker="", lease_ms=0, waiting=True)
            await store.submit(a_request("held"), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            wanted = [(name, worker) for name in [*names, "held", "unknown"] for worker in ("first", "second")]
            taking = [store.take(f"run-{name}", worker, LONG_MS) for name, worker in wanted]
            taken = await asyncio.gather(*taking)
            won = [(name, each.request) for (name, _), each in zip(wanted, taken, strict=True) if each is not None]
            assert won == [(name, a_request(name)) for name in names]
            # One has another form than it was submitted in, one has a stale epoch.
            edited = {"1": replace(a_request("1"), objective="Another task")}
            begun = await asyncio.gather(
                *(
                    store.begin(f"run-{name}", 1 if name == "2" else 2, edited.get(name) or a_request(name))
                    for name in names
                )
            )
            assert begun == [name != "2" for name in names]
            started = [each.body for each in await store.records(run="run-1") if each.kind is Kind.STARTED]
            assert started == [a_request("1"), edited["1"]]

    async def test_a_heartbeat_keeps_what_its_worker_has_claimed(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request("one"), b"digest", worker="alive", lease_ms=OVER_MS)
            await store.submit(a_request("two"), b"digest", worker="dead", lease_ms=OVER_MS)
            await store.heartbeat("alive", LONG_MS)
            assert await store.claim("run-one", "other", LONG_MS) is None
            assert await store.claim("run-two", "other", LONG_MS) == 2

    async def test_a_worker_can_see_which_unfinished_runs_it_has_claimed(self) -> None:
        async with self.opened() as store:
            for name in ("one", "two", "three"):
                await store.submit(a_request(name), b"digest", worker="first", lease_ms=OVER_MS)
            await store.submit(a_request("four"), b"digest", worker="", lease_ms=0, waiting=True)
            await store.finish("run-one", 1, a_response(a_request("one")), 1)
            assert await store.claim("run-two", "second", LONG_MS) == 2
            await store.take("run-four", "second", LONG_MS)
            assert await store.claimed("first") == [("run-three", 1)]
            assert sorted(await store.claimed("second")) == [("run-four", 2), ("run-two", 2)]
            assert await store.claimed("third") == []

    async def test_the_leases_of_a_worker_that_is_known_to_be_dead_end_at_once(self) -> None:
        async with self.opened() as store:
            for name, worker in (("one", "dead"), ("two", "dead"), ("three", "alive")):
                await store.submit(a_request(name), b"digest", worker=worker, lease_ms=SOME_MS)
            await store.heartbeat("dead", SOME_MS)
            await store.heartbeat("alive", LONG_MS)
            assert await store.late_workers(SOME_MS * 2) == ["dead"]
            assert await store.end_leases("dead", 1) is False
            assert await store.end_leases("alive", SOME_MS * 2) is False
            assert await store.end_leases("unknown", SOME_MS * 2) is False
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == []
            assert await store.end_leases("dead", SOME_MS * 2) is True
            assert await store.late_workers(SOME_MS * 2) == []
            expired = await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            assert [each.run for each in expired] == ["run-one", "run-two"]
            assert await store.claim("run-one", "other", LONG_MS) == 2
            # It was alive after all: it keeps what nobody has claimed, and nothing else.
            await store.heartbeat("dead", LONG_MS)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == []
            assert await store.finish("run-one", 1, a_response(a_request("one")), 1) is False
            assert await store.finish("run-two", 1, a_response(a_request("two")), 1) is True

    async def test_a_worker_that_has_just_claimed_something_is_not_late(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request("one"), b"digest", worker="w", lease_ms=SOME_MS)
            await store.heartbeat("w", SOME_MS)
            await store.submit(a_request("two"), b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.late_workers(SOME_MS * 2) == []
            assert await store.end_leases("w", SOME_MS * 2) is False

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


class WaitingConformance(StoreCase):
    """The promises of a store about requests that wait."""

    async def test_a_request_that_waits_is_recorded_and_known_like_any_other(self) -> None:
        async with self.opened() as store:
            accepted = await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            assert accepted == AcceptedRequest(1)
            assert [record.body for record in await store.records()] == [a_request()]
            assert await store.find(a_request(), b"digest") == DuplicateRequest("run-one", True, None)

    async def test_what_waits_for_a_person_expires_as_often_as_it_likes(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            for epoch in range(2, 7):
                expired = await store.sweep(max_attempts=1, keep_ms=LONG_MS)
                assert expired == [OrphanedRun("run-one", a_request(), waiting=True)]
                assert await store.claim("run-one", "w", OVER_MS) == epoch

    async def test_a_claimed_request_that_waits_cannot_be_claimed_again(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == []
            assert await store.claim("run-one", "other", LONG_MS) is None

    async def test_attempts_are_counted_from_when_a_request_began(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            for epoch in range(2, 7):
                assert await store.claim("run-one", "w", OVER_MS) == epoch
            assert await store.begin("run-one", 6, a_request())
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
            await store.claim("run-one", "w", OVER_MS)
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == []
            response = await store.wait("run-one")
            assert response.fault is not None
            assert response.fault.code is Code.OUTCOME_UNKNOWN
            assert "2 times" in response.fault.message

    async def test_to_die_while_a_person_is_asked_is_no_attempt_whether_or_not_they_have_answered(self) -> None:
        question = a_question()
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS)
            await store.put(question)
            for epoch in range(2, 7):
                assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
                assert await store.claim("run-one", "w", OVER_MS) == epoch
            await store.decide(question.id, YES)
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
            assert await store.claim("run-one", "w", OVER_MS) == 7

    async def test_a_run_that_dies_again_and_again_ends_though_a_person_is_asked_in_it(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS)
            await store.put(a_question())
            for _ in range(MOST_EPOCHS + 3):
                if await store.sweep(max_attempts=3, keep_ms=LONG_MS):
                    await store.claim("run-one", "w", OVER_MS)
            response = await store.wait("run-one")
            assert response.fault is not None
            assert response.fault.code is Code.OUTCOME_UNKNOWN

    async def test_a_request_that_begins_as_it_was_submitted_is_not_recorded_again(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            assert await store.begin("run-one", 1, a_request())
            assert len(await store.records()) == 1
            assert [run.state for run in await store.runs()] == ["silent"]

    async def test_a_request_that_was_changed_while_it_waited_goes_on_in_its_new_form(self) -> None:
        changed = replace(a_request(), objective="Sort one receipt", input=1)
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            await store.submit(a_request("two"), b"digest", worker="w", lease_ms=LONG_MS)
            assert await store.begin("run-one", 1, changed)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", changed)]
            records = await store.records(run="run-one")
            assert [(record.kind, record.session, record.body) for record in records] == [
                (Kind.STARTED, "session-one", a_request()),
                (Kind.STARTED, "session-one", changed),
            ]
            runs = [(run.run, run.objective, run.started_ms) for run in await store.runs()]
            assert runs == [("run-two", "Sort receipts", 1_000), ("run-one", "Sort one receipt", 1_000)]

    async def test_a_change_of_type_alone_is_a_change(self) -> None:
        """In Python 1 equals true; for a reader of the input they differ."""
        async with self.opened() as store:
            await store.submit(replace(a_request(), input=1), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            await store.begin("run-one", 1, replace(a_request(), input=True))
            (expired,) = await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            assert expired.request.input is True

    async def test_a_request_that_was_changed_is_known_by_what_was_submitted(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            await store.begin("run-one", 1, replace(a_request(), objective="Sort one receipt"))
            again = await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            assert again == DuplicateRequest("run-one", True, None)
            await store.finish("run-one", 1, a_response(a_request()), 1)
            assert await store.find(a_request(), b"digest") == DuplicateRequest(
                "run-one", True, a_response(a_request())
            )

    async def test_a_request_may_be_said_to_begin_more_than_once(self) -> None:
        """A hub without an acknowledgement asks again; that is neither a new attempt nor does it undo one."""
        changed = replace(a_request(), objective="Sort one receipt")
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            assert await store.begin("run-one", 1, changed)
            await store.claim("run-one", "w", OVER_MS)
            assert await store.begin("run-one", 2, changed)
            assert [record.body for record in await store.records()] == [a_request(), changed]
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", changed)]
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == []

    async def test_a_worker_that_was_replaced_can_no_longer_begin_or_hand_back(self) -> None:
        changed = replace(a_request(), objective="stale")
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="slow", lease_ms=OVER_MS, waiting=True)
            await store.claim("run-one", "quick", LONG_MS)
            assert not await store.begin("run-one", 1, changed)
            assert not await store.release("run-one", 1)
            assert [run.state for run in await store.runs()] == ["waiting"]
            assert await store.claim("run-one", "third", LONG_MS) is None
            assert len(await store.records()) == 1

    async def test_what_has_ended_or_never_was_neither_begins_nor_is_handed_back(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            await store.finish("run-one", 1, a_response(a_request()), 1)
            for run in ("run-one", "run-unknown"):
                assert not await store.begin(run, 1, a_request())
                assert not await store.release(run, 1)
            assert len(await store.records()) == 2

    async def test_a_request_can_end_without_having_begun(self) -> None:
        """A person declined, or nobody answered."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            assert await store.finish("run-one", 1, a_response(a_request(), "declined"), 1)
            assert (await store.wait("run-one")).result == "declined"
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS * 24 * 365 * 1_000) == []
            assert [run.state for run in await store.runs()] == ["finished"]

    async def test_what_is_handed_back_can_be_taken_up_at_once(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="first", lease_ms=LONG_MS)
            assert await store.release("run-one", 1)
            # Its worker continues to send heartbeats for the rest of its work.
            await store.heartbeat("first", LONG_MS)
            assert await store.sweep(max_attempts=3, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
            epoch = await store.claim("run-one", "second", LONG_MS)
            assert epoch is not None
            assert await store.finish("run-one", epoch, a_response(a_request()), 1)

    async def test_who_handed_a_request_back_has_no_more_say_in_it(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "step", b"before")
            assert await store.release("run-one", 1)
            store.journal("run-one", 1, "step", b"after")
            assert not await store.finish("run-one", 1, a_response(a_request()), 1)
            assert not await store.begin("run-one", 1, a_request())
            assert not await store.release("run-one", 1)
            assert await store.load("run-one") == {"step": b"before"}

    async def test_to_hand_back_counts_as_no_attempt(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            epoch: int | None = 1
            for _ in range(4):
                assert epoch is not None
                assert await store.release("run-one", epoch)
                assert await store.sweep(max_attempts=1, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
                epoch = await store.claim("run-one", "w", OVER_MS)
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
            assert await store.sweep(max_attempts=1, keep_ms=LONG_MS) == []
            assert [run.state for run in await store.runs()] == ["finished"]

    async def test_what_is_handed_back_while_it_waits_still_waits(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            assert await store.release("run-one", 1)
            expired = await store.sweep(max_attempts=1, keep_ms=LONG_MS)
            assert expired == [OrphanedRun("run-one", a_request(), waiting=True)]
            epoch = await store.claim("run-one", "w", OVER_MS)
            assert epoch is not None
            assert await store.begin("run-one", epoch, a_request())
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [OrphanedRun("run-one", a_request())]
            assert await store.sweep(max_attempts=1, keep_ms=LONG_MS) == []

    async def test_closing_keeps_what_waits_and_in_which_form_it_began(self) -> None:
        """K13: a run that waits for a person outlives the process that asked."""
        changed = replace(a_request("two"), objective="Sort one receipt")
        async with self.opened() as store:
            await store.submit(a_request("one"), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            await store.submit(a_request("two"), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            await store.begin("run-two", 1, changed)
        async with self.opened(await self.reopen(store)) as store:
            assert await store.sweep(max_attempts=2, keep_ms=LONG_MS) == [
                OrphanedRun("run-one", a_request("one"), waiting=True),
                OrphanedRun("run-two", changed),
            ]
