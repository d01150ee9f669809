"""A rewritten text is compared with its sources statement by statement."""

import pytest

from remit.policy.aggregate import Blend
from remit.words.components import Component
from remit_orchestrator.text.faithfulness import Objection, check, hold

BEDS = Component("beds", "Ward 3 has 12 free beds. Ward 5 has 7 free beds.", None, "Beds")
DOCTOR = Component("doctor", "Dr. Amari is not available before Thursday.", None, "Staff")
TOLD = "Ward 3 has 12 free beds and ward 5 has 7. Dr. Amari is not available before Thursday."


def test_what_the_sources_say_is_faithful_in_another_order_and_other_words() -> None:
    found = check(TOLD, [BEDS, DOCTOR])
    assert (found.faithful, found.text) == (True, TOLD)
    assert check("Dr. Amari cannot be reached before Thursday. Ward 5: 7 beds, ward 3: 12.", [BEDS, DOCTOR]).faithful


@pytest.mark.parametrize(
    ("source", "text", "why"),
    [
        ("Ward 3 has 12 free beds. Ward 5 has 7 free beds.", "Ward 3 has 7 free beds.", "figure"),
        ("The road is 30 km/h fast.", "The road is 30 mph fast.", "figure"),
        ("Frau Ott kommt um 9:00 Uhr. Herr Dorn prüft das Dach.", "Herr Dorn kommt um 9:00 Uhr.", "name"),
        ("The soup is cold. The bread in the oven smells good.", "The soup in the oven smells good.", "subject"),
        ("The invoice is not paid.", "The invoice is paid.", "negation"),
        ("The invoice is paid.", "The invoice is unpaid.", "opposite"),
        ("The price rose by 4 percent.", "The price fell by 4 percent.", "opposite"),
        ("It costs at least 40 euros.", "It costs at most 40 euros.", "bound"),
        ("It costs at least 40 euros.", "It costs 40 euros.", "bound"),
        ("The bus goes from Graz to Linz.", "The bus goes from Linz to Graz.", "direction"),
        ("Kiel beat Jena.", "Jena beat Kiel.", "direction"),
        ("The match may be moved.", "The match will be moved.", "certainty"),
        ("The match is moved if it rains.", "The match is moved.", "condition"),
        ("The patient is sober.", "The patient is drunk.", "other word"),
        ("Most clients pay by card.", "All clients pay by card.", "other word"),
        ("Alle Erben sind da.", "Ein Teil der Erben ist da.", "other word"),
        ("All clients need a pass. Some clients need a photo.", "All clients need a pass and a photo.", "other word"),
        ("It costs 60 euros per hour.", "It costs 60 euros per day.", "figure"),
        ("Anna works until noon and Ben from noon.", "Ben works until noon and Anna from noon.", "bound"),
        ("Thin glass is dearer than thick glass.", "Thick glass is dearer than thin glass.", "direction"),
        ("The tenant pays the owner 90 euros.", "The owner pays the tenant 90 euros.", "direction"),
        ("The choir sings first, then the band plays.", "The band plays first, then the choir sings.", "direction"),
        ("Cards are possible, cash is not accepted.", "Cards or cash are possible.", "negation"),
        ("Guests may swim only with a guide.", "Guests may swim with a guide.", "condition"),
        ("Guests may swim only with a guide.", "Guests may swim without a guide.", "opposite"),
        ("The coat is finished except for the buttons.", "The coat is finished.", "condition"),
        ("The lamp is off.", "The lamp is on.", "other word"),
        ("Abends fällt er manchmal aus.", "Abends fällt er nie aus.", "negation"),
        ("It sounds if it rises above minus 15 degrees.", "It sounds if it falls below minus 15 degrees.", "bound"),
        ("Das Bad ist wegen Frost zu.", "Das Bad ist wegen eines Streiks zu.", "cause"),
        ("The pump leaks. The valve is old.", "The pump leaks. A new valve would help a lot.", "not in the results"),
        ("The pump leaks.", "The pump leaks and should be replaced.", "advice"),
        ("The pump leaks.", "Replace the leaking pump.", "advice"),
        ("The pump leaks. The valve is old.", "The pump leaks because the valve is old.", "cause"),
        ("The pump leaks.", "Everybody likes sunny holidays.", "not in the results"),
        ("The pump leaks.", f"The pump leaks{' and leaks' * 200}.", "not in the results"),
    ],
)
def test_a_sentence_that_says_something_else_is_named_with_the_reason(source: str, text: str, why: str) -> None:
    last = text.rsplit(". ", maxsplit=1)[-1]
    assert check(text, [Component("a", source)], complete=False).objections == (Objection(last, why),)  # pyright: ignore


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("The counter is open from 9:00 to 12:30.", "The counter opens at 9:00 and closes at 12:30."),
        ("30 kilograms were sold to the market.", "The market bought 30 kilograms."),
        ("Linen is cheaper than wool.", "Linen is less expensive than wool."),
        (
            "The wind is weaker in the valley than at the summit.",
            "At the summit the wind is stronger than in the valley.",
        ),
        ("Children under 14 pay nothing.", "For children under 14 it is free."),
        ("The lorry carries at most 900 kilograms.", "The maximum load of the lorry is 900 kg."),
        ("Fishing is forbidden in basin D. Visitors wait.", "In basin D fishing is forbidden. Visitors wait."),
        ("Das Futter reicht noch 12 Tage.", "Das Futter reicht für 12 weitere Tage."),
        ("The trousers have to be shortened.", "The trousers still need to be shortened."),
        ("All clients need a pass. Some clients need a photo.", "Every client needs a pass, and some need a photo."),
        ("Die Gebühr für einen Hund beträgt 35 Euro.", "Die Gebühr beträgt 35 Euro für Hunde."),
        ("It sounds if the water rises above 15 degrees.", "Above 15 degrees it sounds."),
        ("The budget is 90 euros. Travel is not covered.", "The budget of 90 euros does not include travel."),
        ("Die Garantie gilt zwei Jahre.", "Die Garantie beträgt zwei Jahre."),
        ("The Petrov family stays until 9:00.", "The Petrovs stay until 9:00."),
        ("Die Filiale in Graz ist offen.", "Offen ist die Grazer Filiale."),
        ("Celle ist fertig, Uelzen noch nicht.", "Fertig ist Celle, noch nicht aber Uelzen."),
    ],
)
def test_the_same_from_another_side_is_faithful(source: str, text: str) -> None:
    component = Component("a", source, None, "A")
    assert check(text, [component]).objections == ()
    assert hold(text, Blend(components=(component,))).whole


def test_a_statement_with_nothing_of_its_own_left_is_missing() -> None:
    source = Component("a", "Ballots sent by post must arrive by 3 June. Late ballots are not counted.")
    told = check("Ballots sent by post must arrive by 3 June.", [source])
    assert told.missing == ((0, "Late ballots are not counted."),)


def test_a_sentence_without_a_source_is_dropped_and_the_rest_is_kept() -> None:
    found = check(f"{TOLD} You should call her soon.", [BEDS, DOCTOR])
    assert (found.text, [each.why for each in found.objections]) == (TOLD, ["advice"])


def test_a_text_that_cannot_do_without_a_sentence_is_not_kept() -> None:
    swapped = "Ward 3 has 7 free beds. Ward 5 has 12 free beds. Dr. Amari is not available before Thursday."
    found = check(swapped, [BEDS, DOCTOR])
    assert (found.text, {source for source, _ in found.missing}) == ("", {0})
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
