"""Money as a budget: carved and reserved along the tree, and refused where no price is known."""

import asyncio
from pathlib import Path

import pytest

from remit import Answer, Brief, Code, Hub, Limits, RemitError, Response, Status, Usage
from remit.policy.limits import AtRunLimit
from remit.ports import Question
from remit.protocol.records import Notice
from remit.runtime.approvers import InboxApprover
from remit.stores.sqlite import SqliteStore
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S

CENT = 10_000


def prices(agent: str, model: str, usage: Usage) -> int | None:
    """A tenth of a cent for each token, of every model but `unheard-of`."""
    return None if model == "unheard-of" else CENT // 10 * usage.total


def spending(hub: Hub, *, cost: int | None = None) -> None:
    """Register an agent that asks a model again and again, for a cent each time, until it is refused."""

    @hub.agent("clerk", cost=cost)
    async def ask(brief: Brief) -> int:
        calls = 0
        while calls < 100:
            most = brief.affordable(5, 5)
            calls += 1
            await asyncio.sleep(0)
            brief.spend(prompt=5, completion=most)
        return calls


def limited(root_cost: int | None = None, delegation_cost: int | None = None) -> Hub:
    limits = Limits(root_cost=root_cost, delegation_cost=delegation_cost)
    return Hub(store=MemoryStore(), prices=prices, limits=limits)


def message_of(response: Response) -> str:
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    return response.fault.message


async def test_a_run_ends_at_its_money_and_says_how_much_that_was() -> None:
    hub = limited(40 * CENT)
    spending(hub)
    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("clerk", "go", user="u")
        less = await hub.ask("clerk", "go", user="u", max_cost=3 * CENT)
    assert message_of(response) == "clerk has spent 0.400 of 0.400 USD, and the next call of its model costs over 0.005"
    assert (response.usage.cost, less.usage.cost) == (40 * CENT, 3 * CENT)


async def test_what_was_spent_beyond_it_fails_the_agent_and_starts_nothing_more() -> None:
    hub = limited(40 * CENT)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        try:
            brief.spend(prompt=420)
        except RemitError:
            return "went on all the same"
        return "unreachable"

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[object]:
        first = await brief.delegate("clerk", objective="one")
        return [message_of(first), (await brief.delegate("clerk", objective="two")).status]

    async with hub:
        response = await hub.ask("boss", "go", user="u")
        records = await hub.store.records(run=response.run)
    assert response.result == ["clerk spent 0.42 of 0.40 USD", Status.REFUSED]
    assert "clerk spent 0.42 of 0.40 USD" in [each.body.text for each in records if isinstance(each.body, Notice)]


async def test_agents_at_once_that_share_money_exceed_it_by_at_most_one_call_each() -> None:
    hub = limited(20 * CENT)
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[str]:
        replies = await asyncio.gather(*(brief.delegate("clerk", objective=each) for each in "abc"))
        assert brief.remit.cost == 20 * CENT
        assert brief.cost_left() == 0
        return [message_of(each) for each in replies]

    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("boss", "go", user="u")
    assert len(response.result) == 3
    assert 20 * CENT <= response.usage.cost <= 23 * CENT


async def test_an_amount_is_set_aside_and_what_is_left_of_it_comes_back() -> None:
    hub = limited()
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[int | None]:
        left = [brief.cost_left()]
        calls = [brief.delegate("clerk", objective=each, max_cost=3 * CENT) for each in "ab"]
        running = [asyncio.create_task(each) for each in calls]
        await asyncio.sleep(0)
        left.append(brief.cost_left())
        assert [(await each).usage.cost for each in running] == [3 * CENT, 3 * CENT]
        return [*left, brief.cost_left()]

    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("boss", "go", user="u", max_cost=10 * CENT)
        unbounded = await hub.ask("boss", "go", user="u")
    assert response.result == [10 * CENT, 4 * CENT, 4 * CENT]
    assert (unbounded.result, unbounded.usage.cost) == ([None, None, None], 6 * CENT)


@pytest.mark.parametrize("where", ["card", "team"])
async def test_an_amount_of_the_card_or_of_the_team_holds_where_the_caller_sets_none(where: str) -> None:
    hub = limited(delegation_cost=2 * CENT if where == "team" else None)
    spending(hub, cost=2 * CENT if where == "card" else None)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[int]:
        replies = [
            await brief.delegate("clerk", objective="a"),
            await brief.delegate("clerk", objective="b", max_cost=CENT),
        ]
        return [each.usage.cost for each in replies]

    async with asyncio.timeout(PATIENCE_S), hub:
        assert (await hub.ask("boss", "go", user="u")).result == [2 * CENT, CENT]


