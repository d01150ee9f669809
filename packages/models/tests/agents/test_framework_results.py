"""What agents of frameworks give back becomes an answer, with more than a result where they say more."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from remit import Answer, Artifact, Source
from remit.protocol.card import Schema
from remit_models.frameworks.bounds import answer_from, fields_of, plain

GIVEN = Source(owner_scope="public", source_id="handbook", relevance=0.9)
WHOLE: dict[str, Any] = {
    "answer": "Three receipts.",
    "summary": "Three.",
    "confidence": 0.8,
    "sources": ["handbook", "receipt-7"],
    "facts": ["Buys tea every week."],
    "artifacts": [{"type": "json", "value": {"count": 3}, "label": "receipts"}],
    "follow_up": True,
}
MEANT = Answer(
    "Three receipts.",
    summary="Three.",
    confidence=0.8,
    sources=(GIVEN, Source(owner_scope="u-1", source_id="receipt-7")),
    new_facts=("Buys tea every week.",),
    artifacts=(Artifact(type="json", value={"count": 3}, label="receipts"),),
    requires_followup=True,
)


def read(output: object, schema: Schema | None = None) -> Answer:
    return answer_from(output, schema, user="u-1", references=(GIVEN,))


class Model(BaseModel):
    answer: str
    confidence: float
    sources: list[str] = []
    summary: str | None = None


@dataclass
class Data:
    answer: str
    confidence: float
    facts: list[str] = field(default_factory=list[str])


class Named(msgspec.Struct):
    result: str
    confidence: float
    new_facts: tuple[str, ...] = ()
    requires_followup: bool = False


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (WHOLE, MEANT),
        (MEANT, MEANT),
        (
            Model(answer="Three.", confidence=0.8, sources=["handbook"]),
            Answer("Three.", confidence=0.8, sources=(GIVEN,)),
        ),
        (Data("Three.", 80, ["Tea."]), Answer("Three.", confidence=0.8, new_facts=("Tea.",))),
        (
            Named("Three.", 0.8, ("Tea.",), requires_followup=True),
            Answer("Three.", confidence=0.8, new_facts=("Tea.",), requires_followup=True),
        ),
        ({"answer": {"count": 3}, "confidence": "high"}, Answer({"count": 3}, confidence=0.9)),
        (Answer(Data("Three.", 0.8)), Answer({"answer": "Three.", "confidence": 0.8, "facts": []})),
    ],
)
def test_an_output_with_the_fields_of_an_answer_is_one(output: object, answer: Answer) -> None:
    """X2: summary, confidence, sources, facts, artifacts, follow-up."""
    assert read(output) == answer


@pytest.mark.parametrize(
    "output",
    [
        {"answer": "Three."},
        {"summary": "Three.", "confidence": 0.8},
        {"answer": "Three.", "confidence": 0.8, "reasoning": "I counted."},
        {"answer": "Three.", "result": 3},
        {"answer": 1, "result": 2, "confidence": 0.8},
        {"count": 3},
        {},
        [WHOLE],
        3,
        None,
    ],
)
def test_any_other_output_is_the_result_whole(output: Any) -> None:
    assert read(output) == Answer(output)
    assert fields_of(output) is None


def test_a_field_that_cannot_be_read_is_left_out_with_a_warning() -> None:
    warning = "`confidence` of the model's answer could not be read, and was left out"
    assert read({"answer": "Three.", "confidence": "quite"}) == Answer("Three.", warnings=(warning,))


def test_a_text_is_a_text_even_if_it_looks_like_an_answer() -> None:
    text = '{"answer": "Three.", "confidence": 0.8}'
    assert read(text) == Answer(text)


def test_a_result_that_must_fit_a_schema_is_that_result() -> None:
    schema: Schema = {"type": "object", "required": ["answer", "confidence"]}
    output = {"answer": "Three.", "confidence": 0.8}
    assert read(output, schema) == Answer(output)
    assert read('```json\n{"answer": "Three.", "confidence": 0.8}\n```', schema) == Answer(output)
    assert read("no JSON", schema) == Answer("no JSON")
    assert read(output, {"type": "string"}) == Answer("Three.", confidence=0.8)


def test_structs_are_written_as_objects_and_what_is_no_json_as_text() -> None:
    assert plain([Named("Three.", 0.8)]) == [
        {"result": "Three.", "confidence": 0.8, "new_facts": [], "requires_followup": False}
    ]
    assert plain([print]) == ["<built-in function print>"]
