"""The event loop's clock."""

import asyncio
from types import SimpleNamespace

import pytest

from remit.runtime.clock import until_tick


@pytest.mark.parametrize(("now", "seconds"), [(0.3, 0.1), (0.7, 0.1), (4.35, 0.05), (1_700_000_000.3, 0.1), (6.0, 2.0)])
def test_a_wait_for_the_next_tick_is_long_enough_for_the_clock_to_move(
    now: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now))
    left = until_tick(seconds)
    assert now + left > now
    assert seconds / 1_000 < left <= seconds
    assert (now + left) / seconds == pytest.approx(round((now + left) / seconds))
