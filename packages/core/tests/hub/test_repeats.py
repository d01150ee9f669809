"""What an agent asks again: refused, answered as before, run again after a change, or warned of."""

import itertools
from typing import Any, cast

import pytest

from remit import Brief, Call, Capability, Code, Handoff, Hub, Limits, Response
from remit.protocol.envelope import Json
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock

READS = Capability(code="STOCK", read_only=True)


class Shop:
    """An agent that reads and changes, one that only asks others, and what was run."""

    def __init__(self) -> None:
        self.hub = Hub(store=MemoryStore(), clock=ManualClock())
        self.ran: list[str] = []
        self.came: list[Response] = []
        self.calls: list[Call | str] = []
        self.hub.tool()(self.sell)
        self.hub.tool(safe_to_repeat=True)(self.look)

        @self.hub.agent("store", capabilities=[READS, Capability(code="ORDER")])
        async def store(brief: Brief) -> object:
            self.ran.append(brief.request.capability or brief.text)
            if brief.input == "fail":
                raise ValueError
            return {"left": len(self.ran)}

        @self.hub.agent("boss", may_call=["store"], tools=["sell", "look"])
        async def boss(brief: Brief) -> None:
            for call in self.calls:
                if call == "saw":
                    brief.record_tool_use("saw")
                elif isinstance(call, str):
                    await brief.use(call, what="bolts")
                else:
                    [response] = await brief.fan_out([call])
                    self.came.append(response)

    def sell(self, what: str) -> str:
        return what

    def look(self, what: str) -> str:
        return what

    async def run(self, *calls: Call | str) -> Response:
        self.calls = list(calls)
        async with self.hub:
            return await self.hub.ask("boss", "x", user="u")

    def codes(self) -> list[Code | None]:
        return [each.fault.code if each.fault else None for each in self.came]


def stock(what: str = "bolts") -> Call:
    return Call(target="store", capability="STOCK", objective="How many?", input={"what": what})


async def test_the_same_action_with_other_arguments_is_another_call() -> None:
    """X5: the objective names an action, its arguments are in the input."""
    shop = Shop()
    await shop.run(*(Call(target="store", objective="get_order", input={"id": n}) for n in (1, 1, 2)))
    assert shop.codes() == [None, Code.CYCLE_DETECTED, None]
    assert shop.ran == ['{"id":1}', '{"id":2}']


async def test_what_only_reads_and_is_asked_again_is_answered_as_before_with_a_note() -> None:
    shop = Shop()
    root = await shop.run(stock(), stock(" BOLTS"), stock("nuts"))
    first, again, other = shop.came
    assert shop.ran == ["STOCK", "STOCK"]
    assert (again.result, again.cache, again.usage.total) == (first.result, "hit", 0)
    assert (again.id, first.id) == (f"{root.run}.2", f"{root.run}.1")
    assert again.warnings == ("This was asked before and nothing has changed since, so this is the earlier answer.",)
    assert (other.result, first.warnings) == ({"left": 2}, ())


async def test_what_the_caller_does_to_an_answer_does_not_change_the_one_that_it_is_given_again() -> None:
    shop = Shop()

    @shop.hub.agent("careless", may_call=["store"])
    async def careless(brief: Brief) -> object:
        for _ in range(3):
            response = await brief.delegate("store", capability="STOCK", input="x")
            assert response.result == {"left": 1}
            cast("dict[str, Json]", response.result)["left"] = "none"
        return "seen"

    async with shop.hub:
        assert (await shop.hub.ask("careless", "x", user="u")).result == "seen"


CHECK = stock()
TEST = Call(target="store", objective="Run the tests")


@pytest.mark.parametrize(
    ("between", "changes"),
    [
        (Call(target="store", capability="ORDER", input="bolts"), True),
        (Call(target="store", objective="tidy up"), True),
        (Call(target="store", capability="ORDER", input="fail"), True),
        ("sell", True),
        ("saw", True),
        ("look", False),
        (stock("nuts"), False),
    ],
)
@pytest.mark.parametrize("call", [CHECK, TEST], ids=["reads", "may change"])
async def test_a_call_is_made_again_after_something_else_was_changed(
    call: Call, between: Call | str, changes: bool
) -> None:
    """X5: with nothing changed in between it is a cycle, or has the earlier answer if it only reads."""
    shop = Shop()
    await shop.run(call, between, call)
    again = shop.came[-1]
    assert shop.ran.count(shop.ran[0]) >= 1 + changes
    if changes:
        assert (again.cache, again.fault) == (shop.came[0].cache, None)
    elif call is CHECK:
        assert again.cache == "hit"
    else:
        assert shop.codes()[-1] is Code.CYCLE_DETECTED


async def test_a_change_below_what_was_asked_does_not_make_its_own_answer_outdated() -> None:
    shop = Shop()
    ran: list[str] = []

    @shop.hub.agent("checker", capabilities=[Capability(code="CHECK", read_only=True)], may_call=["store"])
    async def checker(brief: Brief) -> str:
        ran.append("CHECK")
        await brief.delegate("store", objective="note it")
        return "checked"

    @shop.hub.agent("lead", may_call=["checker"])
    async def lead(brief: Brief) -> None:
        for _ in range(2):
            assert (await brief.delegate("checker", capability="CHECK", input=1)).result == "checked"

    async with shop.hub:
        (await shop.hub.ask("lead", "x", user="u")).unwrap()
    assert ran == ["CHECK"]


