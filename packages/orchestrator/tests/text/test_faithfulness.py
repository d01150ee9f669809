"""A rewritten text is compared with its sources: what has other words needs a quote, and every quote is checked."""

import pytest

from labelled_cases import cases
from remit.policy.aggregate import Blend
from remit.words.components import Component
from remit_orchestrator.text.faithfulness import Objection, Quotes, check, hold
from remit_orchestrator.text.sentences import sentences

BEDS = Component("beds", "Ward 3 has 12 free beds. Ward 5 has 7 free beds.", None, "Beds")
DOCTOR = Component("doctor", "Dr. Amari is not available before Thursday.", None, "Staff")
TOLD = "Ward 3 has 12 free beds, and ward 5 has 7 free beds. Dr. Amari is not available before Thursday."


def all_of(source: str, text: str) -> Quotes:
    """Quote the whole source for each sentence, as a reader does that looks at nothing."""
    return {sentence: list(sentences(source)) for sentence in sentences(text)}


def test_what_repeats_the_words_of_the_sources_is_faithful_in_any_order() -> None:
    checked = check(TOLD, [BEDS, DOCTOR])
    assert (checked.faithful, checked.text) == (True, TOLD)
    turned = "Dr. Amari is not available before Thursday. Ward 5 has 7 free beds. Ward 3 has 12 free beds."
    assert check(turned, [BEDS, DOCTOR]).faithful


@pytest.mark.parametrize(("source", "text"), cases("faithfulness", "in_other_words"))
def test_without_a_second_reader_nothing_is_given_in_other_words(source: str, text: str) -> None:
    last = text.rsplit(". ", maxsplit=1)[-1]
    assert check(text, [Component("a", source)], complete=False).objections[-1] == Objection(last, "words")


@pytest.mark.parametrize(("source", "text"), cases("faithfulness", "faithful"))
def test_what_a_second_reader_quotes_bears_out_other_words(source: str, text: str) -> None:
    blend = Blend(components=(Component("a", source, None, "A"),))
    assert hold(text, blend, all_of(source, text)).whole


@pytest.mark.parametrize(("source", "text", "why"), cases("faithfulness", "refused_though_quoted"))
def test_a_quote_must_have_the_same_names_figures_denials_and_quantities(source: str, text: str, why: str) -> None:
    checked = check(text, [Component("a", source)], complete=False, quotes=all_of(source, text))
    assert [each.why for each in checked.objections] == [why]


def test_a_quote_that_stands_nowhere_bears_out_nothing() -> None:
    text = "In ward 3 there are 12 beds."
    quotes = {text: ["Ward 3 has 12 free rooms."]}
    assert check(text, [BEDS], complete=False, quotes=quotes).objections == (Objection(text, "words"),)


def test_a_sentence_without_a_source_is_dropped_and_the_rest_is_kept() -> None:
    checked = check(f"{TOLD} You should call her soon.", [BEDS, DOCTOR])
    assert checked.text == TOLD
    assert checked.objections == (Objection("You should call her soon.", "words"),)
    assert check(f"The pump leaks{' and leaks' * 200}.", [Component("a", "The pump leaks.")]).text == ""


def test_a_text_that_cannot_do_without_a_sentence_is_not_kept() -> None:
    swapped = "Ward 3 has 7 free beds. Ward 5 has 12 free beds. Dr. Amari is not available before Thursday."
    checked = check(swapped, [BEDS, DOCTOR])
    assert (checked.text, {source for source, _ in checked.missing}) == ("", {0})
    source = Component("a", "The lamp is old. The lamp is red. It is heavy.")
    assert check("The lamp is not old. It is heavy.", [source], complete=False).text == ""


def test_what_is_missing_is_named_unless_it_is_excused() -> None:
    text = "Ward 3 has 12 free beds, and ward 5 has 7 free beds."
    assert check(text, [BEDS, DOCTOR]).missing == ((1, "Dr. Amari is not available before Thursday."),)
    assert check(text, [BEDS, DOCTOR], excused={"doctor"}).faithful
    assert check(text, [BEDS, DOCTOR], complete=False).faithful


def test_the_fields_of_a_record_stand_together() -> None:
    flats = Component("a", [{"street": "Birkenweg", "rent": 980}, {"street": "Lindenhof", "rent": 720}])
    text = "The rent in Birkenweg is 980. The rent in Lindenhof is 720."
    quotes = {
        "The rent in Birkenweg is 980.": ["Street: Birkenweg", "Rent: 980"],
        "The rent in Lindenhof is 720.": ["Street: Lindenhof", "Rent: 720"],
    }
    assert check(text, [flats], quotes=quotes).faithful
    assert not check(text, [flats], quotes={"The rent in Birkenweg is 980.": ["Street: Birkenweg"]}).faithful
    deep: object = "x"
    for _ in range(12):
        deep = {"more": [deep, None]}
    assert check("Nothing else.", [Component("a", deep)], complete=False).missing == ()  # pyright: ignore


def test_questions_and_headings_say_nothing() -> None:
    assert check(f"Here is the summary:\n\n{TOLD}\nIs that right?", [BEDS, DOCTOR]).faithful
