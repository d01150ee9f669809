"""One answer of several agents: by which strategy, who is cancelled when it is known, and what is said of conflicts."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import isolated_agents as agents
from remit import (
    ALLOW,
    Answer,
    Ask,
    Blend,
    Brief,
    Call,
    Capability,
    Code,
    Combined,
    Conflict,
    Facts,
    Hub,
    Kind,
    Limits,
    Notice,
    Rate,
    Refusal,
    ReportedValue,
    Request,
    Response,
    Source,
    Status,
    Strategy,
    Verdict,
)
from remit.runtime.delegation import combine as combining
from remit.words.components import Component, Findings
from remit_orchestrator.text.conflicts import find
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]

# Generous, because a machine that runs every test at once is slow.


class Team:
    """A boss who combines what others say; it keeps what it was given, and what was left of its tokens."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.given: list[Combined] = []
        self.left: list[int] = []
        self.cancelled: list[str] = []
        self.ready = asyncio.Semaphore(0)

    def says(self, name: str, result: object, confidence: float | None = None, **options: Any) -> None:
        async def agent(brief: Brief) -> Answer:
            return Answer(result, confidence=confidence, **options)

        self.hub.agent(name)(agent)

    def fails(self, name: str) -> None:
        async def agent(brief: Brief) -> str:
            raise ValueError(f"{name} is out of order")

        self.hub.agent(name)(agent)

    def hangs(self, name: str, spends: int = 0) -> None:
        """Add an agent that spends some tokens, and then does nothing until it is cancelled."""

        async def agent(brief: Brief) -> str:
            if spends:
                brief.spend(prompt=spends)
            self.ready.release()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            return "never"

        self.hub.agent(name)(agent)

    def waits(self, name: str, answer: Answer, others: int) -> None:
        """Add an agent that answers when so many others are at work."""

        async def agent(brief: Brief) -> Answer:
            for _ in range(others):
                await self.ready.acquire()
            return answer

        self.hub.agent(name)(agent)

    def combines(self, *targets: str | Call, **options: Any) -> None:
        calls = [each if isinstance(each, Call) else Call(target=each, objective="look") for each in targets]

        async def boss(brief: Brief) -> Answer:
            combined = await brief.combine(calls, **options)
            self.given.append(combined)
            self.left.append(brief.tokens_left())
            return combined.answer or Answer("nothing")

        self.hub.agent("boss", may_call=["*"])(boss)

    async def ask(self, **options: Any) -> Response:
        async with asyncio.timeout(PATIENCE_S):
            return await self.hub.ask("boss", "When does it leave?", user="u-1", **options)

    async def combined(self, **options: Any) -> Combined:
        """Open the hub, ask the boss, and return what it was given."""
        async with self.hub:
            response = await self.ask(**options)
        assert response.fault is None, response.fault
        return self.given[0]


@pytest.fixture
def team() -> Team:
    return Team(Hub(store=MemoryStore()))


def codes(combined: Combined) -> list[Code | None]:
    return [response.fault.code if response.fault else None for response in combined.responses]


