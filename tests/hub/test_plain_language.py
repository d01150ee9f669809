"""K6: whatever goes wrong, no user reads the name of an agent, a code, or the text of an exception."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Capability, Code, Hub, RemitError, Status, fault
from remit.policy.plan import Step, Workflow
from remit.protocol.records import Progress
from remit.text.failures import with_plain_summary

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
    told = with_plain_summary(response)
    return [str(told.result or ""), told.summary, *told.finished, *told.unfinished, *told.warnings, *progress]


async def asked(hub: Hub, agent: str, text: str, speakers: tuple[str, ...]) -> tuple[Any, list[str]]:
    """Return the response, and everything that the user reads of it."""
    said: list[str] = []
    response = None
    async for record in hub.stream(agent, text, user="u", deadline_ms=5_000):
        if isinstance(record.body, Progress) and record.body.agent in speakers:
            said.append(record.body.text)
        response = record.body
    return response, read_by_users(response, said)


def leaks(texts: list[str]) -> list[str]:
    codes = [code.value for code in Code if "_" in code.value or code.value.isupper()]
    return [text for text in texts if any(word in text for word in (*FORBIDDEN, *codes))]


@pytest.mark.parametrize("failing", FAILURES, ids=lambda each: each.__name__)
async def test_what_fails_alone_is_told_in_plain_words(hub: Hub, failing: Failing) -> None:
    team(hub, failing)
    hub.orchestrator()
    async with hub:
        response, texts = await asked(hub, "orchestrator", "sum up the ledger", ("orchestrator",))
    assert texts
    assert any(texts)
    assert leaks(texts) == []
    assert response.status is not Status.SUCCESS


@pytest.mark.parametrize("text", ["what can you do", "ledger", "sum up the report", "feed the elephants"])
async def test_what_is_offered_and_asked_back_is_in_plain_words(hub: Hub, text: str) -> None:
    team(hub, raises)
    hub.orchestrator()
    async with hub:
        _, texts = await asked(hub, "orchestrator", text, ("orchestrator",))
    assert any(texts)
    assert leaks(texts) == []


@pytest.mark.parametrize("failing", WAYS, ids=lambda each: each.__name__)
async def test_what_fails_beside_something_else_is_told_in_plain_words(hub: Hub, failing: Failing) -> None:
    team(hub, failing)
    hub.orchestrator()
    async with hub:
        _, texts = await asked(hub, "orchestrator", "sum up the ledger and write a report", ("orchestrator",))
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
    hub.workflow(Workflow(name="prime-flow", steps=steps))
    async with hub:
        _, texts = await asked(hub, "prime-flow", "the year", ("prime-flow",))
    assert leaks(texts) == []
