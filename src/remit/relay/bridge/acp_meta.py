"""What ACP agents say beside the protocol, each in a place of its own: what was spent, and that a turn is broken."""

from collections.abc import Mapping
from typing import Any, cast

_PLACES = (("usage",), ("quota", "token_count"))
_TOTAL = ("total_tokens", "totalTokens")
_PARTS = (("input_tokens", "inputTokens"), ("output_tokens", "outputTokens"))


def tokens_in(meta: Any) -> int | None:
    """Return how many tokens a `_meta` says were spent; None: it does not say.

    An agent that gives the sum of its session is counted too high, and never too low.
    """
    for place in _PLACES:
        counts = _at(meta, *place)
        if (total := _number(counts, _TOTAL)) is not None:
            return total
        parts = [part for part in (_number(counts, names) for names in _PARTS) if part is not None]
        if parts:
            return sum(parts)
    return None


def is_broken(meta: Any) -> bool:
    """Say whether a turn cannot go on: Codex tells so here, and ends it as if all were well, the error as its text."""
    return _at(meta, "codex", "threadStatus", "type") == "systemError"


def _number(counts: Any, names: tuple[str, ...]) -> int | None:
    found = (_at(counts, name) for name in names)
    return next((each for each in found if isinstance(each, int) and each >= 0), None)


def _at(table: Any, *names: str) -> Any:
    for name in names:
        table = cast("Mapping[str, Any]", table).get(name) if isinstance(table, Mapping) else None
    return table
