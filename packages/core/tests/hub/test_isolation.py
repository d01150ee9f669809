"""Whatever one agent does, the hub and the other agents go on, and what was said stays as it was said."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from remit import (
    Answer,
    Artifact,
    Brief,
    Call,
    Code,
    Fault,
    Handoff,
    Hub,
    Kind,
    Limits,
    Notice,
    Progress,
    Record,
    RemitError,
    Request,
    Response,
    Status,
    Usage,
)
from remit.protocol.records import Body
from remit_testing import MemoryStore
from samples import code_of
from waiting import PATIENCE_S


def says(text: str) -> Callable[[Brief], object]:
    async def agent(brief: Brief) -> str:
        return text

    return agent


async def records(hub: Hub, run: str) -> list[Record]:
    """Return every record of a run; that they can be read at all is part of every test here."""
    await hub.store.flush()
    return await hub.store.records(run=run)


async def beside_a_sibling(hub: Hub, agent: str, **options: Any) -> Response:
    """Have *agent* asked beside a sibling, see that sibling and hub are unharmed, and return how it ended."""
    hub.agent("sibling")(says("unharmed"))
    replies: list[Response] = []

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> str:
        replies.extend(
            await brief.fan_out([Call(target=agent, objective="x", **options), Call(target="sibling", objective="y")])
        )
        return replies[1].unwrap()

    async with hub:
        response = await hub.ask("prime", user="u-1")
        assert response.unwrap() == "unharmed"
        assert (await hub.ask("sibling", user="u-2")).unwrap() == "unharmed"
        delegations = await hub.delegations(response.run)
    reply = replies[0]
    assert [(each.target, each.status) for each in delegations if each.depth < 2] == [
        ("prime", Status.SUCCESS),
        (agent, reply.status),
        ("sibling", Status.SUCCESS),
    ]
    return reply


# ── it raises ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even say it")


class RootlessError(BaseException):
    """Not an `Exception`: nothing that catches those sees it."""


def too_deep() -> int:
    return too_deep() + 1


RAISED: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("bad"),
    "SystemExit": lambda: SystemExit(3),
    "RecursionError": lambda: RecursionError("deep"),
    "MemoryError": MemoryError,
    "TimeoutError": lambda: TimeoutError("its own"),
    "StopIteration": lambda: StopIteration(1),
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [SystemExit(1), ValueError("a")]),
    "a BaseException of its own": lambda: RootlessError("odd"),
    "one without words": UnspeakableError,
    "one with words that are no text": lambda: ValueError("\ud800"),
    "one with five million words": lambda: ValueError("x" * 5_000_000),
    "a RemitError without a fault": lambda: RemitError("boom"),  # pyright: ignore[reportArgumentType]
    "a RemitError with a code of its own": lambda: RemitError(
        Fault(code="MY_OWN", message="boom")  # pyright: ignore[reportArgumentType]
    ),
}


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("make", RAISED.values(), ids=RAISED.keys())
async def test_an_agent_that_raises_has_failed_and_that_is_all(
    hub: Hub, make: Callable[[], BaseException], kind: str
) -> None:
    """K12: its caller is told at once; a sibling and the hub are unharmed; the record can be read."""

    async def raises(brief: Brief) -> str:
        raise make()

    def raises_in_a_thread(brief: Brief) -> str:
        raise make()

    hub.agent("raises")(raises if kind == "async" else raises_in_a_thread)
    reply = await beside_a_sibling(hub, "raises", deadline_ms=2_000)
    assert reply.fault is not None
    assert (reply.status, reply.fault.code) == (Status.FAILED, Code.DELEGATION_FAILED)
    assert reply.fault.message
    assert len(reply.fault.message) < 10_000, "a message is for people to read"


async def test_an_agent_that_recurses_without_end_has_failed(hub: Hub) -> None:
    """K12: the stack is its own."""

    @hub.agent("deep")
    async def deep(brief: Brief) -> int:
        return too_deep()

    reply = await beside_a_sibling(hub, "deep")
    assert reply.fault is not None
    assert "RecursionError" in reply.fault.message


async def test_the_fault_of_a_nested_refusal_that_is_not_caught_is_the_agents_own(hub: Hub) -> None:
    """K12, C6: `unwrap()` of a refusal ends the agent with that code, for its caller to read."""

    @hub.agent("careless")
    async def careless(brief: Brief) -> str:
        return (await brief.delegate("nobody")).unwrap()

    reply = await beside_a_sibling(hub, "careless")
    assert (reply.status, code_of(reply)) == (Status.FAILED, Code.AGENT_NOT_FOUND)


# ── it returns nonsense ───────────────────────────────────────────────────────────────────────────────────────────────


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def wrong(**fields: object) -> Answer:
    return Answer("x", **fields)  # pyright: ignore[reportArgumentType]


def wrong_usage(**fields: object) -> Answer:
    return Answer("x", usage=Usage(**fields))  # pyright: ignore[reportArgumentType]


NONSENSE: dict[str, Callable[[], object]] = {
    "object()": object,
    "a class": lambda: Answer,
    "a function": lambda: says,
    "NaN": lambda: float("nan"),
    "infinity, somewhere inside": lambda: {"figures": [1.0, float("inf")]},
    "an integer past 2**53": lambda: {"id": 2**60},
    "an integer past 2**64": lambda: 2**70,
    "text that is no text": lambda: "\ud800",
    "text that is no text, inside": lambda: {"\ud800": 1},
    "a list nested too deep": lambda: nested(100),
    "a list nested far too deep": lambda: nested(100_000),
    "a list that contains itself": endless,
    "five megabytes": lambda: "x" * 5_000_000,
    "two keys that are one": lambda: {1: "a", "1": "b"},
    "an answer within an answer": lambda: Answer(object()),
    "confidence in words": lambda: wrong(confidence="high"),
    "confidence past one": lambda: wrong(confidence=7),
    "confidence NaN": lambda: wrong(confidence=float("nan")),
    "facts as one text": lambda: wrong(new_facts="likes tea"),
    "facts that are none": lambda: wrong(new_facts=(object(),)),
    "a fact that is no text": lambda: wrong(new_facts=("\ud800",)),
    "artifacts as text": lambda: wrong(artifacts=("table",)),
    "an artifact of an unknown type": lambda: wrong(
        artifacts=(Artifact(type="song", value=1),)  # pyright: ignore[reportArgumentType]
    ),
    "sources as dicts without owner": lambda: wrong(sources=({"source_id": "s"},)),
    "a summary that is none": lambda: wrong(summary=object()),
    "usage in words": lambda: wrong(usage="lots"),
    "usage that is negative": lambda: wrong_usage(prompt=-5_000),
    "usage as a fraction": lambda: wrong_usage(prompt=1.5),
    "usage as text": lambda: wrong_usage(prompt="many"),
    "calls as text": lambda: wrong(calls="tag-ai"),
    "calls that are none": lambda: wrong(calls=(1, 2)),
    "metadata that is none": lambda: wrong(metadata=[1]),
    "unfinished as a number": lambda: wrong(unfinished=3),
}


@pytest.mark.parametrize("make", NONSENSE.values(), ids=NONSENSE.keys())
async def test_an_answer_that_is_none_is_refused_as_the_callees_fault(hub: Hub, make: Callable[[], object]) -> None:
    """K12: RESULT_VALIDATION_FAILED; nothing of the nonsense reaches the caller, the budget or the record."""

    @hub.agent("odd", may_call=["*"])
    async def odd(brief: Brief) -> object:
        return make()

    reply = await beside_a_sibling(hub, "odd")
    assert reply.fault is not None, reply.result
    assert (reply.status, reply.fault.code) == (Status.FAILED, Code.RESULT_VALIDATION_FAILED)
    assert (reply.result, reply.new_facts, reply.usage.total) == (None, (), 0)


@pytest.mark.parametrize(
    ("returned", "arrives"),
    [
        (None, None),
        ({"a"}, ["a"]),
        ((1, 2), [1, 2]),
        (b"ab", "YWI="),
        ({1: "one"}, {"1": "one"}),
        ([], []),
        ("", ""),
        (float("1e300"), 1e300),
        ("\x00\u2028 ok", "\x00\u2028 ok"),
    ],
    ids=str,
)
async def test_what_json_can_say_arrives_as_json_says_it(hub: Hub, returned: object, arrives: object) -> None:
    """K12: the caller and the record get the same, whatever Python type it had."""

    @hub.agent("odd")
    async def odd(brief: Brief) -> object:
        return returned

    async with hub:
        response = await hub.ask("odd", user="u-1")
        last = (await records(hub, response.run))[-1]
    assert isinstance(last.body, Response)
    assert (response.result, last.body.result) == (arrives, arrives)


# ── it floods, it spends ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flood_of_progress_is_cut_off_with_a_notice(make_hub: Callable[..., Hub]) -> None:
    """K12: the rest is dropped, long texts are cut, and the answer still arrives."""
    hub = make_hub(limits=Limits(max_progress=10))

    @hub.agent("chatty")
    async def chatty(brief: Brief) -> str:
        for number in range(5_000):
            brief.progress(f"{number} " + "x" * 10_000)
        return "done"

    async with hub:
        response = await hub.ask("chatty", user="u-1")
        recorded = await records(hub, response.run)
    reports = [record.body for record in recorded if isinstance(record.body, Progress)]
    cut = [record.body.text for record in recorded if isinstance(record.body, Notice)]
    assert (response.result, len(reports), len(cut)) == ("done", 10, 1)
    assert max(len(report.text) for report in reports) <= 2_000


async def test_the_last_part_counts_even_if_its_report_was_dropped(make_hub: Callable[..., Hub]) -> None:
    """K12, K10: what was finished is kept, however talkative the callee."""
    hub = make_hub(limits=Limits(max_progress=2))

    @hub.agent("chatty")
    async def chatty(brief: Brief) -> str:
        for number in range(50):
            brief.progress("more", partial=Answer(number))
        await asyncio.Event().wait()
        return "never"

    async with hub:
        response = await hub.ask("chatty", user="u-1", deadline_ms=30)
    assert (response.status, response.result) == (Status.TIMEOUT, 49)


ODD_PROGRESS: dict[str, Callable[[Brief], None]] = {
    "a part that is no answer": lambda brief: brief.progress(
        "x",
        partial="half",  # pyright: ignore[reportArgumentType]
    ),
    "a part with a result that is not JSON": lambda brief: brief.progress("x", partial=Answer(object())),
    "a part with a result too large": lambda brief: brief.progress("x", partial=Answer("x" * 5_000_000)),
    "a part with a result that contains itself": lambda brief: brief.progress("x", partial=Answer(endless())),
    "a part whose fields are wrong": lambda brief: brief.progress(
        "x",
        partial=Answer(finished=(object(),)),  # pyright: ignore[reportArgumentType]
    ),
    "a text that is none": lambda brief: brief.progress(None),  # pyright: ignore[reportArgumentType]
    "a text that is no text": lambda brief: brief.progress("\ud800"),
}


@pytest.mark.parametrize("report", ODD_PROGRESS.values(), ids=ODD_PROGRESS.keys())
async def test_progress_that_makes_no_sense_does_no_harm(hub: Hub, report: Callable[[Brief], None]) -> None:
    """K12: the agent may be told so; its caller still gets its time-out, and the record can be read."""

    @hub.agent("odd")
    async def odd(brief: Brief) -> str:
        with suppress(RemitError, TypeError, ValueError, AttributeError):
            report(brief)
        await asyncio.Event().wait()
        return "never"

    reply = await beside_a_sibling(hub, "odd", deadline_ms=50)
    assert (reply.status, code_of(reply), reply.result) == (Status.TIMEOUT, Code.TIMEOUT, None)


@pytest.mark.parametrize("act", ["delegate", "use"])
async def test_who_tries_the_forbidden_without_end_can_still_be_stopped(hub: Hub, act: str) -> None:
    """K12: refusals give way to others, so the deadline is kept and the record does not grow without bound."""
    tries = 0

    @hub.agent("obstinate")
    async def obstinate(brief: Brief) -> str:
        nonlocal tries
        while tries < 60_000:
            tries += 1
            if act == "delegate":
                await brief.delegate("nobody")
            else:
                with suppress(RemitError):
                    await brief.use("nothing")
        return "tried it all"

    async with hub:
        response = await hub.ask("obstinate", user="u-1", deadline_ms=50)
    assert (response.status, tries < 60_000) == (Status.TIMEOUT, True)


# ── it blocks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_plain_function_that_blocks_does_not_hold_up_an_async_sibling(hub: Hub) -> None:
    """K12: agents that are not async run in threads."""
    waits, sibling_ran = threading.Event(), threading.Event()

    @hub.agent("blocks")
    def blocks(brief: Brief) -> str:
        waits.set()
        return "unblocked" if sibling_ran.wait(PATIENCE_S) else "blocked the loop"

    @hub.agent("quick")
    async def quick(brief: Brief) -> str:
        await asyncio.to_thread(waits.wait, PATIENCE_S)
        sibling_ran.set()
        return "quick"

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[str]:
        replies = await brief.fan_out([Call(target="blocks"), Call(target="quick")])
        return [reply.unwrap() for reply in replies]

    async with hub:
        assert (await hub.ask("prime", user="u-1")).unwrap() == ["unblocked", "quick"]


async def test_a_plain_function_that_hangs_past_its_deadline_is_left_behind(hub: Hub) -> None:
    """K12, X6: its caller gets TIMEOUT on time; what the thread returns later is dropped."""
    let_go = threading.Event()

    @hub.agent("hangs")
    def hangs(brief: Brief) -> str:
        let_go.wait(PATIENCE_S)
        return "too late"

    try:
        reply = await beside_a_sibling(hub, "hangs", deadline_ms=50)
    finally:
        let_go.set()
    assert (reply.status, reply.result) == (Status.TIMEOUT, None)
    assert reply.duration_ms < 1_000


async def test_all_places_of_one_agent_can_be_stuck_while_another_answers(hub: Hub) -> None:
    """K12: slots and threads are each agent's own."""
    let_go, stuck = threading.Event(), threading.Semaphore(0)

    @hub.agent("stuck", concurrency=2)
    def hangs(brief: Brief) -> str:
        stuck.release()
        let_go.wait(PATIENCE_S)
        return "too late"

    @hub.agent("plain")
    def plain(brief: Brief) -> str:
        return "plain"

    hub.agent("fine")(says("fine"))

    async with hub:
        asking = [asyncio.create_task(hub.ask("stuck", str(number), user="u-1")) for number in range(4)]
        try:
            for _ in range(2):
                assert await asyncio.to_thread(stuck.acquire, timeout=PATIENCE_S)
            assert (await hub.ask("fine", user="u-2")).unwrap() == "fine"
            assert (await hub.ask("plain", user="u-2")).unwrap() == "plain"
            late = await hub.ask("stuck", "late", user="u-2", deadline_ms=30)
        finally:
            let_go.set()
        assert [(await each).result for each in asking] == ["too late"] * 4
    assert late.status is Status.TIMEOUT


