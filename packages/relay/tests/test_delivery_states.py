"""How far a message is known to have come: it never goes back, whoever is killed, and costs quick answers nothing."""

import asyncio
import signal
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from device_processes import DeviceProcesses, prepare
from gateways import GatewayProcess, Proxy
from pairs import together
from remit.protocol.submission import Submission
from remit_relay.messages import types
from remit_relay.messages.types import QuestionMessage, ReadReceipt
from remit_relay.session.moves import SessionState
from remit_relay.session.run import (
    DeliveryState,
    MessageProgress,
    Overlay,
    TimelineEntry,
    delivery_of,
    followed_message,
    last_delivery,
    mark_expired,
    mark_progress,
    mark_released,
)
from two_sides import stranger
from waiting import eventually

ORDER: tuple[DeliveryState, ...] = ("waiting", "taken", "failed", "delivered", "read")
SENT = TimelineEntry(role="local_agent", text="hello", turn=1, at_ms=5, id="r.m1", label="auto_sent", sent_ms=5)
RUN = Overlay(id="r", profile="mine", device="d", session="s", objective="o", turn=1, timeline=(SENT,))
OUT = mark_released(RUN, "r.m1", "ab" * 16, 6)
REPLY = TimelineEntry(role="remote_agent", text="hi", turn=1, at_ms=9)


# ── the states alone ──────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.sampled_from(ORDER), max_size=20))
def test_a_state_is_never_overwritten_by_an_earlier_one(states: list[DeliveryState]) -> None:
    run, seen = OUT, ["waiting"]
    for now_ms, state in enumerate(states, start=10):
        run = mark_progress(run, "r.m1", state, now_ms)
        delivery = last_delivery(run)
        assert delivery is not None
        seen.append(delivery.state)
    assert all(ORDER.index(one) <= ORDER.index(other) for one, other in pairwise(seen))  # pyright: ignore[reportArgumentType]
    assert seen[-1] == max(("waiting", *states), key=ORDER.index)


def test_what_is_no_news_changes_nothing() -> None:
    taken = mark_progress(OUT, "r.m1", "taken", 7)
    assert mark_progress(taken, "r.m1", "taken", 8) is taken
    assert mark_progress(taken, "r.m9", "read", 8) is taken
    assert mark_progress(RUN, "r.m1", "read", 8) is RUN


def test_an_answer_and_a_failure_are_the_last_state() -> None:
    read = mark_progress(OUT, "r.m1", "read", 7)
    for answered in (replace(read, timeline=(*read.timeline, REPLY)), replace(read, kept=(REPLY,))):
        assert last_delivery(answered) == MessageProgress(state="answered", since_ms=9)
        assert followed_message(answered) is None
    lost = replace(read, timeline=(replace(read.timeline[0], failed="RATE_LIMITED: later"),))
    assert last_delivery(lost) == MessageProgress(state="failed", since_ms=7, why="RATE_LIMITED: later")
    assert delivery_of(answered, REPLY) is None


def test_a_message_that_expired_has_failed_until_it_is_delivered_all_the_same() -> None:
    taken = mark_progress(OUT, "r.m1", "taken", 7)
    assert mark_expired(taken, 4, "gone", 8) is taken  # it was released later
    gone = mark_expired(taken, 5, "gone", 8)
    delivery = last_delivery(gone)
    assert delivery is not None
    assert (delivery.state, delivery.why) == ("failed", "gone")
    assert followed_message(gone) is not None
    back = last_delivery(mark_progress(gone, "r.m1", "delivered", 9))
    assert back is not None
    assert (back.state, back.why) == ("delivered", "")


# ── between devices ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_slow_answer_is_preceded_by_delivered_and_read_and_none_of_it_is_recorded(tmp_path: Path) -> None:
    free = asyncio.Event()
    async with together(tmp_path, answers_after=free, mode="full_auto") as pair:
        run = await pair.start()
        await eventually(lambda: last_delivery(pair.host.runs[0]), when=lambda now: now and now.state == "read")
        free.set()
        run = await pair.until(run, SessionState.COMPLETED)
    assert {each.state for entry in run.timeline if (each := delivery_of(run, entry))} == {"answered"}
    assert "read" not in {each.event for each in pair.notes}


async def test_a_quick_answer_costs_no_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed: list[types.PeerMessage] = []
    async with together(tmp_path, mode="full_auto") as pair:
        seal = pair.bob.seal

        def note(to: str, body: bytes) -> str:
            sealed.append(types.decode_message(body))
            return seal(to, body)

        monkeypatch.setattr(pair.bob, "seal", note)
        await pair.until(await pair.start(), SessionState.COMPLETED)
    assert [type(each).__name__ for each in sealed] == ["AnswerMessage"] * 3


async def test_a_hub_that_asks_gets_no_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit_relay.serve_shared.RECEIPT_S", 0.0)
    async with stranger(tmp_path) as other:
        control = {"origin_agent_device_id": other.sealer.device.id, "trace_id": "t", "hop_count": 1}
        asks = {"id": "q", "session": "s", "text": "hi", "control": {**control, "orchestrator_profile_id": "p"}}
        question = msgspec.convert(asks, QuestionMessage)
        of_hub = replace(question, id="q1", request=Submission(target="-", objective="hi"))
        assert type(await other.ask(of_hub, receipt=True)).__name__ == "AnswerMessage"
        assert await other.ask(question, receipt=True) == ReadReceipt(to="q", session="s")


async def test_a_message_of_a_kind_that_only_later_versions_know_is_dropped_in_peace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="remit.relay")
    async with together(tmp_path, mode="full_auto") as pair:
        pair.bob.seal(pair.anna.device.id, b'{"type":"waves","at":3}')
        run = await pair.until(await pair.start(), SessionState.COMPLETED)
        assert run.turn == 3
        await eventually(lambda: "of a later version" in caplog.text)
    assert "invalid message" not in caplog.text


# ── whoever is killed ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_states_survive_the_death_of_either_device_and_of_the_gateway_between_any_two(tmp_path: Path) -> None:
    prepare(tmp_path)
    async with (
        GatewayProcess(tmp_path / "gateway") as gateway,
        DeviceProcesses(tmp_path) as devices,
        Proxy(await gateway.start()) as network,
    ):
        gateway.networks.append(network)
        # Bob was there once, so that his keys are at the gateway.
        await devices.start("bob-away", network.url)
        await eventually((tmp_path / "bob-is-there").exists)
        await devices.kill("bob-away")
        await gateway.stop(signal.SIGKILL)

        await devices.start("anna", network.url)
        await devices.until("waiting")
        await devices.again("anna", network.url, "waiting")
        await gateway.start()
        await devices.until("taken")
        await gateway.stop(signal.SIGKILL)
        await devices.again("anna", network.url, "taken")
        await gateway.start()
        await devices.start("bob-away", network.url)
        await devices.until("delivered")
        await devices.kill("bob-away")
        await devices.again("anna", network.url, "delivered")
        await devices.start("bob", network.url)
        await devices.until("read")
        await devices.kill("bob")
        await devices.again("anna", network.url, "read")
        await gateway.stop(signal.SIGKILL)
        await gateway.start()
        devices.answer()
        await devices.start("bob", network.url)
        await devices.until("answered")
        await devices.again("anna", network.url, "answered")
    order = ("waiting", "taken", "delivered", "read", "answered")
    seen = [order.index(state) for state in devices.states()]
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3, 4}
