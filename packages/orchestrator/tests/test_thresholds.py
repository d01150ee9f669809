"""How sure a reader has to be."""

import msgspec
import pytest

from remit.protocol.orchestration import THRESHOLDS, Thresholds


def test_to_do_something_at_once_takes_more_than_to_say_it_back() -> None:
    assert THRESHOLDS.say_back < THRESHOLDS.do


@pytest.mark.parametrize("given", [{"do": 1.1}, {"far": -0.1}, {"acts": 0.5}])
def test_a_threshold_is_a_share(given: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Thresholds)
