"""What a caller can do when not all was done (K8, K10): try again, go on with the part, fall back, tell the user."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from remit import (
    Answer,
    Brief,
    Capability,
    Code,
    Hub,
    Notice,
    RemitError,
    Response,
    Status,
    Step,
    Workflow,
    fault,
)
from remit_orchestrator import add_workflow
from remit_testing import ManualClock
from waiting import eventually

MakeHub = Callable[..., Hub]

MAIL = "ann@example.org"


class Trip:
    """A workflow that books, looks up, and writes; what each step does is up to the test."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.hangs: set[str] = set()

        @hub.agent("office", capabilities=[Capability(code="DO_BOOK"), Capability(code="DO_LOOK", read_only=True)])
        async def office(brief: Brief) -> Answer:
            what = brief.objective
            self.done.append(what)
            if what in self.hangs:
                await asyncio.Event().wait()
            if what in self.fails:
                raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, f"{what} is closed"))
            brief.spend(prompt=100)
            return Answer(f"{what} for {brief.text}", confidence=0.9)

        steps = (
            Step(name="book", agent="office", capability="DO_BOOK", objective="book", input="{input.to}"),
            Step(name="look", agent="office", capability="DO_LOOK", objective="look", input="{book}"),
            Step(name="write", agent="office", capability="DO_BOOK", objective="write", input="{look}"),
        )
        add_workflow(hub, Workflow(name="trip", steps=steps))

    async def ask(self, **options: Any) -> Response:
        return await self.hub.ask("trip", "Plan it", user=options.pop("user", "u"), input={"to": MAIL}, **options)


# ── try again ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_that_timed_out_is_tried_again_with_more_time_and_does_nothing_twice(
    make_hub: MakeHub,
) -> None:
    """K10: retry with a longer time-out; K8: completed steps are tracked."""
    clock = ManualClock()
    hub = make_hub(clock=clock)
    trip = Trip(hub)
    trip.hangs = {"look"}
    async with hub:
        asking = asyncio.create_task(trip.ask(deadline_ms=1_500))
        await eventually(lambda: "look" in trip.done)
        clock.advance(1.45)  # the step's time is up, which is less than the workflow's
        first = await asking
        trip.hangs = set()
        again = await trip.ask(deadline_ms=60_000, retry_of=first.id)
        notices = [each.body.text for each in await hub.store.records(run=again.run) if isinstance(each.body, Notice)]
    assert first.status is Status.PARTIAL
    assert (first.finished, first.unfinished) == (("Book",), ("Look", "Write"))
    assert (again.status, again.finished) == (Status.SUCCESS, ("Book", "Look", "Write"))
    assert trip.done == ["book", "look", "look", "write"]
    assert f"write for look for book for {MAIL}" in str(again.result), "what was redacted is whole for its user"
    assert again.usage.total == 200, "what the first run took is counted there"
    assert notices == ["answered from the journal: it was done in the run that this one retries"]


async def test_what_was_done_is_known_after_a_restart_too(make_hub: MakeHub) -> None:
    """K10."""
    trip = Trip(make_hub())
    trip.fails = {"write"}
    async with trip.hub:
        first = await trip.ask(request_id="mine")
    assert first.status is Status.PARTIAL
    trip = Trip(make_hub())
    async with trip.hub:
        again = await trip.ask(retry_of="mine")
    assert (again.status, trip.done) == (Status.SUCCESS, ["write"])


async def test_a_retry_that_is_cut_off_remembers_what_it_took_over(make_hub: MakeHub) -> None:
    """K8, K10: closed in the middle, it goes on in the next hub, though the run before it is forgotten by then."""
    trip = Trip(make_hub())
    trip.fails = {"look"}
    async with trip.hub:
        first = await trip.ask()
        trip.fails, trip.hangs = set(), {"look"}
        retrying = asyncio.create_task(trip.ask(retry_of=first.id, request_id="second"))
        while trip.done.count("look") < 2:
            await asyncio.sleep(0)
    await retrying
    trip = Trip(make_hub())
    async with trip.hub:
        await trip.hub.store.sweep(max_attempts=3, keep_ms=-1)
        again = await trip.ask(retry_of=first.id, request_id="second")
    assert (again.status, trip.done) == (Status.SUCCESS, ["look", "write"])