# ── the strategies ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("strategy", "result", "confidence", "count"),
    [
        (Strategy.MERGE_ALL, 'By train.\n\n{"by":"bus"}\n\nBy train.', 0.5, 3),
        (Strategy.AI_BLEND, 'By train.\n\n{"by":"bus"}\n\nBy train.', 0.5, 3),
        (Strategy.DEFAULT, 'By train.\n\n{"by":"bus"}', 0.5, 3),
        (Strategy.BEST_CONFIDENCE, {"by": "bus"}, 0.75, 3),
    ],
)
async def test_each_strategy_makes_one_answer_of_all(
    team: Team, strategy: Strategy, result: object, confidence: float, count: int
) -> None:
    """C5: merge-all, ai-blend without a model, default, best-confidence; the metadata says which, and of how many."""
    team.says("one", "By train.", 0.25, sources=(Source(owner_scope="public", source_id="a"),))
    team.says("two", {"by": "bus"}, 0.75, sources=(Source(owner_scope="public", source_id="b"),))
    team.says("three", "By train.", 0.5, sources=(Source(owner_scope="public", source_id="a"),))
    team.combines("one", "two", "three", strategy=strategy)
    combined = await team.combined()
    assert combined.answer is not None
    assert (combined.answer.result, combined.answer.confidence) == (result, confidence)
    metadata = {name: combined.answer.metadata[name] for name in ("aggregated", "responseCount", "strategy")}
    named = Strategy.MERGE_ALL if strategy is Strategy.AI_BLEND else strategy
    assert metadata == {"aggregated": True, "responseCount": count, "strategy": named}
    chosen = strategy is Strategy.BEST_CONFIDENCE
    assert [source.source_id for source in combined.answer.sources] == (["b"] if chosen else ["a", "b"])
    assert [each.target for each in combined.used] == (["two"] if chosen else ["one", "two", "three"])
    assert [each.target for each in combined.responses] == ["one", "two", "three"]


async def test_what_all_are_asked_is_said_once(team: Team) -> None:
    seen: dict[str, str] = {}

    async def listener(brief: Brief) -> None:
        seen[brief.request.target] = brief.objective

    for name in ("one", "two"):
        team.hub.agent(name)(listener)
    team.combines(Call(target="one"), Call(target="two", objective="its own"), about="Find a train")
    await team.combined()
    assert seen == {"one": "Find a train", "two": "its own"}


async def test_nobody_asked_gives_neither_an_answer_nor_a_fault(team: Team) -> None:
    team.combines()
    combined = await team.combined()
    assert (combined, combined.fault, combined.used) == (Combined(), None, ())


# ── told as one by a model ────────────────────────────────────────────────────────────────────────────────────────────


async def blended(team: Team, blend: Callable[[Blend], Awaitable[str]], **options: Any) -> Answer:
    team.says("one", {"price": 40}, 0.9)
    team.says("two", "It leaves at 9:40.", 0.6)
    team.combines(Call(target="one"), Call(target="two", objective="when"), strategy="ai-blend", blend=blend, **options)
    combined = await team.combined()
    assert combined.answer is not None
    return combined.answer


async def test_a_model_tells_the_results_as_one(team: Team) -> None:
    """C5: ai-blend. The model is told what was asked, and not who said what."""
    prompts: list[str] = []

    async def blend(material: Blend) -> str:
        prompts.append(material.prompt)
        return " It leaves at 9:40. The price is 40. "

    answer = await blended(team, blend)
    assert (answer.result, answer.metadata["strategy"]) == ("It leaves at 9:40. The price is 40.", "ai-blend")
    (prompt,) = prompts
    assert "When does it leave?" in prompt
    assert "Result 2, when (MEDIUM confidence)" in prompt
    assert "one" not in prompt.split("Request:")[1].split()


async def test_a_model_that_says_what_nobody_said_is_not_believed(team: Team) -> None:
    """C5: its text is taken only if it adds nothing; else it is as merge-all."""

    async def blend(material: Blend) -> str:
        return "It leaves at 10:40 and costs 40."

    answer = await blended(team, blend, about="Find a train")
    assert answer.result == '{"price":40}\n\nIt leaves at 9:40.'
    assert (answer.metadata["strategy"], answer.metadata["rejected"]) == ("merge-all", ["10:40"])


@pytest.mark.parametrize("fails", [True, False], ids=["raises", "gives no text"])
async def test_a_model_that_fails_does_not_lose_what_was_found(team: Team, fails: bool) -> None:
    async def blend(material: Blend) -> Any:
        if fails:
            raise ConnectionError("secret key 123")
        return 7

    answer = await blended(team, blend)
    assert answer.result == '{"price":40}\n\nIt leaves at 9:40.'
    assert answer.warnings == ("The results could not be told as one text, so each is given for itself.",)


