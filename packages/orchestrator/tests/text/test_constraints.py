"""What in a result breaks what the user demanded, and what does not."""

from time import perf_counter

import pytest

from remit.protocol.envelope import Json, Note
from remit_orchestrator.text.constraints import breaches, demands_of
from remit_orchestrator.text.summaries import notes_of


@pytest.mark.parametrize(
    ("demand", "result", "broken"),
    [
        ("It may cost at most 5,000 euros.", {"price": "6,200 EUR"}, 1),
        ("It may cost at most 5,000 euros.", {"price": "4,900 EUR"}, 0),
        ("It may cost at most 5,000 euros.", {"price": "6,200 USD"}, 0),
        ("It may cost at most 5,000 euros.", {"turnover": "9,000,000 EUR"}, 0),
        ("It may cost at most 5,000 euros.", "The total is 5,400 EUR. It leaves on Monday.", 1),
        ("Es darf höchstens 300 Euro kosten.", "Der Preis beträgt 350 Euro.", 1),
        ("The parcel must weigh no more than 20 kg.", {"weight_kg": 25}, 1),
        ("Deliver no later than 12 March 2027.", "It arrives on 15 March 2027.", 1),
        ("Deliver no later than 12 March 2027.", "It arrives on 10 March 2027.", 0),
        ("Only by sea.", {"mode": "air"}, 1),
        ("Only by sea.", {"mode": "sea"}, 0),
        ("Only by sea.", "The offer was made by Friday.", 0),
        ("Be polite.", {"price": "6,200 EUR"}, 0),
    ],
)
def test_what_breaks_a_demand_is_told_once(demand: str, result: Json, broken: int) -> None:
    assert len(breaches(demands_of([Note("constraint", demand)]), [result, result])) == broken


def test_a_later_bound_takes_the_place_of_an_earlier_one_and_only_the_user_demands() -> None:
    notes = [
        Note("constraint", "At most 5,000 euros."),
        Note("constraint", "At most 7,000 euros."),
        Note("constraint", "At most 10 euros.", "some-agent"),
    ]
    assert breaches(demands_of(notes), [{"price": "6,200 EUR"}]) == []


@pytest.mark.parametrize(
    ("said", "result", "broken"),
    [
        # A rate is compared with the same rate.
        ("at most 300 euros a day", "It costs 390 euros a day.", 1),
        ("at most 300 euros a day", "It costs 900 euros a week.", 0),
        ("at least three rooms", {"rooms": 2}, 1),
        ("at least three rooms", {"rooms": 4, "doors": 2}, 0),
        # The number of a year is no price, and a sum that nobody pays neither.
        ("under 900", "The house was built in 1968.", 0),
        ("under 900", "It costs 400 euros. The insured value is 5,000 euros.", 0),
        ("not before ten", "It begins at 9:15.", 1),
        ("not before ten", "We are open from 8:00 to 16:00.", 0),
        ("no later than 3 January", "It is ready on 30 December.", 0),
        ("nothing with nuts", {"contains_nuts": True}, 1),
        ("nothing with nuts", {"contains_nuts": False}, 0),
        ("nothing with nuts", "Would you like nuts?", 0),
        ("only organic", {"organic": False}, 1),
        ("everything has to be gluten-free", "The tablets are gluten-free.", 0),
        ("without alcohol, please", "The pharmacist advises against alcohol.", 0),
        ("it may take 45 minutes at most", "The boiler is ten years old.", 0),
        ("not on Mondays", "The shop is open on Mondays.", 0),
        ("non-smoking, please", "It is a smoking room.", 1),
        ("not on Mondays", "We are open from Monday to Friday.", 0),
        ("by sea", "The contract was checked by lawyers.", 0),
        ("by sea", "It goes by lorry.", 1),
        ("by sea", "It goes by ship, and the rest by lorry.", 0),
        ("pay by invoice", {"payment": "card"}, 1),
    ],
)
def test_a_constraint_is_compared_with_what_it_is_about(said: str, result: Json, broken: int) -> None:
    assert len(breaches(demands_of(notes_of(said)), [result])) == broken


@pytest.mark.parametrize(
    ("texts", "price", "broken"),
    [
        (["at most 500 euros", "now up to 800"], "700 EUR", 0),
        (["at most 500 euros", "now up to 800"], "900 EUR", 1),
        (["at most 500 euros", "forget all limits"], "900 EUR", 0),
        (["at most 500 euros", "raise the limit to 1,000 euros"], "900 EUR", 0),
        (["at most 500 euros", "there is no limit any more"], "900 EUR", 0),
        (["at most 500 euros", "please drop these conditions"], "900 EUR", 0),
        (["at most 500 euros", "the time does not matter"], "900 EUR", 1),
        (["at most 500 euros", "that is fine"], "900 EUR", 1),
        (["at most 500 euros", "is 800 euros fine?"], "900 EUR", 1),
        (["at most 500 euros", "200 euros are fine"], "450 EUR", 0),
    ],
)
def test_a_later_word_changes_or_lifts_a_limit(texts: list[str], price: str, broken: int) -> None:
    notes = [note for text in texts for note in notes_of(text)]
    assert len(breaches(demands_of(notes), [{"price": price}])) == broken


def test_the_reply_to_a_question_is_a_constraint_and_the_question_is_none() -> None:
    notes = [Note("answer", "Is at most 100 euros enough? → at most 300 euros")]
    assert len(breaches(demands_of(notes), [{"price": "200 EUR"}])) == 0
    assert len(breaches(demands_of(notes), [{"price": "350 EUR"}])) == 1


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("between 10 and 20 euros", 2),
        ("zwischen 10 und 12 Uhr", 2),
        ("it shouldn't take longer than a week", 1),
        ("I only have 50 euros", 1),
        ("auf gar keinen Fall per Flugzeug", 1),
        ("any day except Monday", 1),
        ("don't send anything by post", 1),
        ("I can't eat shellfish", 1),
        ("it must be a mistake", 0),
        ("there must be an error in my invoice", 0),
        ("no reply yet", 0),
        ("don't forget the milk", 0),
        ("a coffee, please", 0),
        ("Termin absagen bitte", 0),
        ("change my appointment to Monday", 0),
        ("only if it is possible", 0),
        ("he said at most 300 euros", 0),
    ],
)
def test_what_demands_something_is_read_and_nothing_else(said: str, read: int) -> None:
    assert len(demands_of(notes_of(said)).constraints) == read


@pytest.mark.parametrize(
    "piece", ["by ", "more than ", "is fine ", "no ", "between 1 and ", "not by ", "at most 5 ", "x"]
)
def test_a_hostile_text_costs_no_more_than_any_other(piece: str) -> None:
    """Ten thousand characters; a pattern that backtracks would take minutes."""
    began = perf_counter()
    text = piece * (10_000 // len(piece))
    breaches(demands_of([*notes_of(text), Note("constraint", text[:300])]), [text])
    assert perf_counter() - began < 10
