"""What a model writes is held to its sources: figures of the labelled rewrites."""

import pytest

from judgement_rewrites import Rewrite, misjudged, rewrites


@pytest.mark.parametrize(("part", "others", "faithful"), [("develop", 2 / 100, 6 / 100), ("held", 2 / 40, 10 / 40)])
def test_few_rewrites_are_on_the_wrong_side(part: str, others: float, faithful: float) -> None:
    """The aim is one in ten that say something else, and one in seven faithful ones; these floors are reached."""
    wrong = misjudged(part)
    of = rewrites(part)
    assert _share(wrong, of, faithful=False) <= others
    assert _share(wrong, of, faithful=True) <= faithful


def _share(wrong: list[Rewrite], of: list[Rewrite], *, faithful: bool) -> float:
    return sum((not each.how) is faithful for each in wrong) / sum((not each.how) is faithful for each in of)
