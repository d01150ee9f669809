"""Runs are cancelled and hubs told to reload from outside: while they wait or work, and while nobody has them."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from remit import ALLOW, Ask, Brief, Code, Facts, Hub, Request, Response, Status, Verdict
from remit.ports import (
    AcceptedRequest,
    ControlCommand,
    Decision,
    DuplicateRequest,
    Question,
    ReusedProof,
    SingleUseProof,
)
from remit.ports.store import ControlAction
from remit.runtime import root_runs
from remit.stores.sqlite import SqliteStore
from samples import code_of
from waiting import PATIENCE_S, eventually

LEASE_MS = 300
MakeHub = Callable[..., Hub]


async def elsewhere(
    folder: Path, run: str, action: ControlAction = "cancel", by: str = "ann", reason: str = "a mistake"
) -> None:
    """Say something to the hubs as `remit runs cancel` does in another process: through a store of its own."""
    store = SqliteStore(folder / "hub.db", durability="process")
    await store.open()
    await store.control(run, action, by, reason)
    await store.close()


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)


def ask_for_b(request: Request, facts: Facts) -> Verdict:
    return Ask("Pay?") if request.target == "b" else ALLOW


def write(folder: Path, sql: str) -> None:
    """Do to the file what only time could do."""
    connection = apsw.Connection(str(folder / "hub.db"))
    connection.set_busy_timeout(5_000)
    connection.execute(sql)  # pyright: ignore[reportUnknownMemberType]
    connection.close()


class Team:
    """`b` needs a yes; `a` asks it, and `steady-a` too, which is resumable; `busy` works until it is told to stop."""

    def __init__(self, make_hub: MakeHub, **options: Any) -> None:
        self.hub = hub = make_hub(**{"guards": [ask_for_b], "approver": "inbox"} | options)
        self.ran: list[str] = []
        self.at_work = asyncio.Event()
        hub.agent("b")(self._b)
        hub.agent("a", may_call=["b"])(self._a)
        hub.agent("steady-a", may_call=["b"], resumable=True)(self._a)
        hub.agent("busy", resumable=True)(self._busy)

    async def _b(self, brief: Brief) -> str:
        self.ran.append("b")
        return "done"

    async def _a(self, brief: Brief) -> str:
        self.ran.append("a")
        return (await brief.delegate("b", objective="x")).status

    async def _busy(self, brief: Brief) -> str:
        self.ran.append("busy")
        self.at_work.set()
        await asyncio.Event().wait()
        return "never"

    async def ask(self, agent: str, *, user: str = "u-1", **options: Any) -> Response:
        return await self.hub.ask(agent, "x", user=user, **options)

    async def question(self) -> Question:
        return (await self.questions())[0]

    async def questions(self, count: int = 1) -> list[Question]:
        while len(pending := await self.hub.pending()) < count:
            await asyncio.sleep(0)
        return pending


@pytest.fixture
def team(make_hub: MakeHub) -> Team:
    return Team(make_hub)


WAITING = pytest.mark.parametrize("agent", ["b", "a", "steady-a"], ids=["root", "nested", "nested resumable"])


# ── while it waits ────────────────────────────────────────────────────────────────────────────────────────────────────


@WAITING
async def test_a_run_that_is_cancelled_while_it_waits_ends_and_withdraws_its_question(team: Team, agent: str) -> None:
    """X15, decision 4."""
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask(agent))
        question = await team.question()
        assert hub.cancel(question.request.run, "changed my mind")
        response = await asking
        assert await hub.pending() == []
        assert [run.state for run in await hub.store.runs()] == ["finished"]
    assert response.fault is not None
    assert (response.fault.code, "b" in team.ran) == (Code.CANCELLED, False)
    assert "changed my mind" in response.fault.message


@WAITING
async def test_a_run_that_waits_is_cancelled_from_another_process(team: Team, tmp_path: Path, agent: str) -> None:
    """X15, decision 14: with who did it and why."""
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask(agent))
        question = await team.question()
        await elsewhere(tmp_path, question.request.run)
        response = await asking
        assert await hub.pending() == []
    assert response.fault is not None
    assert (response.fault.code, "b" in team.ran) == (Code.CANCELLED, False)
    assert "by ann, a mistake" in response.fault.message


async def test_one_delegation_that_waits_is_cancelled_and_its_caller_is_told(team: Team) -> None:
    """X15: by the id of the one that asks for it; the run itself goes on."""

    @team.hub.agent("top", may_call=["a"])
    async def top(brief: Brief) -> str:
        return (await brief.delegate("a", objective="x")).status

    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("top"))
        question = await team.question()
        assert question.request.parent is not None
        assert hub.cancel(question.request.parent)
        assert (await asking).result == "cancelled"
        assert await hub.pending() == []


@WAITING
async def test_a_caller_that_goes_away_while_its_request_waits_cancels_it(team: Team, agent: str) -> None:
    """X15: nobody is asked for the sake of someone who has left."""
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask(agent))
        await team.question()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        assert await hub.pending() == []
        assert [run.state for run in await hub.store.runs()] == ["finished"]
    assert "b" not in team.ran


@WAITING
async def test_a_reader_that_stops_reading_while_its_request_waits_cancels_it(team: Team, agent: str) -> None:
    """O9: the question is on the stream before it is answered."""
    async with team.hub as hub, asyncio.timeout(PATIENCE_S):
        async with aclosing(hub.stream(agent, "x", user="u-1")) as stream:
            async for record in stream:
                if record.kind == "approval":
                    break
            await team.question()
        assert await hub.pending() == []
    assert "b" not in team.ran


async def test_a_second_caller_that_goes_away_leaves_the_first_waiting(team: Team) -> None:
    """Decision 6: only the first who asked can cancel it."""
    async with team.hub as hub, asyncio.TaskGroup() as group:
        first = group.create_task(team.ask("b", request_id="1"))
        question = await team.question()
        second = asyncio.create_task(team.ask("b", request_id="1"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await first).result == "done"


class Gated(SqliteStore):
    """A store whose next submission takes its time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="process")
        self.entered, self.gate = asyncio.Event(), asyncio.Event()

    async def submit(
        self,
        request: Request,
        digest: bytes,
        *,
        worker: str,
        lease_ms: int,
        waiting: bool = False,
        once: SingleUseProof | None = None,
    ) -> AcceptedRequest | DuplicateRequest | ReusedProof:
        self.entered.set()
        await self.gate.wait()
        return await super().submit(request, digest, worker=worker, lease_ms=lease_ms, waiting=waiting, once=once)


