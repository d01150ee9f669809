"""What devices share with each other: who is told what, which agent is meant, and what waits for whom."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from devices import gateway, introduce, linked, sealer
from gateways import code_of
from remit import Brief, Hub
from remit.policy.budget import Window
from remit.ports import StoreError
from remit.protocol.card import Rate
from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.peers import Peers
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.channel import MessageCipher
from remit_relay.messages import types
from remit_relay.messages.types import (
    MAX_DESCRIPTION,
    MAX_OFFERED,
    AgentOffer,
    AnswerMessage,
    CatalogSender,
    DeclineMessage,
    OffersMessage,
    QuestionMessage,
    ReadReceipt,
    choose,
    latest_offers,
    store_offers,
)
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing, offered
from remit_relay.session.moves import Approve, Pause, Resume, SessionState
from remit_relay.session.profile import ControlEnvelope, Profile
from remit_relay.session.run import Overlay
from remit_relay.team.device import using_device
from remit_relay.team.device_service import Relaying, relaying
from remit_testing import MemoryStore
from shared_teams import device_of, make_annas, make_bobs, team_in
from shared_teams import introduce as introduce_teams
from two_sides import Stranger, there
from waiting import eventually

EXPERT = AgentOffer(name="expert", description="Knows the API.")
HELPER = AgentOffer(name="helper")


async def until(what: Callable[[], Any]) -> None:
    await eventually(what)


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "agents",
    [
        [{"name": ""}],
        [{"name": "x" * 201}],
        [{"name": "a\nb"}],
        [{"name": "a", "description": "x" * (MAX_DESCRIPTION + 1)}],
        [{"name": "a"}, {"name": "a", "description": "another"}],
        [{"name": str(number)} for number in range(MAX_OFFERED + 1)],
        [{"description": "of nobody"}],
        None,
    ],
)
def test_an_offer_that_is_too_large_or_says_something_twice_is_not_read(agents: Any) -> None:
    with pytest.raises(RemitError) as raised:
        types.decode_message(json.dumps({"type": "offers", "agents": agents}).encode())
    assert raised.value.fault.code is Code.MALFORMED_ENVELOPE


def test_an_offer_is_read_as_it_was_written() -> None:
    for offer in (OffersMessage(agents=()), OffersMessage(agents=(EXPERT, HELPER))):
        assert types.decode_message(types.write(offer)) == offer


# ── which is meant ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_device_that_has_said_nothing_anything_may_be_asked() -> None:
    assert [choose(None, "", "bob"), choose(None, "x", "bob")] == ["", "x"]


def test_the_only_agent_need_not_be_named_and_of_several_one_is() -> None:
    assert choose((EXPERT,), "", "bob") == "expert"
    assert choose((EXPERT, HELPER), "helper", "bob") == "helper"


@pytest.mark.parametrize(
    ("offer", "agent", "code", "message"),
    [
        (
            (EXPERT, HELPER),
            "",
            Code.INPUT_VALIDATION_FAILED,
            "bob shares several agents with this device: expert, helper",
        ),
        (
            (EXPERT, HELPER),
            "x",
            Code.AGENT_NOT_FOUND,
            "bob shares no agent `x` with this device; it shares: expert, helper",
        ),
        ((EXPERT,), "x", Code.AGENT_NOT_FOUND, "bob shares no agent `x` with this device; it shares: expert"),
        ((), "", Code.AGENT_NOT_FOUND, "bob shares nothing with this device"),
        ((), "x", Code.AGENT_NOT_FOUND, "bob shares nothing with this device"),
    ],
)
def test_what_is_not_shared_or_not_clear_is_refused_with_what_there_is(
    offer: tuple[AgentOffer, ...], agent: str, code: Code, message: str
) -> None:
    with pytest.raises(RemitError) as raised:
        choose(offer, agent, "bob")
    assert (raised.value.fault.code, raised.value.fault.message) == (code, message)


def test_of_very_many_agents_some_are_named() -> None:
    with pytest.raises(RemitError) as raised:
        choose(tuple(AgentOffer(name=str(number)) for number in range(MAX_OFFERED)), "", "bob")
    assert raised.value.fault.message.endswith("18, 19 and 80 more")


# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pair(tmp_path: Path) -> tuple[MessageCipher, MessageCipher]:
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    return anna, bob


def shared_with(*devices: MessageCipher, **more: Any) -> Shared:
    allowed = frozenset(each.device.id for each in devices)
    profile = Profile(id="theirs", allow_shared_agent_calls=True, allowed_shared_device_ids=allowed)
    return Shared(agent="helper", profile=profile, **more)


def test_a_device_is_told_once_and_again_when_it_is_something_else(pair: tuple[MessageCipher, MessageCipher]) -> None:
    anna, bob = pair
    unsettled_counts: list[int] = []

    def tell(*offer: AgentOffer, teller: CatalogSender) -> None:
        teller.tell(bob.peers.list(), lambda _: offer)
        unsettled_counts.append(bob.unsettled(anna.device.id))

    teller = CatalogSender(bob)
    tell(teller=teller)
    tell(HELPER, teller=teller)
    tell(HELPER, teller=teller)
    tell(HELPER, teller=CatalogSender(bob))
    tell(EXPERT, HELPER, teller=teller)
    tell(teller=teller)
    tell(teller=CatalogSender(bob))
    assert unsettled_counts == [1, 2, 2, 2, 3, 4, 4], "the first time also that it is nothing"


def test_who_was_revoked_or_is_not_allowed_is_told_nothing(pair: tuple[MessageCipher, MessageCipher]) -> None:
    anna, bob = pair
    teller = CatalogSender(bob)
    bob.peers.allow(anna.device.id, allowed=False)
    teller.tell(bob.peers.list(), lambda _: (HELPER,))
    assert bob.unsettled(anna.device.id) == 0
    listed = [bob.peers.allow(anna.device.id)]
    bob.peers.revoke(anna.device.id)
    teller.tell(listed, lambda _: (HELPER,))
    teller.tell(bob.peers.list(), lambda _: (HELPER,))
    assert bob.unsettled(anna.device.id) == 0


def test_what_could_not_be_sealed_is_told_later(
    pair: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, bob = pair
    teller = CatalogSender(bob)
    with monkeypatch.context() as patched:
        patched.setattr("remit_relay.e2e.outbox.MAX_HELD", 0)
        teller.tell(bob.peers.list(), lambda _: (HELPER,))
    assert bob.unsettled(anna.device.id) == 0
    teller.tell(bob.peers.list(), lambda _: (HELPER,))
    assert bob.unsettled(anna.device.id) == 1


def test_what_was_told_is_kept_together_with_its_message(
    pair: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, bob = pair
    keep = DeviceFile.keep

    def full(state: DeviceFile, name: str, value: object) -> None:
        if name.startswith("told/"):
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is full"))
        keep(state, name, value)

    with monkeypatch.context() as patched:
        patched.setattr(DeviceFile, "keep", full)
        CatalogSender(bob).tell(bob.peers.list(), lambda _: (HELPER,))
    assert bob.unsettled(anna.device.id) == 0, "neither without the other"
    CatalogSender(bob).tell(bob.peers.list(), lambda _: (HELPER,))
    assert bob.unsettled(anna.device.id) == 1


def test_each_device_is_told_only_what_it_may_ask(pair: tuple[MessageCipher, MessageCipher]) -> None:
    anna, bob = pair
    shared = {
        "zebra": shared_with(anna),
        "hidden": shared_with(bob),
        "expert": shared_with(anna, bob, description="x" * 1_000),
    }
    assert offered(shared, anna.device.id) == (
        AgentOffer(name="expert", description="x" * MAX_DESCRIPTION),
        AgentOffer(name="zebra"),
    )
    assert offered(shared, "a stranger") == ()


# ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_offer_replaces_the_one_before_and_is_forgotten_with_its_device(
    pair: tuple[MessageCipher, MessageCipher],
) -> None:
    anna, bob = pair
    state, device = anna.device.state, bob.device.id
    async with gateway(Path(state.path).parent) as serving, there(anna, serving.url) as ours, linked(bob, serving.url):
        assert latest_offers(state, device) is None
        for agents in ((HELPER,), (), (EXPERT, HELPER)):
            await asyncio.to_thread(bob.seal, anna.device.id, types.write(OffersMessage(agents=agents)))
            opened = await anext(aiter(ours))
            message = types.decode_message(opened.body)
            assert isinstance(message, OffersMessage)
            await ours.do(store_offers, anna, opened, message)
            assert latest_offers(state, device) == agents
    assert not anna.inbox()
    anna.peers.allow(device, allowed=False)
    assert latest_offers(state, device) is None, "what a device says counts while it may say something"
    anna.peers.allow(device)
    assert latest_offers(state, device) == (EXPERT, HELPER)
    anna.peers.revoke(device)
    assert not state.rows("SELECT name FROM facts WHERE name LIKE 'heard/%'")


async def test_an_offer_that_was_left_by_a_device_which_may_say_nothing_now_is_not_taken(
    pair: tuple[MessageCipher, MessageCipher],
) -> None:
    """S10: nothing of what is not allowed counts."""
    anna, bob = pair
    device = bob.device.id
    async with gateway(Path(anna.device.state.path).parent) as serving, there(anna, serving.url) as ours:
        async with linked(bob, serving.url) as theirs:
            await theirs.send(anna.device.id, types.write(OffersMessage(agents=(HELPER,))))
            opened = await anext(aiter(ours))
        anna.peers.allow(device, allowed=False)
        await ours.do(store_offers, anna, opened, OffersMessage(agents=(HELPER,)))
    anna.peers.allow(device)
    assert (latest_offers(anna.device.state, device), anna.inbox()) == (None, [])


# ── two teams ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TWO = """
[agents.expert]
run = "bobs_code:helper"

