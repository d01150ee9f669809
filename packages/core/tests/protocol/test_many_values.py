"""An envelope has only so many values, which are counted before it is read."""

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Code, RemitError
from remit.protocol import codec, problems
from remit.protocol.codec import MAX_VALUES, checked, decode, decode_submission, refuse_many_values

NOISE = '" , [ ] { } \\ " \\" \\\\ '


def refused(raw: bytes) -> bool:
    try:
        refuse_many_values(raw)
    except RemitError as error:
        return error.fault.code is Code.TOO_LARGE and str(MAX_VALUES) in error.fault.message
    return False


CASES: list[tuple[Any, bool]] = [
    ([1] * MAX_VALUES, False),
    ([1] * (MAX_VALUES + 1), True),
    ([{}] * MAX_VALUES, True),
    ({f"n{number}": [1] for number in range(MAX_VALUES // 2 - 2)}, False),
    ({f"n{number}": [1] for number in range(MAX_VALUES // 2 + 2)}, True),
    ([""] * (MAX_VALUES * 3), True),
    (["\\"] * (MAX_VALUES * 3), True),
    (NOISE * 100_000, False),
    ([NOISE] * (MAX_VALUES // 2), False),
    ([NOISE, 5] * (MAX_VALUES // 2 + 2), True),
]


@pytest.mark.parametrize(("value", "many"), CASES)
def test_values_are_counted_and_not_what_texts_hold(value: Any, *, many: bool) -> None:
    assert refused(json.dumps(value).encode()) is many


def test_what_is_no_json_is_counted_too() -> None:
    assert refused(b"[" * 4 * MAX_VALUES)
    assert refused(b'"' * 5 * MAX_VALUES)
    assert not refused(b" " * 4 * MAX_VALUES)


def test_it_is_counted_before_anything_is_read() -> None:
    many = json.dumps({"target": "a", "user": "u", "input": [1] * (MAX_VALUES + 1), "nonsense": 1}).encode()
    with pytest.raises(RemitError) as caught:
        decode_submission(many)
    assert caught.value.fault.code is Code.TOO_LARGE
    with pytest.raises(RemitError) as caught:
        decode(many, object)
    assert caught.value.fault.code is Code.TOO_LARGE


def test_what_an_agent_gives_is_counted_as_well() -> None:
    with pytest.raises(RemitError) as caught:
        checked({"rows": [1] * (MAX_VALUES + 1)})
    assert caught.value.fault.code is Code.TOO_LARGE


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='",[]{}\\ab', max_size=6),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text('",[]{}\\a', max_size=4), parts, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_stands_outside_of_strings_is_found_whatever_they_hold(value: Any) -> None:
    outside = codec._outside_strings(codec._without_escapes(msgspec.json.encode(value)))  # pyright: ignore[reportPrivateUsage]
    brackets, commas = count(value)
    assert (outside.count(b"[") + outside.count(b"{"), outside.count(b",")) == (brackets, commas)


def count(value: Any) -> tuple[int, int]:
    if not isinstance(value, list | dict):
        return 0, 0
    several: list[Any] = list(
        cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    )
    parts = [count(each) for each in several]
    return 1 + sum(each for each, _ in parts), max(len(several) - 1, 0) + sum(each for _, each in parts)


def test_of_many_unknown_fields_only_the_first_are_compared_with_those_that_there_are() -> None:
    body = json.dumps({"target": "a", **{f"objectiv{number}": 1 for number in range(30)}}).encode()
    with pytest.raises(RemitError) as caught:
        decode_submission(body)
    hints = ["did you mean" in problem.message for problem in caught.value.fault.problems]
    assert hints == [True] * problems.MAX_LIKENESSES + [False] * (30 - problems.MAX_LIKENESSES)
    assert all("known fields" in problem.message for problem in caught.value.fault.problems[problems.MAX_LIKENESSES :])
