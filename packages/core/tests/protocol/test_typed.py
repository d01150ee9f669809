"""JSON as values of declared types, the schemas of these types, and Python values as JSON."""

import datetime
import enum
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from jsonschema_rs import is_valid

from remit import Answer, Capability, Code, Problem, RemitError, Response, Status, fault
from remit.protocol.codec import checked, plain
from remit.protocol.typed import Member, TypeMismatch, declares_fields, name_of, object_schema, read_as, schema_of
from remit.runtime.schemas import check_schema, misfits


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Item(pydantic.BaseModel):
    name: str
    price: float = 1.0
    parts: list["Item"] = []


class Named(pydantic.BaseModel):
    title: str = pydantic.Field(alias="Title")
    count: pydantic.PositiveInt = 1


@attrs.define
class Box:
    width: int = attrs.field(validator=attrs.validators.gt(0))
    item: Item | None = None


@dataclass
class Order:
    box: Box
    items: list[Item] = field(default_factory=list[Item])
    size: Size = Size.SMALL


class Job(msgspec.Struct):
    order: Order
    by_number: dict[int, str] = {}
    tags: set[str] = set()
    due: datetime.datetime | None = None


class Letter(TypedDict):
    job: Job
    named: NotRequired[Named]


class Point(NamedTuple):
    x: int
    y: int


@pydantic.dataclasses.dataclass
class Checked:
    n: pydantic.PositiveInt


LETTER: Letter = {
    "job": Job(Order(Box(1, Item(name="a")), [Item(name="b")]), {1: "x"}, {"t"}),
    "named": Named(Title="T"),
}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Item(name="a", parts=[Item(name="b")]), Item),
        (Named(Title="T"), Named),
        (Box(3), Box),
        (Order(Box(1), size=Size.LARGE), Order),
        (Job(Order(Box(1))), Job),
        (LETTER, Letter),
        (Size.LARGE, Size),
        (Point(1, 2), Point),
        (Checked(3), Checked),
        ([Item(name="a")], list[Item]),
        ({"a": Box(1)}, dict[str, Box]),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.datetime),
        (UUID(int=7), UUID),
        (Decimal("1.10"), Decimal),
        (b"\xff\x00", bytes),
        ({3: "c"}, dict[int, str]),
        (frozenset({1}), frozenset[int]),
    ],
    ids=lambda each: name_of(each) if isinstance(each, type) else "",
)
def test_what_is_written_is_read_again_as_it_was_and_fits_its_schema(value: Any, kind: Any) -> None:
    written = plain(value)
    assert read_as(written, kind) == value
    assert check_schema(schema_of(kind)) is None
    assert misfits(schema_of(kind, written=True), written) == ()


@pytest.mark.parametrize(
    ("value", "kind", "paths"),
    [
        (
            {"job": {"order": {"box": {"item": {"name": 3}}, "items": [{"name": "b"}, {}]}, "by_number": {"1": 2}}},
            Letter,
            [
                "$.job.order.box.width",
                "$.job.order.box.item.name",
                "$.job.order.items[1].name",
                "$.job.by_number['1']",
            ],
        ),
        ({"Title": 3, "count": 0}, Named, ["$.Title", "$.count"]),
        ({"box": {"width": 0}}, Order, ["$.box"]),  # attrs names the field in its words
        ({}, Job, ["$.order"]),
        ({"order": 3}, Job, ["$.order"]),
        (["x", 1, "y"], list[int], ["$[0]", "$[2]"]),
        ("x", int | None, ["$"]),
        ("x", Annotated[int, pydantic.Field(gt=3)], ["$"]),
        (2, Annotated[int, msgspec.Meta(gt=3)], ["$"]),
        ({"n": 1}, int | Box, ["$"]),
        (3, list[Item], ["$"]),
    ],
)
def test_every_wrong_field_is_named(value: Any, kind: Any, paths: list[str]) -> None:
    with pytest.raises(TypeMismatch) as raised:
        read_as(value, kind)
    assert [problem.path for problem in raised.value.problems] == paths


def test_a_plain_value_is_read_as_it_is_and_a_whole_number_as_a_float() -> None:
    assert [read_as(value, kind) for value, kind in (("a", str), (2, int), (0.5, float), (True, bool))] == [
        "a",
        2,
        0.5,
        True,
    ]
    assert type(read_as(2, float)) is float
    with pytest.raises(TypeMismatch):
        read_as(True, int)


def test_what_an_enum_allows_is_said() -> None:
    with pytest.raises(TypeMismatch) as raised:
        read_as("huge", Size)
    assert raised.value.problems == (Problem("$", "Invalid enum value 'huge'; expected one of 'small', 'large'"),)


