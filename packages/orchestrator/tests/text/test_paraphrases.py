"""When two requests ask for the same in other words, and when they only look as if they did."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labelled_cases import cases
from remit_orchestrator.text.paraphrases import LONGEST, NEGATIONS, gist

ALIKE = cases("paraphrases", "alike")


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_differs_in_case_spaces_punctuation_and_courtesy_asks_for_the_same(one: str, other: str) -> None:
    """C10: the same query."""
    assert gist(one) == gist(other)


DIFFERENT = cases("paraphrases", "different")


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_only_looks_alike_is_told_apart(one: str, other: str) -> None:
    """Numbers, dates, weekdays, months, negations and order: each of them makes another request."""
    assert gist(one) != gist(other)


def test_a_document_is_taken_as_it_is() -> None:
    text = "word " * LONGEST
    assert gist(text) == (text,)
    assert gist(text) != gist(text.rstrip())


NOUNS = ["invoice", "order", "room", "flight", "receipt", "customer", "paris", "rome", "anna", "berlin"]
SMALL = ["from", "to", "with", "without", "before", "after", "by", "of", "and", "or", "a", "all", "only", "is", "are"]
DAYS = ["monday", "tuesday", "sunday", "today", "tomorrow", "yesterday"]
MONTHS = ["january", "march", "may", "june", "december"]
NUMBERS = ["7", "4411", "4412", "2024-05-06", "12.5", "-3", "5%", "three", "four", "10:30", "1,000"]
words = st.sampled_from([*NOUNS, *SMALL, *DAYS, *MONTHS, *NUMBERS, *sorted(NEGATIONS)])
requests = st.lists(words, min_size=1, max_size=12)


@given(requests, requests)
def test_only_the_same_words_in_the_same_order_ask_for_the_same(one: list[str], other: list[str]) -> None:
    assert (gist(" ".join(one)) == gist(" ".join(other))) == (one == other)


@given(requests, st.sampled_from([DAYS, MONTHS, NUMBERS, sorted(NEGATIONS)]), st.data())
def test_a_number_day_month_or_negation_that_differs_makes_another_request(
    request_words: list[str], kind: list[str], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(request_words)))
    one, other = data.draw(st.permutations(kind))[:2]
    before, after = request_words[:place], request_words[place:]
    assert gist(" ".join([*before, one, *after])) != gist(" ".join([*before, other, *after]))
    assert gist(" ".join([*before, one, *after])) != gist(" ".join(request_words))


@given(requests, st.data())
def test_two_words_that_change_places_make_another_request(request_words: list[str], data: st.DataObject) -> None:
    first, second = (data.draw(st.integers(0, len(request_words) - 1)) for _ in range(2))
    turned = list(request_words)
    turned[first], turned[second] = request_words[second], request_words[first]
    assume(turned != request_words)
    assert gist(" ".join(turned)) != gist(" ".join(request_words))


@given(
    st.lists(st.sampled_from([*NOUNS, *SMALL, *DAYS]), min_size=4, max_size=10),
    st.sampled_from(["", "Please ", "Hello, ", "Could you tell me ", "Tell me "]),
    st.sampled_from(["", ".", "?", "!", " please", ", please?", ". Thanks."]),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.sampled_from([" ", "  ", "\t"]),
)
def test_courtesy_capitals_and_spaces_carry_nothing(
    request_words: list[str], before: str, after: str, capitals: list[bool], space: str
) -> None:
    written = [word.capitalize() if capital else word for word, capital in zip(request_words, capitals, strict=False)]
    assert gist(before + space.join(written) + after) == gist(" ".join(request_words))


@given(st.text(max_size=50).filter(lambda text: len(f".{text}.".splitlines()) == 1))
def test_in_any_text_the_spaces_around_it_carry_nothing(text: str) -> None:
    assert gist(f"  {text} ") == gist(text)
