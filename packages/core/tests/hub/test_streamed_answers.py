"""What an agent has streamed is in the response, if it ends without an answer."""

import asyncio

import pytest

from remit import Answer, Brief, Capability, Code, Hub, Limits, Source, Status
from remit_testing.memory import MemoryStore
from samples import code_of

CARD = "4111 1111 1111 1111"
ENDS = {
    "timeout": Status.TIMEOUT,
    "cancel": Status.CANCELLED,
    "failure": Status.FAILED,
    "tokens": Status.FAILED,
}


def a_hub(**options: object) -> Hub:
    hub = Hub(store=MemoryStore(), **options)  # pyright: ignore[reportArgumentType]

    @hub.agent("writer", capabilities=[Capability(code="COUNT", result_schema={"type": "integer"})])
    async def writer(brief: Brief) -> Answer:
        brief.say("The first half, ")
        brief.say(f"paid with {CARD}")
        match brief.objective:
            case "failure":
                raise ValueError("torn")
            case "tokens":
                brief.spend(prompt=10_000_000)
            case "foreign source":
                return Answer("stolen", sources=(Source(source_id="doc", owner_scope="someone-else"),))
            case "with parts":
                brief.progress("half", partial=Answer(finished=("1",), unfinished=("2",)))
            case "with a result":
                brief.progress("half", partial=Answer("in brief"))
            case _:
                pass
        if brief.objective == "cancel":
            hub.cancel(brief.request.run, "enough")
        await asyncio.Event().wait()
        return Answer("not reached")

    return hub


@pytest.mark.parametrize("end", ENDS)
async def test_a_streamed_text_is_the_answer_so_far(end: str) -> None:
    async with a_hub(redaction=False) as hub:
        response = await hub.ask("writer", end, user="u", deadline_ms=200)
    assert (response.status, response.result) == (ENDS[end], f"The first half, paid with {CARD}")


async def test_it_is_redacted_like_every_answer() -> None:
    async with a_hub() as hub:
        response = await hub.ask("writer", "failure", user="u")
        await hub.store.flush()
        recorded = [repr(each) for each in await hub.store.records(run=response.run)]
    assert not any(CARD in each for each in recorded)
    assert any("The first half, " in each for each in recorded)


async def test_finished_parts_stand_beside_it_and_a_reported_result_before_it() -> None:
    async with a_hub(redaction=False) as hub:
        parts = await hub.ask("writer", "with parts", user="u", deadline_ms=200)
        result = await hub.ask("writer", "with a result", user="u", deadline_ms=200)
    assert (parts.finished, parts.unfinished) == (("1",), ("2",))
    assert str(parts.result).startswith("The first half")
    assert result.result == "in brief"


async def test_an_answer_that_was_not_accepted_does_not_come_back_as_a_part() -> None:
    async with a_hub(redaction=False) as hub:
        response = await hub.ask("writer", "foreign source", user="u")
    assert (code_of(response), response.result) == (Code.USER_MISMATCH, None)


async def test_a_text_does_not_stand_for_a_result_with_a_form() -> None:
    async with a_hub(redaction=False) as hub:
        response = await hub.ask("writer", "failure", user="u", capability="COUNT")
    assert (response.status, response.result) == (Status.FAILED, None)


async def test_of_an_endless_stream_only_the_beginning_is_kept() -> None:
    hub = Hub(store=MemoryStore(), redaction=False, limits=Limits(max_result_bytes=2_000_000))

    @hub.agent("endless")
    async def endless(brief: Brief) -> str:
        for _ in range(1_000):
            brief.say("x" * 1_000)
        raise ValueError("torn")

    async with hub:
        response = await hub.ask("endless", "go", user="u")
    assert response.result == "x" * 200_000


async def test_a_caller_gets_what_its_callee_had_streamed() -> None:
    hub = a_hub(redaction=False)

    @hub.agent("boss", may_call=["writer"])
    async def boss(brief: Brief) -> object:
        return (await brief.delegate("writer", objective="timeout", deadline_ms=100)).result

    async with hub:
        response = await hub.ask("boss", "go", user="u")
    assert response.result == f"The first half, paid with {CARD}"