async def test_nothing_starts_without_money() -> None:
    hub = limited(40 * CENT)
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> str:
        return message_of(await brief.delegate("clerk", objective="go", max_cost=0))

    async with hub:
        assert (await hub.ask("boss", "go", user="u")).result == "no money is left for clerk"


async def test_a_model_without_a_price_is_refused_where_money_is_limited_and_nowhere_else() -> None:
    hub = limited()

    @hub.agent("careful")
    async def careful(brief: Brief) -> int:
        return brief.affordable(100, 50, model="unheard-of")

    @hub.agent("careless")
    async def careless(brief: Brief) -> str:
        brief.spend(prompt=10, model="unheard-of")
        return "free"

    @hub.agent("late")
    async def late(brief: Brief) -> Answer:
        return Answer("free", usage=Usage(prompt=10, cost=0, priced=0))

    def nothing(agent: str, model: str, usage: Usage) -> None:
        return None

    async with hub:
        assert (await hub.ask("careful", "go", user="u")).result == 50
        assert (await hub.ask("careless", "go", user="u")).result == "free"
        refused = await hub.ask("careful", "go", user="u", max_cost=CENT)
        failed = await hub.ask("careless", "go", user="u", max_cost=CENT)
    assert message_of(refused) == "the price of `unheard-of` is not known, and careful may spend 0.01 USD at most"
    assert (
        message_of(failed) == "the price of what careless spent is not known, and careless may spend 0.01 USD at most"
    )
    assert refused.fault is not None
    assert "`priced_as`" in refused.fault.suggestion
    hub = Hub(store=MemoryStore(), prices=nothing)
    hub.add("late", late)
    async with hub:
        assert (await hub.ask("late", "go", user="u", max_cost=CENT)).status is Status.FAILED


async def test_a_guard_may_set_less_money() -> None:
    """Then the callee does not share its caller's."""
    from msgspec.structs import replace

    from remit.policy.verdict import Facts, Rewrite
    from remit.protocol.envelope import Request

    def thrifty(request: Request, facts: Facts) -> Rewrite:
        return Rewrite(replace(request, remit=replace(request.remit, cost=CENT)))

    hub = Hub(store=MemoryStore(), prices=prices, limits=Limits(root_cost=40 * CENT), guards=[thrifty])
    spending(hub)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> int:
        return (await brief.delegate("clerk", objective="go")).usage.cost

    async with asyncio.timeout(PATIENCE_S), hub:
        assert (await hub.ask("boss", "go", user="u")).result == CENT


# ── what a person lets go on ──────────────────────────────────────────────────────────────────────────────────────────


class Person:
    """Answers each question, and remembers it."""

    def __init__(self, *, agrees: bool) -> None:
        self.questions: list[Question] = []
        self._agrees = agrees

    async def __call__(self, question: Question) -> bool:
        self.questions.append(question)
        await asyncio.sleep(0)
        return self._agrees


def asking(person: Person | None, at_limit: AtRunLimit = "ask") -> Hub:
    """A hub with an agent that asks two models without a price, each twice, by two agents at once."""
    hub = Hub(
        store=MemoryStore(), prices=prices, limits=Limits(root_cost=5_000_000, at_limit=at_limit), approver=person
    )

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> int:
        for model in ("unheard-of", "unheard-of"):
            await brief.allow_unpriced(model)
            most = brief.affordable(100, 50, model=model)
            brief.spend(prompt=100, completion=most, model=model)
        await brief.allow_unpriced("known")
        brief.spend(prompt=10, model="known")
        return brief.cost_left() or 0

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[object]:
        replies = await asyncio.gather(*(brief.delegate("clerk", objective=f"Part {part}") for part in range(2)))
        return [reply.result if reply.ok else message_of(reply) for reply in replies]

    return hub


QUESTION = "The price of `unheard-of` is not known, and this run has a limit of 5.00 USD. Let it go on unpriced?"


async def test_a_person_is_asked_once_for_each_model_without_a_price_and_a_yes_lets_it_go_on() -> None:
    person = Person(agrees=True)
    async with asyncio.timeout(PATIENCE_S), asking(person) as hub:
        response = await hub.ask("boss", "go", user="u")
        await hub.store.flush()
        records = await hub.store.records(run=response.run)
    assert [(each.text, each.request.act) for each in person.questions] == [(QUESTION, "price")]
    assert response.result == [4_990_000, 4_980_000]
    assert (response.usage.cost, response.usage.total, response.usage.unpriced) == (2 * CENT, 620, 600)
    assert [each.body.text for each in records if isinstance(each.body, Notice)] == [
        "the price of `unheard-of` is not known: a person let it go on, and its tokens are not counted"
    ]


