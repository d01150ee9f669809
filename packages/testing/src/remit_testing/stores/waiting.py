"""What every store must do with requests that wait for a person: keep them, begin them, hand them back."""

from msgspec.structs import replace

from remit.protocol.errors import Code
from remit.protocol.records import Kind
from remit.runtime.ports import (
    MOST_EPOCHS,
    AcceptedRequest,
    DuplicateRequest,
    OrphanedRun,
)
from remit_testing.samples import (
    LONG_MS,
    OVER_MS,
    YES,
    StoreCase,
    a_question,
    a_request,
    a_response,
)


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
            found = await store.records(run="run-one")
            assert [(record.kind, record.session, record.body) for record in found] == [
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
