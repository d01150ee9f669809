"""Files on their way through a hub: to callees, back with answers, in the record, after a restart."""

import asyncio
import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ages import upkeep
from isolated_agents import pass_files_on
from remit import Answer, Brief, Call, Capability, Code, File, Hub, Kind, RemitError, Request, Response
from remit.ports.keys import HubKeys
from remit.protocol.codec import encode
from remit.protocol.files import MAX_FILE_BYTES
from remit.protocol.orchestration import Step, Workflow
from remit.stores.sqlite import SqliteStore
from remit_orchestrator import add_orchestrator, add_workflow
from waiting import PATIENCE_S

MAIL = "alice@example.org"
PICTURE = File(name="receipt.png", media_type="image/png", data=b"\x89PNG\r\n\x00\xff")
LINK = File(name="scan.pdf", media_type="application/pdf", url="https://example.org/scan.pdf")
LETTER = File(name="letter.txt", media_type="text/plain", data=f"Write to {MAIL}.".encode())

MakeHub = Callable[..., Hub]


async def ask(hub: Hub, agent: str, **options: Any) -> Response:
    async with asyncio.timeout(PATIENCE_S):
        return await hub.ask(agent, "Read this", user="u-1", **options)


@pytest.fixture
def seen() -> list[tuple[File, ...]]:
    return []


@pytest.fixture
def team(hub: Hub, seen: list[tuple[File, ...]]) -> Hub:
    @hub.agent("reader")
    async def reader(brief: Brief) -> Answer:
        seen.append(brief.files)
        return Answer(len(brief.files), files=brief.files)

    @hub.agent("boss", may_call=["reader"])
    async def boss(brief: Brief) -> Answer:
        reply = await brief.delegate("reader", objective="Read", files=brief.files)
        return Answer(reply.result, files=reply.files)

    @hub.agent("secretive", may_call=["reader"])
    async def secretive(brief: Brief) -> Any:
        return (await brief.delegate("reader", objective="Read")).result

    hub.add("apart", pass_files_on, may_call=["reader"], isolation="process")
    assert reader
    assert boss
    assert secretive
    return hub


async def test_files_reach_the_agent_and_come_back_with_the_answer(team: Hub, seen: list[tuple[File, ...]]) -> None:
    async with team:
        response = await ask(team, "boss", files=[PICTURE, LINK])
    assert seen == [(PICTURE, LINK)]
    assert (response.result, response.files) == (2, (PICTURE, LINK))


async def test_a_callee_gets_no_files_unless_its_caller_says_so(team: Hub, seen: list[tuple[File, ...]]) -> None:
    async with team:
        assert (await ask(team, "secretive", files=[PICTURE])).result == 0
    assert seen == [()]


async def test_an_agent_in_a_process_of_its_own_gets_files_and_passes_them_on(
    team: Hub, seen: list[tuple[File, ...]]
) -> None:
    large = File(name="large.bin", data=bytes(MAX_FILE_BYTES))
    async with team:
        response = await ask(team, "apart", files=[large])
    assert response.files == (large, large)
    assert seen == [(large,)]


async def test_agents_see_tokens_in_text_files_and_the_user_gets_the_text_back(
    team: Hub, seen: list[tuple[File, ...]]
) -> None:
    async with team:
        response = await ask(team, "boss", files=[LETTER, PICTURE])
        again = await team.outcome(response.run)
        await team.store.flush()
        records = await team.store.records(limit=100)
    assert response.files == (LETTER, PICTURE)
    assert again == response, "looked up later it is the same"
    ((letter, picture),) = seen
    assert picture == PICTURE
    assert letter.text is not None
    assert letter.text.startswith("Write to [EMAIL:")
    written = b"".join(encode(record) for record in records)
    for text in (MAIL, f"Write to {MAIL}."):
        assert text.encode() not in written
    assert base64.b64encode(LETTER.data or b"") not in written
    stored = [record.body.files for record in records if record.kind in (Kind.STARTED, Kind.DELEGATION, Kind.RESULT)]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    assert stored == [(letter, PICTURE)] * 4, "every request and every answer holds the files, redacted"


