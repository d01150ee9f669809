"""A hub on a file of its own, not open yet, so that a test can add its agents."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from new_stores import new_store
from remit import Hub


@pytest.fixture
def make_hub(tmp_path: Path) -> Callable[..., Hub]:
    return partial(Hub, store=new_store(tmp_path / "hub.db"), durability="process")


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    return make_hub()