async def test_closing_the_hub_ends_the_threads_it_started(hub: Hub) -> None:
    """K12: those of its agents, of its tools and of its store."""

    @hub.tool("look")
    def look() -> str:
        return "seen"

    @hub.agent("plain", tools=["look"])
    def plain(brief: Brief) -> str:
        return brief.wait(brief.use("look"))

    before = set(threading.enumerate())
    async with hub:
        assert (await hub.ask("plain", user="u-1")).unwrap() == "seen"
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("remit-"):
            await asyncio.to_thread(thread.join, 2)
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("remit-")]
    assert left == []


# ── plain functions and their brief ───────────────────────────────────────────────────────────────────────────────────


async def test_a_plain_function_can_do_all_that_an_async_one_can(hub: Hub) -> None:
    """C1, K12: `brief.wait` carries it out in the loop while the thread waits."""

    @hub.tool("double")
    def double(number: int) -> int:
        return 2 * number

    @hub.agent("b")
    async def b(brief: Brief) -> Answer:
        return Answer(brief.input, new_facts=("b was asked",))

    @hub.agent("plain", may_call=["b"], tools=["double"])
    def plain(brief: Brief) -> list[object]:
        brief.progress("begun", partial=Answer("half"))
        assert brief.spend(prompt=10) == 999_990
        one = brief.wait(brief.delegate("b", objective="1", input=1))
        more = brief.wait(brief.fan_out([Call(target="b", objective=str(each), input=each) for each in (2, 3)]))
        chained = brief.wait(brief.chain([Call(target="b", objective="4", input=4), Call(target="b", objective="5")]))
        assert brief.wait(brief.conversation()) == []
        assert brief.time_left_ms() > 0
        return [*(reply.result for reply in (one, *more, *chained)), brief.wait(brief.use("double", number=21))]

    async with hub:
        with hub.events() as events:
            response = await hub.ask("plain", user="u-1")
            kinds = [(await anext(events)).kind for _ in range(2)]
    assert response.unwrap() == [1, 2, 3, 4, 4, 42]
    assert (response.usage.prompt, response.tool_calls) == (10, ("double",))
    assert kinds == ["started", "progress"]


