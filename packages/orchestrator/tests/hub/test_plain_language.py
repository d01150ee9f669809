"""K6: whatever goes wrong, no user reads the name of an agent, a code, or the text of an exception."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Call, Capability, Code, Hub, RemitError, Response, Status, fault
from remit.protocol.orchestration import Step, Workflow
from remit.protocol.records import Progress
from remit_orchestrator import add_orchestrator, add_workflow

AGENT, OTHER, CODE = "ledger-bot", "FIN", "FIN_LEDGER_SUM"
SECRET = "KeyError: 'quux' at 0x7f3a"
FORBIDDEN = (AGENT, OTHER, CODE, "DOC_REPORT", "quux", "KeyError", "0x7f3a", "prime-flow")

LEDGER = Capability(
    code=CODE, description="FIN_LEDGER_SUM: sums up the ledger", examples=("sum up the ledger",), read_only=True
)
REPORT = Capability(
    code="DOC_REPORT", description="Writes a report", examples=("write a report", "write the report"), read_only=True
)


Failing = Callable[[Brief], Awaitable[Any]]


async def raises(brief: Brief) -> str:
    brief.progress(f"{AGENT} runs {CODE}")
    raise KeyError(SECRET)


async def chains(brief: Brief) -> str:
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise RuntimeError(f"{AGENT} could not do {CODE}") from error


async def gives_a_wrong_type(brief: Brief) -> object:
    return object()


async def runs_out_of_time(brief: Brief) -> str:
    part = Answer(
        f"Half of it, says {AGENT}.", unfinished=(f"the part of {OTHER} ({CODE})",), warnings=(f"{CODE} is slow",)
    )
    brief.progress("at it", partial=part)
    await asyncio.Event().wait()
    return ""


async def is_partial(brief: Brief) -> Answer:
    return Answer(
        "12 entries.",
        confidence=0.9,
        warnings=(f"{AGENT}: the cache of {CODE} is stale",),
        finished=(f"what {AGENT} read",),
        unfinished=(f"the year 2019, which {AGENT} has not",),
    )


def failing_with(code: Code) -> Failing:
    async def fail(brief: Brief) -> str:
        raise RemitError(fault(code, f"{AGENT} failed with {code} at {CODE}: {SECRET}"))

    fail.__name__ = code.value
    return fail


WAYS = [raises, chains, gives_a_wrong_type, runs_out_of_time, is_partial, failing_with(Code.RATE_LIMITED)]
FAILURES = [*WAYS[:-1], *map(failing_with, Code)]


def team(hub: Hub, failing: Failing) -> None:
    hub.add(AGENT, failing, capabilities=[replace(LEDGER, time_ms=200)])

    @hub.agent(OTHER, capabilities=[REPORT])
    async def report(brief: Brief) -> Answer:
        return Answer("The report is written.", confidence=0.8)

    assert report


def read_by_users(response: Any, progress: list[str]) -> list[str]:
    statements = (response.summary, *response.finished, *response.unfinished, *response.warnings)
    return [str(response.result or ""), *statements, *progress]


async def ask_and_read(hub: Hub, agent: str, text: str, speakers: tuple[str, ...]) -> tuple[Any, list[str]]:
    """Return the response, and everything that the user reads of it."""
    progress: list[str] = []
    response = None
    async for record in hub.stream(agent, text, user="u", deadline_ms=5_000):
        if isinstance(record.body, Progress) and record.body.agent in speakers:
            progress.append(record.body.text)
        response = record.body
    return response, read_by_users(response, progress)


def leaks(texts: list[str]) -> list[str]:
    codes = [code.value for code in Code if "_" in code.value or code.value.isupper()]
    return [text for text in texts if any(word in text for word in (*FORBIDDEN, *codes))]


@pytest.mark.parametrize("failing", FAILURES, ids=lambda each: each.__name__)
async def test_what_fails_alone_is_told_in_plain_words(hub: Hub, failing: Failing) -> None:
    team(hub, failing)
    add_orchestrator(hub)
    async with hub:
        response, texts = await ask_and_read(hub, "orchestrator", "sum up the ledger", ("orchestrator",))
    assert texts
    assert any(texts)
    assert leaks(texts) == []
    assert response.status is not Status.SUCCESS


@pytest.mark.parametrize("text", ["what can you do", "ledger", "sum up the report", "feed the elephants"])
async def test_what_is_offered_and_asked_back_is_in_plain_words(hub: Hub, text: str) -> None:
    team(hub, raises)
    add_orchestrator(hub)
    async with hub:
        _, texts = await ask_and_read(hub, "orchestrator", text, ("orchestrator",))
    assert any(texts)
    assert leaks(texts) == []


@pytest.mark.parametrize("failing", WAYS, ids=lambda each: each.__name__)
async def test_what_fails_beside_something_else_is_told_in_plain_words(hub: Hub, failing: Failing) -> None:
    team(hub, failing)
    add_orchestrator(hub)
    async with hub:
        _, texts = await ask_and_read(hub, "orchestrator", "sum up the ledger and write a report", ("orchestrator",))
    assert "The report is written." in texts[0]
    assert leaks(texts) == []


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("failing", WAYS, ids=lambda each: each.__name__)
async def test_a_step_that_fails_is_told_in_plain_words(hub: Hub, failing: Failing, *, optional: bool) -> None:
    team(hub, failing)
    steps = (
        Step(
            name="sums", agent=AGENT, capability=CODE, title=f"Ask {AGENT} for {CODE}", time_ms=200, optional=optional
        ),
        Step(name="report", agent=OTHER, capability="DOC_REPORT", title=f"{OTHER} writes"),
        Step(name="after", agent=OTHER, capability="DOC_REPORT", objective="{sums}", title="Sums in the report"),
    )
    add_workflow(hub, Workflow(name="prime-flow", steps=steps))
    async with hub:
        _, texts = await ask_and_read(hub, "prime-flow", "the year", ("prime-flow",))
    assert leaks(texts) == []


async def test_a_program_gets_the_same_sentence_as_an_http_client_and_the_record_keeps_the_reason(hub: Hub) -> None:
    team(hub, raises)
    async with hub:
        response = await hub.ask(AGENT, "sum", user="u")
        refused = await hub.ask("nobody-here", "sum", user="u")
        outcome = await hub.outcome(response.run)
        recorded = [each.body for each in await hub.store.records(run=response.run)]
    assert response.summary == "This could not be done: something went wrong on the way. It can be tried again."
    assert outcome is not None
    assert outcome.summary == response.summary
    assert refused.summary == "This could not be done: nothing here can do it."
    [recorded_response] = [each for each in recorded if isinstance(each, Response)]
    assert recorded_response.summary == ""
    assert recorded_response.fault is not None
    assert SECRET in f"{recorded_response.fault.origin}{recorded_response.fault.message}"


@pytest.mark.parametrize(
    ("warning", "sentence"),
    [
        (f"{AGENT}: the cache of {CODE} is stale", "The analysis: the cache of the analysis is stale"),
        (f"{AGENT} failed: {SECRET}", "Something went wrong on the way."),
        ("read timed out (ReadTimeoutError)", "Something went wrong on the way."),
        ("[Errno 2] No such file or directory: '/srv/x'", "Something went wrong on the way."),
        (f"{OTHER} ended with RATE_LIMITED", "It was asked for too often in a short time. It can be tried again."),
        ("The fin of a fish.", "The fin of a fish."),
        ("It catches every KeyError, which is too much.", "It catches every KeyError, which is too much."),
    ],
)
async def test_a_warning_is_a_plain_sentence_for_its_user_and_stays_whole_in_the_record(
    hub: Hub, warning: str, sentence: str
) -> None:
    async def warns(brief: Brief) -> Answer:
        return Answer("12 entries.", warnings=(warning,))

    team(hub, warns)
    async with hub:
        response = await hub.ask(AGENT, "sum", user="u")
        outcome = await hub.outcome(response.run)
        recorded = [each.body for each in await hub.store.records(run=response.run)]
    assert response.warnings == (sentence,)
    assert outcome is not None
    assert outcome.warnings == (sentence,)
    [recorded_response] = [each for each in recorded if isinstance(each, Response)]
    assert recorded_response.warnings == (warning,)


@pytest.mark.parametrize(
    ("result", "schema", "shown"),
    [
        (f"{AGENT} found 12 entries.", None, "The analysis found 12 entries."),
        (f"{AGENT} found 12 entries.", {"type": "string"}, "The analysis found 12 entries."),
        ("FIN 12", {"type": "string", "pattern": "^FIN"}, "FIN 12"),
        ("FIN", None, "FIN"),
        ('{"by": "FIN"}', None, '{"by": "FIN"}'),
        ({"by": f"the {AGENT} of FIN"}, None, {"by": f"the {AGENT} of FIN"}),
    ],
)
async def test_a_text_that_one_step_returns_has_no_names_and_data_stay_as_they_are(
    hub: Hub, result: Any, schema: Any, shown: Any
) -> None:
    async def sums(brief: Brief) -> Any:
        return result

    hub.add(AGENT, sums, capabilities=[replace(LEDGER, result_schema=schema)])
    hub.add(OTHER, sums, capabilities=[REPORT])
    add_workflow(
        hub, Workflow(name="prime-flow", steps=(Step(name="sums", agent=AGENT, capability=CODE),), result="sums")
    )
    async with hub:
        assert (await hub.ask("prime-flow", "the year", user="u")).result == shown


async def test_a_word_that_is_also_a_code_stays_in_the_answer(hub: Hub) -> None:
    news = Capability(code="NEWS", description="Tells the news", examples=("tell me the news",), read_only=True)

    @hub.agent("herald", capabilities=[news])
    async def herald(brief: Brief) -> str:
        return "NEWS found no news. News at ten, and no other news."

    add_orchestrator(hub)
    async with hub:
        response = await hub.ask("orchestrator", "tell me the news", user="u")
    assert str(response.result).startswith("The analysis found no news. News at ten, and no other news.")


async def test_parts_that_an_agent_names_after_other_agents_have_no_names_for_users(hub: Hub) -> None:
    team(hub, raises)

    @hub.agent("clerk", may_call=[AGENT, OTHER])
    async def clerk(brief: Brief) -> Answer | None:
        calls = [Call(target=AGENT, objective="sum"), Call(target=OTHER, objective="report")]
        return (await brief.combine(calls)).answer

    async with hub:
        response = await hub.ask("clerk", "do", user="u")
    assert (response.finished, response.unfinished) == (("The analysis",), ("The analysis",))
