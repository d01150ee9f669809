"""Messages between two devices: each once, in order, and legible to nobody between them."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties import share
from remit.protocol.errors import Code, RemitError
from remit_relay.device.identity import make_prekey
from remit_relay.e2e import inbox, outbox
from remit_relay.e2e.channel import MessageCipher, RejectedMessageError, RejectionReason
from remit_relay.e2e.streams import MAX_MESSAGE, MAX_SEALED, PIECE_BYTES, WINDOW
from sealed_devices import Ticks, World, carry, close, open_device, pair, prekey_of, settle, take, waiting
from waiting import PATIENCE_S


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[MessageCipher, MessageCipher]]:
    ticks = Ticks()
    ada, bob = open_device(tmp_path / "ada", ticks), open_device(tmp_path / "bob", ticks)
    pair(ada, bob)
    yield ada, bob
    close(ada)
    close(bob)


@pytest.fixture
def talking(both: tuple[MessageCipher, MessageCipher]) -> tuple[MessageCipher, MessageCipher]:
    """Two devices with a session that both have used."""
    ada, bob = both
    ada.begin(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    bob.acknowledge(ada.device.id)
    settle(ada, bob)
    return ada, bob


# ── one message ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_arrives_with_who_asks_and_is_kept_until_it_is_taken(both: tuple[MessageCipher, MessageCipher]):
    ada, bob = both
    message = ada.seal(bob.device.id, b"hello", requester="user:ada@example")
    ada.begin(bob.device.id, prekey_of(bob))
    (row,) = waiting(ada)
    (opened,) = bob.open(ada.device.id, row.sealed)
    assert (opened.sender, opened.message, opened.requester, opened.body) == (
        ada.device.id,
        message,
        "user:ada@example",
        b"hello",
    )
    assert bob.inbox() == [opened]
    assert bob.inbox(after=opened.id) == []
    bob.taken(opened.id)
    assert bob.inbox() == []


def test_without_a_session_messages_are_held_until_there_is_one(both: tuple[MessageCipher, MessageCipher]):
    ada, bob = both
    for number in range(3):
        ada.seal(bob.device.id, b"%d" % number)
    assert (ada.wanting(), waiting(ada)) == ([bob.device.id], [])
    ada.begin(bob.device.id, prekey_of(bob))
    assert ada.wanting() == []
    settle(ada, bob)
    assert take(bob) == [b"0", b"1", b"2"]


def test_what_is_held_goes_out_in_a_session_that_the_other_side_opens(both: tuple[MessageCipher, MessageCipher]):
    ada, bob = both
    ada.seal(bob.device.id, b"from ada")
    bob.seal(ada.device.id, b"from bob")
    ada.begin(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    assert bob.wanting() == []
    assert (take(ada), take(bob)) == ([b"from bob"], [b"from ada"])


def test_a_session_that_is_there_is_not_begun_again(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    name = ada.session(bob.device.id)
    ada.begin(bob.device.id, prekey_of(bob))
    assert ada.session(bob.device.id) == name != ""
    assert waiting(ada) == []


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES])
def test_a_message_of_any_size_arrives_whole(talking: tuple[MessageCipher, MessageCipher], size: int):
    ada, bob = talking
    body = random.Random(size).randbytes(size)
    ada.seal(bob.device.id, body)
    assert len(waiting(ada)) == max(1, -(-size // PIECE_BYTES))
    settle(ada, bob)
    assert take(bob) == [body]


def test_sixteen_megabytes_go_in_pieces_that_each_fit_a_frame(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    body = random.Random(1).randbytes(MAX_MESSAGE)
    ada.seal(bob.device.id, body, requester="x" * 256)
    pieces = waiting(ada)
    assert max(len(each.sealed) for each in pieces) <= MAX_SEALED
    assert carry(ada, bob) == []
    assert take(bob) == [body]
    # It said how far it was while the message came; the rest is said with the next word.
    bob.seal(ada.device.id, b"thanks")
    settle(ada, bob)
    assert ada.unsettled(bob.device.id) == 0


def test_what_cannot_be_sealed_is_refused_by_name(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    with pytest.raises(RemitError) as caught:
        ada.seal(bob.device.id, bytes(MAX_MESSAGE + 1))
    assert caught.value.fault.code == Code.TOO_LARGE
    for wrong in ({"requester": "x" * 257}, {"message": "not hexadecimal"}):
        with pytest.raises(RemitError) as caught:
            ada.seal(bob.device.id, b"", **wrong)
        assert [problem.path for problem in caught.value.fault.problems] == list(wrong)
    with pytest.raises(RemitError, match="unknown device"):
        ada.seal("a" * 26, b"")
    assert waiting(ada) == []


def test_the_same_message_sealed_twice_is_one(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    message = ada.seal(bob.device.id, b"once", message="ab" * 16)
    assert ada.seal(bob.device.id, b"once", message=message) == message
    assert len(waiting(ada)) == 1
    settle(ada, bob)
    bob.acknowledge(ada.device.id)
    settle(ada, bob)
    # Now it is let go here, and known there.
    ada.seal(bob.device.id, b"once", message=message)
    settle(ada, bob)
    assert take(bob) == [b"once"]


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
def test_pieces_that_overtake_each_other_are_put_in_order(talking: tuple[MessageCipher, MessageCipher], seed: int):
    ada, bob = talking
    bodies = [b"%d" % number + bytes(number % 3 * PIECE_BYTES) for number in range(16)]
    for body in bodies:
        ada.seal(bob.device.id, body)
    pieces = waiting(ada)
    assert len(pieces) <= WINDOW
    random.Random(seed).shuffle(pieces)
    opened = [each.body for piece in pieces for each in bob.open(ada.device.id, piece.sealed)]
    assert opened == bodies == take(bob)


def test_a_piece_that_comes_far_too_early_is_taken_when_its_time_has_come(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    for number in range(WINDOW + 1):
        ada.seal(bob.device.id, b"%d" % number)
    *others, last = waiting(ada)
    with pytest.raises(RejectedMessageError) as caught:
        bob.open(ada.device.id, last.sealed)
    assert (caught.value.reason, caught.value.remedy) == (RejectionReason.REORDERED, "later")
    bob.open(ada.device.id, others[0].sealed)
    bob.open(ada.device.id, last.sealed)
    assert bob.stuck() == [ada.device.id]
    for each in others[1:]:
        bob.open(ada.device.id, each.sealed)
    assert bob.stuck() == []
    assert take(bob) == [b"%d" % number for number in range(WINDOW + 1)]


def test_outbox_ids_only_grow(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    seen: list[int] = []
    for _ in range(5):
        ada.seal(bob.device.id, b"x")
        (row,) = waiting(ada)
        assert ada.outbox(after=row.id) == []
        seen.append(row.id)
        ada.sent(row.id)
    assert seen == sorted(set(seen))


# ── what is let go ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_is_held_until_the_other_side_says_that_it_has_it(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    ada.seal(bob.device.id, b"question")
    settle(ada, bob)
    assert ada.unsettled(bob.device.id) == 1
    bob.seal(ada.device.id, b"answer")
    settle(ada, bob)
    assert ada.unsettled(bob.device.id) == 0
    assert not bob.acknowledge(ada.device.id)


def test_a_receiver_with_nothing_to_say_acknowledges_by_itself(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    for number in range(inbox.ACK_EVERY):
        ada.seal(bob.device.id, b"%d" % number)
    settle(ada, bob)
    assert ada.unsettled(bob.device.id) == 0
    # An acknowledgement is not acknowledged: else they would never end.
    assert not ada.acknowledge(bob.device.id)


def test_what_a_gateway_lost_can_be_sent_once_more(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    for number in range(6):
        ada.seal(bob.device.id, b"%d" % number)
    rows = waiting(ada)
    for each in (rows[0], rows[1], rows[4]):
        bob.open(ada.device.id, each.sealed)
    ada.sent(*(each.id for each in rows))
    assert bob.ask()
    assert settle(ada, bob) == []
    assert take(bob) == [b"%d" % number for number in range(6)]


def test_what_is_not_missing_is_not_sent_again_however_often_it_is_asked_for(tmp_path: Path):
    ticks = Ticks()
    ada, bob = open_device(tmp_path / "ada", ticks), open_device(tmp_path / "bob", ticks)
    pair(ada, bob)
    ada.seal(bob.device.id, b"once")
    ada.begin(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    assert (ada.unsettled(bob.device.id), bob.ask()) == (1, True)
    assert carry(bob, ada) == []
    # It is told that there is nothing more, in so many bytes as a short word takes, and what it has is let go.
    (message,) = waiting(ada)
    assert len(message.sealed) < 1_200
    assert (ada.unsettled(bob.device.id), settle(ada, bob), take(bob)) == (0, [], [b"once"])
    assert (bob.ask(), waiting(bob)) == (False, [])
    ticks.skip(600)
    assert bob.ask()
    settle(ada, bob)
    assert (take(bob), ada.losses(bob.device.id), bob.losses(ada.device.id)) == ([], [], [])
    for each in (ada, bob):
        close(each)


def test_who_asks_again_and_again_has_not_everything_sealed_each_time(tmp_path: Path):
    """Else a word from a device would cost the other as much as all that it holds."""
    ticks = Ticks()
    ada, bob = open_device(tmp_path / "ada", ticks), open_device(tmp_path / "bob", ticks)
    pair(ada, bob)
    ada.begin(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    for number in range(8):
        ada.seal(bob.device.id, b"%d" % number)
    sealed: list[int] = []
    for _ in range(3):
        lost = waiting(ada)
        ada.sent(*(each.id for each in lost))
        sealed.append(len(lost))
        ticks.skip(600 if len(sealed) == 1 else 1)
        with bob.device.state.writing():
            row, peer = bob.peers.row(ada.device.id)
            bob._sender.keep(row, bob._sender.ask(row, peer, bob._sender.streams(row)))  # pyright: ignore[reportPrivateUsage]
        carry(bob, ada)
    assert sealed == [8, 8, 1]
    ticks.skip(600)
    assert bob.ask()
    settle(ada, bob)
    assert take(bob) == [b"%d" % number for number in range(8)]
    for each in (ada, bob):
        close(each)


def test_without_a_session_there_is_nobody_to_ask_or_to_tell(both: tuple[MessageCipher, MessageCipher]):
    ada, bob = both
    ada.seal(bob.device.id, b"waits")
    assert ada.ask()
    assert ada.acknowledge(bob.device.id, always=True)
    assert (waiting(ada), ada.session(bob.device.id)) == ([], "")


def test_who_does_not_take_messages_is_not_sent_more_than_a_bound(
    talking: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch
):
    ada, bob = talking
    monkeypatch.setattr(outbox, "MAX_HELD", 3)
    for number in range(3):
        ada.seal(bob.device.id, b"%d" % number)
    with pytest.raises(RemitError) as caught:
        ada.seal(bob.device.id, b"3")
    assert caught.value.fault.code == Code.OVERLOADED
    monkeypatch.setattr(inbox, "MAX_INBOX", 2)
    assert carry(ada, bob) == [RejectionReason.FULL]
    assert take(bob) == [b"0", b"1"]
    assert carry(ada, bob) == []
    assert take(bob) == [b"2"]


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_makes_no_session_is_refused(both: tuple[MessageCipher, MessageCipher]):
    """Its device signed it, and with it every session would have the same secret."""
    ada, bob = both
    ada.seal(bob.device.id, b"waits")
    weak = make_prekey(bob.device._pair, bytes.fromhex(bob.device.card.olm), use="once", key=bytes(32))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(RemitError, match=f"invalid session key of {bob.device.id}: ") as caught:
        ada.begin(bob.device.id, weak)
    assert caught.value.fault.code == Code.CREDENTIAL_INVALID
    assert ada.wanting() == [bob.device.id]


def test_two_devices_that_begin_at_once_end_up_in_one_session(both: tuple[MessageCipher, MessageCipher]):
    ada, bob = both
    ada.seal(bob.device.id, b"from ada")
    bob.seal(ada.device.id, b"from bob")
    ada.begin(bob.device.id, prekey_of(bob))
    bob.begin(ada.device.id, prekey_of(ada))
    crossing = waiting(ada), waiting(bob)
    for each in crossing[0]:
        bob.open(ada.device.id, each.sealed)
    for each in crossing[1]:
        ada.open(bob.device.id, each.sealed)
    assert ada.session(bob.device.id) == bob.session(ada.device.id)
    ada.seal(bob.device.id, b"more")
    bob.seal(ada.device.id, b"more")
    settle(ada, bob)
    assert (take(bob), take(ada)) == ([b"from ada", b"more"], [b"from bob", b"more"])
    assert ada.session(bob.device.id) == bob.session(ada.device.id)


def test_a_renewed_session_loses_nothing_and_repeats_nothing(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    for number in range(4):
        ada.seal(bob.device.id, b"a%d" % number)
        bob.seal(ada.device.id, b"b%d" % number)
    for each in waiting(ada)[:2]:
        bob.open(ada.device.id, each.sealed)
    was = ada.session(bob.device.id)
    assert ada.renew(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    assert take(bob) == [b"a0", b"a1", b"a2", b"a3"]
    assert take(ada) == [b"b0", b"b1", b"b2", b"b3"]
    assert was != ada.session(bob.device.id) == bob.session(ada.device.id)
    assert (ada.losses(bob.device.id), bob.losses(ada.device.id)) == ([], [])


def test_two_devices_that_renew_at_once_come_to_rest(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    ada.seal(bob.device.id, b"a")
    bob.seal(ada.device.id, b"b")
    ada.renew(bob.device.id, prekey_of(bob))
    bob.renew(ada.device.id, prekey_of(ada))
    settle(ada, bob)
    ada.seal(bob.device.id, b"a2")
    bob.seal(ada.device.id, b"b2")
    settle(ada, bob)
    assert (take(bob), take(ada)) == ([b"a", b"a2"], [b"b", b"b2"])


def test_an_unanswered_renewal_is_not_repeated_at_once(tmp_path: Path):
    ticks = Ticks()
    ada, bob = open_device(tmp_path / "ada", ticks), open_device(tmp_path / "bob", ticks)
    pair(ada, bob)
    ada.begin(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    assert ada.renew(bob.device.id, prekey_of(bob))
    assert not ada.renew(bob.device.id, prekey_of(bob))
    ticks.skip(31)
    assert ada.renew(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    assert ada.renew(bob.device.id, prekey_of(bob))


def test_many_renewals_leave_few_sessions(talking: tuple[MessageCipher, MessageCipher]):
    ada, bob = talking
    for number in range(12):
        (ada if number % 2 else bob).renew(
            (bob if number % 2 else ada).device.id, prekey_of(bob if number % 2 else ada)
        )
        ada.seal(bob.device.id, b"%d" % number)
        settle(ada, bob)
    assert take(bob) == [b"%d" % number for number in range(12)]
    for each in (ada, bob):
        assert each.device.state.rows("SELECT count(*) FROM sessions WHERE content IS NOT NULL") == [(5,)]


# ── everything at once ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """Two devices that know each other, to copy: making them takes longer than what is tried with them."""
    with TemporaryDirectory() as folder:
        ada, bob = open_device(Path(folder) / "ada"), open_device(Path(folder) / "bob")
        pair(ada, bob)
        close(ada)
        close(bob)
        yield Path(folder)


side = st.integers(0, 1)
deeds = st.one_of(
    st.tuples(st.just("seal"), side, st.sampled_from([0, 10, 300_000])),
    st.tuples(st.just("connect"), side),
    st.tuples(st.just("deliver"), st.integers(0, 60), st.booleans()),
    st.tuples(st.just("deliver"), st.integers(0, 3), st.just(True)),
    st.tuples(st.just("lose"), st.integers(0, 60)),
    st.tuples(st.just("reopen"), side),
    st.tuples(st.just("take"), side),
    st.tuples(st.just("renew"), side),
    st.tuples(st.just("acknowledge"), side),
    st.tuples(st.just("ask"), side),
)


@share(1 / 2)
@given(script=st.lists(deeds, min_size=10, max_size=60))
def test_each_message_arrives_once_and_in_order_whatever_the_network_does(
    template: Path, script: list[tuple[Any, ...]]
):
    with TemporaryDirectory() as folder:
        home = copytree(template, Path(folder) / "both")
        world = World(home)
        for deed in script:
            world.act(*deed)
        world.finish()
        assert world.taken == [world.sealed[1], world.sealed[0]]
        assert [each.losses(world.ids[1 - i]) for i, each in enumerate(world.devices)] == [[], []]
        world.close()


# ── killed ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Victims:
    """The process that forks devices to be killed."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("device_victim.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def order(
        self,
        home: Path,
        peer: str,
        deeds: list[list[Any]],
        *,
        together: bool = False,
        die_at: int = 0,
        die_after_us: int = 0,
    ) -> tuple[list[list[Any]], int]:
        """Have a device do these things; return what it said before it ended, and how it ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        log = home.with_suffix(".log")
        order = {"home": str(home), "log": str(log), "peer": peer, "deeds": deeds, "together": together}
        stdin.write(json.dumps(order | {"die_at": die_at, "die_after_us": die_after_us}) + "\n")
        stdin.flush()
        ended = int(stdout.readline())
        whole, _, _ = log.read_text().rpartition("\n") if log.exists() else ("", "", "")
        return [json.loads(line) for line in whole.splitlines()], ended

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(PATIENCE_S) == 0


@pytest.fixture
def victims() -> Iterator[Victims]:
    victims = Victims()
    yield victims
    victims.close()


@pytest.mark.parametrize("seed", range(2))
def test_each_message_arrives_once_and_in_order_whenever_a_device_is_killed(
    tmp_path: Path, victims: Victims, seed: int
):
    """S1: killed in the middle of what it does, tens of times, with a network that loses, repeats and reorders."""
    chance = random.Random(seed)
    homes, ids = [tmp_path / "ada", tmp_path / "bob"], [""] * 2
    prekeys: list[list[Any]] = [[], []]
    devices = [open_device(home) for home in homes]
    pair(*devices)
    for i, each in enumerate(devices):
        ids[i], key = each.device.id, prekey_of(each)
        prekeys[i] = ["begin", key.device, key.use, key.key.hex(), key.signature.hex()]
        close(each)

    texts = [[f"{side} says {number}" for number in range(25)] for side in (0, 1)]
    sealed, taken = [0, 0], [dict[int, str](), dict[int, str]()]
    flight: list[list[tuple[int, str]]] = [[], []]  # on the way to each side
    confirmable: list[set[int]] = [set(), set()]  # what each side may be told has arrived
    kills = 0
    for turn in range(2_000):
        calm = kills >= 60 or turn > 1_000
        side = turn % 2
        chance.shuffle(flight[side])
        arriving = flight[side] if calm else [each for each in flight[side] if chance.random() < 0.7]
        arriving = arriving[: 1 + chance.randrange(12)]
        deeds: list[list[Any]] = [["sent", number] for number in confirmable[side]]
        deeds += [["open", content] for _, content in arriving]
        deeds.append(["take"])
        for number in range(sealed[side], min(sealed[side] + chance.randrange(4), len(texts[side]))):
            deeds.append(["seal", f"{side}{number:031x}", texts[side][number]])
        deeds += [prekeys[1 - side], ["acknowledge"], ["outbox"], ["unsettled"]]
        when = "die_at" if turn % 4 < 2 else "die_after_us"
        death = {} if calm else {when: chance.randrange(1, 400 if when == "die_at" else 30_000)}
        replies, ended = victims.order(homes[side], ids[1 - side], deeds, together=chance.random() < 0.5, **death)
        assert ended in (0, -signal.SIGKILL, -signal.SIGALRM)
        kills += ended != 0

        answers = iter(replies)
        for deed in deeds:
            if (answer := next(answers, None)) is None:
                break
            match deed:
                case ["open", content]:
                    (arrived,) = [each for each in arriving if each[1] == content][:1]
                    assert answer in (["opened"], ["replay"], ["reordered"])
                    if answer != ["reordered"] and chance.random() < 0.8:
                        confirmable[1 - side].add(arrived[0])
                        flight[side].remove(arrived)
                case ["take"]:
                    for number, text in answer:
                        assert taken[side].setdefault(number, text) == text
                    if next(answers, None) is None:
                        break
                case ["seal", *_]:
                    sealed[side] += 1
                case ["outbox"]:
                    flight[1 - side] = [each for each in flight[1 - side] if chance.random() < 0.8]
                    flight[1 - side] += [(number, content) for number, content in answer[0]]
                case _:
                    pass
        if ended == 0:
            confirmable[side].clear()
        if calm and [*map(list, (taken[1].values(), taken[0].values()))] == texts and replies[-1] == [0]:
            break
    assert kills >= 60
    assert [list(taken[1].values()), list(taken[0].values())] == texts
