"""Rate limits, breakers and rankings hold over all hubs that share a store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import BreakerSettings, Brief, Capability, Code, Hub, Rate, RemitError
from remit.policy.breaker import Phase
from remit.runtime import shared_requests
from remit.runtime.shared_requests import SharedLimits
from remit.stores.sqlite import SqliteStore
from samples import code_of
from waiting import eventually

# Longer than the test, so that a window never ends in it.
LONG_S = 30 * 24 * 3_600.0


def a_hub(folder: Path, *, fails: set[str] | None = None, rate: Rate | None = None, shared: bool = True) -> Hub:
    store = SqliteStore(folder / "hub.db", durability="process")
    hub = Hub(store=store, shared=shared, breaker=BreakerSettings(failures_in_a_row=2, open_s=3_600))
    broken = fails if fails is not None else set[str]()

    @hub.agent("worker", rate=rate, capabilities=[Capability(code="WORK")])
    async def worker(_brief: Brief) -> str:
        if broken:
            raise RuntimeError("broken")
        return "done"

    @hub.tool(rate=rate)
    def dig() -> str:
        return "dug"

    @hub.agent("digger", tools=["dig"])
    async def digger(brief: Brief) -> str:
        try:
            return await brief.use("dig")
        except RemitError as error:
            return error.fault.code

    async def dig_alone(_: dict[str, Any]) -> str:
        return "dug"

    @hub.agent("lone-digger", tool_rates={} if rate is None else {"dig": rate})
    async def lone_digger(brief: Brief) -> str:
        try:
            return str(await brief.use_own_tool("dig", {}, dig_alone))
        except RemitError as error:
            return error.fault.code

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str | None:
        reply = await brief.delegate("worker", objective=f"work on {brief.text}")
        return reply.fault.code.value if reply.fault else reply.result

    return hub


def limits_of(hub: Hub) -> SharedLimits:
    shared = hub._engine.shared_limits  # pyright: ignore[reportPrivateUsage]
    assert shared is not None
    return shared


@asynccontextmanager
async def two_hubs(folder: Path, **options: Any) -> AsyncGenerator[tuple[Hub, Hub]]:
    async with a_hub(folder, **options) as first, a_hub(folder, **options) as second:
        yield first, second


@pytest.mark.parametrize("target", ["worker", "boss"])
async def test_hubs_together_call_an_agent_no_oftener_than_its_rate(tmp_path: Path, target: str) -> None:
    async with two_hubs(tmp_path, rate=Rate(calls=5, seconds=LONG_S)) as hubs:
        calls = [hub.ask(target, f"piece {number}", user="u") for number in range(5) for hub in hubs]
        done = await asyncio.gather(*calls)
    if target == "worker":
        assert [code_of(each) for each in done].count(None) == 5
        assert {code_of(each) for each in done} == {None, Code.RATE_LIMITED}
        (fault, *_) = [each.fault for each in done if each.fault]
        assert fault.retry_after_ms
    else:
        assert [each.result for each in done].count("done") == 5
        assert {each.result for each in done} == {"done", "RATE_LIMITED"}


async def test_hubs_together_use_a_tool_no_oftener_than_its_rate(tmp_path: Path) -> None:
    """A tool that an agent brings along has a rate of its own, also where another one is called the same."""
    async with two_hubs(tmp_path, rate=Rate(calls=3, seconds=LONG_S)) as hubs:
        for agent in ("digger", "lone-digger"):
            done = await asyncio.gather(*(hub.ask(agent, user="u") for _ in range(3) for hub in hubs))
            assert sorted(each.result for each in done) == ["RATE_LIMITED"] * 3 + ["dug"] * 3


async def test_a_hub_that_is_alone_counts_by_itself(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, rate=Rate(calls=2, seconds=LONG_S), shared=False) as (first, second):
        for hub in (first, second):
            done = [await hub.ask("worker", f"{number}", user="u") for number in range(3)]
            assert [code_of(each) for each in done] == [None, None, Code.RATE_LIMITED]


async def test_a_breaker_that_one_hub_opens_and_closes_is_open_and_closed_for_all(tmp_path: Path) -> None:
    broken = {"worker"}
    async with two_hubs(tmp_path, fails=broken) as (first, second):
        for number in range(2):
            assert code_of(await first.ask("worker", f"{number}", user="u")) is Code.DELEGATION_FAILED
        assert second.agent_status()["worker"].breaker is Phase.CLOSED
        for hub in (first, second):
            await limits_of(hub).exchange_breakers()
        assert second.agent_status()["worker"].breaker is Phase.OPEN
        assert code_of(await second.ask("worker", "x", user="u")) is Code.DELEGATION_UNAVAILABLE

        broken.clear()
        first.reconfigure(breaker=BreakerSettings(failures_in_a_row=2, open_s=0))  # its probe may come at once
        assert (await first.ask("worker", "y", user="u")).ok
        for hub in (first, second):
            await limits_of(hub).exchange_breakers()
        assert second.agent_status()["worker"].breaker is Phase.CLOSED
        assert (await second.ask("worker", "z", user="u")).ok


async def test_hubs_exchange_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_requests, "EXCHANGE_S", 0.01)
    async with two_hubs(tmp_path, fails={"worker"}) as (first, second):
        for number in range(2):
            await first.ask("worker", f"{number}", user="u")
        await eventually(lambda: second.agent_status()["worker"].breaker is Phase.OPEN)


async def test_a_ranking_counts_what_other_hubs_have_seen(tmp_path: Path) -> None:
    """What succeeded or failed elsewhere decides here, too, who is asked first."""
    async with two_hubs(tmp_path) as (first, second):
        await second._engine.dispatch.routing.recall()  # pyright: ignore[reportPrivateUsage]
        for number in range(20):
            await first.ask("worker", f"{number}", user="u", capability="WORK")
        await first.store.flush()
        await second._engine.dispatch.routing.refresh()  # pyright: ignore[reportPrivateUsage]
        track = second._parts.ledger.tracks["WORK", "worker"]  # pyright: ignore[reportPrivateUsage]
        assert not track.is_new
