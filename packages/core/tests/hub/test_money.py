"""Money as a budget: carved and reserved along the tree, and refused where no price is known."""

import asyncio

import pytest

from remit import Answer, Brief, Code, Hub, Limits, RemitError, Response, Status, Usage
from remit.protocol.records import Notice
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S

CENT = 10_000


def prices(agent: str, model: str, usage: Usage) -> int | None:
    """A tenth of a cent for each token, of every model but `unheard-of`."""
    return None if model == "unheard-of" else CENT // 10 * usage.total


def spending(hub: Hub, *, cost: int | None = None) -> None:
    """Register an agent that asks a model again and again, for a cent each time, until it is refused."""

    @hub.agent("clerk", cost=cost)
    async def ask(brief: Brief) -> int:
        calls = 0
        while calls < 100:
            most = brief.affordable(5, 5)
            calls += 1
            await asyncio.sleep(0)
            brief.spend(prompt=5, completion=most)
        return calls


def limited(root_cost: int | None = None, delegation_cost: int | None = None) -> Hub:
    limits = Limits(root_cost=root_cost, delegation_cost=delegation_cost)
    return Hub(store=MemoryStore(), prices=prices, limits=limits)


def message_of(response: Response) -> str:
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    return response.fault.message


async def test_a_run_ends_at_its_money_and_says_how_much_that_was() -> None:
    hub = limited(40 * CENT)
    spending(hub)
    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("clerk", "go", user="u")
        less = await hub.ask("clerk", "go", user="u", max_cost=3 * CENT)
    assert message_of(response) == "clerk has spent 0.400 of 0.400 USD, and the next call of its model costs over 0.005"
    assert (response.usage.cost, less.usage.cost) == (40 * CENT, 3 * CENT)


async def test_what_was_spent_beyond_it_fails_the_agent_and_starts_nothing_more() -> None:
    hub = limited(40 * CENT)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        try:
            brief.spend(prompt=420)
        except RemitError:
            return "went on all the same"
        return "unreachable"

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[object]:
        first = await brief.delegate("clerk", objective="one")
        return [message_of(first), (await brief.delegate("clerk", objective="two")).status]

    async with hub:
        response = await hub.ask("boss", "go", user="u")
        records = await hub.store.records(run=response.run)
    assert response.result == ["clerk spent 0.42 of 0.40 USD", Status.REFUSED]
    assert "clerk spent 0.42 of 0.40 USD" in [each.body.text for each in records if isinstance(each.body, Notice)]


async def test_agents_at_once_that_share_money_exceed_it_by_at_most_one_call_each() -> None:
    hub = limited(20 * CENT)
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[str]:
        replies = await asyncio.gather(*(brief.delegate("clerk", objective=each) for each in "abc"))
        assert brief.remit.cost == 20 * CENT
        assert brief.cost_left() == 0
        return [message_of(each) for each in replies]

    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("boss", "go", user="u")
    assert len(response.result) == 3
    assert 20 * CENT <= response.usage.cost <= 23 * CENT


async def test_an_amount_is_set_aside_and_what_is_left_of_it_comes_back() -> None:
    hub = limited()
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[int | None]:
        left = [brief.cost_left()]
        calls = [brief.delegate("clerk", objective=each, max_cost=3 * CENT) for each in "ab"]
        running = [asyncio.create_task(each) for each in calls]
        await asyncio.sleep(0)
        left.append(brief.cost_left())
        assert [(await each).usage.cost for each in running] == [3 * CENT, 3 * CENT]
        return [*left, brief.cost_left()]

    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("boss", "go", user="u", max_cost=10 * CENT)
        unbounded = await hub.ask("boss", "go", user="u")
    assert response.result == [10 * CENT, 4 * CENT, 4 * CENT]
    assert (unbounded.result, unbounded.usage.cost) == ([None, None, None], 6 * CENT)


@pytest.mark.parametrize("where", ["card", "team"])
async def test_an_amount_of_the_card_or_of_the_team_holds_where_the_caller_sets_none(where: str) -> None:
    hub = limited(delegation_cost=2 * CENT if where == "team" else None)
    spending(hub, cost=2 * CENT if where == "card" else None)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[int]:
        replies = [
            await brief.delegate("clerk", objective="a"),
            await brief.delegate("clerk", objective="b", max_cost=CENT),
        ]
        return [each.usage.cost for each in replies]

    async with asyncio.timeout(PATIENCE_S), hub:
        assert (await hub.ask("boss", "go", user="u")).result == [2 * CENT, CENT]


async def test_nothing_starts_without_money() -> None:
    hub = limited(40 * CENT)
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> str:
        return message_of(await brief.delegate("clerk", objective="go", max_cost=0))

    async with hub:
        assert (await hub.ask("boss", "go", user="u")).result == "no money is left for clerk"


async def test_a_model_without_a_price_is_refused_where_money_is_limited_and_nowhere_else() -> None:
    hub = limited()

    @hub.agent("careful")
    async def careful(brief: Brief) -> int:
        return brief.affordable(100, 50, model="unheard-of")

    @hub.agent("careless")
    async def careless(brief: Brief) -> str:
        brief.spend(prompt=10, model="unheard-of")
        return "free"

    @hub.agent("late")
    async def late(brief: Brief) -> Answer:
        return Answer("free", usage=Usage(prompt=10, cost=0, priced=0))

    def nothing(agent: str, model: str, usage: Usage) -> None:
        return None

    async with hub:
        assert (await hub.ask("careful", "go", user="u")).result == 50
        assert (await hub.ask("careless", "go", user="u")).result == "free"
        refused = await hub.ask("careful", "go", user="u", max_cost=CENT)
        failed = await hub.ask("careless", "go", user="u", max_cost=CENT)
    assert message_of(refused) == "the price of `unheard-of` is not known, and careful may spend 0.01 USD at most"
    assert (
        message_of(failed) == "the price of what careless spent is not known, and careless may spend 0.01 USD at most"
    )
    assert refused.fault is not None
    assert "`priced_as`" in refused.fault.suggestion
    hub = Hub(store=MemoryStore(), prices=nothing)
    hub.add("late", late)
    async with hub:
        assert (await hub.ask("late", "go", user="u", max_cost=CENT)).status is Status.FAILED


async def test_a_guard_may_set_less_money() -> None:
    """Then the callee does not share its caller's."""
    from msgspec.structs import replace

    from remit.policy.verdict import Facts, Rewrite
    from remit.protocol.envelope import Request

    def thrifty(request: Request, facts: Facts) -> Rewrite:
        return Rewrite(replace(request, remit=replace(request.remit, cost=CENT)))

    hub = Hub(store=MemoryStore(), prices=prices, limits=Limits(root_cost=40 * CENT), guards=[thrifty])
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> int:
        return (await brief.delegate("clerk", objective="go")).usage.cost

    async with asyncio.timeout(PATIENCE_S), hub:
        assert (await hub.ask("boss", "go", user="u")).result == CENT
