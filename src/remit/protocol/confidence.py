"""Confidence: a number from 0 to 1, and the words for it."""

from enum import StrEnum


class Level(StrEnum):
    """A confidence in words."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"
    SPECULATIVE = "SPECULATIVE"


# The least confidence for each.
LEVELS = ((0.8, Level.HIGH), (0.5, Level.MEDIUM), (0.2, Level.LOW), (0.0, Level.SPECULATIVE))


def level_of(confidence: float) -> Level:
    """Return the word for a confidence from 0 to 1."""
    return next((level for least, level in LEVELS if confidence >= least), Level.SPECULATIVE)


def share_of(level: Level) -> float:
    """Return the number for a word: the middle of its range."""
    at = [each for _, each in LEVELS].index(level)
    bounds = [1.0, *(least for least, _ in LEVELS)]
    return round((bounds[at] + bounds[at + 1]) / 2, 3)
