"""Values for fields stand in a user's words by type, unit, pattern, label or preposition; the words alone are none."""

from datetime import date
from typing import Any

import pytest

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.runtime.schemas import misfits
from remit_orchestrator.text.field_values import find_values
from remit_orchestrator.text.replies import read_reply

MONDAY = date(2026, 11, 16)
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TRUTH: Schema = {"type": "boolean"}
DAY: Schema = {"type": "string", "format": "date"}


def fits(schema: Schema, value: Json) -> bool:
    return not misfits(schema, value)


def values_in(text: str, /, **fields: Schema) -> dict[str, Json]:
    return {name: each.value for name, each in find_values(text, fields, frozenset(fields), fits, MONDAY).items()}


@pytest.mark.parametrize("text", ["notify the receiver", "tell the receiver about it", "the receiver is unknown", ""])
def test_the_words_of_a_request_are_no_value(text: str) -> None:
    assert values_in(text, receiver=TEXT) == {}


@pytest.mark.parametrize(
    ("text", "fields", "values"),
    [
        # by unit and by what is counted
        ("ship 2 tonnes", {"weight_kg": NUMBER}, {"weight_kg": 2000}),
        ("length 400 cm", {"length_m": NUMBER, "width_m": NUMBER}, {"length_m": 4}),
        ("about 4 m", {"length_m": NUMBER, "width_m": NUMBER}, {}),
        ("order 20 vials for ward 3", {"ward": WHOLE, "quantity": WHOLE}, {"ward": 3, "quantity": 20}),
        ("Rechnung 4711 schicken", {"menge": WHOLE}, {}),
        ("my account has 1,200 euros", {"amount": NUMBER}, {}),
        ("can I have 3 boxes", {"quantity": WHOLE}, {"quantity": 3}),
        ("2 adults, 2 children", {"adults": WHOLE, "children": WHOLE}, {"adults": 2, "children": 2}),
        ("under 50 euros", {"max_price": NUMBER}, {"max_price": 50}),
        ("for 50 euros", {"max_price": NUMBER}, {}),
        ("the report for 2024", {"year": WHOLE}, {"year": 2024}),
        ("2.5 litres", {"litres": WHOLE}, {}),
        ("it is 21 °C", {"temperature": NUMBER | {"description": "in °C"}}, {"temperature": 21}),
        ("500 EUR", {"amount": NUMBER, "currency": {"enum": ["EUR", "USD"]}}, {"amount": 500, "currency": "EUR"}),
        # by pattern, format and token
        ("gate 12B", {"seat": TEXT | {"pattern": "^[0-9]{1,2}[A-F]$"}}, {}),
        ("seat 12a please", {"seat": TEXT | {"pattern": "^[0-9]{1,2}[A-F]$"}}, {"seat": "12A"}),
        ("invoice 47110", {"postcode": TEXT | {"pattern": "^[0-9]{5}$"}}, {}),
        ("to 20095", {"postcode": TEXT | {"pattern": "^[0-9]{5}$"}}, {"postcode": "20095"}),
        ("call anybody", {"code": TEXT | {"pattern": "^[a-z]+$"}}, {}),
        ("write to [EMAIL:k7m2p9qr]", {"mail": TEXT}, {"mail": "[EMAIL:k7m2p9qr]"}),
        ("write to a@example.org", {"to": TEXT | {"format": "email"}}, {"to": "a@example.org"}),
        ("see https://example.org/x", {"page": TEXT | {"format": "uri"}}, {"page": "https://example.org/x"}),
        # by enumeration, list and example
        ("two red shirts", {"colour": TEXT | {"description": "Red, green or blue"}}, {"colour": "red"}),
        ("the water is high", {"priority": {"enum": ["low", "high"]}}, {}),
        ("high priority", {"priority": {"enum": ["low", "high"]}}, {"priority": "high"}),
        ("book a room", {"class": {"enum": ["A", "B"]}}, {}),
        ("class 2", {"class": {"enum": [1, 2]}}, {"class": 2}),
        ("by ship", {"mode": {"oneOf": [{"const": "sea", "title": "ship"}, {"const": "air"}]}}, {"mode": "sea"}),
        ("in extra large", {"size": {"enum": ["large", "extra large"]}}, {"size": "extra large"}),
        ("to hamburg", {"port": TEXT | {"examples": ["Hamburg", "Oslo"]}}, {"port": "Hamburg"}),
        # by label and preposition
        ("the vessel Aurora arrives", {"vessel": TEXT}, {"vessel": "Aurora"}),
        ("patient 4711 or patient 4712", {"patient_id": TEXT}, {}),
        ("Anruf für Kunde Meyer", {"kunde": TEXT}, {"kunde": "Meyer"}),
        ("with the title Fix door", {"title": TEXT}, {}),
        ("title: Fix door", {"title": TEXT}, {"title": "Fix door"}),
        ("from Monday to Friday", {"origin": TEXT, "destination": TEXT}, {}),
        ("to Dr Miller", {"destination": TEXT}, {}),
        # yes and no
        ("not urgent", {"urgent": TRUTH}, {"urgent": False}),
        ("urgent, please", {"urgent": TRUTH}, {"urgent": True}),
        ("is it urgent?", {"urgent": TRUTH}, {}),
        ("ohne Frühstück", {"fruehstueck": TRUTH | {"description": "Frühstück"}}, {"fruehstueck": False}),
        # days and times
        ("from 9:00 to 10:30", {"start_time": TEXT, "end_time": TEXT}, {"start_time": "09:00", "end_time": "10:30"}),
        ("tomorrow at 6:00", {"eta": TEXT | {"format": "date-time"}}, {"eta": "2026-11-17T06:00:00"}),
        ("tomorrow", {"eta": TEXT | {"format": "date-time"}}, {}),
        ("tomorrow", {"day": TEXT}, {"day": "tomorrow"}),
        ("move it from Monday to Tuesday", {"date": DAY}, {}),
        ("from Monday to Tuesday", {"old_date": DAY, "new_date": DAY}, {}),
        ("if it rains on Friday", {"date": DAY}, {}),
        ("I was there on 3 May", {"date": DAY}, {}),
        # "Was" is a question in German, and the past in English.
        ("was kostet ein Pass", {"document": {"enum": ["Pass", "Visum"]}}, {"document": "Pass"}),
        ("sag mir was ein Pass kostet", {"document": {"enum": ["Pass", "Visum"]}}, {"document": "Pass"}),
        ("my old pass was lost", {"document": {"enum": ["pass", "visa"]}}, {}),
    ],
)  # fmt: skip
def test_a_value_is_found_by_what_marks_it(text: str, fields: dict[str, Schema], values: dict[str, Json]) -> None:
    assert values_in(text, **fields) == values


