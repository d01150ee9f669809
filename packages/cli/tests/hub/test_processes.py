"""Isolated agents in a hub (K12, decision 11): each in a process that can be killed."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import faulty_code
import isolated_agents as agents
import typed_agents
from programs import is_there
from remit import (
    ALLOW,
    Ask,
    Brief,
    Code,
    Decision,
    Facts,
    Hub,
    Limits,
    Problem,
    Progress,
    Question,
    Refuse,
    RemitError,
    Request,
    Response,
    Status,
    ToolUse,
    Usage,
    Verdict,
    fault,
)
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import code_of
from typed_agents import Order, Quote
from waiting import PATIENCE_S


async def test_an_isolated_agent_delegates_within_its_remit(hub: Hub) -> None:
    """K12: isolated or not, a delegation is judged, recorded and settled."""
    hub.agent("boss", may_call=["tag"], tools=["clock"], isolation="process")(agents.delegate)

    @hub.tool("clock")
    def clock() -> str:  # pyright: ignore[reportUnusedFunction]
        return "noon"

    @hub.agent("tag", tools=["clock"])
    async def tag(brief: Brief) -> str:
        brief.spend(prompt=25)
        return f"{brief.input} within {brief.remit.tokens}"

    async with hub:
        response = await hub.ask("boss", "Sort", user="u-1", max_tokens=1_000)
        delegations = await hub.delegations(response.run)
    assert response.result == ["success", "{'n': [1]} within 40", 25, 975]
    assert (response.status, response.usage) == (Status.SUCCESS, Usage(prompt=25))
    assert [(each.origin, each.target, each.status) for each in delegations] == [
        ("user", "boss", Status.SUCCESS),
        ("boss", "tag", Status.SUCCESS),
    ]


async def test_what_the_remit_forbids_is_forbidden_to_an_isolated_agent(hub: Hub) -> None:
    """K12, X11: by any path."""
    hub.agent("rocketeer", isolation="process")(agents.use_what_is_forbidden)

    @hub.tool("rocket")
    def rocket() -> str:
        return "launched"

    async with hub:
        assert (await hub.ask("rocketeer", user="u-1")).result == Code.TOOL_NOT_ALLOWED


async def test_a_tool_of_an_isolated_agents_own_is_judged_before_it_runs_in_the_process(
    make_hub: Callable[..., Hub], tmp_path: Path
) -> None:
    asked: list[object] = []

    def judge(request: Request, _: Facts) -> Verdict:
        if request.act != "tool":
            return ALLOW
        amount = cast("dict[str, int]", request.input)["amount"]
        refusal = Refuse(fault(Code.PERMISSION_DENIED, "not that much"))
        ask = Ask("May it be paid?", editable=frozenset({"input"}))
        return {2: refusal, 5: ask, 6: ask}.get(amount, ALLOW)

    async def approver(question: Question) -> Decision:
        asked.append(question.request.input)
        agreed = question.request.input == {"amount": 5}
        return Decision(agreed=agreed, by="ann", edits={"input": {"amount": 50}} if agreed else {})

    hub, ledger = make_hub(guards=[judge], approver=approver), tmp_path / "ledger"
    hub.agent("teller", isolation="process")(agents.pay_with_own_tool)
    async with hub:
        response = await hub.ask("teller", input=str(ledger), user="u-1")
        records = await hub.store.records(run=response.run)
    assert response.result == [
        "paid 1",
        "PERMISSION_DENIED",
        "ValueError: the drawer is stuck",
        "CancelledError: ",
        "paid 50",
        "APPROVAL_DECLINED",
    ]
    paid = [line.split(" by ") for line in ledger.read_text(encoding="utf-8").splitlines()]
    assert [amount for amount, _ in paid] == ["1", "50"]
    assert str(os.getpid()) not in {pid for _, pid in paid}
    assert asked == [{"amount": 5}, {"amount": 6}]
    ends = [each.body for each in records if isinstance(each.body, ToolUse) and not each.body.begun]
    assert [each.fault and each.fault.message for each in ends] == [
        None,
        "not that much",
        "tool pay failed: ValueError: the drawer is stuck",
        "tool pay was cancelled",
        None,
        "declined by ann: May it be paid?",
    ]


@pytest.mark.parametrize("agreed", [True, False])
async def test_an_isolated_agent_asks_before_it_calls_a_model_without_a_price(agreed: bool) -> None:
    questions = list[str]()

    async def ann(question: Question) -> bool:
        questions.append(question.text)
        return agreed

    hub = Hub(store=MemoryStore(), limits=Limits(root_cost=5_000_000, at_limit="ask"), approver=ann)
    hub.agent("clerk", isolation="process")(agents.use_unpriced)
    async with hub:
        response = await hub.ask("clerk", "go", user="u-1")
    assert questions == [
        "The price of `unheard-of` is not known, and this run has a limit of 5.00 USD. Let it go on unpriced?"
    ]
    assert (response.result, response.usage.unpriced) == (("answered", 10) if agreed else (None, 0))
    assert code_of(response) is (None if agreed else Code.TOKEN_BUDGET_EXCEEDED)


async def test_an_isolated_agent_reads_its_conversation_with_the_user(hub: Hub) -> None:
    hub.agent("memory", isolation="process")(agents.recall)
    async with hub:
        first = await hub.ask("memory", "one", user="u-1", session="s-1")
        second = await hub.ask("memory", "two", user="u-1", session="s-1")
    assert first.result == [[], []]
    assert [body for _, _, body in second.result[1]] == ["Request", "Response"]


@pytest.mark.parametrize("function", [agents.sleep, agents.spin])
async def test_an_isolated_agent_that_does_not_stop_is_killed_at_its_deadline(
    make_hub: Callable[..., Hub], function: Callable[[Brief], object]
) -> None:
    """K12: `time.sleep` and a CPU loop; nobody else notices."""
    clock = ManualClock()
    hub = make_hub(clock=clock)
    hub.agent("busy", isolation="process")(function)
    hub.agent("other", isolation="process")(agents.tell_pid)
    pid = 0
    async with hub, asyncio.timeout(PATIENCE_S):
        async for record in hub.stream("busy", user="u-1", deadline_ms=30_000):
            match record.body:
                case Progress(text=text):
                    pid = int(text)
                    clock.advance(31)
                case Response(status=status, fault=why):
                    assert (status, why and why.code) == (Status.TIMEOUT, Code.TIMEOUT)
                case _:
                    pass
        assert pid
        assert not is_there(pid)
        assert (await hub.ask("other", user="u-1")).ok


async def test_a_cancelled_run_ends_in_every_process(hub: Hub) -> None:
    """K12, decision 8: from a process through the hub into another process."""
    hub.agent("boss", may_call=["nobody-answers"], isolation="process")(agents.wait_for_others)
    hub.agent("nobody-answers", isolation="process")(agents.sleep)
    pids: list[int] = []
    async with hub, asyncio.timeout(PATIENCE_S):
        async for record in hub.stream("boss", user="u-1"):
            match record.body:
                case Progress(text=text):
                    pids.append(int(text))
                    if len(pids) == 3:
                        assert hub.cancel(record.run)
                case Response(target="boss") as response:
                    assert response.status is Status.CANCELLED
                case _:
                    pass
        assert [is_there(pid) for pid in pids] == [False] * 3


async def test_an_isolated_agent_that_is_killed_fails_alone(hub: Hub) -> None:
    """K12: the hub, and whoever asked, go on."""
    hub.agent("dying", isolation="process")(agents.die)

    @hub.agent("boss", may_call=["dying"])
    async def boss(brief: Brief) -> object:
        reply = await brief.delegate("dying", objective="Try")
        return [reply.status, reply.fault and reply.fault.code]

    async with hub:
        assert (await hub.ask("boss", user="u-1")).result == [Status.FAILED, Code.DELEGATION_FAILED]


def test_a_function_that_no_other_process_can_import_is_refused(hub: Hub) -> None:
    with pytest.raises(RemitError, match="make it a function at the top of a module"):

        @hub.agent("local", isolation="process")
        def local(brief: Brief) -> None: ...  # pyright: ignore[reportUnusedFunction]


async def test_the_fault_of_an_isolated_agent_names_the_line_of_its_code(hub: Hub) -> None:
    hub.add("clerk", faulty_code.direct, isolation="process")
    async with hub:
        response = await hub.ask("clerk", user="u-1")
    assert response.fault is not None
    origin = response.fault.origin
    assert origin is not None
    assert (origin.agent, origin.error) == ("clerk", f"LookupError: rate: {faulty_code.SECRET}")
    assert [each.function for each in origin.frames] == ["direct", "look_up"]


async def test_an_isolated_agent_sees_no_code_of_others(hub: Hub) -> None:
    """It may be code of strangers, in a sandbox."""
    hub.tool("look_up")(faulty_code.look_up)
    hub.add("direct", faulty_code.direct)
    hub.add("stranger", faulty_code.looking_on, may_call=["direct"], tools=["look_up"], isolation="process")
    async with hub:
        seen = (await hub.ask("stranger", user="u-1")).unwrap()
    assert len(seen) == 4
    for each in seen:
        assert "failed; the reason is on record at its hub" in each
        assert faulty_code.SECRET not in each
        assert "faulty_code" not in each


async def test_an_isolated_agent_is_typed_alike(hub: Hub) -> None:
    hub.add("pricing", typed_agents.quote, isolation="process", capabilities=["QUOTE"], concurrency=1)
    hub.add("unwritable", typed_agents.unwritable, isolation="process", concurrency=1)
    hub.add("stream", typed_agents.stream, isolation="process", concurrency=1)
    assert hub.cards["pricing"].capabilities[0].input_schema is not None
    async with hub:
        done = await hub.ask("pricing", user="u-1", input=Order(item="tea", count=2))
        wrong = await hub.ask("pricing", user="u-1", input={"item": "tea", "count": 0})
        endless = await hub.ask("unwritable", user="u-1")
        streamed = await hub.ask("stream", user="u-1")
    assert done.result_as(Quote) == Quote(5.0, "tea")
    assert wrong.fault is not None
    assert wrong.fault.problems == (Problem("$.count", "Input should be greater than 0"),)
    assert endless.fault is not None
    assert endless.fault.code is Code.RESULT_VALIDATION_FAILED
    assert "$.result.rate: NaN and infinity" in endless.fault.message
    assert streamed.result == {"total": 2.5, "note": ""}


async def test_an_isolated_agent_that_spends_more_money_than_it_has_is_stopped_at_once(tmp_path: Path) -> None:
    hub = Hub(store=tmp_path / "hub.db", durability="process", prices=lambda agent, model, usage: 10 * usage.total)
    hub.agent("clerk", isolation="process")(agents.spend_on)
    async with hub:
        response = await hub.ask("clerk", "go", user="u", max_cost=3_000)
        free = await hub.ask("clerk", "go", user="u")
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert response.usage.cost < 10_000
    assert free.result == [None, 50]
