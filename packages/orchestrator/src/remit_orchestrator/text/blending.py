"""Checks what of a model's text the results of agents carry, and drops the rest."""

import re

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.aggregate import Blend, disagreement, restated
from remit.protocol.envelope import Answer, Json, Strategy
from remit.words.components import Component, laid_out
from remit_orchestrator.text.faithfulness import check
from remit_orchestrator.text.grounding import unfounded

# This many invented facts are reported; one would be enough to reject a text.
_KEPT = 10


def accept(text: str, blend: Blend) -> tuple[str, ...]:
    """Return the names and numbers of a model's text that its material does not contain; it is accepted if none."""
    return unfounded(text, blend.material)


def left_out(text: str, blend: Blend) -> tuple[str, ...]:
    """Return the titles of results of which a model's text has no name or number; or no word, if they have neither.

    Readers would not know that these results exist. Conflicting results are left out: the conflict is reported beside
    the text. A text that only repeats the request covers no result.
    """
    echo = _squeezed(text) in _squeezed(f"{blend.instructions} {blend.request}")
    disputed = _disputed(blend)
    return tuple(
        component.title or f"Result {place}"
        for place, component in enumerate(blend.components, 1)
        if echo or (component.name not in disputed and not _is_told(text, component))
    )


def _disputed(blend: Blend) -> set[str]:
    return {name for conflict in blend.conflicts for said in conflict.values for name in said.names}


def _is_told(text: str, component: Component) -> bool:
    said = "\n".join((laid_out(component.result), *restated(component.result)))
    if things := unfounded(said, ""):
        return len(unfounded(said, text)) < len(things)
    words = _WORD.findall(said.casefold())
    return not words or not set(words).isdisjoint(_WORD.findall(text.casefold()))


# Shorter words stand in every text.
_WORD = re.compile(r"[^\W\d_]{4,}")


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())


class Held(Struct, frozen=True, kw_only=True):
    """What of a model's text may be given, and what speaks against the rest."""

    text: str = ""
    """The text without the sentences that no result carries; empty if all of it is rejected."""
    rejected: tuple[str, ...] = ()
    """Names and numbers that are in none of the results."""
    unsupported: tuple[tuple[str, str], ...] = ()
    """Sentences that no result carries, each with the reason."""
    left_out: tuple[str, ...] = ()
    """Titles of the results of which the text leaves something out."""

    @property
    def whole(self) -> bool:
        """Whether the text may be given as it is."""
        return bool(self.text) and not self.unsupported

    @property
    def metadata(self) -> dict[str, Json]:
        """What was dropped, or why the whole text was rejected, for programs."""
        told: list[Json] = [{"sentence": sentence, "why": why} for sentence, why in self.unsupported[:_KEPT]]
        if self.text:
            return {"dropped": told} if told else {}
        return {"rejected": list(self.rejected[:_KEPT]), "unsupported": told, "left_out": list(self.left_out)}


def hold(text: str, blend: Blend) -> Held:
    """Return what of a model's text its material carries, statement by statement."""
    text = text.strip()
    made_up, missing = accept(text, blend), left_out(text, blend)
    disputes = "\n".join(map(disagreement, blend.conflicts))
    found = check(text, blend.components, also=blend.request, disputed=disputes, excused=_disputed(blend))
    titles = [component.title or f"Result {place}" for place, component in enumerate(blend.components, 1)]
    missing = tuple(dict.fromkeys((*missing, *(titles[place] for place, _ in found.missing))))
    unsupported = tuple((each.sentence, each.why) for each in found.objections)
    kept = "" if made_up or missing else found.text
    return Held(text=kept, rejected=made_up, unsupported=unsupported, left_out=missing)


def blended(merged: Answer, text: str, blend: Blend) -> Answer:
    """Return what the results carry of a model's text as the answer, or *merged* if that is not enough."""
    held = hold(text, blend)
    if not held.text:
        return replace(merged, metadata=merged.metadata | held.metadata)
    strategy: dict[str, Json] = {"strategy": Strategy.AI_BLEND.value}
    return replace(merged, result=held.text, metadata=merged.metadata | strategy | held.metadata)
