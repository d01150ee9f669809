"""Answers that are given again, and equal requests that are carried out once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Capability, Code, Handoff, Hub, RemitError, Response, Status
from remit.protocol.envelope import VERSION
from remit.runtime.answer_cache import Cache
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from waiting import PATIENCE_S

LOOK = Capability(code="LOOK", read_only=True, cache_ms=60_000)

Behaviour = Callable[[Brief], Awaitable[Any]]


class Scene:
    """A hub whose time stands still, an agent that looks things up, and a caller that keeps what it was answered."""

    def __init__(self, capability: Capability = LOOK, does: Behaviour | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.hub = Hub(store=MemoryStore(), clock=self.clock)
        self.does = does
        self.ran: list[object] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

        @self.hub.agent("expert", capabilities=[capability], tools=["tool"], **options)
        async def expert(brief: Brief) -> Any:
            self.ran.append(brief.input)
            brief.spend(prompt=100)
            self.begun.set()
            await self.go.wait()
            return {"found": brief.input} if self.does is None else await self.does(brief)

        @self.hub.tool("tool")
        async def tool() -> None: ...

        def caller(name: str) -> None:
            @self.hub.agent(name, may_call=["*"])
            async def ask(brief: Brief) -> Any:
                options: dict[str, Any] = {"input": brief.input, **self.options}
                self.responses.append(response := await brief.delegate(capability=capability.code, **options))
                return response.result

        caller("caller")
        caller("other caller".replace(" ", "-"))
        self.options: dict[str, Any] = {}
        self.responses: list[Response] = []

    async def ask(self, given: object = "x", user: str = "u", agent: str = "caller", **options: Any) -> Response:
        return await self.hub.ask(agent, user=user, input=given, **options)

    @property
    def caches(self) -> list[str]:
        return [response.cache for response in self.responses]


async def test_an_answer_is_given_again_while_it_holds_and_costs_nothing() -> None:
    """C10: time to live per capability, and the cache's status with the answer."""
    scene = Scene()
    async with scene.hub:
        first = await scene.ask()
        scene.clock.advance(59)
        second = await scene.ask()
        tree = await scene.hub.delegations(second.run)
        scene.clock.advance(2)
        await scene.ask()
    assert scene.caches == ["miss", "hit", "miss"]
    assert (first.result, second.result) == ({"found": "x"}, {"found": "x"})
    assert (first.usage.total, second.usage.total, scene.ran) == (100, 0, ["x", "x"])
    assert [(each.id, each.target, each.status) for each in tree] == [
        (second.run, "caller", Status.SUCCESS),
        (f"{second.run}.1", "expert", Status.SUCCESS),
    ]
    assert scene.responses[1] == replace(
        scene.responses[0], id=f"{second.run}.1", run=second.run, session=f"{second.run}.1", cache="hit",
        usage=scene.responses[1].usage,
    )  # fmt: skip


async def test_no_user_is_given_anothers_answer_unless_all_may_have_it() -> None:
    """C10: never across users unless the capability says public."""
    for capability, expected in ((LOOK, ["miss", "miss"]), (replace(LOOK, public=True), ["miss", "hit"])):
        scene = Scene(capability)
        async with scene.hub:
            await scene.ask(user="one")
            await scene.ask(user="two")
        assert scene.caches == expected


@pytest.mark.parametrize(
    "capability", [Capability(code="LOOK", cache_ms=60_000), Capability(code="LOOK", read_only=True)]
)
async def test_what_changes_something_or_has_no_time_to_live_is_done_each_time(capability: Capability) -> None:
    scene = Scene(capability)
    async with scene.hub:
        await scene.ask()
        await scene.ask()
    assert (scene.caches, scene.ran) == (["none", "none"], ["x", "x"])


