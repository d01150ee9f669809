"""Where sources disagree and the user is asked, their reply settles it (K9)."""

import pytest

from remit_orchestrator.text.conflicts.decided import Side, settled

AMOUNTS = (Side("54.00 EUR", ("The receipts",)), Side("45.00 EUR", ("The bank", "Your card")))
TIMES = (Side("9:40"), Side("10:40"))
WORDS = (Side("approved", ("The manager",)), Side("not approved", ("The auditor",)))


@pytest.mark.parametrize(
    ("reply", "sides", "place"),
    [
        ("45.00 EUR", AMOUNTS, 1),
        ("It was 45 euros.", AMOUNTS, 1),
        ("54", AMOUNTS, 0),
        ("10:40, I think", TIMES, 1),
        ("the bank is right", AMOUNTS, 1),
        ("my card", AMOUNTS, 1),
        ("What the receipts say.", AMOUNTS, 0),
        ("the auditor", WORDS, 1),
        ("it is not approved", WORDS, 1),
        ("Approved!", WORDS, 0),
        ("the second", AMOUNTS, 1),
        ("1", TIMES, 0),
        ("the first one, please", AMOUNTS, 0),
    ],
)
def test_a_side_is_meant_by_its_value_its_source_or_its_place(reply: str, sides: tuple[Side, ...], place: int) -> None:
    assert settled(reply, sides) == place


@pytest.mark.parametrize(
    ("reply", "sides"),
    [
        ("either 45 or 54", AMOUNTS),
        ("the bank, or the receipts", AMOUNTS),
        ("neither", AMOUNTS),
        ("the third", AMOUNTS),
        ("What did I spend in March?", AMOUNTS),
        ("", TIMES),
    ],
)
def test_what_may_mean_several_or_none_settles_nothing(reply: str, sides: tuple[Side, ...]) -> None:
    assert settled(reply, sides) is None
