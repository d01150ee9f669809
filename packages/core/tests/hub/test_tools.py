"""Tools: only those that card and remit both name, by every path, for the user they are meant for."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from remit import Brief, Call, Code, Hub, RemitError, Status, ToolUse


@pytest.fixture
def used(hub: Hub) -> list[str]:
    """Give the hub three tools and return what was done with them."""
    done: list[str] = []

    def add(name: str) -> None:
        @hub.tool(name)
        async def tool(what: str = "") -> str:
            done.append(name)
            return f"{name} {what}".strip()

    for name in ("read", "write", "delete"):
        add(name)
    return done


def uses(*tools: str) -> Callable[[Brief], object]:
    """Return an agent that tries each tool and says how that went."""

    async def agent(brief: Brief) -> dict[str, str]:
        return {tool: await attempt(brief, tool) for tool in tools}

    return agent


async def attempt(brief: Brief, tool: str) -> str:
    try:
        return await brief.use(tool)
    except RemitError as error:
        return error.fault.code


def asks(target: str, **options: Any) -> Callable[[Brief], object]:
    async def agent(brief: Brief) -> object:
        reply = await brief.delegate(target, objective="x", **options)
        return reply.result if reply.fault is None else reply.fault.code

    return agent


async def tool_records(hub: Hub, run: str) -> list[ToolUse]:
    await hub.store.flush()
    return [record.body for record in await hub.store.records(run=run) if isinstance(record.body, ToolUse)]


# ── which tools ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tool_that_the_card_does_not_name_cannot_be_used(hub: Hub, used: list[str]) -> None:
    """X11: refused with the document's sentence, and recorded."""

    @hub.agent("a", tools=["read"])
    async def a(brief: Brief) -> str:
        assert brief.tools == {"read"}
        assert await brief.use("read") == "read"
        with pytest.raises(RemitError, match="not authorized to use tool delete") as refused:
            await brief.use("delete")
        assert refused.value.fault.code is Code.TOOL_NOT_ALLOWED
        return "x"

    async with hub:
        response = await hub.ask("a", user="u-1")
        uses = await tool_records(hub, response.run)
    assert response.ok, response.fault
    assert (used, response.tool_calls) == (["read"], ("read",))
    refused = [each for each in uses if each.fault is not None]
    assert [(each.agent, each.tool) for each in refused] == [("a", "delete")]


@pytest.mark.parametrize("name", ["", "x" * 500, "a\nb", "\ud800"])
async def test_a_name_that_no_tool_can_have_is_refused_and_the_record_stays_readable(hub: Hub, name: str) -> None:
    """X11: whatever an agent calls a tool."""
    hub.agent("a")(uses(name))
    async with hub:
        response = await hub.ask("a", user="u-1", deadline_ms=3_000)
        await tool_records(hub, response.run)
        assert len(await hub.delegations(response.run)) == 1


async def test_a_caller_can_restrict_its_callee(hub: Hub, used: list[str]) -> None:
    """O6: by call, by fan-out, by chain and by handing on."""
    hub.agent("b", tools=["read", "delete"])(uses("read", "delete"))
    restricted = Call(target="b", tools=frozenset({"read"}))

    @hub.agent("asks", may_call=["b"])
    async def asks_in_many_ways(brief: Brief) -> list[object]:
        replies = [
            await brief.delegate("b", objective="1", tools=["read"]),
            *await brief.fan_out([msgspec.structs.replace(restricted, objective="2")]),
            *await brief.chain([msgspec.structs.replace(restricted, objective="3")]),
        ]
        return [reply.unwrap() for reply in replies]

    @hub.agent("hands-on", may_call=["b"])
    async def hands_on(brief: Brief) -> Call:
        return restricted

    async with hub:
        direct = await hub.ask("asks", user="u-1")
        handed = await hub.ask("hands-on", user="u-1")
    assert [*direct.unwrap(), handed.unwrap()] == [{"read": "read", "delete": "TOOL_NOT_ALLOWED"}] * 4
    assert used == ["read"] * 4


