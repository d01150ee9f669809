"""What agents can ask of each other: one, one after another, several at once, and instead of answering."""

import asyncio
from collections.abc import Callable

import pytest

from remit import (
    Answer,
    Brief,
    Call,
    Code,
    ContextFilter,
    File,
    Handoff,
    Hub,
    Limits,
    Source,
    Status,
    Usage,
)
from remit.protocol.envelope import Assignment, AssignmentOptions, Strategy, fields_of
from remit.protocol.records import Notice
from remit_testing.memory import MemoryStore
from samples import code_of


def says(text: str) -> Callable[[Brief], object]:
    """Return an agent that answers *text*, whatever it is asked."""

    async def agent(brief: Brief) -> str:
        return text

    return agent


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_agent_asks_another_and_uses_its_answer(hub: Hub) -> None:
    """X8: simple delegation. C1: a direct call in the same process."""

    @hub.agent("tag-ai")
    async def tag(brief: Brief) -> Answer:
        return Answer(
            {"categories": ["food", brief.input]},
            summary="two categories",
            confidence=0.8,
            sources=(Source(owner_scope="u-1", source_id="r-7", relevance=0.5),),
        )

    @hub.agent("prime-boss", may_call=["tag-ai"])
    async def prime(brief: Brief) -> str:
        reply = await brief.delegate("tag-ai", objective="Categorize", input="fuel")
        assert (reply.status, reply.target, reply.summary, reply.confidence) == (
            Status.SUCCESS,
            "tag-ai",
            "two categories",
            0.8,
        )
        assert reply.sources == (Source(owner_scope="u-1", source_id="r-7", relevance=0.5),)
        return " and ".join(reply.unwrap()["categories"])

    async with hub:
        response = await hub.ask("prime-boss", "Sort my receipts", user="u-1")
    assert (response.status, response.result, response.fault) == (Status.SUCCESS, "food and fuel", None)


async def test_each_step_of_a_chain_gets_the_result_of_the_one_before(hub: Hub) -> None:
    """X8: sequential chain; the last step also sees what all before it found."""

    @hub.agent("byte")
    async def byte(brief: Brief) -> dict[str, int]:
        return {"total": 12}

    @hub.agent("tag")
    async def tag(brief: Brief) -> str:
        assert brief.handoff.prior_agents == ("byte",)
        return f"food: {brief.input['total']}"

    @hub.agent("ledger")
    async def ledger(brief: Brief) -> str:
        assert brief.handoff.prior_agents == ("byte", "tag")
        assert brief.handoff.prior_outputs == {"byte": {"total": 12}, "tag": "food: 12"}
        assert brief.handoff.findings == ("known before",)
        return f"booked {brief.input}"

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[str]:
        replies = await brief.chain(
            [
                Call(target="byte", objective="extract"),
                Call(target="tag", objective="categorize"),
                Call(target="ledger", objective="book", handoff=Handoff(findings=("known before",))),
            ]
        )
        return [str(reply.result) for reply in replies]

    async with hub:
        response = await hub.ask("prime", "go", user="u-1")
    assert response.unwrap() == ["{'total': 12}", "food: 12", "booked food: 12"]


async def test_a_chain_ends_with_the_first_step_that_has_no_result(hub: Hub) -> None:
    """X8: what follows a failed step is not started."""
    ran: list[str] = []

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        raise ValueError("no receipt")

    @hub.agent("after")
    async def after(brief: Brief) -> str:
        ran.append(brief.objective)
        return "x"

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[str]:
        replies = await brief.chain([Call(target="after"), Call(target="breaks"), Call(target="after", objective="2")])
        return [reply.status for reply in replies]

    async with hub:
        response = await hub.ask("prime", "go", user="u-1")
    assert (response.result, ran) == (["success", "failed"], [""])


async def test_a_fan_out_runs_at_once_and_its_answers_come_in_the_order_asked(hub: Hub) -> None:
    """X8: parallel fan-out, with synthesis by the caller."""
    all_there = asyncio.Barrier(3)

    async def specialist(brief: Brief) -> str:
        await all_there.wait()
        return f"{brief.request.target} on {brief.objective}"

    for name in ("crystal", "tag", "ledger"):
        hub.agent(name)(specialist)

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> str:
        replies = await brief.fan_out(
            [Call(target=name, objective="taxes") for name in ("ledger", "crystal", "tag")],
        )
        return "; ".join(reply.unwrap() for reply in replies)

    async with hub:
        response = await hub.ask("prime", "go", user="u-1")
    assert response.unwrap() == "ledger on taxes; crystal on taxes; tag on taxes"