async def test_a_model_is_asked_by_its_own_strategy_alone_and_only_if_there_is_something_to_tell(team: Team) -> None:
    async def blend(material: Blend) -> str:
        raise AssertionError

    team.fails("one")
    team.combines("one", strategy="ai-blend", blend=blend)
    assert (await team.combined()).answer is None
    other = Team(Hub(store=MemoryStore()))
    other.says("one", "x")
    other.combines("one", strategy="merge-all", blend=blend)
    answer = (await other.combined()).answer
    assert answer is not None
    assert answer.warnings == ()


# ── cancelling the rest ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("strategy", "answer"),
    [("first-success", Answer("9:40", confidence=0.3)), ("best-confidence", Answer("9:40", confidence=1.0))],
)
async def test_once_the_answer_is_known_the_rest_is_really_cancelled(team: Team, strategy: str, answer: Answer) -> None:
    """C5: their frames end, what they did not spend comes back, and the record says why they were cancelled."""
    team.hangs("slow", spends=100)
    team.waits("quick", answer, others=2)
    team.hangs("slower")
    team.combines(*(Call(target=name, max_tokens=5_000) for name in ("slow", "quick", "slower")), strategy=strategy)
    async with team.hub as hub:
        response = await team.ask(max_tokens=20_000)
        await hub.store.flush()
        records = await hub.store.records(run=response.run)
    (combined,) = team.given
    assert (response.result, [each.target for each in combined.used]) == ("9:40", ["quick"])
    assert sorted(team.cancelled) == ["slow", "slower"]
    assert team.left == [19_900]
    assert response.usage.total == 100
    assert [each.status for each in combined.responses] == [Status.CANCELLED, Status.SUCCESS, Status.CANCELLED]
    kept = {
        each.body.target: each.body for each in records if each.kind is Kind.RESULT and isinstance(each.body, Response)
    }
    assert {name: each.fault.message for name, each in kept.items() if each.fault} == {
        "slow": "slow was cancelled: another answered first",
        "slower": "slower was cancelled: another answered first",
    }
    assert combined.answer is not None
    assert combined.answer.metadata["responseCount"] == 1


async def test_what_is_below_a_cancelled_one_is_cancelled_with_it(team: Team) -> None:
    team.hangs("leaf")
    team.waits("quick", Answer("done"), others=1)

    @team.hub.agent("branch", may_call=["leaf"])
    async def branch(brief: Brief) -> str:
        return (await brief.delegate("leaf", objective="hang")).unwrap()

    team.combines("branch", "quick", strategy="first-success")
    combined = await team.combined()
    assert (team.cancelled, codes(combined)) == (["leaf"], [Code.CANCELLED, None])


async def test_a_loser_that_does_not_stop_is_abandoned_after_the_grace_time() -> None:
    """Decision 11: it cannot keep its caller from the answer, and what it says later is dropped."""
    clock = ManualClock()
    team = Team(Hub(store=MemoryStore(), clock=clock, limits=Limits(grace_ms=500)))
    cancelled, released = asyncio.Event(), asyncio.Event()

    @team.hub.agent("stubborn")
    async def stubborn(brief: Brief) -> str:
        team.ready.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
        await released.wait()
        return "too late"

    team.waits("quick", Answer("done"), others=1)
    team.combines("stubborn", "quick", strategy="first-success")
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask())
        await cancelled.wait()
        clock.advance(1)
        response = await asking
        released.set()
        await hub.store.flush()
        records = await hub.store.records(run=response.run)
    assert (response.result, codes(team.given[0])) == ("done", [Code.CANCELLED, None])
    assert "stubborn did not stop when it was cancelled, and was abandoned" in [
        record.body.text for record in records if isinstance(record.body, Notice)
    ]


