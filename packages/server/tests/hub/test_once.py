"""At most one execution per request: the same id attaches to it or returns its outcome."""

import asyncio
import datetime
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from remit import Answer, Brief, Capability, Code, Handoff, Hub, Rate, RemitError, Response, Status, fault
from remit.ports import Remote, RemoteHandle, StoreError
from remit.protocol.card import AgentCard
from remit.protocol.envelope import VERSION, Request
from remit.runtime import root_runs
from remit_server.transports.remote_calls import refused
from remit_testing.samples import ManualClock
from waiting import PATIENCE_S


def code_of(response: Response) -> Code | None:
    return response.fault.code if response.fault else None


class Office:
    """A hub on a file, with a clerk that counts how often it was really asked and waits until it may go."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.hub = Hub(store=path / "hub.db", durability="process")
        self.ran: list[str] = []
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.let_go.set()

        @self.hub.agent("clerk", **options)
        async def clerk(brief: Brief) -> object:
            self.ran.append(f"{brief.user}: {brief.text}")
            self.begun.set()
            await self.let_go.wait()
            return f"{brief.text}, {len(self.ran)}"

    async def ask(self, text: str = "work", id: str = "1", user: str = "u", **options: Any) -> Response:
        return await self.hub.ask("clerk", text, user=user, request_id=id, **options)


@asynccontextmanager
async def opened(*offices: Office) -> AsyncGenerator[None]:
    async with asyncio.timeout(PATIENCE_S):
        for office in offices:
            await office.hub.__aenter__()
        try:
            yield
        finally:
            for office in offices:
                office.let_go.set()
                await office.hub.__aexit__(None, None, None)


async def test_the_same_request_while_it_runs_waits_for_the_one_that_runs(tmp_path: Path) -> None:
    """C2, decision 6: same id, at most one execution."""
    office = Office(tmp_path)
    office.let_go.clear()
    async with opened(office), asyncio.TaskGroup() as group:
        tasks = [group.create_task(office.ask()) for _ in range(3)]
        await office.begun.wait()
        tasks += [group.create_task(office.ask()) for _ in range(3)]
        await asyncio.sleep(0)
        office.let_go.set()
    assert office.ran == ["u: work"]
    assert [task.result() for task in tasks] == [tasks[0].result()] * 6
    assert tasks[0].result().result == "work, 1"


async def test_the_same_request_after_it_has_ended_is_answered_without_running(tmp_path: Path) -> None:
    """C2, decision 6: same digest, its outcome is returned."""
    office = Office(tmp_path)
    async with opened(office):
        first = await office.ask()
        assert await office.ask() == first
    assert office.ran == ["u: work"]


async def test_the_outcome_survives_a_restart_on_the_same_file(tmp_path: Path) -> None:
    office, again = Office(tmp_path), Office(tmp_path)
    async with opened(office):
        first = await office.ask()
    async with opened(again):
        assert await again.ask() == first
        assert code_of(await again.ask("other work")) is Code.DUPLICATE_REQUEST
    assert again.ran == []


async def test_failures_are_outcomes_too(tmp_path: Path) -> None:
    office = Office(tmp_path)
    ran: list[str] = []

    @office.hub.agent("shaky")
    async def shaky(brief: Brief) -> None:
        ran.append(brief.text)
        raise ZeroDivisionError

    async with opened(office):
        responses = [await office.hub.ask("shaky", user="u", request_id="7") for _ in range(3)]
    assert (responses, len(ran)) == ([responses[0]] * 3, 1)


@pytest.mark.parametrize("when", ["while it runs", "after it ended"])
@pytest.mark.parametrize(
    "other",
    [
        {"text": "other work"},
        {"input": {"a": 1}},
        {"session": "s-2"},
        {"may_delegate": False},
        {"tools": []},
        {"handoff": Handoff(findings=("new",))},
        {"hints": ("hurry",)},
    ],
    ids=str,
)
async def test_the_same_id_with_another_content_is_refused(tmp_path: Path, when: str, other: dict[str, Any]) -> None:
    """Decision 6: another digest is a DUPLICATE_REQUEST."""
    office = Office(tmp_path)
    if when == "while it runs":
        office.let_go.clear()
    async with opened(office), asyncio.TaskGroup() as group:
        first = group.create_task(office.ask())
        await office.begun.wait()
        if when == "after it ended":
            await first
        second = await office.ask(**other)
        office.let_go.set()
    assert (second.status, code_of(second)) == (Status.REFUSED, Code.DUPLICATE_REQUEST)
    assert len(office.ran) == 1


async def test_budget_time_and_trace_are_no_part_of_the_content(tmp_path: Path) -> None:
    """Decision 6: a digest of the body without budget, time and trace."""
    office = Office(tmp_path)
    async with opened(office):
        first = await office.ask()
        assert await office.ask(max_tokens=5, deadline_ms=7_000, correlation="c", max_depth=1) == first


async def test_another_users_request_of_the_same_id_is_another_request(tmp_path: Path) -> None:
    """Decision 6: the key is caller, user and id; nobody can read another user's answer by guessing its id."""
    office = Office(tmp_path)
    office.let_go.clear()
    async with opened(office), asyncio.TaskGroup() as group:
        tasks = [group.create_task(office.ask(user=user)) for user in ("u", "v")]
        await office.begun.wait()
        office.let_go.set()
    assert sorted(office.ran) == ["u: work", "v: work"]
    assert len({task.result().run for task in tasks}) == 2


