"""One attempt at a call, until it is started or refused, and what was seen of a large request."""

from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.policy.verdict import Ask, Facts, Refuse, Rewrite, Sealing
from remit.policy.weight import is_short_text, said_in
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Call, Json, Request
from remit.runtime import journal
from remit.runtime.delegation.draft import granted
from remit.runtime.frames import Frame, RoutedCall, child_path
from remit.runtime.ports import RegisteredAgent, SessionOwner
from remit.runtime.redactor import RedactedValues
from remit.runtime.sessions import ViewRequest


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


_NONE: frozenset[str] = frozenset()


class CallAttempt:
    """A call of one agent to another. It is counted when it is made, whatever its outcome."""

    # Defaults of the class, which keeps construction cheap: most calls never touch them.
    entry: RegisteredAgent | None = None
    card: AgentCard | None = None
    owner: SessionOwner | None = None
    """The owner of the session that the call names."""
    shown: ViewRequest | None = None
    now = 0.0
    approved = _NONE
    """The questions that a person has approved."""
    questions = 0
    looked: RequestInspection | None = None
    step = b""
    permitted = False
    """Whether the rate limit that hubs share has counted the call."""
    before: journal.JournalStep | None = None
    """How far it came before a restart."""
    caller: AgentCard
    """The card of the calling agent as it is now."""

    def __init__(self, parent: Frame, call: Call, route: RoutedCall | None, at_once: int | None, hedge: bool) -> None:
        tally, name = parent.run.tally, parent.card.name
        tally.delegations += 1
        self.asked_by_agent = tally.by_agent[name] = tally.by_agent.get(name, 0) + 1
        self.parent = parent
        self.call = self.sent = call
        """The call, and the call as the agent made it: a person's edits are not the agent's."""
        self.is_short_text = is_short_text(call)
        """Whether it is valid, light, and needs no preparation; False: that has to be found out."""
        self.route = route
        self.at_once = at_once
        self.hedge = hedge
        if route is None:
            parent.calls += 1
            self.path = child_path(parent, parent.calls if call.step is None else call.step)
        else:
            self.path = route.leg_path

    @property
    def needs_permit(self) -> bool:
        """Whether hubs count the call together before it starts; a call from before a restart was counted then."""
        return not self.permitted and self.before is None and self.entry is not None and self.entry.is_rated_here

    def granted(self, limits: Limits) -> int:
        """Return the tokens that it would be granted now."""
        return granted(self.parent, self.call, self.card, self.path, limits)

    def agreed(self, question: str, edits: dict[str, Json]) -> None:
        """Note that a person agreed, and their edits.

        An approval covers what the person was shown; if another guard changes it, the person is asked again.
        """
        self.approved = (_NONE if edits else self.approved) | {question}
        self.questions += 1
        if edits:
            self.call = replace(self.call, **edits)
            self.is_short_text = False
