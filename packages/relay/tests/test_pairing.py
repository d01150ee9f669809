"""Two devices pair over a code through a real gateway; attackers at the gateway and around it do not."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from devices import gateway, sealer
from gateway_stores import empty_database, gateways_on
from gateways import NAME, code_of, gateway_at
from pairing import Between, Hosting, Visitor, meeting_at, owner_of, pair
from remit.protocol.errors import Code, RemitError
from remit_relay.device.peers import Grants, KeyChanged
from remit_relay.e2e.channel import MessageCipher
from remit_relay.gateway.limits import GatewayLimits, HourlyRate
from remit_relay.pairing.client import join_pairing
from remit_relay.pairing.code import PairingCode
from remit_relay.pairing.exchange import (
    MAX_NOTES,
    JoinMailbox,
    MailboxEnded,
    MailboxJoined,
    MailboxNote,
    MailboxOpened,
    OpenMailbox,
    PairingBroken,
    PairingDeclined,
    RendezvousGreeting,
    WrongCode,
)
from remit_testing import ManualClock
from waiting import eventually


@pytest.fixture
def anna(tmp_path: Path) -> MessageCipher:
    return sealer(tmp_path, "anna")


@pytest.fixture
def bob(tmp_path: Path) -> MessageCipher:
    return sealer(tmp_path, "bob")


def known(device: MessageCipher) -> list[str]:
    return [each.card.name for each in device.peers.list()]


async def test_a_code_pairs_and_verifies_both_devices(tmp_path: Path, anna: MessageCipher, bob: MessageCipher) -> None:
    async with gateway(tmp_path) as serving:
        both = await pair(meeting_at(serving.url), anna, bob)
    assert both.host.words == both.guest.words
    assert (both.host.is_confirmed, both.guest.is_confirmed) == (True, True)
    for here, there in ((anna, bob), (bob, anna)):
        (peer,) = here.peers.list()
        assert peer.card == there.device.card
        assert (peer.verified, peer.may_talk) == (True, False), "pairing alone permits nothing"


async def test_what_is_granted_while_pairing_is_recorded_with_it(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, bob, Grants(agents=frozenset({"expert"})))
        mine = Grants(profiles=frozenset({"reviewer"}))
        await join_pairing(at, owner_of(anna, mine), await hosting.code())
        await hosting.result()
    (bobs,) = bob.peers.list()
    assert (bobs.allowed, bobs.shared, bobs.agents, bobs.profiles) == (True, False, {"expert"}, frozenset())
    (annas,) = anna.peers.list()
    assert (annas.allowed, annas.shared, annas.agents, annas.profiles) == (False, True, frozenset(), {"reviewer"})


async def test_a_wrong_word_kills_the_code_and_both_sides_say_so(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, anna)
        code = await hosting.code()
        wrong = PairingCode(code.mailbox, (*code.words[:2], "zebra" if code.words[2] != "zebra" else "navy"))
        with pytest.raises(WrongCode):
            await join_pairing(at, owner_of(bob), wrong)
        assert isinstance(await hosting.error(), WrongCode)
        with pytest.raises(RemitError, match="no device waits under this code"):
            await join_pairing(at, owner_of(bob), code)
    assert known(anna) == known(bob) == []


async def test_a_code_works_once_and_has_one_visitor(tmp_path: Path, anna: MessageCipher, bob: MessageCipher) -> None:
    carol = sealer(tmp_path, "carol")
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, anna)
        code = await hosting.code()
        early = await Visitor.at(serving.url)
        assert isinstance(await early.hear(), RendezvousGreeting)
        await early.say(JoinMailbox(mailbox=code.mailbox))
        assert isinstance(await early.hear(), MailboxJoined)
        with pytest.raises(RemitError, match="no device waits"):
            await join_pairing(at, owner_of(bob), code)
        await early.leave()
        assert "the other device has gone" in str(await hosting.error())
        again = Hosting(at, anna)
        code = await again.code()
        await join_pairing(at, owner_of(bob), code)
        await again.result()
        with pytest.raises(RemitError, match="no device waits"):
            await join_pairing(at, owner_of(carol), code)
    assert known(anna) == ["bob"]


async def test_a_device_does_not_pair_with_itself(tmp_path: Path, anna: MessageCipher) -> None:
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, anna)
        with pytest.raises(RemitError, match="made by this device"):
            await join_pairing(at, owner_of(anna), await hosting.code())
        assert isinstance(await hosting.error(), PairingDeclined)


async def test_a_gateway_with_another_name_gets_no_code(tmp_path: Path, anna: MessageCipher) -> None:
    async with gateway(tmp_path) as serving:
        hosting = Hosting(meeting_at(serving.url, "relay.example.com"), anna)
        assert "the name of the gateway is 'g', not 'relay.example.com'" in str(await hosting.error())


async def test_an_address_without_a_gateway_is_said_to_be_unreachable(anna: MessageCipher) -> None:
    error = await Hosting(meeting_at("ws://127.0.0.1:9"), anna).error()
    assert isinstance(error, RemitError)
    assert error.fault.code is Code.DELEGATION_UNAVAILABLE


# ── devices that must not be paired ───────────────────────────────────────────────────────────────────────────────────


async def test_a_device_that_was_revoked_cannot_come_back_with_a_code(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    anna.peers.pair(bob.device.card)
    anna.peers.revoke(bob.device.id)
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, anna)
        with pytest.raises(PairingDeclined):
            await join_pairing(at, owner_of(bob), await hosting.code())
        assert "was revoked" in str(await hosting.error())
        back = Hosting(at, bob)
        with pytest.raises(RemitError, match="was revoked"):
            await join_pairing(at, owner_of(anna), await back.code())
        assert isinstance(await back.error(), PairingDeclined)
    assert known(bob) == []
    (peer,) = anna.peers.list()
    assert (peer.revoked, peer.verified) == (True, False)


async def test_a_name_that_another_device_has_is_refused_on_both_sides(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    (tmp_path / "other").mkdir()
    anna.peers.pair(sealer(tmp_path / "other", "bob").device.card)
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, anna)
        with pytest.raises(PairingDeclined):
            await join_pairing(at, owner_of(bob), await hosting.code())
        assert isinstance(await hosting.error(), KeyChanged)
    assert known(bob) == []
    assert len(anna.peers.list()) == 1


async def test_devices_that_know_each_other_may_pair_again_and_keep_their_permissions(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    anna.peers.pair(bob.device.card)
    anna.peers.grant(bob.device.id, Grants(agents=frozenset({"expert"})))
    async with gateway(tmp_path) as serving:
        await pair(meeting_at(serving.url), anna, bob)
    (peer,) = anna.peers.list()
    assert (peer.verified, peer.allowed, peer.agents) == (True, True, {"expert"})


# ── a hostile gateway ─────────────────────────────────────────────────────────────────────────────────────────────────


def _noted(text: str) -> bytes | None:
    frame = json.loads(text)
    return b64decode(frame["body"]) if frame["type"] == "note" else None


async def test_nothing_that_passes_the_gateway_contains_a_word_of_the_code_or_a_card(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    async with gateway(tmp_path) as serving, Between() as tap:
        at = meeting_at(tap.before(serving.url))
        hosting = Hosting(at, anna)
        code = await hosting.code()
        await join_pairing(at, owner_of(bob), code)
        await hosting.result()
    passed = b"\n".join([text.encode() for text in tap.seen] + [_noted(text) or b"" for text in tap.seen])
    assert len(tap.seen) >= 15
    for secret in (*code.words, code.secret.decode()):
        assert secret.encode() not in passed
    for card in (anna.device.card, bob.device.card):
        # As it would be written: three letters alone stand in random bytes now and then.
        for part in (card.device, card.key, card.olm, f'"{card.name}"', card.signature, card.link()):
            assert part.encode() not in passed
        assert bytes.fromhex(card.olm) not in passed


@pytest.mark.parametrize("note", range(6))
async def test_a_gateway_that_changes_a_note_pairs_nobody_with_what_it_made_up(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher, note: int
) -> None:
    count = -1

    def change(_number: int, way: str, text: str) -> list[str]:
        nonlocal count
        if way == "down" and _noted(text) is not None:
            count += 1
            if count == note:
                frame = json.loads(text)
                frame["body"] = frame["body"][:-8] + "AAAAAAA="
                return [json.dumps(frame)]
        return [text]

    async with gateway(tmp_path) as serving, Between(change) as tap:
        at = meeting_at(tap.before(serving.url))
        hosting = Hosting(at, anna)
        code = await hosting.code()
        if note == 5:  # the last note only says that the other side is done
            await join_pairing(at, owner_of(bob), code)
            assert not (await hosting.result()).is_confirmed
            return
        with pytest.raises((WrongCode, PairingBroken)):
            await join_pairing(at, owner_of(bob), code)
        if note == 4:
            # Anna has recorded Bob, who proved himself; she is told that Bob may not have recorded her.
            assert not (await hosting.result()).is_confirmed
        else:
            assert isinstance(await hosting.error(), WrongCode | PairingBroken)
    assert known(bob) == []
    assert known(anna) == (["bob"] if note == 4 else [])


async def test_a_gateway_that_takes_both_sides_and_guesses_gets_one_try_at_each(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    """The gateway is a guest to Anna and a host to Bob, each with a guess of its own: two codes of 2**24."""
    (tmp_path / "evil").mkdir()
    mallory = sealer(tmp_path / "evil", "mallory")
    async with gateway(tmp_path) as annas, gateway(tmp_path / "evil") as bobs:
        hosting = Hosting(meeting_at(annas.url), anna)
        code = await hosting.code()
        guess = PairingCode(code.mailbox, ("acid", "acid", "acid"))
        with pytest.raises(WrongCode):
            await join_pairing(meeting_at(annas.url), owner_of(mallory), guess)
        assert isinstance(await hosting.error(), WrongCode)
        made_up = Hosting(meeting_at(bobs.url), mallory)
        theirs = await made_up.code()
        with pytest.raises(WrongCode):
            await join_pairing(meeting_at(bobs.url), owner_of(bob), PairingCode(theirs.mailbox, code.words))
        assert isinstance(await made_up.error(), WrongCode)
    assert known(anna) == known(bob) == []


async def test_a_gateway_that_hands_out_notes_of_an_earlier_pairing_is_refused(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    earlier: list[str] = []

    def change(number: int, way: str, text: str) -> list[str]:
        if way == "down" and _noted(text) is not None:
            if number <= 2:
                earlier.append(text)
            elif number == 4:
                return [earlier[0]]  # the first note that Anna sent the last time
        return [text]

    async with gateway(tmp_path) as serving, Between(change) as tap:
        at = meeting_at(tap.before(serving.url))
        await pair(at, anna, bob)
        hosting = Hosting(at, anna)
        with pytest.raises((WrongCode, PairingBroken)):
            await join_pairing(at, owner_of(bob), await hosting.code())
        assert isinstance(await hosting.error(), WrongCode)


async def test_a_gateway_that_drops_a_note_pairs_nobody_and_both_are_told(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit_relay.pairing.client.ANSWER_S", 0.3)
    async with gateway(tmp_path) as serving, Between(_without_the_third()) as tap:
        at = meeting_at(tap.before(serving.url))
        hosting = Hosting(at, anna)
        code = await hosting.code()
        with pytest.raises(RemitError) as caught:
            await join_pairing(at, owner_of(bob), code)
        assert caught.value.fault.code in (Code.TIMEOUT, Code.DELEGATION_FAILED)
        await hosting.error()
    assert known(anna) == known(bob) == []


def _without_the_third() -> Callable[[int, str, str], list[str]]:
    count = 0

    def change(_number: int, way: str, text: str) -> list[str]:
        nonlocal count
        if way == "down" and _noted(text) is not None:
            count += 1
            return [] if count == 3 else [text]
        return [text]

    return change


# ── clients that keep to no rule ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "frame", ["", "nonsense", '{"type": "note", "body": "AA=="}', '{"type": "join"}', b"\x00", "[" * 5_000]
)
async def test_a_malformed_frame_ends_the_connection(tmp_path: Path, frame: str | bytes) -> None:
    async with gateway(tmp_path) as serving:
        visitor = await Visitor.at(serving.url)
        assert isinstance(await visitor.hear(), RendezvousGreeting)
        await visitor.say(frame)
        assert code_of(MailboxEnded, await visitor.hear()) == "malformed"
        assert await visitor.hear() is None
        await visitor.leave()


async def test_a_mailbox_takes_few_and_small_notes(tmp_path: Path, anna: MessageCipher) -> None:
    async with gateway(tmp_path) as serving:
        for notes in ([b"x" * 4_097], [b"x"] * (MAX_NOTES + 1)):
            hosting = Hosting(meeting_at(serving.url), anna)
            code = await hosting.code()
            hosting.task.cancel()
            flood = await Visitor.at(serving.url)
            await flood.hear()
            await flood.say(OpenMailbox())
            opened = await flood.hear()
            assert isinstance(opened, MailboxOpened)
            assert opened.mailbox != code.mailbox
            for body in notes:
                await flood.say(MailboxNote(body=body))
            assert code_of(MailboxEnded, await flood.hear()) == "malformed"
            await flood.leave()


async def test_one_address_cannot_take_all_mailboxes_nor_try_all_numbers(tmp_path: Path, anna: MessageCipher) -> None:
    limits = GatewayLimits(address_pairings=HourlyRate(burst=5, per_hour=1), address_mailboxes=3)
    async with gateway_at(tmp_path / "few", limits) as serving:
        waiting = [Hosting(meeting_at(serving.url, NAME), anna) for _ in range(3)]
        for each in waiting:
            await each.code()
        error = await Hosting(meeting_at(serving.url, NAME), anna).error()
        assert isinstance(error, RemitError)
        assert error.fault.code is Code.RATE_LIMITED
        waiting[0].task.cancel()
        tried = [await _ending(serving.url, number) for number in range(1_000, 1_004)]
        assert "busy" in tried, "attempts are counted, whatever comes of them"
        assert set(tried) <= {"unknown", "busy"}
        for each in waiting:
            each.task.cancel()


async def _ending(url: str, number: int) -> str:
    visitor = await Visitor.at(url)
    try:
        frame = await visitor.hear()
        if isinstance(frame, RendezvousGreeting):
            await visitor.say(JoinMailbox(mailbox=number))
            frame = await visitor.hear()
        assert isinstance(frame, MailboxEnded)
        return frame.code
    finally:
        await visitor.leave()


async def test_a_gateway_has_a_bounded_number_of_mailboxes(tmp_path: Path, anna: MessageCipher) -> None:
    async with gateway_at(tmp_path / "one", GatewayLimits(max_mailboxes=1)) as serving:
        waiting = Hosting(meeting_at(serving.url, NAME), anna)
        await waiting.code()
        error = await Hosting(meeting_at(serving.url, NAME), anna).error()
        assert isinstance(error, RemitError)
        assert error.fault.code is Code.OVERLOADED
        waiting.task.cancel()


async def test_a_code_expires(tmp_path: Path, anna: MessageCipher, bob: MessageCipher) -> None:
    clock = ManualClock()
    async with gateway_at(tmp_path / "clocked", clock=clock) as serving:
        at = meeting_at(serving.url, NAME)
        hosting = Hosting(at, anna)
        code = await hosting.code()
        clock.advance(601)
        with pytest.raises(RemitError, match="no device waits"):
            await join_pairing(at, owner_of(bob), code)
        assert "nobody used the code in time" in str(await hosting.error())


async def test_a_gateway_that_stops_ends_pairings(tmp_path: Path, anna: MessageCipher) -> None:
    async with gateway(tmp_path) as serving:
        hosting = Hosting(meeting_at(serving.url), anna)
        await hosting.code()
    error = await hosting.error()
    assert isinstance(error, RemitError)
    assert error.fault.code is Code.DELEGATION_UNAVAILABLE


async def test_a_device_that_gives_up_frees_its_mailbox(
    tmp_path: Path, anna: MessageCipher, bob: MessageCipher
) -> None:
    async with gateway(tmp_path) as serving:
        at = meeting_at(serving.url)
        hosting = Hosting(at, anna)
        code = await hosting.code()
        hosting.task.cancel()
        await asyncio.wait({hosting.task})

        async def is_gone() -> bool:
            try:
                await join_pairing(at, owner_of(bob), code)
            except RemitError as error:
                return error.fault.code is Code.NOT_FOUND
            return False

        await eventually(is_gone)


# ── several gateways ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_two_devices_meet_through_different_gateways_of_one_database(
    anna: MessageCipher, bob: MessageCipher
) -> None:
    async with gateways_on(await empty_database(), 2) as (one, other):
        hosting = Hosting(meeting_at(one, NAME), anna)
        code = await hosting.code()
        joined = await join_pairing(meeting_at(other, NAME), owner_of(bob), code)
        assert (await hosting.result()).words == joined.words
        with pytest.raises(RemitError, match="no device waits"):
            await join_pairing(meeting_at(one, NAME), owner_of(bob), code)
        wrong = Hosting(meeting_at(other, NAME), anna)
        code = await wrong.code()
        with pytest.raises(WrongCode):
            await join_pairing(meeting_at(one, NAME), owner_of(bob), PairingCode(code.mailbox, ("acid",) * 3))
        assert isinstance(await wrong.error(), WrongCode)