def test_a_type_that_cannot_be_read_is_named() -> None:
    class Socket: ...

    with pytest.raises(TypeMismatch) as raised:
        read_as({}, Socket)
    assert raised.value.problems == (Problem("$", "a `Socket` cannot be read from JSON"),)
    for kind in (Socket, list[Item | Job]):
        with pytest.raises(TypeError):
            schema_of(kind)


def test_a_model_that_fails_otherwise_than_by_its_fields_says_why() -> None:
    class Odd(pydantic.BaseModel):
        n: int

    with pytest.raises(TypeMismatch) as raised:
        read_as({"n": 10**5000}, Odd)
    assert raised.value.problems[0].path == "$"


def test_schemas_of_two_models_of_one_name_do_not_mix() -> None:
    def make(kind: Any) -> Any:
        part = pydantic.create_model("Part", n=(kind, ...))
        return pydantic.create_model("Whole", part=(part, ...))

    one, other = make(int), make(str)
    schema = object_schema(
        "both", {"one": Member(one, required=True), "other": Member(other, required=False, default=[3])}
    )
    assert misfits(schema, {"one": {"part": {"n": 1}}, "other": {"part": {"n": "x"}}}) == ()
    assert misfits(object_schema("numbers", {"n": Member(int, required=False, default=3)}), {"n": 1}) == ()
    wrong = misfits(schema, {"one": {"part": {"n": "x"}}, "other": {"part": {"n": 1}}})
    assert sorted(problem.path for problem in wrong) == ["$.one.part.n", "$.other.part.n"]
    assert misfits(schema, {"one": {"part": {"n": 1}}, "more": 1})


def test_a_struct_that_contains_itself_has_a_schema() -> None:
    schema = schema_of(Tree)
    assert misfits(schema, {"below": [{"below": []}]}) == ()
    assert [problem.path for problem in misfits(schema, {"below": [{"below": 3}]})] == ["$.below[0].below"]


class Tree(msgspec.Struct):
    below: list["Tree"]


@pytest.mark.parametrize(
    ("kind", "declares"),
    [
        (Item, True),
        (list[Box], True),
        (Size | None, True),
        (Letter, True),
        (Point, True),
        (str, False),
        (dict[str, list[int]], False),
        (Any, False),
    ],
)
def test_a_class_with_fields_declares_more_than_json_does(kind: Any, *, declares: bool) -> None:
    assert declares_fields(kind) is declares


def test_types_are_called_by_their_names_alone() -> None:
    assert [name_of(each) for each in (Item, list[Item], Item | None, Annotated[int, pydantic.Field(gt=3)])] == [
        "Item",
        "list[Item]",
        "Item | None",
        "int",
    ]


# ── values that JSON has no word for ──────────────────────────────────────────────────────────────────────────────────


def test_plain_json_stays_as_it_is_and_shares_nothing() -> None:
    value = {"a": [1, "x", None], "n": 9_007_199_254_740_991}
    assert plain(value) == value
    assert plain(value) is not value
    assert plain({"a": [1]}) == {"a": [1]}


def test_what_each_python_value_is_written_as() -> None:
    assert plain(
        {
            "bytes": b"\xff\x00",
            "moment": datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC),
            "naive": datetime.datetime(2026, 1, 2, 3, 4),  # noqa: DTZ001 - as people write it
            "day": datetime.date(2026, 1, 2),
            "span": datetime.timedelta(seconds=90),
            "id": UUID(int=7),
            "price": Decimal("1.10"),
            "size": Size.LARGE,
            "set": {1},
            "tuple": (1, 2),
            "keys": {1: "a", 2.5: "b", UUID(int=7): "c"},
        }
    ) == {
        "bytes": "/wA=",
        "moment": "2026-01-02T03:04:00Z",
        "naive": "2026-01-02T03:04:00",
        "day": "2026-01-02",
        "span": "PT90S",
        "id": "00000000-0000-0000-0000-000000000007",
        "price": "1.10",
        "size": "large",
        "set": [1],
        "tuple": [1, 2],
        "keys": {"1": "a", "2.5": "b", "00000000-0000-0000-0000-000000000007": "c"},
    }


