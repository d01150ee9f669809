"""Agents that draw on their caller's tokens, agents below themselves, and overruns that stop one call alone."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Brief, Code, Hub, Kind, Limits, Notice
from remit_testing.memory import MemoryStore
from samples import code_of

TREE = Limits(root_tokens=1_000, delegation_tokens=100, max_depth=6, max_fan_out=6)


def hub_with(limits: Limits = TREE, **options: Any) -> Hub:
    return Hub(store=MemoryStore(), limits=limits, **options)


async def test_an_agent_that_draws_goes_on_with_its_callers_tokens() -> None:
    hub = hub_with()
    left = list[int]()

    @hub.agent("worker", draws=True)
    async def worker(brief: Brief) -> str:
        left.append(brief.tokens_left())
        brief.spend(prompt=150)
        left.append(brief.tokens_left())
        return "done"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        reply = await brief.delegate("worker", objective="Work")
        left.append(brief.tokens_left())
        return reply.unwrap()

    async with hub:
        response = await hub.ask("boss", "go", user="u")
        await hub.store.flush()
        records = await hub.store.records(run=response.run)
    assert (response.result, response.usage.total, response.usage.overrun) == ("done", 150, 0)
    assert left == [128, 121, 850]
    notices = [record.body.text for record in records if record.kind is Kind.NOTICE and isinstance(record.body, Notice)]
    assert notices == ["worker took 50 more tokens from its caller"]


async def test_what_is_drawn_never_exceeds_what_the_callers_have_left() -> None:
    hub = hub_with()

    @hub.agent("worker", draws=True, may_call=["worker"], recursive=True)
    async def worker(brief: Brief) -> str:
        if brief.remit.depth < 3:
            return (await brief.delegate("worker", objective=f"Deeper than {brief.remit.depth}")).unwrap()
        brief.spend(prompt=1_001)
        return "not reached"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        return str(code_of(await brief.delegate("worker", objective="Work")))

    async with hub:
        response = await hub.ask("boss", "go", user="u")
    assert response.result == "TOKEN_BUDGET_EXCEEDED"
    assert (response.usage.total, response.usage.overrun) == (1_001, 1)


async def test_what_an_agent_keeps_back_is_not_taken_by_those_that_it_asks() -> None:
    hub = hub_with()

    @hub.agent("worker", draws=True)
    async def worker(brief: Brief) -> str:
        brief.spend(prompt=brief.tokens_left(1_000))
        return "done"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> list[int]:
        brief.keep_back(300)
        left = [brief.tokens_left()]
        (await brief.delegate("worker", objective="Work")).unwrap()
        left.append(brief.tokens_left())
        brief.keep_back(5_000)
        brief.keep_back(0)
        left.append(brief.tokens_left())
        return left

    async with hub:
        response = await hub.ask("boss", "go", user="u")
    assert (response.result, response.usage.total, response.usage.overrun) == ([700, 0, 300], 700, 0)


async def test_an_agent_without_draws_keeps_to_its_grant() -> None:
    hub = hub_with()

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        assert brief.tokens_left() == 100
        brief.spend(prompt=150)
        return "not reached"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        return str(code_of(await brief.delegate("worker", objective="Work")))

    async with hub:
        assert (await hub.ask("boss", "go", user="u")).result == "TOKEN_BUDGET_EXCEEDED"


async def test_what_was_drawn_and_not_spent_goes_back() -> None:
    hub = hub_with()
    left = list[int]()

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> str:
        brief.spend(prompt=10)
        return "leaf"

    @hub.agent("worker", draws=True, may_call=["leaf"])
    async def worker(brief: Brief) -> str:
        # Its own grant is 100: the rest of what the leaf is granted comes from above.
        return (await brief.delegate("leaf", objective="Work", max_tokens=700)).unwrap()

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        reply = await brief.delegate("worker", objective="Work")
        left.append(brief.tokens_left())
        return reply.unwrap()

    async with hub:
        assert (await hub.ask("boss", "go", user="u")).result == "leaf"
    assert left == [990]


@given(st.lists(st.lists(st.integers(0, 400), max_size=4), min_size=1, max_size=6))
def test_agents_that_draw_at_once_never_spend_more_than_one_step_beyond_the_run(spends: list[list[int]]) -> None:
    hub = hub_with()

    @hub.agent("worker", draws=True)
    async def worker(brief: Brief) -> str:
        for tokens in spends[int(brief.text)]:
            brief.spend(prompt=tokens)
            await asyncio.sleep(0)
        return "done"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> list[str]:
        replies = await asyncio.gather(*(brief.delegate("worker", objective=str(n)) for n in range(len(spends))))
        return [str(reply.status) for reply in replies]

    response = hub.ask_sync("boss", "go", user="u")
    most = max((tokens for steps in spends for tokens in steps), default=0)
    assert response.usage.total <= 1_000 + most * len(spends)
    if sum(map(sum, spends)) <= 1_000:
        assert response.ok
        assert set(response.result) <= {"success"}
        assert response.usage.total == sum(map(sum, spends))


@pytest.mark.parametrize(("overrun", "second"), [("run", "TOKEN_BUDGET_EXCEEDED"), ("call", "None")])
async def test_an_overrun_stops_the_run_or_that_call_alone(overrun: Any, second: str) -> None:
    hub = hub_with(Limits(root_tokens=1_000, delegation_tokens=100, overrun=overrun))

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        brief.spend(prompt=int(brief.text))
        return "done"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        first = await brief.delegate("worker", objective="150")
        then = await brief.delegate("worker", objective="50")
        return f"{code_of(first)} {code_of(then)}"

    async with hub:
        response = await hub.ask("boss", "go", user="u")
    assert response.result == f"TOKEN_BUDGET_EXCEEDED {second}"


async def test_an_agent_that_may_be_called_below_itself_is_ended_by_depth() -> None:
    hub = hub_with()
    codes = list[Code | None]()

    @hub.agent("worker", may_call=["worker"], recursive=True, draws=True)
    async def worker(brief: Brief) -> str:
        codes.append(code_of(await brief.delegate("worker", objective=f"Deeper than {brief.remit.depth}")))
        return "done"

    async with hub:
        assert (await hub.ask("worker", "go", user="u")).ok
    assert codes == [Code.MAX_DEPTH_EXCEEDED, *[None] * 6]