async def test_an_empty_fan_out_and_an_empty_chain_are_answered_with_nothing(hub: Hub) -> None:
    """X8: no calls, no responses, and no fault."""

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> int:
        return len(await brief.fan_out([])) + len(await brief.chain([]))

    async with hub:
        assert (await hub.ask("prime", user="u-1")).unwrap() == 0


async def test_one_that_fails_or_hangs_or_is_refused_does_not_take_the_others_down(hub: Hub) -> None:
    """C11: each parallel delegation has its own time-out and its own end."""
    hub.agent("fine")(says("fine"))

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        raise RuntimeError("broken")

    @hub.agent("hangs")
    async def hangs(brief: Brief) -> str:
        await asyncio.Event().wait()
        return "never"

    @hub.agent("prime", may_call=["fine", "breaks", "hangs"])
    async def prime(brief: Brief) -> list[tuple[str, str | None]]:
        replies = await brief.fan_out(
            [Call(target="hangs", deadline_ms=60), Call(target="breaks"), Call(target="fine", deadline_ms=20_000)]
        )
        replies += await brief.fan_out([Call(target="nobody"), Call(target="fine", objective="again")])
        return [(reply.status, reply.fault.code if reply.fault else None) for reply in replies]

    async with hub:
        response = await hub.ask("prime", user="u-1")
    assert response.unwrap() == [
        ["timeout", "TIMEOUT"],
        ["failed", "DELEGATION_FAILED"],
        ["success", None],
        ["refused", "AGENT_NOT_FOUND"],
        ["success", None],
    ]


# ── what the callee is told ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_callee_is_told_the_whole_context_of_its_delegation(hub: Hub) -> None:
    """C3: original query, chain, depth, time left, start, parent span, reason, refined_by, available delegates."""
    hub.agent("far")(says("far"))
    seen: dict[str, object] = {}

    @hub.agent("low", may_call=["far", "mid"])
    async def low(brief: Brief) -> str:
        request = brief.request
        seen["words"] = (brief.original_request, brief.objective, brief.input, request.reason, request.refined_by)
        seen["place"] = (brief.remit.chain, brief.remit.depth, request.origin, brief.user)
        seen["span"] = (request.parent, request.run, request.parent_session)
        seen["delegates"] = brief.available_delegates
        assert 0 < brief.time_left_ms() <= brief.remit.time_ms <= 20_000
        assert request.created_ms is not None
        return "done"

    @hub.agent("mid", may_call=["low"])
    async def mid(brief: Brief) -> str:
        seen["mid"] = (brief.request.id, brief.request.run, brief.request.session)
        reply = await brief.delegate(
            "low",
            objective="refined query",
            input={"page": 3},
            reason="Complex domain query",
            refined_by="mid",
            deadline_ms=20_000,
        )
        return reply.unwrap()

    @hub.agent("top", may_call=["mid"])
    async def top(brief: Brief) -> str:
        return (await brief.delegate("mid", objective="step 1")).unwrap()

    async with hub:
        response = await hub.ask("top", "what the user said", user="u-1")
    assert response.unwrap() == "done"
    assert seen["words"] == ("what the user said", "refined query", {"page": 3}, "Complex domain query", "mid")
    assert seen["place"] == (("top@local", "mid@local"), 2, "mid", "u-1")
    assert seen["span"] == seen["mid"]
    assert seen["delegates"] == ("far",), "an agent of the chain cannot be asked again, so it is not offered"


@pytest.mark.parametrize("caller", ["user", "boss"])
async def test_a_callee_gets_every_part_of_its_assignment_whoever_calls_it(hub: Hub, caller: str) -> None:
    seen: dict[str, object] = {}
    options: AssignmentOptions = {
        "input": {"page": 3},
        "capability": "READ",
        "session": "s-1",
        "handoff": Handoff(facts=("signed",)),
        "correlation": "c-1",
        "context": ContextFilter(last_messages=2),
        "files": (File(name="a.txt", media_type="text/plain", data=b"a"),),
        "hints": ("short",),
        "reason": "domain",
        "refined_by": "boss",
        "retry_of": "r-0",
        "context_tokens": 70,
    }

    @hub.agent("clerk", capabilities=["READ"])
    async def clerk(brief: Brief) -> int:
        seen.update(fields_of(Assignment, brief.request))
        return brief.remit.context_tokens

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> int:
        return (await brief.delegate("clerk", objective="read", **options)).unwrap()

    assert clerk
    assert boss
    async with hub:
        if caller == "user":
            response = await hub.ask("clerk", "read", user="u-1", **options)
        else:
            response = await hub.ask("boss", "read", user="u-1")
    assert response.unwrap() == 70
    session = str(seen.pop("session"))
    assert session.startswith("s-1") if caller == "user" else "/s-1~" in session, "an agent's is within its caller's"
    assert {**seen, "session": "s-1", "context_tokens": 70} == {"objective": "read", **options}