async def test_a_caller_cannot_widen_its_callee_beyond_the_callees_card(hub: Hub, used: list[str]) -> None:
    """O6, X11: asking for more than the card names is refused before the callee runs."""
    hub.agent("b", tools=["read"])(uses("read", "delete"))
    hub.agent("a", may_call=["b"], tools=["delete"])(asks("b", tools=["read", "delete"]))

    async with hub:
        nested = await hub.ask("a", user="u-1")
        direct = await hub.ask("b", user="u-1", tools=["delete"])
    assert nested.result == "TOOL_NOT_ALLOWED"
    # A user's bound is for the whole run: it may name what only others have, and gives the first agent nothing.
    assert direct.result == {"read": "TOOL_NOT_ALLOWED", "delete": "TOOL_NOT_ALLOWED"}
    assert used == []


async def test_a_restriction_holds_all_the_way_down(hub: Hub, used: list[str]) -> None:
    """X11: an agent deep in the tree has no more than every remit above it."""
    hub.agent("d", tools=["read", "write", "delete"])(uses("read", "write", "delete"))
    hub.agent("c", may_call=["d"], tools=["read", "write", "delete"])(asks("d"))
    hub.agent("b", may_call=["c"], tools=["read", "write", "delete"])(asks("c", tools=["read", "write"]))
    hub.agent("a", may_call=["b"], tools=["read", "write", "delete"])(asks("b", tools=["write", "delete"]))

    async with hub:
        from_b = await hub.ask("b", user="u-1", tools=["read", "write"])
        from_a = await hub.ask("a", user="u-1")
    assert from_b.result == {"read": "read", "write": "write", "delete": "TOOL_NOT_ALLOWED"}
    assert from_a.result == "TOOL_NOT_ALLOWED", "b cannot pass on `read`, which a did not give it"
    assert used == ["read", "write"]


async def test_an_agent_cannot_give_itself_tools_by_changing_its_brief(hub: Hub, used: list[str]) -> None:
    """X11: what the brief says is a copy; what counts is not in the agent's hands."""

    @hub.agent("c", tools=["delete"])
    async def c(brief: Brief) -> object:
        return await attempt(brief, "delete")

    @hub.agent("sly", tools=["read"], may_call=["c"])
    async def sly(brief: Brief) -> list[object]:
        brief.tools = frozenset({"read", "write", "delete"})
        wide = msgspec.structs.replace(brief.request.remit, tools=None, user="u-2", max_depth=50, tokens=10**9)
        brief.request = msgspec.structs.replace(brief.request, remit=wide)
        reply = await brief.delegate("c", objective="x")
        return [await attempt(brief, "write"), await attempt(brief, "delete"), reply.result]

    async with hub:
        response = await hub.ask("sly", user="u-1", tools=["read"])
        delegations = await hub.delegations(response.run)
    assert (response.result, used) == (["TOOL_NOT_ALLOWED"] * 3, [])
    assert {each.user for each in delegations} == {"u-1"}


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_arguments_are_held_to_the_tools_parameters(hub: Hub) -> None:
    """X11: wrong, missing and unknown arguments are refused by name, and the tool does not run."""
    ran: list[tuple[int, str]] = []

    @hub.tool("book")
    async def book(amount: int, account: str = "main") -> str:
        ran.append((amount, account))
        return "booked"

    @hub.agent("a", tools=["book"])
    async def a(brief: Brief) -> list[list[str]]:
        problems: list[list[str]] = []
        for arguments in ({"amount": "12"}, {}, {"amount": 1, "colour": "red"}, {"amount": 1, "account": None}):
            with pytest.raises(RemitError) as refused:
                await brief.use("book", **arguments)
            assert refused.value.fault.code is Code.INPUT_VALIDATION_FAILED
            problems.append([problem.message for problem in refused.value.fault.problems])
        assert await brief.use("book", amount=3) == "booked"
        return problems

    async with hub:
        response = await hub.ask("a", user="u-1")
    assert response.ok, response.fault
    assert all(response.result), "each refusal says what was wrong"
    assert ran == [(3, "main")]


async def test_a_tool_acts_for_the_user_of_the_remit_and_an_agent_cannot_choose_another(hub: Hub) -> None:
    """X10: `user` is filled by the hub, at any depth; as an argument it is refused."""
    seen: list[str] = []

    @hub.tool("mine")
    async def mine(user: str, what: str = "") -> str:
        seen.append(user)
        return user

    @hub.agent("b", tools=["mine"])
    async def b(brief: Brief) -> list[str]:
        own = await brief.use("mine")
        with pytest.raises(RemitError) as refused:
            await brief.use("mine", user="u-2")
        return [own, refused.value.fault.code]

    hub.agent("a", may_call=["b"])(asks("b"))

    async with hub:
        direct = await hub.ask("b", user="u-1")
        nested = await hub.ask("a", user="u-3")
    assert direct.result == ["u-1", "INPUT_VALIDATION_FAILED"]
    assert nested.result == ["u-3", "INPUT_VALIDATION_FAILED"]
    assert seen == ["u-1", "u-3"]