async def test_what_an_answer_brings_up_in_a_text_file_is_for_the_user_alone(hub: Hub) -> None:
    texts = list[str | None]()

    @hub.agent("finder")
    async def finder(brief: Brief) -> Answer:
        return Answer("found", files=(LETTER,))

    @hub.agent("boss", may_call=["finder"])
    async def boss(brief: Brief) -> Answer:
        reply = await brief.delegate("finder", objective="Find")
        texts.extend(file.text for file in reply.files)
        return Answer("found", files=reply.files)

    assert finder
    assert boss
    async with hub:
        response = await ask(hub, "boss")
    assert response.files == (LETTER,)
    (text,) = texts
    assert text is not None
    assert MAIL not in text


async def test_calls_with_different_files_are_different_calls(team: Hub, seen: list[tuple[File, ...]]) -> None:
    @team.agent("wide", may_call=["reader"])
    async def wide(brief: Brief) -> list[Any]:
        calls = [Call(target="reader", objective="Read", files=(file,)) for file in (PICTURE, LINK, PICTURE)]
        return [str(each.fault.code) if each.fault else each.result for each in await brief.fan_out(calls)]

    assert wide
    async with team:
        assert (await ask(team, "wide")).result == [1, 1, "CYCLE_DETECTED"]


async def test_an_answer_from_the_cache_is_for_the_same_files_only(hub: Hub) -> None:
    runs = list[str]()

    @hub.agent("reader", capabilities=[Capability(code="READ", read_only=True, cache_ms=60_000)])
    async def reader(brief: Brief) -> Answer:
        runs.append(brief.files[0].name)
        return Answer(brief.files[0].name, files=brief.files)

    assert reader
    async with hub:
        first = [await ask(hub, "reader", capability="READ", files=[file]) for file in (PICTURE, LINK)]
        second = [await ask(hub, "reader", capability="READ", files=[file]) for file in (PICTURE, LINK)]
    assert runs == ["receipt.png", "scan.pdf"]
    assert [each.cache for each in second] == ["hit", "hit"]
    assert [each.files for each in second] == [each.files for each in first] == [(PICTURE,), (LINK,)]


async def test_a_request_that_is_sent_again_with_another_file_is_another_request(team: Hub) -> None:
    async with team:
        first = await ask(team, "reader", request_id="r-1", files=[PICTURE])
        assert await ask(team, "reader", request_id="r-1", files=[PICTURE]) == first
        other = await ask(team, "reader", request_id="r-1", files=[LINK])
    assert other.fault is not None
    assert other.fault.code is Code.DUPLICATE_REQUEST


async def test_a_file_that_is_too_large_is_named(team: Hub) -> None:
    large = File(name="a", data=bytes(MAX_FILE_BYTES + 1))
    async with team:
        with pytest.raises(RemitError) as caught:
            await ask(team, "reader", files=[PICTURE, large])
        assert [each.path for each in caught.value.fault.problems] == ["$.files[1].data"]
        with pytest.raises(RemitError) as caught:
            await ask(team, "reader", files=PICTURE)
        assert [each.path for each in caught.value.fault.problems] == ["$.files"]


@pytest.mark.parametrize("files", [(File(name="../a", data=b""),), (PICTURE,) * 17, 7])
async def test_an_answer_with_an_invalid_file_is_a_failure_of_its_agent(hub: Hub, files: Any) -> None:
    @hub.agent("wrong")
    async def wrong(brief: Brief) -> Answer:
        return Answer("x", files=files)

    assert wrong
    async with hub:
        response = await ask(hub, "wrong")
    assert response.fault is not None
    assert response.fault.code is Code.RESULT_VALIDATION_FAILED


