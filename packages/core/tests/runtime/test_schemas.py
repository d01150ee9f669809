"""Whether values fit schemas, and how much is said of those that do not."""

from remit.protocol.card import Schema
from remit.runtime.schemas import MAX_MISFITS, misfits, unfit_input

SHORT: Schema = {"type": "array", "items": {"type": "string", "maxLength": 3}}


def test_of_a_small_value_everything_wrong_is_said_up_to_a_bound():
    assert [each.path for each in misfits(SHORT, ["long!", "ok", "long!"])] == ["$[0]", "$[2]"]
    assert len(misfits(SHORT, ["long!"] * (MAX_MISFITS + 1))) == MAX_MISFITS


def test_of_a_large_value_the_first_error_is_said():
    """All errors of a hostile value would take a second, in which no other thread runs."""
    wrong = ["ok", *["long!"] * 40_000]
    assert [each.path for each in misfits(SHORT, wrong)] == ["$[1]"]
    why = unfit_input("TAG", SHORT, wrong)
    assert why is not None
    assert [each.path for each in why.problems] == ["$[1]"]


def test_a_large_value_that_fits_is_taken():
    assert misfits(SHORT, ["ok"] * 40_000) == ()
    assert unfit_input("TAG", SHORT, ["ok"] * 40_000) is None
