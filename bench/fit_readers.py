"""Fits the heads of the readers to labelled texts: how sure a reader is that a text asks for a capability, or for none.

Prints the weights for `remit_orchestrator.readers`; name one of `embeddings` and `ngrams`. The labelled texts are those
of packages/orchestrator/tests/judgement and of bench/judgement, with each part of a request alone: clear texts count as
clear if the right capability is ranked first, vague and foreign ones do not, and foreign ones are far. The default
encoder knows English, so its head is fitted to English texts.
"""

import sys
import tomllib
from collections.abc import Iterator, Sequence
from math import exp
from pathlib import Path
from typing import Any

from judgement_sets import teams as judged_teams
from remit.protocol.card import Capability
from remit_orchestrator.readers.embeddings import EmbeddingScorer
from remit_orchestrator.readers.ngrams import NgramScorer

FOLDER = Path(__file__).parents[1] / "packages/orchestrator/tests/judgement"
STEPS, RATE, PENALTY = 3_000, 4, 1

Row = tuple[Sequence[float], str]
"""The evidence of a text, and what it is: right, wrong, vague or foreign."""


def teams() -> list[dict[str, Any]]:
    """Return the labelled teams."""
    found: list[dict[str, Any]] = []
    for name in ("acting.toml", "readers.toml"):
        if (FOLDER / name).exists():
            found += tomllib.loads((FOLDER / name).read_text("utf-8"))["team"]
    return found


Labelled = tuple[list[Capability], list[tuple[str, str]]]
"""The capabilities of a team, and texts with what each asks for: a code, `vague` or `foreign`."""


def labelled(language: str | None) -> Iterator[Labelled]:
    """Yield the labelled teams, all or those of a language."""
    for team in teams():
        if language in {None, team.get("language", "en")}:
            unclear = [(kind, text) for kind in ("vague", "foreign") for text in team[kind]]
            yield capabilities_of(team), [*((code, text) for code, text in team["clear"]), *unclear]
    for each in judged_teams():
        if language in {None, each.language} and each.name not in NOT_FITTED:
            asked = each.requests
            unclear = [("vague", text) for text in asked.vague] + [("foreign", text) for text in asked.foreign]
            parts = [(code or "foreign", text) for compound in each.compounds() for code, text in compound.pieces]
            capabilities = [capability.declared(code) for code, capability in each.capabilities.items()]
            yield capabilities, [*asked.clear, *unclear, *parts]


# They had their one look by the heads as they are.
NOT_FITTED = {"cinema", "Fahrschule"}


def capabilities_of(team: dict[str, Any]) -> list[Capability]:
    """Return the capabilities of a team."""
    return [
        Capability(
            code=code,
            description=each["description"],
            examples=tuple(each.get("examples", ())),
            read_only=each.get("read_only", False),
        )
        for code, each in team["capabilities"].items()
    ]


def rows_of(team: Labelled, make: type[Any]) -> list[Row]:
    """Return the evidence for each labelled text of a team."""
    capabilities, texts = team
    codes = [each.code for each in capabilities]
    scorer = make(capabilities)
    rows: list[Row] = []
    for label, text in texts:
        similarities, evidence = scorer.evidence(text)
        best = codes[max(range(len(codes)), key=similarities.__getitem__)]
        rows.append((tuple(evidence), label if label not in codes else "right" if best == label else "wrong"))
    return rows


def fitted(rows: Sequence[tuple[Sequence[float], bool]]) -> tuple[float, ...]:
    """Return a bias and weights by gradient descent with a penalty for large weights."""
    width = len(rows[0][0])
    weights = [0.0] * (width + 1)
    for _ in range(STEPS):
        gradient = [0.0] * (width + 1)
        for evidence, wanted in rows:
            total = weights[0] + sum(w * e for w, e in zip(weights[1:], evidence, strict=True))
            error = 1 / (1 + exp(-total)) - wanted
            gradient[0] += error
            for place, each in enumerate(evidence, 1):
                gradient[place] += error * each
        for place, each in enumerate(gradient):
            weights[place] -= RATE * (each + (PENALTY * weights[place] if place else 0.0)) / len(rows)
    return tuple(round(each, 2) for each in weights)


def main() -> None:
    make: type[Any] = {"embeddings": EmbeddingScorer, "ngrams": NgramScorer}[sys.argv[1]]
    language = "en" if sys.argv[1] == "embeddings" else None
    rows = [row for team in labelled(language) for row in rows_of(team, make)]
    clear = fitted([(evidence, kind == "right") for evidence, kind in rows])
    far = fitted([(evidence, kind == "foreign") for evidence, kind in rows])
    print(f"clear={clear}, far={far}")


if __name__ == "__main__":
    main()
