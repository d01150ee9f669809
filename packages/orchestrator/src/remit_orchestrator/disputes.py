"""Contradictions that a user is asked to settle, in the form in which they are stored."""

from collections.abc import Sequence
from typing import Any, cast

from remit.protocol.envelope import Answer, Json
from remit.words.components import capital, in_words, said_shortly
from remit_orchestrator.text.conflicts.decided import decision_of
from remit_orchestrator.text.conflicts.search import Side, settled


def disputes_of(answer: Answer) -> list[Json]:
    """Return the question to the user in the form in which it is stored."""
    return [
        {
            "about": capital(in_words(each["path"])),
            "question": each["question"],
            "values": [
                {"value": said_shortly(said["value"]) or "", "sources": said["sources"]} for said in each["values"]
            ],
        }
        for each in cast("list[dict[str, Any]]", answer.metadata["conflicts"])
        if each["question"]
    ]


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
