"""K4: an agent with `route` answers a request itself or hands it over, and the response says why."""

import asyncio
from typing import Any

import pytest

from remit import Brief, Capability, Handoff, Hub
from remit.runtime.run_tree import Tree
from remit_cli.show.runs import delegation

SUM = Capability(code="SUM", description="Sum up figures", examples=("sum up the figures", "add these numbers"))
MAIL = Capability(code="MAIL", description="Send a letter", examples=("send a letter", "post this letter"))
LONG = "Sum up the figures of all quarters of the year, please"


def team(hub: Hub, *, failing: bool = False, others: tuple[Capability, ...] = (SUM, MAIL)) -> None:
    @hub.agent("desk", capabilities=[SUM], may_call=["expert"], route=True)
    async def desk(brief: Brief) -> str:
        if failing:
            raise ValueError
        return "desk"

    @hub.agent("expert", capabilities=others)
    async def expert(brief: Brief) -> str:
        return f"expert: {brief.request.reason}"

    assert desk
    assert expert


def decided(response: Any) -> tuple[str, str]:
    return response.metadata["handling"]["decision"], response.metadata["handling"]["reason"]


async def test_what_only_another_can_do_is_handed_over_with_the_reason(hub: Hub) -> None:
    team(hub)
    async with hub:
        named = await hub.ask("desk", "send a letter to Anna", user="u")
    assert decided(named) == ("route", "intent")
    assert named.result == "expert: what is asked for is clearly another agent's domain"
    assert named.path == ("desk", "expert")


@pytest.mark.parametrize(
    ("text", "others", "reason"),
    [
        ("Sum up the figures", (SUM,), "simplicity"),
        (LONG, (SUM,), "scope"),
        (LONG, (MAIL,), "scope"),
        ("Hello to you all and a very good morning", (MAIL,), "equivalence"),
        ("Hello", (MAIL,), "simplicity"),
    ],
)
async def test_what_it_can_do_itself_is_answered_here(
    hub: Hub, text: str, others: tuple[Capability, ...], reason: str
) -> None:
    team(hub, others=others)
    async with hub:
        capability = "SUM" if "um up" in text else None
        response = await hub.ask("desk", text, user="u", capability=capability)
    assert (response.result, decided(response)) == ("desk", ("local", reason))


async def test_whoever_does_it_better_gets_it(hub: Hub) -> None:
    team(hub, failing=True)
    async with hub:
        for _ in range(4):
            await hub.ask("expert", LONG, user="u", capability="SUM")
            await hub.ask("desk", LONG, user="u", capability="SUM")
        response = await hub.ask("desk", LONG, user="u", capability="SUM")
    assert decided(response) == ("route", "expertise")


async def test_whoever_has_worked_on_it_has_the_data(hub: Hub) -> None:
    team(hub)
    async with hub:
        given = Handoff(prior_agents=("expert",))
        response = await hub.ask("desk", LONG, user="u", capability="SUM", handoff=given)
    assert decided(response) == ("route", "data")


async def test_without_time_for_another_it_is_answered_here(hub: Hub) -> None:
    team(hub)

    @hub.agent("slow", capabilities=[SUM])
    async def slow(brief: Brief) -> str:
        await asyncio.sleep(2.5)
        return "slow"

    @hub.agent("quick", capabilities=[SUM], may_call=["slow"], route=True)
    async def quick(brief: Brief) -> str:
        return "quick"

    assert slow
    assert quick
    async with hub:
        await hub.ask("slow", LONG, user="u", capability="SUM")
        response = await hub.ask("quick", LONG, user="u", capability="SUM", deadline_ms=2_000)
    assert (response.result, decided(response)) == ("quick", ("local", "latency"))


async def test_operators_see_the_reason(hub: Hub) -> None:
    team(hub)
    tree = Tree()
    async with hub:
        async for record in hub.stream("desk", "send a letter to Anna", user="u"):
            tree.feed(record)
    assert tree.root is not None
    line = delegation(tree.root, 0)
    assert line.handling == "routed: what is asked for is clearly another agent's domain"
