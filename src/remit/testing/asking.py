"""What every store must do for a run that waits for a person: keep it, its questions and its secrets, and be told."""

import asyncio

from msgspec.structs import replace

from remit.protocol.errors import Code
from remit.protocol.records import Kind
from remit.runtime.ports import (
    FACTS,
    MOST_EPOCHS,
    AcceptedRequest,
    ControlCommand,
    Decision,
    DuplicateRequest,
    OrphanedRun,
    SealedValue,
    Store,
)
from remit.testing.samples import (
    LONG_MS,
    OVER_MS,
    PATIENCE,
    StoreCase,
    a_question,
    a_request,
    a_response,
    code_of,
)

YES = Decision(agreed=True, by="ann", reason="fine", edits={"objective": "Sort one receipt", "input": {"n": [1, None]}})
NO = Decision(agreed=False, by="ben")


class AskingConformance(StoreCase):
    """The promises of `Requests` about waiting, and those of `Vault`, `Inbox` and `Controls`."""

    # ── waiting, beginning, handing back ──────────────────────────────────────────────────────────────────────────────

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
        """In Python 1 is equal to true; to whoever reads the input it is not."""
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
        """Whoever got no acknowledgement asks again; that is no new attempt, and wipes out none."""
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
            # Its worker goes on sending heartbeats for the rest of its work.
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

    # ── vault ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_the_secret_of_a_store_is_long_and_stays_the_same(self) -> None:
        async with self.opened() as store:
            secret = store.secret()
            assert (len(secret), store.secret()) == (32, secret)
        async with self.opened(await self.reopen(store)) as store:
            assert store.secret() == secret

    async def test_what_was_sealed_for_a_run_comes_back_for_that_run(self) -> None:
        sealed = [SealedValue("<EMAIL_1>", b"\x00\xff", True), SealedValue("<NAME_1>", b"", False)]
        async with self.opened() as store:
            store.seal("run-one", sealed)
            store.seal("run-two", [SealedValue("<EMAIL_1>", b"another", False)])
            store.seal("run-three", [])
            await store.flush()
            assert sorted(await store.unseal("run-one")) == sealed
            assert await store.unseal("run-two") == [SealedValue("<EMAIL_1>", b"another", False)]
            assert await store.unseal("run-three") == []

    async def test_the_first_value_of_a_token_counts(self) -> None:
        async with self.opened() as store:
            store.seal(
                "run-one", [SealedValue("<EMAIL_1>", b"first", False), SealedValue("<EMAIL_1>", b"second", False)]
            )
            store.seal("run-one", [SealedValue("<EMAIL_1>", b"third", False)])
            await store.flush()
            assert await store.unseal("run-one") == [SealedValue("<EMAIL_1>", b"first", False)]

    async def test_what_was_said_to_be_the_users_stays_the_users(self) -> None:
        async with self.opened() as store:
            for token, said in (("a", (False, True, False)), ("b", (True, False)), ("c", (False, False))):
                for of_user in said:
                    store.seal("run-one", [SealedValue(token, b"value", of_user)])
            await store.flush()
            assert sorted(await store.unseal("run-one")) == [
                SealedValue("a", b"value", True),
                SealedValue("b", b"value", True),
                SealedValue("c", b"value", False),
            ]

    async def test_many_values_can_be_sealed_at_once(self) -> None:
        sealed = [
            SealedValue(f"<EMAIL_{number:04}>", bytes([number % 256]), bool(number % 2)) for number in range(2_001)
        ]
        async with self.opened() as store:
            store.seal("run-one", sealed)
            await store.flush()
            assert sorted(await store.unseal("run-one")) == sealed

    async def test_what_was_sealed_before_an_answer_is_as_durable_as_the_answer(self) -> None:
        sealed = [SealedValue("<EMAIL_1>", b"value", True)]
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.seal("run-one", sealed)
            await store.finish("run-one", 1, a_response(a_request()), 1)
            assert await store.unseal("run-one") == sealed
            store.seal("run-one", [SealedValue("<EMAIL_2>", b"late", True)])
        async with self.opened(await self.reopen(store)) as store:
            assert sorted(await store.unseal("run-one")) == [*sealed, SealedValue("<EMAIL_2>", b"late", True)]

    async def test_what_was_sealed_for_a_run_goes_when_its_outcome_is_forgotten(self) -> None:
        sealed = [SealedValue("<EMAIL_1>", b"value", True)]
        async with self.opened() as store:
            for name in ("old", "new", "open"):
                await store.submit(a_request(name), b"digest", worker="w", lease_ms=LONG_MS)
                store.seal(f"run-{name}", sealed)
            await store.finish("run-old", 1, a_response(a_request("old")), 1)
            await store.finish("run-new", 1, a_response(a_request("new")), 2**52)
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            assert await store.unseal("run-old") == []
            assert await store.unseal("run-new") == sealed
            assert await store.unseal("run-open") == sealed

    async def test_what_was_sealed_for_an_outcome_that_is_not_kept_is_not_kept_either(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            store.seal("run-one", [SealedValue("<EMAIL_1>", b"value", True)])
            store.journal("run-one", 1, "step", b"value")
            await store.finish("run-one", 1, a_response(a_request()), 1, keep=False)
            assert await store.unseal("run-one") == []
            assert await store.load("run-one") == {}

    async def test_what_was_sealed_for_facts_about_a_user_stays_whatever_run_is_forgotten(self) -> None:
        sealed = [SealedValue("<EMAIL_1>", b"value", True)]
        async with self.opened() as store:
            for scope in (f"{FACTS}of somebody", "of no run"):
                store.seal(scope, sealed)
            await store.flush()
            await store.sweep(max_attempts=3, keep_ms=0)
            assert await store.unseal("of no run") == []
            assert await store.unseal(f"{FACTS}of somebody") == sealed

    # ── inbox ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_question_is_pending_until_it_is_answered(self) -> None:
        async with self.opened() as store:
            assert await store.put(a_question()) == a_question()
            assert await store.pending() == [a_question()]
            assert await store.decision("question-one") is None
            assert await store.decide("question-one", YES)
            assert await store.pending() == []
            assert await store.decision("question-one") == YES

    async def test_the_first_answer_counts(self) -> None:
        async with self.opened() as store:
            await store.put(a_question())
            assert await store.decide("question-one", NO)
            assert not await store.decide("question-one", YES)
            assert await store.decision("question-one") == NO

    async def test_of_many_that_answer_at_once_one_is_heard(self) -> None:
        async with self.opened() as store:
            await store.put(a_question())
            answers = [replace(NO, by=f"person-{number}") for number in range(20)]
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                heard = [group.create_task(store.decide("question-one", answer)) for answer in answers]
            (winner,) = [answer for answer, each in zip(answers, heard, strict=True) if each.result()]
            assert await store.decision("question-one") == winner

    async def test_a_question_that_is_there_stays_as_it_is(self) -> None:
        """A run that was taken up again asks the same again."""
        async with self.opened() as store:
            await store.put(a_question())
            assert await store.put(a_question(text="May it now?", asked_ms=9)) == a_question()
            await store.decide("question-one", NO)
            assert await store.put(a_question(text="And now?")) == a_question()
            assert await store.decision("question-one") == NO
            assert await store.pending() == []

    async def test_questions_are_pending_oldest_first(self) -> None:
        async with self.opened() as store:
            for name, asked_ms in (("b", 2), ("c", 3), ("a", 1), ("d", 3)):
                await store.put(a_question(name, asked_ms=asked_ms))
            await store.decide("question-b", YES)
            assert [question.id for question in await store.pending()] == ["question-a", "question-c", "question-d"]

    async def test_a_question_that_has_expired_can_no_longer_be_answered(self) -> None:
        """A yes that comes too late is no yes."""
        async with self.opened() as store:
            await store.put(a_question(expires_ms=2))
            assert await store.pending() == []
            assert not await store.decide("question-one", YES)
            assert await store.decision("question-one") is None

    async def test_nobody_can_answer_what_was_never_asked(self) -> None:
        async with self.opened() as store:
            assert not await store.decide("question-one", YES)
            assert await store.decision("question-one") is None
            await store.withdraw("question-one")

    async def test_a_question_that_was_withdrawn_can_no_longer_be_answered(self) -> None:
        async with self.opened() as store:
            await store.put(a_question())
            await store.withdraw("question-one")
            assert await store.pending() == []
            assert not await store.decide("question-one", YES)
            assert await store.decision("question-one") is None

    async def test_a_question_that_was_withdrawn_may_be_asked_again(self) -> None:
        async with self.opened() as store:
            await store.put(a_question())
            await store.withdraw("question-one")
            again = a_question(text="May it now?")
            assert await store.put(again) == again
            assert await store.decide("question-one", YES)

    async def test_an_answer_that_was_given_is_not_taken_back_with_its_question(self) -> None:
        async with self.opened() as store:
            await store.put(a_question())
            await store.decide("question-one", YES)
            await store.withdraw("question-one")
            assert await store.decision("question-one") == YES

    async def test_a_question_about_a_run_that_has_ended_is_forgotten_a_day_after_it_expired(self) -> None:
        async with self.opened() as store:
            for name in ("one", "two"):
                await store.submit(a_request(name), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
                await store.put(a_question(name, run=name, expires_ms=2))
            await store.finish("run-two", 1, a_response(a_request("two")), 1)
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            again = [a_question(name, run=name, text="Still?") for name in ("one", "two")]
            assert [(await store.put(question)).text for question in again] == ["May it?", "Still?"]

    async def test_closing_keeps_questions_and_answers(self) -> None:
        async with self.opened() as store:
            await store.put(a_question("one"))
            await store.put(a_question("two"))
            await store.decide("question-two", YES)
        async with self.opened(await self.reopen(store)) as store:
            assert await store.pending() == [a_question("one")]
            assert await store.decision("question-two") == YES

    # ── controls ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_controls_are_numbered_in_order_and_found_by_number_and_run(self) -> None:
        async with self.opened() as store:
            assert (await store.last_control(), await store.controls(0)) == (0, [])
            said = [
                ControlCommand(
                    await store.control("run-one", "cancel", "ann", "too slow"), "run-one", "cancel", "ann", "too slow"
                ),
                ControlCommand(await store.control("", "reload", "ben", ""), "", "reload", "ben", ""),
                ControlCommand(await store.control("run-two", "cancel", "ann", ""), "run-two", "cancel", "ann", ""),
            ]
            assert [each.seq for each in said] == sorted({each.seq for each in said})
            assert said[0].seq > 0
            assert await store.controls(0) == said
            assert await store.controls(said[0].seq) == said[1:]
            assert await store.controls(0, "run-two") == said[2:]
            assert await store.controls(said[2].seq, "run-two") == []
            assert await store.last_control() == said[2].seq
        async with self.opened(await self.reopen(store)) as store:
            assert await store.controls(said[1].seq) == said[2:]

    async def test_a_sweep_leaves_new_controls_alone(self) -> None:
        async with self.opened() as store:
            await store.control("run-one", "cancel", "ann", "")
            await store.sweep(max_attempts=3, keep_ms=OVER_MS)
            assert len(await store.controls(0)) == 1

    async def test_a_closed_store_neither_asks_nor_tells(self) -> None:
        store = await self.make()
        await store.open()
        await store.close()
        attempts = (
            store.begin("run-one", 1, a_request()),
            store.release("run-one", 1),
            store.unseal("run-one"),
            store.put(a_question()),
            store.decide("question-one", YES),
            store.decision("question-one"),
            store.withdraw("question-one"),
            store.pending(),
            store.control("", "reload", "ann", ""),
            store.controls(0),
            store.last_control(),
            _secret(store),
        )
        for attempt in attempts:
            assert await code_of(attempt) is Code.STORE_UNAVAILABLE


async def _secret(store: Store) -> bytes:
    return store.secret()
