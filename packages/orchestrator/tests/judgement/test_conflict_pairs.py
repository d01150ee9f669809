"""Contradictions are found in domains for which no rule was made, and few others are alarmed about."""

from typing import Any

import pytest

from judgement_conflicts import PARTS, alarms_between_capabilities, counts, labelled
from remit import Brief, Capability, Hub
from remit_orchestrator import add_orchestrator
from scripted_reader import ScriptedReader

PAIRS = labelled()


@pytest.mark.parametrize("part", PARTS)
def test_nearly_all_contradictions_that_are_claimed_are_ones(part: str) -> None:
    """K9: a false conflict costs the user as much as a hidden one."""
    counted = counts(PAIRS[part])
    assert counted.precision >= 0.95
    assert min(counted.conflicting, counted.harmless) >= 20


def test_other_figures_statuses_and_denials_are_found() -> None:
    """Of the other pairs no rule can tell surely whether they contradict each other: a second reader is for them."""
    counted = counts(PAIRS["twelfth"])
    assert counted.recall >= 0.9
    several = [counts(PAIRS[part]) for part in PARTS]
    assert sum(each.detected for each in several) >= 0.45 * sum(each.conflicting for each in several)


def test_answers_of_two_capabilities_never_contradict_each_other() -> None:
    assert alarms_between_capabilities(PAIRS["unrelated"]["pairs"]) == 0


async def test_a_user_who_asks_for_two_things_is_told_of_no_conflict() -> None:
    """K9: two capabilities that one message asks for answer two questions."""
    pairs: list[list[Any]] = PAIRS["unrelated"]["pairs"]
    hub = Hub()
    for place, code in enumerate(("FREIGHT", "LABORATORY")):

        @hub.agent(code.lower(), capabilities=[Capability(code=code, read_only=True)])
        async def answer(brief: Brief, place: int = place) -> Any:
            return pairs[int(brief.objective[1:])][place]

    add_orchestrator(
        hub, reader=ScriptedReader(lambda text: [("FREIGHT" if text.startswith("a") else "LABORATORY", 0.95)])
    )
    async with hub:
        for number in range(len(pairs)):
            response = await hub.ask("orchestrator", f"a{number}\nb{number}", user="u")
            assert len(response.finished) == 2
            assert response.metadata["conflicts"] == []
