"""How far, how wide and how often work may be passed on, and what is said when it may not."""

import asyncio
from collections.abc import Callable

import pytest

from remit import Answer, Brief, Call, Code, Hub, Limits, Response, Status
from waiting import PATIENCE_S


def relay(to: str) -> Callable[[Brief], object]:
    """Return an agent that asks *to* the same and passes on its answer, or the code of what went wrong."""

    async def agent(brief: Brief) -> object:
        reply = await brief.delegate(to, objective=brief.objective)
        return reply.result if reply.fault is None else reply.fault.code

    return agent


def says(text: str) -> Callable[[Brief], object]:
    async def agent(brief: Brief) -> str:
        return text

    return agent


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
        told = await hub.delegations(response.run)
    (refusal,) = refusals
    assert refusal.fault is not None
    assert (response.result, ran) == ("extracted without tags", ["prime", "byte"])
    assert (refusal.status, refusal.fault.code) == (Status.REFUSED, Code.MAX_DEPTH_EXCEEDED)
    assert refusal.fault.message == (
        "Delegation depth limit reached (1/1). Cannot delegate further. Return results to parent."
    )
    assert [(each.target, each.depth, each.status) for each in told] == [
        ("prime", 0, Status.SUCCESS),
        ("byte", 1, Status.SUCCESS),
        ("tag", 2, Status.REFUSED),
    ]


async def test_five_hops_are_allowed_and_the_sixth_is_not(hub: Hub) -> None:
    """C6, O5: depth 5 unless someone says less; nobody can say more."""
    for number in range(6):
        hub.agent(f"a{number}", may_call=["*"])(relay(f"a{number + 1}"))
    hub.agent("a6")(says("reached"))

    async with hub:
        deep = await hub.ask("a0", "x", user="u-1")
        near = await hub.ask("a1", "x", user="u-1")
        asked_for_more = await hub.ask("a0", "x", user="u-1", max_depth=50)
    assert (near.result, deep.result, asked_for_more.result) == ("reached", "MAX_DEPTH_EXCEEDED", "MAX_DEPTH_EXCEEDED")


async def test_a_caller_can_lower_the_depth_below_it_and_never_raise_it(hub: Hub) -> None:
    """X3: every hop only narrows."""
    hub.agent("c")(says("c"))
    hub.agent("b", may_call=["c"])(relay("c"))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> list[object]:
        return [(await brief.delegate("b", objective=str(each), max_depth=each)).result for each in (1, 2, 50)]

    async with hub:
        wide = await hub.ask("a", user="u-1")
        narrow = await hub.ask("a", user="u-1", max_depth=1)
    assert wide.result == ["MAX_DEPTH_EXCEEDED", "c", "c"]
    assert narrow.result == ["MAX_DEPTH_EXCEEDED"] * 3


async def test_an_agent_may_have_a_depth_of_its_own(hub: Hub) -> None:
    """O5: `max_sub_agent_depth` counts the levels below that agent."""
    hub.agent("d")(says("d"))
    hub.agent("c", may_call=["d"])(relay("d"))
    hub.agent("flat", may_call=["c", "d"], max_sub_agent_depth=1)(relay("c"))
    hub.agent("none", may_call=["c"], max_sub_agent_depth=0)(relay("c"))
    hub.agent("top", may_call=["flat"])(relay("flat"))

    async with hub:
        results = [(await hub.ask(name, "x", user="u-1")).result for name in ("flat", "none", "top")]
    # "flat" reaches c, and c may not go on to d.
    assert results == ["MAX_DEPTH_EXCEEDED"] * 3
    async with hub:
        told = await hub.delegations((await hub.ask("flat", "x", user="u-1")).run)
    assert [(each.target, each.status) for each in told] == [
        ("flat", Status.SUCCESS),
        ("c", Status.SUCCESS),
        ("d", Status.REFUSED),
    ]


