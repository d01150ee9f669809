"""What the tokens of a run cost, recorded with them."""

from remit import Answer, Brief, Hub, Usage
from remit_testing.memory import MemoryStore

KNOWN = {"small": 2, "large": 10}


def prices(agent: str, model: str, usage: Usage) -> int | None:
    """A price for each token, a tenth of it for what came from the cache; `clerk` uses the small model."""
    each = KNOWN.get(model or {"clerk": "small"}.get(agent, ""))
    anew = usage.prompt - usage.cache_read + usage.completion
    return None if each is None else each * anew + usage.cache_read // 10


async def test_each_request_to_a_model_brings_its_cost_and_callers_bear_that_of_all_below() -> None:
    hub = Hub(store=MemoryStore(), prices=prices)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        brief.spend(prompt=100, completion=10)
        brief.spend(prompt=1_000, completion=10, cache_read=800, cache_write=100, model="large", estimated=True)
        return "done"

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> Answer:
        below = await brief.delegate("clerk", objective="Do it")
        brief.spend(prompt=50, model="unheard-of")
        return Answer(below.usage.cost, usage=Usage(prompt=7, completion=3))

    async with hub:
        response = await hub.ask("boss", "go", user="u")
    cost = 2 * 110 + 10 * 210 + 80
    assert response.result == cost
    assert response.usage == Usage(
        prompt=1_157, completion=23, estimated=True, cache_write=100, cache_read=800, cost=cost, priced=1_120
    )
    assert response.usage.unpriced == 60, "the price of `unheard-of` is not known, nor what `boss` reported at its end"


async def test_tokens_that_count_against_no_budget_have_their_price() -> None:
    hub = Hub(store=MemoryStore(), prices=prices)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> int:
        brief.spend(prompt=1_000, cache_read=1_000, uncounted=1_000)
        return brief.spend(prompt=1_100, completion=5, cache_read=1_000, uncounted=1_000)

    async with hub:
        response = await hub.ask("clerk", "go", user="u", max_tokens=300)
    assert (response.result, response.usage) == (
        195,
        Usage(prompt=100, completion=5, cache_read=2_000, cost=100 + 2 * 105 + 100, priced=105),
    )


async def test_whoever_reports_a_cost_of_its_own_is_not_priced_again() -> None:
    hub = Hub(store=MemoryStore(), prices=prices)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Answer:
        return Answer("done", usage=Usage(prompt=10, cost=77, priced=10))

    async with hub:
        assert (await hub.ask("clerk", "go", user="u")).usage.cost == 77


async def test_without_prices_nothing_has_a_cost() -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        brief.spend(prompt=10, completion=1, model="large")
        return "done"

    async with hub:
        response = await hub.ask("clerk", "go", user="u")
    assert (response.usage, response.usage.unpriced) == (Usage(prompt=10, completion=1), 11)
