"""How often an agent may be asked, and when one that keeps failing is left alone."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from remit import BreakerSettings, Brief, Code, Fault, Hub, Rate, RemitError, Response, Status, fault
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import code_of
from waiting import PATIENCE_S


class Scene(NamedTuple):
    """A hub whose time stands still, and an agent that does what it is told."""

    hub: Hub
    clock: ManualClock
    ran: list[str]
    begun: asyncio.Event
    let_go: asyncio.Event

    async def ask(self, text: str = "ok", agent: str = "shaky") -> Response:
        return await self.hub.ask(agent, text, user="u")

    async def fail(self, times: int) -> list[Code | None]:
        return [code_of(await self.ask("raise")) for _ in range(times)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    clock = ManualClock()
    scene = Scene(
        Hub(store=tmp_path / "hub.db", durability="process", clock=clock), clock, [], asyncio.Event(), asyncio.Event()
    )

    @scene.hub.agent("shaky", may_call=["nobody-else"], allow_sub_agent_calls=False)
    async def shaky(brief: Brief) -> object:
        scene.ran.append(brief.text)
        match brief.text:
            case "raise":
                raise ZeroDivisionError
            case "hang":
                scene.begun.set()
                await asyncio.Event().wait()
            case "wait":
                scene.begun.set()
                await scene.let_go.wait()
            case "nonsense":
                return object()
            case "spend":
                brief.spend(prompt=10**7)
            case text if text in Code.__members__:
                raise RemitError(fault(Code[text], "as the test wishes"))
            case _:
                pass
        return "fine"

    @scene.hub.agent("nobody-else")
    async def other(brief: Brief) -> str:
        return "fine"

    @scene.hub.agent("boss", may_call=["shaky"])
    async def boss(brief: Brief) -> str:
        return str(code_of(await brief.delegate("shaky", objective=brief.text)))

    return scene


async def test_an_agent_that_fails_five_times_in_a_row_is_left_alone(scene: Scene) -> None:
    """C8, K11: a circuit breaker for each target; it stops routing at the threshold."""
    async with scene.hub:
        assert await scene.fail(5) == [Code.DELEGATION_FAILED] * 5
        refused = await scene.ask()
        assert refused.fault is not None
        assert (refused.status, refused.fault.code) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
        assert (refused.fault.retry_after_ms, refused.fault.recoverable) == (30_000, True)
        assert (await scene.ask("x", "boss")).result == "DELEGATION_UNAVAILABLE"
        assert (await scene.ask("x", "nobody-else")).result == "fine"
    assert len(scene.ran) == 5


async def test_after_thirty_seconds_one_probe_is_let_through_and_its_success_closes_the_breaker(scene: Scene) -> None:
    """C8, K11: probe for recovery."""
    async with scene.hub:
        await scene.fail(5)
        scene.clock.advance(29.9)
        assert code_of(await scene.ask()) is Code.DELEGATION_UNAVAILABLE
        scene.clock.advance(0.2)
        probe = asyncio.create_task(scene.ask("wait"))
        await scene.begun.wait()
        assert code_of(await scene.ask()) is Code.DELEGATION_UNAVAILABLE
        scene.let_go.set()
        assert (await probe).ok
        assert [(await scene.ask()).ok for _ in range(3)] == [True] * 3
    assert scene.ran == ["raise"] * 5 + ["wait"] + ["ok"] * 3


@pytest.mark.parametrize("agent", ["shaky", "boss"])
async def test_of_many_that_come_at_once_only_one_is_the_probe(scene: Scene, agent: str) -> None:
    """C8, decision 3: allow is not a reservation; who is judged at once is still admitted one by one."""
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        await scene.fail(5)
        scene.clock.advance(30)
        tasks = [asyncio.create_task(scene.ask("wait", agent)) for _ in range(5)]
        await scene.begun.wait()
        await scene.hub.store.flush()  # so that each has had its turn
        scene.let_go.set()
        await asyncio.wait(tasks)
    assert scene.ran[5:] == ["wait"]


async def test_cancelled_calls_never_open_it(scene: Scene) -> None:
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        for _ in range(10):
            scene.begun.clear()
            task = asyncio.create_task(scene.ask("hang"))
            await scene.begun.wait()
            task.cancel()
            await asyncio.wait({task})
        assert (await scene.ask()).ok


async def test_time_outs_open_it(scene: Scene) -> None:
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        for _ in range(5):
            scene.begun.clear()
            task = asyncio.create_task(scene.hub.ask("shaky", "hang", user="u", deadline_ms=30_000))
            await scene.begun.wait()
            scene.clock.advance(30.1)
            assert (await task).status is Status.TIMEOUT
        assert code_of(await scene.ask()) is Code.DELEGATION_UNAVAILABLE


async def test_a_probe_that_is_cancelled_leaves_the_question_to_the_next(scene: Scene) -> None:
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        await scene.fail(5)
        scene.clock.advance(30)
        probe = asyncio.create_task(scene.ask("hang"))
        await scene.begun.wait()
        probe.cancel()
        await asyncio.wait({probe})
        assert (await scene.ask()).ok
        assert (await scene.ask()).ok


async def test_a_call_from_before_the_opening_does_not_speak_for_the_probe(scene: Scene) -> None:
    """A success that was on its way before the agent broke says nothing about whether it has recovered."""
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        early = asyncio.create_task(scene.hub.ask("shaky", "wait", user="u", deadline_ms=100_000))
        await scene.begun.wait()
        await scene.fail(5)
        scene.clock.advance(30)
        scene.begun.clear()
        probe = asyncio.create_task(scene.ask("hang"))
        await scene.begun.wait()
        scene.let_go.set()
        assert (await early).ok
        after = await scene.ask()
        probe.cancel()
        await asyncio.wait({probe})
    assert code_of(after) is Code.DELEGATION_UNAVAILABLE


async def test_a_team_sets_its_own_threshold() -> None:
    hub = Hub(store=MemoryStore(), clock=ManualClock(), breaker=BreakerSettings(failures_in_a_row=2, open_s=5))

    @hub.agent("shaky")
    async def shaky(brief: Brief) -> None:
        raise ZeroDivisionError

    async with hub:
        faults = [(await hub.ask("shaky", user="u")).fault for _ in range(3)]
    assert [each.code if each else None for each in faults] == [
        Code.DELEGATION_FAILED,
        Code.DELEGATION_FAILED,
        Code.DELEGATION_UNAVAILABLE,
    ]


# ── rate ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Rated(NamedTuple):
    """A hub whose time stands still, and an agent that may be asked three times a minute."""

    hub: Hub
    clock: ManualClock
    ran: list[str]

    async def ask(self, agent: str = "rated") -> Fault | None:
        response = await self.hub.ask(agent, "x", user="u")
        return response.fault or (response.result if isinstance(response.result, Fault) else None)


@pytest.fixture
def rated(tmp_path: Path) -> Rated:
    clock = ManualClock()
    rated = Rated(Hub(store=tmp_path / "hub.db", durability="process", clock=clock), clock, [])

    @rated.hub.agent("rated", rate=Rate(3, 60))
    async def answer(brief: Brief) -> None:
        rated.ran.append(brief.text)
        await asyncio.sleep(0)

    @rated.hub.agent("boss", may_call=["rated"])
    async def boss(brief: Brief) -> None:
        (await brief.delegate("rated", objective="x")).unwrap()

    return rated


@pytest.mark.parametrize("agent", ["rated", "boss"])
async def test_an_agent_is_asked_so_often_in_each_window_and_no_more(rated: Rated, agent: str) -> None:
    """S11 in process: calls are rate-limited, with when to come back."""
    async with rated.hub:
        for window in range(1, 4):
            faults = [await rated.ask(agent) for _ in range(5)]
            assert [each and (each.code, each.retry_after_ms) for each in faults] == [
                None,
                None,
                None,
                (Code.RATE_LIMITED, 60_000),
                (Code.RATE_LIMITED, 60_000),
            ]
            rated.clock.advance(45)
            late = await rated.ask(agent)
            assert late is not None
            assert late.retry_after_ms == 15_000
            assert len(rated.ran) == 3 * window
            rated.clock.advance(15)


@pytest.mark.parametrize("agent", ["rated", "boss"])
async def test_a_rate_holds_for_those_that_come_at_once_as_well(rated: Rated, agent: str) -> None:
    """Decision 3: allow is not a reservation; a check and the count that follows it are one step."""
    async with rated.hub, asyncio.TaskGroup() as group:
        tasks = [group.create_task(rated.ask(agent)) for _ in range(10)]
    codes = [fault.code for task in tasks if (fault := task.result())]
    assert (len(rated.ran), codes) == (3, [Code.RATE_LIMITED] * 7)


# ── attacks on the breaker ────────────────────────────────────────────────────────────────────────────────────────────


async def hurried(hub: Hub, clock: ManualClock, begun: asyncio.Event, deadline_ms: int) -> Response:
    """Ask for work that does not end, and return what becomes of that when its time is over."""
    begun.clear()
    task = asyncio.create_task(hub.ask("clerk", "hang", user="mallory", deadline_ms=deadline_ms))
    await begun.wait()
    clock.advance(deadline_ms / 1_000 + 0.1)
    return await task


async def test_many_trivial_requests_do_not_make_the_usual_work_look_too_slow() -> None:
    """A time-out counts only if the callee had its usual time, and a flood of pings does not say what that is."""
    clock, begun = ManualClock(), asyncio.Event()
    hub = Hub(store=MemoryStore(), clock=clock)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        if brief.text == "hang":
            begun.set()
            await asyncio.Event().wait()
        if brief.text == "work":
            clock.advance(1)
        return "done"

    async with hub, asyncio.timeout(PATIENCE_S):
        assert (await hub.ask("clerk", "work", user="anna")).ok
        for _ in range(50):
            assert (await hub.ask("clerk", "ping", user="mallory")).ok
        for _ in range(5):
            assert (await hurried(hub, clock, begun, 50)).status is Status.TIMEOUT
        assert (await hub.ask("clerk", "work", user="anna")).ok
        for _ in range(5):
            assert (await hurried(hub, clock, begun, 2_000)).status is Status.TIMEOUT
        refused = await hub.ask("clerk", "work", user="anna")
    assert code_of(refused) is Code.DELEGATION_UNAVAILABLE


async def test_a_probe_that_never_ends_does_not_keep_an_agent_closed() -> None:
    """Whoever comes first after a pause may ask for what hangs; the next pause is over for the others all the same."""
    clock, begun, broken = ManualClock(), asyncio.Event(), [True]
    hub = Hub(store=MemoryStore(), clock=clock)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        if brief.text == "hang":
            begun.set()
            await asyncio.Event().wait()
        if broken[0]:
            raise ConnectionError("down")
        return "done"

    async with hub, asyncio.timeout(PATIENCE_S):
        for _ in range(5):
            await hub.ask("clerk", "work", user="anna")
        broken[0] = False
        clock.advance(31)
        probe = asyncio.create_task(hub.ask("clerk", "hang", user="mallory", deadline_ms=300_000))
        await begun.wait()
        refused = await hub.ask("clerk", "work", user="anna")
        clock.advance(31)
        served = await hub.ask("clerk", "work", user="anna")
        clock.advance(300)
        assert (await probe).status is Status.TIMEOUT
    assert code_of(refused) is Code.DELEGATION_UNAVAILABLE
    assert served.ok