@pytest.mark.parametrize("how", ["cancel", "caller gone"])
async def test_a_run_that_is_cancelled_while_it_is_made_durable_asks_nobody(
    make_hub: MakeHub, tmp_path: Path, how: str
) -> None:
    """X15: between the guard's question and the moment that it can be put."""
    store = Gated(tmp_path / "hub.db")
    team = Team(make_hub, store=store)
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask("b", request_id="1"))
        await store.entered.wait()
        if how == "cancel":
            assert hub.cancel("1")
        else:
            asking.cancel()
        await asyncio.sleep(0)
        store.gate.set()
        try:
            done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
            assert done, "it waits for a person though it was cancelled"
        finally:
            for question in await hub.pending():
                await hub.decide(question.id, agreed=False, by="the test")
            await asyncio.wait({asking})
    assert team.ran == []


async def test_an_approver_that_does_not_notice_a_cancellation_saves_nothing(make_hub: MakeHub) -> None:
    """X15: a yes that comes with the cancellation, or after it, is none. (So ends Python's own `wait_for`.)"""
    question_posed = asyncio.Event()

    async def stubborn(question: Question) -> bool:
        question_posed.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return True

    for agent in ("a", "b"):
        team = Team(make_hub, approver=stubborn)
        question_posed.clear()
        async with team.hub as hub, asyncio.TaskGroup() as group:
            asking = group.create_task(team.ask(agent, request_id=agent))
            await question_posed.wait()
            assert hub.cancel(agent)
            assert code_of(await asking) is Code.CANCELLED
        assert "b" not in team.ran