async def test_what_may_change_something_is_refused_with_what_to_do() -> None:
    shop = Shop()
    order = Call(target="store", capability="ORDER", input="bolts")
    await shop.run(order, stock(), order)
    assert shop.codes() == [None, None, Code.CYCLE_DETECTED]
    why = shop.came[-1].fault
    assert why is not None
    assert "say in the objective or the input what is different" in why.suggestion


def ask_for(text: str) -> Call:
    return Call(target="store", objective=text)


TEXTS = [f"Please find out {word} many bolts are left in the store" for word in ("how", "just how", "really how", "so")]
IN_CIRCLES = "calls were made again though nothing had changed, and their answers brought nothing new."


@pytest.mark.parametrize(
    ("answers", "warned"),
    [
        (["none are left"], [3]),
        ([{"left": 1, "in": "boxes"}], [3]),
        ([{"left": n, "in": "boxes"} for n in range(5)], []),
        (["bolts lie on the left", "six crates came by ship", "none since May", "ask Eve about it", "go away"], []),
        (["none are left"] * 3 + ["two are left"] * 2, []),
        ([None], []),
    ],
)
async def test_an_agent_that_asks_for_nearly_the_same_again_and_again_is_warned_unless_the_answers_are_new(
    answers: list[Json], warned: list[int]
) -> None:
    hub = Hub(store=MemoryStore(), clock=ManualClock())
    news = itertools.cycle(answers)

    @hub.agent("store")
    async def store(brief: Brief) -> Json:
        return next(news)

    @hub.agent("boss", may_call=["store"])
    async def boss(brief: Brief) -> list[int]:
        last = "Please find out at last how many bolts are left in the store"
        came = [await brief.delegate("store", objective=text) for text in (*TEXTS, last)]
        return [place for place, each in enumerate(came) if any(IN_CIRCLES in warning for warning in each.warnings)]

    async with hub:
        response = await hub.ask("boss", "x", user="u")
    assert response.result == warned
    assert sum(IN_CIRCLES in warning for warning in response.warnings) == len(warned)


async def test_an_agent_that_fails_alike_again_and_again_is_in_circles() -> None:
    shop = Shop()
    root = await shop.run(*[Call(target="store", capability="ORDER", input="fail")] * 4)
    assert [IN_CIRCLES in warning for warning in root.warnings] == [True]


async def test_a_tool_that_is_used_in_circles_is_named_in_the_record() -> None:
    shop = Shop()
    async with shop.hub:
        shop.calls = ["look"] * 4
        root = await shop.hub.ask("boss", "x", user="u")
        records = await shop.hub.store.records()
    assert root.warnings == (f"3 {IN_CIRCLES} Use the answers so far, or ask for something else.",)
    assert sum("boss has asked look again" in repr(record) for record in records) == 1


async def test_different_look_ups_at_once_raise_no_alarm() -> None:
    hub = Hub(store=MemoryStore(), clock=ManualClock(), limits=Limits(max_fan_out=4))

    @hub.agent("store")
    async def store(brief: Brief) -> Json:
        return {"item": brief.input, "unit": "piece", "in": "boxes"}

    @hub.agent("boss", may_call=["store"])
    async def boss(brief: Brief) -> list[Json]:
        things = "bolts", "nuts", "nails", "saws"
        calls = [Call(target="store", objective="Look up what is left", input=each) for each in things]
        return [response.result for response in await brief.fan_out(calls)]

    async with hub:
        root = await hub.ask("boss", "x", user="u")
    assert (len(cast("list[Json]", root.result)), root.warnings) == (4, ())


# ── An earlier answer is given again only to a call that gave its callee the same ─────────────────────────────────────


CASES: list[tuple[list[dict[str, Any]], int]] = [
    ([{}, {}], 1),
    ([{"handoff": Handoff(data={"rows": [1]})}, {"handoff": Handoff(data={"rows": [2]})}], 2),
    ([{"handoff": Handoff(data={"rows": [1]})}, {"handoff": Handoff(data={"rows": [1]})}], 1),
    ([{"handoff": Handoff(facts=("write to ann@example.org",))}] * 2, 1),
    ([{"hints": ("in euros",)}, {"hints": ("in dollars",)}], 2),
    ([{"session": "one"}, {"session": "two"}], 2),
]


@pytest.mark.parametrize(("others", "ran"), CASES)
async def test_what_is_handed_over_with_a_call_makes_it_another_question(others: list[Any], ran: int) -> None:
    """X5: two equal calls that only read, with other rows to add up, have two answers."""
    hub, handed = Hub(store=MemoryStore(), clock=ManualClock()), list[Any]()

    @hub.agent("sums", capabilities=[Capability(code="SUM", read_only=True)])
    async def sums(brief: Brief) -> int:
        handed.append(brief.handoff.data)
        return len(handed)

    @hub.agent("boss", may_call=["sums"])
    async def boss(brief: Brief) -> Any:
        calls = [await brief.delegate("sums", capability="SUM", objective="Add up", **other) for other in others]
        return [call.unwrap() for call in calls]

    async with hub:
        assert (await hub.ask("boss", "x", user="u")).unwrap() == [1, ran]
