"""`authority = "caller"`: no agent gets a tool used, or an agent asked, by asking one that may."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from properties import share
from remit import Brief, Call, Capability, Code, Hub, Limits, RemitError, Step, Workflow
from remit_orchestrator import add_workflow
from remit_server import connect, connect_a2a, serve
from remit_testing.memory import MemoryStore

PATIENCE = 60.0


def add_tools(hub: Hub, *names: str) -> list[str]:
    """Give a hub tools, and return what is done with them."""
    done: list[str] = []

    def add(name: str) -> None:
        @hub.tool(name, safe_to_repeat=True)
        async def tool() -> str:  # pyright: ignore[reportUnusedFunction]
            done.append(name)
            return name

    for name in names:
        add(name)
    return done


async def attempt(brief: Brief, tool: str) -> str:
    try:
        return await brief.use(tool)
    except RemitError as error:
        return error.fault.code


def uses(tool: str) -> Callable[[Brief], Any]:
    async def agent(brief: Brief) -> str:
        return await attempt(brief, tool)

    return agent


def asks(target: str, **options: Any) -> Callable[[Brief], Any]:
    async def agent(brief: Brief) -> Any:
        reply = await brief.delegate(target, objective="do it", **options)
        return reply.result if reply.fault is None else str(reply.fault.code)

    return agent


# ── the deputy ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_by_default_an_agent_has_its_own_tools_whoever_asks(hub: Hub) -> None:
    done = add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"])(uses("delete"))
    hub.agent("stranger", may_call=["deputy"])(asks("deputy"))
    async with hub:
        response = await hub.ask("stranger", user="u-1")
    assert (response.result, done) == ("delete", ["delete"])


@pytest.mark.parametrize("where", ["agent", "hub"])
async def test_an_agent_without_a_tool_does_not_get_it_used(make_hub: Callable[..., Hub], where: str) -> None:
    hub = make_hub(limits=Limits(authority="caller")) if where == "hub" else make_hub()
    done = add_tools(hub, "delete")
    options: Any = {"authority": "caller"} if where == "agent" else {}
    hub.agent("deputy", tools=["delete"], **options)(uses("delete"))
    hub.agent("stranger", may_call=["deputy"])(asks("deputy"))
    hub.agent("trusted", may_call=["deputy"], tools=["delete"])(asks("deputy"))
    async with hub:
        assert (await hub.ask("stranger", user="u-1")).result == "TOOL_NOT_ALLOWED"
        assert done == []
        assert (await hub.ask("trusted", user="u-1")).result == "delete"
        # The user is no agent, and asks whom they may.
        assert (await hub.ask("deputy", user="u-1")).result == "delete"
        assert (await hub.ask("trusted", user="u-1", tools=[])).result == "TOOL_NOT_ALLOWED"


async def test_an_agent_may_keep_its_own_where_the_team_says_caller(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(limits=Limits(authority="caller"))
    add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"], authority="own")(uses("delete"))
    hub.agent("stranger", may_call=["deputy"])(asks("deputy"))
    async with hub:
        assert (await hub.ask("stranger", user="u-1")).result == "delete"


async def test_it_holds_over_hops_also_below_one_that_has_its_own(hub: Hub) -> None:
    done = add_tools(hub, "delete")
    hub.agent("c", tools=["delete"])(uses("delete"))
    hub.agent("b", may_call=["c"], tools=["delete"], authority="caller")(asks("c"))
    hub.agent("a", may_call=["b", "c"])(asks("b"))
    async with hub:
        assert (await hub.ask("a", user="u-1")).result == "TOOL_NOT_ALLOWED"
        assert (await hub.ask("b", user="u-1")).result == "delete"
    assert done == ["delete"]


async def test_targets_are_cut_as_tools_are(hub: Hub) -> None:
    seen: list[tuple[str, ...]] = []

    @hub.agent("bank")
    async def bank(brief: Brief) -> str:
        return "paid"

    @hub.agent("clerk", may_call=["bank"], authority="caller")
    async def clerk(brief: Brief) -> Any:
        seen.append(brief.available_delegates)
        return await asks("bank")(brief)

    hub.agent("stranger", may_call=["clerk"])(asks("clerk"))
    hub.agent("boss", may_call=["*"])(asks("clerk"))
    async with hub:
        assert (await hub.ask("stranger", user="u-1")).result == "PERMISSION_DENIED"
        assert (await hub.ask("boss", user="u-1")).result == "paid"
    assert seen == [(), ("bank",)]


async def test_to_ask_for_a_tool_by_name_that_one_does_not_have_is_refused(hub: Hub) -> None:
    add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"], authority="caller")(uses("delete"))

    @hub.agent("stranger", may_call=["deputy"])
    async def stranger(brief: Brief) -> str:
        reply = await brief.delegate("deputy", objective="x", tools=["delete"])
        assert reply.fault is not None
        assert reply.fault.code is Code.TOOL_NOT_ALLOWED
        return reply.fault.message

    async with hub:
        refusal = (await hub.ask("stranger", user="u-1")).result
    assert refusal == (
        "deputy not authorized to use tool delete: stranger does not have it, "
        "and deputy works with the authority of its caller"
    )


async def test_handing_on_and_fan_out_are_cut_alike(hub: Hub) -> None:
    done = add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"], authority="caller")(uses("delete"))

    @hub.agent("hands-on", may_call=["deputy"])
    async def hands_on(brief: Brief) -> Call:
        return Call(target="deputy", objective="x")

    @hub.agent("several", may_call=["deputy"])
    async def several(brief: Brief) -> Any:
        calls = [Call(target="deputy", objective=str(number)) for number in range(2)]
        chained = await brief.chain([Call(target="deputy", objective="3")])
        return [each.result for each in [*await brief.fan_out(calls), *chained]]

    async with hub:
        assert (await hub.ask("hands-on", user="u-1")).result == "TOOL_NOT_ALLOWED"
        assert (await hub.ask("several", user="u-1")).result == ["TOOL_NOT_ALLOWED"] * 3
    assert done == []


async def test_an_answer_that_was_kept_is_not_given_to_who_could_not_have_had_it(hub: Hub) -> None:
    """The cache knows answers by the tools and targets under which they were found."""
    done = add_tools(hub, "look")
    code = Capability(code="LOOK", read_only=True, cache_ms=60_000)
    hub.agent("deputy", tools=["look"], authority="caller", capabilities=[code])(uses("look"))
    for name, tools in (("trusted", ["look"]), ("stranger", [])):
        hub.agent(name, may_call=["deputy"], tools=tools)(asks("deputy", capability="LOOK", input={}))
    async with hub:
        answers = [(await hub.ask(name, user="u-1")).result for name in ("trusted", "stranger", "trusted")]
    assert answers == ["look", "TOOL_NOT_ALLOWED", "look"]
    assert done == ["look"]


# ── who passes on ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_stands_for_whoever_asked_it(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(limits=Limits(authority="caller"))
    done = add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"])(uses("delete"))
    add_workflow(hub, Workflow(name="clean-up", steps=(Step(name="one", agent="deputy"),)))
    hub.agent("stranger", may_call=["clean-up", "deputy"])(asks("clean-up"))
    hub.agent("trusted", may_call=["clean-up", "deputy"], tools=["delete"])(asks("clean-up"))
    async with asyncio.timeout(PATIENCE), hub:
        await hub.ask("stranger", user="u-1")
        assert done == []
        await hub.ask("trusted", user="u-1")
        assert done == ["delete"]
        await hub.ask("clean-up", user="u-1")
    assert done == ["delete", "delete"]


async def test_a_workflow_is_no_way_round_for_who_says_caller_itself(hub: Hub) -> None:
    done = add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"], authority="caller")(uses("delete"))
    add_workflow(hub, Workflow(name="clean-up", steps=(Step(name="one", agent="deputy"),)))
    hub.agent("stranger", may_call=["clean-up"])(asks("clean-up"))
    async with asyncio.timeout(PATIENCE), hub:
        await hub.ask("stranger", user="u-1")
    assert done == []


# ── between hubs ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_between_hubs_a_caller_has_what_its_remit_names() -> None:
    back = Hub(name="back", store=MemoryStore())
    done = add_tools(back, "delete", "read")

    @back.agent("deputy", tools=["delete", "read"], authority="caller")
    async def deputy(brief: Brief) -> list[str]:
        return [await attempt(brief, "delete"), await attempt(brief, "read")]

    front = Hub(name="front", store=MemoryStore())
    add_tools(front, "read")
    front.agent("reader", may_call=["deputy", "unbound"], tools=["read"])(asks("deputy"))
    front.agent("unbound-reader", may_call=["unbound"], tools=["read"])(asks("unbound"))
    async with asyncio.timeout(PATIENCE), back, serve(back, hubs={"front": "secret"}, clients={"c": "other"}) as url:
        connect(front, "deputy", url, token="secret", authority="caller")
        connect(front, "unbound", url, remote="deputy", token="secret")
        async with front:
            cut = await front.ask("reader", user="u-1")
            unsaid = await front.ask("unbound-reader", user="u-1")
            by_user = await front.ask("deputy", user="u-1")
    assert cut.result == ["TOOL_NOT_ALLOWED", "read"]
    # Of an agent elsewhere that names nothing it is not known what it has.
    assert unsaid.result == ["TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED"]
    assert by_user.result == ["delete", "read"]
    assert done == ["read", "delete", "read"]


async def test_by_a2a_the_names_travel_as_well() -> None:
    back = Hub(name="back", store=MemoryStore())
    add_tools(back, "delete", "read")

    @back.agent("deputy", tools=["delete", "read"])
    async def deputy(brief: Brief) -> list[str]:
        return [await attempt(brief, "delete"), await attempt(brief, "read")]

    front = Hub(name="front", store=MemoryStore())
    add_tools(front, "read")
    front.agent("reader", may_call=["deputy"], tools=["read"])(asks("deputy"))
    async with asyncio.timeout(PATIENCE), back, serve(back, hubs={"front": "secret"}, a2a=True) as url:
        connect_a2a(front, "deputy", f"{url}/a2a/deputy", token="secret", private=True, authority="caller")
        async with front:
            cut = await front.ask("reader", user="u-1")
    assert cut.result == ["TOOL_NOT_ALLOWED", "read"], cut.fault


# ── while it runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_it_can_be_changed_while_the_hub_runs(hub: Hub) -> None:
    add_tools(hub, "delete")
    hub.agent("deputy", tools=["delete"])(uses("delete"))
    hub.agent("stranger", may_call=["deputy"])(asks("deputy"))
    async with hub:
        hub.reconfigure(limits=Limits(authority="caller"))
        assert (await hub.ask("stranger", user="u-1")).result == "TOOL_NOT_ALLOWED"
        hub.reconfigure(cards=[replace(hub.cards["deputy"], authority="own")])
        assert (await hub.ask("stranger", user="u-1")).result == "delete"


# ── the law ───────────────────────────────────────────────────────────────────────────────────────────────────────────

AGENTS, TOOLS = ("a", "b", "c", "d"), ("t1", "t2", "t3")


@st.composite
def teams(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "tools": draw(st.frozensets(st.sampled_from(TOOLS))),
            "may_call": draw(st.frozensets(st.sampled_from([*AGENTS, "*"]), min_size=1)),
            "authority": draw(st.sampled_from([None, "own", "caller"])),
        }
        for name in AGENTS
    }


@share(1 / 2, suppress_health_check=[HealthCheck.too_slow])
@given(
    team=teams(),
    default=st.sampled_from(["own", "caller"]),
    path=st.permutations(AGENTS),
    bound=st.none() | st.frozensets(st.sampled_from(TOOLS)),
)
async def test_no_agent_below_can_do_what_its_caller_could_not(
    team: dict[str, dict[str, Any]], default: Any, path: list[str], bound: frozenset[str] | None
) -> None:
    """Each agent on a path tries every tool and asks everyone; what succeeds is held against what its caller could."""
    hub = Hub(store=MemoryStore(), limits=Limits(authority=default))
    add_tools(hub, *TOOLS)
    used: dict[str, set[str]] = {}
    reached: dict[str, set[str]] = {}
    could_use: dict[str, frozenset[str]] = {}
    could_reach: dict[str, set[str]] = {}

    async def walk(brief: Brief) -> str:
        me = brief.request.target
        if brief.objective == "probe":
            return "here"
        could_use[me] = brief.tools
        targets = brief.remit.targets
        card = hub.cards[me]
        could_reach[me] = {name for name in AGENTS if card.may_reach(name) and (targets is None or name in targets)}
        used[me] = {tool for tool in TOOLS if await attempt(brief, tool) == tool}
        replies = {name: await brief.delegate(name, objective="probe") for name in AGENTS}
        reached[me] = {name for name, reply in replies.items() if reply.ok}
        rest = path[path.index(me) + 1 :]
        if rest:
            await brief.delegate(rest[0], objective="walk")
        return "here"

    for name, options in team.items():
        hub.agent(name, **options)(walk)
    async with hub:
        await hub.ask(path[0], "walk", user="u-1", tools=bound)
    for caller, callee in pairwise(path):
        if callee not in used:
            break  # it could not be asked at all
        assert used[callee] <= team[callee]["tools"]
        assert bound is None or used[callee] <= bound
        if (team[callee]["authority"] or default) == "caller":
            assert used[callee] <= could_use[caller]
            assert reached[callee] <= could_reach[caller]
