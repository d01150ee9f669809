"""Days and times of day as people say them."""

from datetime import date

import pytest

from labelled_cases import cases
from remit_orchestrator.text.spoken_times import spoken_days, spoken_times

MONDAY = date(2026, 11, 16)


@pytest.mark.parametrize(
    ("text", "days"),
    cases("spoken_times", "a_day_is_the_next_that_its_words_can_mean"),
)
def test_a_day_is_the_next_that_its_words_can_mean(text: str, days: list[str]) -> None:
    assert [each.day.isoformat() for each in spoken_days(text, MONDAY)] == days


@pytest.mark.parametrize(
    ("text", "times"),
    cases("spoken_times", "a_time_of_day_is_read_in_figures_and_in_words"),
)
def test_a_time_of_day_is_read_in_figures_and_in_words(text: str, times: list[str]) -> None:
    assert [each.written for each in spoken_times(text)] == times
