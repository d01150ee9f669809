"""Confidence in numbers and in words."""

import pytest

from remit.protocol.envelope import Level, level_of, share_of


@pytest.mark.parametrize(
    ("confidence", "level"),
    [
        *((1.0, "HIGH"), (0.8, "HIGH"), (0.79, "MEDIUM"), (0.5, "MEDIUM"), (0.49, "LOW"), (0.2, "LOW")),
        *((0.19, "SPECULATIVE"), (0.0, "SPECULATIVE")),
    ],
)
def test_a_confidence_has_a_word(confidence: float, level: str) -> None:
    """K2, K9: a confidence for each component."""
    assert level_of(confidence) == level


def test_a_word_stands_for_the_middle_of_what_it_covers() -> None:
    assert {level.value: share_of(level) for level in Level} == {
        "HIGH": 0.9,
        "MEDIUM": 0.65,
        "LOW": 0.35,
        "SPECULATIVE": 0.1,
    }