async def test_a_plain_function_that_waits_for_another_is_freed_when_the_run_is_cancelled(hub: Hub) -> None:
    """X6, K12: what it waits for is cancelled, so the thread comes back by itself."""
    begun = asyncio.Event()
    replies: list[Response] = []
    returned = threading.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    @hub.agent("plain", may_call=["slow"])
    def plain(brief: Brief) -> str:
        replies.append(brief.wait(brief.delegate("slow", objective="1")))
        replies.append(brief.wait(brief.delegate("slow", objective="2")))
        returned.set()
        return "late"

    async with hub:
        asking = asyncio.create_task(hub.ask("plain", user="u-1"))
        await begun.wait()
        (run,) = await hub.store.runs()
        hub.cancel(run.run)
        assert (await asking).status is Status.CANCELLED
        assert await asyncio.to_thread(returned.wait, 5)
    assert [reply.status for reply in replies] == [Status.CANCELLED, Status.REFUSED]


def test_waiting_in_an_async_agent_is_an_error_and_not_the_end_of_the_hub(make_hub: Callable[..., Hub]) -> None:
    """K12: `brief.wait` is for threads; in the loop it would wait for itself."""
    hub = make_hub()
    answers: list[Response] = []
    unused: list[Coroutine[Any, Any, Response]] = []
    hub.agent("b")(says("b"))

    @hub.agent("mixed-up", may_call=["b"])
    async def mixed_up(brief: Brief) -> str:
        unused.append(brief.delegate("b"))
        return brief.wait(unused[0]).unwrap()

    async def main() -> None:
        async with hub:
            answers.append(await hub.ask("mixed-up", user="u-1", deadline_ms=1_000))
            answers.append(await hub.ask("b", user="u-1"))

    # In a thread of its own, because a hub that waits for itself cannot be cancelled.
    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    thread.join(4)
    assert not thread.is_alive(), "the hub hangs"
    for coroutine in unused:
        coroutine.close()
    assert [response.status for response in answers] == [Status.FAILED, Status.SUCCESS]


