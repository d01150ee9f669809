"""The client against a real server: what it asks, what it gets, and what it does when the connection is lost."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from remit import Answer, Brief, Code, File, Hub, Limits, RemitError, Status
from remit.protocol.envelope import Response
from remit.protocol.records import Delta, Progress
from remit_cli import Rule, guard_of
from remit_server.client import HubClient, SyncHubClient
from remit_server.documents.api_values import Handle, NamedAnswer
from remit_server.transports.addresses import listening
from remit_testing import MemoryStore
from serving import serving
from waiting import PATIENCE_S, eventually

MakeHub = Callable[..., Hub]
PICTURE = File(name="a.png", media_type="image/png", data=b"\x89PNG\x00\xff")


def filled(hub: Hub) -> list[str]:
    """Add the agents of these tests; return what the writer was asked."""
    seen: list[str] = []

    @hub.agent("writer", description="Writes.")
    async def write(brief: Brief) -> Answer:
        seen.append(brief.objective)
        brief.progress("thinking")
        brief.say("part")
        return Answer(f"wrote {brief.objective}", files=brief.files)

    @hub.agent("failing")
    async def fail(brief: Brief) -> str:
        raise ValueError("broken")

    @hub.agent("slow")
    async def wait(brief: Brief) -> str:
        await asyncio.Event().wait()
        return ""

    assert all((write, fail, wait))
    return seen


def client(address: str, name: str = "web", **more: Any) -> HubClient:
    return HubClient(address, token=name, timeout_s=PATIENCE_S, **more)


async def test_an_agent_is_asked_with_files_and_answers(make_hub: MakeHub) -> None:
    hub = make_hub()
    filled(hub)
    async with serving(hub) as server, client(server.address) as hub_client:
        answer = await hub_client.ask("writer", "a poem", user="anna", files=[PICTURE], session="poems")
        assert (answer.status, answer.result, answer.files) == (Status.SUCCESS, "wrote a poem", (PICTURE,))
        assert await hub_client.look(answer.run) == answer
        assert {each.name for each in await hub_client.agents()} == {"failing", "slow", "writer"}
        assert (await hub_client.agent("writer")).description == "Writes."
        (line,) = (await hub_client.runs(user="anna", limit=1)).runs
        assert (line.run, line.agent, line.state) == (answer.run, "writer", "finished")
        (root,) = (await hub_client.run(answer.run)).delegations
        assert root.target == "writer"
        (talk,) = (await hub_client.sessions(user="anna")).sessions
        texts = [each.text for each in (await hub_client.session(talk.session)).messages]
        assert texts == ["a poem", "wrote a poem"]


async def test_what_fails_is_an_outcome_and_what_is_refused_is_a_fault(make_hub: MakeHub) -> None:
    hub = make_hub()
    filled(hub)
    async with serving(hub) as server, client(server.address) as web, client(server.address, "nobody") as stranger:
        failed = await web.ask("failing", user="anna")
        assert (failed.ok, failed.fault and failed.fault.code) == (False, Code.DELEGATION_FAILED)
        for call, code in (
            (stranger.agents(), Code.UNAUTHENTICATED),
            (web.run("none"), Code.NOT_FOUND),
            (web.ask("nobody", user="anna"), Code.AGENT_NOT_FOUND),
            (web.runs(state="nonsense"), Code.MALFORMED_ENVELOPE),
            (web.ask("writer", user=""), Code.MALFORMED_ENVELOPE),
        ):
            with pytest.raises(RemitError) as caught:
                await call
            assert caught.value.fault.code is code


async def test_the_events_of_a_run_are_read_to_its_outcome(make_hub: MakeHub) -> None:
    hub = make_hub()
    filled(hub)
    async with serving(hub) as server, client(server.address) as web, client(server.address, "ops") as ops:
        events = [each async for each in web.stream("writer", "a poem", user="anna")]
        bodies = [each.body for each in events]
        assert any(isinstance(each, Progress) and each.text == "thinking" for each in bodies)
        outcome = events[-1].outcome
        assert outcome is not None
        assert outcome.result == "wrote a poem"
        first = next(each.number for each in events if each.number is not None)
        again = [each async for each in web.events(outcome.run, after=first)]
        stored = [each for each in events if not isinstance(each.body, Delta)]
        assert again == stored[1:]
        async for each in ops.all_events(after=0, run=outcome.run, kinds="result"):
            assert each.outcome == outcome
            break


async def test_a_run_is_cancelled_waited_for_and_repeated(make_hub: MakeHub) -> None:
    hub = make_hub()
    filled(hub)
    async with serving(hub) as server, client(server.address) as web, client(server.address, "ops") as ops:
        begun = await web.begin("slow", user="anna", request_id="mine")
        assert isinstance(begun, Handle)
        assert await web.look("mine") == begun
        with pytest.raises(RemitError, match="it goes on at the server") as caught:
            await web.wait("mine", timeout_s=0.01)
        assert caught.value.fault.code is Code.TIMEOUT
        act = await ops.cancel_run(begun.run, reason="enough")
        assert act.outcome == "cancelled"
        ended = await web.wait("mine")
        assert ended.fault is not None
        assert ended.fault.code is Code.CANCELLED
        assert (await ops.resume_run(begun.run)).outcome == "over"
        retried = await ops.retry_run(begun.run)
        assert retried.outcome == "retried"
        stopped = await web.cancel(retried.run)
        assert stopped.run == retried.run


@pytest.mark.parametrize(
    ("root_cost", "had", "wanted", "granted"),
    [
        (None, 30_000, None, 30_000),
        (None, 30_000, 100_000, 100_000),
        (50_000, 30_000, 100_000, 50_000),
        (50_000, None, 20_000, 20_000),
        (None, None, None, None),
    ],
)
async def test_a_run_is_repeated_with_the_money_that_it_had_or_with_more(
    root_cost: int | None, had: int | None, wanted: int | None, granted: int | None
) -> None:
    amounts = list[int | None]()
    hub = Hub(store=MemoryStore(), limits=Limits(root_cost=root_cost))

    @hub.agent("poor")
    async def poor(brief: Brief) -> str:
        amounts.append(brief.cost_left())
        raise ValueError("nothing comes of it")

    assert poor
    async with serving(hub) as server, client(server.address) as web, client(server.address, "ops") as ops:
        first = await web.ask("poor", user="anna", max_cost=had)
        again = await ops.retry_run(first.run, max_cost=wanted)
        await web.wait(again.run)
    assert amounts[1:] == [granted]


async def test_ask_waits_for_a_person_and_another_client_answers(make_hub: MakeHub) -> None:
    rules = [Rule(then="ask", to="writer", say="May it write?", edit=frozenset({"objective"}))]
    hub = make_hub(guards=[guard_of(rules)], approver="inbox")
    filled(hub)
    async with serving(hub) as server, client(server.address) as web, client(server.address, "ops") as ops:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(web.ask("writer", "a poem", user="anna"))
            (question,) = await eventually(lambda: _waiting(ops), "the question")
            assert (await ops.approval(question.id)).waiting == question
            assert (await ops.reveal(question.id)).view.sentence == question.sentence
            given = await ops.answer(question, True, reason="fine", edits={"objective": "a song"}, by="Carla")
            assert (given.agreed, given.by) == (True, "Carla via ops")
        assert asking.result().result == "wrote a song"
        with pytest.raises(RemitError) as caught:
            await ops.answer(question, True)
        assert caught.value.fault.code is Code.STATE_CONFLICT
        named = NamedAnswer(id=question.id, agree=True, digest=question.digest)
        (outcome,) = (await ops.answer_several([named])).outcomes
        assert outcome.fault is not None


async def _waiting(ops: HubClient) -> tuple[Any, ...]:
    return (await ops.approvals()).waiting


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice(make_hub: MakeHub, lossy: Any) -> None:
    hub = make_hub()
    seen = filled(hub)
    async with serving(hub) as server, lossy(server, 2) as proxy, client(proxy.address) as web:
        answer = await web.ask("writer", "a poem", user="anna")
        assert (answer.result, seen) == ("wrote a poem", ["a poem"])
        assert proxy.requests == ["POST /v1/delegations HTTP/1.1"] * 3


async def test_what_would_be_done_twice_is_not_sent_again(make_hub: MakeHub, lossy: Any) -> None:
    hub = make_hub()
    filled(hub)
    async with serving(hub) as server, client(server.address) as web:
        failed = await web.ask("failing", user="anna")
        async with lossy(server, 9) as proxy, client(proxy.address, "ops") as ops:
            with pytest.raises(RemitError) as caught:
                await ops.retry_run(failed.run)
            assert caught.value.fault.code is Code.DELEGATION_UNAVAILABLE
            assert len(proxy.requests) == 1
        assert len((await web.runs(user="anna")).runs) == 2


async def test_a_server_that_is_not_there_or_is_not_a_hub_is_a_fault() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>")
        writer.close()

    async with await asyncio.start_server(page, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with client(address) as web:
            with pytest.raises(RemitError, match="invalid answer") as caught:
                await web.agents()
            assert caught.value.fault.code is Code.DELEGATION_FAILED
    async with client(address) as web:
        with pytest.raises(RemitError, match="cannot be reached") as caught:
            await web.agents()
    assert caught.value.fault.code is Code.DELEGATION_UNAVAILABLE
    with pytest.raises(RemitError, match="not a hub address"):
        HubClient("ftp://example.com")


async def test_a_server_that_does_not_answer_is_given_up_on() -> None:
    with listening("127.0.0.1", 0) as bound:  # nobody accepts
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        async with HubClient(address, timeout_s=0.01) as web:
            with pytest.raises(RemitError) as caught:
                await web.agents()
            assert caught.value.fault.code is Code.TIMEOUT
            with pytest.raises(RemitError, match=r"it goes on at the server|no answer"):
                await web.ask("writer", user="anna")


# ── without an event loop ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_program_without_an_event_loop_has_the_same(make_hub: MakeHub) -> None:
    hub = make_hub()
    filled(hub)

    def program(address: str) -> tuple[Response, str]:
        with SyncHubClient(address, token="ops", timeout_s=PATIENCE_S) as ops:
            answer = ops.ask("writer", "a poem", user="anna")
            events = list(ops.stream("writer", "a song", user="anna"))
            assert ops.look(answer.run) == answer
            assert ops.wait(answer.run) == answer
            assert len(ops.agents()) == 3
            assert ops.agent("writer").name == "writer"
            assert len(ops.runs(user="anna").runs) == 2
            assert ops.run(answer.run).run == answer.run
            assert ops.approvals().waiting == ()
            assert len(ops.sessions().sessions) == 2
            begun = ops.begin("slow", user="anna")
            for event in ops.events(begun.run):
                assert event.run == begun.run
                break
            assert ops.cancel(begun.run).run == begun.run
            with pytest.raises(RemitError):
                ops.session("none")
            outcome = events[-1].outcome
            assert outcome is not None
            return answer, str(outcome.result)

    async with serving(hub) as server:
        answer, song = await asyncio.to_thread(program, server.address)
    assert (answer.result, song) == ("wrote a poem", "wrote a song")
