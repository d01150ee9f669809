"""The labelled texts of `judgement/acting.toml`, and what an orchestrator's decision about each is worth."""

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert, field

from checkout import ROOT
from remit.protocol.card import Capability
from remit_orchestrator.text.classification import Scorer, hear
from remit_orchestrator.text.intent import Choose, Confirm, Decision, Label, Routed, Unclear, Unknown, plan

DATA = ROOT / "packages/orchestrator/tests/judgement" / "acting.toml"


class LabelledCapability(Struct, forbid_unknown_fields=True):
    """A capability of a labelled team, as a team file has it."""

    description: str
    examples: list[str]
    read_only: bool = False


class LabelledTeam(Struct, forbid_unknown_fields=True):
    """A team with texts for it: clear with the capability that they ask for, vague, and for somebody else."""

    name: str
    language: Literal["en", "de"]
    part: Literal["develop", "held out"]
    capabilities: dict[str, LabelledCapability]
    clear: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    vague: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])

    def offered(self) -> list[Capability]:
        return [
            Capability(code=code, description=each.description, examples=tuple(each.examples), read_only=each.read_only)
            for code, each in self.capabilities.items()
        ]

    def labels(self) -> dict[str, Label]:
        return {
            code: Label(target=code, description=each.description, confirm="never" if each.read_only else "unsure")
            for code, each in self.capabilities.items()
        }


def teams(data: Path = DATA) -> list[LabelledTeam]:
    """Return the labelled teams, those for development first."""
    labelled = convert(tomllib.loads(data.read_text(encoding="utf-8"))["team"], list[LabelledTeam])
    return sorted(labelled, key=lambda team: team.part)


Outcome = Literal["served", "confirmed", "asked", "admitted", "wrong", "changed", "asked without", "asked in vain"]
"""served, confirmed: what was asked for. asked: with the right one among the options. asked without: without it.
asked in vain: a question where nothing is to be asked. changed: something was changed that nobody asked for.
wrong: something else was read. admitted: that nothing fits."""


def outcome(decision: Decision, wanted: str | None, labels: dict[str, LabelledCapability]) -> Outcome:
    """Say what a decision is worth for a text that asks for *wanted*, or for nothing."""
    match decision:
        case Routed(primary=primary):
            codes = [primary.code]
            if codes == [wanted]:
                return "served"
            return "wrong" if all(labels[code].read_only or code == wanted for code in codes) else "changed"
        case Confirm(intents=intents):
            codes = [each.code for each in intents]
            return "confirmed" if codes == [wanted] else "asked without"
        case Choose(options=options):
            codes = [each.intent.code for each in options]
            return "asked" if wanted is None or wanted in codes else "asked without"
        case Unclear(option=option):
            return "asked" if wanted in {None, option.code} else "asked without"
        case Unknown():
            return "admitted"
        case _:
            return "asked"


class Row(Struct):
    """A text with its kind and what became of it."""

    kind: str
    text: str
    wanted: str | None
    decision: Decision
    outcome: Outcome


def judged(team: LabelledTeam, make: Callable[[Sequence[Capability]], Scorer]) -> list[Row]:
    """Return what becomes of each text of a team."""
    scorer, labels = make(team.offered()), team.labels()
    texts = [("clear", text, code) for code, text in team.clear]
    texts += [
        (kind, text, None) for kind, those in (("vague", team.vague), ("foreign", team.foreign)) for text in those
    ]
    rows: list[Row] = []
    for kind, text, wanted in texts:
        decision = plan(hear(text, scorer), labels)
        rows.append(Row(kind, text, wanted, decision, outcome(decision, wanted, team.capabilities)))
    return rows


def counted(rows: Sequence[Row], kind: str) -> Counter[Outcome]:
    """Return how often each outcome occurs for texts of a kind."""
    return Counter(row.outcome for row in rows if row.kind == kind)
