"""One try at a call: what is known of it until it is started or refused."""

from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Call, Json
from remit.runtime import journal
from remit.runtime.delegation.draft import granted
from remit.runtime.delegation.looking import Looked
from remit.runtime.ledger import Frame, Route, child_path
from remit.runtime.ports import Owner
from remit.runtime.registry import Entry
from remit.runtime.sessions import Shown

_NONE: frozenset[str] = frozenset()


class Attempt:
    """A call of one agent to one other. It is counted as it is made, whatever becomes of it."""

    __slots__ = (
        "approved",
        "asked_by_agent",
        "at_once",
        "before",
        "call",
        "caller",
        "card",
        "entry",
        "hedge",
        "looked",
        "now",
        "owner",
        "parent",
        "path",
        "questions",
        "route",
        "sent",
        "shown",
        "step",
    )

    def __init__(self, parent: Frame, call: Call, route: Route | None, at_once: int | None, hedge: bool) -> None:
        tally, name = parent.run.tally, parent.card.name
        tally.delegations += 1
        self.asked_by_agent = tally.by_agent[name] = tally.by_agent.get(name, 0) + 1
        self.parent = parent
        self.call = call
        self.sent = call
        """The call as the agent made it: what a person changed in it is not what the agent sent."""
        self.route = route
        self.at_once = at_once
        self.hedge = hedge
        if route is None:
            parent.calls += 1
            self.path = child_path(parent, parent.calls if call.step is None else call.step)
        else:
            self.path = route.leg_path
        self.entry: Entry | None = None
        self.card: AgentCard | None = None
        self.caller = parent.card
        self.owner: Owner | None = None
        """Whose the session is that the call names."""
        self.shown: Shown | None = None
        self.now = 0.0
        self.approved = _NONE
        """The questions that a person has answered with yes."""
        self.questions = 0
        self.looked: Looked | None = None
        self.step = b""
        self.before: journal.Step | None = None
        """How far it came before a restart."""

    def granted(self, limits: Limits) -> int:
        """Return the tokens that it would be granted now."""
        return granted(self.parent, self.call, self.card, limits)

    def agreed(self, question: str, edits: dict[str, Json]) -> None:
        """Note that a person agreed, and what they changed before.

        A yes is to what the person was shown: what another makes of it is asked about again.
        """
        self.approved = (_NONE if edits else self.approved) | {question}
        self.questions += 1
        if edits:
            self.call = replace(self.call, **edits)
