"""Sentences, names and figures are found in what people write, and hostile text costs no more than any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_time import grows_in_proportion
from labelled_cases import cases
from remit.policy.redaction import token_for
from remit.words.components import cut, squeezed
from remit_orchestrator.text.sentences import is_question, names_and_numbers, sentences, spoken

TOKEN = token_for(b"k" * 32, "EMAIL", "alice@example.org")


@pytest.mark.parametrize(
    ("text", "expected"),
    cases("sentences", "a_text_falls_into_sentences"),
)
def test_a_text_falls_into_sentences(text: str, expected: list[str]) -> None:
    assert list(sentences(text)) == expected


@given(st.text(max_size=200))
def test_sentences_lose_nothing_but_spaces_and_marks_and_stay_on_one_line(text: str) -> None:
    split = list(sentences(text))
    assert all(sentence == squeezed(sentence) and sentence for sentence in split)
    if not any(mark in text for mark in "-*•–#>+.)"):
        assert "".join("".join(split).split()) == "".join(text.split())


def test_code_is_quoted_and_not_said() -> None:
    assert spoken("Run this:\n```py\nmust_not()\n```\nand stop") == "Run this:\n\n\nand stop"


def test_a_fence_that_is_never_closed_hides_nothing() -> None:
    assert spoken("Look: ``` never do that") == "Look: ``` never do that"
    assert spoken("a ```b``` c ``` d") == "a \n c \n d"


@pytest.mark.parametrize("sentence", ["Is it?", "Is it？", 'He asked "is it?"', "(Is it?)", "**Is it?** "])
def test_a_question_is_one_whatever_closes_after_it(sentence: str) -> None:
    assert is_question(sentence)
    assert not is_question(f"{sentence} Yes")


# ── cutting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_sentence_is_cut_between_words() -> None:
    assert cut("It is short", 11) == "It is short"
    assert cut("It is a little too long, really", 25) == "It is a little too long…"
    assert cut("x" * 50, 20) == "x" * 19 + "…"


def test_what_matters_is_kept_where_it_stands_late() -> None:
    text = "so it goes on " * 30 + "but it must be blue " + "and on it goes " * 30
    short = cut(text, 60, text.index("must"))
    assert short == "… on but it must be blue and on it goes and on it goes and…"
    assert cut("word " * 50 + "end", 60, 250) == "… word word end"
    assert cut("x" * 100 + "must" + "x" * 100, 40, 100) == f"… {'x' * 10}must{'x' * 23}…"


@given(st.text(max_size=300), st.integers(40, 120), st.integers(0, 300))
def test_a_cut_text_is_never_longer_than_asked(text: str, length: int, around: int) -> None:
    assert len(cut(text, length, min(around, len(text)))) <= length


def test_a_redaction_token_is_whole_or_not_there() -> None:
    assert cut("x" * 30 + TOKEN, 40) == "x" * 30 + "…"
    assert cut(f"{TOKEN} {'x' * 40}", 40) == f"{TOKEN}…"


# ── names and figures ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "names"),
    [
        *cases("sentences", "what_identifies_something_is_found"),
        (f"Write to {TOKEN}, please", [TOKEN]),
        (f"Write to{TOKEN}please", [TOKEN]),
        ("an " + "a" * 200 + "_b", []),
    ],
)
def test_what_identifies_something_is_found(text: str, names: list[str]) -> None:
    assert names_and_numbers(text)[0] == names


@pytest.mark.parametrize(
    ("text", "numbers"),
    cases("sentences", "figures_come_with_their_unit"),
)
def test_figures_come_with_their_unit(text: str, numbers: list[str]) -> None:
    assert names_and_numbers(text)[1] == numbers


# ── hostile text ──────────────────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = [
    *(
        " ",
        "1",
        ".",
        " .",
        "1.",
        '"',
        "'",
        "`",
        "a.",
        "a/",
        "/",
        "_",
        "a_",
        "A",
        "aA",
        "[",
        "[A",
        "[A:",
        "http://",
        "@",
    ),
    *("a@", "a@a.", "-", "1-", "1,", "1 000 ", "$", "#1", "A-1 ", "? ", "\n", "\t", "“", "1 1 ", "May ", "12 ", "v1."),
    *("1:", "Mr. ", "A. ", "two ", "```", "~", "\\", "a\\", "a'", "1\u00a0000", "C:", "5 mil", "EUR ", "-5", "plain "),
]


@pytest.mark.unwatched
@pytest.mark.parametrize("sign", HOSTILE)
def test_text_that_is_made_to_be_slow_costs_in_proportion_to_its_length(sign: str) -> None:
    def read(length: int) -> None:
        for sentence in sentences((sign * length)[:length]):
            names_and_numbers(sentence)

    assert grows_in_proportion(read, 8_000, 1_000)
