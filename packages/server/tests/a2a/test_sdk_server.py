"""Agents of a hub ask an agent that a2a-sdk's own server serves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from a2a_sdk_server import sdk_agent
from remit import Brief, Code, Hub, Kind, Progress, Response, Status
from remit.protocol.envelope import Json
from remit.protocol.records import Delta
from remit_server import connect_a2a
from remit_testing import MemoryStore
from waiting import PATIENCE_S

every = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
ways = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])


async def delegated(url: str, *texts: str, **options: Any) -> list[Response]:
    """Return what an agent gets that asks the SDK's, text by text, in one session."""
    hub = Hub(name="near", store=MemoryStore())
    connect_a2a(hub, "sdk", url)
    got: list[Response] = []

    async def boss(brief: Brief) -> str:
        for text in texts:
            given: Any = {"session": "s", "deadline_ms": 5_000} | options
            got.append(await brief.delegate("sdk", objective=text, **given))
        return "done"

    hub.add("boss", boss, may_call=["sdk"])
    async with hub, asyncio.timeout(PATIENCE_S):
        (await hub.ask("boss", "Go", user="anna")).unwrap()
    return got


@every
@ways
async def test_the_sdks_agent_answers(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, executor):
        (response,) = await delegated(url, "Sort them")
    assert (response.status, response.result) == (Status.SUCCESS, "Sort them and done")
    assert response.usage.estimated
    assert len(executor.asked) == 1
    assert "anna" not in str(executor.asked)


@every
@ways
async def test_a_message_instead_of_a_task_is_an_answer(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, _):
        (response,) = await delegated(url, "say hello")
    assert response.result == "hello"


@every
@ways
async def test_a_question_is_answered_in_the_same_task(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, executor):
        question, answer = await delegated(url, "ask me", "May")
    assert (question.result, question.requires_followup) == ("Which month?", True)
    assert answer.result == "May and done"
    assert executor.asked[1].task_id == executor.asked[0].task_id
    assert executor.asked[1].context_id == executor.asked[0].context_id


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """What a user answers in another process reaches the task that asked, and what follows its context."""
    said: list[Json] = []
    async with sdk_agent("JSONRPC") as (url, executor):
        for text in ("ask me", "May", "And June"):
            hub = Hub(name="near", store=tmp_path / "hub.db", durability="process")
            connect_a2a(hub, "sdk", url)
            async with hub, asyncio.timeout(PATIENCE_S):
                response = await hub.ask("sdk", text, user="anna", session="months")
                said.append(response.unwrap())
    assert said[:2] == ["Which month?", "May and done"]
    assert str(said[2]).endswith("And June and done")
    first, answer, later = executor.asked
    assert (answer.task_id, answer.context_id) == (first.task_id, first.context_id)
    assert later.task_id != first.task_id
    assert later.context_id == first.context_id


@every
@ways
async def test_an_answer_that_stands_in_the_message_of_the_status_is_the_result(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, _):
        (response,) = await delegated(url, "tell 42 apples")
    assert (response.status, response.result, response.summary) == (Status.SUCCESS, "42 apples", "")


@every
@ways
async def test_a_failure_there_is_a_failure_here(binding: str, streaming: bool) -> None:
    async with sdk_agent(binding, streaming=streaming) as (url, _):
        (response,) = await delegated(url, "fail now")
    assert not response.ok
    assert response.fault is not None


@every
@ways
async def test_the_deadline_is_kept_here_and_the_work_there_is_cancelled(binding: str, streaming: bool) -> None:
    """X6: the SDK knows no deadline; ours stops the work there all the same."""
    async with sdk_agent(binding, streaming=streaming) as (url, executor):
        (response,) = await delegated(url, "sleep well", deadline_ms=600)
        async with asyncio.timeout(PATIENCE_S):
            await executor.cancelled.wait()
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)


@every
async def test_whoever_watches_hears_how_far_it_is_and_what_is_said(binding: str) -> None:
    hub = Hub(name="near", store=MemoryStore())
    async with sdk_agent(binding) as (url, _):
        connect_a2a(hub, "sdk", url)

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("sdk", objective="Sort them")).unwrap()

        hub.add("boss", boss, may_call=["sdk"])
        async with hub, asyncio.timeout(PATIENCE_S):
            records = [record async for record in hub.stream("boss", "Go", user="anna")]
    assert [each.body.text for each in records if isinstance(each.body, Progress)] == ["thinking"]
    said = "".join(each.body.text for each in records if isinstance(each.body, Delta))
    assert said == "Sort them and done"
    assert records[-1].kind is Kind.RESULT
