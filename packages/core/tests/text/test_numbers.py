"""Numbers are read alike in digits and in words, English and German."""

import re

import pytest

from remit.words.numbers import NUMBER_WORDS, SPELLED, digit_readings, spelled_number

_SPELLED = re.compile(SPELLED)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        *NUMBER_WORDS.items(),
        ("Twenty One", 21),
        ("two hundred", 200),
        ("two hundred and fifty", 250),
        ("nineteen hundred", 1900),
        ("two thousand and ten", 2010),
        ("one hundred twenty-three thousand four hundred and fifty-six", 123_456),
        ("DREISSIG", 30),
        ("FÜNFUNDZWANZIG", 25),
        ("einhundert", 100),
        ("zweihundertfünfzig", 250),
        ("dreitausend", 3000),
        ("eintausendzweihundertvierunddreißig", 1234),
    ],
)
def test_a_number_in_words_is_read(words: str, number: int) -> None:
    assert _SPELLED.fullmatch(words)
    assert spelled_number(words) == number


@pytest.mark.parametrize("words", ["zero-", "ſix", "sıx", "hundred", "ein", "twenty-ten", "and", ""])
def test_other_words_are_no_number(words: str) -> None:
    assert not _SPELLED.fullmatch(words)


@pytest.mark.parametrize(
    ("written", "readings"),
    [
        ("20", [("20", "")]),
        ("1,500", [("1500", "")]),
        ("1.500", [("1", "500"), ("1500", "")]),
        ("1.5", [("1", "5")]),
        ("1.500,25", [("1500", "25")]),
        ("1'500", [("1500", "")]),
        ("1.2.3", []),
    ],
)
def test_a_number_in_digits_has_the_readings_of_both_countries(written: str, readings: list[tuple[str, str]]) -> None:
    assert list(digit_readings(written)) == readings