async def test_a_caller_that_is_stopped_while_the_rest_is_called_off_stops(team: Team) -> None:
    """Decision 8: whichever moment it is."""
    cancelled, released = asyncio.Event(), asyncio.Event()

    @team.hub.agent("slow")
    async def slow(brief: Brief) -> str:
        team.ready.release()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await released.wait()
        return "never"

    team.waits("quick", Answer("done"), others=1)
    team.combines("slow", "quick", strategy="first-success")
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask(request_id="r-1"))
        await cancelled.wait()
        assert hub.cancel("r-1")
        await asyncio.sleep(0)
        released.set()
        response = await asking
    assert (response.status, team.given) == (Status.CANCELLED, [])


async def test_who_was_cancelled_may_be_asked_again(team: Team) -> None:
    """A loser has not failed: it is no cycle to ask it the same once more, and no failure of its own."""
    objectives: list[str] = []

    @team.hub.agent("late")
    async def late(brief: Brief) -> str:
        objectives.append(brief.objective)
        if len(objectives) == 1:
            team.ready.release()
            await asyncio.Event().wait()
        return "here"

    team.waits("quick", Answer("done"), others=1)

    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        calls = [Call(target=name, objective="look") for name in ("late", "quick")]
        combined = await brief.combine(calls, strategy="first-success")
        again = await brief.delegate("late", objective="look")
        return [combined.answer and combined.answer.result, again.result]

    async with team.hub:
        assert (await team.ask()).result == ["done", "here"]


async def test_a_call_that_waits_for_a_person_is_withdrawn_once_another_has_answered(make_hub: MakeHub) -> None:
    """Decision 4: whoever needs no yes is not kept waiting, and nobody is asked for what is not wanted any more."""

    def ask_first(request: Request, facts: Facts) -> Verdict:
        return Ask("Pay?") if request.target == "paid" and "Pay?" not in facts.approved else ALLOW

    team = Team(make_hub(guards=[ask_first], approver="inbox"))
    question_seen = asyncio.Event()
    team.says("paid", "never")

    @team.hub.agent("free")
    async def free(brief: Brief) -> str:
        while not await team.hub.pending():
            await asyncio.sleep(0)
        question_seen.set()
        return "for nothing"

    team.combines("paid", "free", strategy="first-success")
    async with team.hub as hub:
        response = await team.ask()
        assert await hub.pending() == []
        records = await hub.store.records(run=response.run)
    assert question_seen.is_set()
    (combined,) = team.given
    assert [(each.target, each.status) for each in combined.responses] == [
        ("paid", Status.REFUSED),
        ("free", Status.SUCCESS),
    ]
    (refusal,) = [each.body for each in records if isinstance(each.body, Refusal)]
    (question,) = [each.body for each in records if each.kind is Kind.APPROVAL]
    assert refusal.response == combined.responses[0]
    assert refusal.response.fault is not None
    assert refusal.response.fault.message == "paid was not asked any more: another answered first"
    assert refusal.request.id == getattr(question, "delegation", None)


async def test_another_that_is_asked_instead_of_one_that_failed_is_cancelled_too(team: Team) -> None:
    """C12: of a call by capability, whoever is at work on it when the answer is known."""
    look = Capability(code="LOOK", read_only=True)
    failed: list[str] = []

    async def offers(brief: Brief) -> str:
        if not failed:
            failed.append(brief.request.target)
            raise ValueError("no")
        team.ready.release()
        try:
            await asyncio.Event().wait()
        finally:
            team.cancelled.append(brief.request.target)
        return "never"

    for name in ("one", "two"):
        team.hub.agent(name, capabilities=[look])(offers)
    team.waits("quick", Answer("done"), others=1)
    team.combines(Call(capability="LOOK"), "quick", strategy="first-success")
    combined = await team.combined()
    assert sorted(failed + team.cancelled) == ["one", "two"]
    assert codes(combined) == [Code.CANCELLED, None]


