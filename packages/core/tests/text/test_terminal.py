"""What agents say never steers a terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.words.terminal import Pieces, json_for_terminal, one_line, several_lines

UNSAFE = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2066", "\u2028", "\ufeff", "\U000e0041"}

# Much of what hypothesis invents is harmless: half of it is drawn from what is not.
texts = st.text(st.one_of(st.sampled_from(sorted(UNSAFE)), st.sampled_from("[];m0?\\"), st.characters()))


@given(texts)
def test_one_line_is_one_line_and_steers_nothing(text: str) -> None:
    assert not UNSAFE & set(one_line(text))
    one_line(text).encode()


@given(texts)
def test_several_lines_keep_their_breaks_and_tabs_and_steer_nothing(text: str) -> None:
    assert not (UNSAFE - {"\n", "\t"}) & set(several_lines(text))


@given(texts, st.lists(st.integers(0, 20)))
def test_in_pieces_a_text_is_made_as_safe_as_whole(text: str, lengths: list[int]) -> None:
    pieces, shown, place = Pieces(), "", 0
    for length in lengths:
        shown += pieces.add(text[place : place + length])
        place += length
    assert shown + pieces.add(text[place:]) + pieces.rest() == several_lines(text)


@given(st.dictionaries(st.text(), texts))
def test_json_means_the_same_after_it_was_made_safe(value: dict[str, str]) -> None:
    plain = json.dumps(value, ensure_ascii=False)
    safe = json_for_terminal(plain)
    assert json.loads(safe) == value
    assert not UNSAFE & set(safe)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;another title\x07b", "ab"),
        ("\x1b]8;;http://example.org\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        ("one\r\ntwo\tthree", "one two three"),
        ("\x9b2Jgone?", "gone?"),
        ("\x1b]never ended", "\ufffd]never ended"),
    ],
)
def test_what_is_left_of_a_text_reads_well(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_huge_text_of_half_sequences_costs_no_more_than_its_length() -> None:
    assert len(several_lines("\x1b]" * 200_000)) == 400_000
