"""What is over is forgotten in time, and not before; both stores agree on when."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from remit.ports import Decision, SealedValue, Store
from remit.stores.sqlite import SqliteStore
from remit_testing import MemoryStore
from remit_testing.samples import LONG_MS, a_question, a_request, a_response

DAY_MS = 24 * LONG_MS
NOW_MS = 1_000 * DAY_MS

YES = Decision(agreed=True, by="ann")
SEALED = [SealedValue("<EMAIL_1>", b"value", True)]


class Date:
    """What the store takes for today."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms

    def passed(self) -> float:
        """The days pass: the date is not set."""
        return self.now_ms / 1_000


@pytest.fixture
def date() -> Date:
    return Date()


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, date: Date) -> AsyncGenerator[Store]:
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "hub.db", wall_ms=date, monotonic=date.passed)
    else:
        made = MemoryStore(wall_ms=date, monotonic=date.passed)
    await made.open()
    yield made
    await made.close()


async def sweep(store: Store) -> None:
    await store.sweep(max_attempts=3, keep_ms=DAY_MS)


async def test_a_question_can_be_answered_until_the_millisecond_at_which_it_expires(store: Store, date: Date) -> None:
    for name in ("one", "two"):
        await store.put(a_question(name, expires_ms=NOW_MS + 100))
    date.now_ms += 99
    assert await store.decide("question-one", YES)
    assert [question.id for question in await store.pending()] == ["question-two"]
    date.now_ms += 1
    assert await store.pending() == []
    assert not await store.decide("question-two", YES)


async def test_an_answer_outlives_the_time_in_which_it_could_be_given(store: Store, date: Date) -> None:
    await store.put(a_question(expires_ms=NOW_MS + 100))
    await store.decide("question-one", YES)
    date.now_ms += 200
    assert await store.decision("question-one") == YES


async def test_an_answer_is_forgotten_a_day_after_it_was_given(store: Store, date: Date) -> None:
    await store.put(a_question())
    await store.decide("question-one", YES)
    date.now_ms += DAY_MS - 1
    await sweep(store)
    assert await store.decision("question-one") == YES
    date.now_ms += 1
    await sweep(store)
    assert await store.decision("question-one") is None


async def test_an_answer_is_kept_as_long_as_its_run_may_ask_for_it(store: Store, date: Date) -> None:
    """A person answered on Friday, and the hub that asked comes back on Monday."""
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
    await store.put(a_question())
    await store.decide("question-one", YES)
    date.now_ms += 3 * DAY_MS
    await sweep(store)
    assert await store.decision("question-one") == YES
    await store.finish("run-one", 1, a_response(a_request()), date.now_ms)
    await sweep(store)
    assert await store.decision("question-one") is None


async def test_a_question_that_is_open_does_not_age(store: Store, date: Date) -> None:
    await store.put(a_question())
    date.now_ms += 30 * DAY_MS
    await sweep(store)
    assert await store.pending() == [a_question()]


async def test_a_control_is_forgotten_after_a_day_and_its_number_never_given_again(store: Store, date: Date) -> None:
    first = await store.control("run-one", "cancel", "ann", "")
    date.now_ms += DAY_MS - 1
    await sweep(store)
    assert [each.seq for each in await store.controls(0)] == [first]
    date.now_ms += 1
    await sweep(store)
    assert await store.controls(0) == []
    second = await store.control("run-two", "cancel", "ann", "")
    assert [each.seq for each in await store.controls(first)] == [second]


async def test_what_was_sealed_stays_as_long_as_the_outcome(store: Store, date: Date) -> None:
    await store.submit(a_request(), b"digest", worker="w", lease_ms=100 * DAY_MS)
    store.seal("run-one", SEALED)
    date.now_ms += 10 * DAY_MS
    await sweep(store)
    assert await store.unseal("run-one") == SEALED
    await store.finish("run-one", 1, a_response(a_request()), date.now_ms)
    date.now_ms += DAY_MS - 1
    await sweep(store)
    assert await store.unseal("run-one") == SEALED
    date.now_ms += 1
    await sweep(store)
    assert await store.unseal("run-one") == []


@pytest.mark.parametrize("scope", ["session-one", "run-one"])
async def test_what_was_sealed_for_a_session_stays_as_long_as_that_can_be_gone_on_with(
    store: Store, date: Date, scope: str
) -> None:
    """A session that nobody chose is named for its first run, and may be gone on with like any other."""
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    store.seal(scope, SEALED)
    await store.session(scope, "u-1", "prime")
    await store.finish("run-one", 1, a_response(a_request()), date.now_ms)
    date.now_ms += 10 * DAY_MS
    for _ in range(2):
        await sweep(store)
        assert await store.unseal(scope) == SEALED


async def test_a_session_in_use_that_is_gone_on_with_keeps_its_values(store: Store, date: Date) -> None:
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    await store.session("session-one", "u-1", "prime")
    store.seal("session-one", SEALED)
    await store.flush()
    date.now_ms += 2 * DAY_MS
    await sweep(store)
    assert await store.unseal("session-one") == SEALED


async def test_what_was_sealed_for_a_run_that_nothing_is_known_of_goes_with_time(store: Store, date: Date) -> None:
    """It was refused as a duplicate after its values were sealed, or they came after its outcome was forgotten."""
    store.seal("run-unknown", SEALED)
    await store.flush()
    date.now_ms += DAY_MS - 1
    await sweep(store)
    assert await store.unseal("run-unknown") == SEALED
    date.now_ms += 1
    await sweep(store)
    assert await store.unseal("run-unknown") == []


async def test_a_run_is_silent_once_its_lease_has_ended_unless_it_waits_for_a_person(store: Store, date: Date) -> None:
    await store.submit(a_request("one"), b"digest", worker="w", lease_ms=100)
    await store.submit(a_request("two"), b"digest", worker="w", lease_ms=100, waiting=True)
    date.now_ms += 99
    assert [run.state for run in await store.runs()] == ["waiting", "running"]
    date.now_ms += 1
    assert [run.state for run in await store.runs()] == ["waiting", "silent"]
    await store.heartbeat("w", 100)
    assert [run.state for run in await store.runs()] == ["waiting", "running"]


async def test_a_request_that_began_in_another_form_was_recorded_when_it_began(store: Store, date: Date) -> None:
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
    date.now_ms += 5
    await store.begin("run-one", 1, a_request("one", id="edited"))
    assert [record.at_ms for record in await store.records()] == [1_000, NOW_MS + 5]


async def test_a_cancellation_is_kept_as_long_as_its_run_may_be_taken_up(store: Store, date: Date) -> None:
    """Cancelled on Friday, while no hub was there; one that comes on Monday must not go on with it."""
    await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
    await store.control("run-one", "cancel", "ann", "")
    date.now_ms += 3 * DAY_MS
    await sweep(store)
    assert [each.by for each in await store.controls(0, "run-one")] == ["ann"]
    await store.finish("run-one", 1, a_response(a_request()), date.now_ms)
    await sweep(store)
    assert await store.controls(0, "run-one") == []
