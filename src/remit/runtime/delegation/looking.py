"""The result of examining a large request outside the event loop."""

from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.verdict import Ask, Facts, Refuse, Rewrite, Sealing
from remit.policy.weight import said_in
from remit.protocol.envelope import Json, Request
from remit.runtime.redactor import RedactedValues


class RequestInspection(NamedTuple):
    """The result of examining a large request outside the event loop, and the request that was examined."""

    said: tuple[Json, ...]
    sealing: Sealing | None
    approved: frozenset[str]
    verdict: Rewrite | Refuse | Ask
    taken: RedactedValues | None
    mine: dict[str, str | int]
    """The raw values that its caller itself put into it."""

    def is_of(self, request: Request, facts: Facts) -> bool:
        """Return whether this request was examined and no new secret became known since."""
        return self.sealing is facts.sealing and self.approved == facts.approved and self.said == said_in(request)

    def verdict_on(self, request: Request) -> Rewrite | Refuse | Ask:
        """Return the verdict with the current time and tokens, which changed during the examination."""
        verdict = self.verdict
        if not isinstance(verdict, Rewrite):
            return verdict
        clean, now = verdict.request, request.remit
        remit = replace(
            clean.remit, time_ms=min(clean.remit.time_ms, now.time_ms), tokens=min(clean.remit.tokens, now.tokens)
        )
        return Rewrite(replace(clean, remit=remit, created_ms=request.created_ms), verdict.struck)