async def test_only_the_same_request_of_the_same_user_is_spared_its_steps(hub: Hub) -> None:
    """X10: nobody is given what was done for another, nor for something else."""
    trip = Trip(hub)
    trip.fails = {"write"}
    async with hub:
        first = await trip.ask()
        trip.done.clear()
        await trip.ask(retry_of=first.id, user="other")
        await hub.ask("trip", "Plan it", user="u", input={"to": "elsewhere"}, retry_of=first.id)
        await trip.ask(retry_of="nothing")
    assert trip.done == ["book", "look", "write"] * 3


async def test_a_part_is_tried_again_and_a_success_is_not(hub: Hub) -> None:
    """K10: what was only half done may be whole this time."""
    done: list[str] = []

    @hub.agent("a")
    async def a(brief: Brief) -> Answer:
        done.append(brief.objective)
        half = brief.objective == "half" and done.count("half") == 1
        return Answer(brief.objective, unfinished=("the rest",) if half else ())

    add_workflow(
        hub,
        Workflow(
            name="w", steps=(Step(name="x", agent="a", objective="half"), Step(name="y", agent="a", objective="all"))
        ),
    )
    async with hub:
        first = await hub.ask("w", "go", user="u")
        again = await hub.ask("w", "go", user="u", retry_of=first.id)
    assert (first.status, again.status) == (Status.PARTIAL, Status.SUCCESS)
    assert sorted(done) == ["all", "half", "half"]


async def test_a_resumable_agent_does_not_use_a_tool_twice_that_cannot_be_undone(hub: Hub) -> None:
    """K10: by place and content, as after a restart; what is asked for otherwise is done."""
    charged: list[int] = []

    @hub.tool()
    def charge(cents: int) -> str:
        charged.append(cents)
        return f"receipt {len(charged)}"

    @hub.agent("mailer")
    async def mailer(brief: Brief) -> str:
        if len(charged) == 1:
            charged.append(0)
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "the post is closed"))
        return f"sent {brief.text}"

    @hub.agent("shop", tools=["charge"], may_call=["mailer"], resumable=True)
    async def shop(brief: Brief) -> Answer:
        receipt = await brief.use("charge", cents=5)
        sent = await brief.delegate("mailer", objective="send", input=receipt)
        if not sent.ok:
            return Answer(receipt, unfinished=("the mail",))
        return Answer(sent.result)

    async with hub:
        first = await hub.ask("shop", "Sell", user="u")
        again = await hub.ask("shop", "Sell", user="u", retry_of=first.id)
    assert (first.status, first.result) == (Status.PARTIAL, "receipt 1")
    assert (again.status, again.result) == (Status.SUCCESS, "sent receipt 1")
    assert charged == [5, 0]


async def test_an_agent_asks_again_with_more_time_where_the_first_was_too_short(hub: Hub) -> None:
    """K10, at the level of an agent: the second call is no cycle, has its own time, and says what it tries again."""
    given: list[int] = []

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        given.append(brief.remit.time_ms)
        brief.progress("half", partial=Answer("half of it", finished=("one",), unfinished=("two",)))
        if len(given) == 1:
            await asyncio.Event().wait()
        return f"all of it, after {brief.request.retry_of is not None}"

    @hub.agent("boss", may_call=["slow"])
    async def boss(brief: Brief) -> Any:
        first = await brief.delegate("slow", objective="work", deadline_ms=60)
        again = await brief.delegate("slow", objective="work", deadline_ms=5_000, retry_of=first.id)
        return [first.status, first.result, first.finished, first.unfinished, again.status, again.result]

    async with hub:
        response = await hub.ask("boss", "go", user="u")
    assert response.result == ["timeout", "half of it", ["one"], ["two"], "success", "all of it, after True"]
    assert given == [60, 5_000]


