"""How far, how wide and how often work may be passed on, and what is said when it may not."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from remit import Answer, Brief, Call, Code, Hub, Response, Status
from waiting import PATIENCE_S


def relay(to: str, **options: Any) -> Callable[[Brief], object]:
    """Return an agent that asks *to* the same and passes on its answer, or the code of what went wrong."""

    async def agent(brief: Brief) -> object:
        reply = await brief.delegate(to, objective=brief.objective, **options)
        return reply.result if reply.fault is None else reply.fault.code

    return agent


async def reached(brief: Brief) -> str:
    return "reached"


ALL, MUTE, FLAG = {"may_call": ["*"]}, {"allow_sub_agent_calls": False}, {"allow_sub_agent_calls": True}
# Each agent asks another one: its name, whom it asks, what its card says, and how it asks.
TEAM: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    *((f"a{number}", f"a{number + 1}", ALL, {}) for number in range(6)),
    ("b", "a6", ALL, {}),
    ("lowers-to-1", "b", ALL, {"max_depth": 1}),
    ("lowers-to-2", "b", ALL, {"max_depth": 2}),
    ("raises", "b", ALL, {"max_depth": 50}),
    ("flat", "b", ALL | {"max_sub_agent_depth": 1}, {}),
    ("none", "a6", ALL | {"max_sub_agent_depth": 0}, {}),
    ("asks-flat", "flat", ALL, {}),
    ("to", "fro", ALL, {}),
    ("fro", "to", ALL, {}),
    ("self", "self", ALL, {}),
    ("nobody", "a6", {}, {}),
    ("another", "a6", {"may_call": ["b"]}, {}),
    ("muted", "a6", ALL | MUTE, {}),
    ("allowed", "a6", {"may_call": ["a6"]} | FLAG, {}),
    ("only-flag", "a6", FLAG, {}),
    ("misspells", "a7", ALL, {}),
    ("forbids", "b", ALL, {"may_delegate": False}),
    ("asks-b", "b", ALL, {}),
    ("widens", "b", ALL, {"targets": ["a6"]}),
]


@pytest.mark.parametrize(
    ("agent", "options", "result"),
    [
        # C6, O5: depth 5 unless someone says less; nobody can say more.
        ("a0", {}, "MAX_DEPTH_EXCEEDED"),
        ("a1", {}, "reached"),
        ("a0", {"max_depth": 50}, "MAX_DEPTH_EXCEEDED"),
        # X3: every hop only narrows.
        ("lowers-to-1", {}, "MAX_DEPTH_EXCEEDED"),
        ("lowers-to-2", {}, "reached"),
        ("raises", {}, "reached"),
        ("raises", {"max_depth": 1}, "MAX_DEPTH_EXCEEDED"),
        # O5: `max_sub_agent_depth` counts the levels below that agent.
        ("flat", {}, "MAX_DEPTH_EXCEEDED"),
        ("none", {}, "MAX_DEPTH_EXCEEDED"),
        ("asks-flat", {}, "MAX_DEPTH_EXCEEDED"),
        # C6: A -> B -> A is a loop, and so is A -> A.
        ("to", {}, "LOOP_DETECTED"),
        ("self", {}, "LOOP_DETECTED"),
        # O5: default deny; the flag alone allows every agent, and False forbids what `may_call` names.
        ("nobody", {}, "PERMISSION_DENIED"),
        ("another", {}, "PERMISSION_DENIED"),
        ("muted", {}, "PERMISSION_DENIED"),
        ("allowed", {}, "reached"),
        ("only-flag", {}, "reached"),
        # O5: the target must exist.
        ("misspells", {}, "AGENT_NOT_FOUND"),
        # O5: the ban on nested calls cannot be lifted on the way down.
        ("b", {"may_delegate": False}, "NESTED_CALLS_FORBIDDEN"),
        ("forbids", {}, "NESTED_CALLS_FORBIDDEN"),
        # O5: a callee reaches only whom its card and every remit above it name.
        ("asks-b", {"targets": ["b"]}, "PERMISSION_DENIED"),
        ("widens", {"targets": ["b"]}, "PERMISSION_DENIED"),
        ("asks-b", {"targets": ["b", "a6"]}, "reached"),
    ],
)
async def test_an_agent_reaches_only_whom_its_place_its_card_and_its_remit_allow(
    hub: Hub, agent: str, options: dict[str, Any], result: str
) -> None:
    hub.agent("a6")(reached)
    for name, to, card, call in TEAM:
        hub.agent(name, **card)(relay(to, **call))
    async with hub:
        assert (await hub.ask(agent, "x", user="u-1", **options)).result == result


# ── depth ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_second_hop_is_refused_where_one_is_allowed(hub: Hub) -> None:
    """X3: user -> Prime (0) -> Byte (1) runs, -> Tag (2) is refused, and Byte goes on without it."""
    ran: list[str] = []
    refusals: list[Response] = []

    @hub.agent("tag")
    async def tag(brief: Brief) -> str:
        ran.append("tag")
        return "tagged"

    @hub.agent("byte", may_call=["tag"])
    async def byte(brief: Brief) -> str:
        ran.append("byte")
        refusals.append(await brief.delegate("tag", objective="categorize"))
        return "extracted without tags"

    @hub.agent("prime", may_call=["byte"])
    async def prime(brief: Brief) -> str:
        ran.append("prime")
        return (await brief.delegate("byte", objective="extract")).unwrap()

    async with hub:
        response = await hub.ask("prime", "receipt", user="u-1", max_depth=1)
        delegations = await hub.delegations(response.run)
    (refusal,) = refusals
    assert refusal.fault is not None
    assert (response.result, ran) == ("extracted without tags", ["prime", "byte"])
    assert (refusal.status, refusal.fault.code) == (Status.REFUSED, Code.MAX_DEPTH_EXCEEDED)
    assert refusal.fault.message == (
        "Delegation depth limit reached (1/1). Cannot delegate further. Return results to parent."
    )
    assert [(each.target, each.depth, each.status) for each in delegations] == [
        ("prime", 0, Status.SUCCESS),
        ("byte", 1, Status.SUCCESS),
        ("tag", 2, Status.REFUSED),
    ]


# ── loops and cycles ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_objective_is_refused_while_it_is_in_progress(hub: Hub) -> None:
    """X5: (origin, target, objective) in flight is a cycle; white space and case alone make no other objective."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("byte")
    async def byte(brief: Brief) -> str:
        started.set()
        await go_on.wait()
        return "extracted"

    @hub.agent("prime", may_call=["byte"])
    async def prime(brief: Brief) -> str:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            first = group.create_task(brief.delegate("byte", objective="extract receipt"))
            await started.wait()
            second = await brief.delegate("byte", objective=" Extract  receipt")
            go_on.set()
        assert second.fault is not None
        assert second.fault.code is Code.CYCLE_DETECTED
        assert second.fault.message.startswith("Cycle detected: prime -> byte")
        assert second.fault.suggestion
        return first.result().unwrap()

    async with hub:
        assert (await hub.ask("prime", user="u-1")).unwrap() == "extracted"


