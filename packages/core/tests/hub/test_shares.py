"""Calls for which nobody sets tokens share what is left: nothing that could be paid for is refused."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties import share
from remit import Brief, Call, Capability, Hub, Limits, Response
from remit_testing.memory import MemoryStore
from samples import code_of
from waiting import PATIENCE_S

Tree = tuple[int, tuple[Any, ...]]
"""What an agent spends before and after it asks others, and the trees of those that it asks at once."""


def trees(depth: int) -> st.SearchStrategy[Tree]:
    below = st.just(()) if depth == 0 else st.lists(trees(depth - 1), max_size=3).map(tuple)
    return st.tuples(st.integers(0, 3_000), below)


def cost(tree: Tree) -> int:
    return 2 * tree[0] + sum(map(cost, tree[1]))


def size(tree: Tree) -> int:
    return 1 + sum(map(size, tree[1]))


class Family:
    """Agents that ask each other along a tree, each by `asyncio.gather`; a program outside counts what they spend."""

    def __init__(self, tree: Tree) -> None:
        self.hub = Hub(store=MemoryStore(), redaction=False)
        self.spent = 0
        self.refused: list[object] = []
        self._tree = tree
        for level in range(4):
            self.hub.add(f"level-{level}", self._work, may_call=["*"])

    async def _work(self, brief: Brief) -> str:
        tree: Any = self._tree
        for turn in brief.text.split()[1:]:
            tree = tree[1][int(turn)]
        await self._spend(brief, tree[0])
        level = f"level-{brief.remit.depth + 1}"
        calls = (brief.delegate(level, objective=f"{brief.text} {n}") for n in range(len(tree[1])))
        replies = await asyncio.gather(*calls)
        self.refused += [code_of(reply) for reply in replies if not reply.ok]
        await asyncio.sleep(0)
        await self._spend(brief, tree[0])
        return "done"

    async def _spend(self, brief: Brief, tokens: int) -> None:
        """Spend no more than is left, as whoever caps each call of a model does."""
        if await brief.more_tokens(tokens) < tokens:
            self.refused.append("too few")
            return
        self.spent += tokens
        brief.spend(prompt=tokens)

    async def run(self, tokens: int | None = None) -> int:
        async with self.hub, asyncio.timeout(PATIENCE_S):
            options: Any = {} if tokens is None else {"max_tokens": tokens}
            response = await self.hub.ask("level-0", "go", user="u-1", **options)
            response.unwrap()
            return response.usage.total


@given(trees(3))
@share(0.5)
def test_no_call_of_a_tree_is_refused_that_the_run_can_pay_for(tree: Tree) -> None:
    """Decision 12: three agents ask three, which ask three; the run has what they spend, and the words of each call."""
    family = Family(tree)
    total = asyncio.run(family.run(tokens=cost(tree) + 10 * size(tree)))
    assert family.refused == []
    assert total == family.spent == cost(tree)


async def test_a_tree_of_three_by_three_by_three_needs_no_setting() -> None:
    tree: Tree = (500, ((500, ((500, ((500, ()),) * 3),) * 3),) * 3)
    family = Family(tree)
    assert await family.run() == cost(tree) == 40_000
    assert family.refused == []


@pytest.mark.parametrize("tokens", [700, 3_000, 40_000])
async def test_a_tree_whose_agents_look_at_what_is_left_never_spends_more_than_its_run_has(tokens: int) -> None:
    tree: Tree = (50, ((50, ((50, ()),) * 3),) * 3)
    family = Family(tree)
    total = await family.run(tokens=tokens)
    assert total == family.spent <= tokens
    assert (cost(tree) > tokens) == bool(family.refused)


# ── what others hold ──────────────────────────────────────────────────────────────────────────────────────────────────


async def spend(brief: Brief) -> str:
    """Spend as many tokens as the input says, a hundred at a time, after as many turns as the objective says."""
    for _ in range(int(brief.objective)):
        await asyncio.sleep(0)
    for _ in range(int(brief.request.input or 0) // 100):
        if await brief.more_tokens(100) < 100:
            return "short"
        brief.spend(prompt=100)
    return "done"


@pytest.mark.parametrize(
    ("needs", "ends"),
    [
        ((3_000, 400, 400), ["done", "done", "done"]),
        ((2_400, 1_500, 100), ["done", "done", "done"]),
        ((2_500, 2_500, 400), ["done", "short", "done"]),
    ],
)
async def test_an_agent_waits_for_tokens_that_others_hold_and_may_not_need(needs: Any, ends: list[str]) -> None:
    """Those that hold them wait for nobody, so that two that need too much do not wait for each other."""
    hub = Hub(store=MemoryStore())
    hub.add("spender", spend)

    @hub.agent("boss", may_call=["spender"])
    async def boss(brief: Brief) -> list[object]:
        calls = (brief.delegate("spender", objective=str(100 * n), input=need) for n, need in enumerate(needs))
        return [reply.result for reply in await asyncio.gather(*calls)]

    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("boss", "go", user="u-1", max_tokens=4_000)
    assert sorted(response.unwrap()) == sorted(ends)
    assert (response.usage.overrun, response.usage.total <= 4_000) == (0, True)


@pytest.mark.parametrize("of", ["tokens", "cost"])
async def test_a_call_waits_for_what_others_hold_that_were_granted_all_there_is(of: str) -> None:
    hub = Hub(store=MemoryStore(), prices=lambda agent, model, usage: usage.total)
    hub.add("spender", spend)

    @hub.agent("boss", may_call=["spender"])
    async def boss(brief: Brief) -> list[object]:
        most: list[Any] = [{f"max_{of}": 500}, {f"max_{of}": 500}, {}]
        calls = (brief.delegate("spender", objective=str(50 + n), input=200, **each) for n, each in enumerate(most))
        return [reply.result for reply in await asyncio.gather(*calls)]

    async with hub, asyncio.timeout(PATIENCE_S):
        options: Any = {f"max_{of}": 1_000}
        response = await hub.ask("boss", "go", user="u-1", **options)
    assert response.unwrap() == ["done"] * 3
    assert (response.usage.total, response.usage.overrun) == (600, 0)


async def test_a_request_that_is_larger_than_its_share_gets_what_it_needs() -> None:
    hub = Hub(store=MemoryStore(), redaction=False)

    @hub.agent("reader")
    async def reader(brief: Brief) -> int:
        return brief.remit.tokens

    @hub.agent("boss", may_call=["reader"])
    async def boss(brief: Brief) -> list[object]:
        texts = ("some words here " * 4_000, "some words here " * 40)
        return [(await brief.delegate("reader", objective="Read it", input=text)).result for text in texts]

    async with hub, asyncio.timeout(PATIENCE_S):
        large, small = (await hub.ask("boss", "go", user="u-1", max_tokens=30_000)).unwrap()
        refused = await hub.ask("boss", "go", user="u-1", max_tokens=12_000)
    assert (12_000 < large < 13_000, small) == (True, 7_500)
    assert refused.unwrap() == [None, 3_000], "that cannot be paid for"


@pytest.mark.parametrize("hedge_ms", [None, 100_000])
async def test_whoever_is_asked_after_another_failed_draws_on_the_caller_too(hedge_ms: int | None) -> None:
    """Half of a share is set aside for a hedge; it is there for whoever needs it."""
    hub, begun = Hub(store=MemoryStore()), list[str]()

    async def work(brief: Brief) -> str:
        begun.append(brief.request.target)
        if len(begun) == 1 and hedge_ms is None:
            raise ZeroDivisionError
        return await spend(brief)

    for name in ("one", "two"):
        hub.add(name, work, capabilities=[Capability(code="SPEND", read_only=True, hedge_ms=hedge_ms)])

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> object:
        return (await brief.delegate(capability="SPEND", objective="0", input=4_000)).result

    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("boss", "go", user="u-1", max_tokens=4_010)
    assert (response.result, response.usage.overrun) == ("done", 0)
    assert len(begun) == (2 if hedge_ms is None else 1)


async def test_nobody_waits_for_those_that_wait_for_a_person() -> None:
    hub = Hub(store=MemoryStore(), approver="inbox")

    @hub.agent("holder")
    async def holder(brief: Brief) -> bool:
        return await brief.confirm("Go on?")

    @hub.agent("spender")
    async def spender(brief: Brief) -> str:
        while not await hub.pending():
            await asyncio.sleep(0)
        reply = await spend(brief)
        (question,) = await hub.pending()
        await hub.decide(question.id, agreed=True, by="ann")
        return reply

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        calls = [brief.delegate("holder", objective="0"), brief.delegate("spender", objective="0", input=3_400)]
        return [reply.result for reply in await asyncio.gather(*calls)]

    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("boss", "go", user="u-1", max_tokens=4_000)
    assert response.unwrap() == [True, "short"]


async def test_an_agent_that_was_called_itself_asks_two_at_once() -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> int:
        return brief.remit.tokens

    @hub.agent("middle", may_call=["leaf"])
    async def middle(brief: Brief) -> list[object]:
        replies = await asyncio.gather(*(brief.delegate("leaf", objective=word) for word in ("one", "two")))
        return [reply.result for reply in replies]

    @hub.agent("boss", may_call=["middle"])
    async def boss(brief: Brief) -> object:
        return (await brief.delegate("middle", objective="go")).unwrap()

    async with hub:
        assert (await hub.ask("boss", "go", user="u-1")).unwrap() == [62_500, 62_500]


async def test_a_share_that_is_spent_is_followed_by_another() -> None:
    """What one agent needs is not known before: it goes on with what its caller can spare."""
    hub = Hub(store=MemoryStore())
    left: list[int] = []

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        for tokens in (0, 200, 200, 200):
            brief.spend(prompt=tokens)
            left.append(brief.tokens_left())
        return "done"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        return (await brief.delegate("worker", objective="go")).unwrap()

    async with hub:
        response = await hub.ask("boss", "go", user="u-1", max_tokens=1_000)
    assert (response.result, response.usage.total, response.usage.overrun) == ("done", 600, 0)
    assert left == [250, 187, 150, 100]


# ── calls that wait for a place ───────────────────────────────────────────────────────────────────────────────────────


class Crowd:
    """An agent that asks another for many things; how many are asked for at once is noted."""

    def __init__(self, **limits: Any) -> None:
        self.hub = Hub(store=MemoryStore(), limits=Limits(**limits))
        self.now = self.most = 0
        self.hub.agent("worker")(self._work)

    async def _work(self, brief: Brief) -> object:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20 + int(brief.text) % 5):
            await asyncio.sleep(0)
        brief.spend(prompt=100)
        self.now -= 1
        return brief.input


@pytest.mark.parametrize(("at_once", "limit", "most"), [(None, 3, 3), (2, 3, 2), (10, 3, 3), (1, 3, 1), (10, 20, 10)])
async def test_a_map_of_a_hundred_waits_for_places_and_answers_in_order(
    at_once: int | None, limit: int, most: int
) -> None:
    crowd = Crowd(max_fan_out=limit)

    @crowd.hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> list[object]:
        calls = [Call(target="worker", objective=f"{n}", input=n) for n in range(100)]
        return [reply.result for reply in await brief.map(calls, at_once=at_once)]

    async with crowd.hub, asyncio.timeout(PATIENCE_S):
        response = await crowd.hub.ask("boss", "go", user="u-1", max_tokens=10_010)
    assert response.unwrap() == list(range(100))
    assert (response.usage.total, response.usage.overrun, crowd.most) == (10_000, 0, most)


async def test_queued_calls_wait_for_others_that_do_not_queue() -> None:
    crowd = Crowd(max_fan_out=2)

    @crowd.hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> list[bool]:
        plain = [brief.delegate("worker", objective=f"{n}") for n in (3, 4)]
        queued = [brief.delegate("worker", objective=f"{n}", queued=True) for n in (7, 8, 9)]
        return [reply.ok for reply in await asyncio.gather(*plain, *queued)]

    async with crowd.hub, asyncio.timeout(PATIENCE_S):
        assert (await crowd.hub.ask("boss", "go", user="u-1")).unwrap() == [True] * 5
    assert crowd.most == 2


async def test_a_team_may_refuse_calls_beyond_the_limit_instead() -> None:
    """X4: the documents refuse them."""
    crowd = Crowd(max_fan_out=2, beyond_fan_out="refuse")

    @crowd.hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> list[str]:
        return [
            str(code_of(reply))
            for reply in await brief.map([Call(target="worker", objective=f"{n}") for n in range(3)])
        ]

    async with crowd.hub, asyncio.timeout(PATIENCE_S):
        assert "FAN_OUT_EXCEEDED" in (await crowd.hub.ask("boss", "go", user="u-1")).unwrap()


async def test_a_run_that_is_cancelled_leaves_nobody_in_the_queue() -> None:
    hub = Hub(store=MemoryStore(), limits=Limits(max_fan_out=1))
    begun, never = asyncio.Event(), asyncio.Event()
    texts: list[str] = []

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        texts.append(brief.text)
        begun.set()
        await never.wait()
        return "never"

    @hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        await brief.map([Call(target="worker", objective=f"{n}") for n in range(3)])
        return "never"

    async with hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("boss", "go", user="u-1", request_id="1"))
        await begun.wait()
        hub.cancel("1", "enough")
        assert (await asking).status == "cancelled"
    assert texts == ["0"]


async def test_a_queued_call_that_gives_up_waiting_leaves_its_place_to_others() -> None:
    """It has its place then, and waits for the slot of its caller, which another one has taken meanwhile."""
    hub = Hub(store=MemoryStore(), limits=Limits(max_fan_out=1))
    holds, given_up = asyncio.Event(), asyncio.Event()

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        if brief.text == "1":
            await holds.wait()
        return brief.text

    @hub.agent("boss", may_call=["worker"], concurrency=1)
    async def boss(brief: Brief) -> object:
        if brief.text == "holder":
            holds.set()
            await given_up.wait()
            return None
        first, second = (asyncio.create_task(brief.delegate("worker", objective=text, queued=True)) for text in "12")
        return await give_up(brief, first, second)

    async def give_up(brief: Brief, *calls: asyncio.Task[Response]) -> object:
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(20):
            await asyncio.sleep(0)
        calls[1].cancel()
        given_up.set()
        await asyncio.wait(calls)
        return (await brief.delegate("worker", objective="third", queued=True)).result

    assert worker
    async with hub, asyncio.timeout(PATIENCE_S):
        response, _ = await asyncio.gather(*(hub.ask("boss", text, user="u-1") for text in ("go", "holder")))
    assert response.result == "third"


async def test_nothing_at_once_is_an_error_of_the_caller() -> None:
    crowd = Crowd()

    @crowd.hub.agent("boss", may_call=["worker"])
    async def boss(brief: Brief) -> str:
        with pytest.raises(ValueError, match="at_once is 0"):
            await brief.map([Call(target="worker", objective="x")], at_once=0)
        return "refused"

    async with crowd.hub:
        assert (await crowd.hub.ask("boss", "go", user="u-1")).result == "refused"
