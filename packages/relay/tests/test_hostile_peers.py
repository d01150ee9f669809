"""What a device that is known and allowed can do to a hub that shares an agent with it, and to others who ask there."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from devices import gateway
from gateways import code_of
from neighbours import Neighbour, all_at_work
from remit import Brief, Hub
from remit.protocol.card import Rate
from remit.protocol.codec import MAX_BYTES
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError
from remit.protocol.records import Kind, SharedStep
from remit.protocol.remit import Remit
from remit.protocol.submission import Submission
from remit_relay.client.delivery import MessageDelivery
from remit_relay.messages import audit, types
from remit_relay.messages.types import AnswerMessage, DeclineMessage, PeerMessage, QuestionMessage, ReadReceipt
from remit_relay.serve_shared import RECORDED_REFUSALS
from remit_relay.session.profile import ControlEnvelope
from two_sides import answer_help, there
from waiting import PATIENCE_S


def question(asker: Neighbour, name: str = "q", **more: Any) -> QuestionMessage:
    control = ControlEnvelope(
        origin_agent_device_id=asker.id, trace_id=name, hop_count=1, orchestrator_profile_id="mine"
    )
    return structs.replace(QuestionMessage(id=name, session="s", text="hello", control=control), **more)


async def answered(post: MessageDelivery) -> AsyncGenerator[PeerMessage]:
    async for opened in post:
        await post.taken(opened)
        message = types.decode_message(opened.body)
        if not isinstance(message, ReadReceipt):  # a busy device sends one first
            yield message


async def answer_to(post: MessageDelivery) -> PeerMessage:
    return await anext(answered(post))


@asynccontextmanager
async def connected_askers(path: Path, bob: Neighbour, *askers: Neighbour) -> AsyncGenerator[list[MessageDelivery]]:
    async with (
        gateway(path) as serving,
        all_at_work(serving.url, [bob]),
        AsyncExitStack() as stack,
        asyncio.timeout(PATIENCE_S),
    ):
        yield [await stack.enter_async_context(there(each.sealer, serving.url)) for each in askers]


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [2**53, 2**63, 2**64, 10**400])
def test_a_number_that_nobody_can_write_down_is_no_message(number: int) -> None:
    """A note of it could not be kept, and the question would wait in the inbox for good, on no record."""
    control = b'{"origin_agent_device_id":"a","trace_id":"t","orchestrator_profile_id":"p","hop_count":%d}' % number
    asks = b'{"type":"asks","id":"q","session":"s","text":"hello","control":%s}' % control
    answers = b'{"type":"answers","to":"q","session":"s","text":"","tokens":%d}' % number
    for body in (asks, answers):
        with pytest.raises(RemitError) as caught:
            types.decode_message(body)
        assert caught.value.fault.code is Code.MALFORMED_ENVELOPE


# ── what others are kept from ─────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_turned_away_takes_nobody_elses_place(tmp_path: Path) -> None:
    """Whoever may ask something else, or nothing more, does not use up how much may be under way at once."""
    anna, eve, bob = (Neighbour(tmp_path, name) for name in ("anna", "eve", "bob"))
    reported = asyncio.Event()

    async def expert(brief: Brief) -> str:
        return f"heard: {brief.text}"

    bob.hub.add("expert", expert)
    bob.hub.add("other", expert)
    bob.shares("expert", anna, max_concurrent_shared_calls=1)
    bob.shares("other", eve)
    async with connected_askers(tmp_path, bob, anna, eve) as (mine, theirs):
        await theirs.send(bob.id, types.write(question(eve, "met", agent="other")))
        await answer_to(theirs)
        await mine.send(bob.id, types.write(question(anna, "met")))
        await answer_to(mine)
        # What is turned away is under way until it is answered, which takes long here.
        say, gate = bob.sharing._send_outcome, asyncio.Event()  # pyright: ignore[reportPrivateUsage]

        async def slowly(question: Any, message: Any, shared: Any) -> None:
            if question.opened.sender == eve.id:
                reported.set()
                await gate.wait()
            await say(question, message, shared)

        bob.sharing._send_outcome = slowly  # pyright: ignore[reportPrivateUsage]
        for number in range(5):
            await theirs.send(bob.id, types.write(question(eve, f"e{number}", agent="expert")))
        await reported.wait()
        await mine.send(bob.id, types.write(question(anna, "mine")))
        answer = await answer_to(mine)
        gate.set()
    assert isinstance(answer, AnswerMessage), answer


async def test_nobody_fills_the_record_with_what_they_are_turned_away_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the agent is asked is recorded all the same, before and after."""
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")

    async def expert(brief: Brief) -> str:
        return brief.text

    bob.hub.add("expert", expert)
    bob.shares("expert", anna)
    many = RECORDED_REFUSALS.calls + 20
    asks = [question(anna, f"q{number}", agent="another") for number in range(many)]
    async with connected_askers(tmp_path, bob, anna) as (post,):
        for each in (*asks, question(anna, "mine", agent="expert")):
            await post.send(bob.id, types.write(each))
        came = answered(post)
        answers = [await anext(came) for _ in range(many + 1)]
        records = await bob.post.do(audit.left, bob.sealer.device.state, 0, 1_000)
        assert not await bob.post.do(bob.sealer.device.state.rows, "SELECT 1 FROM facts WHERE name LIKE 'asked/%'")
    assert sum(isinstance(each, DeclineMessage) for each in answers) == many, "each is told"
    events = Counter(each.body.event for each in records if isinstance(each.body, SharedStep))
    assert events == {"asked": RECORDED_REFUSALS.calls + 1, "declined": RECORDED_REFUSALS.calls, "answered": 1}
    assert caplog.text.count(f"the device {anna.id} was refused too often; further refusals are not recorded") == 1


