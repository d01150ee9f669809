"""A tool's tree of agents under one budget."""

import asyncio

import pytest

from remit import Hub, Limits
from remit.protocol.records import Kind
from remit_guard.service import GuardService
from remit_guard.session import GuardedSession
from remit_guard.settings import GuardSettings, KindLimits
from remit_guard.tokens import TokenUse
from remit_guard.tool_use import GuardedUse, UseVerdict
from remit_testing.memory import MemoryStore
from waiting import eventually

SMALL = GuardSettings(tokens=1_000, reserve=100, depth=3, at_once=2, at_limit="stop")


def hub_for(settings: GuardSettings) -> Hub:
    limits = Limits(
        max_depth=settings.depth,
        max_fan_out=settings.at_once,
        root_tokens=settings.tokens,
        root_time_ms=settings.time_ms,
        delegation_time_ms=settings.time_ms,
        overrun="call",
    )
    return Hub(store=MemoryStore(), limits=limits, approver="inbox")


class Tool:
    """A coding tool that tells the guard what it does."""

    def __init__(self, settings: GuardSettings) -> None:
        self.hub = hub_for(settings)
        self.service = GuardService(self.hub, lambda _: settings)
        self.number = 0

    async def begin(self) -> GuardedSession:
        session = await self.service.session("claude-code", "s-1", user="ada", task="Fix the build")
        assert isinstance(session, GuardedSession)
        assert session.root.brief is not None, "it is open"
        return session

    async def ended(self, request: str) -> None:
        """Wait until the delegation of a sub-agent that has ended is settled."""
        records = self.hub.store.records

        async def is_settled() -> bool:
            results = [each for each in await records() if each.kind is Kind.RESULT]
            return len(results) == sum(each.kind is Kind.DELEGATION for each in await records())

        await eventually(is_settled)

    async def start(self, session: GuardedSession, parent: str = "", kind: str = "general-purpose") -> str:
        """Start a sub-agent; return its id, or why it may not start."""
        self.number += 1
        request, agent = f"toolu-{self.number}", f"a{self.number}"
        above = session.agents[parent] if parent else session.root
        refused = await self.service.spawn(session, above, request, kind, f"Task {self.number}", "Do it")
        if refused is not None:
            return refused
        assert session.bind(request, agent) is not None
        return agent


async def test_a_start_that_is_asked_for_twice_is_one() -> None:
    tool = Tool(SMALL)
    async with tool.hub as hub:
        session = await tool.begin()
        for _ in range(2):
            assert await tool.service.spawn(session, session.root, "toolu-1", "worker", "Task", "Do it") is None
        session.bind("toolu-1", "a1")
        session.end("a1", "done")
        run = session.run
        await tool.service.close("claude-code", "s-1", "built")
        assert len(await hub.delegations(run)) == 2


@pytest.mark.parametrize("change", ["edit", "command"])
async def test_the_same_task_is_refused_until_something_was_changed_in_between(change: str) -> None:
    """X5: what happened in between counts."""
    tool = Tool(SMALL)
    async with tool.hub:
        session = await tool.begin()

        async def run_tests(request: str) -> str | None:
            refused = await tool.service.spawn(session, session.root, request, "worker", "Run the tests", "All of them")
            if refused is None:
                session.bind(request, request)
                session.end(request, "two fail")
                await tool.ended(request)
            return refused

        assert await run_tests("one") is None
        assert str(await run_tests("two")).startswith("CYCLE_DETECTED")
        if change == "edit":
            use = GuardedUse(tool="Edit", arguments={"file_path": "shop.py"}, changes=True)
        else:
            use = GuardedUse(tool="Bash", arguments={"command": "make fix"}, command="make fix", changes=True)
        assert await session.permit(session.root, use) == UseVerdict()
        assert await run_tests("three") is None
        assert str(await run_tests("four")).startswith("CYCLE_DETECTED")
        await tool.service.close("claude-code", "s-1", "built")


