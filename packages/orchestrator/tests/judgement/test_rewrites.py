"""What a model writes is held to its sources: figures of the labelled rewrites."""

import pytest

from judgement_rewrites import Reader, careless, misjudged, nobody, rewrites


@pytest.mark.parametrize(("reader", "given"), [(nobody, 0.0), (careless, 0.4)])
def test_of_rewrites_that_say_something_else_few_are_given(reader: Reader, given: float) -> None:
    """A reader that quotes without reading is no second reader: what rules can tell, the gate stops all the same."""
    others = [each for each in rewrites() if each.how]
    assert sum(bool(each.how) for each in misjudged(reader=reader)) <= given * len(others)


def test_swapped_figures_are_stopped_whatever_the_reader_quotes() -> None:
    swapped = [each for each in rewrites() if each.how == "figures swapped"]
    given = [each for each in misjudged(reader=careless) if each.how == "figures swapped"]
    assert len(given) <= 0.1 * len(swapped)
