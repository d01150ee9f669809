"""A request that waits for a person survives its hub: killed, closed, silent, or one of several on the same store.

Run as a program, this file is a hub in a process of its own, which the tests kill where they like.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest
from msgspec.structs import replace

from commands import popen
from programs import with_tests_on_path
from remit import ALLOW, Ask, Brief, Code, Facts, Hub, Limits, Request, Response, Status, Verdict
from remit.ports import Decision, Question, Remote, RemoteHandle, StoreError
from remit.protocol.errors import fault
from remit.protocol.records import Approval
from remit.runtime import root_runs
from remit.runtime.approvers import decide
from remit.stores.sqlite import SqliteStore, verify_file
from remit_server.transports.remote_calls import refused
from sweeps import SweptStore
from waiting import PATIENCE_S

LEASE_MS = 300
UNKNOWN = "OUTCOME_UNKNOWN"
CARD = "4111 1111 1111 1111"


def shown(response: Response) -> object:
    return str(response.fault.code) if response.fault else response.result


def a_decision(*, agreed: bool = True, edits: dict[str, Any] | None = None) -> Decision:
    return Decision(agreed=agreed, by="ann", edits=edits or {})


class Office:
    """A hub where `pay` needs a yes; every agent leaves a line each time that its code is called."""

    def __init__(
        self,
        folder: Path,
        *,
        questions: tuple[str, ...] = ("Pay?",),
        payee: str = "bob",
        approver: Literal["inbox"] | None = "inbox",
        limits: Limits | None = None,
    ) -> None:
        self.store = SweptStore(folder / "hub.db", durability="process")
        self.hub = Hub(store=self.store, guards=[self._guard], approver=approver, limits=limits)
        self._questions = questions
        self._payee = payee
        self._log = folder / "executed.log"
        self.at_the_end = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.hub.agent("pay")(self._pay)
        self.hub.agent("steady-pay", resumable=True)(self._steady_pay)
        self.hub.agent("note")(self._note)
        self.hub.agent("boss", resumable=True, may_call=["pay", "note"])(self._boss)
        self.hub.agent("solo", may_call=["pay", "note"])(self._boss)

    def _guard(self, request: Request, facts: Facts) -> Verdict:
        for question in self._questions if request.target.endswith("pay") else ():
            if question not in facts.approved:
                return Ask(question, frozenset({"objective", "input"}))
        return ALLOW

    async def _pay(self, brief: Brief) -> str:
        self._do(f"pay:{brief.request.objective.replace(' ', '-')}")
        return f"paid {brief.request.objective}"

    async def _steady_pay(self, brief: Brief) -> str:
        self._do("steady-pay")
        self.at_the_end.set()
        await self.may_end.wait()
        return f"paid {brief.request.objective}"

    async def _note(self, brief: Brief) -> str:
        self._do("note")
        return "noted"

    async def _boss(self, brief: Brief) -> list[object]:
        self._do(brief.request.target)
        noted = await brief.delegate("note", objective="x")
        paid = await brief.delegate("pay", objective=self._payee)
        return [shown(noted), shown(paid)]

    def _do(self, step: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{step}\n")

    def executed(self) -> Counter[str]:
        return Counter(self._log.read_text().split()) if self._log.exists() else Counter()

    async def ask(
        self, agent: str, text: str = "bob", *, user: str = "u-1", request_id: str = "1", **options: Any
    ) -> Response:
        async with asyncio.timeout(PATIENCE_S):
            return await self.hub.ask(agent, text, user=user, request_id=request_id, **options)

    async def settled(self, count: int = 1) -> list[Response | None]:
        """Wait until the store has no run that is going on, and return how its runs ended."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.store.runs(limit=100)) or {run.state for run in found} != {"finished"}:
                await asyncio.sleep(0)
        return [run.response for run in found[:count]]

    def waits(self) -> bool:
        """Say whether something in this hub waits for a person."""
        runs, frames = self.hub._engine.runs, self.hub._engine.frames()  # pyright: ignore[reportPrivateUsage]
        return bool(runs._records.parked) or any(frame.pauses for frame in frames)  # pyright: ignore[reportPrivateUsage]

    async def taken_up(self) -> None:
        """Wait until this hub has taken up what waits."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.waits():
                await asyncio.sleep(0)

    async def questions(self, count: int = 1) -> list[Question]:
        return await questions(self.store, count)

    async def answer(self, count: int = 1, **decision: Any) -> list[Question]:
        found = await self.questions(count)
        for question in found:
            await decide(self.store, question.id, a_decision(**decision))
        return found


async def questions(store: SqliteStore, count: int = 1) -> list[Question]:
    """Wait until so many questions are pending, and return them."""
    async with asyncio.timeout(PATIENCE_S):
        while len(found := await store.pending()) < count:
            await asyncio.sleep(0)
    return found


@asynccontextmanager
async def inbox(folder: Path) -> AsyncGenerator[SqliteStore]:
    """The store as `remit pending` opens it: no hub is needed."""
    store = SqliteStore(folder / "hub.db", durability="process")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def decided(folder: Path, **decision: Any) -> Question:
    """Answer the one question that pends."""
    async with inbox(folder) as store:
        (question,) = await questions(store)
        return await decide(store, question.id, a_decision(**decision))


def write(folder: Path, sql: str) -> None:
    """Do to the file what only time or a crash could do."""
    connection = apsw.Connection(str(folder / "hub.db"))
    connection.set_busy_timeout(5_000)
    connection.execute(sql)  # pyright: ignore[reportUnknownMemberType]
    connection.close()


def take_leases(folder: Path) -> None:
    """Make every worker that has a run look dead."""
    write(folder, "UPDATE request SET worker = 'dead', lease_until_ms = 0 WHERE state = 0")


def fall_silent(hub: Hub) -> None:
    """Keep a hub from telling the others that it is alive, and from looking at what they left behind."""
    heartbeat, keeper, _ = hub._engine.leases._attendants  # pyright: ignore[reportPrivateUsage]
    for task in (heartbeat, keeper):
        task.cancel()


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)


async def left_waiting(folder: Path, agent: str, **options: Any) -> Question:
    """Close a hub while a request waits in it for a person; return the question, and see what the caller is told."""
    office = Office(folder, **options)
    async with office.hub:
        asking = asyncio.create_task(office.ask(agent))
        (question,) = await office.questions()
    response = await asking
    assert shown(response) == Code.CANCELLED
    return question


# ── closed ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("agent", "result", "executed"),
    [
        ("pay", "paid bob", {"pay:bob": 1}),
        ("steady-pay", "paid bob", {"steady-pay": 1}),
        ("boss", ["noted", "paid bob"], {"boss": 2, "note": 1, "pay:bob": 1}),
    ],
)
@pytest.mark.parametrize("answered", ["before", "after"])
async def test_what_waited_when_its_hub_was_closed_goes_on_when_another_opens(
    tmp_path: Path, agent: str, result: object, executed: dict[str, int], answered: str
) -> None:
    """Decision 4: a root for any agent, since nothing had begun; a nested question if the root is resumable."""
    question = await left_waiting(tmp_path, agent)
    if answered == "before":
        await decided(tmp_path)
    office = Office(tmp_path)
    async with office.hub:
        if answered == "after":
            (same,) = await office.answer()
            assert same == question
        response = await office.ask(agent)
        assert await office.store.pending() == []
        records = [record.body for record in await office.store.records() if isinstance(record.body, Approval)]
    assert (response.status, response.result) == (Status.SUCCESS, result)
    assert office.executed() == executed
    assert {(each.id, each.question) for each in records} == {(question.id, "Pay?")}
    assert [(each.by, each.agreed) for each in records if each.agreed is not None] == [("ann", True)]
    assert verify_file(tmp_path / "hub.db").ok


@pytest.mark.parametrize("agent", ["pay", "boss"])
async def test_a_hub_that_is_closed_and_opened_again_goes_on_with_what_waited(tmp_path: Path, agent: str) -> None:
    """Decision 4: the same hub, in the same process."""
    office = Office(tmp_path)
    async with office.hub:
        asking = asyncio.create_task(office.ask(agent))
        (question,) = await office.questions()
    assert shown(await asking) == Code.CANCELLED
    async with office.hub:
        assert await office.answer() == [question]
        assert (await office.ask(agent)).ok


async def test_a_nested_question_of_a_run_that_cannot_go_on_is_withdrawn_when_the_hub_closes(tmp_path: Path) -> None:
    """Decision 4: nobody is asked for an answer that nobody will ever want."""
    office = Office(tmp_path)
    async with office.hub:
        asking = asyncio.create_task(office.ask("solo"))
        await office.questions()
    assert (await asking).status is Status.CANCELLED
    async with inbox(tmp_path) as store:
        assert await store.pending() == []
        (run,) = await store.runs()
    assert run.response is not None
    assert run.response.status is Status.CANCELLED


@pytest.mark.parametrize("agent", ["pay", "boss"])
async def test_a_run_that_waits_is_restarted_as_often_as_it_likes(tmp_path: Path, agent: str) -> None:
    """Decision 4: being handed back is no attempt."""
    first = await left_waiting(tmp_path, agent)
    for _ in range(5):
        office = Office(tmp_path)
        async with office.hub:
            assert await office.questions() == [first]
            await office.taken_up()
    await decided(tmp_path)
    office = Office(tmp_path)
    async with office.hub:
        assert (await office.ask(agent)).ok
    assert office.executed()["pay:bob"] == 1


async def test_a_root_that_waits_loses_its_hub_as_often_as_it_likes(tmp_path: Path) -> None:
    """Decision 4: nothing had begun, so it is not known too little about it, however often a hub went silent."""
    first = await left_waiting(tmp_path, "pay")
    for _ in range(5):
        take_leases(tmp_path)
        office = Office(tmp_path)
        async with office.hub:
            await office.taken_up()
            fall_silent(office.hub)
            take_leases(tmp_path)
    await decided(tmp_path)
    office = Office(tmp_path)
    async with office.hub:
        assert (await office.ask("pay")).result == "paid bob"
    assert (office.executed(), first.text) == ({"pay:bob": 1}, "Pay?")


async def test_a_hub_that_closes_while_a_person_answers_loses_neither_the_answer_nor_the_run(tmp_path: Path) -> None:
    """A race of close and answer: whichever is first, it is done once."""
    office = Office(tmp_path)
    for number in range(10):
        async with asyncio.TaskGroup() as group:
            async with office.hub:
                asking = group.create_task(office.ask("pay", f"number {number}", request_id=str(number)))
                (question,) = await office.questions()
                async with inbox(tmp_path) as store:
                    answering = group.create_task(decide(store, question.id, Decision(agreed=True, by="ann")))
                    for _ in range(number):
                        await asyncio.sleep(0)
                    closing = group.create_task(office.hub.__aexit__(None, None, None))
                    await answering
                    await closing
                await office.hub.__aenter__()
                again = await office.ask("pay", f"number {number}", request_id=str(number))
            assert again.result == f"paid number {number}"
            assert shown(await asking) in (Code.CANCELLED, again.result)
    assert office.executed() == {f"pay:number-{number}": 1 for number in range(10)}


async def test_what_was_cancelled_before_its_hub_closed_stays_cancelled(tmp_path: Path) -> None:
    """X15: a cancelled run does not come back, though the hub closes in the same moment."""
    office = Office(tmp_path)
    async with office.hub as hub:
        asking = asyncio.create_task(office.ask("pay"))
        (question,) = await office.questions()
        assert hub.cancel(question.request.run)
    assert shown(await asking) == Code.CANCELLED
    async with inbox(tmp_path) as store:
        assert await store.pending() == []
        assert [run.state for run in await store.runs() if run.state != "finished"] == []


# A question as if it had expired a moment after it was asked.
EXPIRED = "CAST(json_set(CAST(content AS TEXT), '$.expires_ms', asked_ms + 1) AS BLOB)"


# ── away ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("agent", "left"), [("pay", {}), ("boss", {"boss": 2, "note": 1})])
async def test_a_question_that_expired_while_no_hub_was_there_is_declined(
    tmp_path: Path, agent: str, left: dict[str, int]
) -> None:
    """Decision 4: a restart gives nobody more time."""
    await left_waiting(tmp_path, agent)
    write(tmp_path, f"UPDATE question SET expires_ms = asked_ms + 1, over_ms = asked_ms + 1, content = {EXPIRED}")
    office = Office(tmp_path)
    async with office.hub:
        (response,) = await office.settled()
        assert await office.store.pending() == []
    assert response is not None
    declined = shown(response) if agent == "pay" else response.result[1]
    assert (declined, office.executed()) == (Code.APPROVAL_DECLINED, left)


@pytest.mark.parametrize("agent", ["pay", "boss"])
async def test_an_answer_that_was_given_in_time_counts_though_the_hub_came_back_too_late(
    tmp_path: Path, agent: str
) -> None:
    """Decision 4: whoever was told that their answer was taken has answered."""
    await left_waiting(tmp_path, agent)
    await decided(tmp_path)
    write(tmp_path, f"UPDATE question SET expires_ms = asked_ms + 1, content = {EXPIRED}")
    office = Office(tmp_path)
    async with office.hub:
        assert (await office.ask(agent)).ok
    assert office.executed()["pay:bob"] == 1


@pytest.mark.parametrize("agent", ["pay", "boss"])
async def test_a_no_that_was_given_while_no_hub_was_there_is_heard(tmp_path: Path, agent: str) -> None:
    await left_waiting(tmp_path, agent)
    await decided(tmp_path, agreed=False)
    office = Office(tmp_path)
    async with office.hub:
        (response,) = await office.settled()
    assert response is not None
    assert (shown(response) if agent == "pay" else response.result[1]) == Code.APPROVAL_DECLINED
    assert office.executed()["pay:bob"] == 0


async def test_two_questions_are_answered_with_a_restart_between_them(tmp_path: Path) -> None:
    """Decision 4: what was agreed to before is not asked again."""
    await left_waiting(tmp_path, "pay", questions=("Pay?", "Really?"))
    await decided(tmp_path)
    office = Office(tmp_path, questions=("Pay?", "Really?"))
    async with office.hub:
        (second,) = await office.questions()
    assert second.text == "Really?"
    await decided(tmp_path)
    office = Office(tmp_path, questions=("Pay?", "Really?"))
    async with office.hub:
        assert (await office.ask("pay")).result == "paid bob"
    assert office.executed() == {"pay:bob": 1}


async def test_an_edit_made_while_no_hub_was_there_is_what_is_done(tmp_path: Path) -> None:
    """Decision 6: the sender still knows it by its own words."""
    await left_waiting(tmp_path, "pay")
    await decided(tmp_path, edits={"objective": "carol"})
    office = Office(tmp_path)
    async with office.hub:
        response = await office.ask("pay", "bob")
        assert await office.ask("pay", "bob") == response
        assert shown(await office.ask("pay", "carol")) == Code.DUPLICATE_REQUEST
    assert (response.result, office.executed()) == ("paid carol", {"pay:carol": 1})


async def test_a_changed_request_that_is_taken_up_again_is_still_known_by_its_senders_words(tmp_path: Path) -> None:
    """Decision 6: attached to, in the hub that took it up, by whoever repeats what was said first."""
    office = Office(tmp_path)
    office.may_end.clear()
    async with office.hub:
        asking = asyncio.create_task(office.ask("steady-pay", "bob"))
        await office.answer(edits={"objective": "carol"})
        await office.at_the_end.wait()
    assert shown(await asking) == Code.CANCELLED
    office = Office(tmp_path)
    office.may_end.clear()
    async with office.hub, asyncio.TaskGroup() as group:
        await office.at_the_end.wait()
        again = group.create_task(office.ask("steady-pay", "bob"))
        for _ in range(20):
            await asyncio.sleep(0)
        office.may_end.set()
        assert shown(await again) == "paid carol"


async def test_what_is_personal_is_restored_for_the_user_of_a_run_that_waited(tmp_path: Path) -> None:
    """Decision 13: neither the inbox nor the record holds it meanwhile."""
    office = Office(tmp_path)
    async with office.hub:
        asking = asyncio.create_task(office.ask("pay", f"card {CARD}"))
        (question,) = await office.questions()
    await asking
    assert CARD[:9] not in repr(question)
    await decided(tmp_path, edits={"objective": f"{question.request.objective} now"})
    office = Office(tmp_path)
    async with office.hub:
        response = await office.ask("pay", f"card {CARD}")
        assert CARD[:9] not in repr(await office.store.records())
    assert response.result == f"paid card {CARD} now"
    assert CARD[:9] not in repr(office.executed())


async def test_a_yes_is_for_what_the_person_was_shown_and_not_for_what_an_agent_makes_of_it_after_a_restart(
    tmp_path: Path,
) -> None:
    """Decision 4: an agent that takes another way asks another question, in the same words at the same place."""
    first = await left_waiting(tmp_path, "boss", payee="bob")
    await decided(tmp_path)
    office = Office(tmp_path, payee="mallory")
    async with office.hub, asyncio.TaskGroup() as group:
        again = group.create_task(office.ask("boss"))
        (second,) = await office.questions()
        assert (second.text, second.request.objective) == (first.text, "mallory")
        await office.answer(agreed=False)
        assert (await again).result == ["noted", Code.APPROVAL_DECLINED]
    assert office.executed()["pay:mallory"] == 0


async def test_a_question_that_nobody_answered_in_time_is_not_put_again_after_a_restart(tmp_path: Path) -> None:
    """Decision 4: an agent that is run again meets the refusals that it met before."""
    office = Office(tmp_path, limits=Limits(approval_timeout_ms=100))
    held = asyncio.Event()

    @office.hub.agent("patient", resumable=True, may_call=["pay"])
    async def patient(brief: Brief) -> object:
        reply = await brief.delegate("pay", objective="bob")
        held.set()
        await asyncio.Event().wait()
        return shown(reply)

    async with office.hub:
        asking = asyncio.create_task(office.ask("patient"))
        await held.wait()
    assert shown(await asking) == Code.CANCELLED
    office = Office(tmp_path)

    @office.hub.agent("patient", resumable=True, may_call=["pay"])
    async def patient_again(brief: Brief) -> object:
        return shown(await brief.delegate("pay", objective="bob"))

    async with office.hub:
        assert (await office.ask("patient")).result == Code.APPROVAL_DECLINED
    assert office.executed() == {}


async def all_wait(office: Office, asking: list[asyncio.Task[Response]]) -> bool:
    """Return whether all wait for a person, once that is so or one of them was refused."""
    async with asyncio.timeout(PATIENCE_S):
        while len(await office.store.pending()) < len(asking):
            if any(each.done() for each in asking):
                return False
            await asyncio.sleep(0.01)
    return True


async def test_two_users_who_wait_for_one_session_each_get_their_own_after_a_restart(tmp_path: Path) -> None:
    """X9, decision 4: whose a session is, is judged again with everything else."""
    both_wait, folder = False, tmp_path
    while not both_wait:  # one of them may be so much faster that the session is known to be theirs
        folder = folder / "again"
        folder.mkdir()
        office = Office(folder)
        async with office.hub:
            asking = [
                asyncio.create_task(office.ask("pay", user, user=user, request_id=user, session="s-1"))
                for user in ("u-1", "u-2")
            ]
            both_wait = await all_wait(office, asking)
        await asyncio.wait(asking)
    asked = set[str]()
    for finished in (1, 2):  # the second one then finds that the name is the first one's, and asks nobody again
        async with inbox(folder) as store:
            found = await questions(store)
            asked |= {each.id for each in found}
            await decide(store, found[0].id, a_decision())
        office = Office(folder)
        async with office.hub:
            async with asyncio.timeout(PATIENCE_S):
                while sum(office.executed().values()) < finished:
                    await asyncio.sleep(0.01)
            runs = await office.hub.store.runs(limit=2)
    assert sum(office.executed().values()) == len({each.session for each in runs}) == len(asked) == 2


class OtherHub(Remote):
    """An agent that another hub on the same store hosts."""

    shares_store = True

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        return refused(request, fault(Code.DELEGATION_UNAVAILABLE, "no hub hosts it"))


async def test_what_a_person_approved_is_stored_with_a_request_for_another_hub(tmp_path: Path) -> None:
    """A hub that resumes the run hands the request over to a host that then asks nobody again."""
    office = Office(tmp_path)
    office.hub.register(replace(office.hub.cards["pay"], name="other-pay"), OtherHub())
    async with office.hub:
        asking = asyncio.create_task(office.ask("other-pay"))
        await office.answer(1)
        run = (await asking).run
        requests = [each.body for each in await office.hub.store.records(run=run) if isinstance(each.body, Request)]
    digest = office.hub._parts.redactor.keys.question_digest("Pay?")  # pyright: ignore[reportPrivateUsage]
    assert requests[-1].approved == (digest,)


async def test_fifty_that_waited_all_go_on_after_a_restart(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with office.hub:
        asking = [asyncio.create_task(office.ask("pay", f"n{number}", request_id=f"{number}")) for number in range(50)]
        await office.questions(50)
    await asyncio.wait(asking)
    office = Office(tmp_path)
    async with office.hub:
        await office.answer(50)
        await office.settled()
        runs_listed = await office.store.runs(limit=100)
        assert await office.store.pending() == []
    assert len(runs_listed) == 50
    assert office.executed() == {f"pay:n{number}": 1 for number in range(50)}


# ── several hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("agent", ["pay", "boss"])
async def test_of_several_hubs_exactly_one_takes_up_what_waits(tmp_path: Path, agent: str) -> None:
    """Decisions 4 and 6: it is asked once, and done once."""
    await left_waiting(tmp_path, agent)
    offices = [Office(tmp_path) for _ in range(4)]
    async with offices[0].hub, offices[1].hub, offices[2].hub, offices[3].hub:
        assert len(await offices[0].answer()) == 1
        responses = [await office.ask(agent) for office in offices]
        assert await offices[0].store.pending() == []
    assert responses == [responses[0]] * 4
    assert offices[0].executed()["pay:bob"] == 1
    assert offices[0].executed()["boss"] == (2 if agent == "boss" else 0)


@asynccontextmanager
async def lost_lease(folder: Path) -> AsyncGenerator[tuple[Office, Office, "asyncio.Task[Response]"]]:
    """Yield a hub that lost its lease while a person was asked, the hub with the run now, and the answer to come."""
    first, second = Office(folder), Office(folder)
    async with first.hub:
        asking = asyncio.create_task(first.ask("pay"))
        await first.questions()
        fall_silent(first.hub)
        take_leases(folder)
        async with second.hub:
            await second.taken_up()
            yield first, second, asking


async def test_a_hub_that_lost_its_lease_while_it_waited_does_not_begin(tmp_path: Path) -> None:
    """Decision 6: both learn of the yes; only the one with the run begins it."""
    async with lost_lease(tmp_path) as (first, second, asking):
        assert len(await second.questions()) == 1
        await second.answer()
        assert (await second.ask("pay")).result == "paid bob"
        assert shown(await asking) in (UNKNOWN, "paid bob")
    assert first.executed() == {"pay:bob": 1}


async def test_a_hub_that_lost_its_lease_does_not_withdraw_what_another_waits_for(tmp_path: Path) -> None:
    """What a stale hub does is fenced off, its questions as well."""
    async with lost_lease(tmp_path) as (_, second, asking):
        asking.cancel()
        await asyncio.wait({asking})
        assert len(await second.store.pending()) == 1


async def test_a_cancel_at_a_hub_that_lost_its_lease_reaches_the_hub_that_has_the_run(tmp_path: Path) -> None:
    async with lost_lease(tmp_path) as (first, second, asking):
        assert first.hub.cancel("1")
        assert shown(await asking) == Code.CANCELLED
        assert await second.store.pending() == []


async def test_a_cancel_outlives_a_hub_that_could_not_resume_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Office(tmp_path), Office(tmp_path)
    load, failed = second.store.load, list[str]()

    async def cancelled_and_away(run: str) -> dict[str, bytes]:
        if not failed:
            failed.append(run)
            assert second.hub.cancel("1")
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is away"))
        return await load(run)

    monkeypatch.setattr(second.store, "load", cancelled_and_away)
    async with first.hub:
        asking = asyncio.create_task(first.ask("boss"))
        await first.questions()
        fall_silent(first.hub)
        take_leases(tmp_path)
        async with second.hub:
            assert shown(await asking) == Code.CANCELLED
    assert failed
    assert first.executed() == {"boss": 1, "note": 1}


async def test_a_hub_where_nobody_can_be_asked_leaves_what_waits_to_one_where_someone_can(tmp_path: Path) -> None:
    """Decision 4: to open a store beside the hub that asks, as a script may, declines nothing."""
    await left_waiting(tmp_path, "pay")
    script = Office(tmp_path, approver=None)
    async with script.hub:
        await script.store.looked_twice()
        assert len(await script.store.pending()) == 1
    await decided(tmp_path)
    office = Office(tmp_path)
    async with office.hub:
        assert (await office.ask("pay")).result == "paid bob"


# ── killed ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Child:
    """This file as a program: a hub in a process of its own."""

    def __init__(self, folder: Path, agent: str) -> None:
        command = [sys.executable, __file__, str(folder), agent]
        self.process = popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=with_tests_on_path()
        )

    def line(self) -> Any:
        """Return what it says next; the test's own time limit bounds the wait."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def child(folder: Path, agent: str) -> Generator[Child]:
    process = Child(folder, agent)
    try:
        yield process
    finally:
        process.end()


