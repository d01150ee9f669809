"""Components of an answer, and how they read."""

from typing import Any

import pytest

from remit.words.components import in_words, laid_out, name_words, short_value


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("flights[AF12].departureTime", "flights AF12 departure time"),
        ("growth_rate", "growth rate"),
        ("NPV", "NPV"),
        ("Growth Rate", "growth rate"),
        ("items[].n", "items n"),
        ("", "the answer"),
        ("_", "the answer"),
    ],
)
def test_a_path_can_be_said_aloud(path: str, words: str) -> None:
    assert in_words(path) == words


@pytest.mark.parametrize("name", ["growthRate", "growth_rate", "Growth Rate", "GROWTH_RATE", "growth-rate"])
def test_a_name_is_the_same_however_it_is_spelled(name: str) -> None:
    assert name_words(name) == ("growth", "rate")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("  As it is.\n", "As it is."),
        (None, "not known"),
        (True, "yes"),
        (5, "5"),
        ({}, ""),
        ([], ""),
        (
            {
                "growthRate": 0.15,
                "safe": False,
                "note": None,
                "names": ["a", "b"],
                "none": [],
                "nothing": {},
                "said": " ",
            },
            ""
            "- Growth rate: 0.15\n- Safe: no\n- Note: not known\n- Names: a, b\n- None: none\n- Nothing: none\n"
            "- Said: not known",
        ),
        ({"a": {"b": 1}, "c": [{"d": 2}, 3]}, "- A:\n  - B: 1\n- C:\n  - 1:\n    - D: 2\n  - 3"),
        ([1, "two"], "- 1\n- two"),
        ({"long": ["x" * 60, "y" * 60]}, f"- Long:\n  - {'x' * 60}\n  - {'y' * 60}"),
    ],
)
def test_a_result_is_laid_out_to_be_read(result: Any, text: str) -> None:
    assert laid_out(result) == text


def test_what_is_too_deep_to_be_read_is_left_out() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    lines = laid_out(value).splitlines()
    assert (len(lines), lines[-1].strip()) == (9, "- …")
    assert short_value(value) is None