async def test_an_agent_that_is_woken_is_not_charged_again() -> None:
    tool = Tool(SMALL)
    async with tool.hub:
        session = await tool.begin()
        one = await tool.start(session)
        session.count(session.agents[one], {"m1": TokenUse(input=100)})
        session.end(one, "done")
        assert await tool.service.spawn(session, session.root, "again", "worker", "Go on", "Go on") is None
        session.bind("again", one)
        session.count(session.agents[one], {"m1": TokenUse(input=100), "m2": TokenUse(input=50)})
        assert session.used == 150
        session.end(one, "done")
        await tool.service.close("claude-code", "s-1", "built")


async def test_a_tree_is_one_run_and_its_tokens_are_one_total() -> None:
    tool = Tool(SMALL)
    async with tool.hub as hub:
        session = await tool.begin()
        one = await tool.start(session)
        two = await tool.start(session, one)
        session.count(session.root, {"m1": TokenUse(input=10, output=1)})
        session.count(session.agents[two], {"m2": TokenUse(input=150, output=50, cached=999)})
        session.count(session.agents[two], {"m2": TokenUse(input=150, output=60, cached=999)})
        assert session.used == 221
        session.end(two, "deep")
        session.end(one, "done")
        run = session.run
        await tool.service.close("claude-code", "s-1", "built")
        await hub.store.flush()
        (known,) = await hub.store.runs(limit=1)
        delegations = await hub.delegations(run)
    assert known.response is not None
    assert (known.response.result, known.response.usage.total, known.response.usage.overrun) == ("built", 221, 0)
    assert [(each.target, each.status) for each in delegations][1:] == [("general-purpose", "success")] * 2


async def test_depth_and_fan_out_are_refused_with_a_sentence_for_the_model() -> None:
    tool = Tool(SMALL)
    async with tool.hub:
        session = await tool.begin()
        one = await tool.start(session)
        two = await tool.start(session, one)
        three = await tool.start(session, two)
        assert "MAX_DEPTH_EXCEEDED" in await tool.start(session, three)
        await tool.start(session)
        assert "FAN_OUT_EXCEEDED" in await tool.start(session)
        session.end(three, "")
        session.end(two, "")
        session.end(one, "")
        await eventually(lambda: len(asyncio.all_tasks()) > 0)
        await tool.service.close("claude-code", "s-1", "")


async def test_a_burst_never_starts_more_than_the_tokens_allow() -> None:
    tool = Tool(GuardSettings(tokens=1_000, reserve=300, at_once=6, at_limit="stop"))
    async with tool.hub:
        session = await tool.begin()
        replies = await asyncio.gather(*(tool.start(session) for _ in range(6)))
        started = [each for each in replies if each in session.agents]
        assert len(started) == 4, "the last one gets what is left"
        for each in started:
            session.count(session.agents[each], {"m": TokenUse(input=250)})
        assert "TOKEN_BUDGET_EXCEEDED" in await tool.start(session)
        assert session.used == 1_000
        await tool.service.close("claude-code", "s-1", "")


async def test_who_spends_the_last_tokens_is_stopped_and_nobody_else() -> None:
    tool = Tool(SMALL)
    async with tool.hub:
        session = await tool.begin()
        one, two = await tool.start(session), await tool.start(session)
        session.count(session.agents[one], {"m": TokenUse(input=901)})
        assert "The tokens of this session are spent." in session.agents[one].stopped
        assert session.agents[two].stopped == ""
        assert "are spent" in await tool.start(session, one)
        await tool.service.close("claude-code", "s-1", "")


async def test_a_kind_with_a_limit_of_its_own_is_stopped_there() -> None:
    tool = Tool(GuardSettings(tokens=1_000, reserve=100, kinds={"Explore": KindLimits(tokens=200)}, at_limit="stop"))
    async with tool.hub:
        session = await tool.begin()
        one = await tool.start(session, kind="Explore")
        session.count(session.agents[one], {"m": TokenUse(input=199)})
        assert session.agents[one].stopped == ""
        session.count(session.agents[one], {"n": TokenUse(input=2)})
        assert session.agents[one].stopped
        assert await tool.start(session) in session.agents, "the others go on"
        await tool.service.close("claude-code", "s-1", "")