def killed_while_waiting(folder: Path, agent: str) -> str:
    """Kill a hub with -9 while a request waits in it; return the question's id."""
    with child(folder, agent) as hub:
        question = hub.line()["question"]
        hub.kill()
    return question


CASES = [
    ("pay", "paid bob", {"pay:bob": 1}),
    ("boss", ["noted", "paid bob"], {"boss": 2, "note": 1, "pay:bob": 1}),
]


@pytest.mark.parametrize(("agent", "result", "executed"), CASES)
@pytest.mark.parametrize("answered", ["before", "after"])
async def test_what_waited_when_its_hub_was_killed_goes_on_in_the_next(
    tmp_path: Path, agent: str, result: object, executed: dict[str, int], answered: str
) -> None:
    """Decision 4, with kill -9: the question is there while no hub is, and the answer is found by the next."""
    question = await asyncio.to_thread(killed_while_waiting, tmp_path, agent)
    if answered == "before":
        assert (await decided(tmp_path)).id == question
    with child(tmp_path, agent) as hub:
        if answered == "after":
            said = await asyncio.to_thread(hub.line)
            assert said == {"question": question}
            assert (await decided(tmp_path)).id == question
        said = await asyncio.to_thread(hub.line)
        while "question" in said:
            said = await asyncio.to_thread(hub.line)
    assert said == {"answer": result}
    assert Office(tmp_path).executed() == executed
    assert verify_file(tmp_path / "hub.db").ok