async def test_the_files_of_an_answer_do_not_count_as_its_text(hub: Hub) -> None:
    """`max_result_bytes` is 1 MiB, and a file of that size takes a third more as base64."""
    large = File(name="large.bin", data=bytes(MAX_FILE_BYTES))

    @hub.agent("two")
    async def two(brief: Brief) -> Answer:
        return Answer("here", files=[large, large])  # pyright: ignore[reportArgumentType]

    @hub.agent("three")
    async def three(brief: Brief) -> Answer:
        return Answer("here", files=(large,) * 3)

    assert two
    assert three
    async with hub:
        assert (await ask(hub, "two")).files == (large, large)
        response = await ask(hub, "three")
    assert response.fault is not None
    assert "at most 4194304" in response.fault.message


async def test_what_is_finished_when_the_time_is_over_keeps_its_files(hub: Hub) -> None:
    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        brief.progress("one picture", partial=Answer("one", files=(PICTURE,), finished=("one",)))
        await asyncio.Event().wait()
        return ""

    assert slow
    async with hub:
        response = await ask(hub, "slow", deadline_ms=300)
    assert (response.fault and response.fault.code, response.files) == (Code.TIMEOUT, (PICTURE,))


async def test_files_and_answers_are_there_after_a_restart(tmp_path: Path) -> None:
    def made() -> Hub:
        hub = Hub(store=SqliteStore(tmp_path / "hub.db"))

        @hub.agent("reader", resumable=True)
        async def reader(brief: Brief) -> Answer:
            return Answer(len(brief.files), files=brief.files)

        assert reader
        return hub

    async with made() as hub:
        response = await ask(hub, "reader", files=[LETTER, PICTURE])
    async with made() as hub:
        assert await hub.outcome(response.run) == response
        request = await hub.request_of(response.run)
    assert isinstance(request, Request)
    assert request.files == (LETTER, PICTURE), "the request can be executed again as it was"


async def test_what_is_kept_about_a_user_includes_files_and_can_be_erased(tmp_path: Path, team: Hub) -> None:
    async with team:
        await ask(team, "reader", files=[PICTURE])
    path, picture = tmp_path / "hub.db", base64.b64encode(PICTURE.data or b"").decode()
    with upkeep(path, time.time_ns() // 1_000_000) as store:
        kept = [encode(content).decode() for _, content in store.kept_about("u-1", HubKeys(b"secret"))]
    assert sum(picture in each for each in kept) == 2, "in the request and in the answer"
    with upkeep(path, time.time_ns() // 1_000_000) as store:
        store.erase("u-1", HubKeys(b"secret"))
    async with Hub(store=SqliteStore(path)) as reopened:
        left = b"".join(encode(record) for record in await reopened.store.records(limit=100))
    assert picture.encode() not in left


async def test_a_workflow_gives_files_to_the_steps_that_it_names(team: Hub, seen: list[tuple[File, ...]]) -> None:
    steps = (Step(name="without", agent="reader"), Step(name="with", agent="reader", files=True, after=("without",)))
    add_workflow(team, Workflow(name="flow", steps=steps))
    async with team:
        response = await ask(team, "flow", files=[PICTURE])
    assert seen == [(), (PICTURE,)]
    assert response.files == (PICTURE,), "the files of its steps"


async def test_an_orchestrator_gives_files_to_the_agent_that_it_chooses(hub: Hub) -> None:
    seen = list[tuple[File, ...]]()
    reads = Capability(
        code="READ", description="Read a receipt", examples=("read this receipt",), read_only=True, cache_ms=60_000
    )

    @hub.agent("reader", capabilities=[reads])
    async def reader(brief: Brief) -> Answer:
        seen.append(brief.files)
        return Answer("It says coffee.", files=brief.files)

    assert reader
    add_orchestrator(hub)
    async with hub:
        for file in (PICTURE, LINK):
            response = await hub.ask("orchestrator", "read this receipt", user="u", session="s", files=[file])
            assert response.files == (file,), response
    assert seen == [(PICTURE,), (LINK,)], "the answer about one file is not given for another"
