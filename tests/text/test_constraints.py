"""What in a result breaks what the user demanded, and what does not."""

import pytest

from remit.protocol.envelope import Json, Note
from remit.text.constraints import breaches, demands_of


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
