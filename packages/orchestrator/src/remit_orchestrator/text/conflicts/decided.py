"""Reads later results with what the user decided about a conflict."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from remit.protocol.envelope import Json
from remit.words.components import Conflict, Findings, capital, in_words, said_shortly

_DECIDED = re.compile(r"(?P<about>[^\n]{1,200}?): (?P<counts>[^\n]{1,200}?) counts, not (?P<others>[^\n]{1,200})\.")


class DecidedConflict(NamedTuple):
    """The value that counts, and those that do not."""

    about: str
    counts: str
    others: tuple[str, ...]


def decision_of(about: str, counts: str, others: Sequence[str]) -> str:
    """Return the sentence that says, and is kept as a note of, which value counts."""
    return f"{about}: {counts} counts, not {' or '.join(others)}."


def decided_conflicts(decisions: Iterable[str]) -> dict[str, DecidedConflict]:
    """Return what was decided, by what it is about; the last decision counts."""
    found = [match for text in decisions if (match := _DECIDED.fullmatch(text))]
    return {
        match["about"].casefold(): DecidedConflict(
            match["about"], match["counts"], tuple(match["others"].split(" or "))
        )
        for match in found
    }


def with_decisions(findings: Findings, decided: dict[str, DecidedConflict]) -> Findings:
    """Return findings in which no conflict is open that was decided between these very values."""
    if not decided:
        return findings
    return replace(findings, conflicts=tuple(_read_with(each, decided) for each in findings.conflicts))


def _read_with(conflict: Conflict, decided: dict[str, DecidedConflict]) -> Conflict:
    known = decided.get(capital(in_words(conflict.path)).casefold())
    if known is None:
        return conflict
    sides = {_said(each.value): each.value for each in conflict.values}
    # A value that the user did not know of is a new question.
    if known.counts not in sides or not set(sides) <= {known.counts, *known.others}:
        return conflict
    return replace(conflict, preferred=sides[known.counts], question=None, settled=True)


def _said(value: Json) -> str:
    return said_shortly(value) or ""
