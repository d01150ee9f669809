"""How many examples a property test draws, in proportion to what the profile says."""

from typing import Any

from hypothesis import settings


def share(of_the_examples: float, **others: Any) -> settings:
    """Return settings for a test that draws more or fewer examples than others, here as in `make fuzz`."""
    return settings(max_examples=max(1, round(settings().max_examples * of_the_examples)), **others)
