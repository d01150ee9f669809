"""Conditions on arguments: what holds, what does not, and what cannot be told."""

import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.protocol.conditions import Condition, ValueBounds, checked_condition, holds

PAY = {
    "amount": 500,
    "to": {"name": "Eve", "iban": "DE89", "note": "[EMAIL:bcd]"},
    "tags": ["rent", "late"],
    "sure": True,
    "sum": "12.5",
    "people": [{"name": "bob", "age": 7}, {"name": "eve"}],
}


@pytest.mark.parametrize(
    ("path", "condition", "expected"),
    [
        ("amount", 500, True),
        ("amount", 501, False),
        ("amount", "> 500", False),
        ("amount", ">= 500", True),
        ("amount", " <500", False),
        ("amount", "<= 500.0", True),
        ("amount", "> -3", True),
        ("amount", (1, 500), True),
        ("amount", (1, 2), False),
        ("amount", ValueBounds(above=100, below=500), False),
        ("amount", ValueBounds(at_least=100, at_most=500), True),
        ("amount", ValueBounds(at_least=600), False),
        ("amount", ValueBounds(at_most=100), False),
        ("amount", "5*", None),  # a text is compared with a number
        ("sum", "> 12", True),  # a number that is written as a text
        ("to.name", "eve", True),
        ("to.name", "E*", True),
        ("to.name", "bob", False),
        ("to.name", ("bob", "EVE"), True),
        ("to.name", "> 3", None),
        ("to.name", ValueBounds(not_in=("bob",)), True),
        ("to.name", ValueBounds(not_in=("bob", "eve")), False),
        ("to.name", ValueBounds(in_=("bob",)), False),
        ("to.name", ValueBounds(in_=("eve",)), True),
        ("to", "eve", None),
        ("to.city", "Bonn", None),
        ("to.name.first", "Eve", None),
        ("tags", "late", True),  # one of them
        ("tags", "early", False),
        ("tags", "> 3", None),
        ("sure", True, True),
        ("sure", 1, None),
        ("sure", False, False),
        ("amount", "*", None),
        ("to.note", "[EMAIL:bcd]", True),  # in which brackets mean themselves
        ("sum", 12.5, True),
        ("sum", (12, 13), False),
        ("amount", True, None),
        ("to", ("eve",), None),
        ("to", ValueBounds(not_in=("eve",)), None),
        ("amount", ValueBounds(in_=("500",)), None),
        ("amount", ValueBounds(not_in=(500, "eve"), above=1), False),
        ("to.name", ValueBounds(not_in=("bob", 5)), True),  # 5 is of another kind, and "bob" tells enough
        ("to.name", ValueBounds(not_in=("bob",), above=1), None),
        ("sure", "> 0", None),
        ("to.name", ("b*", "e*"), True),
        ("to.name", ValueBounds(not_in=("b*", "*ve")), False),
        ("to.name", ValueBounds(in_=("b*",), not_in=("*x",)), False),
        ("to.name", "[e]ve", False),  # `*` alone stands for other characters
        ("to.name", "?ve", False),
        ("to.note", ValueBounds(in_=("[EMAIL:bcd]",)), True),
        ("to.note", "[EMAIL:*]", True),
        ("people.name", "bob", True),  # one of them
        ("people.name", "ann", False),
        ("people.age", "> 5", True),
        ("people.age", "> 50", None),  # one has no age
    ],
)
def test_a_condition_holds_or_not_or_cannot_be_told(path: str, condition: Condition, expected: bool | None) -> None:
    assert holds(checked_condition(condition), PAY, path) is expected


@pytest.mark.parametrize(
    ("value", "condition", "expected"),
    [
        (["bob", "carla"], ("bob", "carla"), True),
        (["bob", "eve"], ("bob", "carla"), False),
        (["bob", "eve"], ValueBounds(not_in=("eve",)), False),
        (["bob", {"name": "eve"}], ValueBounds(not_in=("eve",)), None),
        ([{"name": "bob"}, "eve"], "bob", False),
        ("bob", "bob", True),
        ([], "bob", None),
        ([["bob"], ["eve"]], "bob", False),
        (["b1", "b2"], "b*", True),
    ],
)
def test_a_condition_holds_for_every_value_of_a_list(value: Any, condition: Condition, expected: bool | None) -> None:
    assert holds(condition, {"to": value}, "to", every=True) is expected


@pytest.mark.parametrize(
    ("path", "folders", "expected"),
    [
        ("/data/a/b.txt", ("/data",), True),
        ("/data", ("/data/",), True),
        ("//data//a", ("/data",), True),
        ("/data/../etc/passwd", ("/data",), False),
        ("/data/a/../b", ("/data",), True),
        ("/database", ("/data",), False),
        ("/data\\..\\etc", ("/data",), False),
        ("/srv/x", ("/data", "/srv"), True),
        ("/srv/x", (), False),
        ("/DATA/x", ("/data",), None),  # the same folder, or not: it depends on the file system
        ("notes/a", ("/data",), None),  # nobody knows from where
        ("~/x", ("/data",), None),
        (5, ("/data",), None),
        ("notes/a", ("notes", "/data"), True),
        ("notes/../../a", ("notes",), False),
        ("../notes/a", ("notes",), False),
        ("a/b", (".",), True),
        ("../b", (".",), False),
        ("../b/c", ("../b",), True),
        ("../../b", ("..",), False),
        ("/../etc", ("/etc",), True),
        ("C:\\data\\a", ("C:/data",), True),
    ],
)
def test_a_path_is_inside_a_folder_or_not_wherever_it_leads(
    path: object, folders: tuple[str, ...], expected: bool | None
) -> None:
    assert holds(ValueBounds(under=folders), {"path": path}, "path") is expected


@given(st.text("ab./\\", max_size=12))
def test_no_path_inside_a_folder_leads_out_of_it(path: str) -> None:
    if holds(ValueBounds(under=("/data",)), {"path": f"/data/{path}"}, "path"):
        for slashes in (path, path.replace("\\", "/")):
            assert posixpath.normpath(f"/data/{slashes}").startswith("/data")


@pytest.mark.parametrize("value", [float("inf"), "1e999", None, [], {"a": 1}, "9" * 400])
def test_what_is_no_number_cannot_be_told(value: Any) -> None:
    assert holds(ValueBounds(above=1), {"amount": value}, "amount") is None


@pytest.mark.parametrize("arguments", [None, "pay 500", 3, ["amount"]])
def test_an_input_without_fields_cannot_be_told(arguments: Any) -> None:
    assert holds(500, arguments, "amount") is None


@pytest.mark.parametrize("condition", [">", "> much", "< 1 2", ">=5 EUR"])
def test_a_comparison_without_a_number_says_how_to_write_it(condition: str) -> None:
    with pytest.raises(ValueError, match="write it like `> 500`"):
        checked_condition(condition)