async def test_an_answer_and_a_cancellation_at_once_have_one_outcome(team: Team) -> None:
    """A race: done or cancelled, and never both; no question is left."""
    async with team.hub as hub:
        for turns in range(20):
            team.ran.clear()
            asking = asyncio.create_task(team.ask("b"))
            question = await team.question()
            deciding = asyncio.ensure_future(hub.decide(question.id, agreed=True, by="ann"))
            for _ in range(turns):
                await asyncio.sleep(0)
            hub.cancel(question.request.run)
            await asyncio.wait({deciding, asking})
            deciding.exception()  # too late, if it was withdrawn before
            response = asking.result()
            assert (response.ok, code_of(response)) in ((True, None), (False, Code.CANCELLED))
            assert team.ran == (["b"] if response.ok else []) or response.status is Status.CANCELLED
            assert await hub.pending() == []


async def test_a_request_id_that_two_users_chose_cancels_neither(team: Team) -> None:
    """Decision 9: one user's cancellation does not reach another's request, whoever came first."""
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = [group.create_task(team.ask("b", user=user, request_id="1")) for user in ("u-1", "u-2")]
        waiting = await team.questions(2)
        assert not hub.cancel("1")
        for question in waiting:
            await hub.decide(question.id, agreed=True, by="ann")
        assert [(await each).ok for each in asking] == [True, True]


async def test_a_request_that_is_named_after_anothers_run_is_not_taken_for_it(team: Team) -> None:
    """Decision 9: a run's own id comes first."""
    async with team.hub as hub, asyncio.TaskGroup() as group:
        victim = group.create_task(team.ask("b"))
        run = (await team.question()).request.run
        namesake = group.create_task(team.ask("b", user="u-2", request_id=run))
        await team.questions(2)
        assert hub.cancel(run)
        assert code_of(await victim) is Code.CANCELLED
        (left,) = await team.questions()
        await hub.decide(left.id, agreed=True, by="ann")
        assert (await namesake).ok


# ── while it works ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_at_work_is_cancelled_from_another_process(team: Team, tmp_path: Path) -> None:
    """X15, decision 14: and its outcome is kept, since its agent had begun."""
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("busy", request_id="1"))
        await team.at_work.wait()
        (run,) = await hub.store.runs()
        await elsewhere(tmp_path, run.run)
        response = await asking
        assert (await team.ask("busy", request_id="1")).run == response.run
    assert (response.status, code_of(response)) == (Status.CANCELLED, Code.CANCELLED)
    assert team.ran == ["busy"]


async def test_what_is_said_about_runs_that_are_not_here_changes_nothing(team: Team, tmp_path: Path) -> None:
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b"))
        question = await team.question()
        for run in ("", "nobody", question.request.run[:-1], question.request.run.upper() + "'", "%", "*"):
            await hub.store.control(run, "cancel", "mallory", "")
        await elsewhere(tmp_path, "last")
        assert len(await hub.store.controls(0)) == 7
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).ok


async def test_a_hub_does_not_obey_what_was_said_before_it_opened_about_others(team: Team, make_hub: MakeHub) -> None:
    store = team.hub.store
    await store.open()
    await store.control("1", "cancel", "ann", "")
    await store.control("", "reload", "ann", "")
    await store.close()
    reloads: list[ControlCommand] = []

    async def reload(control: ControlCommand) -> None:
        reloads.append(control)

    team.hub.on_reload(reload)
    async with team.hub as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(team.ask("b", request_id="1"))
        question = await team.question()
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).ok
    assert reloads == []


# ── while nobody has it ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("agent", ["b", "steady-a", "busy"])
@pytest.mark.parametrize("answered", [False, True], ids=["open", "answered"])
async def test_a_run_that_is_cancelled_while_no_hub_is_there_does_not_go_on(
    make_hub: MakeHub, tmp_path: Path, agent: str, answered: bool
) -> None:
    """X15, decision 14: the next hub finds the wish and keeps to it, whatever a person had agreed to."""
    team = Team(make_hub)
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask(agent))
        if agent == "busy":
            await team.at_work.wait()
        else:
            await team.question()
        (run,) = await hub.store.runs()
    assert code_of(await asking) is Code.CANCELLED
    store = SqliteStore(tmp_path / "hub.db", durability="process")
    await store.open()
    for question in await store.pending() if answered else ():
        assert await store.decide(question.id, Decision(agreed=True, by="ann"))
    await store.control(run.run, "cancel", "ann", "never mind")
    await store.close()
    again = Team(make_hub)
    async with again.hub as hub:
        while [each for each in await hub.store.runs() if each.state != "finished"]:
            await asyncio.sleep(0)
            assert "b" not in again.ran
            assert "busy" not in again.ran
        assert await hub.pending() == []
        (ended,) = await hub.store.runs()
    assert ended.response is not None
    assert code_of(ended.response) is Code.CANCELLED


