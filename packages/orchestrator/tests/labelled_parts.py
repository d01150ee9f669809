"""The labelled texts of `judgement/parts.toml`, and whether the plan for each is right."""

import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, convert

from checkout import ROOT
from labelled_acting import LabelledCapability
from remit.protocol.card import Capability
from remit_orchestrator.text.classification import Scorer, hear
from remit_orchestrator.text.intent import Choose, Confirm, Decision, Label, Planned, PlannedPart, Routed, Unclear, plan

DATA = ROOT / "packages/orchestrator/tests/judgement" / "parts.toml"
_PART = re.compile(r"(?P<code>\S+)(?: > (?P<after>\d+))?(?: (?P<kind>[?!]) (?P<words>.+))?")


class LabelledPlans(Struct, forbid_unknown_fields=True):
    """A team with texts of several parts for it, each with its plan."""

    name: str
    language: Literal["en", "de"]
    part: Literal["develop", "held out"]
    capabilities: dict[str, LabelledCapability]
    texts: list[list[str]]

    def offered(self) -> list[Capability]:
        return [
            Capability(code=code, description=each.description, examples=tuple(each.examples), read_only=each.read_only)
            for code, each in self.capabilities.items()
        ]

    def labels(self) -> dict[str, Label]:
        return {
            code: Label(
                target=code,
                description=each.description,
                read_only=each.read_only,
                confirm="never" if each.read_only else "unsure",
            )
            for code, each in self.capabilities.items()
        }


def teams() -> list[LabelledPlans]:
    """Return the labelled teams, those for development first."""
    labelled = convert(tomllib.loads(DATA.read_text(encoding="utf-8"))["team"], list[LabelledPlans])
    return sorted(labelled, key=lambda team: team.part)


class PlanRow(Struct):
    """A text with the plan that was wanted and made."""

    text: str
    wanted: list[str]
    decision: Decision
    accounted: bool
    """Whether every part is served, asked about, or named as not done."""
    right: bool
    """Whether capabilities, order and conditions are right; a part may be asked about with the right one first."""
    lost: list[str]


def judged(team: LabelledPlans, make: Callable[[Sequence[Capability]], Scorer]) -> list[PlanRow]:
    """Return what becomes of each text of a team."""
    scorer, labels = make(team.offered()), team.labels()
    rows: list[PlanRow] = []
    for text, *wanted in team.texts:
        decision = plan(hear(text, scorer), labels)
        made = _parts(decision)
        pairs = _paired(wanted, made)
        lost = [wanted_part for wanted_part, place in zip(wanted, pairs, strict=True) if place is None]
        whole = not lost and len(made) == len(wanted)
        right = whole and all(_is_right(wanted, pairs, at, made) for at in range(len(wanted)))
        rows.append(PlanRow(text, wanted, decision, not lost, right, lost))
    return rows


def _parts(decision: Decision) -> list[PlannedPart]:
    match decision:
        case Planned(parts=parts):
            return list(parts)
        case Routed(primary=primary):
            return [PlannedPart(text="", how="act", intent=primary)]
        case Confirm(intents=intents):
            return [PlannedPart(text="", how="confirm", intent=each) for each in intents]
        case Choose(options=options):
            return [PlannedPart(text="", how="ask", options=options)]
        case Unclear(option=option):
            return [PlannedPart(text="", how="confirm", intent=option)]
        case _:
            return []


def _codes(part: PlannedPart) -> list[str]:
    if part.how == "cannot":
        return ["-"]
    codes = [each.intent.code for each in part.options] if part.intent is None else [part.intent.code]
    # What is asked about is not dropped, whatever it is.
    return [*codes, "-"] if part.how == "ask" else codes


def _paired(wanted: Sequence[str], made: Sequence[PlannedPart]) -> list[int | None]:
    """Return for each wanted part the place of the part that accounts for it."""
    left = list(range(len(made)))
    places: list[int | None] = []
    for wanted_part in wanted:
        code = wanted_part.split()[0]
        # A part that nothing was found for is named, which accounts for it, but is not right.
        place = next((at for at in left if code in _codes(made[at])), None)
        places.append(place)
        if place is not None:
            left.remove(place)
    for at, place in enumerate(places):
        named = next((each for each in left if made[each].how in {"cannot", "ask"}), None)
        if place is None and named is not None:
            places[at] = named
            left.remove(named)
    return places


def _is_right(wanted: Sequence[str], pairs: Sequence[int | None], at: int, made: Sequence[PlannedPart]) -> bool:
    place = pairs[at]
    read = _PART.fullmatch(wanted[at])
    assert read is not None
    assert place is not None
    part = made[place]
    if read["code"] not in (_codes(part)[:1] if read["code"] != "-" else _codes(part)):
        return False
    if bool(read["kind"]) != (part.condition is not None):
        return False
    if part.condition is not None:
        words = f"{part.condition.clause} {part.condition.wording}".casefold()
        if read["words"].casefold() not in words or part.condition.holds != (read["kind"] == "?"):
            return False
    if read["after"]:
        before = pairs[int(read["after"]) - 1]
        return before in _before(place, made)
    # Nothing in a plain list waits for another part of it.
    return bool(read["kind"]) or any(" > " in each for each in wanted) or not part.after


def _before(place: int, made: Sequence[PlannedPart]) -> set[int]:
    earlier: set[int] = set()
    left = [place]
    while left:
        for each in made[left.pop()].after:
            if each not in earlier:
                earlier.add(each)
                left.append(each)
    return earlier
