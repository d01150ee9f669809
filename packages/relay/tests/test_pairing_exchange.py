"""The code and the notes of a pairing: what a right code proves, and what a wrong one does not tell."""

from contextlib import suppress
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import sealer
from remit.protocol.errors import RemitError
from remit_relay.device.identity import Card, comparable_code
from remit_relay.pairing.code import (
    FIRST_MAILBOX,
    LAST_MAILBOX,
    SECRET_WORDS,
    WORDS,
    PairingCode,
    PairingLink,
    confirmation_words,
    find_word,
    new_words,
    read_code,
)
from remit_relay.pairing.exchange import FAILED, PairingBroken, PairingExchange, WrongCode

CODE = PairingCode(4821, ("marble", "tiger", "lemon"))
CODES = st.builds(
    PairingCode, st.integers(FIRST_MAILBOX, LAST_MAILBOX), st.tuples(*[st.sampled_from(WORDS)] * SECRET_WORDS)
)


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Card, Card]:
    folder: Path = tmp_path_factory.mktemp("cards")
    return sealer(folder, "anna").device.card, sealer(folder, "bob").device.card


def sides(cards: tuple[Card, Card], other: PairingCode = CODE, gateway: str = "g") -> tuple[PairingExchange, ...]:
    return (
        PairingExchange("host", CODE, cards[0], gateway="g"),
        PairingExchange("guest", other, cards[1], gateway=gateway),
    )


# ── words and codes ───────────────────────────────────────────────────────────────────────────────────────────────────


def _distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        before, row = row, [place]
        for at, each in enumerate(other, 1):
            row.append(min(before[at] + 1, row[-1] + 1, before[at - 1] + (letter != each)))
    return row[-1]


def test_no_two_words_are_mistaken_for_each_other() -> None:
    assert len(WORDS) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and 4 <= len(word) <= 8 for word in WORDS)
    assert len({word[:3] for word in WORDS}) == 256
    alike = [pair for pair in combinations(WORDS, 2) if abs(len(pair[0]) - len(pair[1])) < 3 and _distance(*pair) < 3]
    assert alike == []


@given(CODES)
def test_a_code_is_read_as_it_is_shown_and_in_a_link(code: PairingCode) -> None:
    assert read_code(str(code)) == PairingLink(code)
    link = PairingLink(code, "wss://relay.example.com:8765", "own name")
    assert read_code(str(link)) == link


@pytest.mark.parametrize("typed", ["4821 MARBLE tiger lemon", "4821-mar-tig-lem", " 4821.marble, tiger_lemo\n"])
def test_a_code_may_be_typed_carelessly(typed: str) -> None:
    assert read_code(typed).code == CODE


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "it begins with a number from 1000 to 9999"),
        ("maple-tiger-lemon", "it begins with a number"),
        ("0999-marble-tiger-lemon", "it begins with a number"),
        ("4821-marble-tiger", "it has 3 words after the number, not 2"),
        ("4821-marble-tigre-lemon", "there is no word `tigre` in codes; did you mean `tiger`?"),
        ("4821-ma-tiger-lemon", "there is no word `ma` in codes"),
        ("٤٨٢١-marble-tiger-lemon", "it begins with a number"),
        ("remit:pair#abc", "this link has no code"),
        ("remit:join#4821-marble-tiger-lemon", "the link names no gateway"),
        ("4821-" + "a" * 2_000, "it is too long"),
    ],
)
def test_an_invalid_code_says_what_is_wrong_with_it(typed: str, why: str) -> None:
    with pytest.raises(RemitError) as caught:
        read_code(typed)
    assert caught.value.fault.message.startswith(f"invalid pairing code: {why}")


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader_of_codes(text: str) -> None:
    with suppress(RemitError):
        read_code(text)


