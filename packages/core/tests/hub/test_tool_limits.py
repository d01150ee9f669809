"""A caller hands down only part of its rights: limits on the arguments of tools hold for its callee and all below."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remit import ALLOW, Ask, Brief, Code, Decision, Facts, Hub, RemitError, Request, ToolUse, Verdict
from remit.policy.verdict import Finding, Rewrite
from remit.ports import Question
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]
IBAN = "DE89370400440532013000"
SMALL: dict[str, Any] = {"pay": {"amount": "<= 100", "to": ["bob", "ann"]}}


def finds_iban(text: str) -> list[Finding]:
    return [Finding(text.index(IBAN), text.index(IBAN) + len(IBAN), "IBAN")] if IBAN in text else []


@pytest.fixture(params=[False, True], ids=["tool of the hub", "tool of the agent"])
def own(request: pytest.FixtureRequest) -> bool:
    return request.param


class Office:
    """A boss that asks a clerk, who asks a teller, who pays: each with limits of its own; the tool keeps the ledger."""

    def __init__(self, hub: Hub, *payments: dict[str, Any], own: bool = False) -> None:
        self.hub = hub
        self.ledger: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.boss: dict[str, Any] = {}
        self.clerk: dict[str, Any] = {}

        async def run(arguments: dict[str, Any]) -> str:
            self.ledger.append(arguments)
            return "paid"

        @hub.tool(sees=["IBAN"])
        async def pay(to: Any = "", amount: float = 0) -> str:
            return await run({"to": to, "amount": amount})

        tools = [] if own else ["pay"]

        @hub.agent("boss", may_call=["clerk"], tools=tools)
        async def boss(brief: Brief) -> object:
            return (await brief.delegate("clerk", objective=brief.text, **self.boss)).result

        @hub.agent("clerk", may_call=["teller"], tools=tools)
        async def clerk(brief: Brief) -> object:
            return (await brief.delegate("teller", objective=brief.text, **self.clerk)).result

        @hub.agent("teller", tools=tools)
        async def teller(brief: Brief) -> list[str]:
            async def one(given: dict[str, Any]) -> str:
                try:
                    return str(await (brief.use_own_tool("pay", given, run) if own else brief.use("pay", **given)))
                except RemitError as error:
                    self.faults.append(error.fault.message)
                    return error.fault.code

            return [await one(each) for each in payments]

    async def run(self, text: str = "go", **options: Any) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return (await self.hub.ask("boss", text, user="u-1", **options)).result

    async def uses(self) -> list[ToolUse]:
        await self.hub.store.flush()
        (run,) = await self.hub.store.runs()
        rows = [each.body for each in await self.hub.store.records(run=run.run)]
        return [each for each in rows if isinstance(each, ToolUse) and each.input is not None]


async def test_a_use_beyond_the_limits_of_any_caller_is_refused_before_it_runs(make_hub: MakeHub, own: bool) -> None:
    payments = [
        {"to": "bob", "amount": 50},
        {"to": "bob", "amount": 90},
        {"to": "ann", "amount": 50},
        {"to": "eve", "amount": 5},
        {"amount": 5},
    ]
    office, limits = Office(make_hub(), *payments, own=own), [{"amount": "<= 60"}, SMALL["pay"], {"to": "bob"}]
    if not own:  # an agent cannot know what its callee brings along
        office.boss, office.clerk = {"tools": {"pay": limits[1]}}, {"tools": {"pay": limits[2]}}
    async with office.hub:
        no = "TOOL_NOT_ALLOWED"
        assert await office.run(tools={"pay": limits if own else limits[0]}) == ["paid", no, no, no, no]
        uses = await office.uses()
    assert office.ledger == [{"to": "bob", "amount": 50}]
    assert office.faults == [
        'the remit of teller allows tool pay only where `amount` is "<= 60"',
        'the remit of teller allows tool pay only where `to` is "bob"',
        'the remit of teller allows tool pay only where `to` is ["bob","ann"]',
        'the remit of teller allows tool pay only where `to` is ["bob","ann"]',
    ]
    assert [(each.input, each.fault.code if each.fault else "") for each in uses] == [
        (given, "" if number == 0 else no) for number, given in enumerate(payments)
    ]


async def test_a_tool_that_is_named_with_no_condition_may_be_used_with_anything(make_hub: MakeHub, own: bool) -> None:
    office = Office(make_hub(), {"amount": 9_999}, own=own)
    office.clerk = {} if own else {"tools": ["pay"]}
    async with office.hub:
        assert await office.run(tools={"pay": {}}) == ["paid"]


async def test_a_tool_that_is_not_named_beside_another_cannot_be_used(make_hub: MakeHub, own: bool) -> None:
    office = Office(make_hub(), {"amount": 1}, own=own)
    async with office.hub:
        assert await office.run(tools={"look": {"amount": "> 0"}}) == ["TOOL_NOT_ALLOWED"]


async def test_a_comparison_without_a_number_is_refused_before_anything_starts(make_hub: MakeHub) -> None:
    office = Office(make_hub(), {"amount": 1})
    async with office.hub:
        response = await office.hub.ask("boss", "go", user="u-1", tools={"pay": {"amount": "<= lots"}})
    assert response.fault is not None
    assert response.fault.code is Code.INPUT_VALIDATION_FAILED
    assert "tools.pay.amount" in response.fault.message


async def test_nobody_is_asked_about_what_the_remit_refuses_and_an_edit_keeps_to_it(make_hub: MakeHub) -> None:
    questions: list[Question] = []

    async def approver(question: Question) -> Decision:
        questions.append(question)
        return Decision(agreed=True, by="ann", edits={"input": {"to": "bob", "amount": 500}})

    def asks(request: Request, _: Facts) -> Verdict:
        return Ask("May it be paid?", editable=frozenset({"input"})) if request.act == "tool" else ALLOW

    hub = make_hub(guards=[asks], approver=approver)
    office = Office(hub, {"to": "bob", "amount": 400}, {"to": "bob", "amount": 40})
    async with hub:
        assert await office.run(tools=SMALL) == ["TOOL_NOT_ALLOWED"] * 2
    assert ([each.request.input for each in questions], office.ledger) == ([{"to": "bob", "amount": 40}], [])


async def test_what_a_guard_makes_of_the_arguments_keeps_to_the_remit_too(make_hub: MakeHub) -> None:
    def doubles(request: Request, _: Facts) -> Verdict:
        given = request.input
        return Rewrite(replace(request, input=given | {"amount": 2 * given["amount"]})) if given else ALLOW

    office = Office(make_hub(guards=[doubles]), {"to": "bob", "amount": 40}, {"to": "bob", "amount": 60})
    async with office.hub:
        assert await office.run(tools=SMALL) == ["paid", "TOOL_NOT_ALLOWED"]
    assert office.ledger == [{"to": "bob", "amount": 80}]


async def test_limits_are_judged_by_the_values_that_tokens_stand_for_and_no_record_shows_these(
    make_hub: MakeHub,
) -> None:
    office = Office(make_hub(redaction=finds_iban), {"to": IBAN}, {"to": "DE00"})
    office.boss = {"tools": {"pay": {"to": IBAN}}}
    async with office.hub:
        assert await office.run(f"Pay {IBAN}", tools={"pay": {"to": [IBAN, "bob"]}}) == ["paid", "TOOL_NOT_ALLOWED"]
        rows = await office.hub.store.records()
    assert [each["to"] for each in office.ledger] == [IBAN]
    assert IBAN not in str([each.body for each in rows]) + str(office.faults)


async def test_an_agent_that_changes_its_copy_of_the_limits_changes_nothing(make_hub: MakeHub) -> None:
    hub, paid = make_hub(), list[int]()

    @hub.tool()
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    @hub.agent("teller", tools=["pay"], may_call=["clerk"])
    async def teller(brief: Brief) -> object:
        limits: Any = brief.remit.tools
        limits["pay"].clear()
        answer = await brief.delegate("clerk", objective="pay")
        with pytest.raises(RemitError):
            await brief.use("pay", amount=500)
        return answer.result

    @hub.agent("clerk", tools=["pay"])
    async def clerk(brief: Brief) -> str:
        with pytest.raises(RemitError):
            await brief.use("pay", amount=500)
        return str(await brief.use("pay", amount=5))

    async with hub:
        assert (await hub.ask("teller", "go", user="u-1", tools={"pay": {"amount": "<= 100"}})).result == "paid"
    assert paid == [5]


async def test_a_capability_is_offered_by_those_that_have_the_limited_tools(make_hub: MakeHub) -> None:
    hub = make_hub()

    @hub.tool()
    async def pay() -> str:
        return "paid"

    for name, tools in (("poor", ()), ("rich", ("pay",))):

        @hub.agent(name, tools=tools, capabilities=["PAY"])
        async def payer(brief: Brief) -> str:
            return str(brief.request.target)

    @hub.agent("boss", may_call=["poor", "rich"])
    async def boss(brief: Brief) -> object:
        return (await brief.delegate(capability="PAY", objective="go", tools={"pay": {"amount": 1}})).result

    async with hub:
        assert (await hub.ask("boss", "go", user="u-1")).result == "rich"
