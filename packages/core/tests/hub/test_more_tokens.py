"""A run that needs more tokens than it has asks a person for more, if its team says so."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Brief, Code, Hub, Kind, Limits, Notice, Response
from remit.ports import Decision, Question
from remit.runtime.approvers import AllowList, InboxApprover, deny, first_of
from remit.stores.sqlite import SqliteStore
from remit_testing.memory import MemoryStore
from samples import a_remit, a_request, code_of
from waiting import PATIENCE_S

ASKS = Limits(root_tokens=1_000, at_limit="ask")


async def work(brief: Brief) -> str:
    """Spend 400 tokens five times, and ask for more each time that fewer are left."""
    for _ in range(5):
        left = await brief.more_tokens(400)
        brief.spend(prompt=min(left, 400))
        if left < 400:
            return "cut"
    return "done"


def a_hub(limits: Limits = ASKS, approver: Any = "inbox", store: Any = None) -> Hub:
    hub = Hub(store=store or MemoryStore(), limits=limits, approver=approver)
    hub.agent("worker")(work)

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> list[object]:
        calls = (
            brief.delegate("worker", objective=f"Part {part}", max_tokens=brief.request.input) for part in range(2)
        )
        return [reply.result or str(code_of(reply)) for reply in await asyncio.gather(*calls)]

    return hub


async def the_question(hub: Hub) -> Question:
    async with asyncio.timeout(PATIENCE_S):
        while not (pending := await hub.pending()):
            await asyncio.sleep(0)
    (question,) = pending
    return question


async def answer(hub: Hub, *, agreed: bool = True) -> Question:
    question = await the_question(hub)
    return await hub.decide(question.id, agreed=agreed, by="ann")


async def notices(hub: Hub, response: Response) -> list[str]:
    await hub.store.flush()
    records = await hub.store.records(run=response.run)
    return [each.body.text for each in records if each.kind is Kind.NOTICE and isinstance(each.body, Notice)]


async def test_a_yes_extends_the_run_and_it_goes_on() -> None:
    async with a_hub() as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("worker", "go", user="u"))
        question = await answer(hub)
        response = await asking
        recorded = await notices(hub, response)
    assert question.text == "This run has 1,000 tokens and needs more. Grant 1,000 more?"
    assert (question.request.act, question.request.target) == ("tokens", "worker")
    assert (response.result, response.usage.total, response.usage.overrun) == ("done", 2_000, 0)
    assert recorded == ["1000 more tokens were granted: a person agreed"]


async def test_a_no_leaves_the_limit_and_nobody_is_asked_again() -> None:
    questions = list[Question]()

    async def no(question: Question) -> bool:
        questions.append(question)
        return False

    async with a_hub(approver=no) as hub:
        response = await hub.ask("boss", "go", user="u")
    assert len(questions) == 1
    assert (response.result, response.usage.total, response.usage.overrun) == (["cut", "cut"], 1_000, 0)


@pytest.mark.parametrize("approver", [None, deny])
async def test_where_nobody_can_be_asked_the_limit_holds(approver: Any) -> None:
    async with a_hub(approver=approver) as hub:
        response = await hub.ask("worker", "go", user="u")
    assert (response.result, response.usage.total) == ("cut", 1_000)


async def test_nobody_is_asked_unless_the_team_says_so() -> None:
    async def never(question: Question) -> bool:
        raise AssertionError(question.text)

    async with a_hub(Limits(root_tokens=1_000), approver=never) as hub:
        response = await hub.ask("worker", "go", user="u")
    assert (response.result, response.usage.total) == ("cut", 1_000)


async def test_calls_that_reach_the_limit_together_wait_for_one_answer() -> None:
    async with a_hub(Limits(root_tokens=1_000, at_limit="ask", more_tokens=3_000)) as hub, asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("boss", "go", user="u"))
        question = await answer(hub)
        response = await asking
    assert question.text.endswith("Grant 3,000 more?")
    assert (response.result, response.usage.total, response.usage.overrun) == (["done", "done"], 4_000, 0)


async def test_if_the_call_that_asked_is_cancelled_another_one_asks() -> None:
    hub = a_hub()

    @hub.agent("hasty", may_call=["worker"])
    async def hasty(brief: Brief) -> object:
        first = asyncio.create_task(brief.delegate("worker", objective="First"))
        second = asyncio.create_task(brief.delegate("worker", objective="Second"))
        asked = await the_question(hub)
        first.cancel()
        await asyncio.wait({first})
        again = await answer(hub)
        assert again.id == asked.id
        await answer(hub)
        return (await second).result

    async with hub:
        response = await hub.ask("hasty", "go", user="u")
    assert response.result == "done"


@pytest.mark.parametrize("tokens", [800, None], ids=["with a number", "with a share"])
async def test_a_call_that_the_run_cannot_pay_for_waits_for_the_answer(tokens: int | None) -> None:
    granted = list[int]()
    hub = a_hub()

    @hub.agent("reader")
    async def reader(brief: Brief) -> str:
        granted.append(brief.remit.tokens)
        return "read"

    @hub.agent("late", may_call=["reader"])
    async def late(brief: Brief) -> object:
        brief.spend(prompt=brief.tokens_left() if tokens is None else 700)
        return (await brief.delegate("reader", objective="Read it", max_tokens=tokens)).result

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("late", "go", user="u"))
        await answer(hub)
        response = await asking
    assert response.result == "read"
    assert granted == [tokens or 250]


async def test_an_agent_with_tokens_of_its_own_keeps_to_them() -> None:
    async def never(question: Question) -> bool:
        raise AssertionError(question.text)

    async with a_hub(approver=never) as hub:
        response = await hub.ask("boss", "go", user="u", input=300)
    assert (response.result, response.usage.total) == (["cut", "cut"], 600)


async def test_a_request_of_an_agent_elsewhere_keeps_to_the_tokens_that_it_came_with() -> None:
    async def never(question: Question) -> bool:
        raise AssertionError(question.text)

    remit = a_remit(tokens=1_000, chain=("far/boss",), depth=1)
    async with a_hub(approver=never) as hub:
        going = await hub.begin(a_request(target="worker", remit=remit, origin="boss", via="far"))
        response = going if isinstance(going, Response) else await going.task
    assert (response.result, response.usage.total) == ("cut", 1_000)


async def test_an_allow_list_of_calls_grants_no_tokens() -> None:
    async with a_hub(approver=first_of([AllowList(["*"]), deny])) as hub:
        response = await hub.ask("worker", "go", user="u")
    assert (response.result, response.usage.total) == ("cut", 1_000)


async def test_more_tokens_come_from_the_users_day() -> None:
    limits = Limits(root_tokens=1_000, at_limit="ask", user_tokens_per_day=2_400)
    async with a_hub(limits) as hub:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(hub.ask("worker", "go", user="u"))
            await answer(hub)
        assert (asking.result().result, asking.result().usage.total) == ("done", 2_000)
        rest = await hub.ask("worker", "again", user="u")
        spent = await hub.ask("worker", "and again", user="u")
    assert (rest.result, rest.usage.total) == ("cut", 400)  # nothing is left of the day, so nobody is asked
    assert code_of(spent) is Code.TOKEN_BUDGET_EXCEEDED


async def test_what_a_no_leaves_of_the_users_day_can_be_spent_by_others() -> None:
    limits = Limits(root_tokens=1_000, at_limit="ask", user_tokens_per_day=2_000)

    async def no(question: Question) -> bool:
        return False

    async with a_hub(limits, approver=no) as hub:
        totals = [(await hub.ask("worker", "go", user="u")).usage.total for _ in range(2)]
    assert totals == [1_000, 1_000]


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Reach = Callable[[str], Awaitable[None]]


def resumable_hub(folder: Path, reach: Reach) -> Hub:
    store = SqliteStore(folder / "hub.db", durability="process")
    hub = Hub(store=store, limits=ASKS, approver=InboxApprover(store))

    @hub.agent("step", resumable=True)
    async def step(brief: Brief) -> str:
        await reach(brief.text)
        await brief.more_tokens(400)
        brief.spend(prompt=400)
        return brief.text

    @hub.agent("steps", resumable=True, may_call=["step"])
    async def steps(brief: Brief) -> list[object]:
        replies = [await brief.delegate("step", objective=f"step {number}") for number in range(5)]
        return [reply.result or str(code_of(reply)) for reply in replies]

    return hub


@pytest.mark.parametrize("stops_at", ["the question", "step 4"])
async def test_the_answer_and_the_tokens_outlast_a_restart(tmp_path: Path, stops_at: str) -> None:
    stopped = asyncio.Event()

    async def stop(text: str) -> None:
        if text == stops_at:
            stopped.set()
            await asyncio.Event().wait()

    async with resumable_hub(tmp_path, stop) as hub:
        asking = asyncio.create_task(hub.ask("steps", "go", user="u", request_id="1"))
        question = await the_question(hub)
        if stops_at != "the question":
            await hub.decide(question.id, agreed=True, by="ann")
            await stopped.wait()
    await asyncio.wait({asking})

    async def go_on(text: str) -> None: ...

    if stops_at == "the question":
        store = SqliteStore(tmp_path / "hub.db", durability="process")
        await store.open()
        assert await store.decide(question.id, Decision(agreed=True, by="ann"))
        await store.close()
    async with resumable_hub(tmp_path, go_on) as hub:
        response = await hub.ask("steps", "go", user="u", request_id="1")
        assert not await hub.pending()
    assert response.result == [f"step {number}" for number in range(5)]
    assert (response.usage.total, response.usage.overrun) == (2_000, 0)