async def test_a_chain_of_agents_has_a_length_of_its_own(make_hub: Callable[..., Hub]) -> None:
    """C6: CHAIN_TOO_LONG, with the chain in the message."""
    hub = make_hub(limits=Limits(max_depth=20, max_chain=2))
    for number in range(4):
        hub.agent(f"a{number}", may_call=["*"])(relay(f"a{number + 1}"))
    hub.agent("a4")(says("reached"))

    async with hub:
        response = await hub.ask("a0", "x", user="u-1")
        refusal = (await hub.delegations(response.run))[-1]
    assert refusal.fault is not None
    assert (refusal.fault.code, refusal.target) == (Code.CHAIN_TOO_LONG, "a3")
    assert "a0@local -> a1@local -> a2@local" in refusal.fault.message


# ── loops and cycles ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_agent_stands_twice_in_a_chain(hub: Hub) -> None:
    """C6: A -> B -> A is a loop, and so is A -> A."""
    hub.agent("a", may_call=["*"])(relay("b"))
    hub.agent("b", may_call=["*"])(relay("a"))
    hub.agent("self", may_call=["*"])(relay("self"))

    async with hub:
        circle = await hub.ask("a", "x", user="u-1")
        itself = await hub.ask("self", "x", user="u-1")
        refusal = (await hub.delegations(circle.run))[-1]
    assert (circle.result, itself.result) == ("LOOP_DETECTED", "LOOP_DETECTED")
    assert refusal.fault is not None
    assert "a@local -> b@local -> a@local" in refusal.fault.message


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
    hub.agent("byte")(says("x"))
    hub.agent("tag")(says("x"))

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


async def test_a_capability_with_the_same_inputs_is_the_same_call_and_with_others_it_is_not(hub: Hub) -> None:
    """X5: the call key is target, capability, objective and input."""
    hub.agent("sum", capabilities=["ADD", "MULTIPLY"])(says("x"))

    @hub.agent("prime", may_call=["sum"])
    async def prime(brief: Brief) -> list[str]:
        replies = [
            await brief.delegate("sum", capability="ADD", input={"a": 1, "b": 2}, objective="one"),
            await brief.delegate("sum", capability="ADD", input={"b": 2, "a": 1}, objective="One "),
            await brief.delegate("sum", capability="ADD", input={"a": 1, "b": 3}, objective="one"),
            await brief.delegate("sum", capability="MULTIPLY", input={"a": 1, "b": 2}, objective="one"),
        ]
        return [reply.fault.code if reply.fault else reply.status for reply in replies]

    async with hub:
        response = await hub.ask("prime", user="u-1")
    assert response.result == ["success", "CYCLE_DETECTED", "success", "success"]


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
        async with asyncio.timeout(PATIENCE_S):
            response = await hub.ask("prime", user="u-1")
    if end == "refused":
        assert response.result == [end, "half"]
    else:
        assert response.result == [end, "at last"]


async def test_the_same_objective_from_another_place_in_the_tree_is_no_cycle(hub: Hub) -> None:
    """X5: a cycle is judged in the frame of one caller."""
    hub.agent("byte")(says("x"))
    hub.agent("other", may_call=["byte"])(relay("byte"))

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[object]:
        return [
            (await brief.delegate("byte", objective="extract")).unwrap(),
            (await brief.delegate("other", objective="extract")).unwrap(),
        ]

    async with hub:
        assert (await hub.ask("prime", user="u-1")).unwrap() == ["x", "x"]


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
        told = await hub.delegations(response.run)
    assert (response.result, sorted(ran)) == ("success,success,success", ["byte", "crystal", "tag"])
    assert [each.status for each in told[1:5]] == [Status.REFUSED] * 4, "refusals are in the record"


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