[shared.expert]
description = "Knows the API."
devices = ["anna"]

[agents.secret]
run = "bobs_code:helper"

[shared.secret]
devices = ["carl"]
"""


class Teams:
    """Anna's team, whose agent asks, and Bob's, which shares several."""

    def __init__(self, annas: Path, bobs: Path) -> None:
        self.annas, self.bobs, self.bob, self.anna = annas, bobs, device_of(bobs), device_of(annas)
        self.hub = Hub(store=MemoryStore())
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked_agents: list[str] = []
        for name in ("helper", "expert", "secret"):
            self._add(name)

    def _add(self, name: str) -> None:
        async def answer(brief: Brief) -> str:
            self.asked_agents.append(name)
            await self.gate.wait()
            return f"{name} heard: {brief.text}"

        self.hub.agent(name)(answer)

    def asking(self, *, host: bool = True) -> AbstractAsyncContextManager[Relaying]:
        return relaying(team_in(self.annas), hub=None, host=host, share=False)

    def sharing(self) -> AbstractAsyncContextManager[Relaying]:
        return relaying(team_in(self.bobs), hub=self.hub, host=False, share=True)

    def known_offers(self, at_work: Relaying) -> tuple[AgentOffer, ...] | None:
        return latest_offers(at_work.device.state, self.bob)


@asynccontextmanager
async def teams(path: Path, more: str = TWO) -> AsyncGenerator[Teams]:
    async with gateway(path) as serving:
        annas, bobs = make_annas(path / "annas", serving.url), make_bobs(path / "bobs", serving.url)
        for folder in (annas, bobs):
            file = folder / "remit.toml"
            file.write_text(file.read_text().replace("[relay]\n", '[relay]\nname = "g"\n'))
        with (bobs / "remit.toml").open("a") as file:
            file.write(more)
        introduce_teams(annas, bobs)
        both = Teams(annas, bobs)
        async with both.hub:
            yield both


async def start(at_work: Relaying, device: str, **more: Any) -> Overlay:
    assert at_work.host is not None
    return await at_work.host.start("mine", device, "review this API", **more)


async def until_asked(at_work: Relaying, run: Overlay) -> Overlay:
    """Return the run once a draft of it waits for a person."""
    return await in_state(at_work, run, SessionState.READY_TO_SEND)


async def ended(at_work: Relaying, run: Overlay) -> Overlay:
    return await in_state(at_work, run, SessionState.COMPLETED, SessionState.STOPPED, SessionState.ERROR)


async def in_state(at_work: Relaying, run: Overlay, *states: SessionState) -> Overlay:
    host = at_work.host
    assert host is not None
    return await eventually(
        lambda: next(each for each in host.runs if each.id == run.id), when=lambda now: now.state in states
    )


async def test_what_is_shared_is_told_while_both_are_at_work_and_taken_back(tmp_path: Path) -> None:
    async with teams(tmp_path) as both, both.sharing() as bobs, both.asking() as annas:
        await until(lambda: both.known_offers(annas) == (EXPERT, HELPER))
        peers = Peers(bobs.device.state)
        await bobs.post.do(peers.share, both.anna)  # so that there still is something to say to her
        await bobs.post.do(peers.allow, both.anna, allowed=False)
        await bobs.refresh()
        await until(lambda: both.known_offers(annas) == ())
        with pytest.raises(RemitError) as raised:
            await start(annas, both.bob)
        assert raised.value.fault.message == "bob shares nothing with this device"
        await bobs.post.do(peers.allow, both.anna)
        await bobs.refresh()
        await until(lambda: both.known_offers(annas) == (EXPERT, HELPER))


async def test_what_a_team_shares_no_more_is_taken_back_by_whatever_it_does_next(tmp_path: Path) -> None:
    async with teams(tmp_path) as both, both.asking() as annas:
        async with both.sharing():
            await until(lambda: both.known_offers(annas) == (EXPERT, HELPER))
        async with relaying(team_in(both.bobs), hub=None, host=True, share=False) as bobs:
            await bobs.ready.wait()
            row, _ = bobs.sealer.peers.row(both.anna)
            offers = bobs.device.state.fact(f"told/{row}", tuple[AgentOffer, ...])
            assert offers == (EXPERT, HELPER), "it is still shared, by another process"
        file = both.bobs / "remit.toml"
        file.write_text(file.read_text().partition("[shared.helper]")[0])
        async with relaying(team_in(both.bobs), hub=None, host=True, share=False):
            await until(lambda: both.known_offers(annas) == ())


async def test_the_agent_that_is_named_is_asked_and_kept_in_the_run(tmp_path: Path) -> None:
    async with teams(tmp_path) as both, both.sharing(), both.asking() as annas:
        await until(lambda: both.known_offers(annas))
        with pytest.raises(RemitError) as raised:
            await start(annas, both.bob)
        assert raised.value.fault.message == "bob shares several agents with this device: expert, helper"
        with pytest.raises(RemitError) as raised:
            await start(annas, both.bob, agent="secret")
        assert raised.value.fault.message == "bob shares no agent `secret` with this device; it shares: expert, helper"
        run = await ended(annas, await start(annas, both.bob, agent="expert"))
        assert (run.state, run.agent, set(both.asked_agents)) == (SessionState.COMPLETED, "expert", {"expert"})


async def test_the_only_agent_that_is_offered_is_named_in_the_run(tmp_path: Path) -> None:
    async with teams(tmp_path, "") as both, both.sharing(), both.asking() as annas:
        await until(lambda: both.known_offers(annas) == (HELPER,))
        run = await ended(annas, await start(annas, both.bob))
        assert (run.state, run.agent) == (SessionState.COMPLETED, "helper")


async def test_a_run_that_began_before_anything_was_said_is_told_later_which_agent_is_meant(tmp_path: Path) -> None:
    async with teams(tmp_path) as both, both.asking() as annas:
        assert annas.host is not None
        run = await start(annas, both.bob)
        async with both.sharing():
            run = await ended(annas, run)
            assert run.failure.startswith("AGENT_NOT_FOUND: several agents are shared")
            await until(lambda: both.known_offers(annas))
            with pytest.raises(RemitError) as raised:
                await annas.host.act(run.id, Resume())
            assert raised.value.fault.message == "bob shares several agents with this device: expert, helper"
            await annas.host.act(run.id, Resume("helper"))
            run = await until_asked(annas, run)
            assert run.pending is not None
            await annas.host.act(run.id, Approve(run.pending.id))
            run = await ended(annas, run)
            assert (run.state, run.agent, set(both.asked_agents)) == (SessionState.COMPLETED, "helper", {"helper"})


async def test_a_run_stays_with_its_agent(tmp_path: Path) -> None:
    async with teams(tmp_path) as both, both.asking() as annas:
        assert annas.host is not None
        run = await start(annas, both.bob, agent="helper")
        await annas.host.act(run.id, Pause())
        with pytest.raises(RemitError) as raised:
            await annas.host.act(run.id, Resume("expert"))
        assert raised.value.fault.message == "the run is with `helper`, which cannot be changed"
        assert (await annas.host.act(run.id, Resume("helper"))).agent == "helper"


# ── what nobody can take now ──────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_that_comes_while_no_run_is_held_waits_for_its_run(tmp_path: Path) -> None:
    async with teams(tmp_path, "") as both, both.sharing():
        both.gate.clear()
        async with both.asking() as annas:
            run = await start(annas, both.bob)
            await until(lambda: both.asked_agents)
        async with both.asking(host=False) as annas:
            both.gate.set()
            await until(annas.sealer.inbox)
            # What belongs to nothing is forgotten; it also shows that what came before it was looked at.
            await _unasked(both, annas)
            (kept,) = annas.sealer.inbox()
            assert b"helper heard: message 1" in kept.body
        async with both.asking() as annas:
            assert annas.host is not None
            await until(lambda: not annas.sealer.inbox())
            await annas.host.act(run.id, Resume())
            assert (await ended(annas, run)).state is SessionState.COMPLETED
    assert both.asked_agents == ["helper", "helper"]


async def _unasked(both: Teams, annas: Relaying) -> None:
    """Have Bob say what answers nothing, and return once it was looked at."""
    with using_device(team_in(both.bobs)) as bob:
        MessageCipher(bob).seal(both.anna, types.write(AnswerMessage(to="x", session="of no run", text="unasked")))
    await until(lambda: not _held(both))
    await until(lambda: len(annas.sealer.inbox()) < 2)


def _held(both: Teams) -> int:
    with using_device(team_in(both.bobs)) as bob:
        return MessageCipher(bob).unsettled(both.anna)


async def test_a_question_waits_for_the_process_that_shares(tmp_path: Path) -> None:
    async with teams(tmp_path, "") as both, both.asking() as annas:
        async with relaying(team_in(both.bobs), hub=None, host=True, share=False) as bobs:
            run = await start(annas, both.bob)
            await until(bobs.sealer.inbox)
        async with both.sharing():
            assert (await ended(annas, run)).state is SessionState.COMPLETED


# ── what is declined ──────────────────────────────────────────────────────────────────────────────────────────────────


class Asking(Stranger):
    """A device that asks as it likes."""

    async def says(self, text: str = "hello", **more: Any) -> AnswerMessage | DeclineMessage:
        here = self.sealer.device.id
        control = ControlEnvelope(origin_agent_device_id=here, trace_id=text, hop_count=1, orchestrator_profile_id="x")
        reply = await self.ask(QuestionMessage(id=text, session="s", text=text, control=control, **more))
        assert isinstance(reply, AnswerMessage | DeclineMessage)
        return reply


@asynccontextmanager
async def stranger(
    path: Path, shared: Callable[[MessageCipher, MessageCipher], dict[str, Shared]] | None
) -> AsyncGenerator[Asking]:
    path.mkdir(exist_ok=True)
    anna, bob = sealer(path, "anna"), sealer(path, "bob")
    introduce(anna, bob)
    hub = Hub(store=MemoryStore())

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        return f"heard: {brief.text}"

    assert helper
    async with hub, gateway(path) as serving, there(bob, serving.url) as theirs, linked(anna, serving.url) as ours:
        served = None if shared is None else shared(anna, bob)
        sharing = None if served is None else Sharing(hub, bob, theirs, served, now_ms=lambda: 1_000_000)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(
                route_messages(theirs, None, sharing, sealer=bob, now_ms=lambda: 1_000_000, shares_nothing=not served)
            )
            yield Asking(anna, ours, bob.device.id)
            reading.cancel()
            if sharing is not None:
                await sharing.close()


async def test_a_decline_names_what_that_device_may_ask_and_nothing_else(tmp_path: Path) -> None:
    def shared(anna: MessageCipher, bob: MessageCipher) -> dict[str, Shared]:
        return {"one": shared_with(anna), "other": shared_with(anna), "secret": shared_with(bob)}

    async with stranger(tmp_path, shared) as third:
        unclear = await third.says("1")
        secret = await third.says("2", agent="secret")
        nonsense = await third.says("3", agent="nonsense")
        clear = await third.says("4", agent="other")
    assert isinstance(unclear, DeclineMessage)
    assert isinstance(secret, DeclineMessage)
    assert isinstance(nonsense, DeclineMessage)
    assert unclear.code == secret.code == "AGENT_NOT_FOUND"
    these = "choose one of: one, other"
    assert unclear.reason == f"several agents are shared with your device; {these}"
    assert secret.reason == f"no agent `secret` is shared with your device; {these}"
    assert nonsense.reason == secret.reason.replace("secret", "nonsense"), (
        "what is there cannot be told from what is not"
    )
    assert isinstance(clear, AnswerMessage)


async def test_a_question_is_declined_by_a_device_that_shares_nothing(tmp_path: Path) -> None:
    async with stranger(tmp_path, None) as third:
        reply = await third.says("1")
    assert isinstance(reply, DeclineMessage)
    assert (reply.code, reply.reason) == ("AGENT_NOT_FOUND", "the device shares no agent")


async def test_a_device_with_which_nothing_is_shared_learns_no_name(tmp_path: Path) -> None:
    async with stranger(tmp_path, lambda _, bob: {"secret": shared_with(bob)}) as third:
        replies = [await third.says("1"), await third.says("2", agent="secret"), await third.says("3", agent="x")]
    assert [(each.code, each.reason) for each in replies if isinstance(each, DeclineMessage)] == [
        ("PERMISSION_DENIED", "no agent is shared with your device")
    ] * 3


async def test_a_restart_forgives_no_question(tmp_path: Path) -> None:
    """S11: how often a device may ask is counted over restarts of the device that is asked."""

    def shared(anna: MessageCipher, _: MessageCipher) -> dict[str, Shared]:
        made = shared_with(anna)
        return {"helper": replace(made, profile=replace(made.profile, rate=Rate(calls=2, seconds=60)))}

    async with stranger(tmp_path, shared) as third:
        assert isinstance(await third.says("1"), AnswerMessage)
    async with stranger(tmp_path, shared) as third:
        assert isinstance(await third.says("2"), AnswerMessage)
        assert code_of(DeclineMessage, await third.says("3")) == "RATE_LIMITED"
    async with stranger(tmp_path, shared) as third:
        assert code_of(DeclineMessage, await third.says("4")) == "RATE_LIMITED"


async def test_a_window_of_the_future_is_none(tmp_path: Path) -> None:
    """A clock that was wrong and is set right must not lock a device out."""

    def shared(anna: MessageCipher, bob: MessageCipher) -> dict[str, Shared]:
        row, _ = bob.peers.row(anna.device.id)
        bob.device.state.keep(f"rates/{row}", {"helper": Window(start=5_000.0, calls=100)})
        return {"helper": shared_with(anna)}

    async with stranger(tmp_path, shared) as third:
        assert isinstance(await third.says("1"), AnswerMessage)


async def test_of_questions_that_come_at_once_the_first_are_let_in(tmp_path: Path) -> None:
    """S10: no more than `max_concurrent_shared_calls`, and not fewer."""

    def shared(anna: MessageCipher, _: MessageCipher) -> dict[str, Shared]:
        return {"helper": shared_with(anna)}

    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    here = anna.device.id
    for number in range(5):
        control = ControlEnvelope(
            origin_agent_device_id=here, trace_id=str(number), hop_count=1, orchestrator_profile_id="x"
        )
        anna.seal(
            bob.device.id, types.write(QuestionMessage(id=str(number), session="s", text="hello", control=control))
        )
    hub, gate, replies = Hub(store=MemoryStore()), asyncio.Event(), list[AnswerMessage | DeclineMessage]()

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        await gate.wait()
        return f"heard: {brief.text}"

    assert helper
    async with hub, gateway(tmp_path) as serving, there(bob, serving.url) as theirs, linked(anna, serving.url) as ours:
        await until(lambda: len(bob.inbox()) == 5)
        sharing = Sharing(hub, bob, theirs, shared(anna, bob), now_ms=lambda: 1_000_000)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(route_messages(theirs, None, sharing, sealer=bob, now_ms=lambda: 1_000_000))
            async for opened in ours:
                message = types.decode_message(opened.body)
                if isinstance(message, ReadReceipt):  # a busy device sends one first
                    continue
                assert isinstance(message, AnswerMessage | DeclineMessage)
                replies.append(message)
                if len(replies) == 2:
                    gate.set()
                if len(replies) == 5:
                    break
            reading.cancel()
            await sharing.close()
    assert [(each.to, each.code) for each in replies if isinstance(each, DeclineMessage)] == [
        ("3", "OVERLOADED"),
        ("4", "OVERLOADED"),
    ]
