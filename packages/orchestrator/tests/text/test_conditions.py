"""Whether a condition holds by a result: decided by a rule, or not at all."""

from typing import Any

import pytest

from remit_orchestrator.text.conditions import is_about_success, rule


@pytest.mark.parametrize(
    ("clause", "result", "holds"),
    [
        ("it is positive", "The test is positive.", True),
        ("it is positive", "The test is negative.", False),
        ("it is positive", {"result": "positive"}, True),
        ("it is positive", "The result was not positive.", False),
        ("it is negative", {"result": "positive", "ct": 21}, False),
        ("it is positive", "The sample was lost.", None),
        ("it is positive", "HIV is negative, but hepatitis B is positive.", None),
        ("the hepatitis test is positive", "HIV is negative, but hepatitis B is positive.", True),
        ("positive", "It may be positive.", None),
        ("it isn't positive", "The test is negative.", True),
        ("there is a free slot", "There is a free slot at 10:00.", True),
        ("there is a free slot", "No free slots this week.", False),
        ("there is a free slot", {"slots": []}, False),
        ("there is a free slot", {"slots": ["10:00"]}, True),
        ("there is a free slot", [], False),
        ("there are none", [], True),
        ("nothing is found", "", True),
        ("nobody can be found", "No substitute could be found.", True),
        ("nobody can be found", "Mr Hill takes over.", None),
        ("there are fewer than 20", "There are 14 pallets in stock.", True),
        ("there are fewer than 20", {"pallets": 34}, False),
        ("there are fewer than 20", "Ward 3 has 12 beds, ward 5 has 30.", None),
        ("the haemoglobin is below 12", {"haemoglobin": 11.2, "leukocytes": 40}, True),
        ("the haemoglobin is below 12", "Haemoglobin 13.4 g/dl.", False),
        ("it costs less than 50 euros", "The repair costs 49 euros.", True),
        ("it is more than 1,000 euros", {"balance": "1,250.00 EUR"}, True),
        ("er über 500 Euro liegt", "Der Rückstand beträgt 640 Euro.", True),
        (
            "there is a flight under 200 euros",
            [{"flight": "A", "price_eur": 250}, {"flight": "B", "price_eur": 180}],
            True,
        ),
        ("it rains", "It will rain tomorrow.", True),
        ("it rains", "No rain is expected.", False),
        ("it rains", "Sunny, 21 degrees.", None),
        ("the shipment is delayed", "The shipment is on time.", None),
        ("the shipment is delayed", "The shipment is delayed by two days.", True),
        ("the shipment is delayed", {"delayed": False}, False),
        ("die Miete nicht bezahlt ist", "Die Miete ist bezahlt.", False),
        ("die Miete nicht bezahlt ist", "Die Miete ist nicht bezahlt.", True),
        ("die Miete nicht bezahlt ist", "Die Miete ist unbezahlt.", True),
        ("das Ergebnis positiv ist", "Das Ergebnis ist negativ.", False),
        ("das Teil nicht auf Lager ist", "Das Teil ist auf Lager.", False),
        ("das Teil nicht auf Lager ist", "Nicht auf Lager.", True),
        ("it is approved", "The request was rejected.", False),
        ("it is approved", "The request was approved.", True),
        ("the room is available", "Room 12 is taken.", None),
        ("the room is available", "Room 12 is occupied.", False),
        ("Is the test of Mrs Lund back", "Yes, since this morning.", True),
        ("Is room 5 free", "No.", False),
        ("Ist Wohnung 7 frei", "Ja.", True),
        ("Ist Wohnung 7 frei", "Wohnung 7 ist vermietet.", None),
        ("the weather is good", "The weather is bad.", False),
        ("the weather is good", "The weather will be good.", True),
        ("there are boxes left", "There are no boxes left.", False),
        ("there are boxes left", {"boxes": 0}, False),
        ("there are boxes left", {"boxes": 12}, True),
        ("we have any in the pantry", "There are no oysters in the pantry.", False),
        ("it is delivered", "It was delivered on Monday.", True),
        ("it is delivered", {"status": "in transit"}, None),
        ("it is ready", "The car is ready.", True),
        ("es regnet", "Es regnet morgen nicht.", False),
        ("es einen freien Termin gibt", "Es gibt keinen freien Termin.", False),
        ("es einen freien Termin gibt", "Am Montag ist ein Termin frei.", True),
        ("at least 3 seats are free", "2 seats are free.", False),
        ("at least 3 seats are free", {"free_seats": 3}, True),
    ],
)
def test_a_condition_is_decided_from_a_result_or_left_open(clause: str, result: Any, holds: bool | None) -> None:
    assert rule(clause, result, clause).holds is holds


def test_a_ruling_quotes_what_decides_it() -> None:
    assert rule("it is positive", "Thank you. The test is negative.").because == "The test is negative."


@pytest.mark.parametrize(
    ("clause", "works"),
    [("that works", True), ("it fails", False), ("es nicht klappt", False), ("it is positive", None)],
)
def test_a_condition_may_ask_only_whether_something_worked(clause: str, works: bool | None) -> None:
    assert is_about_success(clause) is works