async def test_only_an_agent_that_may_call_calls_and_only_whom_it_may(hub: Hub) -> None:
    """O5: default deny; `allow_sub_agent_calls` alone allows every agent, and False forbids what `may_call` names."""
    hub.agent("open")(says("x"))
    hub.agent("closed")(says("x"))
    hub.agent("nobody")(relay("open"))
    hub.agent("some", may_call=["open"])(relay("closed"))
    hub.agent("muted", may_call=["open"], allow_sub_agent_calls=False)(relay("open"))
    hub.agent("allowed", may_call=["open"], allow_sub_agent_calls=True)(relay("open"))
    hub.agent("only-flag", allow_sub_agent_calls=True)(relay("open"))

    async with hub:
        results = {
            name: (await hub.ask(name, "x", user="u-1")).result
            for name in ("nobody", "some", "muted", "allowed", "only-flag")
        }
    assert results == {
        "nobody": "PERMISSION_DENIED",
        "some": "PERMISSION_DENIED",
        "muted": "PERMISSION_DENIED",
        "allowed": "x",
        "only-flag": "x",
    }


async def test_the_target_must_exist_and_a_near_name_is_offered(hub: Hub) -> None:
    """O5: an unknown target is refused, asked for by a user or by an agent."""
    hub.agent("byte-doc")(says("x"))
    hub.agent("prime", may_call=["*"])(relay("byte-dok"))

    async with hub:
        unknown = await hub.ask("byte-dok", "x", user="u-1")
        nested = await hub.ask("prime", "x", user="u-1")
    assert unknown.fault is not None
    assert (unknown.status, unknown.fault.code) == (Status.REFUSED, Code.AGENT_NOT_FOUND)
    assert "did you mean `byte-doc`?" in unknown.fault.message
    assert nested.result == "AGENT_NOT_FOUND"


async def test_a_callee_asked_not_to_delegate_cannot_and_neither_can_those_below(hub: Hub) -> None:
    """O5: NESTED_CALLS_FORBIDDEN; the ban cannot be lifted on the way down."""
    hub.agent("c")(says("x"))
    hub.agent("b", may_call=["c"])(relay("c"))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> object:
        return (await brief.delegate("b", objective="x", may_delegate=False)).result

    async with hub:
        direct = await hub.ask("b", "x", user="u-1", may_delegate=False)
        nested = await hub.ask("a", "x", user="u-1")
    assert (direct.result, nested.result) == ("NESTED_CALLS_FORBIDDEN", "NESTED_CALLS_FORBIDDEN")


async def test_targets_named_by_a_caller_bound_everything_below(hub: Hub) -> None:
    """O5: a callee reaches only whom its card and every remit above it name."""
    hub.agent("d")(says("d"))
    hub.agent("c", may_call=["*"])(relay("d"))
    hub.agent("b", may_call=["*"])(relay("c"))

    @hub.agent("widens", may_call=["*"])
    async def widens(brief: Brief) -> object:
        return (await brief.delegate("c", objective="x", targets=["d"])).result

    async with hub:
        bounded = await hub.ask("b", "x", user="u-1", targets=["c"])
        widened = await hub.ask("widens", "x", user="u-1", targets=["c"])
        free = await hub.ask("b", "x", user="u-1", targets=["c", "d"])
    assert (bounded.result, widened.result, free.result) == ("PERMISSION_DENIED", "PERMISSION_DENIED", "d")


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
        told: list[list[object]] = []
        for reply in replies:
            assert reply.fault is not None
            assert reply.fault.suggestion
            told.append([reply.status, reply.fault.code, reply.fault.recoverable])
        return told

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


async def test_an_agent_that_is_unavailable_says_when_to_come_back(hub: Hub) -> None:
    """C6: DELEGATION_UNAVAILABLE after too many failures in a row."""

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        raise ValueError("x")

    async with hub:
        for number in range(5):
            await hub.ask("breaks", str(number), user="u-1")
        response = await hub.ask("breaks", "once more", user="u-1")
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.REFUSED, Code.DELEGATION_UNAVAILABLE)
    assert response.fault.recoverable
    assert response.fault.retry_after_ms