async def test_the_same_objective_is_refused_after_it_succeeded_and_another_is_not(hub: Hub) -> None:
    """X5: the document's own example."""
    hub.agent("byte")(reached)
    hub.agent("tag")(reached)

    @hub.agent("prime", may_call=["byte", "tag"])
    async def prime(brief: Brief) -> list[str]:
        replies = [
            await brief.delegate("byte", objective="extract receipt"),
            await brief.delegate("byte", objective="extract receipt"),
            await brief.delegate("byte", objective="analyze document"),
            await brief.delegate("tag", objective="extract receipt"),
            *await brief.fan_out([Call(target="tag", objective="twice"), Call(target="tag", objective="twice")]),
        ]
        return [reply.fault.code if reply.fault else reply.status for reply in replies]

    async with hub:
        first = await hub.ask("prime", user="u-1")
        second = await hub.ask("prime", user="u-1")
    wanted = ["success", "CYCLE_DETECTED", "success", "success", "success", "CYCLE_DETECTED"]
    assert first.result == wanted
    assert second.result == wanted, "what one run has asked is no cycle in another"


@pytest.mark.parametrize("end", ["failed", "timeout", "partial", "cancelled", "refused"])
async def test_what_did_not_succeed_may_be_tried_again(hub: Hub, end: str) -> None:
    """X5: a failed, timed-out, partial or cancelled attempt is no reason to refuse the next."""
    attempts: list[str] = []

    @hub.agent("byte", tools=[])
    async def byte(brief: Brief) -> Answer:
        attempts.append(brief.request.id)
        if len(attempts) > 1:
            return Answer("at last")
        if end == "failed":
            raise ValueError("bad luck")
        if end == "cancelled":
            hub.cancel(brief.request.id)
        if end in ("cancelled", "timeout"):
            await asyncio.Event().wait()
        return Answer("half", unfinished=("the rest",))

    @hub.agent("prime", may_call=["byte"])
    async def prime(brief: Brief) -> list[str]:
        refused = ["write"] if end == "refused" else None
        time_ms = 50 if end == "timeout" else None
        first = await brief.delegate("byte", objective="extract", deadline_ms=time_ms, tools=refused)
        second = await brief.delegate("byte", objective="extract")
        return [first.status, second.unwrap()]

    async with hub:
        response = await hub.ask("prime", user="u-1")
    if end == "refused":
        assert response.result == [end, "half"]
    else:
        assert response.result == [end, "at last"]


async def test_the_same_objective_from_another_place_in_the_tree_is_no_cycle(hub: Hub) -> None:
    """X5: a cycle is judged in the frame of one caller."""
    hub.agent("byte")(reached)
    hub.agent("other", may_call=["byte"])(relay("byte"))

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[object]:
        return [
            (await brief.delegate("byte", objective="extract")).unwrap(),
            (await brief.delegate("other", objective="extract")).unwrap(),
        ]

    async with hub:
        assert (await hub.ask("prime", user="u-1")).unwrap() == ["reached", "reached"]