@pytest.mark.parametrize("agreed", [True, False])
async def test_near_the_limit_and_at_it_a_person_is_asked(agreed: bool) -> None:
    tool = Tool(GuardSettings(tokens=1_000, reserve=100, at_once=6))
    async with tool.hub as hub:
        session = await tool.begin()

        async def answered(share: str) -> str:
            asking = asyncio.create_task(tool.start(session))
            await eventually(lambda: asking.done() or True)
            while not (questions := await hub.pending()):
                assert not asking.done()
                await asyncio.sleep(0.01)
            assert share in questions[0].text
            await hub.decide(questions[0].id, agreed=agreed, by="ada")
            return await asking

        session.count(session.root, {"m1": TokenUse(input=800)})
        near = await answered("800 of 1,000")
        assert (near in session.agents) == agreed
        if agreed:
            assert await tool.start(session) in session.agents, "agreed to up to the limit"
            at = await answered("800 of 1,000")
            assert at in session.agents
        await tool.service.close("claude-code", "s-1", "")


@pytest.mark.parametrize("agreed", [True, False])
async def test_near_the_limit_one_answer_is_for_all_that_ask_at_once(agreed: bool) -> None:
    tool = Tool(GuardSettings(tokens=10_000, reserve=100, at_once=6))
    async with tool.hub as hub:
        session = await tool.begin()
        session.count(session.root, {"m1": TokenUse(input=8_000)})
        burst = [asyncio.create_task(tool.start(session)) for _ in range(3)]
        await eventually(lambda: len(session.asking) == 3)
        while not (questions := await hub.pending()):
            await asyncio.sleep(0.01)
        assert len(questions) == 1
        await hub.decide(questions[0].id, agreed=agreed, by="ada")
        assert [await each in session.agents for each in burst] == [agreed] * 3
        assert session.asking == set()
        await tool.service.close("claude-code", "s-1", "")


async def test_a_limit_that_only_warns_stops_nothing() -> None:
    tool = Tool(GuardSettings(tokens=1_000, reserve=100, at_limit="warn"))
    async with tool.hub:
        session = await tool.begin()
        session.count(session.root, {"m1": TokenUse(input=5_000)})
        assert session.root.stopped == ""
        assert await tool.start(session) in session.agents
        await tool.service.close("claude-code", "s-1", "")


async def test_an_approval_counts_also_if_more_was_used_than_the_limit() -> None:
    tool = Tool(GuardSettings(tokens=1_000, reserve=100))
    async with tool.hub as hub:
        session = await tool.begin()
        session.count(session.root, {"m1": TokenUse(input=5_000)})
        asking = asyncio.create_task(tool.start(session))
        while not (questions := await hub.pending()):
            assert not asking.done()
            await asyncio.sleep(0.01)
        await hub.decide(questions[0].id, agreed=True, by="ada")
        assert await asking in session.agents
        await tool.service.close("claude-code", "s-1", "")


async def test_hooks_that_come_at_once_open_one_session_and_wait_for_it() -> None:
    tool = Tool(SMALL)
    async with tool.hub:
        first, second = await asyncio.gather(tool.begin(), tool.begin())
        assert first is second
        await tool.service.close("claude-code", "s-1", "")


async def test_a_session_whose_past_cannot_be_read_is_opened_anew_by_the_next_event() -> None:
    """Otherwise all that it had spent would not count."""
    tries = list[str]()

    async def take_up(session: GuardedSession) -> None:
        tries.append(session.name)
        if len(tries) == 1:
            raise OSError("the disk is away")

    async with hub_for(SMALL) as hub:
        service = GuardService(hub, lambda _: SMALL)
        with pytest.raises(OSError, match="the disk is away"):
            await service.session("codex", "s-1", user="ada", task="Fix", take_up=take_up)
        assert service.sessions == {}
        await service.session("codex", "s-1", user="ada", task="Fix", take_up=take_up)
        assert tries == ["s-1", "s-1"]
        await service.close("codex", "s-1", "over")
