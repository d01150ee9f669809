"""When two requests ask for the same in other words, and when they only look as if they did."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remit_orchestrator.text.paraphrases import LONGEST, NEGATIONS, gist

ALIKE = [
    ("What is the rate of the euro?", "what is the rate of the euro"),
    ("What is the rate of the euro?", "  What  is the\trate of the euro ? "),
    ("What is the rate of the euro?", "Please tell me what is the rate of the euro"),
    ("What is the rate of the euro?", "What's the rate of the euro?"),
    ("What is the rate of the euro?", "What’s the rate of euro, please?"),
    ("Rate of the euro", "Hello, could you please give me the rate of the euro? Thanks!"),
    ("Rate of the euro", "Hi! I'd like to know the rate of the euro. Thank you."),
    ("Rate of the euro", "I would like to know rate of euro"),
    ("Rate of the euro", "Please tell me: rate of the euro"),
    ("Rate of the euro", "Will you tell me the rate of the euro"),
    ("Opening hours in Paris, France", "opening hours in paris france."),
    ("Which invoices aren't paid?", "which invoices are not paid"),
    ("Which ones can't be paid", "Which ones cannot be paid"),
    ("Who won't come on Monday", "who will not come on monday"),
    ("Who is there now?", "who is there now"),
    ("May I come on Friday", "may I come on friday"),
    ("ORDERS OF ANNA", "ORDERS OF ANNA!"),
    ("Status of order 4411.", "status of order 4411"),
    ("Café in Paris now", "Cafe\u0301 in Paris now"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_differs_in_case_spaces_punctuation_and_courtesy_asks_for_the_same(one: str, other: str) -> None:
    """C10: the same query."""
    assert gist(one) == gist(other)


DIFFERENT = [
    ("Cancel order 4411", "Cancel order 4412"),
    ("Flights from Paris to Rome", "Flights from Rome to Paris"),
    ("Flights from Paris to Rome", "Flights to Paris from Rome"),
    ("Sales in the week of 2024-05-06", "Sales in the week of 2024-05-13"),
    ("Meetings on Monday afternoon", "Meetings on Tuesday afternoon"),
    ("Sales of May 2024", "Sales of June 2024"),
    ("Sales of last May", "Sales of last march"),
    ("The march was long", "The March was long"),
    ("Which invoices are paid", "Which invoices are not paid"),
    ("Which invoices are paid", "Which invoices aren't paid"),
    ("Rooms with a view", "Rooms without a view"),
    ("Invoices with no errors at all", "Invoices with errors at all"),
    ("All unpaid invoices of Anna", "All paid invoices of Anna"),
    ("Don't. Stop the machine", "Don't stop the machine"),
    ("Those not here, call", "Those not here call"),
    ("The largest of these five", "The largest of these four"),
    ("It costs 5 euro", "It costs -5 euro"),
    ("It costs 5% more", "It costs 5 more"),
    ("It costs $5 more", "It costs €5 more"),
    ("It costs 5.20 more", "It costs 52.0 more"),
    ("What is 5!", "What is 5"),
    ("What is 5 !", "What is 5"),
    ("What is 2*(3+4)", "What is 2*3+4"),
    ("Offices in the US", "Offices for the us"),
    ("People of the US now", "People of the us now"),
    ("Staff for IT now", "Staff for it now"),
    ("Albums by the Who", "Albums by who"),
    ("Made in Turkey this year", "Made in turkey this year"),
    ("Show me vitamin A now", "Show me vitamin now"),
    ("Read the file aB3", "Read the file AB3"),
    ("Who uses an iPhone", "Who uses an iphone"),
    ("Write to anna@example.org", "Write to Anna@example.org"),
    ("How do you say please", "How do you say thank you"),
    ("please in French", "hello in French"),
    ("translate please", "translate"),
    ("can you deliver to Paris", "deliver to Paris"),
    ("Explain this:\nif a:\n    b", "Explain this:\nif a:\nb"),
    ("Anna's orders of today", "Anna orders of today"),
    ("the", ""),
]


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
    said: list[str], kind: list[str], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(said)))
    one, other = data.draw(st.permutations(kind))[:2]
    before, after = said[:place], said[place:]
    assert gist(" ".join([*before, one, *after])) != gist(" ".join([*before, other, *after]))
    assert gist(" ".join([*before, one, *after])) != gist(" ".join(said))


@given(requests, st.data())
def test_two_words_that_change_places_make_another_request(said: list[str], data: st.DataObject) -> None:
    first, second = (data.draw(st.integers(0, len(said) - 1)) for _ in range(2))
    turned = list(said)
    turned[first], turned[second] = said[second], said[first]
    assume(turned != said)
    assert gist(" ".join(turned)) != gist(" ".join(said))


@given(
    st.lists(st.sampled_from([*NOUNS, *SMALL, *DAYS]), min_size=4, max_size=10),
    st.sampled_from(["", "Please ", "Hello, ", "Could you tell me ", "Tell me "]),
    st.sampled_from(["", ".", "?", "!", " please", ", please?", ". Thanks."]),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.sampled_from([" ", "  ", "\t"]),
)
def test_courtesy_capitals_and_spaces_carry_nothing(
    said: list[str], before: str, after: str, capitals: list[bool], space: str
) -> None:
    written = [word.capitalize() if capital else word for word, capital in zip(said, capitals, strict=False)]
    assert gist(before + space.join(written) + after) == gist(" ".join(said))


@given(st.text(max_size=50).filter(lambda text: len(f".{text}.".splitlines()) == 1))
def test_in_any_text_the_spaces_around_it_carry_nothing(text: str) -> None:
    assert gist(f"  {text} ") == gist(text)