async def test_a_root_whose_hub_was_killed_five_times_still_waits(tmp_path: Path) -> None:
    """Decision 4: nothing had begun, so its outcome is never unknown."""
    killed = {await asyncio.to_thread(killed_while_waiting, tmp_path, "pay") for _ in range(5)}
    assert len(killed) == 1
    await decided(tmp_path)
    office = Office(tmp_path)
    async with office.hub:
        assert (await office.ask("pay")).result == "paid bob"
    assert office.executed() == {"pay:bob": 1}


async def test_a_nested_question_of_a_killed_run_that_cannot_go_on_is_gone(tmp_path: Path) -> None:
    """Decision 4: the run ends as unknown, and nobody is asked for an answer that nobody wants."""
    await asyncio.to_thread(killed_while_waiting, tmp_path, "solo")
    office = Office(tmp_path)
    async with office.hub:
        assert shown(await office.ask("solo")) == UNKNOWN
        assert await office.store.pending() == []


async def test_a_hub_in_another_process_goes_on_with_what_waited_when_this_one_closed(tmp_path: Path) -> None:
    """Decisions 4 and 14."""
    question = await left_waiting(tmp_path, "pay")
    with child(tmp_path, "pay") as hub:
        assert await asyncio.to_thread(hub.line) == {"question": question.id}
        await decided(tmp_path)
        assert await asyncio.to_thread(hub.line) == {"answer": "paid bob"}


async def live(folder: Path, agent: str) -> None:
    """Ask once; say what is asked, and how it ended."""
    office = Office(folder)
    async with office.hub, asyncio.TaskGroup() as group:
        asking = group.create_task(office.ask(agent))
        seen: set[str] = set()
        while not asking.done():
            for question in await office.store.pending():
                if question.id not in seen and office.waits():
                    seen.add(question.id)
                    print(json.dumps({"question": question.id}), flush=True)
            await asyncio.sleep(0.01)
        print(json.dumps({"answer": shown(asking.result())}), flush=True)


if __name__ == "__main__":
    root_runs.LEASE_MS = LEASE_MS
    asyncio.run(live(Path(sys.argv[1]), sys.argv[2]))
