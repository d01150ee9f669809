"""Long texts are searched a step at a time, and the same is found."""

import re

import pytest

from remit_redaction.linear import STEP, find_narrow, find_without_letters
from remit_redaction.normal import as_ascii

NARROW = re.compile(rb"(?<![0-9])[0-9]{2}-[0-9]{2}(?![0-9])")
WIDE = re.compile(rb"[0-9](?:[ -]?[0-9]){3,}+")
# What is looked for stands before, on and behind the place where a step ends, and where the text does.
PLACES = [0, 1, STEP - 6, STEP - 5, STEP - 4, STEP - 3, STEP - 2, STEP - 1, STEP, STEP + 1, 2 * STEP - 2, 3 * STEP - 5]


def long_text(filling: bytes, place: int, what: bytes) -> bytes:
    text = filling * (3 * STEP)
    return text[:place] + what + text[place + len(what) : 3 * STEP]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("filling", [b"a", b" ", b"1"])
@pytest.mark.parametrize("what", [b" 12-34 ", b" 12-345", b"12-3412-34", b"9 9 9 9 9"])
def test_the_same_is_found_wherever_a_step_ends(filling: bytes, place: int, what: bytes) -> None:
    data = long_text(filling, place, what)
    assert [match.span() for match in find_narrow(NARROW, data)] == [match.span() for match in NARROW.finditer(data)]
    wide = [match.span() for match in find_without_letters(WIDE, data)]
    assert wide == [match.span() for match in WIDE.finditer(data)]


def test_only_a_part_is_searched_where_that_is_wanted() -> None:
    data = b"12-34 " * (STEP // 3)
    spans = [each.span() for each in find_narrow(NARROW, data, 7, STEP + 9)]
    assert spans == [each.span() for each in NARROW.finditer(data, 7, STEP + 9)]


def test_a_text_of_many_steps_is_seen_as_one_of_few() -> None:
    text = "ü１— x" * 40_000
    assert as_ascii(text) == as_ascii("ü１— x") * 40_000
