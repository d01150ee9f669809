"""What an agent asks again: refused, answered as before, run again after a change, or warned of."""

from typing import Any, cast

import pytest

from remit import Brief, Call, Capability, Code, Handoff, Hub, Response
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
                if isinstance(call, str):
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


@pytest.mark.parametrize(
    ("between", "ran"),
    [
        (Call(target="store", capability="ORDER", input="bolts"), ["STOCK", "ORDER", "STOCK"]),
        (Call(target="store", objective="tidy up"), ["STOCK", "tidy up", "STOCK"]),
        (Call(target="store", capability="ORDER", input="fail"), ["STOCK", "ORDER", "STOCK"]),
        ("sell", ["STOCK", "STOCK"]),
        ("look", ["STOCK"]),
        (stock("nuts"), ["STOCK", "STOCK"]),
    ],
)
async def test_a_check_runs_again_after_something_was_changed(between: Call | str, ran: list[str]) -> None:
    shop = Shop()
    await shop.run(stock(), between, stock())
    assert shop.ran == ran


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


async def test_an_agent_that_asks_for_nearly_the_same_again_and_again_is_warned_once() -> None:
    shop = Shop()
    root = await shop.run(*map(ask_for, TEXTS), ask_for("Please find out at last how many bolts are left in the store"))
    assert shop.codes() == [None] * 5
    [warning] = shop.came[3].warnings
    assert warning.startswith("Nearly the same was asked several times, and the answers brought nothing new.")
    assert [each.warnings for each in (*shop.came[:3], shop.came[4])] == [()] * 4
    assert root.warnings == (warning,)


async def test_a_tool_that_is_used_in_circles_is_named_in_the_response() -> None:
    shop = Shop()
    root = await shop.run(*["look"] * 4)
    assert [warning.split(".")[0] for warning in root.warnings] == [
        "Nearly the same was asked several times, and the answers brought nothing new"
    ]


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
    hub, asked = Hub(store=MemoryStore(), clock=ManualClock()), list[Any]()

    @hub.agent("sums", capabilities=[Capability(code="SUM", read_only=True)])
    async def sums(brief: Brief) -> int:
        asked.append(brief.handoff.data)
        return len(asked)

    @hub.agent("boss", may_call=["sums"])
    async def boss(brief: Brief) -> Any:
        calls = [await brief.delegate("sums", capability="SUM", objective="Add up", **other) for other in others]
        return [call.unwrap() for call in calls]

    async with hub:
        assert (await hub.ask("boss", "x", user="u")).unwrap() == [1, ran]