async def test_what_was_asked_beside_one_that_takes_long_is_cancelled_with_it() -> None:
    """C12: a call that is hedged is two delegations, and both are called off."""
    clock = ManualClock()
    team = Team(Hub(store=MemoryStore(), clock=clock))
    look = Capability(code="LOOK", read_only=True, hedge_ms=100)

    async def offers(brief: Brief) -> str:
        team.ready.release()
        try:
            await asyncio.Event().wait()
        finally:
            team.cancelled.append(brief.request.target)
        return "never"

    for name in ("one", "two"):
        team.hub.agent(name, capabilities=[look])(offers)

    @team.hub.agent("quick")
    async def quick(brief: Brief) -> str:
        await team.ready.acquire()
        clock.advance(0.2)
        await team.ready.acquire()
        return "done"

    team.combines(Call(capability="LOOK", objective="look"), "quick", strategy="first-success")
    async with team.hub as hub:
        response = await team.ask()
        records = await hub.store.records(run=response.run)
    assert (response.result, sorted(team.cancelled)) == ("done", ["one", "two"])
    ends = [record.body for record in records if record.kind is Kind.RESULT and isinstance(record.body, Response)]
    assert {end.target: end.fault.message for end in ends if end.fault} == {
        name: f"{name} was cancelled: another answered first" for name in ("one", "two")
    }
    assert codes(team.given[0]) == [Code.CANCELLED, None]


async def test_where_nobody_else_takes_it_on_what_went_before_stands(team: Team) -> None:
    look = Capability(code="LOOK", read_only=True)

    async def breaks(brief: Brief) -> str:
        raise ValueError("no")

    async def looks(brief: Brief) -> str:
        return "found"

    team.hub.agent("one", capabilities=[look])(breaks)
    team.hub.agent("two", capabilities=[look], rate=Rate(calls=1, seconds=3_600))(looks)

    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[object]:
        used_up = await brief.delegate("two", objective="once")
        combined = await brief.combine([Call(capability="LOOK", objective="look")])
        return [used_up.result, combined.fault and combined.fault.code]

    async with team.hub:
        assert (await team.ask()).result == ["found", Code.DELEGATION_FAILED]


async def test_a_caller_that_is_stopped_takes_all_down_with_it(team: Team) -> None:
    """Decision 8: cancellation reaches those that are combined as all others."""
    team.hangs("one")
    team.hangs("two")
    team.combines("one", "two")
    async with team.hub as hub:
        asking = asyncio.create_task(team.ask(request_id="r-1"))
        await team.ready.acquire()
        await team.ready.acquire()
        assert hub.cancel("r-1")
        response = await asking
    assert (response.status, sorted(team.cancelled), team.given) == (Status.CANCELLED, ["one", "two"], [])


async def test_a_caller_that_gives_up_waiting_works_on(team: Team) -> None:
    team.hangs("one", spends=50)

    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> int:
        work = asyncio.ensure_future(brief.combine([Call(target="one")]))
        await team.ready.acquire()
        work.cancel()
        await asyncio.wait({work})
        return brief.tokens_left()

    async with team.hub:
        response = await team.ask(max_tokens=1_000)
    assert (response.result, team.cancelled) == (950, ["one"])


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_has_its_own_time() -> None:
    """C11: one that is too late is missing, and takes nobody down."""
    clock = ManualClock()
    team = Team(Hub(store=MemoryStore(), clock=clock))
    team.hangs("slow")

    @team.hub.agent("quick")
    async def quick(brief: Brief) -> str:
        await team.ready.acquire()
        clock.advance(2)
        return "in time"

    team.combines(Call(target="slow", deadline_ms=1_000), Call(target="quick", deadline_ms=10_000))
    combined = await team.combined()
    assert codes(combined) == [Code.TIMEOUT, None]
    assert combined.answer is not None
    assert (combined.answer.result, combined.answer.unfinished, combined.fault) == ("in time", ("slow",), None)