@pytest.mark.parametrize(
    "other",
    [
        {"input": "y"},
        {"objective": "another"},
        {"tools": ["tool"]},
        {"targets": ["expert"]},
        {"may_delegate": False},
        {"session": "of-its-own"},
        {"hints": ["a hint"]},
        {"reason": "another"},
        {"refined_by": "caller"},
    ],
)
async def test_only_what_is_equal_in_all_that_matters_is_equal(other: dict[str, Any]) -> None:
    """C10: equal in user, tools, targets and inputs."""
    scene = Scene()
    async with scene.hub:
        await scene.ask()
        scene.options = other
        await scene.ask()
    assert len(scene.ran) == 2
    assert scene.caches[1] != "hit"


async def test_the_order_of_keys_is_not_part_of_what_is_asked() -> None:
    scene = Scene()
    async with scene.hub:
        await scene.ask({"a": 1, "b": [1.5]})
        await scene.ask({"b": [1.5], "a": 1})
        await scene.ask({"a": 1.0, "b": [1.5]})
    assert scene.caches == ["miss", "hit", "miss"]


async def test_failures_are_not_kept() -> None:
    async def fail(brief: Brief) -> None:
        raise ZeroDivisionError

    scene = Scene(does=fail)
    async with scene.hub:
        await scene.ask()
        await scene.ask()
    assert len(scene.ran) == 2


async def test_what_a_caller_does_to_an_answer_changes_nobody_elses() -> None:
    scene = Scene()
    async with scene.hub:
        for _ in range(3):
            await scene.ask()
            scene.responses[-1].result["found"] = "spoiled"
        assert (await scene.ask()).result == {"found": "x"}
    assert len(scene.ran) == 1


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_with_something_personal_in_it_stays_in_its_run() -> None:
    """Decision 13: a token means nothing elsewhere, and caches hold no raw value."""

    async def tell(brief: Brief) -> str:
        return "write to anna@example.org"

    scene = Scene(does=tell)
    async with scene.hub:
        answers = [(await scene.ask()).result for _ in range(2)]
    assert answers == ["write to anna@example.org"] * 2
    assert (scene.caches, len(scene.ran)) == (["miss", "miss"], 2)


async def test_a_request_with_something_personal_in_it_is_known_in_its_run_alone() -> None:
    """Decision 13: cache keys are keyed hashes of the unredacted inputs."""
    scene = Scene()

    @scene.hub.agent("both", may_call=["*"])
    async def both(brief: Brief) -> list[Any]:
        callers = ("caller", "other-caller")
        return [(await brief.delegate(name, input=brief.input)).result for name in callers]

    mail = {"to": "anna@example.org"}
    async with scene.hub:
        first = await scene.ask(mail, agent="both")
        second = await scene.ask(mail)
    assert first.result == [{"found": mail}] * 2
    assert second.result == {"found": mail}
    assert scene.caches == ["miss", "hit", "miss"]
    assert "anna" not in str(scene.ran)


# ── the same in other words ───────────────────────────────────────────────────────────────────────────────────────────

SIMILAR = replace(LOOK, cache_similar=True)
QUESTION = "What is the rate of the euro?"


async def test_an_answer_is_given_to_who_asks_for_the_same_in_other_words_where_that_is_wanted() -> None:
    """C10: the answer says that it is one to a similar request."""
    for capability, expected in ((LOOK, ["miss", "miss"]), (SIMILAR, ["miss", "similar"])):
        scene = Scene(capability)
        async with scene.hub:
            await scene.ask(QUESTION)
            response = await scene.ask("Please tell me, what's the rate of the euro")
            kept = await scene.hub.store.records(run=response.run)
        assert scene.caches == expected
    assert (scene.ran, response.usage.total, response.result) == ([QUESTION], 0, {"found": QUESTION})
    assert [each.body.cache for each in kept if isinstance(each.body, Response)] == ["similar", "none"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("status of order 4411", "status of order 4412"),
        ("flights from Paris to Rome", "flights from Rome to Paris"),
        ("which invoices are paid", "which invoices are not paid"),
        ("meetings on Monday morning", "meetings on Tuesday morning"),
        ({"question": QUESTION}, {"question": QUESTION.lower()}),
        ([QUESTION], QUESTION),
    ],
)
async def test_what_only_looks_alike_is_asked_anew(one: object, other: object) -> None:
    """Numbers, order, negations, days; and what is not a text has to be equal."""
    scene = Scene(SIMILAR)
    async with scene.hub:
        await scene.ask(one)
        await scene.ask(other)
    assert scene.caches == ["miss", "miss"]


