"""What is the same for all adapters, and seen best alone."""

import base64

from pydantic import BaseModel

from remit_models.frameworks.bounds import capped, plain, tokens_of


class Shape(BaseModel):
    text: str
    data: bytes | None = None
    extra: str | None = None


def test_a_picture_counts_for_nothing_and_a_long_text_for_what_it_is() -> None:
    picture = bytes(range(256)) * 1_000
    assert tokens_of(["seven cups", picture]) < 20
    assert tokens_of(Shape(text="seven cups", data=picture)) < 3_000
    assert tokens_of([{"image": "data:image/png;base64," + base64.b64encode(picture).decode()}]) < 20
    assert tokens_of("seven cups " * 1_000) > 2_000
    assert tokens_of(["七杯茶在桌子上" * 1_000]) > 2_000


def test_nothing_takes_no_tokens() -> None:
    assert tokens_of(None, "", [], {}) == 0


def test_what_is_no_json_is_told_by_its_text() -> None:
    shape = {"text": "x", "data": None, "extra": None}
    assert plain({1: {2.5}, "shape": Shape(text="x"), "raw": b"\xff"}) == {"1": [2.5], "shape": shape, "raw": "_w=="}
    assert plain([print]) == ["<built-in function print>"]
    assert "data=b'" in plain(Shape(text="x", data=b"\xff"))


def test_the_smaller_limit_counts() -> None:
    assert [capped(1, 2), capped(3, 2), capped(None, 2), capped(1, None), capped(None, None)] == [1, 2, 2, 1, None]
