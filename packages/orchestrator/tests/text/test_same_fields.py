"""Fields of different capabilities are compared if their schemas say that they hold the same thing."""

from typing import Any

from remit.protocol.card import Capability
from remit.words.components import Component
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.conflicts.fields import field_at, same_fields, with_same_fields


def capability(code: str, **properties: Any) -> Capability:
    return Capability(code=code, result_schema={"type": "object", "properties": properties})


SAME = {"x-same-as": "gross total"}


def compared(*answers: tuple[str, Any, str], **schemas: dict[str, Any]) -> list[str]:
    """Return the paths of the conflicts between results of capabilities that answer a question each."""
    same = same_fields(capability(code, **properties) for code, properties in schemas.items())
    components = [Component(f"agent{n}", result, question=question) for n, (_, result, question) in enumerate(answers)]
    codes = [code for code, _, _ in answers]
    return [each.path for each in find(with_same_fields(components, codes, same)).conflicts]


def test_a_thing_has_one_name_or_is_the_field_of_another_capability() -> None:
    results = ("INVOICE", {"total": 120}, "1"), ("BANK", {"paid": {"amount": 110}}, "2")
    nested = {"paid": {"type": "object", "properties": {"amount": SAME}}}
    assert compared(*results, INVOICE={"total": SAME}, BANK=nested) == ["paid.amount"]
    referring = {"paid": {"properties": {"amount": {"x-same-as": "INVOICE.total"}}}}
    assert compared(*results, INVOICE={"total": {}}, BANK=referring) == ["paid.amount"]
    assert compared(*results, INVOICE={"total": {}}, BANK={"paid": {"properties": {"amount": {}}}}) == []


def test_a_field_that_agrees_or_is_missing_is_no_conflict() -> None:
    schemas: dict[str, Any] = {"INVOICE": {"total": SAME}, "BANK": {"amount": SAME}}
    assert compared(("INVOICE", {"total": 120}, "1"), ("BANK", {"amount": "120.00"}, "2"), **schemas) == []
    assert compared(("INVOICE", {"total": 120}, "1"), ("BANK", {}, "2"), **schemas) == []
    assert compared(("INVOICE", {"total": 120}, "1"), ("BANK", "110", "2"), **schemas) == []


def test_one_capability_asked_of_two_things_is_not_compared_with_itself() -> None:
    first, second = ("INVOICE", {"total": 120}, "1"), ("INVOICE", {"total": 110}, "2")
    assert compared(first, second, INVOICE={"total": SAME}) == []


def test_fields_of_one_question_are_compared_once() -> None:
    first, second = ("INVOICE", {"total": 120}, "1"), ("INVOICE", {"total": 110}, "1")
    assert compared(first, second, INVOICE={"total": SAME}) == ["total"]
    assert compared(first, ("BANK", {"sum": 110}, "1"), INVOICE={"total": SAME}, BANK={"sum": SAME}) == ["sum"]


def test_a_schema_may_be_anything() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"properties": {"a": deep}}
    strange = [
        Capability(code="A", result_schema={"properties": []}),
        Capability(code="B", result_schema={"properties": {"x": True, "y": {"x-same-as": 5}}}),
        Capability(code="C", result_schema=deep),
        Capability(code="D"),
    ]
    assert same_fields(strange) == {}
    assert field_at({"a": {"b": 5}}, "a.b") == 5
    assert field_at({"a": 5}, "a.b") is None


def test_components_that_answer_different_questions_are_not_compared() -> None:
    assert find([Component("a", {"n": 5}, question="1"), Component("b", {"n": 7}, question="2")]).conflicts == ()
    same = [Component(name, {"n": n}, question="1") for name, n in (("a", 5), ("b", 7))]
    assert [each.path for each in find([*same, Component("c", {"n": 9}, question="2")]).conflicts] == ["n"]