async def test_the_objective_may_be_in_other_words_too() -> None:
    scene = Scene(SIMILAR)
    async with scene.hub:
        for objective in ("Find the rate of today", "find the rate of today!", "Find the rate of yesterday"):
            scene.options = {"objective": objective}
            await scene.ask()
    assert scene.caches == ["miss", "similar", "miss"]


@pytest.mark.parametrize(
    "other", [{"tools": ["tool"]}, {"targets": ["expert"]}, {"may_delegate": False}, {"hints": ["x"]}]
)
async def test_what_is_similar_holds_for_the_same_scope_alone(other: dict[str, Any]) -> None:
    scene = Scene(SIMILAR)
    async with scene.hub:
        await scene.ask(QUESTION)
        scene.options = other
        await scene.ask(QUESTION.lower())
    assert scene.caches[1] in ("miss", "none")


async def test_a_similar_request_of_another_user_is_another_unless_all_may_have_the_answer() -> None:
    """C10: never across users."""
    for capability, expected in ((SIMILAR, ["miss", "miss"]), (replace(SIMILAR, public=True), ["miss", "similar"])):
        scene = Scene(capability)
        async with scene.hub:
            await scene.ask(QUESTION, user="one")
            await scene.ask(QUESTION.lower(), user="two")
        assert scene.caches == expected


async def test_what_is_similar_is_forgotten_with_the_answer() -> None:
    scene = Scene(SIMILAR)
    async with scene.hub:
        await scene.ask(QUESTION)
        scene.hub.reconfigure()
        await scene.ask(QUESTION.lower())
        scene.clock.advance(61)
        await scene.ask(QUESTION)
    assert scene.caches == ["miss", "miss", "miss"]


async def test_of_what_was_asked_the_cache_keeps_nothing_that_can_be_read() -> None:
    """Decision 13: texts are compared by keyed digests, and what is personal counts in its run alone."""
    scene = Scene(SIMILAR)

    @scene.hub.agent("both", may_call=["*"])
    async def both(brief: Brief) -> None:
        for text in (brief.input, brief.input.removeprefix("Tell me ")):
            await brief.delegate("caller" if text == brief.input else "other-caller", input=text)

    text = "Tell me the balance of anna@example.org"
    async with scene.hub:
        await scene.ask(text, agent="both")
        await scene.ask("the balance of anna@example.org")
        cache = scene.hub._parts.cache  # pyright: ignore[reportPrivateUsage]
        inside = str({name: getattr(cache, name) for name in vars(cache)})
    assert scene.caches == ["miss", "similar", "miss"]
    assert "anna" not in inside
    assert "balance" not in str([each for each in vars(cache).values() if each != cache._kept])  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "capability",
    [
        Capability(code="LOOK", cache_ms=60_000, cache_similar=True),
        Capability(code="LOOK", read_only=True, cache_similar=True),
    ],
)
def test_only_answers_that_are_kept_can_be_given_to_similar_requests(capability: Capability) -> None:
    with pytest.raises(RemitError) as caught:
        Scene(capability)
    assert [each.path for each in caught.value.fault.problems] == ["expert.capabilities[0].cache_similar"]


# ── equal requests at once ────────────────────────────────────────────────────────────────────────────────────────────


async def turns(scene: Scene) -> None:
    """Let everyone come as far as they can without being let go."""
    for _ in range(50):
        await asyncio.sleep(0)
    await scene.hub.store.flush()


