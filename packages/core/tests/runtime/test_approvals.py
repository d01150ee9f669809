"""Who answers when a guard asks: nobody, a list, several in turn, or a person at an inbox."""

import asyncio
import selectors
import time
from collections.abc import AsyncGenerator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit import Code, RemitError
from remit.ports import Decision, Question, StoreError
from remit.protocol.errors import fault
from remit.runtime.approvers import (
    MOST_PAUSE_S,
    AllowList,
    InboxApprover,
    check_edits,
    decide,
    deny,
    find,
    first_of,
)
from remit_testing.memory import MemoryStore
from remit_testing.samples import a_request
from waiting import PATIENCE_S

YES = Decision(agreed=True, by="ann")


def a_question(
    id: str = "run-one-12345678", *, expires_ms: int | None = None, editable: frozenset[str] = frozenset()
) -> Question:
    now_ms = time.time_ns() // 1_000_000
    return Question(
        id=id,
        text="May I?",
        request=replace(a_request(), origin="a", target="b"),
        editable=editable,
        asked_ms=now_ms,
        expires_ms=now_ms + 60_000 if expires_ms is None else expires_ms,
    )


@pytest.fixture
async def store() -> AsyncGenerator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


# ── approvers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_deny_agrees_to_nothing_and_says_who_it_is() -> None:
    """C6: nobody is asked in such a team, and the record says so."""
    decision = await deny(a_question())
    assert (decision.agreed, bool(decision.by), bool(decision.reason)) == (False, True, True)


@pytest.mark.parametrize(
    ("entry", "fits"),
    [
        ("b", True),
        ("*", True),
        ("b*", True),
        ("a -> b", True),
        ("a->b", True),
        ("  a  ->  b  ", True),
        ("* -> b", True),
        ("a -> *", True),
        ("user -> *", False),
        ("c", False),
        ("c -> b", False),
        ("a -> c", False),
        ("b -> a", False),
        ("B", False),
        ("a -> B", False),
        ("", False),
        ("->", False),
        ("-> b", False),
        ("a ->", False),
        ("a", False),
        ("a -> b -> c", False),
    ],
)
async def test_an_allow_list_agrees_to_whom_it_names_and_leaves_the_rest_to_others(entry: str, fits: bool) -> None:
    """C6: `to`, or `from -> to`; case counts, and what names nobody fits nobody."""
    decision = await AllowList([entry])(a_question())
    assert (decision is not None and decision.agreed) is fits
    assert decision is None or (decision.by, entry in decision.reason) == ("the allow-list", True)


async def test_the_approvers_are_asked_in_order_until_one_answers() -> None:
    """C6: None means that it is not for this one to say; a no is an answer."""
    approvers_asked: list[str] = []

    def saying(name: str, answer: Decision | bool | None) -> Any:
        async def approver(question: Question) -> Decision | bool | None:
            approvers_asked.append(name)
            return answer

        return approver

    silent, no, yes = saying("silent", None), saying("no", False), saying("yes", YES)
    question = a_question()
    assert await first_of([silent, no, yes])(question) is False
    assert await first_of([silent, yes, no])(question) is YES
    assert await first_of([silent])(question) is None
    assert await first_of([])(question) is None
    assert approvers_asked == ["silent", "no", "silent", "yes", "silent"]


# ── the inbox ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_stays_in_the_inbox_until_someone_answers_it(store: MemoryStore) -> None:
    question = a_question()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(answer(store, question))
        while not await store.pending():
            await asyncio.sleep(0)
        assert await decide(store, question.id, YES) == question
    assert (asking.result(), await store.pending()) == (YES, [])


async def answer(store: MemoryStore, question: Question) -> Decision:
    return await InboxApprover(store)(question)


async def test_a_question_that_was_answered_before_it_is_put_again_is_answered_at_once(store: MemoryStore) -> None:
    """Decision 4: after a restart the same question is found."""
    await store.put(a_question())
    await decide(store, "run-one-12345678", YES)
    assert await InboxApprover(store)(a_question()) == YES


