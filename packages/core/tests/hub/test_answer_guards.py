"""An answer is judged before its caller gets it, by the same fold of guards as calls: wherever the callee runs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remit import (
    ALLOW,
    Answer,
    Ask,
    Brief,
    Capability,
    Code,
    Decision,
    Facts,
    Hub,
    Request,
    Status,
    Verdict,
    on_answer,
    refuse,
)
from remit.policy.verdict import Guard, Rewrite
from remit.ports import Question
from remit.protocol.envelope import Json
from remit.protocol.records import Approval, Delta, Notice
from samples import code_of
from waiting import PATIENCE_S, eventually

MakeHub = Callable[..., Hub]
CARD = "4111 1111 1111 1111"


@on_answer
def judge(request: Request, facts: Facts) -> Verdict:
    """The answer is fit for its caller."""
    assert (request.act, request.origin) == ("answer", "writer")
    text = str(request.input)
    if "forbidden" in f"{facts.answer}":
        return refuse(Code.PERMISSION_DENIED, f"{request.origin} may not tell {request.target} that")
    if "crash" in text:
        raise ValueError(text)
    if "ask" in text:
        return Ask("May it be told?", frozenset({"input"}))
    return Rewrite(replace(request, input=text.replace("bad", "good"))) if "bad" in text else ALLOW


def a_hub(make_hub: MakeHub, guard: Guard = judge, **options: Any) -> Hub:
    hub = make_hub(guards=[guard], **options)

    @hub.agent("writer")
    async def writer(brief: Brief) -> Answer:
        brief.say(brief.text)
        match brief.objective:
            case "hang":
                brief.progress("half", partial=Answer("forbidden"))
                await asyncio.Event().wait()
            case "hang with little":
                brief.progress("half", partial=Answer("little"))
                await asyncio.Event().wait()
            case "fail":
                brief.progress("half", partial=Answer("forbidden"))
                raise ValueError("torn")
            case "only in the summary":
                return Answer("fine", summary="forbidden")
            case text:
                return Answer(text, summary="short")
        raise AssertionError

    @hub.agent("boss", may_call=["writer"])
    async def boss(brief: Brief) -> Answer:
        # Its own answers are not judged here.
        reply = await brief.delegate("writer", objective=brief.text, deadline_ms=300)
        return Answer([reply.status, reply.result, reply.summary, reply.fault and reply.fault.code])

    return hub


def writers(request: Request, facts: Facts) -> Verdict:
    return judge(request, facts) if request.origin == "writer" else ALLOW


OF_WRITER = on_answer(writers)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("fine", ["success", "fine", "short", None]),
        ("bad words", ["success", "good words", "short", None]),
        ("forbidden", ["failed", None, "", "PERMISSION_DENIED"]),
        ("only in the summary", ["failed", None, "", "PERMISSION_DENIED"]),
        ("crash", ["failed", None, "", "PERMISSION_DENIED"]),
        ("ask", ["failed", None, "", "APPROVAL_DECLINED"]),
    ],
)
async def test_a_caller_gets_what_the_guards_let_pass(make_hub: MakeHub, text: str, outcome: list[Json]) -> None:
    async with a_hub(make_hub, OF_WRITER) as hub:
        assert (await hub.ask("boss", text, user="u")).result == outcome
        asked = await hub.ask("writer", text, user="u")
    # A user reads a failure in plain words, which are its summary.
    assert [asked.status, asked.result, asked.fault and asked.fault.code] == [outcome[0], outcome[1], outcome[3]]


async def test_what_is_left_of_a_refused_answer_stands_nowhere(make_hub: MakeHub) -> None:
    async with a_hub(make_hub, OF_WRITER) as hub:
        await hub.ask("boss", "only in the summary", user="u")
        await hub.store.flush()
        records = [repr(each.body) for each in await hub.store.records(limit=1_000)]
    assert not any("forbidden" in each for each in records)


async def test_a_change_is_recorded(make_hub: MakeHub) -> None:
    async with a_hub(make_hub, OF_WRITER) as hub:
        response = await hub.ask("boss", "bad words", user="u")
        bodies = [each.body for each in await hub.store.records(run=response.run)]
    (notice,) = [each for each in bodies if isinstance(each, Notice)]
    assert notice.text == "its answer was changed before boss got it"


# ── a person ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("decision", "result"),
    [
        (Decision(agreed=True, by="ann"), "ask me"),
        (Decision(agreed=True, by="ann", edits={"input": {"result": "edited", "summary": "new"}}), "edited"),
        (Decision(agreed=False, by="ann", reason="no"), None),
    ],
)
async def test_a_person_may_be_asked_and_sees_all_of_it(
    make_hub: MakeHub, decision: Decision, result: str | None
) -> None:
    questions: list[Question] = []

    async def ann(question: Question) -> Decision:
        questions.append(question)
        return decision

    async with a_hub(make_hub, OF_WRITER, approver=ann) as hub:
        response = await hub.ask("boss", "ask me", user="u")
        bodies = [each.body for each in await hub.store.records(run=response.run)]
    assert response.result_as(list[Json])[1] == result
    (question,) = questions
    assert (question.request.origin, question.request.target) == ("writer", "boss")
    assert question.request.input == {"result": "ask me", "summary": "short"}
    assert [each.agreed for each in bodies if isinstance(each, Approval)] == [None, decision.agreed]


async def test_nobodys_time_passes_while_a_person_is_asked(make_hub: MakeHub) -> None:
    async with a_hub(make_hub, OF_WRITER, approver="inbox") as hub, asyncio.timeout(PATIENCE_S):
        run = asyncio.create_task(hub.ask("boss", "ask me", user="u"))
        await eventually(hub.pending)
        (question,) = await hub.pending()
        await asyncio.sleep(0.4)  # longer than the callee has: that no time passes is what is tested
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await run).result == ["success", "ask me", "short", None]


# ── an agent ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@on_answer
def math_guardrail(request: Request, facts: Facts) -> Verdict:
    if "checker" not in facts.opinions:
        return Ask("Does this contain mathematics?", agent="checker")
    return refuse(Code.PERMISSION_DENIED, "no mathematics") if facts.opinions["checker"] is True else ALLOW


@pytest.mark.parametrize(
    ("text", "may_call", "outcome"),
    [
        ("a poem", ["checker"], ("success", "a poem", None)),
        ("x = 4", ["checker"], ("failed", None, "no mathematics")),
        ("broken", ["checker"], ("failed", None, "checker raised ValueError: broken")),
        ("a poem", [], ("failed", None, "tutor may not call checker: its `may_call` does not name it")),
    ],
)
async def test_an_agent_may_be_asked_about_an_answer(
    make_hub: MakeHub, text: str, may_call: list[str], outcome: tuple[str, Json, str | None]
) -> None:
    """As the guardrail agents of OpenAI's SDK: its own answer is for the guard alone."""
    hub = make_hub(guards=[math_guardrail])

    @hub.agent("tutor", may_call=may_call)
    async def tutor(brief: Brief) -> str:
        return brief.text

    @hub.agent("checker")
    async def checker(brief: Brief) -> bool:
        assert brief.objective == "Does this contain mathematics?"
        if brief.input == "broken":
            raise ValueError("broken")
        return "=" in str(brief.input)

    async with hub:
        response = await hub.ask("tutor", text, user="u")
        bodies = [each.body for each in await hub.store.records(run=response.run)]
    assert (response.status, response.result, response.fault and response.fault.message) == outcome
    asked = [each.target for each in bodies if isinstance(each, Request)]
    assert asked == ["tutor", *may_call]


