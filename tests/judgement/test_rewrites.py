"""What a model writes is held to its sources: figures of the labelled rewrites."""

import pytest

from judgement_rewrites import Rewrite, misjudged, rewrites


@pytest.mark.parametrize("part", ["develop", "held"])
def test_few_rewrites_are_on_the_wrong_side(part: str) -> None:
    """At most one in ten that say something else is given, and at most one in seven faithful ones is not."""
    wrong = misjudged(part)
    of = rewrites(part)
    assert _share(wrong, of, faithful=False) <= 4 / 40
    assert _share(wrong, of, faithful=True) <= 6 / 40


def _share(wrong: list[Rewrite], of: list[Rewrite], *, faithful: bool) -> float:
    return sum((not each.how) is faithful for each in wrong) / sum((not each.how) is faithful for each in of)
