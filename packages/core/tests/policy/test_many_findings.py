"""Of one request or answer, only so many values are taken out."""

import pytest

from remit import Code, RemitError
from remit.policy.redaction import strike
from remit.policy.verdict import MAX_FINDINGS, Finding, Sealing

KEY = b"k" * 32


def whole(text: str) -> list[Finding]:
    return [Finding(0, len(text), "NAME")]


def test_too_many_different_values_are_refused_with_what_to_do() -> None:
    values = [f"value {number}" for number in range(MAX_FINDINGS + 1)]
    with pytest.raises(RemitError) as caught:
        strike(values, Sealing(KEY, whole), {})
    assert caught.value.fault.code is Code.TOO_LARGE
    assert str(MAX_FINDINGS) in caught.value.fault.message
    assert "parts" in caught.value.fault.suggestion


def test_as_many_as_are_taken_are_struck_and_one_value_counts_once() -> None:
    struck: dict[str, str | int] = {}
    values = ["the same", *(f"value {number}" for number in range(MAX_FINDINGS - 1)), "the same"]
    clean = strike(values, Sealing(KEY, whole), struck)
    assert (len(struck), clean[0]) == (MAX_FINDINGS, clean[-1])