async def test_an_agent_that_may_not_delegate_is_offered_nobody(hub: Hub) -> None:
    """C3: the available delegates are those that the team and the remit both allow."""
    hub.agent("far")(says("far"))
    hub.agent("near")(says("near"))

    @hub.agent("callee", may_call=["far", "near"])
    async def callee(brief: Brief) -> list[str]:
        return sorted(brief.available_delegates)

    @hub.agent("prime", may_call=["callee"])
    async def prime(brief: Brief) -> list[list[str]]:
        return [
            (await brief.delegate("callee", objective="1")).unwrap(),
            (await brief.delegate("callee", objective="2", may_delegate=False)).unwrap(),
            (await brief.delegate("callee", objective="3", targets=["near"])).unwrap(),
        ]

    async with hub:
        response = await hub.ask("prime", user="u-1")
    assert response.unwrap() == [["far", "near"], [], ["near"]]


# ── an answer that is a delegation ────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_can_be_a_delegation_hop_after_hop(hub: Hub) -> None:
    """C4: A -> B -> C, carried out by the runtime, with the path in the response."""

    @hub.agent("c")
    async def c(brief: Brief) -> Answer:
        assert brief.remit.chain == ("a@local", "b@local")
        return Answer(f"c did {brief.objective}", confidence=0.7)

    @hub.agent("b", may_call=["c"])
    async def b(brief: Brief) -> Call:
        return Call(target="c", objective=f"{brief.objective}, refined", reason="c knows")

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Call:
        return Call(target="b", objective=brief.objective)

    async with hub:
        response = await hub.ask("a", "query", user="u-1")
        tree = await hub.delegations(response.run)
    assert (response.result, response.target, response.path) == ("c did query, refined", "a", ("a", "b", "c"))
    assert (response.confidence, response.status) == (0.7, Status.SUCCESS)
    assert [(each.origin, each.target, each.depth) for each in tree] == [("user", "a", 0), ("a", "b", 1), ("b", "c", 2)]


async def test_an_answer_can_be_several_delegations_that_become_one(hub: Hub) -> None:
    """C4: several are carried out at once; what succeeded is merged, and what did not is named."""

    @hub.agent("one")
    async def one(brief: Brief) -> Answer:
        return Answer({"price": 5}, confidence=0.4, sources=(Source(owner_scope="public", source_id="s"),))

    @hub.agent("two")
    async def two(brief: Brief) -> Answer:
        return Answer({"price": 5.0}, confidence=0.8, sources=(Source(owner_scope="public", source_id="s"),))

    @hub.agent("three")
    async def three(brief: Brief) -> Answer:
        raise ValueError("no")

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> list[Call]:
        return [Call(target=name, objective=brief.objective) for name in ("one", "three", "two")]

    async with hub:
        response = await hub.ask("a", "query", user="u-1")
    assert (response.status, response.result) == (Status.PARTIAL, '{"price":5}\n\n{"price":5.0}')
    assert response.confidence == pytest.approx(0.6)  # pyright: ignore[reportUnknownMemberType]
    assert (response.finished, response.unfinished) == (("one", "two"), ("three",))
    assert response.sources == (Source(owner_scope="public", source_id="s"),)
    assert response.metadata == {
        **{"aggregated": True, "responseCount": 2, "strategy": "merge-all"},
        **{"agreement": 1.0, "conflicts": []},
    }
    assert response.path[0] == response.target
    assert len(response.path) == 3, "and those through whom the parts came"


async def test_handing_on_is_guarded_like_every_other_call(hub: Hub) -> None:
    """C4: an agent cannot reach by its answer whom it may not call, nor hand on in a circle."""
    hub.agent("secret")(says("secret"))

    @hub.agent("sly", may_call=["back"])
    async def sly(brief: Brief) -> Call:
        return Call(target=brief.objective)

    @hub.agent("back", may_call=["sly"])
    async def back(brief: Brief) -> Call:
        return Call(target="sly", objective="secret")

    async with hub:
        forbidden = await hub.ask("sly", "secret", user="u-1")
        circle = await hub.ask("sly", "back", user="u-1")
    assert (forbidden.status, code_of(forbidden)) == (Status.REFUSED, Code.PERMISSION_DENIED)
    assert (circle.status, code_of(circle), circle.path) == (
        Status.REFUSED,
        Code.LOOP_DETECTED,
        ("sly", "back", "sly"),
    )


