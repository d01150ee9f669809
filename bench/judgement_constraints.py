"""Counts the demands, and changes of demands, that are noted in labelled texts, and other texts that are noted."""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from harness import Figure, at_least, at_most
from remit_orchestrator.text.summaries import notes_of

CONSTRAINTS = Path(__file__).parent.parent / "packages/orchestrator/tests/judgement" / "constraints.toml"


def noted(text: str) -> bool:
    """Return whether a text is handed on to later agents as a demand, or as a change of one."""
    return bool(notes_of(text))


def demands(part: str) -> list[str]:
    return [each["text"] for each in _part(part)["states"]]


def changes(part: str) -> list[str]:
    """Return the texts that change or lift a demand."""
    return [each["texts"][-1] for each in _part(part)["changes"]]


def others(part: str) -> list[str]:
    """Return the texts that demand nothing."""
    return list(_part(part)["none"])


def measure() -> Iterator[Figure]:
    for part in ("develop", "held"):
        share = sum(map(noted, demands(part))) / len(demands(part))
        changed = sum(map(noted, changes(part))) / len(changes(part))
        wrong = sum(map(noted, others(part)))
        yield Figure(name=f"constraints, {part}: noted", value=share, unit="", bound=at_least(0.8))
        yield Figure(name=f"constraints, {part}: changes noted", value=changed, unit="", bound=at_least(0.8))
        yield Figure(
            name=f"constraints, {part}: noted though nobody demanded it", value=wrong, unit="", bound=at_most(5)
        )


@cache
def _labelled() -> dict[str, Any]:
    return tomllib.loads(CONSTRAINTS.read_text(encoding="utf-8"))


def _part(part: str) -> dict[str, Any]:
    return _labelled()[part]
