"""What a server asks the configuration of its team: why it was asked or refused, and what a draft would change."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from remit.protocol.envelope import Call, Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.engine import Engine
from remit_server.delegation_views import Advice
from remit_server.documents.api_approvals import DeciderRule
from remit_server.documents.policy import Explanation, GuardLine


class DraftExplanation(Struct, frozen=True, kw_only=True):
    """What would happen to a call with the limits, rules and permissions of a draft team file."""

    explanation: Explanation
    considered: tuple[str, ...]
    """The keys in which the draft differs from the present team and which count here."""
    ignored: tuple[str, ...]
    """The keys in which it differs and which do not count: they need a restart, or code."""


class TeamText(Struct, frozen=True, kw_only=True):
    """A team file as it is on the disk now."""

    file: str
    text: str


class TeamPolicy(Protocol):
    """The team's rules and limits, for people who ask why. All of it only reads."""

    def guards(self) -> Sequence[GuardLine]:
        """Return the guards in order."""
        ...

    def explain(self, origin: str, call: Call, user: str) -> Explanation:
        """Return what would happen to a call now."""
        ...

    def explain_draft(self, draft: str, origin: str, call: Call, user: str) -> DraftExplanation:
        """Return what would happen with a draft; raise a `RemitError` that lists all errors of the draft."""
        ...

    def advise(self, why: Fault, request: Request) -> Sequence[Advice]:
        """Return the settings that decided about a refused request, the most likely to change first."""
        ...

    def rule_of(self, request: Request, question: str) -> DeciderRule | None:
        """Return the rule that asked a question; None: it was no rule of the file."""
        ...

    def text(self) -> TeamText | None:
        """Return the team file without anything that looks like a secret; None if there is none."""
        ...


class PlainPolicy:
    """The policy of a hub that a Python program made: it has guards and limits, and no team file."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub

    def guards(self) -> Sequence[GuardLine]:
        from remit_server.documents.explaining import guard_lines  # loaded when somebody asks

        return guard_lines(self._hub.settings.guards)

    def explain(self, origin: str, call: Call, user: str) -> Explanation:
        from remit_server.documents.explaining import explanation

        return explanation(self._hub, origin, call, user)

    def explain_draft(self, draft: str, origin: str, call: Call, user: str) -> DraftExplanation:  # noqa: ARG002 - the shape of all
        why = "this hub has no team file, so a draft of one cannot be compared with it"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion="Leave out `draft`."))

    def advise(self, why: Fault, request: Request) -> Sequence[Advice]:  # noqa: ARG002 - the shape of all
        return ()

    def rule_of(self, request: Request, question: str) -> DeciderRule | None:  # noqa: ARG002 - the shape of all
        return None

    def text(self) -> TeamText | None:
        return None