async def test_a_tool_that_raises_is_an_error_that_the_agent_can_catch(hub: Hub) -> None:
    """X11, K12: the agent decides whether to go on; the record has the failure."""

    @hub.tool("fragile")
    async def fragile() -> str:
        raise OSError("disk")

    @hub.tool("odd")
    def odd() -> object:
        return object()

    @hub.agent("a", tools=["fragile", "odd"])
    async def a(brief: Brief) -> list[str]:
        return [await attempt(brief, "fragile"), await attempt(brief, "odd")]

    @hub.agent("careless", tools=["fragile"])
    async def careless(brief: Brief) -> str:
        return await brief.use("fragile")

    async with hub:
        response = await hub.ask("a", user="u-1")
        failed = await hub.ask("careless", user="u-1")
        uses = [each for each in await tool_records(hub, response.run) if not each.begun]
    assert response.result == ["DELEGATION_FAILED", "RESULT_VALIDATION_FAILED"]
    assert failed.fault is not None
    assert (failed.status, "OSError: disk" in failed.fault.message) == (Status.FAILED, True)
    assert [each.fault is not None for each in uses] == [True, True]


async def test_a_tool_ends_with_the_deadline_of_the_agent_that_uses_it(hub: Hub) -> None:
    """X6, X11: the tool's own clean-up runs."""
    cleaned = asyncio.Event()

    @hub.tool("slow")
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    hub.agent("a", tools=["slow"])(uses("slow"))
    async with hub:
        response = await hub.ask("a", user="u-1", deadline_ms=400)
    assert response.status is Status.TIMEOUT
    assert cleaned.is_set()


@pytest.mark.parametrize("repeatable", [True, False])
async def test_what_a_tool_does_with_its_arguments_does_not_change_the_record(hub: Hub, repeatable: bool) -> None:
    """K12, X13: the record has what was asked for, and the agent's own value stays as it was."""

    @hub.tool("sort", safe_to_repeat=repeatable)
    async def sort(rows: list[Any], options: Any) -> list[Any]:
        rows.append("changed")
        options["deep"].append("changed")
        return rows

    rows, options = [2, 1], {"deep": [1]}

    @hub.agent("a", tools=["sort"])
    async def a(brief: Brief) -> object:
        return await brief.use("sort", rows=rows, options=options)

    async with hub:
        response = await hub.ask("a", user="u-1")
        uses = await tool_records(hub, response.run)
    assert response.result == [2, 1, "changed"]
    assert (rows, options) == ([2, 1], {"deep": [1]})
    assert [each.input for each in uses if each.input is not None] == [{"rows": [2, 1], "options": {"deep": [1]}}]


async def test_tools_used_are_named_in_the_response_and_in_the_record(hub: Hub, used: list[str]) -> None:
    """X13, O8: by name, once for each use, with how long each took."""
    hub.agent("b", tools=["read", "write"])(uses("read", "write"))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> list[str]:
        reply = await brief.delegate("b")
        return list(reply.tool_calls)

    async with hub:
        response = await hub.ask("a", user="u-1")
        delegations = await hub.delegations(response.run)
        ended = [each for each in await tool_records(hub, response.run) if not each.begun]
    assert response.result == ["read", "write"]
    assert [each.tool_calls for each in delegations] == [(), ("read", "write")]
    assert [(each.delegation, each.agent, each.tool) for each in ended] == [
        (delegations[1].id, "b", "read"),
        (delegations[1].id, "b", "write"),
    ]


async def test_a_team_that_names_a_tool_that_is_not_there_does_not_open(hub: Hub) -> None:
    """X11: a misspelt tool is found when the hub opens, not when it is needed."""
    hub.agent("a", tools=["raed"], may_call=["bb"])(uses("raed"))
    with pytest.raises(RemitError, match="raed") as refused:
        async with hub:
            pass
    assert [problem.path for problem in refused.value.fault.problems] == ["a.may_call", "a.tools"]
