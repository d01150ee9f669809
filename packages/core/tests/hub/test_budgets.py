"""Budgets are carved like money: reserved before a call, settled after it, the rest given back."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties import share
from remit import (
    Answer,
    Brief,
    Call,
    Capability,
    Code,
    Hub,
    Kind,
    Limits,
    Notice,
    Rate,
    Record,
    RemitError,
    Request,
    Response,
    Status,
    Usage,
)
from remit.runtime.frames import Frame
from remit.runtime.ledger import Ledger
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import code_of
from waiting import PATIENCE_S


def ledger_of(hub: Hub) -> Ledger:
    return hub._parts.ledger  # pyright: ignore[reportPrivateUsage]


async def records_of(hub: Hub, run: str) -> list[Record]:
    await hub.store.flush()
    return await hub.store.records(run=run)


async def grants_of(hub: Hub, run: str) -> dict[str, int]:
    """What each delegation of a run was granted, by its objective."""
    bodies = [record.body for record in await records_of(hub, run)]
    return {body.objective: body.remit.tokens for body in bodies if isinstance(body, Request)}


def spender(hub: Hub, name: str = "spender") -> None:
    """Register an agent that spends what its input says."""

    @hub.agent(name)
    async def spend(brief: Brief) -> Answer:
        return Answer("spent", usage=Usage(prompt=int(brief.request.input or 0)))


# ── grants ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_root_run_has_a_million_tokens_and_a_delegation_its_fair_share(tmp_path: Path) -> None:
    """X7, decision 12: the defaults."""
    hub = Hub(store=tmp_path / "hub.db", durability="process")
    spender(hub)

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> str:
        return str((await brief.delegate("spender", objective="inner")).status)

    async with hub:
        response = await hub.ask("boss", "outer", user="u")
        assert await grants_of(hub, response.run) == {"outer": 1_000_000, "inner": 250_000}


@pytest.mark.parametrize(
    ("call", "granted"),
    [
        (Call(target="expert", objective="x"), 700),
        (Call(target="expert", objective="x", capability="SUM"), 300),
        (Call(capability="SUM", objective="x"), 300),
        (Call(target="expert", objective="x", capability="MEAN"), 700),
        (Call(target="expert", objective="x", capability="SUM", max_tokens=20), 20),
        (Call(target="expert", objective="x", max_tokens=5_000), 1_000),
    ],
)
async def test_a_call_takes_what_it_asks_for_else_the_capabilitys_else_the_agents_and_never_more_than_is_left(
    call: Call, granted: int
) -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("expert", tokens=700, capabilities=[Capability(code="SUM", tokens=300), "MEAN"])
    async def expert(brief: Brief) -> int:
        return brief.remit.tokens

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> Call:
        return call

    async with hub:
        assert (await hub.ask("boss", user="u", max_tokens=1_000)).result == granted


async def test_a_fan_out_gives_each_call_for_which_nobody_sets_tokens_a_fair_share() -> None:
    """X4, decision 12: three calls and the caller share what is left."""
    hub = Hub(store=MemoryStore())

    @hub.agent("expert")
    async def expert(brief: Brief) -> int:
        return brief.remit.tokens

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        brief.spend(prompt=100)
        calls = [Call(target="expert", objective=str(each)) for each in range(3)]
        calls[1] = Call(target="expert", objective="asks", max_tokens=200)
        return [each.result for each in await brief.fan_out(calls)]

    async with hub:
        assert (await hub.ask("boss", user="u", max_tokens=1_001)).result == [225, 200, 238]


async def test_what_a_call_did_not_spend_is_there_again_for_the_next() -> None:
    """X7: reserved before, settled after, the unspent part returned."""
    hub = Hub(store=MemoryStore())
    spender(hub)
    seen: list[int] = []

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> None:
        for spent in (0, 250, 100):
            seen.append(brief.tokens_left())
            task = asyncio.create_task(brief.delegate("spender", objective=str(spent), input=spent, max_tokens=400))
            await asyncio.sleep(0)
            seen.append(brief.tokens_left())
            await task
        seen.append(brief.tokens_left())

    async with hub:
        response = await hub.ask("boss", user="u", max_tokens=1_000)
    assert seen == [1_000, 600, 1_000, 600, 750, 350, 650]
    assert response.usage == Usage(prompt=350)


async def test_a_call_that_was_refused_reserves_nothing() -> None:
    hub = Hub(store=MemoryStore(), limits=Limits(max_fan_out=1))
    spender(hub)

    @hub.agent("boss", may_call=["spender"])
    async def boss(brief: Brief) -> list[object]:
        refused = [
            await brief.delegate("nobody", objective="1", max_tokens=900),
            *await brief.fan_out([Call(target="spender", objective=str(each)) for each in range(2)]),
        ]
        return [*(each.status for each in refused), brief.tokens_left()]

    async with hub:
        response = await hub.ask("boss", user="u", max_tokens=1_000)
    assert response.result == ["refused", "refused", "refused", 1_000]


@pytest.mark.parametrize("end", ["raises", "times out", "cancelled", "nonsense", "exits"])
async def test_however_a_callee_ends_its_reservation_is_settled_by_what_it_spent(end: str) -> None:
    clock = ManualClock()
    hub = Hub(store=MemoryStore(), clock=clock)
    begun = asyncio.Event()

    @hub.agent("callee")
    async def callee(brief: Brief) -> object:
        brief.spend(prompt=30, completion=12)
        match end:
            case "raises":
                raise ZeroDivisionError
            case "nonsense":
                return object()
            case "exits":
                raise SystemExit
            case _:
                begun.set()
                return await asyncio.Event().wait()

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        response = await brief.delegate("callee", objective="x", max_tokens=500, deadline_ms=1_000)
        return [str(response.status), response.usage.total, brief.tokens_left()]

    async with hub, asyncio.timeout(PATIENCE_S):
        task = asyncio.create_task(hub.ask("boss", user="u", max_tokens=1_000))
        if end in ("times out", "cancelled"):
            await begun.wait()
            if end == "times out":
                clock.advance(1.1)
            else:
                (path,) = [path for path in ledger_of(hub).frames if path.endswith(".1")]
                hub.cancel(path)
        status, spent, left = (await task).unwrap()
    expected = {"times out": "timeout", "cancelled": "cancelled"}.get(end, "failed")
    assert (status, spent, left) == (expected, 42, 958)


# ── what an agent says of its spending is not trusted ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["answer", "answer with calls", "spend"])
async def test_an_agent_cannot_earn_tokens_by_spending_fewer_than_none(how: str) -> None:
    """Decision 9: usage that a callee reports is input, and a hop can only narrow."""
    hub = Hub(store=MemoryStore())

    @hub.agent("friend")
    async def friend(brief: Brief) -> str:
        return "ok"

    @hub.agent("forger", may_call=["friend"])
    async def forger(brief: Brief) -> Answer:
        if how == "spend":
            brief.spend(prompt=-5_000)
            return Answer("forged")
        calls = (Call(target="friend", objective="x"),) if how == "answer with calls" else ()
        return Answer("forged", usage=Usage(prompt=-5_000, completion=-5), calls=calls)

    @hub.agent("boss", may_call=["forger"])
    async def boss(brief: Brief) -> int:
        await brief.delegate("forger", objective="x")
        return brief.tokens_left()

    async with hub:
        response = await hub.ask("boss", user="u", max_tokens=1_000)
    assert response.result <= 1_000
    assert min(response.usage.prompt, response.usage.completion) >= 0


@pytest.mark.parametrize("how", ["answer", "spend"])
async def test_a_use_beyond_all_numbers_leaves_a_record_that_can_be_read(tmp_path: Path, how: str) -> None:
    """Decision 9: usage that a callee reports is input, validated and clamped."""
    hub = Hub(store=tmp_path / "hub.db", durability="process")

    @hub.agent("braggart")
    async def braggart(brief: Brief) -> Answer:
        if how == "spend":
            brief.spend(prompt=2**60)
        return Answer("x", usage=Usage(prompt=2**60))

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> str:
        return str((await brief.delegate("braggart", objective="x")).status)

    async with hub:
        first = await hub.ask("boss", user="u", request_id="1")
        assert [each.status for each in await hub.delegations(first.run)] == [first.status, Status.FAILED]
        assert await hub.ask("boss", user="u", request_id="1") == first


async def test_an_agent_cannot_spend_what_it_has_reserved_for_a_callee_in_flight() -> None:
    """Those that run at once can never spend more together than their parent had, the parent itself included."""
    hub = Hub(store=MemoryStore())
    spender(hub)

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> str:
        task = asyncio.create_task(brief.delegate("spender", objective="x", input=800, max_tokens=800))
        await asyncio.sleep(0)
        try:
            left = brief.spend(prompt=500)
        except RemitError as error:
            return str(error.fault.code)
        finally:
            await task
        return f"{left} left"

    async with hub:
        response = await hub.ask("boss", user="u", max_tokens=1_000)
    assert Code.TOKEN_BUDGET_EXCEEDED in (response.result, code_of(response))
    assert response.result != "-300 left"


# ── overrun ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_overrun_is_recorded_fails_the_delegation_and_is_charged_to_all_above(tmp_path: Path) -> None:
    """Decision 12: what was spent beyond the reservation is recorded and charged to the ancestors."""
    hub = Hub(store=tmp_path / "hub.db", durability="process")
    spender(hub)

    @hub.agent("middle", may_call=["*"])
    async def middle(brief: Brief) -> list[object]:
        response = await brief.delegate("spender", objective="bottom", input=150, max_tokens=100)
        return [str(response.status), str(code_of(response)), response.usage.overrun, brief.tokens_left()]

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        response = await brief.delegate("middle", objective="middle", max_tokens=400)
        return [response.result, response.usage.total, brief.tokens_left()]

    async with hub:
        response = await hub.ask("boss", "top", user="u", max_tokens=1_000)
        records = await records_of(hub, response.run)
    assert response.status is Status.SUCCESS
    assert response.result == [["failed", "TOKEN_BUDGET_EXCEEDED", 50, 250], 150, 850]
    assert response.usage == Usage(prompt=150)
    notices = [record.body for record in records if isinstance(record.body, Notice)]
    assert [(each.agent, each.code) for each in notices] == [("spender", Code.TOKEN_BUDGET_EXCEEDED)]


async def test_nothing_more_starts_in_a_run_that_was_overrun_but_what_is_in_flight_ends_and_other_runs_go_on() -> None:
    """Decision 12: an overrun stops the run."""
    hub = Hub(store=MemoryStore())
    spender(hub)
    slow_is_in, let_go = asyncio.Event(), asyncio.Event()

    @hub.agent("slow", may_call=["*"])
    async def slow(brief: Brief) -> str:
        slow_is_in.set()
        await let_go.wait()
        return str(code_of(await brief.delegate("spender", objective="below", max_tokens=10)))

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        sibling = asyncio.create_task(brief.delegate("slow", objective="x", max_tokens=100))
        await slow_is_in.wait()
        over = await brief.delegate("spender", objective="y", input=150, max_tokens=100)
        after = await brief.delegate("spender", objective="z", max_tokens=100)
        several = await brief.fan_out([Call(target="spender", objective=str(each)) for each in range(2)])
        let_go.set()
        finished = await sibling
        return [over.status, code_of(after), *map(code_of, several), finished.status, finished.result]

    @hub.agent("other", may_call=["*"])
    async def other(brief: Brief) -> str:
        await let_go.wait()
        return str((await brief.delegate("spender", objective="x")).status)

    async with hub, asyncio.timeout(PATIENCE_S):
        bystander = asyncio.create_task(hub.ask("other", user="u"))
        response = await hub.ask("boss", user="u", max_tokens=1_000)
        assert (await bystander).result == "success"
        assert (await hub.ask("other", user="u")).result == "success"
    exceeded = "TOKEN_BUDGET_EXCEEDED"
    assert response.result == ["failed", exceeded, exceeded, exceeded, "success", exceeded]


async def test_an_overrun_that_eats_the_parents_own_grant_fails_the_parent_too() -> None:
    hub = Hub(store=MemoryStore())
    spender(hub)

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> str:
        await brief.delegate("spender", objective="x", input=1_500, max_tokens=100)
        return "as if nothing had happened"

    async with hub:
        response = await hub.ask("boss", user="u", max_tokens=1_000)
    assert (response.status, code_of(response)) == (Status.FAILED, Code.TOKEN_BUDGET_EXCEEDED)
    assert response.usage == Usage(prompt=1_500, overrun=500)


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Plan(NamedTuple):
    """What one agent does: it waits some turns of the loop, spends, asks others at once or in turn, and may fail."""

    asks: int | None
    spends: int
    turns: int
    fails: bool
    together: bool
    children: tuple["Plan", ...]


def plans(children: st.SearchStrategy[Plan] | None) -> st.SearchStrategy[Plan]:
    return st.builds(
        Plan,
        asks=st.none() | st.integers(0, 400),
        spends=st.integers(0, 60) | st.integers(0, 2_000),
        turns=st.integers(0, 5),
        fails=st.booleans(),
        together=st.booleans(),
        children=st.lists(children, max_size=3).map(tuple) if children is not None else st.just(()),
    )


TREES = plans(plans(plans(plans(None))))


class Team:
    """Agents of several depths that do what the plan in their input says."""

    DEPTHS = 5

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.hub = Hub(store=self.store, limits=Limits(delegation_tokens=150))
        self.frames: set[Frame] = set()
        self.spent: dict[str, int] = {}
        for depth in range(self.DEPTHS):
            self.hub.agent(f"a{depth}", may_call=["*"])(self.work)

    async def work(self, brief: Brief) -> Answer:
        self.frames.update(ledger_of(self.hub).frames.values())
        plan: Any = brief.input
        asks, spends, turns, fails, together, children = plan
        del asks
        for _ in range(turns):
            await asyncio.sleep(0)
        calls = [self.call(brief, number, child) for number, child in enumerate(children)]
        if together:
            await brief.fan_out(calls)
        else:
            for call in calls:
                await brief.delegate(
                    call.target, objective=call.objective, input=call.input, max_tokens=call.max_tokens
                )
        self.spent[brief.request.id] = spends
        if fails:
            try:
                brief.spend(prompt=spends)
            finally:
                raise ZeroDivisionError
        return Answer("done", usage=Usage(completion=spends))

    def call(self, brief: Brief, number: int, plan: Any) -> Call:
        target = f"a{brief.remit.depth + 1}"
        return Call(target=target, objective=f"part {number}", input=plan, max_tokens=plan[0])

    async def run(self, trees: Sequence[Plan], tokens: int) -> list[Response]:
        async with asyncio.timeout(PATIENCE_S), self.hub, asyncio.TaskGroup() as group:
            work = [
                group.create_task(
                    self.hub.ask("a0", input=tree, user="u", max_tokens=tokens, request_id=f"root {each}")
                )
                for each, tree in enumerate(trees)
            ]
        return [task.result() for task in work]

    async def records(self) -> list[Record]:
        await self.store.open()
        return await self.store.records(limit=100_000)


class Account(NamedTuple):
    """What a delegation was granted, what its ended callees used, and what those in flight may still use."""

    granted: int
    used: list[int]
    open: dict[str, int]


def check_grants(records: Sequence[Record]) -> None:
    """Replay the record and see that every grant was cut from what its parent had left."""
    accounts: dict[str, Account] = {}
    parents: dict[str, str] = {}
    overrun: set[str] = set()
    for record in records:
        match record.body:
            case Request() as request:
                place = request.run if request.parent is None else request.id
                accounts[place] = Account(request.remit.tokens, [], {})
                if request.parent is not None:
                    assert record.run not in overrun, "nothing starts after an overrun"
                    parent = accounts[request.parent]
                    assert request.remit.tokens + sum(parent.used) + sum(parent.open.values()) <= parent.granted
                    parent.open[place] = request.remit.tokens
                    parents[place] = request.parent
            case Response() as response if response.id in parents:
                parent = accounts[parents[response.id]]
                del parent.open[response.id]
                parent.used.append(response.usage.total)
                if response.usage.overrun:
                    overrun.add(record.run)
            case _:
                pass
    assert [account.open for account in accounts.values() if account.open] == []


@given(tree=TREES, tokens=st.integers(1, 2_000))
@share(1.5)
def test_whatever_a_tree_of_agents_does_its_tokens_add_up(tree: Plan, tokens: int) -> None:
    """X7: grants are cut from what is left, nothing stays reserved, and the root is charged exactly what was spent."""

    async def scenario() -> None:
        team = Team()
        (response,) = await team.run([tree], tokens)
        check_grants(await team.records())
        spent = sum(team.spent.values())
        assert (response.usage.total, response.usage.overrun) == (spent, max(0, spent - tokens))
        assert ledger_of(team.hub).frames == {}
        assert [(frame.path, frame.reserved) for frame in team.frames if frame.reserved or frame.in_flight()] == []

    asyncio.run(scenario())


@given(trees=st.lists(TREES, min_size=2, max_size=4), tokens=st.integers(1, 2_000))
def test_runs_that_interleave_never_spend_each_others_tokens(trees: list[Plan], tokens: int) -> None:
    """X7: many trees at once in one loop, each within its own budget."""

    async def scenario() -> None:
        team = Team()
        await team.run(trees, tokens)
        check_grants(await team.records())

    asyncio.run(scenario())


async def test_a_rate_is_counted_for_those_that_run_and_reserves_no_tokens_for_those_that_do_not() -> None:
    hub = Hub(store=MemoryStore(), clock=ManualClock())

    @hub.agent("busy", rate=Rate(1, 60))
    async def busy(brief: Brief) -> None: ...

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        calls = [Call(target="busy", objective=str(each)) for each in range(3)]
        return [*(code_of(each) for each in await brief.fan_out(calls)), brief.tokens_left()]

    async with hub:
        response = await hub.ask("boss", user="u", max_tokens=900)
    assert response.result == [None, "RATE_LIMITED", "RATE_LIMITED", 900]


async def test_the_records_of_a_run_say_who_spent_what(tmp_path: Path) -> None:
    """X7, X13: real use is metered, and in the record."""
    hub = Hub(store=tmp_path / "hub.db", durability="process")
    spender(hub)

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> None:
        brief.spend(completion=7, estimated=True)
        await brief.delegate("spender", objective="x", input=30)

    async with hub:
        response = await hub.ask("boss", user="u")
        spent = {each.target: each.usage for each in await hub.delegations(response.run)}
        kinds = [record.kind for record in await records_of(hub, response.run)]
    assert spent == {"boss": Usage(prompt=30, completion=7, estimated=True), "spender": Usage(prompt=30)}
    assert kinds == [Kind.STARTED, Kind.DELEGATION, Kind.RESULT, Kind.RESULT]
