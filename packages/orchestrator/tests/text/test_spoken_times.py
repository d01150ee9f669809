"""Days and times of day as people say them."""

from datetime import date

import pytest

from remit_orchestrator.text.spoken_times import spoken_days, spoken_times

MONDAY = date(2026, 11, 16)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("tomorrow at ten", ["2026-11-17"]),
        ("the day after tomorrow", ["2026-11-18"]),
        ("on Monday", ["2026-11-23"]),
        ("on Friday", ["2026-11-20"]),
        ("next Tuesday", ["2026-11-24"]),
        ("on 3 December", ["2026-12-03"]),
        ("on March 3rd", ["2027-03-03"]),
        ("from 12 to 15 March", ["2027-03-12", "2027-03-15"]),
        ("in two weeks", ["2026-11-30"]),
        ("in a week", ["2026-11-23"]),
        ("2027-02-01", ["2027-02-01"]),
        ("am 3.12. um 10", ["2026-12-03"]),
        ("am 1.12.2026", ["2026-12-01"]),
        ("heute oder übermorgen", ["2026-11-16", "2026-11-18"]),
        ("Guten Morgen, am Mittwoch", ["2026-11-18"]),
        ("since Saturday", []),
        ("3/4/2027", []),
        ("31.2.2027", []),
        ("no day at all", []),
    ],
)
def test_a_day_is_the_next_that_its_words_can_mean(text: str, days: list[str]) -> None:
    assert [each.day.isoformat() for each in spoken_days(text, MONDAY)] == days


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("at ten", ["10:00"]),
        ("at 8 pm", ["20:00"]),
        ("at seven in the evening", ["19:00"]),
        ("19:30", ["19:30"]),
        ("half past seven", ["07:30"]),
        ("a quarter to nine", ["08:45"]),
        ("at noon", ["12:00"]),
        ("um 14 Uhr 30", ["14:30"]),
        ("um halb acht", ["07:30"]),
        ("um 9 Uhr abends", ["21:00"]),
        ("at 12 Main Street", []),
        ("at 25:00 or 13 pm", []),
        ("waiting since 9:30", []),
    ],
)
def test_a_time_of_day_is_read_in_figures_and_in_words(text: str, times: list[str]) -> None:
    assert [each.written for each in spoken_times(text)] == times