# ── fan-out ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_four_at_once_are_refused_whole_before_any_starts(hub: Hub) -> None:
    """X4: the limit is in the message, with the advice to choose the most relevant."""
    ran: list[str] = []

    async def worker(brief: Brief) -> str:
        ran.append(brief.request.target)
        return "x"

    names = ("byte", "tag", "crystal", "ledger")
    for name in names:
        hub.agent(name)(worker)

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> str:
        refusals = await brief.fan_out([Call(target=name, objective="x") for name in names])
        assert len(refusals) == 4
        for refusal in refusals:
            assert refusal.fault is not None
            assert (refusal.status, refusal.fault.code) == (Status.REFUSED, Code.FAN_OUT_EXCEEDED)
            assert "(4/3)" in refusal.fault.message
            assert "Choose the top 3 most relevant" in refusal.fault.message
            assert refusal.fault.suggestion == "Ask the others after these have answered."
        assert ran == []
        replies = await brief.fan_out([Call(target=name, objective="x") for name in names[:3]])
        return ",".join(reply.status for reply in replies)

    async with hub:
        response = await hub.ask("prime", user="u-1")
        delegations = await hub.delegations(response.run)
    assert (response.result, sorted(ran)) == ("success,success,success", ["byte", "crystal", "tag"])
    assert [each.status for each in delegations[1:5]] == [Status.REFUSED] * 4, "refusals are in the record"


async def test_a_fourth_call_beside_three_in_flight_is_refused_too(hub: Hub) -> None:
    """X4: the limit counts what is under way, however it was started."""
    waiting, go_on = asyncio.Semaphore(0), asyncio.Event()

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        waiting.release()
        await go_on.wait()
        return "x"

    @hub.agent("prime", may_call=["worker"])
    async def prime(brief: Brief) -> list[str]:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            first = [group.create_task(brief.delegate("worker", objective=str(number))) for number in range(2)]
            for _ in first:
                await waiting.acquire()
            two_more = await brief.fan_out([Call(target="worker", objective=each) for each in ("a", "b")])
            third = group.create_task(brief.delegate("worker", objective="third"))
            await waiting.acquire()
            fourth = await brief.delegate("worker", objective="fourth")
            go_on.set()
        last = await brief.delegate("worker", objective="fourth")
        replies = [*(task.result() for task in (*first, third)), *two_more, fourth, last]
        return [reply.fault.code if reply.fault else reply.status for reply in replies]

    async with hub:
        response = await hub.ask("prime", user="u-1")
    assert response.unwrap() == [*["success"] * 3, *["FAN_OUT_EXCEEDED"] * 3, "success"]


async def test_a_fan_out_is_refused_whole_even_if_room_comes_free_while_it_is_judged(hub: Hub) -> None:
    """X4: none of those refused may start after all, and each call has its response."""
    started, go_on = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        ran.append(brief.objective)
        if brief.objective == "first":
            started.set()
            await go_on.wait()
        return "x"

    @hub.agent("prime", may_call=["worker"])
    async def prime(brief: Brief) -> list[str]:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(brief.delegate("worker", objective="first"))
            await started.wait()
            # Naming a session makes the judging wait for the store, and that is when the first one ends.
            go_on.set()
            calls = [Call(target="worker", objective=str(number), session=f"s-{number}") for number in range(3)]
            replies = await brief.fan_out(calls)
        return [reply.fault.code if reply.fault else reply.status for reply in replies]

    async with hub:
        response = await hub.ask("prime", user="u-1")
    assert (response.unwrap(), ran) == (["FAN_OUT_EXCEEDED"] * 3, ["first"])


# ── permission to delegate ────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_refusal_says_whether_it_can_be_recovered_from_and_what_to_do(hub: Hub) -> None:
    """C6: code, recoverable and suggestion, as the caller gets them."""

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        raise ValueError("x")

    @hub.agent("hangs")
    async def hangs(brief: Brief) -> str:
        await asyncio.Event().wait()
        return "never"

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[list[object]]:
        replies = [
            await brief.delegate("breaks"),
            await brief.delegate("hangs", deadline_ms=40),
            await brief.delegate("prime"),
            await brief.delegate("breaks", max_depth=0),
            await brief.delegate("hangs", deadline_ms=5),
            await brief.delegate("nobody"),
        ]
        refusals: list[list[object]] = []
        for reply in replies:
            assert reply.fault is not None
            assert reply.fault.suggestion
            refusals.append([reply.status, reply.fault.code, reply.fault.recoverable])
        return refusals

    async with hub:
        response = await hub.ask("prime", user="u-1")
    assert response.unwrap() == [
        ["failed", "DELEGATION_FAILED", True],
        ["timeout", "TIMEOUT", True],
        ["refused", "LOOP_DETECTED", False],
        ["refused", "MAX_DEPTH_EXCEEDED", False],
        ["timeout", "TIMEOUT", True],
        ["refused", "AGENT_NOT_FOUND", False],
    ]