async def test_what_the_one_that_was_handed_the_work_spent_is_charged_to_the_one_that_handed_it_on(hub: Hub) -> None:
    """C4, X7: use is counted once on the way up."""

    @hub.agent("b")
    async def b(brief: Brief) -> Answer:
        return Answer("done", usage=Usage(prompt=30, completion=5))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Answer:
        return Answer(calls=(Call(target="b"),), usage=Usage(prompt=7))

    async with hub:
        response = await hub.ask("a", "x", user="u-1")
    assert response.usage == Usage(prompt=37, completion=5)


# ── budget and failure, as the caller sees them ───────────────────────────────────────────────────────────────────────


async def test_a_failed_request_returns_at_once_with_code_and_message(hub: Hub) -> None:
    """K10: the caller is told why, whether a retry may help, and what to do; it need not wait for the deadline."""

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        brief.progress("half way", partial=Answer("first half", finished=("pages 1-5",), unfinished=("pages 6-9",)))
        raise ValueError("page 6 is torn")

    async with hub:
        response = await hub.ask("breaks", user="u-1")
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.FAILED, Code.DELEGATION_FAILED)
    assert response.fault.message == "breaks raised ValueError: page 6 is torn"
    assert response.fault.recoverable
    assert response.fault.suggestion
    assert (response.result, response.finished, response.unfinished) == ("first half", ("pages 1-5",), ("pages 6-9",))
    assert response.duration_ms < 5_000


async def test_a_part_that_takes_work_is_made_only_if_it_comes_to_that(hub: Hub) -> None:
    """K10: a function that makes it is called once the agent has ended without an answer, and not before."""
    made: list[str] = []

    def part(name: str) -> Callable[[], Answer]:
        def make() -> Answer:
            made.append(name)
            return Answer(f"half of {name}", finished=("1",), unfinished=("2",))

        return make

    @hub.agent("works")
    async def works(brief: Brief) -> str:
        brief.progress("at it", partial=part("works"))
        return "done"

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        brief.progress("at it", partial=part("breaks"))
        brief.progress("still at it")
        raise ValueError("page 6 is torn")

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        brief.progress("at it", partial=Answer("nothing yet"))
        brief.progress("at it", partial=part("slow"))
        await asyncio.Event().wait()
        return "never"

    async with hub:
        assert (await hub.ask("works", user="u-1")).result == "done"
        assert made == []
        failed = await hub.ask("breaks", user="u-1")
        late = await hub.ask("slow", user="u-1", deadline_ms=50)
    assert (failed.status, failed.result) == (Status.FAILED, "half of breaks")
    assert (late.status, late.result) == (Status.TIMEOUT, "half of slow")
    assert (late.finished, late.unfinished) == (("1",), ("2",))
    assert made == ["breaks", "slow"]


NO_PARTS: dict[str, Callable[[], object]] = {
    "it raises": lambda: 1 // 0,
    "it is no answer": lambda: "half",
    "it is too large": lambda: Answer("x" * 5_000_000),
}


@pytest.mark.parametrize("make", NO_PARTS.values(), ids=NO_PARTS)
async def test_a_part_that_cannot_be_made_is_noticed_and_left_out(hub: Hub, make: Callable[[], Answer]) -> None:
    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        brief.progress("at it", partial=make)
        raise ValueError("page 6 is torn")

    async with hub:
        response = await hub.ask("breaks", user="u-1")
        notices = [each.body for each in await hub.store.records() if isinstance(each.body, Notice)]
    assert response.fault is not None
    assert (response.fault.message, response.result) == ("breaks raised ValueError: page 6 is torn", None)
    assert [notice.code for notice in notices] == [Code.RESULT_VALIDATION_FAILED]


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


WRONG_CALLS: dict[str, dict[str, object]] = {
    "objective of another type": {"objective": 3},
    "objective too long": {"objective": "x" * 200_000, "max_tokens": 50_000},
    "objective that is no text": {"objective": "\ud800"},
    "tokens of another type": {"max_tokens": "many"},
    "negative tokens": {"max_tokens": -1},
    "time of another type": {"deadline_ms": 1.5},
    "handoff of another type": {"handoff": "told"},
    "tools of another type": {"tools": 5},
    "reason of another type": {"reason": object()},
    "hints of another type": {"hints": ("a", 3)},
    "priority of another type": {"priority": "URGENT"},
    "context of another type": {"context": "everything"},
    "session too long": {"session": "x" * 300},
    "empty name": {"refined_by": ""},
    "input that is not JSON": {"input": object()},
    "input with a number too large": {"input": 2**70},
    "input nested too deep": {"input": nested(5_000)},
    "input with NaN": {"input": {"x": float("nan")}},
}