async def test_a_no_refuses_the_model_for_the_rest_of_the_run() -> None:
    person = Person(agrees=False)
    async with asyncio.timeout(PATIENCE_S), asking(person) as hub:
        response = await hub.ask("boss", "go", user="u")
    assert len(person.questions) == 1
    assert response.result == ["the price of `unheard-of` is not known, and clerk may spend 5.00 USD at most"] * 2
    assert response.usage.total == 0


@pytest.mark.parametrize("person", [None, Person(agrees=True)])
async def test_where_nobody_is_to_be_asked_a_model_without_a_price_is_refused(person: Person | None) -> None:
    async with asking(person, at_limit="ask" if person is None else "stop") as hub:
        response = await hub.ask("clerk", "go", user="u")
    assert message_of(response) == "the price of `unheard-of` is not known, and clerk may spend 5.00 USD at most"
    assert person is None or not person.questions


async def test_a_person_is_asked_about_usage_that_comes_with_the_answer_too() -> None:
    person = Person(agrees=True)
    limits = Limits(delegation_cost=2_000_000, at_limit="ask")
    hub = Hub(store=MemoryStore(), prices=lambda agent, model, usage: None, limits=limits, approver=person)

    @hub.agent("late")
    async def late(brief: Brief) -> Answer:
        return Answer("done", usage=Usage(prompt=10))

    @hub.agent("boss", may_call=["late"])
    async def boss(brief: Brief) -> object:
        return (await brief.delegate("late", objective="Go")).result

    async with asyncio.timeout(PATIENCE_S), hub:
        response = await hub.ask("boss", "go", user="u")
    assert [each.text for each in person.questions] == [
        "The price of what late spent is not known, and late has a limit of 2.00 USD. Let it go on unpriced?"
    ]
    assert (response.result, response.usage.unpriced, response.usage.cost) == ("done", 10, 0)


async def test_if_the_call_that_asked_is_cancelled_another_one_asks() -> None:
    hub = Hub(store=MemoryStore(), prices=prices, limits=Limits(root_cost=5_000_000, at_limit="ask"), approver="inbox")

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        await brief.allow_unpriced("unheard-of")
        return "went on"

    async def the_question() -> Question:
        async with asyncio.timeout(PATIENCE_S):
            while not (pending := await hub.pending()):
                await asyncio.sleep(0)
        return pending[0]

    @hub.agent("hasty", may_call=["clerk"])
    async def hasty(brief: Brief) -> object:
        first = asyncio.create_task(brief.delegate("clerk", objective="First"))
        second = asyncio.create_task(brief.delegate("clerk", objective="Second"))
        question = await the_question()
        first.cancel()
        await asyncio.wait({first})
        await hub.decide((await the_question()).id, agreed=True, by="ann")
        assert question.text == QUESTION
        return (await second).result

    async with hub:
        response = await hub.ask("hasty", "go", user="u")
    assert response.result == "went on"


async def test_the_answer_outlasts_a_restart(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    def a_hub(*, hangs: bool) -> Hub:
        store = SqliteStore(tmp_path / "hub.db", durability="process")
        limits = Limits(root_cost=5_000_000, at_limit="ask")
        hub = Hub(store=store, prices=prices, limits=limits, approver=InboxApprover(store))

        @hub.agent("clerk", resumable=True)
        async def clerk(brief: Brief) -> str:
            await brief.allow_unpriced("unheard-of")
            brief.spend(prompt=10, model="unheard-of")
            if hangs:
                stopped.set()
                await asyncio.Event().wait()
            return "went on"

        return hub

    async with asyncio.timeout(PATIENCE_S), a_hub(hangs=True) as hub:
        asking = asyncio.create_task(hub.ask("clerk", "go", user="u", request_id="1"))
        while not (pending := await hub.pending()):
            await asyncio.sleep(0)
        await hub.decide(pending[0].id, agreed=True, by="ann")
        await stopped.wait()
    await asyncio.wait({asking})
    async with asyncio.timeout(PATIENCE_S), a_hub(hangs=False) as hub:
        response = await hub.ask("clerk", "go", user="u", request_id="1")
        assert not await hub.pending()
    assert response.result == "went on"
