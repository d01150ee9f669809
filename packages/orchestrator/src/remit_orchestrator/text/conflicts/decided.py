"""The contradictions that a user is asked to settle, the decisions about them, and later results read with these."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from remit.protocol.envelope import Answer, Json
from remit.words.components import Conflict, Findings, capital, in_words, short_value
from remit_orchestrator.text.figures import figures, figures_agree
from remit_orchestrator.text.replies import place_named

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
    matches = [match for text in decisions if (match := _DECIDED.fullmatch(text))]
    return {
        match["about"].casefold(): DecidedConflict(
            match["about"], match["counts"], tuple(match["others"].split(" or "))
        )
        for match in matches
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
    sides = {_shown_value(each.value): each.value for each in conflict.values}
    # A value that the user did not know of is a new question.
    if known.counts not in sides or not set(sides) <= {known.counts, *known.others}:
        return conflict
    return replace(conflict, preferred=sides[known.counts], question=None, settled=True)


def _shown_value(value: Json) -> str:
    return short_value(value) or ""


def disputes_of(answer: Answer) -> list[Json]:
    """Return the question to the user in the form in which it is stored."""
    return [
        {
            "about": capital(in_words(each["path"])),
            "question": each["question"],
            "values": [
                {"value": short_value(side["value"]) or "", "sources": side["sources"]} for side in each["values"]
            ],
        }
        for each in cast("list[dict[str, Any]]", answer.metadata["conflicts"])
        if each["question"]
    ]


class Side(NamedTuple):
    """One of the conflicting values, and the names of its sources as users read them."""

    value: str
    sources: tuple[str, ...] = ()


_WORD = re.compile(r"[^\W\d_]+")
# Words that many sources have in their names.
_COMMON = frozenset({"the", "a", "an", "your", "my", "our", "of", "in", "on", "from", "what", "says", "say"})


def settled(reply: str, sides: Sequence[Side]) -> int | None:
    """Return the index of the side that a reply means: by its value, its source, or its position.

    None if it may mean several, or means none of them.
    """
    for means in (_by_value, _by_source):
        meant = _longest([side for side in sides if means(reply, side)])
        if meant:
            return sides.index(meant[0]) if len(meant) == 1 else None
    place = place_named(reply)
    return place - 1 if 0 < place <= len(sides) else None


def _longest(sides: Sequence[Side]) -> list[Side]:
    """Return the sides whose values are not part of another's: "not approved" contains "approved"."""
    values = [side.value.casefold() for side in sides]
    return [
        side
        for side, value in zip(sides, values, strict=True)
        if not any(value in other for other in values if other != value)
    ]


def _by_value(reply: str, side: Side) -> bool:
    value = " ".join(side.value.split())
    if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", " ".join(reply.split()), re.IGNORECASE):
        return True
    value_figures = figures(side.value)
    return any(figures_agree(one, other) for one in figures(reply) for other in value_figures)


def _by_source(reply: str, side: Side) -> bool:
    words = set(_WORD.findall(reply.casefold()))
    names = (set(_WORD.findall(source.casefold())) - _COMMON for source in side.sources)
    return any(name and name <= words for name in names)


def settled_disputes(reply: str, disputes: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the decisions that a reply makes, in words, and the disputes that it leaves open."""
    decisions: list[str] = []
    left: list[dict[str, Any]] = []
    for dispute in disputes:
        sides = [Side(each["value"], tuple(each["sources"])) for each in dispute["values"]]
        place = settled(reply, sides)
        if place is None:
            left.append(dispute)
            continue
        others = [each.value for each in sides if each.value != sides[place].value]
        decisions.append(decision_of(dispute["about"], sides[place].value, others))
    return decisions, left
