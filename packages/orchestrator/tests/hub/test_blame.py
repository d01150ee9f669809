"""A failure counts against the agent in which it began, for breakers and rankings alike."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

import isolated_agents
from remit import Answer, Brief, Call, Capability, Code, Hub, RemitError, Request, Response, Status, fault
from remit.policy.breaker import Phase
from remit.ports import Remote, RemoteHandle
from remit.protocol.card import AgentCard
from remit.protocol.orchestration import Step, Workflow
from remit.runtime.delegation.routing import tracks
from remit_orchestrator import add_workflow
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock, a_response
from waiting import PATIENCE_S

TRACK = "Track parcel 7"


def code_of(response: Response) -> Code | None:
    return response.fault.code if response.fault else None


async def unwraps(brief: Brief) -> object:
    return (await brief.delegate("tracking", objective=brief.text)).unwrap()


async def wraps(brief: Brief) -> object:
    try:
        return (await brief.delegate("tracking", objective=brief.text)).unwrap()
    except RemitError as error:
        raise LookupError("no parcel") from error


async def asks_two(brief: Brief) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(unwraps(brief))


async def hands_on(brief: Brief) -> Answer:
    return Answer(calls=(Call(target="tracking", objective=brief.text),))


async def hands_on_to_several(brief: Brief) -> Answer:
    calls = (Call(target="tracking", objective=brief.text), Call(target="tracking", objective=brief.text + "!"))
    return Answer(calls=calls)


PASS_ON: list[Callable[[Brief], Awaitable[object]]] = [unwraps, wraps, asks_two, hands_on, hands_on_to_several]


def a_hub(clock: ManualClock | None = None) -> Hub:
    hub = Hub(store=MemoryStore(), clock=clock or ManualClock())

    @hub.agent("tracking", capabilities=[Capability(code="TRACK", read_only=True)])
    async def tracking(brief: Brief) -> str:
        if "billing" in brief.text:
            return "fine"
        raise ValueError("the carrier is gone")

    return hub


@pytest.mark.parametrize("agent", PASS_ON)
async def test_an_agent_that_only_passes_failures_on_stays_open_to_others(
    agent: Callable[[Brief], Awaitable[object]],
) -> None:
    """C8, K11: one broken specialist does not take its callers down."""
    hub = a_hub()

    @hub.agent("front", may_call=["tracking"])
    async def front(brief: Brief) -> object:
        return "hello" if brief.text == "hello" else await agent(brief)

    async with hub:
        for _ in range(8):
            assert not (await hub.ask("front", TRACK, user="u")).ok
        assert (await hub.ask("front", "hello", user="u")).result == "hello"
        assert code_of(await hub.ask("tracking", TRACK, user="u")) is Code.DELEGATION_UNAVAILABLE


async def test_a_workflow_is_not_blamed_for_its_steps() -> None:
    hub = a_hub()
    add_workflow(hub, Workflow(name="find", steps=(Step(name="track", agent="tracking", objective=TRACK),)))
    async with hub:
        for _ in range(5):
            assert code_of(await hub.ask("find", "x", user="u")) is Code.DELEGATION_FAILED
        phases = {name: each.breaker for name, each in hub.agent_status().items()}
    assert phases == {"find": Phase.CLOSED, "tracking": Phase.OPEN}


async def test_what_an_agent_does_wrong_itself_counts_though_its_callee_failed_too() -> None:
    hub = a_hub()

    @hub.agent("front", may_call=["tracking"])
    async def front(brief: Brief) -> None:
        await brief.delegate("tracking", objective=brief.text)
        raise ZeroDivisionError

    async with hub:
        for _ in range(5):
            await hub.ask("front", TRACK, user="u")
        assert code_of(await hub.ask("front", "hello", user="u")) is Code.DELEGATION_UNAVAILABLE


@pytest.mark.parametrize("text", ["as it is", "in other words"])
async def test_an_agent_in_a_process_of_its_own_is_not_blamed_for_what_it_passes_on(text: str) -> None:
    hub = a_hub()
    hub.agent("front", may_call=["tracking"], isolation="process")(isolated_agents.pass_a_failure_on)
    async with hub:
        for _ in range(5):
            assert not (await hub.ask("front", text, user="u")).ok
        assert (await hub.ask("front", "hello", user="u")).result == "hello"


class Peer(Remote):
    """An agent elsewhere that fails, or hands on to one that does."""

    def __init__(self, *path: str) -> None:
        self.path = path

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        why = fault(Code.DELEGATION_FAILED, "tracking raised ValueError")
        return replace(a_response(request), status=Status.FAILED, result=None, fault=why, path=self.path)


@pytest.mark.parametrize(
    ("path", "code"), [(("far", "tracking"), Code.DELEGATION_FAILED), ((), Code.DELEGATION_UNAVAILABLE)]
)
async def test_a_peer_is_not_blamed_for_those_to_which_it_handed_on(path: tuple[str, ...], code: Code) -> None:
    hub = Hub(store=MemoryStore(), clock=ManualClock())
    hub.register(AgentCard(name="far"), Peer(*path))
    async with hub:
        for _ in range(5):
            await hub.ask("far", "x", user="u")
        assert code_of(await hub.ask("far", "x", user="u")) is code


async def ask_and_turn(hub: Hub, clock: ManualClock, begun: asyncio.Event, deadline_ms: int) -> Response:
    begun.clear()
    task = asyncio.create_task(hub.ask("slow", "work", user="u", deadline_ms=deadline_ms))
    await begun.wait()
    clock.advance(deadline_ms / 1_000 + 0.1)
    return await task


@pytest.mark.parametrize("known", [True, False])
async def test_impatient_callers_do_not_close_an_agent_to_others(known: bool) -> None:
    """A time-out counts only if the callee had its usual time: by its own record, else by its card."""
    clock, begun = ManualClock(), asyncio.Event()
    hub = Hub(store=MemoryStore(), clock=clock)

    @hub.agent("slow", time_ms=2_000)
    async def slow(brief: Brief) -> str:
        if brief.text == "work":
            begun.set()
            await asyncio.Event().wait()
        clock.advance(1)
        return "done"

    async with hub, asyncio.timeout(PATIENCE_S):
        if known:
            assert (await hub.ask("slow", "hello", user="u")).ok
        for _ in range(25):
            assert (await ask_and_turn(hub, clock, begun, 50)).status is Status.TIMEOUT
        assert (await hub.ask("slow", "hello", user="u")).ok
        for _ in range(5):
            assert (await ask_and_turn(hub, clock, begun, 2_000)).status is Status.TIMEOUT
        assert code_of(await hub.ask("slow", "hello", user="u")) is Code.DELEGATION_UNAVAILABLE


async def test_an_agent_whose_time_ran_out_while_it_waited_for_another_is_not_blamed() -> None:
    clock, begun = ManualClock(), asyncio.Event()
    hub = Hub(store=MemoryStore(), clock=clock)

    @hub.agent("hanging")
    async def hanging(brief: Brief) -> None:
        begun.set()
        await asyncio.Event().wait()

    @hub.agent("front", may_call=["hanging"])
    async def front(brief: Brief) -> object:
        return "hello" if brief.text == "hello" else await brief.delegate("hanging", objective="x", deadline_ms=60_000)

    async with hub, asyncio.timeout(PATIENCE_S):
        for _ in range(5):
            begun.clear()
            task = asyncio.create_task(hub.ask("front", "x", user="u", deadline_ms=60_000))
            await begun.wait()
            clock.advance(61)
            assert (await task).status is Status.TIMEOUT
        assert (await hub.ask("front", "hello", user="u")).ok
        assert code_of(await hub.ask("hanging", "x", user="u")) is Code.DELEGATION_UNAVAILABLE


async def test_rankings_from_the_record_blame_as_those_in_memory_do() -> None:
    store, clock = MemoryStore(), ManualClock()
    hub = Hub(store=store, clock=clock)

    @hub.agent("tracking", capabilities=[Capability(code="TRACK", read_only=True)])
    async def tracking(brief: Brief) -> None:
        raise ValueError("the carrier is gone")

    @hub.agent("front", capabilities=["FIND"], may_call=["tracking"])
    async def front(brief: Brief) -> object:
        return (await brief.delegate("tracking", capability="TRACK", input=brief.text)).unwrap()

    @hub.agent("boss", may_call=["front"])
    async def boss(brief: Brief) -> object:
        return (await brief.delegate("front", capability="FIND", input=brief.text)).unwrap()

    async with hub:
        for number in range(3):
            await hub.ask("boss", str(number), user="u")
        records = await store.recent(1_000)
    records_by_agent = tracks(records, float)
    assert records_by_agent["TRACK", "tracking"].failures > 2
    assert (records_by_agent["FIND", "front"].failures, records_by_agent["FIND", "front"].in_flight) == (0, 0)