async def test_a_question_that_is_put_again_keeps_its_first_expiry(store: MemoryStore) -> None:
    """Decision 4: a restart gives nobody more time."""
    now_ms = time.time_ns() // 1_000_000
    await store.put(a_question(expires_ms=now_ms - 1))
    with pytest.raises(TimeoutError):
        await InboxApprover(store)(a_question(expires_ms=now_ms + 60_000))


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time: its clock jumps to the next moment at which something is due."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        loop = self

        class Skipping(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                loop.ahead_s += timeout or 0
                return super().select(0)

        super().__init__(Skipping())

    def time(self) -> float:
        return super().time() + self.ahead_s

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + round(self.ahead_s * 1_000)


def inbox_after(loop: SkippingLoop, seconds: float) -> tuple[MemoryStore, list[float]]:
    """An inbox that cannot be reached for so long, with an answer for what is put there; and when it was tried."""
    tried: list[float] = []
    back = loop.time() + seconds

    class AwayInbox(MemoryStore):
        def _reach(self) -> None:
            tried.append(loop.time())
            if loop.time() < back:
                raise StoreError(fault(Code.STORE_UNAVAILABLE, "away"))

        async def put(self, question: Question) -> Question:
            self._reach()
            kept = await super().put(question)
            await self.decide(question.id, YES)
            return kept

        async def decision(self, question: str) -> Decision | None:
            self._reach()
            return await super().decision(question)

    return AwayInbox(wall_ms=loop.wall_ms), tried


async def asked_in(inbox: MemoryStore, loop: SkippingLoop, *, within_s: float) -> Decision:
    await inbox.open()
    now_ms = loop.wall_ms()
    question = replace(a_question(), asked_ms=now_ms, expires_ms=now_ms + round(within_s * 1_000))
    async with asyncio.timeout(within_s):  # as the hub does
        return await InboxApprover(inbox, loop.wall_ms)(question)


def test_a_question_outlives_ten_minutes_without_a_store_that_is_not_asked_all_the_time() -> None:
    with closing(SkippingLoop()) as loop:
        inbox, tried = inbox_after(loop, 600)
        began = loop.time()
        assert loop.run_until_complete(asked_in(inbox, loop, within_s=3_600)) == YES
        assert 600 <= loop.time() - began < 700
    assert 600 / MOST_PAUSE_S <= len(tried) < 400


def test_the_time_for_an_answer_ends_while_the_store_is_away() -> None:
    with closing(SkippingLoop()) as loop:
        inbox, _ = inbox_after(loop, 600)
        with pytest.raises(TimeoutError):
            loop.run_until_complete(asked_in(inbox, loop, within_s=300))


# ── which question is meant ───────────────────────────────────────────────────────────────────────────────────────────

IDS = ("0199-aaaa1111", "0199-bbbb2222", "0199.1-aaaa1111")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (IDS[0], IDS[0]),
        ("0199-a", IDS[0]),
        ("bbbb2222", IDS[1]),
        ("0199.1", IDS[2]),
        (IDS[2], IDS[2]),
        ("0199", None),
        ("aaaa1111", None),
        ("", None),
        ("99", None),
        ("*", None),
        ("%", None),
        ("0199-AAAA1111", None),
        ("0199-aaaa1111 ", None),
        ("0199-aaaa1111\0", None),
        ("' OR 1=1 --", None),
        ("x" * 100_000, None),
    ],
)
def test_a_question_is_named_by_its_id_or_by_a_part_that_only_it_has(name: str, meant: str | None) -> None:
    pending = [a_question(id) for id in IDS]
    if meant is not None:
        assert find(pending, name).id == meant
        return
    with pytest.raises(RemitError) as error:
        find(pending, name)
    assert error.value.fault.code is Code.INPUT_VALIDATION_FAILED
    assert error.value.fault.suggestion


def test_an_id_that_begins_another_is_itself() -> None:
    """An exact name is never mistaken for the beginning of a longer one."""
    assert find([a_question("run"), a_question("run-1")], "run").id == "run"


@pytest.mark.parametrize("pending", [0, 1, 2])
def test_an_empty_name_means_no_question_however_few_there_are(pending: int) -> None:
    """A shell variable that was never set does not approve whatever happens to be pending."""
    with pytest.raises(RemitError, match="no question"):
        find([a_question(id) for id in IDS[:pending]], "")


@given(ids=st.sets(st.text("ab-.", min_size=1, max_size=6), max_size=6), name=st.text("ab-.", max_size=6))
def test_what_is_found_is_the_one_that_was_meant_or_nothing(ids: set[str], name: str) -> None:
    """One law: a name never means one of several."""
    try:
        question = find([a_question(id) for id in sorted(ids)], name)
    except RemitError:
        assert name not in ids
        return
    others = {id for id in ids if id != question.id}
    assert question.id == name or not [id for id in others if id.startswith(name) or id.endswith(name)]