@pytest.mark.parametrize("strategy", Strategy)
async def test_where_all_fail_there_is_no_answer_but_the_first_fault(team: Team, strategy: str) -> None:
    """C5: all-failed gives the first error; who combines never gets an exception for it."""
    team.fails("one")
    team.combines("nobody", "one", strategy=strategy)
    combined = await team.combined()
    assert combined.answer is None
    assert codes(combined) == [Code.AGENT_NOT_FOUND, Code.DELEGATION_FAILED]
    assert combined.fault == combined.responses[0].fault
    assert (combined.conflicts, combined.used) == ((), ())


async def test_more_than_the_limit_are_refused_whole_before_any_starts(team: Team) -> None:
    """X4: the same rule as for a fan-out."""
    for name in ("a", "b", "c", "d"):
        team.says(name, name)
    team.combines("a", "b", "c", "d", strategy="first-success")
    async with team.hub as hub:
        response = await team.ask()
        delegations = await hub.delegations(response.run)
    (combined,) = team.given
    assert codes(combined) == [Code.FAN_OUT_EXCEEDED] * 4
    assert combined.fault is not None
    assert combined.fault.code is Code.FAN_OUT_EXCEEDED
    assert [(each.target, each.status) for each in delegations][1:] == [(each, Status.REFUSED) for each in "abcd"]


async def test_who_does_not_ask_for_tokens_gets_a_fair_share(team: Team) -> None:
    seen: dict[str, int] = {}

    async def counter(brief: Brief) -> None:
        seen[brief.request.target] = brief.remit.tokens

    for name in ("a", "b", "c"):
        team.hub.agent(name)(counter)
    team.combines("a", Call(target="b", max_tokens=400), "c")
    await team.combined(max_tokens=1_000)
    assert seen == {"a": 250, "b": 400, "c": 175}


async def test_a_slot_is_free_while_its_holder_waits_for_several(team: Team) -> None:
    """Decision 10: two agents with one slot each that combine each other's work do not lock each other."""

    async def asks_the_other(brief: Brief) -> object:
        if brief.objective == "end":
            return "done"
        other = "right" if brief.request.target == "left" else "left"
        combined = await brief.combine([Call(target=other, objective="end")], strategy="first-success")
        return combined.answer and combined.answer.result

    for name in ("left", "right"):
        team.hub.agent(name, concurrency=1, may_call=["left", "right"])(asks_the_other)
    async with team.hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(team.hub.ask(name, "begin", user="u-1")) for name in ("left", "right")]
    assert [task.result().result for task in tasks] == ["done", "done"]


async def test_what_is_called_wrongly_is_raised_to_the_caller_and_leaves_nothing_behind(team: Team) -> None:
    team.hangs("one")

    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> str:
        before = asyncio.all_tasks()
        try:
            await brief.combine([Call(target="one"), "two"])  # pyright: ignore[reportArgumentType]
        except AttributeError:
            return f"{len(asyncio.all_tasks() - before)} left"
        return "not raised"

    async with team.hub:
        assert (await team.ask()).result == "0 left"


# ── conflicts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SURE = Conflict(
    path="departure",
    severity="high",
    values=(ReportedValue("9:40", ("timetable",)), ReportedValue("10:40", ("blog",))),
    preferred="9:40",
)


async def test_a_conflict_is_named_and_the_more_confident_source_preferred(team: Team) -> None:
    """K9: conflicts shown, the more confident source preferred."""
    team.says("blog", {"departure": "10:40"}, 0.4)
    team.says("timetable", {"departure": "9:40"}, 0.9)
    team.combines("blog", "timetable", strategy="best-confidence")
    async with team.hub:
        response = await team.ask()
    (combined,) = team.given
    assert combined.conflicts == (SURE,)
    assert (response.result, response.requires_followup) == ({"departure": "9:40"}, False)
    assert response.metadata["conflicts"] == [
        {
            "path": "departure",
            "severity": "high",
            "values": [{"value": "9:40", "names": ["timetable"]}, {"value": "10:40", "names": ["blog"]}],
            "preferred": "9:40",
            "question": None,
        }
    ]
    assert response.metadata["agreement"] == 0.0


