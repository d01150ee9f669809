"""What users mean who reply to a question (K7, K14): which option, which fields."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.runtime.schemas import misfits
from remit_orchestrator.dialogue.phrases import phrases_of
from remit_orchestrator.dialogue.questions import question_for
from remit_orchestrator.text.replies import fields, inputs, wanted


def fits(schema: Schema, value: Json) -> bool:
    return not misfits(schema, value)


# ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def table(required: Sequence[str] = (), **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string"}
TODAY = date(2026, 11, 16)
NUMBER = {"type": "number"}


@pytest.mark.parametrize(
    ("schema", "given", "made", "missing"),
    [
        (None, [1], [1], []),
        ({"type": "string"}, None, "say it", []),
        ({"type": "string"}, "this", "this", []),
        ({"type": "array"}, [1], [1], []),
        ({"type": "object"}, None, None, []),
        ({"type": "object"}, {"a": 1}, {"a": 1}, []),
        (table(rate=NUMBER), None, {}, []),
        (table(rate=NUMBER), "some text", {}, []),
        (table(["rate"], rate=NUMBER), None, {}, ["rate"]),
        (table(["rate"], rate=NUMBER), {"rate": 1}, {"rate": 1}, []),
        (table(["rate"], rate=NUMBER | {"default": 2}), None, {"rate": 2}, []),
        (table(["name"], name=TEXT), None, {}, ["name"]),
        (table(["text"], text=TEXT), None, {"text": "say it"}, []),
        (table(["text", "size"], text=TEXT, size=NUMBER), None, {}, ["text", "size"]),
        (table(["message"], message=TEXT), None, {}, ["message"]),
        (table(["name", "size"], name=TEXT, size=TEXT), None, {}, ["name", "size"]),
        (table(["size"], question=TEXT, size=NUMBER), None, {"question": "say it"}, ["size"]),
        (table(["question"], question=TEXT), {"question": "mine"}, {"question": "mine"}, []),
        (table(["odd"], odd=True), None, {}, ["odd"]),
        ({"type": "object", "required": ["odd"], "properties": []}, None, None, ["odd"]),
    ],
)
def test_an_input_is_made_of_what_came_with_the_request_and_of_its_words(
    schema: Schema | None, given: Json, made: Json, missing: list[str]
) -> None:
    assert inputs(schema, "say it", given) == (made, missing)


def test_what_is_for_another_part_of_the_request_is_left_out_where_it_is_not_wanted() -> None:
    closed = table(["rate"], rate=NUMBER) | {"additionalProperties": False}
    assert inputs(closed, "say it", {"rate": 1, "size": "large"}) == ({"rate": 1}, [])


def test_what_came_with_a_request_goes_before_what_is_known() -> None:
    schema = table(["kind", "size"], kind=TEXT, size=TEXT)
    known: dict[str, Json] = {"kind": "old", "size": "small", "other": 1}
    assert inputs(schema, "order it", {"kind": "new"}, known) == ({"kind": "new", "size": "small"}, [])


def test_what_is_missing_is_asked_for_with_what_it_has_to_be() -> None:
    """K7: a specific question."""
    schema = table(
        rate={"type": "number", "description": "The rate"},
        size={"enum": ["small", "large"]},
        years={"type": "integer"},
        name={"type": "string", "description": ""},
    )
    texts = phrases_of("en").texts
    assert question_for(wanted(schema, ["rate", "size"]), texts) == (
        "I need to know, in your own words: The rate (a number); size (small or large)"
    )
    assert question_for(wanted(schema, ["rate", "size", "years", "name", "other"]), texts).splitlines()[1:] == [
        "- The rate (a number)",
        "- size (small or large)",
        "- years (a whole number)",
        "- name",
        "- other",
    ]
    assert wanted(None, ["a"]) == {"a": {}}


@pytest.mark.parametrize(
    ("name", "schema", "question"),
    [
        ("guests", {"type": "integer", "description": "How many people"}, "guests (How many people; a whole number)"),
        ("pickupDate", {"type": "string", "format": "date"}, "pickup date (a date)"),
        ("consignee", {"type": "string", "description": "Company at the port"}, "consignee (Company at the port)"),
        ("iban", {"type": "string", "description": "IBAN of the recipient"}, "IBAN of the recipient"),
    ],
)
def test_one_field_is_asked_for_in_one_sentence(name: str, schema: Schema, question: str) -> None:
    assert question_for({name: schema}, phrases_of("en").texts) == f"I need one more thing: {question}."


def test_what_was_given_before_is_offered_in_the_language_of_the_team() -> None:
    question = question_for({"quantity": {"type": "integer"}}, phrases_of("de").texts, {"quantity": 3})
    assert question == "Ich brauche noch eine Angabe: quantity (eine ganze Zahl; 3 wie zuvor?)."


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────────────

EXPECTED = wanted(
    table(
        rate=NUMBER,
        size={"enum": ["small", "Large", 3]},
        code=TEXT,
        fast={"type": "boolean"},
        kind={"$ref": "#/$defs/kind"},
        any={},
    )
    | {"$defs": {"kind": {"type": "integer"}}},
    ["rate", "size", "code", "fast", "kind", "any"],
)


@pytest.mark.parametrize(
    ("reply", "given"),
    [
        ('{"rate": 0.1, "size": "small", "other": 1}', {"rate": 0.1, "size": "small"}),
        ('{"rate": "much"}', {}),
        ('{"other": 1}', None),
        ("rate: 0.12", {"rate": 0.12}),
        ("- Rate: 0.12\n* `size`: large\nhello", {"rate": 0.12, "size": "Large"}),
        ("rate: NaN", {}),
        ("rate: null", {}),
        ("code: 2040\nsize: 3", {"code": "2040", "size": 3}),
        ("fast: Yes\nkind: 4\nany: null", {"fast": True, "kind": 4, "any": None}),
        ("fast: perhaps", {}),
        ("any: plain words", {"any": "plain words"}),
        ("what: ever", None),
        ("[1, 2]", None),
        ("something else", None),
        (" ", None),
    ],
)
def test_fields_are_given_as_json_or_as_lines_and_what_does_not_fit_is_left_out(
    reply: str, given: dict[str, Json] | None
) -> None:
    assert fields(reply, EXPECTED, fits, TODAY) == given


@pytest.mark.parametrize(
    ("reply", "given"),
    [
        ("0.12", {"rate": 0.12}),
        ("rate: 3", {"rate": 3}),
        ("twenty-five", {"rate": 25}),
        ("never mind", None),
        ("", None),
    ],
)
def test_a_single_field_may_be_given_as_it_is(reply: str, given: dict[str, Json] | None) -> None:
    assert fields(reply, {"rate": NUMBER}, fits, TODAY) == given


def test_a_text_that_was_made_to_be_deep_is_only_a_text() -> None:
    deep = "[" * 100_000
    assert fields(deep, {"code": TEXT}, fits, TODAY) == {"code": deep}


def test_a_reply_that_asks_for_something_is_no_value_for_a_text() -> None:
    assert (
        fields(
            "order a taxi to the airport", {"to": {"type": "string"}}, lambda _schema, _value: True, date(2026, 5, 4)
        )
        is None
    )
