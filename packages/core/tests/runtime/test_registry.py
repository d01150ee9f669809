"""Who is there: what a team may be, and when it is told what is wrong with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit import AgentCard, Brief, Capability, Code, Fault, Hub, Problem, Rate, RemitError
from remit.ports import Remote
from remit.protocol.envelope import Answer
from remit.runtime.registry import Registry
from remit_testing.memory import MemoryStore


async def answer(brief: Brief) -> Answer:
    return Answer("ok")


def wrong(act: Callable[[], object]) -> Fault:
    with pytest.raises(RemitError) as caught:
        act()
    assert caught.value.fault.code is Code.TEAM_INVALID
    return caught.value.fault


async def wrong_at_opening(hub: Hub) -> Fault:
    with pytest.raises(RemitError) as caught:
        async with hub:
            pass
    assert caught.value.fault.code is Code.TEAM_INVALID
    return caught.value.fault


@pytest.mark.parametrize("name", ["", " ", "a b", "a@b", "-a", ".a", "a/b", "ä", "a\n", "user", "a" * 129, "a:b", "*"])
def test_a_name_that_would_need_quoting_cannot_be_an_agents(name: str) -> None:
    fault = wrong(lambda: Hub(store=MemoryStore()).agent(name)(answer))
    assert f"`{name}` cannot be an agent's name" in fault.message


@pytest.mark.parametrize("name", ["a", "TAG-ai_2.0", "9", "a" * 128])
def test_letters_digits_and_a_few_signs_make_a_name(name: str) -> None:
    hub = Hub(store=MemoryStore())
    hub.agent(name)(answer)
    assert list(hub.cards) == [name]


@pytest.mark.parametrize("name", ["", "my hub", "a@b"])
def test_a_name_that_would_need_quoting_cannot_be_a_hubs(name: str) -> None:
    assert "cannot be a hub's name" in wrong(lambda: Hub(name=name, store=MemoryStore())).message


@pytest.mark.parametrize("name", ["a b", "-a"])
def test_a_name_that_would_need_quoting_cannot_be_a_tools(name: str) -> None:
    def tool() -> None: ...

    assert "cannot be a tool's name" in wrong(lambda: Hub(store=MemoryStore()).tool(name)(tool)).message


def test_two_agents_cannot_have_one_name() -> None:
    hub = Hub(store=MemoryStore())
    hub.agent("clerk")(answer)
    assert wrong(lambda: hub.agent("clerk")(answer)).message == "there are two agents named `clerk`"


def test_two_tools_cannot_have_one_name() -> None:
    def search() -> None: ...

    hub = Hub(store=MemoryStore())
    hub.tool()(search)
    assert wrong(lambda: hub.tool()(search)).message == "there are two tools named `search`"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("concurrency", 0),
        ("concurrency", -1),
        ("queue", -1),
        ("rate", Rate(0, 60)),
        ("rate", Rate(5, 0)),
        ("time_ms", -1),
        ("tokens", -1),
        ("tokens", "many"),
        ("max_sub_agent_depth", -1),
        ("concurrency", 1.5),
        ("may_call", [7]),
        ("version", 2),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_when_the_agent_is_registered(field: str, value: Any) -> None:
    fault = wrong(lambda: Hub(store=MemoryStore()).agent("clerk", **{field: value})(answer))
    message = fault.message + "".join(f"{problem.path}: {problem.message}" for problem in fault.problems)
    assert "clerk" in message
    assert field in message


@pytest.mark.parametrize("field", ["may_call", "tools"])
def test_a_text_where_a_list_of_names_belongs_is_not_taken_for_a_list_of_letters(field: str) -> None:
    options: dict[str, Any] = {field: "helper"}
    fault = wrong(lambda: Hub(store=MemoryStore()).agent("clerk", **options)(answer))
    assert field in fault.message + "".join(problem.path for problem in fault.problems)


@pytest.mark.parametrize("field", ["input_schema", "result_schema"])
def test_a_capability_whose_schema_is_none_is_refused_when_the_agent_is_registered(field: str) -> None:
    schema: dict[str, Any] = {field: {"type": "strnig"}}
    capability = Capability(code="SUM", **schema)
    fault = wrong(lambda: Hub(store=MemoryStore()).agent("clerk", capabilities=[capability])(answer))
    assert "agent `clerk`, capability `SUM`: " + field in fault.message


async def test_all_names_that_are_not_there_are_told_at_once_with_what_was_meant() -> None:
    hub = Hub(store=MemoryStore())
    hub.agent("clerk", may_call=["helpr", "nobody"], tools=["serach"])(answer)
    hub.agent("helper", may_call=["clrek", "*"])(answer)

    @hub.tool()
    def search() -> None: ...

    fault = await wrong_at_opening(hub)
    assert fault.problems == (
        Problem("clerk.may_call", "there is no agent `helpr`; did you mean `helper`?"),
        Problem("clerk.may_call", "there is no agent `nobody`"),
        Problem("clerk.tools", "there is no tool `serach`; did you mean `search`?"),
        Problem("helper.may_call", "there is no agent `clrek`; did you mean `clerk`?"),
    )


async def test_a_team_that_was_wrong_can_be_mended_and_opened(tmp_path: Path) -> None:
    hub = Hub(store=tmp_path / "hub.db")
    hub.agent("clerk", may_call=["helper"])(answer)
    await wrong_at_opening(hub)
    assert list(tmp_path.iterdir()) == []
    hub.agent("helper")(answer)
    async with hub:
        assert (await hub.ask("clerk", user="u")).ok


async def test_a_hub_that_is_open_cannot_be_opened_again() -> None:
    hub = Hub(store=MemoryStore())
    hub.agent("clerk")(answer)
    async with hub:
        assert "open already" in (await wrong_at_opening(hub)).message
        assert (await hub.ask("clerk", user="u")).ok


async def test_a_hub_that_is_not_open_says_how_to_open_it() -> None:
    hub = Hub(store=MemoryStore())
    hub.agent("clerk")(answer)
    with pytest.raises(RemitError, match="async with hub") as before:
        await hub.ask("clerk", user="u")
    async with hub:
        pass
    with pytest.raises(RemitError, match="async with hub") as after:
        await hub.ask("clerk", user="u")
    assert [error.value.fault.code for error in (before, after)] == [Code.TEAM_INVALID] * 2


async def test_a_hub_can_be_opened_again_after_it_was_closed(tmp_path: Path) -> None:
    hub = Hub(store=tmp_path / "hub.db")

    @hub.agent("clerk")
    def clerk(brief: Brief) -> str:
        return "filed"

    results: list[object] = []
    for _ in range(3):
        async with hub:
            results.append((await hub.ask("clerk", user="u")).unwrap())
    assert results == ["filed"] * 3


async def test_an_agent_that_joins_an_open_hub_is_served_at_once() -> None:
    hub = Hub(store=MemoryStore())
    async with hub:
        hub.agent("clerk")(answer)
        assert (await hub.ask("clerk", user="u")).result == "ok"


def test_a_registry_knows_who_offers_a_capability() -> None:
    registry = Registry("hub")
    for name, codes in (("one", ()), ("two", ("SUM",)), ("three", ("SUM", "MEAN"))):
        capabilities = tuple(Capability(code=code) for code in codes)
        registry.add(AgentCard(name=name, capabilities=capabilities), answer)
    offering = [[entry.card.name for entry in registry.offering(code)] for code in ("SUM", "MEAN", "MODE")]
    assert offering == [["two", "three"], ["three"], []]
    assert registry.agents["one"].address == "one@hub"


async def test_a_later_companion_that_looks_for_no_agents_leaves_an_earlier_one_looking() -> None:
    class Follower:
        async def open(self) -> None: ...

        async def drain(self, within_s: float) -> None: ...

        async def leave(self) -> None: ...

        async def close(self) -> None: ...

    looked: list[str] = []

    class Others:
        async def find(self, agent: str) -> None:
            looked.append(agent)

        def agent(self, name: str) -> Remote:
            raise AssertionError(name)

    hub = Hub(store=MemoryStore())
    hub.accompany(Follower(), Others())
    hub.accompany(Follower())
    async with hub:
        assert (await hub.ask("elsewhere", "hello", user="ann")).status == "refused"
    assert looked == ["elsewhere"]


async def test_a_hub_whose_companion_cannot_be_opened_is_closed_and_opens_later(tmp_path: Path) -> None:
    calls: list[str] = []

    class Bus:
        async def open(self) -> None:
            calls.append("open")
            if len(calls) == 1:
                raise OSError("no route")

        async def drain(self, within_s: float) -> None: ...

        async def leave(self) -> None: ...

        async def close(self) -> None:
            calls.append("close")

    hub = Hub(store=tmp_path / "hub.db")
    hub.agent("clerk")(answer)
    hub.accompany(Bus())
    with pytest.raises(OSError, match="no route"):
        await hub.__aenter__()
    async with hub:
        assert (await hub.ask("clerk", user="u")).result == "ok"
    assert calls == ["open", "close", "open", "close"]