async def test_large_results_are_compared_beside_the_loop(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub does not stand still while results are compared: the rest of it goes on meanwhile."""
    compared: list[threading.Thread] = []

    def compare(components: Sequence[Component]) -> Findings:
        compared.append(threading.current_thread())
        return find(components)

    monkeypatch.setattr("remit_orchestrator.text.conflicts.find", compare)
    team.says("blog", {"departure": "10:40", "text": "x" * combining.LARGE}, 0.4)
    team.says("timetable", {"departure": "9:40"}, 0.9)
    team.combines("blog", "timetable")
    assert (await team.combined()).conflicts == (SURE,)
    assert compared
    assert threading.current_thread() not in compared


# ── handed on ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_hands_on_to_several_says_by_which_strategy(team: Team) -> None:
    """C4, C5: the answer names the strategy; whoever is not needed is cancelled, and is not on the path."""
    team.hangs("slow")
    team.waits("quick", Answer("9:40", confidence=0.5), others=1)

    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> Answer:
        return Answer(calls=(Call(target="slow"), Call(target="quick")), strategy=Strategy.FIRST_SUCCESS)

    async with team.hub:
        response = await team.ask()
    assert (response.result, response.status, response.path) == ("9:40", Status.SUCCESS, ("boss", "quick"))
    assert (response.metadata["strategy"], team.cancelled) == ("first-success", ["slow"])


async def test_conflicts_of_those_to_whom_it_was_handed_on_are_not_hidden(team: Team) -> None:
    """K9: not hidden from whoever asked, which strategy ever."""
    team.says("blog", {"departure": "10:40"}, 0.4)
    team.says("timetable", {"departure": "9:40"}, 0.9)

    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[Call]:
        return [Call(target="blog"), Call(target="timetable")]

    async with team.hub:
        response = await team.ask()
    (conflict,) = response.metadata["conflicts"]
    assert (conflict["path"], conflict["preferred"]) == ("departure", "9:40")


async def test_an_answer_with_a_strategy_that_does_not_exist_is_no_answer(team: Team) -> None:
    @team.hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> Answer:
        return Answer(calls=(Call(target="a"), Call(target="b")), strategy="majority")  # pyright: ignore[reportArgumentType]

    async with team.hub:
        response = await team.ask()
    assert response.fault is not None
    assert response.fault.code is Code.RESULT_VALIDATION_FAILED
    assert [problem.path for problem in response.fault.problems] == ["$.strategy"]


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────────────────


async def test_an_isolated_agent_combines_as_any_other(team: Team) -> None:
    """K12: the rest is cancelled in the hub, and the process is told of everything."""
    team.hangs("slow", spends=100)
    team.waits("quick", Answer({"departure": "9:40"}, confidence=0.9), others=1)
    team.says("blog", {"departure": "10:40"}, 0.4)
    team.says("timetable", {"departure": "9:40"}, 0.9)
    team.hub.agent("boss", may_call=["*"], isolation="process")(agents.combine)
    async with team.hub:
        response = await team.ask(max_tokens=10_000)
    assert response.fault is None, response.fault
    assert response.result == {
        "first": [{"departure": "9:40"}, ["cancelled", "success"], 9_900],
        "conflict": ["departure", "9:40", [["9:40", ["timetable"]], ["10:40", ["blog"]]]],
        "blended": "The departure is 9:40.",
        "unsayable": ["INPUT_VALIDATION_FAILED", None],
        "unknown": "INPUT_VALIDATION_FAILED",
    }