LOOP: dict[str, Any] = {}
LOOP["again"] = LOOP


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [1.0, math.nan]}, Problem("$.a[1]", "NaN and infinity cannot be written as JSON")),
        (
            Order(Box(1), [Item(name="x", parts=[Item(name="y", price=math.inf)])]),
            Problem("$.items[0].parts[0].price", "NaN and infinity cannot be written as JSON"),
        ),
        ({"n": 2**53}, Problem("$.n", "the integer is past ±(2**53 - 1); send it as text")),
        (Order(Box(10**400)), Problem("$.box.width", "the integer is past ±(2**53 - 1); send it as text")),
        (
            {"rows": {(1, 2): 3}},
            Problem("$.rows", "has a key of type `tuple`; JSON has text for keys: use text or numbers"),
        ),
        ({"f": {"g": print}}, Problem("$.f.g", "cannot be written as JSON: Encoding objects of type")),
        ({1: "a", "1": "b"}, Problem("$['1']", "duplicate key in one object")),
        (Tree([1j]), Problem("$.below[0]", "cannot be written as JSON: Encoding objects of type complex")),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_written_is_named_where_it_stands(value: Any, problem: Problem) -> None:
    for given in (value, Answer(value)):
        with pytest.raises(RemitError) as raised:
            checked(given) if isinstance(given, Answer) else plain(given)
        (reported,) = raised.value.fault.problems
        assert reported.path.replace("$.result", "$", 1) == problem.path
        assert reported.message.startswith(problem.message)


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(RemitError) as raised:
        plain(LOOP)
    assert raised.value.fault.problems == (Problem("$.again", "is nested deeper than 64 levels"),)


def test_a_value_that_fails_in_its_own_way_is_refused_with_a_reason() -> None:
    class Shy(pydantic.BaseModel):
        n: int

        @pydantic.field_serializer("n")
        def _secret(self, _: int) -> int:
            raise ValueError("not told")

    with pytest.raises(RemitError) as raised:
        plain({"shy": Shy(n=1)})
    (problem,) = raised.value.fault.problems
    assert problem.path == "$.shy"
    assert "not told" in problem.message


# ── envelopes and cards ───────────────────────────────────────────────────────────────────────────────────────────────


def response_with(result: object, status: Status = Status.SUCCESS) -> Response:
    why = None if status is Status.SUCCESS else fault(Code.TIMEOUT, "late")
    return Response(version="1.0", id="r", target="clerk", status=status, result=result, fault=why)


def test_a_result_is_read_as_the_type_that_is_asked_for() -> None:
    item: Item = response_with({"name": "a"}).result_as(Item)
    many: list[Box] = response_with([{"width": 1}]).result_as(list[Box])
    assert (item, many) == (Item(name="a"), [Box(1)])


def test_a_result_of_another_type_is_an_error_that_names_its_fields() -> None:
    with pytest.raises(RemitError) as raised:
        response_with({"price": "x"}).result_as(Item)
    why = raised.value.fault
    assert (why.code, why.message) == (Code.RESULT_VALIDATION_FAILED, "the result of clerk is not a Item")
    assert [problem.path for problem in why.problems] == ["$.name", "$.price"]


def test_a_response_without_a_result_raises_its_fault() -> None:
    with pytest.raises(RemitError, match="late"):
        response_with(None, Status.TIMEOUT).result_as(Item)


def test_a_capability_takes_types_in_the_place_of_schemas() -> None:
    made = Capability(code="QUOTE", input_schema=Order, result_schema=list[Item])
    assert made.input_schema == schema_of(Order)
    assert made.result_schema == schema_of(list[Item], written=True)
    assert Capability(code="QUOTE", input_schema={"type": "object"}).input_schema == {"type": "object"}


def test_a_capability_whose_type_has_no_schema_is_refused_by_name() -> None:
    class Socket: ...

    with pytest.raises(RemitError) as raised:
        Capability(code="QUOTE", result_schema=Socket)
    assert raised.value.fault.code is Code.TEAM_INVALID
    assert "capability `QUOTE`: result_schema cannot be described as JSON" in raised.value.fault.message


# ── unions ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Quote:
    total: float


@dataclass
class LongQuote:
    total: float
    until: str


@attrs.define
class Refusal:
    reason: str


class Note(TypedDict):
    text: str


UNION: Any = Quote | LongQuote | Refusal | Note | None


@pytest.mark.parametrize(
    "value", [Quote(1.5), LongQuote(2.5, "Monday"), Refusal("sold out"), Note(text="later"), None], ids=repr
)
def test_a_union_of_classes_is_read_as_the_one_that_was_written(value: Any) -> None:
    written = plain(value)
    assert read_as(written, UNION) == value
    assert is_valid(schema_of(UNION), written)


def test_what_fits_no_class_of_a_union_names_what_the_nearest_lacks() -> None:
    with pytest.raises(TypeMismatch) as caught:
        read_as({"total": 1.5, "until": 7}, UNION, "$.result")
    assert caught.value.problems == (Problem("$.result.until", "as LongQuote: Expected `str`, got `int`"),)
    assert not is_valid(schema_of(UNION), {"until": 7})
