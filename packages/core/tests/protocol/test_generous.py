"""What peers answer is read as far as it can be, and what cannot be is a warning."""

import json
from enum import StrEnum
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from msgspec import Struct

from remit.protocol.codec import MAX_NESTING, encode
from remit.protocol.envelope import Artifact, Response, Source, Usage
from remit.protocol.errors import Code, RemitError
from remit.protocol.generous import MAX_WARNINGS, decode_response, parse, read_generously
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Count
from samples import a_response
from strategies import json_values

RESPONSE: dict[str, Any] = msgspec.to_builtins(a_response(usage=Usage(prompt=9)), str_keys=True)


class Level(StrEnum):
    LOW = "low"
    VERY_HIGH = "very-high"


class Small(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    first_name: str
    count: Count = 0
    share: float = 0.0
    is_sure: bool = False
    level: Level | None = None
    kind: Literal["a", "b"] = "a"
    tags: tuple[str, ...] = ()
    counts: dict[str, Count] = {}
    inner: "Small | None" = None
    both: "Small | tuple[Small, ...] | None" = None


def read(**fields: Any) -> tuple[Small, tuple[str, ...]]:
    return read_generously({"firstName": "Ann"} | fields, Small)


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"first_name": "Bob"}, {}),  # what is spelled as it should be counts more
        ({"count": "12"}, {"count": 12}),
        ({"count": 12.7}, {"count": 12}),
        ({"count": None}, {}),
        ({"share": "0.5"}, {"share": 0.5}),
        ({"is_sure": "true"}, {"is_sure": True}),
        ({"IsSure": True}, {"is_sure": True}),
        ({"level": "VERY_HIGH"}, {"level": Level.VERY_HIGH}),
        ({"kind": "B"}, {"kind": "b"}),
        ({"tags": "one"}, {"tags": ("one",)}),
        ({"tags": ["one", 2, {"n": 3}]}, {"tags": ("one", "2", '{"n":3}')}),
        ({"counts": {"a": "1"}}, {"counts": {"a": 1}}),
        ({"both": [{"first-name": 7}]}, {"both": (Small(first_name="7"),)}),
    ],
)
def test_what_is_written_otherwise_is_read_without_a_warning(fields: Any, changes: Any) -> None:
    assert read(**fields) == (msgspec.structs.replace(Small(first_name="Ann"), **changes), ())


@pytest.mark.parametrize(
    ("fields", "changes", "warning"),
    [
        ({"age": 5}, {}, "$.age was left out: unknown field"),
        ({"count": -1}, {}, "$.count was left out: Expected `int` >= 0"),
        ({"count": "many"}, {}, "$.count was left out: Expected `int`, got `str`"),
        ({"count": float("inf")}, {}, "$.count was left out: Expected `int`, got `float`"),
        ({"level": "huge"}, {}, "$.level was left out: 'huge' is not one of low, very-high"),
        ({"tags": ["one", None]}, {"tags": ("one",)}, "$.tags[1] was left out: Expected `str`, got `null`"),
        ({"both": 3}, {}, "$.both was left out: Expected `object | array | null`, got `int`"),
        ({"counts": {"a": 1, "b": []}}, {"counts": {"a": 1}}, "$.counts.b was left out: Expected `int`, got `array`"),
        ({"inner": {"count": 1}}, {}, "$.inner.firstName was left out: required field is missing"),
    ],
)
def test_what_cannot_be_read_is_left_out_with_a_warning(fields: Any, changes: Any, warning: str) -> None:
    assert read(**fields) == (msgspec.structs.replace(Small(first_name="Ann"), **changes), (warning,))


class Open(Struct, frozen=True, kw_only=True):
    name: str = ""


def test_a_field_that_a_later_version_may_have_needs_no_warning() -> None:
    assert read_generously({"name": 5, "age": 5}, Open) == (Open(name="5"), ())


def test_a_field_that_an_answer_may_leave_out_is_filled_in_at_the_top_alone() -> None:
    blanks = {"firstName": "?"}
    made, warnings = read_generously({"inner": {}, "count": 3}, Small, blanks=blanks)
    assert made == Small(first_name="?", count=3)
    assert warnings == ("$.inner.firstName was left out: required field is missing", "$.firstName is missing")


