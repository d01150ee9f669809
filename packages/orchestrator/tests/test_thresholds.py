"""How sure a classification has to be."""

import msgspec
import pytest

from remit.protocol.orchestration import THRESHOLDS, Thresholds


def test_to_change_something_takes_more_than_to_read() -> None:
    assert THRESHOLDS.nothing < THRESHOLDS.read < THRESHOLDS.change <= THRESHOLDS.also


@pytest.mark.parametrize("given", [{"act": 1.1}, {"offer": -0.1}, {"acts": 0.5}])
def test_a_threshold_is_a_share(given: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Thresholds)
