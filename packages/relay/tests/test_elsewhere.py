"""Agents on other devices as agents of a hub: asked over a gateway, passed on from device to device, and stopped."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devices import gateway, introduce
from neighbours import Neighbour, all_at_work
from remit import AgentCard, Brief, Hub
from remit.policy.reception import Sender
from remit.protocol.card import Rate
from remit.protocol.envelope import Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Progress
from remit.protocol.submission import Submission
from remit_relay import call_shared
from remit_relay.call_shared import DeviceAgent, RemoteCaller
from remit_relay.client.delivery import MessageDelivery
from remit_relay.messages import types
from remit_relay.messages.types import (
    AnswerMessage,
    DeclineMessage,
    PeerMessage,
    QuestionMessage,
    ReadReceipt,
    WithdrawMessage,
)
from remit_relay.session.profile import ControlEnvelope
from two_sides import there
from waiting import PATIENCE_S, eventually, no_longer

USER = "anna@example.org"


def passing_on(whom: str, **options: Any) -> Callable[[Brief], Awaitable[str]]:
    """Return an agent that asks another what it is asked."""

    async def ask(brief: Brief) -> str:
        return (await brief.delegate(whom, objective=brief.text, **options)).unwrap()

    return ask


def asker(neighbour: Neighbour, name: str, whom: str) -> None:
    neighbour.hub.add(name, passing_on(whom), may_call=[whom])


async def echo(brief: Brief) -> str:
    return f"heard: {brief.text}"


async def test_an_agent_of_another_device_is_asked_and_answers(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    bob.hub.add("expert", echo)
    bob.shares("expert", anna)
    anna.knows("bobs-expert", bob)
    asker(anna, "boss", "bobs-expert")
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [bob, anna]), asyncio.timeout(PATIENCE_S):
        assert (await anna.hub.ask("boss", "which one?", user=USER)).unwrap() == "heard: which one?"
        assert (await anna.hub.ask("bobs-expert", "and this?", user=USER)).unwrap() == "heard: and this?"
        (second, first) = await bob.hub.store.runs(limit=10)
        assert first.user == second.user == f"{anna.id}/{USER}"
        assert first.via == anna.id
        assert [each.event for each in bob.told] == ["asked", "answered"] * 2


# ── from device to device ─────────────────────────────────────────────────────────────────────────────────────────────


def three(path: Path, bob: dict[str, Any] | None = None, carl: dict[str, Any] | None = None) -> list[Neighbour]:
    """Return Anna, whose agent asks Bob's, which asks Carl's: *bob* says how he asks, *carl* how he shares."""
    crew = [Neighbour(path, name) for name in ("anna", "bob", "carl")]
    first, second, third = crew
    third.hub.add("oracle", echo)
    third.shares("oracle", second, **(carl or {}))
    second.knows("carls-oracle", third, **(bob or {}))
    asker(second, "expert", "carls-oracle")
    second.shares("expert", first)
    first.knows("bobs-expert", second)
    asker(first, "boss", "bobs-expert")
    return crew


async def test_a_task_is_passed_on_with_its_origin_trace_and_hops(tmp_path: Path) -> None:
    """S11: the same origin and trace on each hop, one more hop; two are allowed unless somebody says otherwise."""
    anna, bob, carl = crew = three(tmp_path)
    seen: list[QuestionMessage] = []
    for each in (bob, carl):
        each.taken = seen.append
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        response = await anna.hub.ask("boss", "which one?", user=USER)
        assert response.unwrap() == "heard: which one?"
        (theirs,) = await carl.hub.store.runs(limit=10)
    assert [each.control for each in seen] == [
        ControlEnvelope(
            origin_agent_device_id=anna.id, trace_id=response.run, hop_count=1, orchestrator_profile_id="bobs-expert"
        ),
        ControlEnvelope(
            origin_agent_device_id=anna.id, trace_id=response.run, hop_count=2, orchestrator_profile_id="carls-oracle"
        ),
    ]
    assert theirs.user == f"{bob.id}/{anna.id}/{USER}"


async def test_a_run_that_is_taken_up_before_its_message_is_read_is_on_the_same_hop(tmp_path: Path) -> None:
    """S11: what a hub goes on with after a restart is passed on under the control that it came with."""
    anna, bob, carl = crew = three(tmp_path)
    bob.remembers = False
    seen: list[QuestionMessage] = []
    carl.taken = seen.append
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        (await anna.hub.ask("boss", "which one?", user=USER)).unwrap()
        assert [(each.control.origin_agent_device_id, each.control.hop_count) for each in seen] == [(anna.id, 2)]
        # A run of Anna's whose message is gone: she has had her answer, or does not want one any more.
        sender = Sender(name=anna.id, users=frozenset({anna.id}))
        left = bob.hub.receive(Submission(target="expert", user=anna.id, objective="and now?"), sender)
        going = await bob.hub.begin(left)
        response = going if isinstance(going, Response) else await going.task
        assert response.fault is not None
        assert response.fault.code is Code.STATE_CONFLICT
        assert (
            response.fault.message == f"the request of the device {anna.id} has ended, so no more calls are made for it"
        )
        assert len(seen) == 1


async def test_a_task_that_is_worked_on_is_a_loop_whoever_says_that_it_began_with_them(tmp_path: Path) -> None:
    """S11: a device that passes a task on as its own does not get it past the trace."""
    anna, bob, carl = (Neighbour(tmp_path, name) for name in ("anna", "bob", "carl"))
    slow = Slow()
    bob.hub.add("expert", slow)
    bob.shares("expert", anna, carl)
    anna.knows("bobs-expert", bob)
    replies: list[PeerMessage] = []
    async with (
        gateway(tmp_path) as serving,
        all_at_work(serving.url, [bob, anna]),
        there(carl.sealer, serving.url) as post,
        asyncio.timeout(PATIENCE_S),
    ):
        seen: list[QuestionMessage] = []
        bob.taken = seen.append
        asking = asyncio.create_task(anna.hub.ask("bobs-expert", "which one?", user=USER))
        await slow.began.wait()
        own = ControlEnvelope(
            origin_agent_device_id=carl.id,
            trace_id=seen[0].control.trace_id,
            hop_count=1,
            orchestrator_profile_id="mine",
        )
        await post.send(bob.id, types.write(QuestionMessage(id="1", session="s", text="you do it", control=own)))
        reading = asyncio.create_task(collect(post, replies))
        await eventually(lambda: replies)
        reading.cancel()
        await asyncio.wait({reading})
        slow.go_on.set()
        assert (await asking).unwrap() == "heard: which one?"
    (declined,) = replies
    assert isinstance(declined, DeclineMessage)
    assert declined.code == Code.LOOP_DETECTED


@pytest.mark.parametrize(
    ("bob", "carl", "says"),
    [
        ({"max_hop_count": 1}, {}, ["bob"]),
        ({}, {"max_hop_count": 1}, ["bob", "carl"]),
    ],
    ids=["by who passes it on", "by who is asked"],
)
async def test_a_task_that_has_come_too_far_is_refused(
    tmp_path: Path, bob: dict[str, Any], carl: dict[str, Any], says: list[str]
) -> None:
    """S11: refused where it would be sent, and where it arrives, with the code that tells why."""
    anna, *_, last = crew = three(tmp_path, bob, carl)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        response = await anna.hub.ask("boss", "which one?", user=USER)
        assert await last.hub.store.runs(limit=1) == []
    assert response.fault is not None
    assert response.fault.code is Code.MAX_DEPTH_EXCEEDED
    for name in says:
        assert f"{name} says: " in response.fault.message


async def test_a_task_that_would_come_back_is_a_loop(tmp_path: Path) -> None:
    """S11: refused where it would be sent; and where it arrives, should it be sent."""
    anna, bob, carl = crew = three(tmp_path)
    for name, whom, back in (("to-anna", "annas-own", anna), ("to-bob", "bobs-own", bob)):
        back.hub.add(whom.split("-")[1], echo)
        back.shares(whom.split("-")[1], carl, max_hop_count=9)
        carl.knows(whom, back, max_hop_count=9, remote=whom.split("-")[1])
        asker(carl, name, whom)
    codes: list[Code | None] = []
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        for name in ("to-anna", "to-bob"):
            carl.shared.clear()
            carl.shares(name, bob, max_hop_count=9)
            response = await anna.hub.ask("boss", "which one?", user=USER)
            codes.append(response.fault and response.fault.code)
        assert [len(await each.hub.store.runs(limit=10)) for each in crew] == [2, 2, 2]
    assert codes == [Code.LOOP_DETECTED, Code.LOOP_DETECTED]


async def test_what_one_run_asks_of_a_device_at_once_is_no_loop(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    arrived = asyncio.Barrier(3)

    async def together(brief: Brief) -> str:
        await arrived.wait()  # all three are there at once
        return brief.text

    async def boss(brief: Brief) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(brief.delegate("bobs-expert", objective=each)) for each in "abc"]
        return [task.result().unwrap() for task in tasks]

    bob.hub.add("expert", together)
    bob.shares("expert", anna)
    anna.knows("bobs-expert", bob)
    anna.hub.add("boss", boss, may_call=["*"])
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [bob, anna]), asyncio.timeout(PATIENCE_S):
        assert (await anna.hub.ask("boss", "go", user=USER)).unwrap() == ["a", "b", "c"]


# ── stopped ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Slow:
    """An agent that says when it has begun, and when it was stopped."""

    def __init__(self) -> None:
        self.began, self.stopped, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, brief: Brief) -> str:
        self.began.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return f"heard: {brief.text}"


async def empty(*neighbours: Neighbour) -> None:
    """Return once none of them has a message that nobody has taken."""
    for each in neighbours:
        await no_longer(lambda at=each: at.post.do(at.sealer.inbox))


async def test_a_cancel_crosses_every_device_and_the_question_is_answered_once(tmp_path: Path) -> None:
    anna, bob, carl = crew = three(tmp_path)
    slow = Slow()
    carl.hub.add("slow", slow)
    carl.shared.clear()
    carl.shares("slow", bob)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(anna.hub.ask("boss", "which one?", user=USER, request_id="mine"))
        await slow.began.wait()
        assert anna.hub.cancel("mine")
        assert (await asking).status is Status.CANCELLED
        await slow.stopped.wait()
        await empty(*crew)
        for each in (bob, carl):
            assert [event.event for event in each.told] == ["asked", "declined"]
            assert each.told[-1].code == Code.CANCELLED
            (run,) = await each.hub.store.runs(limit=10)
            assert run.response is not None
            assert run.response.status is Status.CANCELLED


async def test_a_deadline_crosses_every_device(tmp_path: Path) -> None:
    """X6: the delegate is really cancelled, not abandoned."""
    anna, bob, carl = crew = three(tmp_path)
    slow = Slow()
    carl.hub.add("slow", slow)
    carl.shared.clear()
    carl.shares("slow", bob)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        response = await anna.hub.ask("boss", "which one?", user=USER, deadline_ms=1_500)
        assert (response.fault and response.fault.code) is Code.TIMEOUT
        await slow.stopped.wait()
        await empty(*crew)
        assert [event.event for event in carl.told] == ["asked", "declined"]


async def test_the_time_and_tokens_that_are_left_go_along(tmp_path: Path) -> None:
    anna, bob, carl = crew = three(tmp_path)
    seen: list[Brief] = []

    async def oracle(brief: Brief) -> str:
        seen.append(brief)
        brief.spend(prompt=30, completion=10)
        return "so much"

    carl.hub.add("costly", oracle)
    carl.shared.clear()
    carl.shares("costly", bob)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, crew), asyncio.timeout(PATIENCE_S):
        response = await anna.hub.ask("boss", "how much?", user=USER, max_tokens=500, deadline_ms=9_000)
        assert (response.unwrap(), response.usage.total) == ("so much", 40)
    (brief,) = seen
    assert brief.remit.tokens <= 500
    assert brief.remit.time_ms < 9_000
    assert brief.remit.depth == 2, "Anna's boss, Bob's expert, and this one"


async def test_an_answer_that_comes_too_late_is_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    introduce(anna.sealer, bob.sealer)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [bob, anna]):
        with caplog.at_level(logging.INFO, "remit.relay"):
            late = types.write(AnswerMessage(to="long-ago", session="s", text="at last"))
            await bob.post.send(anna.id, late)
            await eventually(lambda: f"dropping an answer of the device {bob.id}: nothing waits for it" in caplog.text)
        await empty(anna)


async def test_a_run_that_is_handed_back_when_its_hub_closes_goes_on_there_and_is_taken_up_here(tmp_path: Path) -> None:
    bob, slow = Neighbour(tmp_path, "bob"), Slow()
    bob.hub.add("expert", slow)

    def annas() -> Neighbour:
        anna = Neighbour(tmp_path, "anna", Hub(name="anna", store=tmp_path / "anna-hub.db"))
        anna.knows("bobs-expert", bob)
        anna.hub.add("boss", passing_on("bobs-expert"), may_call=["bobs-expert"], resumable=True)
        return anna

    anna = annas()
    bob.shares("expert", anna)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [bob]), asyncio.timeout(PATIENCE_S):
        async with anna.at_work(serving.url), anna.hub:
            asking = asyncio.create_task(anna.hub.ask("boss", "which one?", user=USER))
            await slow.began.wait()
            (run,) = await anna.hub.store.runs(limit=1)
        await asyncio.wait({asking})
        anna.sealer.device.state.close()
        assert not slow.stopped.is_set()
        anna = annas()
        async with anna.at_work(serving.url), anna.hub:
            slow.go_on.set()
            assert (await anna.hub.store.wait(run.run)).unwrap() == "heard: which one?"
        assert len(await bob.hub.store.runs(limit=10)) == 1
        assert {event.event for event in bob.told} == {"asked", "answered"}


async def test_what_was_withdrawn_before_it_was_read_is_not_begun(tmp_path: Path) -> None:
    """Both messages wait while Bob is away, and are forgotten together."""
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    slow = Slow()
    bob.hub.add("expert", slow)
    bob.shares("expert", anna)
    control = ControlEnvelope(origin_agent_device_id=anna.id, trace_id="t", hop_count=1, orchestrator_profile_id="mine")
    messages: list[PeerMessage] = [
        QuestionMessage(id="1", session="s", text="which one?", control=control),
        WithdrawMessage(to="1", session="s"),
        WithdrawMessage(to="of another time", session="s"),
    ]
    answers: list[PeerMessage] = []
    async with bob.hub, gateway(tmp_path) as serving, asyncio.timeout(PATIENCE_S):
        async with there(bob.sealer, serving.url) as away, there(anna.sealer, serving.url) as post:
            for each in messages:
                await post.send(bob.id, types.write(each))
            await eventually(lambda: away.do(bob.sealer.inbox), when=lambda opened: len(opened) >= 3)
        async with bob.at_work(serving.url), there(anna.sealer, serving.url) as post:
            reading = asyncio.create_task(collect(post, answers))
            await empty(bob)
            await eventually(lambda: answers)
            reading.cancel()
            await asyncio.wait({reading})
    (declined,) = answers
    assert isinstance(declined, DeclineMessage)
    assert declined.code == Code.CANCELLED
    assert not slow.began.is_set()


async def test_a_device_that_goes_away_fails_what_waits_and_what_is_asked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits is left to the hub for a while, which may be about to close; what is asked later fails at once."""
    monkeypatch.setattr(call_shared, "LEFT_S", 0.1)
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    slow = Slow()
    bob.hub.add("expert", slow)
    bob.shares("expert", anna)
    anna.knows("bobs-expert", bob)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [bob]), anna.hub, asyncio.timeout(PATIENCE_S):
        async with anna.at_work(serving.url):
            asking = asyncio.create_task(anna.hub.ask("bobs-expert", "which one?", user=USER))
            await slow.began.wait()
        later = await anna.hub.ask("bobs-expert", "and now?", user=USER)
        assert (later.fault and later.fault.code) is Code.DELEGATION_UNAVAILABLE
        waited = await asking
        assert waited.fault is not None
        assert waited.fault.message == "the device of this team was stopped"
        assert not slow.stopped.is_set()


# ── refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Plain:
    """A device that answers each question as it is told to, in place of a hub."""

    def __init__(self, neighbour: Neighbour, answer: Callable[[QuestionMessage], PeerMessage]) -> None:
        self._neighbour = neighbour
        self._answer = answer
        self.messages: list[PeerMessage] = []

    async def __call__(self, post: MessageDelivery) -> None:
        async for opened in post:
            message = types.decode_message(opened.body)
            self.messages.append(message)
            await post.taken(opened)
            if isinstance(message, QuestionMessage):
                await post.send(opened.sender, types.write(self._answer(message)))


@asynccontextmanager
async def answered_by(path: Path, answer: Callable[[QuestionMessage], PeerMessage]) -> AsyncGenerator[Neighbour]:
    """Have Anna ask a device that says what it likes."""
    anna, bob = Neighbour(path, "anna"), Neighbour(path, "bob")
    anna.knows("bobs-expert", bob)
    async with gateway(path) as serving, all_at_work(serving.url, [anna]), there(bob.sealer, serving.url) as post:
        reading = asyncio.create_task(Plain(bob, answer)(post))
        async with asyncio.timeout(PATIENCE_S):
            yield anna
        reading.cancel()
        await asyncio.wait({reading})


@pytest.mark.parametrize(
    ("decline_fields", "ended", "code"),
    [
        ({"code": "RATE_LIMITED", "reason": "come back later"}, Status.REFUSED, Code.RATE_LIMITED),
        ({"code": "DELEGATION_FAILED", "status": "failed", "tokens": 7}, Status.FAILED, Code.DELEGATION_FAILED),
        ({"code": "TIMEOUT", "status": "timeout"}, Status.TIMEOUT, Code.TIMEOUT),
        ({"code": "CANCELLED", "status": "cancelled"}, Status.CANCELLED, Code.CANCELLED),
        ({"code": "OF_A_LATER_VERSION", "reason": "who knows"}, Status.REFUSED, Code.DELEGATION_FAILED),
        ({"code": "PERMISSION_DENIED", "status": "of a later one"}, Status.FAILED, Code.PERMISSION_DENIED),
        ({"code": "DELEGATION_FAILED", "status": "success"}, Status.FAILED, Code.DELEGATION_FAILED),
    ],
)
async def test_why_there_is_no_answer_is_told_as_far_as_it_is_known(
    tmp_path: Path, decline_fields: dict[str, Any], ended: Status, code: Code
) -> None:
    def decline(asks: QuestionMessage) -> DeclineMessage:
        return DeclineMessage(to=asks.id, session=asks.session, **decline_fields)

    async with answered_by(tmp_path, decline) as anna:
        response = await anna.hub.ask("bobs-expert", "which one?", user=USER)
    assert response.fault is not None
    assert (response.status, response.fault.code) == (ended, code)
    reason = decline_fields.get("reason")
    assert response.fault.message == (f"bob says: {reason}" if reason else "bob gives no reason")
    assert response.usage.total == decline_fields.get("tokens", 0)


