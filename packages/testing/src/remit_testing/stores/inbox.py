"""What every store must do with sealed values, questions to people, and control commands."""

import asyncio

from msgspec.structs import replace

from remit.ports import FACTS, ControlCommand, Decision, SealedValue, Store
from remit.protocol.errors import Code
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

NO = Decision(agreed=False, by="ben")


class InboxConformance(StoreCase):
    """The promises of a store's vault, inbox and controls."""

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
            for token, claims in (("a", (False, True, False)), ("b", (True, False)), ("c", (False, False))):
                for of_user in claims:
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
                decisions = [group.create_task(store.decide("question-one", answer)) for answer in answers]
            (winner,) = [answer for answer, each in zip(answers, decisions, strict=True) if each.result()]
            assert await store.decision("question-one") == winner

    async def test_a_question_that_is_there_stays_as_it_is(self) -> None:
        """A resumed run asks the same question again."""
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
        """An approval that comes too late does not count."""
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
            assert await store.controls(0) == []
            controls = [
                ControlCommand(
                    await store.control("run-one", "cancel", "ann", "too slow"), "run-one", "cancel", "ann", "too slow"
                ),
                ControlCommand(await store.control("", "reload", "ben", ""), "", "reload", "ben", ""),
                ControlCommand(
                    await store.control("run-two", "cancel", "ann", "", "run-two.1.2"),
                    *("run-two", "cancel", "ann", "", "run-two.1.2"),
                ),
            ]
            assert [each.seq for each in controls] == sorted({each.seq for each in controls})
            assert controls[0].seq > 0
            assert await store.controls(0) == controls
            assert await store.controls(controls[0].seq) == controls[1:]
            assert await store.controls(0, "run-two") == controls[2:]
            assert await store.controls(controls[2].seq, "run-two") == []
        async with self.opened(await self.reopen(store)) as store:
            assert await store.controls(controls[1].seq) == controls[2:]

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
            _secret(store),
        )
        for attempt in attempts:
            assert await code_of(attempt) is Code.STORE_UNAVAILABLE


async def _secret(store: Store) -> bytes:
    return store.secret()
