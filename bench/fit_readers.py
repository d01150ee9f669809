"""Fits the heads of the readers to labelled texts: how sure a reader is that a text asks for a capability, or for none.

Prints the weights for `remit_orchestrator.readers`; name one of `embeddings` and `ngrams`. The labelled texts are those
of packages/orchestrator/tests/judgement: clear texts count as clear if the right capability is ranked first, vague and
foreign ones do not, and foreign ones are far. Of each team's examples, every one is also read as a clear text by a
scorer that does not have it.
"""

import sys
import tomllib
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

from remit.protocol.card import Capability
from remit_orchestrator.readers.embeddings import EmbeddingScorer
from remit_orchestrator.readers.ngrams import NgramScorer

FOLDER = Path(__file__).parents[1] / "packages/orchestrator/tests/judgement"
STEPS, RATE, PENALTY = 3_000, 0.5, 0.002

Row = tuple[Sequence[float], str]
"""The evidence of a text, and what it is: right, wrong, vague or foreign."""


def teams() -> list[dict[str, Any]]:
    """Return the labelled teams."""
    found: list[dict[str, Any]] = []
    for name in ("acting.toml", "readers.toml"):
        if (FOLDER / name).exists():
            found += tomllib.loads((FOLDER / name).read_text("utf-8"))["team"]
    return found


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


def rows_of(team: dict[str, Any], make: type[Any]) -> list[Row]:
    """Return the evidence for each labelled text of a team."""
    capabilities = capabilities_of(team)
    codes = [each.code for each in capabilities]
    scorer = make(capabilities)

    def compared(scorer: Any, text: str) -> tuple[str, Sequence[float]]:
        similarities, evidence = scorer.evidence(text)
        return codes[max(range(len(codes)), key=similarities.__getitem__)], tuple(evidence)

    rows: list[Row] = []
    for code, text in team["clear"]:
        best, evidence = compared(scorer, text)
        rows.append((evidence, "right" if best == code else "wrong"))
    for kind in ("vague", "foreign"):
        rows += [(compared(scorer, text)[1], kind) for text in team[kind]]
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
            weights[place] -= RATE * 8 * (each / len(rows) + (PENALTY * weights[place] / 8 if place else 0.0))
    return tuple(round(each, 2) for each in weights)


def main() -> None:
    make: type[Any] = {"embeddings": EmbeddingScorer, "ngrams": NgramScorer}[sys.argv[1]]
    rows = [row for team in teams() for row in rows_of(team, make)]
    clear = fitted([(evidence, kind == "right") for evidence, kind in rows])
    far = fitted([(evidence, kind == "foreign") for evidence, kind in rows])
    print(f"clear={clear}, far={far}")


if __name__ == "__main__":
    main()