def test_a_code_is_new_each_time_and_not_shown_by_accident() -> None:
    assert len({new_words() for _ in range(100)}) == 100
    assert "tiger" not in repr(CODE)
    assert find_word("zeb") == "zebra"


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_sides_with_one_code_learn_each_others_cards(cards: tuple[Card, Card]) -> None:
    host, guest = sides(cards)
    second = guest.second(host.first())
    assert guest.host_card(host.third(second)) == cards[0]
    assert host.guest_card(guest.fourth()) == cards[1]
    guest.check_recorded(host.recorded())
    host.check_recorded(guest.recorded())
    words = confirmation_words(comparable_code(*cards))
    assert words == confirmation_words(comparable_code(*reversed(cards)))
    assert len(words.split()) == 4


@pytest.mark.parametrize(
    ("code", "gateway"),
    [
        (PairingCode(4821, ("marble", "tiger", "navy")), "g"),
        (PairingCode(4822, CODE.words), "g"),
        (CODE, "other"),
    ],
    ids=["another word", "another mailbox", "another gateway"],
)
def test_another_code_mailbox_or_gateway_proves_nothing_to_either_side(
    cards: tuple[Card, Card], code: PairingCode, gateway: str
) -> None:
    host, guest = sides(cards, code, gateway)
    second = guest.second(host.first())
    with pytest.raises(WrongCode):
        host.third(second)
    # Even a host that goes on regardless, as an attacker would, does not convince the guest.
    other, _ = sides(cards, code, gateway)
    with pytest.raises((WrongCode, PairingBroken)):
        guest.host_card(other.third(sides(cards)[1].second(other.first())))


def test_a_side_gives_up_when_the_other_says_that_the_code_was_wrong(cards: tuple[Card, Card]) -> None:
    host, guest = sides(cards)
    with pytest.raises(WrongCode):
        guest.second(FAILED)
    with pytest.raises(WrongCode):
        host.third(FAILED)


def test_a_note_that_is_replayed_reflected_or_of_another_pairing_is_refused(cards: tuple[Card, Card]) -> None:
    host, guest = sides(cards)
    first = host.first()
    second = guest.second(first)
    third = host.third(second)
    with pytest.raises((WrongCode, PairingBroken)):
        PairingExchange("host", CODE, cards[0], gateway="g").third(second)  # of another pairing with the same code
    again = sides(cards)
    with pytest.raises(PairingBroken):
        again[0].third(msgspec.msgpack.encode(_reflected(first)))  # its own element comes back
    with pytest.raises(PairingBroken):
        again[1].second(second)  # a note out of turn
    assert guest.host_card(third) == cards[0]
    with pytest.raises(PairingBroken):
        host.guest_card(host.recorded())  # its own note comes back
    with pytest.raises(PairingBroken):
        guest.check_recorded(guest.recorded())
    with pytest.raises(PairingBroken):
        host.guest_card(guest.recorded())  # another note of the right side


def _reflected(first: bytes) -> dict[str, object]:
    return {"note": "2", "element": msgspec.msgpack.decode(first)["element"], "proof": bytes(32)}


@given(st.data())
@settings(max_examples=30)
def test_a_changed_note_never_yields_a_card(cards: tuple[Card, Card], data: st.DataObject) -> None:
    host, guest = sides(cards)
    which = data.draw(st.integers(0, 3))

    def passed(number: int, note: bytes) -> bytes:
        if number != which:
            return note
        place = data.draw(st.integers(0, len(note) - 1))
        return note[:place] + bytes([note[place] ^ data.draw(st.integers(1, 255))]) + note[place + 1 :]

    def exchanged() -> None:
        third = host.third(passed(1, guest.second(passed(0, host.first()))))
        guest.host_card(passed(2, third))
        host.guest_card(passed(3, guest.fourth()))

    with pytest.raises((WrongCode, PairingBroken)):
        exchanged()


@given(st.binary(max_size=200))
@settings(max_examples=30)
def test_no_bytes_break_a_side(cards: tuple[Card, Card], content: bytes) -> None:
    host, guest = sides(cards)
    with pytest.raises((WrongCode, PairingBroken)):
        guest.second(content)
    with pytest.raises((WrongCode, PairingBroken)):
        host.third(content)
