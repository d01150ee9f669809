"""Kept answers serve root calls and the orchestrator's hand-overs too, each user their own."""

from remit import Brief, Capability, ContextFilter, Handoff, Hub
from remit_orchestrator import add_orchestrator
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock

RATE = Capability(
    code="RATE",
    description="Say the rate of exchange.",
    read_only=True,
    cache_ms=60_000,
    examples=("What is the rate of exchange?", "Tell me the rate of exchange", "rate of exchange please"),
)


def a_hub(clock: ManualClock | None = None) -> tuple[Hub, list[str]]:
    hub, ran = Hub(store=MemoryStore(), clock=clock or ManualClock()), list[str]()

    @hub.agent("rates", capabilities=[RATE, Capability(code="SET")])
    async def rates(brief: Brief) -> str:
        ran.append(brief.remit.user)
        return f"rate {len(ran)}"

    return hub, ran


async def ask(hub: Hub, user: str = "ann", **options: object) -> tuple[object, str]:
    given: dict[str, object] = {"capability": "RATE", "input": {"day": 1}} | options
    response = await hub.ask("rates", user=user, **given)  # pyright: ignore[reportArgumentType]
    return response.unwrap(), response.cache


async def test_a_root_call_is_answered_from_what_is_kept_for_its_user() -> None:
    """C9: the cache is per user, for root calls too."""
    clock = ManualClock()
    hub, ran = a_hub(clock)
    async with hub:
        assert await ask(hub) == ("rate 1", "miss")
        assert await ask(hub) == ("rate 1", "hit")
        assert await ask(hub, "bob") == ("rate 2", "miss")
        assert await ask(hub, input={"day": 2}) == ("rate 3", "miss")
        clock.advance(61)
        assert await ask(hub) == ("rate 4", "miss")
    assert ran == ["ann", "bob", "ann", "ann"]


async def test_what_may_change_something_is_not_looked_for() -> None:
    hub, ran = a_hub()
    async with hub:
        for _ in range(2):
            assert (await ask(hub, capability="SET"))[1] == "none"
    assert len(ran) == 2


async def test_within_a_session_an_answer_holds_unless_it_was_made_from_what_was_said_there() -> None:
    hub, ran = a_hub()
    reads = True

    @hub.agent("teller", capabilities=[RATE], may_call=["rates"])
    async def teller(brief: Brief) -> int:
        if reads:
            await brief.delegate("rates", objective="look", context=ContextFilter(last_messages=3))
        return len(ran)

    async def cache_status(session: str | None = None) -> str:
        response = await hub.ask("teller", user="ann", capability="RATE", input={}, session=session)
        assert response.ok, response.fault
        return response.cache

    assert teller
    async with hub:
        assert [(await ask(hub, session=name))[1] for name in ("s-1", "s-1", "s-2", "s-2")] == ["miss", "hit"] * 2
        assert [await cache_status("t-1") for _ in range(2)] == ["miss", "miss"]
        reads = False
        assert [await cache_status("t-1") for _ in range(2)] == ["miss", "hit"]
        assert [await cache_status() for _ in range(2)] == ["miss", "hit"]


async def test_what_is_handed_over_is_part_of_what_is_asked_and_where_it_stands_is_not() -> None:
    hub, ran = a_hub()
    came: list[str] = []

    @hub.agent("boss", may_call=["rates"])
    async def boss(brief: Brief) -> None:
        handoff = Handoff(findings=(brief.text,), position=f"Step {len(came)}", history=brief.request.run)
        came.append((await brief.delegate("rates", capability="RATE", objective="rate", handoff=handoff)).cache)

    async with hub:
        for day in ("a holiday", "a holiday", "a Monday"):
            (await hub.ask("boss", day, user="ann")).unwrap()
    assert came == ["miss", "hit", "miss"]
    assert len(ran) == 2


async def test_the_orchestrator_has_its_steps_answered_from_what_is_kept_for_its_user() -> None:
    hub, ran = a_hub()
    add_orchestrator(hub)
    results: list[tuple[object, object]] = []
    async with hub:
        for user in ("ann", "ann", "bob"):
            response = await hub.ask("orchestrator", "What is the rate of exchange?", user=user)
            results.append((response.unwrap(), response.metadata["cache_status"]))
    assert ran == ["ann", "bob"]
    assert [status for _, status in results] == ["miss", "hit", "miss"]
    assert results[0][0] == results[1][0] != results[2][0]


async def test_the_orchestrator_says_where_nothing_had_to_be_decided() -> None:
    hub, _ = a_hub()
    add_orchestrator(hub)
    async with hub:
        response = await hub.ask("orchestrator", "help", user="ann")
    assert response.metadata["cache_status"] == "bypass"
