"""A text that only names a subject is told from one that says what is to be done."""

import time

import pytest

from labelled_cases import cases
from remit_orchestrator.text.classification import asks_for_information, content_words, only_mentions


@pytest.mark.parametrize(
    "text",
    cases("mentions", "a_subject_alone_is_only_mentioned"),
)
def test_a_subject_alone_is_only_mentioned(text: str) -> None:
    """K7: a noun alone does not say what is to be done."""
    assert only_mentions(text)


@pytest.mark.parametrize(
    "text",
    [*cases("mentions", "what_is_to_be_done_is_more_than_a_mention"), "a long letter " * 20],
)
def test_what_is_to_be_done_is_more_than_a_mention(text: str) -> None:
    assert not only_mentions(text)


@pytest.mark.parametrize(("text", "asks"), [("how much do I owe", True), ("Wann ist offen?", True), ("pay it", False)])
def test_a_question_word_at_the_beginning_asks_for_information(text: str, *, asks: bool) -> None:
    assert asks_for_information(text) == asks


def test_days_numbers_and_generic_words_say_nothing_of_the_subject() -> None:
    assert content_words("Please help me with the mooring at 10 on Monday") == ["mooring"]


def test_a_text_that_is_made_to_be_slow_is_not() -> None:
    start = time.process_time()
    only_mentions("or " * 300_000)
    assert time.process_time() - start < 0.5