async def test_two_hubs_on_one_file_execute_a_request_once(tmp_path: Path) -> None:
    """Decision 14: several processes share one file; the second attaches to the run of the first."""
    one, other = Office(tmp_path), Office(tmp_path)
    one.let_go.clear()
    async with opened(one, other), asyncio.TaskGroup() as group:
        first = group.create_task(one.ask())
        await one.begun.wait()
        second = group.create_task(other.ask())
        await asyncio.sleep(0)
        assert code_of(await other.ask("other work")) is Code.DUPLICATE_REQUEST
        one.let_go.set()
    assert first.result() == second.result()
    assert (len(one.ran), other.ran) == (1, [])


async def test_who_attaches_to_another_hubs_run_waits_no_longer_than_it_has_time(tmp_path: Path) -> None:
    one, other = Office(tmp_path), Office(tmp_path)
    one.let_go.clear()
    async with opened(one, other), asyncio.TaskGroup() as group:
        first = group.create_task(one.ask())
        await one.begun.wait()
        second = await other.ask(deadline_ms=100)
        one.let_go.set()
        assert (await first).ok
        assert await other.ask() == await first
    assert (second.status, code_of(second)) == (Status.FAILED, Code.OUTCOME_UNKNOWN)
    assert "with the same id" in (second.fault.suggestion if second.fault else "")


async def waiting_at(office: Office, patch: pytest.MonkeyPatch) -> "asyncio.Future[Response]":
    """Ask a hub, and return the answer to come once it waits for the run of another hub."""
    waits, wait = asyncio.Event(), office.hub.store.wait

    async def noted(run: str) -> Response:
        waits.set()
        return await wait(run)

    patch.setattr(office.hub.store, "wait", noted)
    asking = asyncio.ensure_future(office.ask())
    await waits.wait()
    return asking