async def test_what_is_longer_than_any_request_may_be_is_not_on_record(tmp_path: Path) -> None:
    """A hub records what it refuses too: nobody has it keep 16 MB with each question."""
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob")
    bob.hub.add("expert", answer_help)
    bob.shares("expert", anna)
    long = [{"input": "x" * MAX_BYTES}, {"reason": "x" * MAX_BYTES}, {"hints": ("x",) * (MAX_BYTES // 4)}]
    async with connected_askers(tmp_path, bob, anna) as (post,):
        for number, each in enumerate(long):
            request = structs.replace(Submission(target="expert", objective="hello"), **each)
            await post.send(bob.id, types.write(question(anna, f"q{number}", request=request)))
            assert code_of(DeclineMessage, await answer_to(post)) == Code.TOO_LARGE
        assert await bob.hub.store.records() == []


# ── what a request claims ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_id_and_words_of_two_devices_are_two_questions(tmp_path: Path) -> None:
    """A device that guesses what another one asks gets no answer that was meant for that one."""
    anna, eve, bob = (Neighbour(tmp_path, name) for name in ("anna", "eve", "bob"))
    calls: list[str] = []

    async def expert(brief: Brief) -> str:
        calls.append(brief.user)
        return f"for {brief.user}"

    bob.hub.add("expert", expert)
    bob.shares("expert", anna, eve)
    async with connected_askers(tmp_path, bob, anna, eve) as (mine, theirs):
        replies: list[PeerMessage] = []
        for asker, post in ((anna, mine), (eve, theirs)):
            await post.send(
                bob.id, types.write(question(asker, "run.1", request=Submission(target="x"))), requester="u"
            )
            replies.append(await answer_to(post))
    assert [each.answer and each.answer.result for each in replies if isinstance(each, AnswerMessage)] == [
        f"for {anna.id}/u",
        f"for {eve.id}/u",
    ]
    assert len(calls) == 2


async def test_a_request_reaches_nothing_but_what_is_shared_whatever_it_claims(tmp_path: Path) -> None:
    anna, bob = Neighbour(tmp_path, "anna"), Neighbour(tmp_path, "bob", Hub(store=tmp_path / "hub.db"))

    async def expert(brief: Brief) -> str:
        return brief.text

    bob.hub.add("expert", expert)
    bob.hub.add("secret", expert)
    bob.shares("expert", anna, rate=Rate(calls=100, seconds=60))
    most = 2**53 - 1
    wide = Remit(user=anna.id, depth=0, max_depth=most, time_ms=most, tokens=most, context_tokens=most)
    claims: list[tuple[dict[str, Any], Code | None]] = [
        ({"target": "secret", "id": "another", "session": "another", "via": "x", "run": "y", "parent": "z"}, None),
        ({"remit": wide, "max_tokens": most, "max_depth": most, "deadline_ms": most, "context_tokens": most}, None),
        ({"remit": structs.replace(wide, user="bob")}, Code.USER_MISMATCH),
        ({"user": "bob"}, None),
        ({"origin": "expert"}, Code.MALFORMED_ENVELOPE),
        ({"chain": ("bob", "secret")}, None),
        ({"targets": frozenset({"secret"}), "parent_session": "bobs", "retry_of": "q", "refined_by": "bob"}, None),
    ]
    async with connected_askers(tmp_path, bob, anna) as (post,):
        for number, (claim, code) in enumerate(claims):
            request = structs.replace(Submission(target="expert", objective="hello"), **claim)
            await post.send(bob.id, types.write(question(anna, f"q{number}", request=request)))
            reply = await answer_to(post)
            assert (reply.code if isinstance(reply, DeclineMessage) else None) == code, (claim, reply)
        records = await bob.hub.store.records()
    begun = [each.body for each in records if each.kind is Kind.STARTED and isinstance(each.body, Request)]
    assert {each.target for each in begun} == {"expert"}
    for each in begun:
        assert (each.via, each.remit.user, each.parent, each.session) == (anna.id, anna.id, None, f"{anna.id}/s")
        assert max(each.remit.tokens, each.remit.time_ms, each.remit.max_depth) < most
        assert each.run != "y"
    assert msgspec.json.encode(records)
