"""Counts the constraints that are read in labelled texts, and the results that are seen to break them."""

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from harness import Figure, at_least, at_most
from remit.protocol.envelope import Json
from remit.words.units import unit_of
from remit_orchestrator.text.constraints import breaches, demands_of
from remit_orchestrator.text.figures import Amount, Day, TimeOfDay
from remit_orchestrator.text.stated_constraints import Constraint, Limit, Prohibition, Requirement
from remit_orchestrator.text.summaries import notes_of

CONSTRAINTS = Path(__file__).parent.parent / "packages/orchestrator/tests/judgement" / "constraints.toml"


class StatedCase(NamedTuple):
    """Labelled texts of one conversation, the constraints that they state, and those that were read."""

    texts: tuple[str, ...]
    states: list[dict[str, Any]]
    read: tuple[Constraint, ...]

    @property
    def right(self) -> int:
        return sum(any(_is_meant(each, label) for each in self.read) for label in self.states)

    @property
    def wrong(self) -> list[Constraint]:
        """The constraints that were read and that nobody stated."""
        return [each for each in self.read if not any(_is_meant(each, label) for label in self.states)]

    @property
    def whole(self) -> bool:
        return self.right == len(self.states) and not self.wrong


class ResultCase(NamedTuple):
    """A result, the words that have to be pointed out as breaking a constraint, and what was pointed out."""

    texts: tuple[str, ...]
    result: Json
    breaks: list[str]
    warnings: list[str]

    @property
    def right(self) -> bool:
        if not self.breaks:
            return not self.warnings
        return bool(self.warnings) and all(any(word in each for each in self.warnings) for word in self.breaks)


def stated(part: str) -> Iterator[StatedCase]:
    """Yield the texts that state constraints."""
    for each in _part(part)["states"]:
        yield StatedCase((each["text"],), each["constraints"], _constraints_of([each["text"]]))


def stating_none(part: str) -> Iterator[tuple[str, bool]]:
    """Yield the texts that state no constraint, each with whether one was read or noted nevertheless."""
    for text in _part(part)["none"]:
        noted = any(note.kind == "constraint" for note in notes_of(text))
        yield text, noted or bool(_constraints_of([text]))


def changed(part: str) -> Iterator[StatedCase]:
    """Yield the conversations in which a constraint is changed or lifted."""
    for each in _part(part)["changes"]:
        yield StatedCase(tuple(each["texts"]), each["stands"], _constraints_of(each["texts"]))


def results(part: str) -> Iterator[ResultCase]:
    """Yield the results that break or keep the constraints of a text."""
    for each in _part(part)["results"]:
        demands = demands_of([note for text in each["texts"] for note in notes_of(text)])
        yield ResultCase(tuple(each["texts"]), each["result"], each["breaks"], breaches(demands, [each["result"]]))


def measure() -> Iterator[Figure]:
    for part in ("develop", "held"):
        texts, none = list(stated(part)), list(stating_none(part))
        share = sum(each.right for each in texts) / sum(len(each.states) for each in texts)
        wrong = sum(len(each.wrong) for each in texts) + sum(seen for _, seen in none)
        changes = list(changed(part))
        yield Figure(name=f"constraints, {part}: read", value=share, unit="", bound=at_least(0.8))
        yield Figure(
            name=f"constraints, {part}: read though nobody stated them", value=wrong, unit="", bound=at_most(5)
        )
        yield Figure(
            name=f"constraints, {part}: changed and lifted right",
            value=sum(each.whole for each in changes) / len(changes),
            unit="",
            bound=at_least(0.8),
        )
        those = list(results(part))
        broken = [each.right for each in those if each.breaks]
        yield Figure(
            name=f"constraints, {part}: broken, pointed out",
            value=sum(broken) / len(broken),
            unit="",
            bound=at_least(0.8),
        )
        alarms = sum(not each.right for each in those if not each.breaks)
        yield Figure(
            name=f"constraints, {part}: kept, pointed out nevertheless", value=alarms, unit="results", bound=at_most(2)
        )


@cache
def _labelled() -> dict[str, Any]:
    return tomllib.loads(CONSTRAINTS.read_text(encoding="utf-8"))


def _part(part: str) -> dict[str, Any]:
    return _labelled()[part]


def _constraints_of(texts: Sequence[str]) -> tuple[Constraint, ...]:
    return demands_of([note for text in texts for note in notes_of(text)]).constraints


def _is_meant(read: Constraint, label: dict[str, Any]) -> bool:
    match read:
        case Limit():
            return (
                label["kind"] == ("most" if read.most else "least")
                and _is_value(read, label)
                and label.get("per", "") == read.per
            )
        case Requirement() | Prohibition():
            kind = "choice" if isinstance(read, Requirement) else "never"
            return label["kind"] == kind and label["about"].casefold() in read.about.casefold()


def _is_value(read: Limit, label: dict[str, Any]) -> bool:
    limit, unit = label["limit"], label.get("unit", "")
    match read.quantity:
        case TimeOfDay(at=at):
            return limit == f"{int(at // 60)}:{int(at % 60):02}"
        case Day(readings=((_, month, day),)):
            return str(limit).endswith(f"-{month:02}-{day:02}")
        case Amount(kind="number", low=low):
            return low == limit and (not unit or unit.casefold() == read.noun)
        case Amount(kind=kind, low=low, currency=currency):
            known = unit_of(unit) if unit else None
            if known is None:
                return not unit and low == limit
            return (known.kind, known.currency, limit * known.factor) == (kind, currency, low)
        case _:
            return False
