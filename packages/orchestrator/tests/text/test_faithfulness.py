"""A rewritten text is compared with its sources statement by statement."""

import pytest

from labelled_cases import cases
from remit.policy.aggregate import Blend
from remit.words.components import Component
from remit_orchestrator.text.faithfulness import Objection, check, hold

BEDS = Component("beds", "Ward 3 has 12 free beds. Ward 5 has 7 free beds.", None, "Beds")
DOCTOR = Component("doctor", "Dr. Amari is not available before Thursday.", None, "Staff")
TOLD = "Ward 3 has 12 free beds and ward 5 has 7. Dr. Amari is not available before Thursday."


def test_what_the_sources_say_is_faithful_in_another_order_and_other_words() -> None:
    checked = check(TOLD, [BEDS, DOCTOR])
    assert (checked.faithful, checked.text) == (True, TOLD)
    assert check("Dr. Amari cannot be reached before Thursday. Ward 5: 7 beds, ward 3: 12.", [BEDS, DOCTOR]).faithful


@pytest.mark.parametrize(
    ("source", "text", "why"),
    [
        *cases("faithfulness", "a_sentence_that_says_something_else_is_named_with_the_reason"),
        ("The pump leaks.", f"The pump leaks{' and leaks' * 200}.", "not in the results"),
    ],
)
def test_a_sentence_that_says_something_else_is_named_with_the_reason(source: str, text: str, why: str) -> None:
    last = text.rsplit(". ", maxsplit=1)[-1]
    assert check(text, [Component("a", source)], complete=False).objections == (Objection(last, why),)  # pyright: ignore


@pytest.mark.parametrize(
    ("source", "text"),
    cases("faithfulness", "the_same_from_another_side_is_faithful"),
)
def test_the_same_from_another_side_is_faithful(source: str, text: str) -> None:
    component = Component("a", source, None, "A")
    assert check(text, [component]).objections == ()
    assert hold(text, Blend(components=(component,))).whole


def test_a_statement_with_nothing_of_its_own_left_is_missing() -> None:
    source = Component("a", "Ballots sent by post must arrive by 3 June. Late ballots are not counted.")
    checked = check("Ballots sent by post must arrive by 3 June.", [source])
    assert checked.missing == ((0, "Late ballots are not counted."),)


def test_a_sentence_without_a_source_is_dropped_and_the_rest_is_kept() -> None:
    checked = check(f"{TOLD} You should call her soon.", [BEDS, DOCTOR])
    assert (checked.text, [each.why for each in checked.objections]) == (TOLD, ["advice"])


def test_a_text_that_cannot_do_without_a_sentence_is_not_kept() -> None:
    swapped = "Ward 3 has 7 free beds. Ward 5 has 12 free beds. Dr. Amari is not available before Thursday."
    checked = check(swapped, [BEDS, DOCTOR])
    assert (checked.text, {source for source, _ in checked.missing}) == ("", {0})
    source = Component("a", "The lamp is old. The lamp is red.")
    hanging = "The lamp is old. The lamp is not red. It is red."
    assert check(hanging, [source]).text == ""


def test_what_is_missing_is_named_unless_it_is_excused() -> None:
    text = "Ward 3 has 12 free beds, and ward 5 has 7."
    assert check(text, [BEDS, DOCTOR]).missing == ((1, "Dr. Amari is not available before Thursday."),)
    assert check(text, [BEDS, DOCTOR], excused={"doctor"}).faithful
    assert check(text, [BEDS, DOCTOR], complete=False).faithful


def test_either_side_of_a_dispute_may_be_told() -> None:
    sources = [Component("a", "The train leaves at 9:40."), Component("b", "The train to Graz leaves at 10:40.")]
    text = "The train to Graz leaves at 9:40 or at 10:40."
    assert not check(text.replace(" or at 10:40", ""), sources, excused={"b"}).faithful
    assert check(text, sources, disputed="- train leaves: 9:40 or 10:40").faithful


def test_fields_are_statements_about_their_record() -> None:
    flats = Component("a", [{"street": "Birkenweg", "rent": 980}, {"street": "Lindenhof", "rent": 720}])
    assert check("Birkenweg has a rent of 980, Lindenhof one of 720.", [flats]).faithful
    assert not check("Birkenweg has a rent of 720, Lindenhof one of 980.", [flats]).faithful
    deep: object = "x"
    for _ in range(12):
        deep = {"more": [deep, None]}
    assert check("Nothing else.", [Component("a", deep)], complete=False).missing == ()  # pyright: ignore


def test_questions_headings_and_frames_say_nothing() -> None:
    assert check(
        f"Here is the summary:\n\nIn short: the answer follows.\n{TOLD}\nIs that right?", [BEDS, DOCTOR]
    ).faithful