@pytest.mark.parametrize(
    ("reply", "fields", "values"),
    [
        (
            "tomorrow at ten, for two",
            {"date": DAY, "time": TEXT, "guests": WHOLE},
            {"date": "2026-11-17", "time": "10:00", "guests": 2},
        ),
        ("it's 12", {"rooms": WHOLE}, {"rooms": 12}),
        ("margherita and large", {"kind": TEXT, "size": {"enum": ["small", "large"]}}, None),
        ("Hamburg, Oslo", {"origin": TEXT, "destination": TEXT}, {"origin": "Hamburg", "destination": "Oslo"}),
        ("Hamburg", {"origin": TEXT, "destination": TEXT}, {}),
        ("what is the weather like, and where", {"origin": TEXT, "destination": TEXT}, {}),
        ("show me the list, then the map", {"origin": TEXT, "destination": TEXT}, {}),
        ("the colour is dark blue", {"colour": TEXT}, {"colour": "dark blue"}),
    ],
)
def test_a_reply_gives_several_fields_in_one_sentence(
    reply: str, fields: dict[str, Schema], values: dict[str, Json] | None
) -> None:
    expected = {"kind": "margherita", "size": "large"} if values is None else values
    assert read_reply(reply, fields, fits, MONDAY) == expected


@pytest.mark.parametrize("piece", ["a ", "A ", "from ", "1 ", "A1 ", "is: ", "not ", "no. 5 of ", "[E:", "12.3.", "x,"])
def test_a_hostile_text_costs_no_more_than_any_other(piece: str) -> None:
    fields: dict[str, Any] = {
        "origin": TEXT, "goods": TEXT, "day": DAY, "n": WHOLE, "code": TEXT | {"pattern": "^[A-Z]{4}[0-9]{7}$"},
        "mode": {"enum": ["sea", "air"]}, "fast": TRUTH,
    }  # fmt: skip
    from time import process_time

    begun = process_time()
    values_in(piece * 5_000, **fields)
    assert process_time() - begun < 2
