"""A use of a tool is judged as a call is: by the team's guards, with its arguments, before it runs."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from msgspec.structs import replace

from remit import (
    ALLOW,
    Ask,
    Brief,
    Code,
    Decision,
    Facts,
    Guard,
    Hub,
    Rate,
    Refuse,
    RemitError,
    Request,
    ToolUse,
    Verdict,
    fault,
)
from remit.policy.verdict import Finding, Rewrite
from remit.ports import Question
from remit.protocol.records import Approval
from waiting import PATIENCE_S, eventually

MakeHub = Callable[..., Hub]
IBAN = "DE89370400440532013000"


def finds_iban(text: str) -> list[Finding]:
    return [Finding(text.index(IBAN), text.index(IBAN) + len(IBAN), "IBAN")] if IBAN in text else []


@pytest.fixture(params=[False, True], ids=["tool of the hub", "tool of the agent"])
def own(request: pytest.FixtureRequest) -> bool:
    return request.param


class Bank:
    """An agent that pays what it is asked to, with a tool of the hub or of its own; the tool keeps the ledger."""

    def __init__(
        self, hub: Hub, payments: Sequence[dict[str, Any]], *, own: bool = False, rate: Rate | None = None
    ) -> None:
        self.hub = hub
        self.ledger: list[tuple[str, int]] = []
        self.payments = payments
        self.own = own

        @hub.tool(rate=None if own else rate)
        async def pay(to: str, amount: int) -> str:
            self.ledger.append((to, amount))
            return f"paid {amount} to {to}"

        self.pay = pay
        rates = {"pay": rate} if own and rate is not None else {}
        hub.agent("teller", tools=[] if own else ["pay"], tool_rates=rates)(self._teller)

    async def _teller(self, brief: Brief) -> list[object]:
        async def run(arguments: dict[str, Any]) -> str:
            return await self.pay(**arguments)

        async def one(payment: dict[str, Any]) -> object:
            try:
                return await (brief.use_own_tool("pay", payment, run) if self.own else brief.use("pay", **payment))
            except RemitError as error:
                return error.fault.code

        return [await one(payment) for payment in self.payments]

    async def run(self, **options: Any) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return (await self.hub.ask("teller", "go", user="u-1", **options)).unwrap()

    async def records(self, kind: type[Any]) -> list[Any]:
        await self.hub.store.flush()
        (run,) = await self.hub.store.runs()
        return [each.body for each in await self.hub.store.records(run=run.run) if isinstance(each.body, kind)]


def arguments(request: Request) -> dict[str, Any]:
    return cast("dict[str, Any]", request.input)


def guards_tool(verdict: Callable[[Request], Verdict]) -> Guard:
    return lambda request, facts: verdict(request) if request.act == "tool" else ALLOW


def over(limit: int, verdict: Verdict) -> Guard:
    """Return the guard with a verdict on payments above a limit."""

    def judge(request: Request) -> Verdict:
        return verdict if arguments(request)["amount"] > limit else ALLOW

    return guards_tool(judge)


def says(questions: list[Question], *decisions: Decision) -> Any:
    """Return the approver that notes each question and gives the next decision."""
    given = iter(decisions)

    async def approver(question: Question) -> Decision:
        questions.append(question)
        return next(given)

    return approver


YES, NO = Decision(agreed=True, by="ann"), Decision(agreed=False, by="ann", reason="too much")


async def test_a_guard_refuses_a_use_by_its_arguments_and_the_record_says_so(make_hub: MakeHub, own: bool) -> None:
    refusal = Refuse(fault(Code.PERMISSION_DENIED, "not that much"))
    bank = Bank(
        make_hub(guards=[over(100, refusal)]), [{"to": "bob", "amount": 50}, {"to": "eve", "amount": 500}], own=own
    )
    async with bank.hub:
        assert await bank.run() == ["paid 50 to bob", "PERMISSION_DENIED"]
        uses = await bank.records(ToolUse)
    assert bank.ledger == [("bob", 50)]
    assert (uses[-1].input, uses[-1].fault.message) == ({"to": "eve", "amount": 500}, "not that much")


async def test_a_guard_sees_who_uses_which_tool_for_whom_and_what_is_left(make_hub: MakeHub, own: bool) -> None:
    seen: list[tuple[Request, Facts]] = []

    def note(request: Request, facts: Facts) -> Verdict:
        seen.append((request, facts))
        return ALLOW

    bank = Bank(make_hub(guards=[note]), [{"to": "bob", "amount": 5}], own=own)
    async with bank.hub:
        await bank.run(max_tokens=500)
    (call, _), (use, facts) = seen
    assert (call.act, use.act) == ("call", "tool")
    assert (use.origin, use.target, use.input, use.remit.user) == ("teller", "pay", {"to": "bob", "amount": 5}, "u-1")
    assert (use.remit.tokens, use.run, use.path) == (500, call.run, call.path)
    assert facts.tool is not None
    assert (facts.tool.name, facts.target, facts.caller is not None) == ("pay", None, True)


async def test_a_tool_is_used_no_oftener_than_its_rate_and_nobody_is_asked_beyond_it(
    make_hub: MakeHub, own: bool
) -> None:
    questions: list[Question] = []
    hub = make_hub(guards=[over(100, Ask("May it be paid?"))], approver=says(questions, YES, NO))
    payments = [{"to": "bob", "amount": amount} for amount in (200, 500, 30, 40, 300)]
    bank = Bank(hub, payments, own=own, rate=Rate(2, 3_600))
    async with hub:
        no = "RATE_LIMITED"
        assert await bank.run() == ["paid 200 to bob", "APPROVAL_DECLINED", "paid 30 to bob", no, no]
        uses = await bank.records(ToolUse)
    assert (bank.ledger, len(questions)) == ([("bob", 200), ("bob", 30)], 2)
    assert uses[-1].fault is not None
    assert uses[-1].fault.message == "tool pay is used too often"
    assert 3_500_000 < uses[-1].fault.retry_after_ms <= 3_600_000


async def test_agents_that_wait_for_a_person_at_once_use_a_tool_no_oftener_than_its_rate(
    make_hub: MakeHub, own: bool
) -> None:
    both = asyncio.Barrier(2)

    async def approver(_: Question) -> bool:
        await both.wait()
        return True

    bank = Bank(
        make_hub(guards=[over(100, Ask("May it be paid?"))], approver=approver),
        [{"to": "bob", "amount": 200}],
        own=own,
        rate=Rate(1, 3_600),
    )
    async with bank.hub, asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(bank.hub.ask("teller", "go", user=user) for user in ("u-1", "u-2")))
    assert sorted(str(each.result) for each in answers) == ["['RATE_LIMITED']", "['paid 200 to bob']"]
    assert bank.ledger == [("bob", 200)]


async def test_a_person_is_asked_with_the_arguments_and_the_tool_runs_only_after_a_yes(
    make_hub: MakeHub, own: bool
) -> None:
    questions: list[Question] = []
    bank = Bank(
        make_hub(guards=[over(100, Ask("May it be paid?"))], approver=says(questions, YES, NO)),
        [{"to": "bob", "amount": 50}, {"to": "bob", "amount": 200}, {"to": "eve", "amount": 500}],
        own=own,
    )
    async with bank.hub:
        assert await bank.run() == ["paid 50 to bob", "paid 200 to bob", "APPROVAL_DECLINED"]
        approvals = await bank.records(Approval)
    assert bank.ledger == [("bob", 50), ("bob", 200)]
    assert [each.request.input for each in questions] == [{"to": "bob", "amount": 200}, {"to": "eve", "amount": 500}]
    assert [(each.agent, each.agreed, each.by) for each in approvals if each.agreed is not None] == [
        ("pay", True, "ann"),
        ("pay", False, "ann"),
    ]


async def test_a_person_may_edit_the_arguments_and_the_other_guards_judge_the_edit(
    make_hub: MakeHub, own: bool
) -> None:
    smaller = Decision(agreed=True, by="ann", edits={"input": {"to": "bob", "amount": 150}})
    larger = Decision(agreed=True, by="ann", edits={"input": {"to": "bob", "amount": 5_000}})
    refusal = Refuse(fault(Code.PERMISSION_DENIED, "nobody pays that much"))
    guards = [over(100, Ask("May it be paid?", editable=frozenset({"input"}))), over(1_000, refusal)]
    payments = [{"to": "bob", "amount": 900}, {"to": "bob", "amount": 800}]
    bank = Bank(make_hub(guards=guards, approver=says([], smaller, larger)), payments, own=own)
    async with bank.hub:
        assert await bank.run() == ["paid 150 to bob", "PERMISSION_DENIED"]
    assert bank.ledger == [("bob", 150)]


@pytest.mark.parametrize("edit", [{"to": "bob"}, {"to": "bob", "amount": "much"}, "bob", {"amount": 5, "x": 1}])
async def test_an_edit_that_does_not_fit_the_tool_is_refused(make_hub: MakeHub, edit: Any) -> None:
    ask = Ask("May it be paid?", editable=frozenset({"input"}))
    decision = Decision(agreed=True, by="ann", edits={"input": edit})
    bank = Bank(make_hub(guards=[over(100, ask)], approver=says([], decision)), [{"to": "bob", "amount": 900}])
    async with bank.hub:
        assert await bank.run() == ["INPUT_VALIDATION_FAILED"]
    assert bank.ledger == []


async def test_the_same_use_again_is_asked_about_again(make_hub: MakeHub, own: bool) -> None:
    questions: list[Question] = []
    bank = Bank(
        make_hub(guards=[over(100, Ask("May it be paid?"))], approver=says(questions, YES, NO)),
        [{"to": "bob", "amount": 200}] * 2,
        own=own,
    )
    async with bank.hub:
        assert await bank.run() == ["paid 200 to bob", "APPROVAL_DECLINED"]
    assert len({each.id for each in questions}) == 2


async def test_guards_judge_what_tokens_stand_for_and_the_person_sees_tokens(make_hub: MakeHub) -> None:
    seen: list[object] = []

    def judge(request: Request) -> Verdict:
        seen.append(arguments(request)["to"])
        return Ask("May it be paid?")

    questions: list[Question] = []
    hub = make_hub(guards=[guards_tool(judge)], approver=says(questions, YES), redaction=finds_iban)
    paid: list[str] = []

    @hub.tool(sees=["IBAN"])
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid to {to}"

    @hub.agent("teller", tools=["pay"])
    async def teller(brief: Brief) -> str:
        return await brief.use("pay", to=brief.text)

    async with hub:
        response = await hub.ask("teller", IBAN, user="u-1")
    assert (seen[0], paid, response.result) == (IBAN, [IBAN], f"paid to {IBAN}")
    assert IBAN not in str(questions[0].request.input)


async def test_a_guard_that_fails_or_rewrites_decides_about_tools_too(make_hub: MakeHub, own: bool) -> None:
    def fails(request: Request) -> Verdict:
        if arguments(request)["to"] == "eve":
            raise KeyError("eve")
        return Rewrite(replace(request, input={**arguments(request), "amount": 1}))

    bank = Bank(
        make_hub(guards=[guards_tool(fails)]), [{"to": "eve", "amount": 5}, {"to": "bob", "amount": 5}], own=own
    )
    async with bank.hub:
        assert await bank.run() == ["PERMISSION_DENIED", "paid 1 to bob"]


async def test_after_a_restart_a_use_that_was_done_is_not_asked_about_again(make_hub: MakeHub) -> None:
    """Decision 4: answered from the journal, by what the agent passed, also where a person edited it."""
    questions: list[Question] = []
    at_work, gone = asyncio.Event(), asyncio.Event()
    ledger: list[tuple[str, int]] = []
    edited = Decision(agreed=True, by="ann", edits={"input": {"to": "bob", "amount": 300}})

    def make(*, stays: bool) -> Hub:
        ask = Ask("May it be paid?", editable=frozenset({"input"}))
        hub = make_hub(guards=[over(400, ask)], approver=says(questions, edited))

        @hub.tool()
        async def pay(to: str, amount: int) -> str:
            ledger.append((to, amount))
            return f"paid {amount} to {to}"

        @hub.agent("teller", tools=["pay"], resumable=True)
        async def teller(brief: Brief) -> object:
            paid = await brief.use("pay", to="bob", amount=500)
            at_work.set()
            if stays:
                await gone.wait()
            return paid

        return hub

    async with asyncio.timeout(PATIENCE_S):
        async with make(stays=True) as hub:
            asking = asyncio.create_task(hub.ask("teller", "go", user="u-1", request_id="1"))
            await at_work.wait()
        await asking  # it was released with its hub
        async with make(stays=False) as hub:
            response = await hub.ask("teller", "go", user="u-1", request_id="1")
    assert response.result == "paid 300 to bob"
    assert (ledger, len(questions)) == ([("bob", 300)], 1)


async def test_a_use_that_is_held_deep_in_a_run_goes_on_at_the_next_hub_once_and_as_it_was_edited(
    make_hub: MakeHub, own: bool
) -> None:
    ledger, chain = list[dict[str, Any]](), ["chief", "boss", "clerk", "teller"]

    async def run(given: dict[str, Any]) -> str:
        ledger.append(given)
        return f"paid {given['amount']}"

    def asks(callee: str) -> Callable[[Brief], Any]:
        async def agent(brief: Brief) -> object:
            return (await brief.delegate(callee, objective="pay")).unwrap()

        return agent

    def make() -> Hub:
        hub = make_hub(guards=[over(100, Ask("May it be paid?", editable=frozenset({"input"})))], approver="inbox")

        @hub.tool()
        async def pay(to: str, amount: int) -> str:
            return await run({"to": to, "amount": amount})

        @hub.agent("teller", tools=["pay"], resumable=True)
        async def teller(brief: Brief) -> object:
            given: dict[str, Any] = {"to": "bob", "amount": 500}
            return await (brief.use_own_tool("pay", given, run) if own else brief.use("pay", **given))

        for caller, callee in pairwise(chain):
            hub.add(caller, asks(callee), may_call=[callee], resumable=True)
        return hub

    async with asyncio.timeout(PATIENCE_S):
        async with make() as hub:
            asking = asyncio.create_task(hub.ask("chief", "go", user="u-1", request_id="1"))
            (question,) = await eventually(hub.pending)
        await asking  # it was released with its hub
        assert (question.request.remit.depth, question.request.input) == (3, {"to": "bob", "amount": 500})
        async with make() as hub:
            assert [each.id for each in await hub.pending()] == [question.id]
            await hub.decide(question.id, agreed=True, by="ann", edits={"input": {"to": "bob", "amount": 50}})
            response = await hub.ask("chief", "go", user="u-1", request_id="1")
            assert await hub.pending() == []
        async with make() as hub:
            assert (await hub.ask("chief", "go", user="u-1", request_id="1")).result == response.result
    assert (response.result, ledger) == ("paid 50", [{"to": "bob", "amount": 50}])


async def test_a_tool_of_its_own_that_asks_runs_after_a_yes_with_the_arguments_of_the_person(make_hub: MakeHub) -> None:
    questions: list[Question] = []
    edited = Decision(agreed=True, by="ann", edits={"input": {"amount": 3}})
    hub = make_hub(approver=says(questions, YES, edited, NO))
    ledger: list[int] = []

    async def pay(arguments: dict[str, Any]) -> str:
        ledger.append(arguments["amount"])
        return "paid"

    @hub.agent("teller")
    async def teller(brief: Brief) -> list[str]:
        async def one(amount: int) -> str:
            try:
                return str(await brief.use_own_tool("pay", {"amount": amount}, pay, question="May it pay?"))
            except RemitError as error:
                return error.fault.code

        return [await one(amount) for amount in (1, 2, 4)]

    async with hub:
        assert (await hub.ask("teller", "go", user="u-1")).result == ["paid", "paid", "APPROVAL_DECLINED"]
    assert ledger == [1, 3]
    assert [(each.text, each.request.target, each.request.input) for each in questions] == [
        ("May it pay?", "pay", {"amount": amount}) for amount in (1, 2, 4)
    ]


async def test_a_tool_of_its_own_that_asks_is_asked_about_once_if_a_guard_asks_too(make_hub: MakeHub) -> None:
    questions: list[Question] = []
    hub = make_hub(guards=[guards_tool(lambda _: Ask("May it be paid?"))], approver=says(questions, YES))

    @hub.agent("teller")
    async def teller(brief: Brief) -> object:
        return await brief.use_own_tool("pay", {}, anything, question="May it pay?")

    async with hub:
        assert (await hub.ask("teller", "go", user="u-1")).result == "done"
    assert [each.text for each in questions] == ["May it be paid?"]


async def anything(arguments: dict[str, Any]) -> str:
    return "done"


async def test_a_tool_of_its_own_that_the_remit_does_not_name_is_refused(make_hub: MakeHub) -> None:
    hub = make_hub()

    @hub.agent("teller")
    async def teller(brief: Brief) -> object:
        return await brief.use_own_tool("pay", {}, anything)

    async with hub:
        refused = await hub.ask("teller", "go", user="u-1", tools=[])
        assert (await hub.ask("teller", "go", user="u-1")).result == "done"
    assert refused.fault is not None
    assert refused.fault.code is Code.TOOL_NOT_ALLOWED


async def test_an_exception_of_a_tool_of_its_own_is_raised_as_it_is_and_recorded(make_hub: MakeHub) -> None:
    hub = make_hub()

    async def stuck(arguments: dict[str, Any]) -> str:
        raise KeyError("drawer")

    @hub.agent("teller")
    async def teller(brief: Brief) -> str:
        with pytest.raises(KeyError, match="drawer"):
            await brief.use_own_tool("pay", {"to": "bob"}, stuck)
        return "not paid"

    async with hub:
        response = await hub.ask("teller", "go", user="u-1")
        uses = [each.body for each in await hub.store.records(run=response.run) if isinstance(each.body, ToolUse)]
    assert (response.result, response.tool_calls) == ("not paid", ("pay",))
    assert [(each.begun, each.input) for each in uses] == [(True, {"to": "bob"}), (False, None)]
    assert uses[-1].fault is not None
    assert uses[-1].fault.message == "tool pay failed: KeyError: 'drawer'"


@pytest.mark.parametrize("safe", [False, True])
async def test_after_a_restart_a_tool_of_its_own_is_not_used_again(make_hub: MakeHub, *, safe: bool) -> None:
    at_work, gone = asyncio.Event(), asyncio.Event()
    ledger: list[dict[str, Any]] = []

    async def pay(arguments: dict[str, Any]) -> str:
        ledger.append(arguments)
        return "paid"

    def make(*, stays: bool) -> Hub:
        hub = make_hub()

        @hub.agent("teller", resumable=True)
        async def teller(brief: Brief) -> object:
            paid = await brief.use_own_tool("pay", {"to": "bob"}, pay, safe_to_repeat=safe)
            at_work.set()
            if stays:
                await gone.wait()
            return paid

        return hub

    async with asyncio.timeout(PATIENCE_S):
        async with make(stays=True) as hub:
            asking = asyncio.create_task(hub.ask("teller", "go", user="u-1", request_id="1"))
            await at_work.wait()
        await asking
        async with make(stays=False) as hub:
            response = await hub.ask("teller", "go", user="u-1", request_id="1")
    assert (response.result, ledger) == ("paid", [{"to": "bob"}])


@pytest.mark.parametrize("by", ["guard", "person"])
async def test_what_a_guard_or_a_person_changes_has_tokens_for_a_tool_that_may_not_see(
    make_hub: MakeHub, by: str
) -> None:
    def judge(request: Request) -> Verdict:
        if by == "guard":
            return Rewrite(replace(request, input={**arguments(request), "amount": 3}))
        return ALLOW if arguments(request)["amount"] == 3 else Ask("May it be paid?", editable=frozenset({"input"}))

    async def edits(question: Question) -> Decision:
        return Decision(agreed=True, by="ann", edits={"input": {**arguments(question.request), "amount": 3}})

    hub = make_hub(guards=[guards_tool(judge)], approver=edits, redaction=finds_iban)
    bank = Bank(hub, [])

    @hub.agent("boss", tools=["pay"])
    async def boss(brief: Brief) -> object:
        return await brief.use("pay", to=brief.text, amount=500)

    async with hub:
        response = await hub.ask("boss", IBAN, user="u-1")
    ((to, amount),) = bank.ledger
    assert (to[:6], amount, response.result) == ("[IBAN:", 3, f"paid 3 to {IBAN}")


async def test_a_refusal_that_names_a_raw_value_reaches_the_agent_without_it(make_hub: MakeHub) -> None:
    def refuses(request: Request) -> Verdict:
        return Refuse(fault(Code.PERMISSION_DENIED, f"nothing is paid to {arguments(request)['to']}"))

    hub = make_hub(guards=[guards_tool(refuses)], redaction=finds_iban)
    bank, messages = Bank(hub, []), list[str]()

    @hub.agent("boss", tools=["pay"])
    async def boss(brief: Brief) -> str:
        try:
            await brief.use("pay", to=brief.text, amount=500)
        except RemitError as error:
            messages.append(error.fault.message)
        return "done"

    async with hub:
        assert (await hub.ask("boss", IBAN, user="u-1")).ok
    assert (len(messages), IBAN in messages[0], bank.ledger) == (1, False, [])


async def test_after_a_restart_a_use_that_was_refused_is_not_taken_for_the_next_one(make_hub: MakeHub) -> None:
    at_work, codes, stays = asyncio.Event(), list[Code](), [True]

    def make() -> Hub:
        hub = make_hub(guards=[over(400, Refuse(fault(Code.PERMISSION_DENIED, "too much")))])

        @hub.tool()
        async def pay(to: str, amount: int) -> str:
            return f"paid {amount} to {to}"

        @hub.agent("teller", tools=["pay"], resumable=True)
        async def teller(brief: Brief) -> Any:
            try:
                await brief.use("pay", to="eve", amount=500)
            except RemitError as error:
                codes.append(error.fault.code)
            paid = await brief.use("pay", to="bob", amount=5)
            at_work.set()
            if stays[0]:
                await asyncio.Event().wait()
            return paid

        return hub

    async with asyncio.timeout(PATIENCE_S):
        async with make() as hub:
            asking = asyncio.create_task(hub.ask("teller", "go", user="u-1", request_id="1"))
            await at_work.wait()
        await asking
        stays[0] = False
        async with make() as hub:
            assert (await hub.ask("teller", "go", user="u-1", request_id="1")).result == "paid 5 to bob"
    assert codes == [Code.PERMISSION_DENIED] * 2
