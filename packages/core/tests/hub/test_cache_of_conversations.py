"""An answer that depends on more than was asked is kept for nobody else, and none outlives a change of its run."""

import asyncio
from typing import Any

import pytest

from remit import Answer, Brief, Capability, Handoff, Hub, Response
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from waiting import PATIENCE_S


def looking_up(*, public: bool = False) -> Capability:
    return Capability(code="LOOK", read_only=True, cache_ms=60_000, public=public)


async def reads_history(brief: Brief) -> Any:
    return [message.text for message in await brief.history(brief.handoff.history)]


async def reads_state(brief: Brief) -> Any:
    return sorted(await brief.state())


async def reads_facts(brief: Brief) -> Any:
    return list(await brief.facts())


async def reads_nothing(brief: Brief) -> Any:
    return "the same for all"


async def tells_the_words_of_the_user(brief: Brief) -> Any:
    return brief.original_request


def a_hub(does: Any, *, public: bool = False) -> tuple[Hub, list[str]]:
    """Return a hub whose desk asks an expert for the same each time, and how often the expert was asked."""
    hub, ran = Hub(store=MemoryStore(), clock=ManualClock(), redaction=False), list[str]()

    @hub.agent("expert", capabilities=[looking_up(public=public)])
    async def expert(brief: Brief) -> Any:
        ran.append(brief.user)
        return await does(brief)

    @hub.agent("desk", may_call=["expert"])
    async def desk(brief: Brief) -> Any:
        handoff = Handoff(history=brief.request.session)
        reply = await brief.delegate("expert", capability="LOOK", objective="Look", handoff=handoff)
        return Answer([reply.unwrap(), reply.cache], new_facts=(f"{brief.user} was here",))

    return hub, ran


@pytest.mark.parametrize("public", [False, True])
async def test_what_was_read_in_one_conversation_is_not_the_answer_in_another(public: bool) -> None:
    """K14, C9: by the reference that the expert is given, whoever asks for the same."""
    hub, _ = a_hub(reads_history, public=public)
    async with hub:
        first = await hub.ask("desk", "My secret", user="ann", session="s-1")
        second = await hub.ask("desk", "Hello", user="bob" if public else "ann", session="s-2")
    assert first.unwrap() == [["My secret"], "miss"]
    assert second.unwrap() == [["Hello"], "miss"]


@pytest.mark.parametrize(
    ("does", "public", "kept"),
    [
        (reads_state, False, False),
        (reads_facts, False, True),
        (reads_facts, True, False),
        (reads_nothing, False, True),
        (reads_nothing, True, True),
    ],
)
async def test_an_answer_is_kept_only_for_those_to_whom_all_that_was_read_is_the_same(
    does: Any, public: bool, kept: bool
) -> None:
    hub, ran = a_hub(does, public=public)
    async with hub:
        for user in ("ann", "bob" if public else "ann"):
            (await hub.ask("desk", "Hello", user=user)).unwrap()
    assert len(ran) == (1 if kept else 2)


async def test_a_public_answer_holds_no_words_of_the_user_who_was_first() -> None:
    hub, ran = a_hub(tells_the_words_of_the_user, public=True)
    async with hub:
        came = [(await hub.ask("desk", f"I am {user}", user=user)).unwrap() for user in ("ann", "bob")]
    assert came == [["Look", "miss"], ["Look", "hit"]]
    assert ran == ["ann"]


async def test_an_answer_above_one_that_was_read_elsewhere_is_not_kept_either() -> None:
    hub, _ = a_hub(reads_history)
    ran: list[str] = []

    @hub.agent("lead", capabilities=[Capability(code="LEAD", read_only=True, cache_ms=60_000)], may_call=["expert"])
    async def lead(brief: Brief) -> Any:
        ran.append(brief.text)
        return (await brief.delegate("expert", capability="LOOK", handoff=brief.handoff)).unwrap()

    @hub.agent("boss", may_call=["lead"])
    async def boss(brief: Brief) -> Any:
        handoff = Handoff(history=brief.request.session)
        return (await brief.delegate("lead", capability="LEAD", handoff=handoff)).unwrap()

    async with hub:
        came = [(await hub.ask("boss", said, user="ann", session=said)).unwrap() for said in ("one", "two")]
    assert came == [["one"], ["two"]]
    assert len(ran) == 2


# ── what was changed since ────────────────────────────────────────────────────────────────────────────────────────────


class Shop:
    """A shop whose stock is kept for a minute, and a buyer that looks, buys and looks again."""

    def __init__(self) -> None:
        self.hub = Hub(store=MemoryStore(), clock=ManualClock())
        self.left = 3
        self.slow = False
        self.looking, self.go = asyncio.Event(), asyncio.Event()
        self.came: list[Response] = []

        @self.hub.agent("shop", capabilities=[looking_up(public=True), Capability(code="BUY")])
        async def shop(brief: Brief) -> int:
            if brief.request.capability == "BUY":
                self.left -= 1
            left = self.left
            if self.slow and brief.request.capability == "LOOK":
                self.slow = False
                self.looking.set()
                await self.go.wait()
            return left

        @self.hub.agent("buyer", may_call=["shop"])
        async def buyer(brief: Brief) -> list[int]:
            return [(await self._ask(brief, code)).unwrap() for code in brief.text.split()]

    async def _ask(self, brief: Brief, code: str) -> Response:
        response = await brief.delegate("shop", capability=code, objective=code)
        self.came.append(response)
        return response


async def test_a_kept_answer_is_not_given_in_a_run_that_changed_something_since() -> None:
    """Whoever buys and looks again sees what is left; others may still be told what was true a minute ago."""
    shop = Shop()
    async with shop.hub, asyncio.timeout(PATIENCE_S):
        assert (await shop.hub.ask("buyer", "LOOK", user="ann")).result == [3]
        assert (await shop.hub.ask("buyer", "LOOK BUY LOOK", user="bob")).result == [3, 2, 2]
        assert (await shop.hub.ask("buyer", "LOOK", user="cleo")).result == [2]
    assert [each.cache for each in shop.came] == ["miss", "hit", "none", "miss", "hit"]


async def test_nor_is_one_waited_for_that_began_before_the_change() -> None:
    shop = Shop()
    shop.slow = True
    async with shop.hub, asyncio.timeout(PATIENCE_S):
        first = asyncio.create_task(shop.hub.ask("buyer", "LOOK", user="ann"))
        await shop.looking.wait()
        assert (await shop.hub.ask("buyer", "BUY LOOK", user="bob")).result == [2, 2]
        shop.go.set()
        assert (await first).result == [3]
        assert (await shop.hub.ask("buyer", "BUY LOOK", user="bob")).result == [1, 1]