async def test_words_alone_are_an_answer_and_one_that_costs_too_much_fails(tmp_path: Path) -> None:
    def answer(asks: QuestionMessage) -> AnswerMessage:
        return AnswerMessage(to=asks.id, session=asks.session, text="forty-two", tokens=900)

    async with answered_by(tmp_path, answer) as anna:
        assert (await anna.hub.ask("bobs-expert", "what?", user=USER)).unwrap() == "forty-two"
        dear = await anna.hub.ask("bobs-expert", "what?", user=USER, max_tokens=500)
        assert (dear.fault and dear.fault.code) is Code.TOKEN_BUDGET_EXCEEDED


async def test_the_guards_of_the_hub_come_first(tmp_path: Path) -> None:
    """K9, S10: who may not call it, has no tokens for it, or asks too often, has nothing sent."""
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    bob.hub.add("expert", echo)
    bob.shares("expert", anna)
    rate = Rate(calls=2, seconds=3_600)
    anna.knows("bobs-expert", bob, card={"tokens": 400})
    anna.knows("rarely", bob, rate=rate)
    anna.hub.add("stranger", passing_on("bobs-expert"), may_call=["rarely"])
    anna.hub.add("pauper", passing_on("bobs-expert", max_tokens=0), may_call=["*"])
    codes: list[Code | None] = []
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [bob, anna]), asyncio.timeout(PATIENCE_S):
        for agent in ("stranger", "pauper", "rarely", "rarely", "rarely"):
            response = await anna.hub.ask(agent, "which one?", user=USER)
            codes.append(response.fault and response.fault.code)
        assert len(await bob.hub.store.runs(limit=10)) == 2
    assert codes == [Code.PERMISSION_DENIED, Code.TOKEN_BUDGET_EXCEEDED, None, None, Code.RATE_LIMITED]