def test_an_answer_without_what_is_required_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(RemitError) as error:
        read_generously({"count": -1}, Small, place=("here",))
    assert {each.path for each in error.value.fault.problems} == {"$.here.count", "$.here.firstName"}


def test_there_are_no_more_warnings_than_help() -> None:
    made, warnings = read(**{f"x{number}" * 100: number for number in range(100)})
    assert made == Small(first_name="Ann")
    assert len(warnings) == MAX_WARNINGS
    assert all(len(each) <= 300 for each in warnings)


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_json_is_read_as_javascript_reads_and_writes_it() -> None:
    raw = b'\xef\xbb\xbf {"a": 1, "a": 2, "long": 100000000000000000000, "huge": 1e999, "half": 0.5, "no": NaN} ;'
    assert parse(raw)[0] == {"a": 2, "long": "100000000000000000000", "huge": None, "half": 0.5, "no": None}
    value, warnings = parse(b'{"a": 1, "a": 2, "n": 9007199254740993}')
    assert value == {"a": 2, "n": "9007199254740993"}
    assert warnings == (
        "$.a: duplicate key in one object",
        "$.n: the integer is past ±(2**53 - 1); send it as text",
    )


@pytest.mark.parametrize("raw", [b"", b"<html>", b"\xff", b'{"a": ', b'"\\ud800" ;'])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(RemitError) as error:
        parse(raw)
    assert error.value.fault.code is Code.MALFORMED_ENVELOPE


def test_json_that_is_too_large_or_too_deep_is_refused() -> None:
    deep = b"[" * (MAX_NESTING + 1) + b"]" * (MAX_NESTING + 1)
    for raw, most in ((b'"xxx"', 4), (deep, 1_000), (deep + b";", 1_000), (b"[" * 100_000 + b"1;", 10**6)):
        with pytest.raises(RemitError) as error:
            parse(raw, max_bytes=most)
        assert error.value.fault.code in (Code.TOO_LARGE, Code.MALFORMED_ENVELOPE)


# ── responses of hubs ─────────────────────────────────────────────────────────────────────────────────────────────────


def response_of(**fields: Any) -> Response:
    return decode_response(json.dumps(RESPONSE | fields).encode())


def test_a_finished_answer_is_not_lost_for_what_stands_beside_its_result() -> None:
    response = response_of(
        surprise=True,
        summary=None,
        confidence=1.5,
        artifacts=[
            {"type": "chart", "value": [1], "label": None},
            {"type": "id", "value": "x", "width": 3},
            {"type": "url"},
        ],
        sources=[{"owner_scope": "ann", "source_id": 17}],
    )
    assert (response.status, response.result, response.usage) == (Status.SUCCESS, a_response().result, Usage(prompt=9))
    assert response.artifacts == (Artifact(type="json", value=[1]), Artifact(type="id", value="x"))
    assert response.sources == (Source(owner_scope="ann", source_id="17"),)
    assert [each.partition(":")[0] for each in response.warnings] == [
        "$.surprise was left out",
        "$.confidence was left out",
        "$.artifacts[0].type was read as json",
        "$.artifacts[1].width was left out",
        "$.artifacts[2].value was left out",
    ]


def test_usage_that_cannot_be_read_is_not_known() -> None:
    assert response_of(usage={"prompt": "a lot"}).usage == Usage(estimated=True)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (encode(RESPONSE | {"status": "odd"}), Code.MALFORMED_ENVELOPE),
        (encode([1]), Code.MALFORMED_ENVELOPE),
        (encode(RESPONSE | {"version": "0.1", "surprise": 1}), Code.VERSION_UNSUPPORTED),
        (encode(RESPONSE | {"version": 1, "id": None}), Code.MALFORMED_ENVELOPE),
    ],
)
def test_a_response_without_an_outcome_is_refused(raw: bytes, code: Code) -> None:
    with pytest.raises(RemitError) as error:
        decode_response(raw)
    assert error.value.fault.code is code


@given(json_values)
def test_whatever_a_hub_answers_is_a_response_or_refused(value: Any) -> None:
    try:
        response = decode_response(encode(value))
    except RemitError:
        return
    assert msgspec.convert(msgspec.to_builtins(response, str_keys=True), Response) == response
