"""Numbers of peers: a fraction is cut off where an integer is wanted, and nowhere else."""

from typing import Any

import pytest
from msgspec import Struct

from remit.protocol.codec import decode_response, decode_submission, encode, whole
from remit.protocol.envelope import Json
from remit.protocol.errors import RemitError
from samples import a_response


class Part(Struct):
    count: int = 0
    share: float = 0.0


class Whole(Struct, rename="camel"):
    part_count: int | None = None
    either: int | float = 0
    free: Json = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    listed: list[int] = []
    named: dict[str, int] = {}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"partCount": 12.5}, {"partCount": 12}),
        ({"partCount": None, "unknown": 1.5}, {"partCount": None, "unknown": 1.5}),
        ({"either": 1.5, "free": 1.5}, {"either": 1.5, "free": 1.5}),
        ({"part": {"count": 2.9, "share": 0.5}}, {"part": {"count": 2, "share": 0.5}}),
        ({"parts": [{"count": -1.5}], "listed": [1.5, 2]}, {"parts": [{"count": -1}], "listed": [1, 2]}),
        ({"named": {"a": 3.5}}, {"named": {"a": 3}}),
        ({"partCount": "12.5"}, {"partCount": "12.5"}),
        ([1.5], [1.5]),
    ],
)
def test_a_fraction_is_cut_off_where_an_integer_is_wanted(value: Any, read: Any) -> None:
    assert whole(value, Whole) == read


def test_what_is_no_number_stays_what_it_is() -> None:
    infinite = float("inf")
    assert whole({"partCount": infinite}, Whole) == {"partCount": infinite}


def test_answers_of_hubs_are_read_so_and_requests_strictly() -> None:
    raw = encode(a_response()).replace(b'"version"', b'"duration_ms":12.5,"version"')
    assert decode_response(raw).duration_ms == 12
    with pytest.raises(RemitError, match="max_tokens"):
        decode_submission(b'{"version":"1.0","target":"tag","max_tokens":12.5}')