async def test_a_device_that_is_not_known_or_not_allowed_is_not_asked(tmp_path: Path) -> None:
    anna, bob, carl = (Neighbour(tmp_path, name) for name in ("anna", "bob", "carl"))
    anna.knows("bobs-expert", bob)
    anna.knows("nobodys", bob)
    anna.knows("carls-expert", carl)
    anna.hub.register(AgentCard(name="lost"), DeviceAgent(RemoteCaller(agent="lost", device="nobody"), anna.access))
    anna.sealer.peers.revoke(carl.id)
    anna.sealer.peers.allow(bob.id, allowed=False)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [anna]), asyncio.timeout(PATIENCE_S):
        for agent, code, words in (
            ("lost", Code.DELEGATION_UNAVAILABLE, "lost is on the device nobody, which is unknown"),
            ("carls-expert", Code.DELEGATION_UNAVAILABLE, "carls-expert is on the device carl, which was revoked"),
            ("bobs-expert", Code.PERMISSION_DENIED, f"the device 'bob' ({bob.id}) is known but not allowed"),
        ):
            response = await anna.hub.ask(agent, "which one?", user=USER)
            assert response.fault is not None
            assert (response.status, response.fault.code) == (Status.REFUSED, code)
            assert words in response.fault.message
            assert response.fault.suggestion


