"""Figures in sentences: numbers, dates, times and days, with their units and limits."""

import re
from collections.abc import Iterator

from msgspec import Struct

from remit.words.numbers import digit_readings
from remit.words.units import Unit, unit_of
from remit_orchestrator.text.grounding import dates_in, figure_unit, figure_value, times_in
from remit_orchestrator.text.word_relations import concept_of

# "The maximum load is 5": a limit that is named.
_NAMED = r"[^,;:.\d]{0,24}(?:\bis|\bare|\bof|\bist|\bsind|\bvon|\bbeträgt|:)"

_UPPER = re.compile(
    rf"\b(?P<noun>(?:maximum|maximal\w*|limit|capacity|höchst(?!ens)\w+|obergrenze)\b{_NAMED})"
    r"|\b(?P<strong>at most|up to|no more than|not more than|maximum(?: of)?|less than|fewer than|below|höchstens"
    r"|maximal|bis zu|weniger als|nicht mehr als"
    r"|(?:short|low|small|young|light|narrow|earli|cool|cold|slow)er than"
    r"|(?:kürz|kleine|jüng|leicht|niedrig|früh)e?r als)"
    r"|\b(?:no later than|under|within|until|till|before|bis|unter|spätestens|vor)",
)


_LOWER = re.compile(
    rf"\b(?P<noun>(?:minimum|mindest(?!ens)\w+|untergrenze)\b{_NAMED})"
    r"|\b(?P<strong>at least|no less than|no fewer than|minimum(?: of)?|more than|above|mindestens|mehr als|wenigstens"
    r"|(?:long|high|larg|bigg|great|old|heavi|wid|deep|tall|lat|warm|hott|fast)er than"
    r"|(?:läng|größ|höh|ält|schwer|breit|spät)er als"
    r"|exceed(?:s|ing|ed)?)|\b(?:no earlier than|over|after|since|from|über|ab|seit|nach)"
)


_AFTER_UPPER = re.compile(
    r"\W*(?P<strong>or (?:less|fewer|below|under|younger|lower|earlier|shorter)"
    r"|oder (?:weniger|jünger|früher|kürzer)|at most|höchstens)\b|\W*at the latest\b"
)


_AFTER_LOWER = re.compile(
    r"\W*(?P<strong>or (?:more|above|over|older|higher|later|longer)"
    r"|and (?:more|up|over)|oder (?:mehr|älter|höher|später)|at least|mindestens)\b"
)


_GAP = re.compile(r"\s*(?:the|a|an|about|around|minus|dem|den|der|etwa|rund)?\s*-?\Z")


# "9 Uhr", "17.30 Uhr", "5 o'clock"
_CLOCK = re.compile(r"(\d{1,2})(?:\.(\d{2}))? (?:Uhr|o['’]clock)\b.*")


_NEXT = re.compile(r"[ -]([^\W\d_]+)")


# "60 euros per hour", "140 euros a night"
_RATE = re.compile(
    r"\s*(?:(?:per|each|every|pro|je)\s+|an?\s+(?=(?:hour|day|night|week|month|year|piece|person|head)\b)|/\s*)([^\W\d_]+)"
)


_BOUND_REACH = 40


class StatedFigure(Struct, frozen=True):
    kind: str
    """`n` for numbers, `d` for dates, `t` for times, `w` for days of the week."""
    values: tuple[object, ...]
    unit: Unit | None = None
    bound: int = 0
    """1 if it is an upper limit, -1 if a lower one."""
    strong: bool = False
    written: str = ""
    then: str = ""
    """The word after it, if it has no unit."""
    per: str = ""
    """What it is counted by: the concept of "hour" in "60 euros per hour"."""

    def same(self, other: "StatedFigure") -> bool:
        return self.kind == other.kind and self._fits(other) and not set(self.values).isdisjoint(other.values)

    def rivals(self, other: "StatedFigure") -> bool:
        return self.kind == other.kind and self._fits(other) and set(self.values).isdisjoint(other.values)

    def _fits(self, other: "StatedFigure") -> bool:
        return self.unit is None or other.unit is None or self.unit == other.unit

    @property
    def tokens(self) -> Iterator[str]:
        return (f"{self.kind}{value}" for value in self.values)


def read_figure(found: re.Match[str], line: str) -> StatedFigure | None:
    before = line[max(0, found.start() - _BOUND_REACH) : found.start()].lower()
    after = line[found.end() : found.end() + _BOUND_REACH].lower()
    bound, strong = bound_of(before, after)
    if found["date"]:
        days = tuple((date.month, date.day) for date in dates_in(found[0]))
        return StatedFigure("d", days, None, bound, strong, found[0]) if days else None
    if found["time"]:
        return StatedFigure("t", (times_in(found[0])[0],), None, bound, strong, found[0])
    if clock := _CLOCK.fullmatch(f"{found[0]}{line[found.end() : found.end() + 10]}".split(",")[0].strip()[:20]):
        return StatedFigure("t", ((int(clock[1]), int(clock[2] or 0), 0),), None, bound, strong, found[0])
    unit = figure_unit(found)
    readings = () if found["scale"] or found["sign"] or not found["digits"] else digit_readings(found["digits"])
    values = (figure_value(found), *(f"{whole}.{rest}" if rest.strip("0") else whole for whole, rest in readings))
    then = _NEXT.match(line, found.end()) if unit is None and not (found["unit"] or "").strip() else None
    if then and (further := _NEXT.match(line, then.end())) and (counted := unit_of(further[1])):
        unit, then = counted, None  # "12 further days"
    rate = _RATE.match(line, found.end())
    return StatedFigure(
        "n",
        tuple(dict.fromkeys(values)),
        unit,
        bound,
        strong,
        found[0],
        then[1].lower() if then else "",
        concept_of(rate[1].lower()) if rate else "",
    )


def bound_of(before: str, after: str) -> tuple[int, bool]:
    for sign, pattern, follow in ((1, _UPPER, _AFTER_UPPER), (-1, _LOWER, _AFTER_LOWER)):
        for found in pattern.finditer(before):
            if _GAP.match(before, found.end()):
                return sign, (found["strong"] or found["noun"]) is not None
        if found := follow.match(after):
            return sign, found["strong"] is not None
    return 0, False