# ── what was said stays as it was said ────────────────────────────────────────────────────────────────────────────────


async def test_changing_an_input_later_changes_neither_what_the_callee_has_nor_the_record(hub: Hub) -> None:
    """K12: what one agent gives another is said, not shared."""
    changed = asyncio.Event()
    given: dict[str, Any] = {"rows": [1, 2]}
    handoff = Handoff(data={"rows": [1, 2]}, prior_outputs={"x": {"rows": [1, 2]}}, constraints={"max": [1, 2]})
    inputs: list[object] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        await changed.wait()
        handed = brief.handoff
        inputs.extend([brief.input, handed.data, handed.prior_outputs["x"], handed.constraints["max"]])
        return "x"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(brief.delegate("b", input=given, handoff=handoff))
            for _ in range(3):
                await asyncio.sleep(0)
            for rows in (given["rows"], handoff.data["rows"], handoff.prior_outputs["x"]["rows"]):
                rows.append("changed")
            handoff.constraints["max"].append("changed")
            changed.set()
        return "x"

    async with hub:
        response = await hub.ask("a", user="u-1")
        request = [each.body for each in await records(hub, response.run) if isinstance(each.body, Request)][1]
    assert inputs == [{"rows": [1, 2]}, {"rows": [1, 2]}, {"rows": [1, 2]}, [1, 2]]
    assert request.handoff is not None
    assert (request.input, request.handoff.data) == ({"rows": [1, 2]}, {"rows": [1, 2]})


