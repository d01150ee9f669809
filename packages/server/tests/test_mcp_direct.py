"""Agents as tools of their own at `/mcp`: named as the agent, with the schema of its input."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from hosts import ERAS, Person, Progress, data, host_at, text
from remit import Ask, Brief, Capability, Facts, Hub, Request, Verdict
from remit.policy.reception import Sender
from remit.policy.verdict import ALLOW
from remit_server import serve
from remit_server.mcp.host_delegations import McpOffer
from serving import serving

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}), may_approve=True)
STRICT = Sender(name="strict", users=frozenset({"anna"}), targets=frozenset({"echo"}))
OFFICE = Sender(name="office")
ALL = (ANNA, STRICT, OFFICE)
FOUR = ["delegate_task", "list_agents", "delegation_status", "delegation_cancel"]
ADDRESS: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "required": ["name"],
    "additionalProperties": False,
}

era = pytest.mark.parametrize("era", ERAS)


def asks_before_paying(request: Request, facts: Facts) -> Verdict:
    return Ask("May this be paid?") if request.capability == "PAY" and not facts.approved else ALLOW


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub(approver="inbox", guards=[asks_before_paying])

    @hub.agent("echo", description="Says it again.")
    async def echo(brief: Brief) -> str:
        brief.progress("half of it")
        return f"{brief.user}: {brief.objective}"

    @hub.agent("post", capabilities=[Capability(code="SEND", description="Sends a parcel.", input_schema=ADDRESS)])
    async def post(brief: Brief) -> object:
        return {"objective": brief.objective, "sent": brief.input}

    @hub.agent(
        "till.north",
        description="Handles money.",
        capabilities=[
            Capability(code="PAY", input_schema={"type": "object", "properties": {"sum": {"type": "integer"}}}),
            Capability(code="COUNT", input_schema={"type": "array"}, read_only=True),
        ],
    )
    async def till(brief: Brief) -> object:
        return [brief.request.capability, brief.objective, brief.input]

    @hub.agent("list_agents")
    async def shadow(_: Brief) -> str:
        return "not this one"

    assert {echo, post, till, shadow}
    return hub


def offering(*tools: str) -> McpOffer:
    return McpOffer(tools=frozenset(tools))


@era
async def test_chosen_agents_are_listed_with_the_schema_of_their_capability_unchanged(hub: Hub, era: str) -> None:
    async with (
        serving(hub, *ALL, mcp=offering("*")) as server,
        host_at(server.address, "anna-desk", era) as host,
        host_at(server.address, "strict", era) as strict,
        host_at(server.address, "office", era) as nobody,
    ):
        listed = {each.name: each for each in (await host.list_tools()).tools}
        narrow, unknown = [[each.name for each in (await one.list_tools()).tools] for one in (strict, nobody)]
    assert list(listed) == [*FOUR, "echo", "post", "till_north_PAY", "till_north_COUNT"]
    assert listed["post"].input_schema == ADDRESS
    assert listed["post"].description == "Sends a parcel."
    assert list(listed["echo"].input_schema["properties"]) == ["task", "input", "session"]
    hints = [each.annotations.read_only_hint for each in list(listed.values())[4:] if each.annotations]
    assert hints == [False, False, False, True]
    assert narrow == [*FOUR, "echo"], "a client sees the agents that it may ask"
    assert unknown == FOUR, "there is no user yet, so no agents"


@era
async def test_a_direct_tool_takes_the_input_and_gives_what_the_agent_answers(hub: Hub, era: str) -> None:
    heard = Progress()
    async with (
        serving(hub, *ALL, mcp=offering("post", "echo", "till.north")) as server,
        host_at(server.address, "anna-desk", era) as host,
    ):
        said = await host.call_tool("echo", {"task": "good day"}, progress_callback=heard)
        sent = await host.call_tool("post", {"name": "Bo", "address": {"city": "Oslo"}})
        counted = await host.call_tool("till_north_COUNT", {"task": "count", "input": [1, 2]})
        wrong = await host.call_tool("post", {"address": {"city": 1}, "more": True})
        nothing = await host.call_tool("echo", {})
        missing = await host.call_tool("post_SEND", {"name": "Bo"})
        again = await host.call_tool("delegation_status", {"id": data(sent)["id"]})
    assert text(said) == "anna: good day"
    assert "echo: half of it" in heard.said
    given = {"name": "Bo", "address": {"city": "Oslo"}}
    assert data(sent)["result"] == {"objective": "Sends a parcel.", "sent": given}
    assert data(counted)["result"] == ["COUNT", "count", [1, 2]]
    assert wrong.is_error
    assert data(wrong)["fault"]["code"] == "INPUT_VALIDATION_FAILED"
    assert {each["path"] for each in data(wrong)["fault"]["problems"]} >= {"$.name", "$.address.city"}
    assert [each["path"] for each in data(nothing)["fault"]["problems"]] == ["$.task"]
    assert "Use one of" in text(missing)
    assert "post" in text(missing)
    assert data(again) == data(sent)


@era
async def test_a_person_is_asked_before_a_direct_tool_does_what_needs_it(hub: Hub, era: str) -> None:
    person = Person("accept", sum=5)
    async with (
        serving(hub, *ALL, mcp=offering("till.north")) as server,
        host_at(server.address, "anna-desk", era, person=person) as host,
    ):
        paid = await host.call_tool("till_north_PAY", {"sum": 5})
    assert data(paid)["result"] == ["PAY", "Handles money.", {"sum": 5}]
    assert "May this be paid?" in person.asked[0]


class Booking(Struct):
    name: Annotated[str, Meta(description="Who travels")]
    seat: Literal["aisle", "window"] = "aisle"
    extras: list[Literal["bag", "bike"]] = []


@era
async def test_a_form_of_an_agent_is_a_form_of_the_host_with_defaults_and_choices(hub: Hub, era: str) -> None:
    @hub.agent("travel")
    async def travel(brief: Brief) -> object:
        return await brief.fill("Which seat?", Booking)

    assert travel
    person, careless = Person("accept", name="Bo", seat="window", extras=["bike"]), Person("accept", seat="roof")
    async with serving(hub, *ALL, mcp=offering("travel")) as server:
        async with host_at(server.address, "anna-desk", era, person=person) as host:
            booked = await host.call_tool("travel", {"task": "book"})
        async with host_at(server.address, "anna-desk", era, person=careless) as host:
            open_ = await host.call_tool("travel", {"task": "book"})
    assert data(booked)["result"] == {"name": "Bo", "seat": "window", "extras": ["bike"]}
    (form,) = person.forms
    assert form["required"] == ["name"]
    assert form["properties"] == {
        "name": {"type": "string", "title": "Name", "description": "Who travels"},
        "seat": {"type": "string", "title": "Seat", "enum": ["aisle", "window"], "default": "aisle"},
        "extras": {
            "type": "array",
            "title": "Extras",
            "items": {"type": "string", "enum": ["bag", "bike"]},
            "default": [],
        },
        "reason": {"type": "string", "title": "Reason", "description": "Optional; it is recorded."},
    }
    assert data(open_)["state"] == "waiting", "a wrong choice leaves the question open"


@era
async def test_a_field_that_a_person_empties_is_left_out_of_the_form(hub: Hub, era: str) -> None:
    @hub.agent("travel")
    async def travel(brief: Brief) -> object:
        return await brief.fill("Which seat?", Booking)

    assert travel
    person = Person("accept", name="Bo", seat=None)
    async with (
        serving(hub, *ALL, mcp=offering("travel")) as server,
        host_at(server.address, "anna-desk", era, person=person) as host,
    ):
        booked = await host.call_tool("travel", {"task": "book"})
    assert data(booked)["result"] == {"name": "Bo", "extras": []}


async def test_without_a_choice_there_are_four_tools_and_agents_are_none(hub: Hub) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk") as host:
        listed = [each.name for each in (await host.list_tools()).tools]
        refused = await host.call_tool("echo", {"task": "hi"})
    assert listed == FOUR
    assert data(refused)["fault"]["code"] == "NOT_FOUND"


async def test_a_program_chooses_the_tools_where_it_serves(hub: Hub) -> None:
    async with (
        hub,
        serve(hub, clients={"desk": "secret"}, users={"desk": ["anna"]}, mcp_tools=["echo"]) as address,
        host_at(address, "secret") as host,
    ):
        assert text(await host.call_tool("echo", {"task": "hi"})) == "anna: hi"


async def test_an_agent_whose_name_needs_no_change_has_its_name_before_others(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()
    for name in ("pay.now", "pay_now", "pay.later"):
        hub.agent(name)(_name_of(name))
    async with (
        serving(hub, ANNA, mcp=offering("*")) as server,
        host_at(server.address, "anna-desk") as host,
    ):
        listed = [each.name for each in (await host.list_tools()).tools]
        said = await host.call_tool("pay_now", {"task": "pay"})
    assert listed == [*FOUR, "pay_now", "pay_later"]
    assert text(said) == "pay_now"


def _name_of(name: str) -> Callable[[Brief], Awaitable[str]]:
    async def answer(_: Brief) -> str:
        return name

    return answer