async def test_equal_requests_at_once_are_carried_out_once() -> None:
    """C10: single-flight; followers pay nothing."""
    scene = Scene()
    scene.go.clear()
    async with scene.hub, asyncio.TaskGroup() as group:
        tasks = [group.create_task(scene.ask()) for _ in range(5)]
        await scene.begun.wait()
        await turns(scene)
        scene.go.set()
    assert [task.result().result for task in tasks] == [{"found": "x"}] * 5
    assert sorted(task.result().usage.total for task in tasks) == [0, 0, 0, 0, 100]
    assert (scene.ran, sorted(scene.caches)) == (["x"], ["hit"] * 4 + ["miss"])


async def test_each_that_waits_keeps_its_own_deadline() -> None:
    scene = Scene()
    scene.go.clear()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        leader = asyncio.create_task(scene.ask())
        await scene.begun.wait()
        scene.options = {"deadline_ms": 1_000}
        follower = asyncio.create_task(scene.ask())
        await turns(scene)
        scene.clock.advance(1.1)
        await follower
        assert [response.status for response in scene.responses] == [Status.TIMEOUT]
        scene.go.set()
        assert (await leader).result == {"found": "x"}
        assert (await scene.hub.ranking("LOOK"))[0].quality > 0.5  # waiting in vain says nothing about the callee
    assert scene.ran == ["x"]


async def test_if_the_one_that_runs_is_cancelled_another_takes_over() -> None:
    scene = Scene()
    scene.go.clear()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        leader = asyncio.create_task(scene.ask())
        await scene.begun.wait()
        followers = [asyncio.create_task(scene.ask()) for _ in range(2)]
        await turns(scene)
        leader.cancel()
        await asyncio.wait({leader})
        scene.go.set()
        assert [(await task).result for task in followers] == [{"found": "x"}] * 2
    assert scene.ran == ["x", "x"]


async def test_nobody_waits_until_the_one_that_was_cancelled_has_cleaned_up() -> None:
    cleaned = asyncio.Event()

    async def stubborn(brief: Brief) -> str:
        if len(scene.ran) > 1:
            return "found"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await cleaned.wait()
            raise
        raise AssertionError

    scene = Scene(does=stubborn)
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        leader = asyncio.create_task(scene.ask())
        await scene.begun.wait()
        follower = asyncio.create_task(scene.ask())
        await turns(scene)
        leader.cancel()
        assert (await follower).result == "found"
        assert not leader.done()
        cleaned.set()
        await asyncio.wait({leader})
        assert (await scene.ask()).result == "found"
    assert len(scene.ran) == 2


async def test_who_waits_and_has_more_time_takes_over_from_one_that_ran_out_of_it() -> None:
    scene = Scene()
    scene.go.clear()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        scene.options = {"deadline_ms": 1_000}
        leader = asyncio.create_task(scene.ask())
        await scene.begun.wait()
        scene.options = {}
        follower = asyncio.create_task(scene.ask())
        await turns(scene)
        scene.clock.advance(1.1)
        await leader
        await turns(scene)
        scene.go.set()
        assert (await follower).result == {"found": "x"}
    assert [response.status for response in scene.responses] == [Status.TIMEOUT, Status.SUCCESS]
    assert scene.ran == ["x", "x"]


async def test_who_waits_and_has_more_tokens_takes_over_from_one_that_spent_too_many() -> None:
    scene = Scene()
    scene.go.clear()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        scene.options = {"max_tokens": 100}

        async def spend(brief: Brief) -> str:
            brief.spend(prompt=50)
            return "found"

        scene.does = spend
        leader = asyncio.create_task(scene.ask())
        await scene.begun.wait()
        scene.options = {}
        follower = asyncio.create_task(scene.ask())
        await turns(scene)
        scene.go.set()
        await leader
        assert (await follower).result == "found"
    codes = [response.fault and response.fault.code for response in scene.responses]
    assert codes == [Code.TOKEN_BUDGET_EXCEEDED, None]