async def test_a_callee_that_changes_what_it_was_given_changes_neither_the_callers_nor_the_record(hub: Hub) -> None:
    """K12: in place, as code that tidies up its input does."""
    given: dict[str, Any] = {"rows": [1, 2]}
    handoff = Handoff(data={"rows": [1, 2]})

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        brief.input["rows"].append("changed")
        brief.handoff.data["rows"].append("changed")
        return "x"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        return (await brief.delegate("b", input=given, handoff=handoff)).unwrap()

    async with hub:
        response = await hub.ask("a", user="u-1")
        request = [each.body for each in await records(hub, response.run) if isinstance(each.body, Request)][1]
    assert (given, handoff.data) == ({"rows": [1, 2]}, {"rows": [1, 2]})
    assert request.handoff is not None
    assert request.input == {"rows": [1, 2]}
    assert request.handoff.data == {"rows": [1, 2]}


async def test_changing_a_result_later_changes_neither_what_the_caller_has_nor_the_record(hub: Hub) -> None:
    """K12: neither side can rewrite what was answered."""
    kept = Answer(
        {"rows": [1, 2]},
        artifacts=(Artifact(type="json", value={"rows": [1, 2]}),),
        metadata={"rows": [1, 2]},
    )

    @hub.agent("b")
    async def b(brief: Brief) -> Answer:
        return kept

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> list[object]:
        reply = await brief.delegate("b")
        for rows in (kept.result["rows"], kept.artifacts[0].value["rows"], kept.metadata["rows"]):
            rows.append("changed by the callee")
        got = [list(rows) for rows in (reply.result["rows"], reply.artifacts[0].value["rows"], reply.metadata["rows"])]
        for rows in (reply.result["rows"], reply.artifacts[0].value["rows"], reply.metadata["rows"]):
            rows.append("changed by the caller")
        return [got]

    async with hub:
        response = await hub.ask("a", user="u-1")
        answered = next(each.body for each in await records(hub, response.run) if isinstance(each.body, Response))
    assert response.unwrap() == [[[1, 2], [1, 2], [1, 2]]]
    assert answered.target == "b"
    assert answered.result == {"rows": [1, 2]}
    assert answered.artifacts[0].value == {"rows": [1, 2]}
    assert answered.metadata == {"rows": [1, 2]}