async def test_a_cancel_at_the_hub_that_only_waits_reaches_the_run_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Office(tmp_path), Office(tmp_path)
    one.let_go.clear()
    async with opened(one, other):
        first = asyncio.ensure_future(one.ask())
        await one.begun.wait()
        second, control = await waiting_at(other, monkeypatch), other.hub.store.control
        failures = iter([StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is full"))])

        async def failing_once(*args: Any) -> int:
            if (failure := next(failures, None)) is not None:
                raise failure
            return await control(*args)

        monkeypatch.setattr(other.hub.store, "control", failing_once)
        assert other.hub.cancel("1")
        assert (await first).status is Status.CANCELLED
        assert await second == await first


async def test_a_caller_that_leaves_a_hub_that_only_waits_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Office(tmp_path), Office(tmp_path)
    one.let_go.clear()
    async with opened(one, other):
        first = asyncio.ensure_future(one.ask())
        await one.begun.wait()
        second = await waiting_at(other, monkeypatch)
        second.cancel()
        await asyncio.wait({second})
        one.let_go.set()
        assert (await first).ok


async def test_a_hub_that_waits_for_another_hubs_run_can_be_closed(tmp_path: Path) -> None:
    one, other = Office(tmp_path), Office(tmp_path)
    one.let_go.clear()
    async with opened(one):
        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.ask())
            await one.begun.wait()
            async with asyncio.timeout(PATIENCE_S):
                await other.hub.__aenter__()
                second = group.create_task(other.ask())
                await other.hub.store.flush()
                closing = group.create_task(other.hub.__aexit__(None, None, None))
                done, _ = await asyncio.wait({closing}, timeout=PATIENCE_S)
            one.let_go.set()
        assert first.result().ok
    assert closing in done, "closing waited for the other hub's run"
    assert not second.result().ok


async def test_what_was_refused_is_not_kept(tmp_path: Path) -> None:
    """Decision 6: only outcomes after execution began are kept."""
    office = Office(tmp_path)
    async with opened(office):
        refused = [await office.ask(capability="NONE"), await office.ask(max_tokens=0), await office.ask(deadline_ms=3)]
        response = await office.ask()
    assert [code_of(each) for each in refused] == [
        Code.CAPABILITY_NOT_FOUND,
        Code.TOKEN_BUDGET_EXCEEDED,
        Code.TIMEOUT,
    ]
    assert response.result == "work, 1"


class Far(Remote):
    """An agent on another hub; for each request it is said whether that hub is there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.is_there = asyncio.Queue[bool]()

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        self.reached.set()
        if not await self.is_there.get():
            return refused(request, fault(Code.DELEGATION_UNAVAILABLE, "no hub hosts it"))
        line.doubt("it is sent")
        return Response(
            version=VERSION, id=request.id, target=request.target, status=Status.SUCCESS, run=request.run, result="done"
        )

    async def ask(self, office: Office) -> Response:
        return await office.hub.ask("far", "work", user="u", request_id="2")


FAR = AgentCard(name="far", resumable=True)


async def test_what_never_left_for_another_hub_is_not_kept(tmp_path: Path) -> None:
    """Decision 6: no host was there, so nothing began; once one is there, the same request is executed."""
    office, far = Office(tmp_path), Far()
    office.hub.register(FAR, far)
    answers: list[Response] = []
    async with opened(office):
        for is_there in (False, True):
            far.is_there.put_nowait(is_there)
            answers.append(await far.ask(office))
    assert [each.status for each in answers] == [Status.REFUSED, Status.SUCCESS]


async def test_a_refusal_is_not_passed_on_if_the_request_was_sent_again_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 6: refused means that nothing was started, and a newer run of the same id was."""
    one, other, far = Office(tmp_path), Office(tmp_path), Far()
    for office in (one, other):
        office.hub.register(FAR, far)
    attached, again, wait = asyncio.Event(), list[Response](), other.hub.store.wait
    refusing = list[asyncio.Task[Response]]()

    async def wait_while_it_is_sent_again(run: str) -> Response:
        attached.set()
        outcome = await wait(run)
        if not again:
            await asyncio.wait(refusing)  # until then, the same request gets the same outcome
            far.is_there.put_nowait(True)
            again.append(await far.ask(one))
        return outcome

    monkeypatch.setattr(other.hub.store, "wait", wait_while_it_is_sent_again)
    async with opened(one, other), asyncio.TaskGroup() as group:
        first = group.create_task(far.ask(one))
        refusing.append(first)
        await far.reached.wait()
        second = group.create_task(far.ask(other))
        await attached.wait()
        far.is_there.put_nowait(False)
    assert (first.result().status, second.result().status) == (Status.REFUSED, Status.SUCCESS)
    assert again == [second.result()]


async def test_who_was_sent_away_from_a_full_queue_may_come_back_with_the_same_id(tmp_path: Path) -> None:
    """Decisions 6 and 10: OVERLOADED says when to come back, and nothing was executed that could be kept."""
    office = Office(tmp_path, concurrency=1, queue=0)
    office.let_go.clear()
    async with opened(office), asyncio.TaskGroup() as group:
        first = group.create_task(office.ask(id="1"))
        await office.begun.wait()
        assert code_of(await office.ask("second", id="2")) is Code.OVERLOADED
        office.let_go.set()
        await first
        assert (await office.ask("second", id="2")).result == "second, 2"


async def test_who_gave_up_in_the_queue_may_come_back_with_the_same_id(tmp_path: Path) -> None:
    """Decision 6: only outcomes after execution began are kept."""
    office = Office(tmp_path, concurrency=1)
    office.let_go.clear()
    async with opened(office), asyncio.TaskGroup() as group:
        first = group.create_task(office.ask(id="1"))
        await office.begun.wait()
        assert code_of(await office.ask("second", id="2", deadline_ms=60)) is Code.TIMEOUT
        office.let_go.set()
        await first
        assert (await office.ask("second", id="2")).result == "second, 2"


async def test_a_stored_outcome_is_returned_even_if_a_new_request_would_be_refused(tmp_path: Path) -> None:
    """Decision 6: a sender whose connection broke asks again, and the answer is there whatever the rate says."""
    office = Office(tmp_path, rate=Rate(1, 3_600))
    async with opened(office):
        first = await office.ask()
        assert code_of(await office.ask(id="2")) is Code.RATE_LIMITED
        assert await office.ask() == first


async def test_a_stored_outcome_is_returned_though_its_agent_is_being_left_alone(tmp_path: Path) -> None:
    office = Office(tmp_path)

    @office.hub.agent("shaky")
    async def shaky(brief: Brief) -> None:
        raise ZeroDivisionError

    async with opened(office):
        first = [await office.hub.ask("shaky", user="u", request_id=str(each)) for each in range(5)]
        assert code_of(await office.hub.ask("shaky", user="u")) is Code.DELEGATION_UNAVAILABLE
        assert [await office.hub.ask("shaky", user="u", request_id=str(each)) for each in range(5)] == first


async def test_only_the_first_asker_cancels_the_run_by_leaving(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.let_go.clear()
    async with opened(office):
        first = asyncio.create_task(office.ask())
        await office.begun.wait()
        guest, stays = asyncio.create_task(office.ask()), asyncio.create_task(office.ask())
        await asyncio.sleep(0)
        guest.cancel()
        await asyncio.wait({guest})
        assert not first.done()
        first.cancel()
        response = await stays
        assert (response.status, code_of(response)) == (Status.CANCELLED, Code.CANCELLED)
        assert await office.ask() == response
    assert first.cancelled()


async def test_an_asker_that_leaves_before_its_request_is_accepted_is_let_go_at_once(tmp_path: Path) -> None:
    """C: cancellation reaches a run wherever it is, and nobody has to wait for work that was not wanted any more."""
    office = Office(tmp_path)
    office.let_go.clear()
    async with opened(office):
        task = asyncio.create_task(office.ask())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not office.begun.is_set()
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
        office.let_go.set()
        assert task in done, "its cancellation waited for the whole run"


ODD = [
    float("nan"),
    {"a": float("inf")},
    (1, 2),
    {1: "one"},
    b"bytes",
    datetime.date(2024, 2, 29),
    Status.FAILED,
    {"b": 1, "a": 2},
    1e300,
    -0.0,
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
async def test_an_answer_is_the_same_when_it_is_asked_for_again(tmp_path: Path, odd: object) -> None:
    """What leaves the hub is what was recorded, also where JSON has no word for it."""
    office = Office(tmp_path)

    @office.hub.agent("odd")
    async def give(brief: Brief) -> object:
        return odd

    async with opened(office):
        first = await office.hub.ask("odd", user="u", request_id="1")
        second = await office.hub.ask("odd", user="u", request_id="1")
    assert second == first


async def test_an_answer_that_cannot_be_written_down_is_a_failure_of_the_callee_and_of_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 5: what cannot be recorded does not leave, and does not hold up what comes after it."""
    monkeypatch.setattr(root_runs, "LEASE_MS", 150)
    office = Office(tmp_path)

    @office.hub.agent("broken")
    async def broken(brief: Brief) -> str:
        return "half a character: \ud800"

    async with opened(office):
        first = await office.hub.ask("broken", user="u", request_id="1")
        assert code_of(first) is Code.RESULT_VALIDATION_FAILED
        assert await office.hub.ask("broken", user="u", request_id="1") == first
        assert (await office.ask(id="2")).ok


@pytest.mark.parametrize(
    "partial",
    [
        Answer(object()),
        Answer("x", confidence=7),
        Answer("\ud800"),
        Answer("x" * 2_000_000),
    ],
    ids=["object", "confidence", "surrogate", "flood"],
)
async def test_a_part_that_is_nonsense_does_not_keep_a_run_from_ending(tmp_path: Path, partial: Answer) -> None:
    """K10, K12: what an agent reported before its time ran out is as little trusted as its answer."""
    clock = ManualClock()
    hub = Hub(store=tmp_path / "hub.db", durability="process", clock=clock)
    begun = asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> None:
        with suppress(RemitError, TypeError, ValueError):
            brief.progress("half way", partial=partial)
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE_S), hub:
        task = asyncio.create_task(hub.ask("slow", user="u", request_id="1", deadline_ms=1_000))
        await begun.wait()
        clock.advance(1.1)
        first = await task
        assert code_of(first) is Code.TIMEOUT
        assert len(str(first.result)) < 1_100_000
        assert await hub.ask("slow", user="u", request_id="1") == first
        assert [each.status for each in await hub.delegations(first.run)] == [Status.TIMEOUT]


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("user", None, "user"),
        ("user", "", "user"),
        ("user", "a\nb", "user"),
        ("user", "u" * 300, "user"),
        ("request_id", 5, "id"),
        ("request_id", "x\x00", "id"),
        ("session", 5, "session"),
        ("max_tokens", "many", "tokens"),
        ("max_tokens", -1, "tokens"),
        ("max_tokens", 1.5, "tokens"),
        ("deadline_ms", "soon", "time_ms"),
        ("deadline_ms", -1, "time_ms"),
        ("max_depth", "deep", "max_depth"),
        ("max_depth", -1, "max_depth"),
        ("tools", 5, "tools"),
        ("tools", "search", "tools"),
        ("targets", "clerk", "targets"),
        ("priority", "URGENT", "priority"),
        ("may_delegate", "no", "may_delegate"),
        ("hints", "hurry", "hints"),
        ("handoff", {"finding": 1}, "handoff"),
        ("input", object(), "input"),
        ("capability", 7, "capability"),
        ("deadline", 5, "deadline"),
        ("max_token", 5, "max_token"),
    ],
)
async def test_a_wrong_argument_is_named(tmp_path: Path, name: str, value: object, field: str) -> None:
    """K10: a failed request returns at once with code and message."""
    office = Office(tmp_path)
    options: dict[str, Any] = {"user": "u", name: value}
    async with opened(office):
        with pytest.raises((RemitError, TypeError)) as caught:
            await office.hub.ask("clerk", "work", **options)
    error = caught.value
    if isinstance(error, RemitError):
        assert error.fault.code is Code.MALFORMED_ENVELOPE
    assert field in str(error)
    assert office.ran == []


async def test_all_wrong_arguments_are_named_at_once(tmp_path: Path) -> None:
    office = Office(tmp_path)
    wrong: dict[str, Any] = {"user": 7, "request_id": 5, "session": 6, "hints": 3}
    async with opened(office):
        with pytest.raises(RemitError) as caught:
            await office.hub.ask("clerk", "work", **wrong)
    assert {problem.path for problem in caught.value.fault.problems} >= {"$.remit.user", "$.id", "$.session", "$.hints"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("objective", 5),
        ("objective", "x" * 200_000),
        ("max_tokens", "many"),
        ("max_tokens", 1.5),
        ("max_tokens", -1),
        ("deadline_ms", "soon"),
        ("deadline_ms", -5),
        ("max_depth", "deep"),
        ("context_tokens", "all"),
        ("tools", 5),
        ("tools", "search"),
        ("targets", "helper"),
        ("priority", "URGENT"),
        ("may_delegate", "no"),
        ("hints", 5),
        ("reason", 5),
        ("session", "s" * 300),
        ("session", 5),
        ("handoff", {"finding": 1}),
        ("context", {"last": 1}),
        ("input", object()),
        ("input", {"a": {object()}}),
        ("input", "\ud800"),
        ("objective", "\ud800"),
        ("correlation", 5),
        ("refined_by", ""),
        ("target", 5),
        ("target", ["helper"]),
        ("target", "h" * 300),
        ("target", "\ud800"),
        ("capability", "c" * 300),
        ("capability", ["C"]),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_wrong_call_is_refused_by_name_and_leaves_a_record_that_can_be_read(
    tmp_path: Path, option: str, value: object
) -> None:
    """Decision 1: an agent that delegates always gets a response, never a surprise."""
    office = Office(tmp_path)
    got: list[Response] = []

    @office.hub.agent("helper")
    async def helper(brief: Brief) -> str:
        office.ran.append("helper")
        return "helped"

    @office.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> None:
        options: dict[str, Any] = {"target": "helper", "objective": "x", option: value}
        got.append(await brief.delegate(**options))

    async with opened(office):
        response = await office.hub.ask("boss", user="u")
        assert code_of(response) is None, response.fault
        assert len(await office.hub.delegations(response.run)) == 2
    (refused,) = got
    assert refused.fault is not None
    assert (refused.status, office.ran) == (Status.REFUSED, [])
    text = refused.fault.message + "".join(each.path for each in refused.fault.problems)
    assert option in text or str(value)[:20] in text


async def test_a_call_with_an_option_that_does_not_exist_is_refused_by_python(tmp_path: Path) -> None:
    office = Office(tmp_path)

    @office.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> None:
        options: dict[str, Any] = {"objectve": "x"}
        await brief.delegate("clerk", **options)

    async with opened(office):
        response = await office.hub.ask("boss", user="u")
    assert response.fault is not None
    assert "objectve" in response.fault.message


async def test_a_request_that_never_began_may_come_again_though_the_store_was_in_trouble(
    make_hub: Callable[..., Hub],
) -> None:
    """Decision 6: only outcomes after execution began are kept, also those that are recorded late."""
    hub = make_hub()
    began, may_end, ran = asyncio.Event(), asyncio.Event(), list[str]()

    @hub.agent("one", concurrency=1)
    async def one(brief: Brief) -> str:
        ran.append(brief.text)
        began.set()
        await may_end.wait()
        return "done"

    async def broken(*_: object, **__: object) -> bool:
        raise StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is full"))

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        first = group.create_task(hub.ask("one", "first", user="u-1"))
        await began.wait()
        queued = group.create_task(hub.ask("one", "second", user="u-1", request_id="q"))
        while len(await hub.store.runs()) < 2:
            await asyncio.sleep(0)
        finish = hub.store.finish
        hub.store.finish = broken
        queued.cancel()
        await asyncio.wait({queued})
        hub.store.finish = finish
        await hub._engine.runs._records.record_late()  # pyright: ignore[reportPrivateUsage]
        may_end.set()
        await first
        again = await hub.ask("one", "second", user="u-1", request_id="q")
    assert (again.result, ran) == ("done", ["first", "second"])


# ── a callee that changes nothing ─────────────────────────────────────────────────────────────────────────────────────

READING: dict[str, Any] = {"capabilities": [Capability(code="READ", read_only=True)]}


@pytest.mark.parametrize(("capability", "shared"), [("READ", True), (None, False)])
async def test_a_request_and_its_outcome_share_a_commit_if_the_callee_changes_nothing(
    tmp_path: Path, capability: str | None, shared: bool
) -> None:
    office = Office(tmp_path, **READING)
    commits: list[int] = []
    async with opened(office):
        leave = office.hub.store.listen(lambda records: commits.append(len(records)), patient=True)
        for number in range(5):  # a heartbeat of the hub may come between
            assert (await office.ask(id=str(number), capability=capability)).ok
        leave()
    assert (2 in commits) is shared


async def test_a_callee_that_changes_nothing_is_asked_once_all_the_same(tmp_path: Path) -> None:
    office = Office(tmp_path, **READING)
    async with opened(office):
        first = await office.ask(capability="READ")
        again = await office.ask(capability="READ")
        assert code_of(await office.ask("other", capability="READ")) is Code.DUPLICATE_REQUEST
    assert (first.result, again.result) == ("work, 1", "work, 1")
    assert office.ran == ["u: work"]


async def test_a_request_that_changes_nothing_is_soon_seen_by_other_processes(tmp_path: Path) -> None:
    office, other = Office(tmp_path, **READING), Office(tmp_path, **READING)
    office.let_go.clear()
    async with opened(office, other), asyncio.TaskGroup() as group:
        first = group.create_task(office.ask(capability="READ"))
        await office.begun.wait()
        while not await other.hub.store.runs():
            await asyncio.sleep(0.01)
        second = group.create_task(other.ask(capability="READ"))
        await asyncio.sleep(0.01)
        office.let_go.set()
    assert (first.result().result, second.result().result) == ("work, 1", "work, 1")
    assert other.ran == []


async def test_of_two_processes_that_began_the_same_early_both_give_the_answer_that_was_recorded(
    tmp_path: Path,
) -> None:
    office, other = Office(tmp_path, **READING), Office(tmp_path, **READING)
    for each in (office, other):
        each.let_go.clear()
    async with opened(office, other), asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.ask(capability="READ")) for each in (office, other)]
        await asyncio.sleep(0)
        for each in (office, other):
            each.let_go.set()
        assert (await tasks[0]).result == (await tasks[1]).result == "work, 1"
        assert len(await office.hub.store.runs()) == 1