async def test_a_run_that_had_begun_and_finds_no_slot_when_it_is_taken_up_waits_for_one(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    """Decision 6: it is not refused as one that was never begun, after which it could be begun anew."""
    team = Team(make_hub)
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask("busy", request_id="1"))
        await team.at_work.wait()
        (run,) = await hub.store.runs()
    await asking
    # The only slot is taken when the run is taken up, and nobody may queue for it.
    later = 2**50
    write(tmp_path, f"UPDATE request SET lease_until_ms = {later} WHERE state = 0")
    again = make_hub()
    occupied, ran = asyncio.Event(), list[str]()

    @again.agent("busy", resumable=True, concurrency=1, queue=0)
    async def busy(brief: Brief) -> str:
        ran.append(brief.text)
        if brief.text == "occupy":
            occupied.set()
            await asyncio.Event().wait()
        return "done at last"

    async with again as hub:
        occupier = asyncio.create_task(hub.ask("busy", "occupy", user="u-9"))
        await occupied.wait()
        write(tmp_path, f"UPDATE request SET lease_until_ms = 0 WHERE lease_until_ms = {later}")
        await eventually(
            lambda: hub.store.records(run=run.run), when=lambda records: "resumed after a restart" in str(records)
        )
        occupier.cancel()
        await asyncio.wait({occupier})
        repeated = await hub.ask("busy", "x", user="u-1", request_id="1")
    assert (repeated.run, repeated.result) == (run.run, "done at last")
    assert ran == ["occupy", "x"]


# ── reloading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_hub_on_a_store_is_told_to_reload(make_hub: MakeHub, tmp_path: Path) -> None:
    """Decision 14: with who wants it, and once for each time that it was said."""
    reloads: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    def hears(name: str) -> Any:
        async def reload(control: ControlCommand) -> None:
            reloads.put_nowait((name, control.by, control.reason))

        return reload

    first, second = make_hub(), make_hub()
    first.on_reload(hears("first"))
    second.on_reload(hears("second"))
    async with first, second, asyncio.timeout(PATIENCE_S):
        await elsewhere(tmp_path, "", "reload", "ann", "new limits")
        names_told = {await reloads.get(), await reloads.get()}
    assert names_told == {("first", "ann", "new limits"), ("second", "ann", "new limits")}
    assert reloads.empty()


async def test_a_reload_that_fails_does_not_keep_the_hub_from_listening(make_hub: MakeHub, tmp_path: Path) -> None:
    """A mistake in a team file is the commonest reason; runs can still be cancelled, and a mended one loaded."""
    reasons: asyncio.Queue[str] = asyncio.Queue()

    async def reload(control: ControlCommand) -> None:
        reasons.put_nowait(control.reason)
        if control.reason == "wrong":
            raise ValueError("line 3 of the team file")

    team = Team(make_hub)
    team.hub.on_reload(reload)
    async with team.hub as hub, asyncio.timeout(PATIENCE_S):
        await hub.store.control("", "reload", "ann", "wrong")
        assert await reasons.get() == "wrong"
        asking = asyncio.create_task(team.ask("b"))
        question = await team.question()
        await hub.store.control(question.request.run, "cancel", "ann", "")
        done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
        hub.cancel(question.request.run)
        assert done, "the hub does not hear any more"
        await hub.store.control("", "reload", "ann", "mended")
        assert await reasons.get() == "mended"


async def test_a_reload_that_takes_its_time_does_not_keep_a_run_from_being_cancelled(make_hub: MakeHub) -> None:
    """X15: a fifth of a second, whatever else the hub is told."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def reload(control: ControlCommand) -> None:
        begun.set()
        await may_end.wait()

    team = Team(make_hub)
    team.hub.on_reload(reload)
    async with team.hub as hub, asyncio.timeout(PATIENCE_S):
        await hub.store.control("", "reload", "ann", "")
        await begun.wait()
        asking = asyncio.create_task(team.ask("b"))
        question = await team.question()
        await hub.store.control(question.request.run, "cancel", "ann", "")
        done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
        may_end.set()
        hub.cancel(question.request.run)
        assert done, "the hub does not hear while it reloads"