async def test_an_agent_that_asks_a_workflow_again_has_nothing_done_twice(hub: Hub) -> None:
    """K8, K10: as far as its own steps are kept: if the agent that the user asked is resumable."""
    trip = Trip(hub)
    trip.fails = {"look"}

    @hub.agent("boss", may_call=["trip"], resumable=True)
    async def boss(brief: Brief) -> Any:
        first = await brief.delegate("trip", objective="Plan", input={"to": MAIL})
        trip.fails = set()
        again = await brief.delegate("trip", objective="Plan", input={"to": MAIL}, retry_of=first.id)
        other = await brief.delegate("trip", objective="More", input={"to": "elsewhere"}, retry_of=first.id)
        return [first.status, again.status, other.status]

    async with hub:
        response = await hub.ask("boss", "go", user="u", max_tokens=50_000)
    assert response.result == ["partial", "success", "success"]
    assert trip.done == ["book", "look", "look", "write", "book", "look", "write"]


# ── go on, fall back, tell ────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_goes_on_with_the_part_and_tells_what_is_missing(hub: Hub) -> None:
    """K10: proceed with partial results, and inform the user of the limitation."""

    @hub.agent("research")
    async def research(brief: Brief) -> str:
        brief.progress("two of three", partial=Answer([4, 5], finished=("A", "B"), unfinished=("C",)))
        await asyncio.Event().wait()
        return "never"

    @hub.agent("analyst", may_call=["research"])
    async def analyst(brief: Brief) -> Answer:
        reply = await brief.delegate("research", objective="find", deadline_ms=60)
        assert reply.status is Status.TIMEOUT
        return Answer(
            {"average": sum(reply.result) / len(reply.result)},
            confidence=0.4,
            unfinished=reply.unfinished,
            warnings=("C did not answer in time and is left out",),
        )

    async with hub:
        response = await hub.ask("analyst", "go", user="u")
    assert (response.status, response.result, response.unfinished) == (Status.PARTIAL, {"average": 4.5}, ("C",))
    assert response.warnings == ("C did not answer in time and is left out",)


@pytest.mark.parametrize("by", ["agent", "capability"])
async def test_an_agent_falls_back_on_another(hub: Hub, by: str) -> None:
    """K10: by its own choice, or on whoever else offers the same."""
    rate = Capability(code="RATE", read_only=True)

    @hub.agent("exchange", capabilities=[rate])
    async def exchange(brief: Brief) -> str:
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "closed"))

    @hub.agent("archive", capabilities=[rate])
    async def archive(brief: Brief) -> str:
        return "yesterday's"

    @hub.agent("clerk", may_call=["*"])
    async def clerk(brief: Brief) -> Answer:
        if by == "capability":
            return Answer((await brief.delegate(capability="RATE", input=1)).unwrap())
        reply = await brief.delegate("exchange", objective="rate")
        assert reply.fault is not None
        assert reply.fault.recoverable
        other = await brief.delegate("archive", objective="rate", reason=f"after {reply.fault.code}")
        return Answer(other.result, warnings=("the exchange is closed",))

    async with hub:
        assert (await hub.ask("clerk", "go", user="u")).result == "yesterday's"


async def test_a_failed_call_returns_at_once_with_its_code_and_is_never_silent(hub: Hub) -> None:
    """K10: status first; whoever uses a result without looking gets the fault."""

    @hub.agent("broken")
    async def broken(brief: Brief) -> str:
        raise ValueError("no")

    async with hub:
        response = await hub.ask("broken", "go", user="u")
    assert (response.ok, response.result) == (False, None)
    with pytest.raises(RemitError, match="DELEGATION_FAILED"):
        response.unwrap()
