"""Nobody can have an agent closed to others by asking it for little, and then too briefly for much."""

import asyncio

from remit import Brief, Code, Hub, Response, Status
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from waiting import PATIENCE_S


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
    assert refused.fault is not None
    assert refused.fault.code is Code.DELEGATION_UNAVAILABLE


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
    assert refused.fault is not None
    assert refused.fault.code is Code.DELEGATION_UNAVAILABLE
    assert served.ok
