"""How well an orchestrator judges, by the labelled sets in its `tests/judgement`: a function for each part.

The teams that were looked at while the rules were made and those that were held out are counted apart.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import judgement_conflicts
import judgement_constraints
import judgement_rewrites
from harness import Figure, at_least, at_most, main, sized
from intent import classifiers
from judgement_fields import cases

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages/orchestrator/tests"))

import labelled_parts
from labelled_acting import Row, judged, teams

# Goals for texts that nobody has seen: of 20, 18 are served, asked about and admitted; where what changes something is
# said back, 14 are served or confirmed.
SERVED = at_least(0.9)
CONFIRMED = at_least(0.7)
RIGHT = at_least(0.9)
NEVER = at_most(0)
FOUND = at_least(0.8)


def acting() -> Iterator[Figure]:
    """What is done about clear, vague and foreign texts."""
    for name, make in classifiers().items():
        for part, language in product(("develop", "held out"), ("en", "de")):
            those = [team for team in teams() if (team.part, team.language) == (part, language)][: sized(None, 1)]
            rows = [row for team in those for row in judged(team, make)]
            # The encoder knows English best: in German, as by words, what changes something is said back.
            alone = (name, language) == ("embeddings", "en")
            yield from acting_figures(f"acting by {name}, {language}, {part}", rows, alone=alone)


def acting_figures(title: str, rows: list[Row], *, alone: bool) -> Iterator[Figure]:
    def share(kind: str, *outcomes: str) -> float:
        those = [row.outcome for row in rows if row.kind == kind]
        return sum(each in outcomes for each in those) / len(those)

    served = share("clear", "served")
    ready = served + share("clear", "confirmed")
    yield Figure(name=f"{title}: clear, served", value=served, unit="", bound=SERVED if alone else None)
    yield Figure(name=f"{title}: clear, served or confirmed", value=ready, unit="", bound=None if alone else CONFIRMED)
    yield Figure(
        name=f"{title}: clear, served, confirmed or asked with the right option",
        value=ready + share("clear", "asked"),
        unit="",
    )
    yield Figure(name=f"{title}: clear, something else done", value=share("clear", "wrong", "changed"), unit="")
    yield Figure(name=f"{title}: vague, asked", value=share("vague", "asked", "asked without"), unit="", bound=RIGHT)
    yield Figure(name=f"{title}: foreign, admitted", value=share("foreign", "admitted"), unit="", bound=RIGHT)
    changed = sum(row.outcome == "changed" for row in rows)
    yield Figure(name=f"{title}: changed though nobody asked for it", value=changed, unit="texts", bound=NEVER)


def fields() -> Iterator[Figure]:
    """How many of the fields that stand in a text are found, and how many are filled wrongly."""
    for part in ("develop", "held"):
        those = list(cases(part))
        share = sum(each.right for each in those) / sum(len(each.stands) for each in those)
        wrong = sum(len(each.wrong) for each in those)
        yield Figure(name=f"fields, {part}: found", value=share, unit="", bound=FOUND)
        yield Figure(name=f"fields, {part}: filled wrongly", value=wrong, unit="fields", bound=NEVER)


def parts() -> Iterator[Figure]:
    """Whether the parts of a request are all accounted for, and planned right."""
    for name, make in classifiers().items():
        for part in ("develop", "held out"):
            those = [team for team in labelled_parts.teams() if team.part == part][: sized(None, 1)]
            rows = [row for team in those for row in labelled_parts.judged(team, make)]
            accounted = sum(row.accounted for row in rows) / len(rows)
            right = sum(row.right for row in rows) / len(rows)
            yield Figure(
                name=f"parts by {name}, {part}: all accounted for", value=accounted, unit="", bound=at_least(1)
            )
            # 17 of 20.
            yield Figure(name=f"parts by {name}, {part}: right plan", value=right, unit="", bound=at_least(0.85))


def measure() -> list[Figure]:
    return [
        *acting(),
        *parts(),
        *fields(),
        *judgement_constraints.measure(),
        *judgement_conflicts.measure(),
        *judgement_rewrites.measure(),
    ]


if __name__ == "__main__":
    main(measure)
