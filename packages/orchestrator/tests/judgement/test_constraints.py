"""Which demands are noted in a user's words: figures of the labelled texts."""

import pytest

from judgement_constraints import demands, noted, others


@pytest.mark.parametrize("part", ["develop", "held"])
def test_most_demands_are_noted_and_little_else(part: str) -> None:
    assert sum(map(noted, demands(part))) >= 0.75 * len(demands(part))
    assert sum(map(noted, others(part))) <= 0.1 * len(others(part))
