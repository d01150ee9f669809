"""A user's tokens of a day hold over all runs, and over all hubs that share a store."""

import asyncio
from pathlib import Path

import pytest

from remit import Answer, Brief, Code, Hub, Limits, Response, Status, Usage
from remit.runtime.delegation.user_budgets import DAY_MS
from remit.stores.sqlite import SqliteStore
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import code_of


class Calendar(ManualClock):
    """A clock whose wall can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def a_hub(store: SqliteStore | MemoryStore, most: int = 1_000, run: int = 400, clock: Calendar | None = None) -> Hub:
    limits = Limits(user_tokens_per_day=most, root_tokens=run, delegation_tokens=run)
    hub = Hub(store=store, limits=limits) if clock is None else Hub(store=store, limits=limits, clock=clock)

    @hub.agent("spender")
    async def spender(brief: Brief) -> int:
        granted = brief.tokens_left()
        brief.spend(prompt=min(granted, brief.input))
        return granted

    @hub.agent("boss", may_call=["spender"])
    async def boss(brief: Brief) -> int:
        return (await brief.delegate("spender", objective="spend", input=brief.input, max_tokens=250)).unwrap()

    return hub


async def spend(hub: Hub, tokens: int, user: str = "ada", target: str = "spender") -> Response:
    return await hub.ask(target, "spend", input=tokens, user=user)


async def test_what_a_run_does_not_spend_can_be_spent_by_the_next() -> None:
    async with a_hub(MemoryStore()) as hub:
        granted = [(await spend(hub, 100)).result for _ in range(9)]
        assert granted == [400] * 7 + [300, 200]
        last = await spend(hub, 100)
        assert (last.ok, last.result) == (True, 100)
        refused = await spend(hub, 1)
    assert code_of(refused) is Code.TOKEN_BUDGET_EXCEEDED
    assert refused.fault is not None
    assert refused.fault.message == "the 1,000 tokens of ada for this day are spent or reserved by runs in progress"
    assert refused.fault.retry_after_ms is not None


async def test_the_last_run_of_a_day_gets_what_is_left() -> None:
    async with a_hub(MemoryStore(), most=500) as hub:
        assert (await spend(hub, 350)).result == 400
        assert (await spend(hub, 0)).result == 150
        assert (await spend(hub, 150)).ok
        assert code_of(await spend(hub, 1)) is Code.TOKEN_BUDGET_EXCEEDED


async def test_each_user_has_a_day_of_their_own() -> None:
    async with a_hub(MemoryStore(), most=400) as hub:
        assert (await spend(hub, 400)).ok
        assert not (await spend(hub, 1)).ok
        assert (await spend(hub, 400, user="ben")).ok


async def test_what_agents_delegate_is_counted_once() -> None:
    async with a_hub(MemoryStore(), most=600, run=300) as hub:
        assert [(await spend(hub, 200, target="boss")).ok for _ in range(3)] == [True, True, True]
        assert not (await spend(hub, 1, target="boss")).ok


async def test_hubs_on_one_store_share_the_day_also_at_once(tmp_path: Path) -> None:
    """However many ask at once at however many hubs, together they are granted no more than the day has."""
    path = tmp_path / "hub.db"
    first, second = (a_hub(SqliteStore(path, durability="process"), most=1_000, run=300) for _ in range(2))
    async with first, second:
        requests = [spend(hub, 300) for _ in range(5) for hub in (first, second)]
        done = await asyncio.gather(*requests)
    spent = sum(each.usage.prompt for each in done)
    assert spent <= 1_000
    assert spent >= 900
    assert {code_of(each) for each in done} == {None, Code.TOKEN_BUDGET_EXCEEDED}


async def test_a_new_day_begins_at_midnight_and_a_run_over_midnight_gives_it_nothing() -> None:
    clock = Calendar()
    clock.ahead_ms = -clock.wall_ms() % DAY_MS + DAY_MS - 1_000  # a second before midnight
    began = asyncio.Event()
    go_on = asyncio.Event()
    hub = a_hub(MemoryStore(), most=400, clock=clock)

    @hub.agent("sleeper")
    async def sleeper(brief: Brief) -> int:
        began.set()
        await go_on.wait()
        return brief.tokens_left()

    async with hub:
        over_midnight = asyncio.create_task(hub.ask("sleeper", "wait", user="ada"))
        await began.wait()
        assert code_of(await spend(hub, 1)) is Code.TOKEN_BUDGET_EXCEEDED
        clock.ahead_ms += 2_000
        assert (await spend(hub, 300)).result == 400
        go_on.set()
        assert (await over_midnight).result == 400
        assert (await spend(hub, 0)).result == 100


async def test_a_request_that_is_refused_or_was_made_before_costs_nothing() -> None:
    async with a_hub(MemoryStore(), most=400) as hub:
        assert code_of(await hub.ask("nobody", "x", user="ada")) is Code.AGENT_NOT_FOUND
        first = await hub.ask("spender", "spend", input=100, user="ada", request_id="once")
        again = await hub.ask("spender", "spend", input=100, user="ada", request_id="once")
        assert (first.result, again.run) == (400, first.run)
        assert (await spend(hub, 0)).result == 300


async def test_an_outcome_can_be_read_again_when_nothing_is_left_of_the_day() -> None:
    async with a_hub(MemoryStore()) as hub:
        first = await hub.ask("spender", "spend", input=400, user="ada", request_id="first")
        for _ in range(2):
            await spend(hub, 400)
        assert code_of(await spend(hub, 1)) is Code.TOKEN_BUDGET_EXCEEDED
        assert await hub.ask("spender", "spend", input=400, user="ada", request_id="first") == first


# ── money ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_paid_hub(limits: Limits) -> Hub:
    """A hub on which a token costs a cent."""
    made = Hub(store=MemoryStore(), limits=limits, prices=lambda agent, model, usage: 10_000 * usage.total)

    @made.agent("spender")
    async def spender(brief: Brief) -> int | None:
        granted = brief.cost_left()
        brief.spend(prompt=brief.input)
        return granted

    return made


async def test_a_users_day_of_money_is_reserved_and_given_back_like_that_of_tokens() -> None:
    async with a_paid_hub(Limits(user_cost_per_day=500_000)) as hub:

        async def spend_of_400(tokens: int, user: str = "ada") -> Response:
            return await hub.ask("spender", "spend", input=tokens, user=user, max_cost=400_000)

        assert [(await spend_of_400(15)).result for _ in range(3)] == [400_000, 350_000, 200_000]
        assert (await spend_of_400(5)).result == 50_000
        refused = await spend_of_400(1)
        assert (await spend_of_400(1, user="ben")).result == 400_000
    assert code_of(refused) is Code.TOKEN_BUDGET_EXCEEDED
    assert refused.fault is not None
    assert refused.fault.message == "the 0.50 USD of ada for this day are spent or reserved by runs in progress"
    assert "`cost_per_user_per_day`" in refused.fault.suggestion


async def test_a_run_without_an_amount_shares_the_money_that_is_left_of_the_day() -> None:
    async with a_paid_hub(Limits(user_cost_per_day=800_000, user_tokens_per_day=45)) as hub:
        assert [(await spend(hub, each)).result for each in (20, 15, 10)] == [200_000, 150_000, 112_500]
        refused = await spend(hub, 1)
        assert refused.fault is not None
        assert "45 tokens" in refused.fault.message


# ── several runs at once ──────────────────────────────────────────────────────────────────────────────────────────────


class Careful:
    """Agents that ask for what they need before each step, as those with a model do; all begin before any goes on."""

    def __init__(self, limits: Limits, store: SqliteStore | MemoryStore | None = None) -> None:
        self.limits = limits
        self.begun = 0
        self.all_begun = asyncio.Event()
        self.expected = 1
        self.hub = Hub(store=store or MemoryStore(), limits=limits, prices=lambda agent, model, usage: 10 * usage.total)
        hub = self.hub

        @hub.agent("worker")
        async def worker(brief: Brief) -> int:
            await self._begin()
            return await self._work(brief, brief.input)

        @hub.agent("part")
        async def part(brief: Brief) -> int:
            return await self._work(brief, brief.input)

        @hub.agent("boss", may_call=["part"])
        async def boss(brief: Brief) -> int:
            await self._begin()
            each = brief.input // 3
            calls = (brief.delegate("part", objective=f"part {n}", input=each) for n in range(3))
            return sum(reply.unwrap() for reply in await asyncio.gather(*calls))

    async def _begin(self) -> None:
        self.begun += 1
        if self.begun == self.expected:
            self.all_begun.set()
        await self.all_begun.wait()

    async def _work(self, brief: Brief, steps: int) -> int:
        """Take steps of 1,000 tokens for a cent each, until too little is left."""
        done = 0
        while done < steps and await brief.more_tokens(1_000) >= 1_000:
            if brief.affordable(400, 600) < 600:
                break
            brief.spend(prompt=400, completion=600)
            done += 1
        return done

    async def run_at_once(self, *steps: int, target: str = "worker", user: str = "ada") -> list[Response]:
        self.begun, self.expected = 0, len(steps)
        self.all_begun.clear()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.hub.ask(target, "work", input=each, user=user)) for each in steps]
        return [task.result() for task in tasks]


async def test_runs_of_a_user_at_once_share_a_day_that_is_smaller_than_one_run() -> None:
    """Ten begin before any spends, each draws on the day as it goes, and together they may spend all of it."""
    careful = Careful(Limits(user_tokens_per_day=300_000))
    async with careful.hub:
        done = await careful.run_at_once(*(30,) * 10)
        assert [each.result for each in done] == [30] * 10
        assert code_of(await careful.hub.ask("worker", "work", input=1, user="ada")) is Code.TOKEN_BUDGET_EXCEEDED


async def test_a_run_alone_may_spend_the_whole_day() -> None:
    careful = Careful(Limits(user_tokens_per_day=300_000))
    async with careful.hub:
        (done,) = await careful.run_at_once(1_000)
        assert (done.result, done.usage.total, done.status) == (300, 300_000, Status.SUCCESS)


async def test_agents_below_draw_on_the_users_day_too() -> None:
    careful = Careful(Limits(user_tokens_per_day=300_000))
    async with careful.hub:
        done = await careful.run_at_once(120, 90, 90, target="boss")
        assert [each.result for each in done] == [120, 90, 90]


async def test_together_runs_at_once_never_spend_more_than_the_day() -> None:
    careful = Careful(Limits(user_tokens_per_day=100_000))
    async with careful.hub:
        done = await careful.run_at_once(*(40,) * 5)
        assert sum(each.usage.total for each in done) == 100_000
        assert await careful.hub.ask("worker", "work", input=1, user="ben")


async def test_a_run_that_asks_for_a_number_reserves_it_and_keeps_to_it() -> None:
    async with a_hub(MemoryStore(), most=400_000, run=300_000) as hub:
        shared = await spend(hub, 0)
        own = await hub.ask("spender", "spend", input=0, user="ada", max_tokens=250_000)
        assert (shared.result, own.result) == (100_000, 250_000)


async def test_runs_at_once_share_the_money_of_a_day() -> None:
    """A step costs a cent: five runs spend three dollars of three, and none is refused before that."""
    careful = Careful(Limits(user_cost_per_day=3_000_000))
    async with careful.hub:
        done = await careful.run_at_once(*(60,) * 5)
        assert [(each.result, each.usage.cost) for each in done] == [(60, 600_000)] * 5
        assert code_of(await careful.hub.ask("worker", "work", input=1, user="ada")) is Code.TOKEN_BUDGET_EXCEEDED


async def test_what_runs_drew_and_did_not_spend_goes_back_to_the_day(tmp_path: Path) -> None:
    limits = Limits(user_tokens_per_day=200_000, user_cost_per_day=2_000_000)
    careful = Careful(limits, SqliteStore(tmp_path / "hub.db", durability="process"))
    async with careful.hub:
        first = await careful.run_at_once(70, 20)
        second = await careful.run_at_once(100, 10)
    assert [each.result for each in (*first, *second)] == [70, 20, 100, 10]


async def test_an_agent_that_reports_its_usage_at_the_end_draws_on_the_day() -> None:
    async with Hub(store=MemoryStore(), limits=Limits(user_tokens_per_day=200_000)) as hub:

        @hub.agent("reporter")
        async def reporter(brief: Brief) -> Answer:
            return Answer("done", usage=Usage(prompt=150_000))

        assert (await hub.ask("reporter", "work", user="ada")).ok
        assert code_of(await hub.ask("reporter", "work", user="ada")) is Code.TOKEN_BUDGET_EXCEEDED


# ── runs that are cancelled, and runs that are resumed ────────────────────────────────────────────────────────────────


class HoldingStore(MemoryStore):
    """A store that holds back its answer to the next change of a counter, while told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: str | None = None
        self.counting = asyncio.Event()
        self.go_on = asyncio.Event()

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        total = await super().incr(key, n, window_ms)
        if n > 0 and self.held is not None and key.startswith(self.held):
            self.held = None
            self.counting.set()
            await self.go_on.wait()
        return total