async def test_a_question_is_answered_once(store: MemoryStore) -> None:
    await store.put(a_question())
    await decide(store, "run", YES)
    with pytest.raises(RemitError, match="no question"):
        await decide(store, "run", Decision(agreed=False, by="ben"))
    assert await store.decision("run-one-12345678") == YES


async def test_of_two_who_answer_at_once_one_is_told_that_it_was_too_late() -> None:
    """Both found it pending; only the first to write it has answered."""

    class Overtaking(MemoryStore):
        async def pending(self) -> list[Question]:
            questions = await super().pending()
            await self.decide(questions[0].id, YES)
            return questions

    store = Overtaking()
    await store.open()
    await store.put(a_question())
    with pytest.raises(RemitError, match="answered, withdrawn or expired"):
        await decide(store, "run", Decision(agreed=False, by="ben"))
    assert await store.decision("run-one-12345678") == YES


async def test_a_question_that_has_expired_cannot_be_answered(store: MemoryStore) -> None:
    await store.put(a_question(expires_ms=1))
    with pytest.raises(RemitError, match="no question"):
        await decide(store, "run-one-12345678", YES)
    assert await store.decision("run-one-12345678") is None


@pytest.mark.parametrize(
    "decision",
    [
        Decision(agreed="no", by="ann"),  # pyright: ignore[reportArgumentType]
        Decision(agreed=True, by=None),  # pyright: ignore[reportArgumentType]
        Decision(agreed=True, by="\ud800"),
        Decision(agreed=True, by="ann", reason="\udfff"),
        Decision(agreed=True, by="ann", edits={"objective": "\ud800"}),
    ],
    ids=["no", "nobody", "half a name", "half a reason", "half an objective"],
)
async def test_an_answer_that_could_not_be_kept_is_refused_before_it_is_written(
    store: MemoryStore, decision: Decision
) -> None:
    await store.put(a_question(editable=frozenset({"objective"})))
    with pytest.raises(RemitError):
        await decide(store, "run", decision)
    assert [each.id for each in await store.pending()] == ["run-one-12345678"]


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("editable", "edits"),
    [
        ((), {}),
        (("objective",), {"objective": "Sort one receipt"}),
        (("objective",), {"objective": ""}),
        (("objective", "input"), {"objective": "x", "input": {"n": [1, None, 2.5, True]}}),
        (("input",), {"input": None}),
        (("input",), {"input": "x" * 200_000}),
    ],
)
def test_what_the_guard_lets_a_person_change_they_may(editable: tuple[str, ...], edits: dict[str, Any]) -> None:
    assert check_edits(a_question(editable=frozenset(editable)), edits) == edits


@pytest.mark.parametrize(
    ("editable", "edits"),
    [
        ((), {"objective": "x"}),
        ((), {"input": None}),
        (("input",), {"objective": "x"}),
        (("input",), {"input": 1, "remit": {"tokens": 10**9}}),
        (("objective", "input"), {"target": "c"}),
        (("objective", "input"), {"user": "root"}),
        (("objective",), {"Objective": "x"}),
        (("objective",), {"objective": 1}),
        (("objective",), {"objective": None}),
        (("objective",), {"objective": "x" * 100_001}),
        (("input",), {"input": float("nan")}),
        (("input",), {"input": "x" * 5_000_000}),
        (("input",), {"input": object()}),
    ],
)
def test_an_edit_that_is_not_allowed_or_could_not_be_carried_is_refused(
    editable: tuple[str, ...], edits: dict[str, Any]
) -> None:
    with pytest.raises(RemitError) as error:
        check_edits(a_question(editable=frozenset(editable)), edits)
    assert error.value.fault.code in (Code.INPUT_VALIDATION_FAILED, Code.MALFORMED_ENVELOPE, Code.TOO_LARGE)


def test_every_field_that_may_not_be_changed_is_named_with_those_that_may() -> None:
    with pytest.raises(RemitError) as error:
        check_edits(a_question(editable=frozenset({"input"})), {"target": "c", "objective": "x", "input": 1})
    problems = {each.path: each.message for each in error.value.fault.problems}
    assert problems == dict.fromkeys(("target", "objective"), "may not be changed; these may: input")


def test_an_edit_is_copied_so_that_nobody_can_change_it_afterwards() -> None:
    edits = {"input": {"amounts": [1]}}
    copy = check_edits(a_question(editable=frozenset({"input"})), edits)
    edits["input"]["amounts"].append(10**6)
    assert copy == {"input": {"amounts": [1]}}
