"""A text that only names a subject is told from one that says what is to be done."""

import time

import pytest

from remit_orchestrator.text.classification import asks_for_information, content_words, only_mentions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "harbour",
        "something about the guided tour",
        "for three people",
        "next Sunday at eleven",
        "tour or workshop, I can't decide",
        "Brille oder Linsen, ich weiß es noch nicht",
        "my mooring",
        "the pilot from Tuesday",
        "berth 12",
        "something about my container",
        "Hello, I have a quick question about the crane",
        "it's about the customs papers",
        "there is something wrong with my invoice",
        "could you handle that for me",
        "pilot or tug, I am not sure",
        "mein Liegeplatz",
        "es geht um die Zollpapiere",
        "ich habe eine Frage zum Hafengeld",
        "Kran oder Schlepper, ich weiß nicht genau",
    ],
)
def test_a_subject_alone_is_only_mentioned(text: str) -> None:
    """K7: a noun alone does not say what is to be done."""
    assert only_mentions(text)


@pytest.mark.parametrize(
    "text",
    [
        "order a tug for Monday",
        "where is my container",
        "my crane stopped working",
        "the gate won't open",
        "I would like to move my mooring to Friday",
        "Liegeplatz verlängern",
        "ich möchte einen Schlepper bestellen",
        "unser Container ist beschädigt",
        "a long letter " * 20,
    ],
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
