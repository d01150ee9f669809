"""What came of looking through a large request outside the event loop."""

from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.verdict import Ask, Facts, Refuse, Rewrite, Sealing
from remit.policy.weight import said_in
from remit.protocol.envelope import Json, Request
from remit.runtime.redactor import RedactedValues


class RequestInspection(NamedTuple):
    """What came of looking a large request through outside the event loop, and what was looked at."""

    said: tuple[Json, ...]
    sealing: Sealing | None
    approved: frozenset[str]
    verdict: Rewrite | Refuse | Ask
    taken: RedactedValues | None
    mine: dict[str, str | int]
    """What its caller itself had put into it."""

    def is_of(self, request: Request, facts: Facts) -> bool:
        """Say whether it is this that was looked at, and nothing was learned meanwhile that is to be struck too."""
        return self.sealing is facts.sealing and self.approved == facts.approved and self.said == said_in(request)

    def verdict_on(self, request: Request) -> Rewrite | Refuse | Ask:
        """Return the verdict; what is left of time and tokens has changed while it was looked through."""
        verdict = self.verdict
        if not isinstance(verdict, Rewrite):
            return verdict
        clean, now = verdict.request, request.remit
        remit = replace(
            clean.remit, time_ms=min(clean.remit.time_ms, now.time_ms), tokens=min(clean.remit.tokens, now.tokens)
        )
        return Rewrite(replace(clean, remit=remit, created_ms=request.created_ms), verdict.struck)