async def test_one_that_gives_up_waiting_disturbs_nobody() -> None:
    scene = Scene()
    scene.go.clear()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        leader = asyncio.create_task(scene.ask())
        await scene.begun.wait()
        followers = [asyncio.create_task(scene.ask()) for _ in range(3)]
        await turns(scene)
        followers[1].cancel()
        await asyncio.wait({followers[1]})
        scene.go.set()
        assert [(await task).result for task in (leader, followers[0], followers[2])] == [{"found": "x"}] * 3
    assert scene.ran == ["x"]


@pytest.mark.parametrize(
    "other",
    [
        {"options": {"tools": ["tool"]}},
        {"options": {"targets": ["expert"]}},
        {"user": "another"},
        {"capability": replace(LOOK, read_only=False)},
        {"given": {"to": "anna@example.org"}},
        {"reload": True},
    ],
    ids=str,
)
async def test_what_is_not_equal_does_not_wait_for_each_other(other: dict[str, Any]) -> None:
    """C10: tools, targets, users, what may not be kept, what is personal, and a configuration that is over."""
    scene = Scene(other.get("capability", LOOK))
    scene.go.clear()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        given = other.get("given", "x")
        leader = asyncio.create_task(scene.ask(given))
        await scene.begun.wait()
        if "reload" in other:
            scene.hub.reconfigure()
        scene.options = other.get("options", {})
        second = asyncio.create_task(scene.ask(given, user=other.get("user", "u")))
        await turns(scene)
        assert len(scene.ran) == 2
        scene.go.set()
        await asyncio.gather(leader, second)
        assert (await second).usage.total == 100
        scene.options = {}
        await scene.ask(given, user="a third")
    assert len(scene.ran) == 3


async def test_who_waits_takes_no_place_of_the_callee() -> None:
    scene = Scene(concurrency=1, queue=0)
    scene.go.clear()
    async with scene.hub, asyncio.TaskGroup() as group:
        tasks = [group.create_task(scene.ask()) for _ in range(4)]
        await scene.begun.wait()
        await turns(scene)
        scene.go.set()
    assert [task.result().result for task in tasks] == [{"found": "x"}] * 4


async def test_a_hub_that_closes_ends_those_who_wait_too() -> None:
    scene = Scene()
    scene.go.clear()
    async with scene.hub:
        tasks = [asyncio.create_task(scene.ask()) for _ in range(3)]
        await scene.begun.wait()
        await turns(scene)
    assert [(await task).status for task in tasks] == [Status.CANCELLED] * 3
    assert scene.ran == ["x"]


async def test_a_failure_is_one_failure_for_all_who_waited_and_counts_once() -> None:
    async def fail(brief: Brief) -> None:
        raise ZeroDivisionError

    scene = Scene(does=fail)
    scene.go.clear()
    async with scene.hub:
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(scene.ask())
            await scene.begun.wait()
            await turns(scene)
            scene.go.set()
        assert len(scene.ran) == 1
        codes = [response.fault and response.fault.code for response in scene.responses]
        assert codes == [Code.DELEGATION_FAILED] * 6
        assert sorted(scene.caches) == ["hit"] * 5 + ["miss"]
        await scene.ask("y")
    assert scene.ran == ["x", "y"]  # six failures would have opened the breaker


async def test_two_that_need_each_other_do_not_wait_for_each_other() -> None:
    """Each works for a request that others may wait for, and so waits for none."""
    hub = Hub(store=MemoryStore())
    both = asyncio.Barrier(2)
    ran: list[str] = []

    def add(name: str, other: str) -> None:
        @hub.agent(name, capabilities=[replace(LOOK, code=name.upper())], may_call=["*"])
        async def work(brief: Brief) -> str:
            ran.append(name)
            if len(ran) <= 2:
                await both.wait()
            response = await brief.delegate(capability=other.upper(), input=1)
            return f"{name} and {response.fault.code if response.fault else response.result}"

        @hub.agent(f"ask-{name}", may_call=["*"])
        async def ask(brief: Brief) -> object:
            return (await brief.delegate(capability=name.upper(), input=1)).result

    add("ping", "pong")
    add("pong", "ping")
    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(hub.ask(f"ask-{name}", user="u")) for name in ("ping", "pong")]
    assert [task.result().result for task in tasks] == [
        "ping and pong and LOOP_DETECTED",
        "pong and ping and LOOP_DETECTED",
    ]