# ── what did not end ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("text", "result"), [("hang", None), ("hang with little", "little"), ("fail", None)])
async def test_what_was_finished_before_an_end_is_judged_too(make_hub: MakeHub, text: str, result: Json) -> None:
    async with a_hub(make_hub, OF_WRITER) as hub:
        response = await hub.ask("boss", text, user="u")
    assert response.result_as(list[Json])[1] == result
    assert response.result_as(list[Json])[0] == (Status.FAILED if text == "fail" else Status.TIMEOUT)


async def test_live_text_waits_for_the_judgement(make_hub: MakeHub) -> None:
    heard: list[str] = []
    async with a_hub(make_hub, OF_WRITER) as hub:
        async for event in hub.stream("writer", "forbidden", user="u"):
            heard += [event.body.text] if isinstance(event.body, Delta) else []
    assert heard == []


# ── personal data ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_guards_read_raw_values_and_what_they_make_is_redacted(make_hub: MakeHub) -> None:
    seen: list[str] = []

    @on_answer
    def looks(request: Request, _: Facts) -> Verdict:
        seen.append(str(request.input))
        return Rewrite(replace(request, input=f"new {CARD}"))

    hub = make_hub(guards=[looks])

    @hub.agent("teller")
    async def teller(brief: Brief) -> str:
        return brief.text

    async with hub:
        response = await hub.ask("teller", f"pay with {CARD}", user="u")
        await hub.store.flush()
        records = [repr(each.body) for each in await hub.store.records(run=response.run)]
    assert seen == [f"pay with {CARD}"]
    assert response.result == f"new {CARD}"
    assert not any(CARD in each for each in records)


async def test_a_long_answer_is_judged_as_a_short_one_is(make_hub: MakeHub) -> None:
    long = "word " * 10_000
    async with a_hub(make_hub, OF_WRITER) as hub:
        passed, changed, refused = [
            await hub.ask("writer", f"{word} {long}", user="u") for word in ("fine", "bad", "forbidden")
        ]
    assert (passed.result, changed.result) == (f"fine {long}", f"good {long}")
    assert (refused.result, code_of(refused)) == (None, Code.PERMISSION_DENIED)


async def test_an_answer_from_the_cache_is_judged_anew_for_each_caller(make_hub: MakeHub) -> None:
    @on_answer
    def not_for_bob(request: Request, _: Facts) -> Verdict:
        return refuse(Code.PERMISSION_DENIED, "not for bob") if request.target == "bob" else ALLOW

    hub, runs = make_hub(guards=[not_for_bob]), list[str]()

    @hub.agent("writer", capabilities=[Capability(code="WRITE", read_only=True, cache_ms=60_000)])
    async def writer(brief: Brief) -> str:
        runs.append(brief.text)
        return "a poem"

    async def asks(brief: Brief) -> str:
        reply = await brief.delegate(capability="WRITE", objective="Write")
        return f"{reply.status} {reply.cache} {reply.result}"

    hub.add("ann", asks, may_call=["writer"])
    hub.add("bob", asks, may_call=["writer"])
    async with hub:
        answers = [(await hub.ask(name, "Go", user="u")).result for name in ("ann", "bob")]
    assert answers == ["success miss a poem", "failed hit None"]
    assert len(runs) == 1


async def test_a_guard_that_answers_with_nonsense_lets_nothing_pass(make_hub: MakeHub) -> None:
    @on_answer
    def nonsense(request: Request, _: Facts) -> Any:
        return True

    async with a_hub(make_hub, nonsense) as hub:
        assert code_of(await hub.ask("writer", "fine", user="u")) is Code.PERMISSION_DENIED