async def told_first(hub: Hub, agent: str) -> str:
    async for record in hub.stream(agent, "which one?", user=USER):
        if isinstance(record.body, Progress):
            return record.body.text
    return ""


async def test_who_waits_is_told_that_the_gateway_is_not_there(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    anna.knows("bobs-expert", bob)
    async with AsyncExitStack() as away:
        serving = await away.enter_async_context(gateway(tmp_path))
        async with all_at_work(serving.url, [anna]), asyncio.timeout(PATIENCE_S):
            await away.aclose()
            notice = await told_first(anna.hub, "bobs-expert")
    assert notice.startswith("cannot reach bob: cannot reach the gateway: ")
    assert notice.endswith("; retrying")


async def test_who_waits_is_told_that_the_other_device_does_not_let_them_in(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    anna.knows("bobs-expert", bob)
    async with gateway(tmp_path) as serving, all_at_work(serving.url, [anna]), asyncio.timeout(PATIENCE_S):
        notice = await told_first(anna.hub, "bobs-expert")
    assert notice == (
        "cannot reach bob: the device does not exist, or does not accept messages from this device; retrying"
    )


async def test_a_hub_without_a_device_at_work_says_so(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    anna.knows("bobs-expert", bob)
    async with anna.hub, asyncio.timeout(PATIENCE_S):
        response = await anna.hub.ask("bobs-expert", "which one?", user=USER)
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_UNAVAILABLE
    assert "the device of this team is not running in this process" in response.fault.message


# ── what others say ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_that_a_device_writes_spoils_the_record(tmp_path: Path) -> None:
    """What could not be read from the record again is not put there; what is too long is shortened."""
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob", Hub(store=tmp_path / "hub.db"))
    bob.hub.add("expert", echo)
    bob.shares("expert", anna)
    control = ControlEnvelope(origin_agent_device_id=anna.id, trace_id="t", hop_count=1, orchestrator_profile_id="mine")
    questions = [
        QuestionMessage(id="a\n1", session="s" * 256, text="x" * 200_000, control=control),
        QuestionMessage(id="2", session="with\x1b[31m colour", text="hello", control=control),
        QuestionMessage(id="3", session="s", text="hello", control=control),
    ]
    heard_back: list[PeerMessage] = []
    async with (
        gateway(tmp_path) as serving,
        all_at_work(serving.url, [bob]),
        there(anna.sealer, serving.url) as post,
        asyncio.timeout(PATIENCE_S),
    ):
        for asks, requester in zip(questions, ("u" * 256, "anna", "an\x00na"), strict=True):
            await post.send(bob.id, types.write(asks), requester=requester)
            async for opened in post:
                await post.taken(opened)
                reply = types.decode_message(opened.body)
                if not isinstance(reply, ReadReceipt):
                    heard_back.append(reply)
                    break
        records = await bob.hub.store.records()
    first, second, third = heard_back
    assert isinstance(first, AnswerMessage)
    assert first.text == f"heard: {'x' * 200_000}"
    for each in (second, third):
        assert isinstance(each, DeclineMessage)
        assert each.code == Code.MALFORMED_ENVELOPE
    assert {each.kind for each in records} >= {Kind.STARTED, Kind.RESULT}


async def test_a_question_that_comes_twice_is_carried_out_once(tmp_path: Path) -> None:
    """Killed before it had the answer, a hub asks the same again: beside the first, or after it was answered."""
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    slow = Slow()
    bob.hub.add("expert", slow)
    bob.shares("expert", anna)
    control = ControlEnvelope(origin_agent_device_id=anna.id, trace_id="t", hop_count=1, orchestrator_profile_id="mine")
    asks = QuestionMessage(id="run.1", session="s", text="which one?", control=control)
    answers: list[PeerMessage] = []
    async with (
        gateway(tmp_path) as serving,
        all_at_work(serving.url, [bob]),
        there(anna.sealer, serving.url) as post,
        asyncio.timeout(PATIENCE_S),
    ):
        reading = asyncio.create_task(collect(post, answers))
        for _ in range(2):
            await post.send(bob.id, types.write(asks))
        await slow.began.wait()
        await no_longer(lambda: post.do(anna.sealer.unsettled, bob.id))
        slow.go_on.set()
        await empty(bob)
        await post.send(bob.id, types.write(asks))
        await eventually(lambda: len(answers) >= 2)
        assert len(await bob.hub.store.runs(limit=10)) == 1
        reading.cancel()
        await asyncio.wait({reading})
    answer = AnswerMessage(to="run.1", session="s", text="heard: which one?", tokens=0)
    assert answers == [answer, answer], "one for both that came at once, and one for the last"


async def collect(post: MessageDelivery, messages: list[PeerMessage]) -> None:
    async for opened in post:
        await post.taken(opened)
        message = types.decode_message(opened.body)
        if not isinstance(message, ReadReceipt):  # a busy device sends one first
            messages.append(message)