async def test_a_run_that_is_taken_up_again_is_given_what_it_was_given(tmp_path: Path) -> None:
    """Decision 4: an answer that came from the cache is a finished step like any other."""
    ran: list[str] = []
    reached, over = asyncio.Event(), asyncio.Event()

    def make() -> Hub:
        hub = Hub(store=tmp_path / "hub.db", durability="process")

        @hub.agent("expert", capabilities=[LOOK])
        async def expert(brief: Brief) -> int:
            ran.append("expert")
            return len(ran)

        @hub.agent("once", may_call=["*"])
        async def once(brief: Brief) -> int:
            return (await brief.delegate(capability="LOOK")).result

        @hub.agent("root", resumable=True, may_call=["*"])
        async def root(brief: Brief) -> list[Any]:
            response = await brief.delegate(capability="LOOK")
            reached.set()
            await over.wait()
            return [response.result, response.cache]

        return hub

    async with make() as hub:
        await hub.ask("once", user="u")
        task = asyncio.create_task(hub.ask("root", user="u", request_id="1"))
        await reached.wait()
    await asyncio.wait({task})
    over.set()
    async with make() as hub:
        response = await hub.ask("root", user="u", request_id="1")
    assert (response.result, ran) == ([1, "hit"], ["expert"])


# ── how much is kept ──────────────────────────────────────────────────────────────────────────────────────────────────


def response_of(size: int) -> Response:
    return Response(version=VERSION, id="r", target="a", status=Status.SUCCESS, result="x" * size)


def test_no_more_is_kept_than_there_is_room_for_and_what_was_not_used_longest_goes_first() -> None:
    cache = Cache(most=2, most_bytes=1_000)
    for key in (b"1", b"2"):
        cache.put(key, response_of(10), 9.0)
    assert cache.get(b"1", 0.0) is not None
    cache.put(b"3", response_of(10), 9.0)
    assert [cache.get(key, 0.0) is not None for key in (b"1", b"2", b"3")] == [True, False, True]
    cache.put(b"4", response_of(800), 9.0)
    assert [cache.get(key, 0.0) is not None for key in (b"1", b"3", b"4")] == [False, True, True]
    cache.put(b"5", response_of(2_000), 9.0)
    assert [cache.get(key, 0.0) is not None for key in (b"3", b"4", b"5")] == [True, True, False]
    assert [cache.get(key, 9.0) for key in (b"3", b"4")] == [None, None]


def test_of_similar_requests_the_newest_answer_is_given_and_none_that_was_forgotten() -> None:
    cache = Cache(most=2, most_bytes=1_000)
    cache.put(b"1", response_of(1), 5.0, b"like")
    cache.put(b"2", response_of(2), 9.0, b"like")
    assert cache.get_alike(b"like", 0.0) == response_of(2)
    cache.put(b"1", response_of(3), 9.0, b"like")
    assert cache.get_alike(b"like", 0.0) == response_of(3)
    cache.put(b"3", response_of(4), 9.0, b"other")
    assert (cache.get_alike(b"like", 0.0), cache.get_alike(b"nothing", 0.0)) == (response_of(3), None)
    assert (cache.get_alike(b"like", 9.0), cache.get_alike(b"like", 0.0)) == (None, None)
    cache.clear()
    assert cache.get_alike(b"other", 0.0) is None


# ── what was read for an answer, and what was changed since ───────────────────────────────────────────────────────────


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
        came = [(await hub.ask("boss", text, user="ann", session=text)).unwrap() for text in ("one", "two")]
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