async def test_changing_a_part_later_does_not_change_what_was_reported(hub: Hub) -> None:
    """K12, K10: a partial answer is what it was when it was reported."""

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        rows = [1]
        brief.progress("one", partial=Answer(rows))
        rows.append(2)
        await asyncio.Event().wait()
        return "never"

    async with hub:
        response = await hub.ask("slow", user="u-1", deadline_ms=30)
    assert response.result == [1]


@asynccontextmanager
async def changed_afterwards(value: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    yield value
    value["rows"].append("changed")


async def test_changing_what_was_asked_at_the_root_changes_nothing(hub: Hub) -> None:
    """K12: the same holds between a program and its hub."""
    started, go_on = asyncio.Event(), asyncio.Event()
    inputs: list[object] = []

    @hub.agent("a")
    async def a(brief: Brief) -> dict[str, Any]:
        started.set()
        await go_on.wait()
        inputs.append(brief.input)
        return brief.input

    async with hub:
        async with changed_afterwards({"rows": [1]}) as given:
            asking = asyncio.create_task(hub.ask("a", input=given, user="u-1"))
            await started.wait()
        go_on.set()
        response = await asking
        response.result["rows"].append("changed")
        last = (await records(hub, response.run))[-1]
    assert inputs == [{"rows": [1]}]
    assert isinstance(last.body, Response)
    assert last.body.result == {"rows": [1]}


# ── the store fails ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_store_that_breaks_in_the_middle_leaves_nobody_waiting() -> None:
    """K12: the caller is answered, and the hub closes, though the end could not be recorded."""

    class Broken(MemoryStore):
        def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body, epoch: int = 0) -> None:
            if kind is Kind.RESULT and run != session:
                raise OSError("no")
            super().append(kind, at_ms, run, session, body, epoch)

    hub = Hub(store=Broken())
    hub.agent("b")(says("from b"))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        return (await brief.delegate("b")).unwrap()

    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context.get("exception")))
    async with asyncio.timeout(PATIENCE_S), hub:
        assert (await hub.ask("a", user="u-1")).unwrap() == "from b"
    gc.collect()
    assert [type(each) for each in complaints] == [OSError]