@pytest.mark.parametrize("options", WRONG_CALLS.values(), ids=WRONG_CALLS.keys())
async def test_an_agent_that_delegates_always_gets_a_response(hub: Hub, options: dict[str, object]) -> None:
    """C1: whatever is wrong with a call, the answer is a value that says so, and the record of it can be read."""
    hub.agent("b")(says("b"))

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> str:
        wrong = await brief.delegate("b", **options)  # pyright: ignore[reportArgumentType]
        assert wrong.fault is not None, "the call was carried out"
        assert wrong.status is Status.REFUSED
        assert wrong.fault.code in (Code.INPUT_VALIDATION_FAILED, Code.TOO_LARGE), wrong.fault
        return (await brief.delegate("b", objective="fine")).unwrap()

    async with hub:
        response = await hub.ask("a", user="u-1")
        assert response.unwrap() == "b"
        delegations = await hub.delegations(response.run)
    assert [each.status for each in delegations] == [Status.SUCCESS, Status.REFUSED, Status.SUCCESS]


@pytest.mark.parametrize("target", ["", "x" * 500, "a\nb", "user", "*"])
async def test_a_name_that_is_no_agent_is_refused_and_the_record_stays_readable(hub: Hub, target: str) -> None:
    """O5: the target must exist."""

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> str:
        reply = await brief.delegate(target)
        assert reply.status is Status.REFUSED
        return str(code_of(reply))

    async with hub:
        response = await hub.ask("a", user="u-1")
        assert response.ok, response
        assert response.result in ("AGENT_NOT_FOUND", "INPUT_VALIDATION_FAILED")
        assert len(await hub.delegations(response.run)) == 2


async def test_a_run_has_300_seconds_and_a_delegation_30_unless_someone_says_otherwise(hub: Hub) -> None:
    """O10, X6: the defaults, and who may change them."""
    seen: dict[str, int] = {}

    async def tells(brief: Brief) -> int:
        seen[brief.objective] = brief.remit.time_ms
        return brief.remit.time_ms

    hub.agent("tells")(tells)
    hub.agent("quick", time_ms=700)(tells)

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> int:
        await brief.delegate("tells", objective="default")
        await brief.delegate("tells", objective="asked", deadline_ms=15_000)
        await brief.delegate("quick", objective="card")
        await brief.delegate("quick", objective="caller over card", deadline_ms=900)
        return brief.remit.time_ms

    async with hub:
        response = await hub.ask("prime", user="u-1")
        short = await hub.ask("tells", user="u-1", deadline_ms=15_000)
    assert (response.result, short.result) == (300_000, 15_000)
    assert seen | {"": 0} == {"": 0, "default": 30_000, "asked": 15_000, "card": 700, "caller over card": 900}


async def test_a_team_may_set_other_limits(make_hub: Callable[..., Hub]) -> None:
    """O10: every default is the team's to change."""
    hub = make_hub(limits=Limits(root_time_ms=9_000, delegation_time_ms=4_000))

    @hub.agent("b")
    async def b(brief: Brief) -> int:
        return brief.remit.time_ms

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> list[int]:
        return [brief.remit.time_ms, (await brief.delegate("b")).unwrap()]

    async with hub:
        assert (await hub.ask("a", user="u-1")).unwrap() == [9_000, 4_000]


# ── An answer that hands on cannot blend: it names no model, and is refused instead of merged ─────────────────────────


async def test_handing_on_with_ai_blend_is_refused_before_anybody_is_asked() -> None:
    """C5: never silently merged; one call alone needs no blending."""
    hub, objectives = Hub(store=MemoryStore()), list[str]()

    @hub.agent("one")
    async def one(brief: Brief) -> str:
        objectives.append(brief.objective)
        return "one"

    @hub.agent("boss", may_call=["one"])
    async def boss(brief: Brief) -> Answer:
        calls = tuple(Call(target="one", objective=f"Do {number}") for number in range(int(brief.text)))
        return Answer(calls=calls, strategy=Strategy.AI_BLEND)

    assert one
    assert boss
    async with hub:
        several = await hub.ask("boss", "2", user="u-1")
        assert objectives == []
        single = await hub.ask("boss", "1", user="u-1")
    assert several.fault is not None
    assert several.fault.code is Code.RESULT_VALIDATION_FAILED
    assert "brief.combine" in (several.fault.suggestion or "")
    assert single.unwrap() == "one"