@pytest.mark.parametrize("held", ["user-tokens", "user-cost"])
async def test_a_run_that_is_cancelled_while_it_draws_keeps_nothing_of_the_day(held: str) -> None:
    store = HoldingStore()
    careful = Careful(Limits(user_tokens_per_day=200_000, user_cost_per_day=2_000_000), store)
    hub, drawing = careful.hub, asyncio.Event()

    @hub.agent("drawer")
    async def drawer(brief: Brief) -> None:
        store.held = held
        drawing.set()
        await brief.more_tokens(100_000)

    async with hub:
        asking = asyncio.create_task(hub.ask("drawer", "draw", user="ada", request_id="drawn"))
        await drawing.wait()
        await store.counting.wait()
        assert hub.cancel("drawn", "no longer needed")
        store.go_on.set()
        assert (await asking).status is Status.CANCELLED
        (done,) = await careful.run_at_once(1_000)
    assert (done.result, done.usage.total) == (200, 200_000)


async def test_a_run_that_is_resumed_goes_on_to_draw_on_the_day_and_gives_back_what_it_does_not_spend(
    tmp_path: Path,
) -> None:
    limits = Limits(user_tokens_per_day=200_000, user_cost_per_day=2_000_000)

    def a_resuming_hub() -> tuple[Careful, asyncio.Event]:
        careful = Careful(limits, SqliteStore(tmp_path / "hub.db", durability="process"))
        begun = asyncio.Event()

        @careful.hub.agent("boss-of-many", may_call=["worker"], resumable=True)
        async def boss_of_many(brief: Brief) -> int:
            first = (await brief.delegate("worker", objective="first", input=70)).unwrap()
            begun.set()
            if go_on is not None:
                await go_on.wait()
            return first + (await brief.delegate("worker", objective="second", input=50)).unwrap()

        return careful, begun

    go_on: asyncio.Event | None = asyncio.Event()
    careful, begun = a_resuming_hub()
    async with careful.hub as hub:
        asking = asyncio.create_task(hub.ask("boss-of-many", "work", user="ada", request_id="1"))
        await begun.wait()
    await asyncio.wait({asking})
    go_on = None
    careful, _ = a_resuming_hub()
    async with careful.hub as hub:
        resumed = await hub.ask("boss-of-many", "work", user="ada", request_id="1")
        (rest,) = await careful.run_at_once(1_000)
    assert (resumed.result, resumed.usage.total, resumed.usage.overrun) == (120, 120_000, 0)
    assert (rest.result, rest.usage.total) == (80, 80_000)
