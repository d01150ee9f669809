"""A team's policy for its server: calls explained, refusals with the line that decides, drafts compared."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from remit.config.checks import without_secrets
from remit.config.composition import PresentTeam
from remit.config.line_numbers import Place, dotted, value_at
from remit.config.load import parse_text, read_text
from remit.config.refusal_advice import GoverningKey, RefusedCase, governing_keys
from remit.config.team import Team
from remit.config.team_draft import read_draft
from remit.documents.api_approvals import DeciderRule
from remit.documents.explaining import Approving, explanation, guard_lines
from remit.documents.policy import Explanation, GuardLine
from remit.policy.rules import matching_rule, question_of
from remit.protocol.codec import text_of
from remit.protocol.envelope import Call, Request
from remit.protocol.errors import Fault, RemitError
from remit.runtime.engine import Engine
from remit.server.delegation_views import Advice
from remit.server.team_policy import DraftExplanation, TeamText

# A longer value is looked up in the file.
_LONGEST_VALUE = 200


class FileTeamPolicy:
    """The policy of a hub that was made from a team file; see `TeamPolicy`."""

    def __init__(self, hub: Engine, present: PresentTeam, environ: Mapping[str, str] = os.environ) -> None:
        self._hub = hub
        self._environ = environ
        self._present = present

    @property
    def team(self) -> Team:
        return self._present.team

    def guards(self) -> Sequence[GuardLine]:
        """Return the guards in order."""
        return guard_lines(self._hub.settings.guards)

    def explain(self, origin: str, call: Call, user: str) -> Explanation:
        """Return what would happen to a call now; rates and breakers are those of this moment."""
        return explanation(self._hub, origin, call, user, approving=_approving(self.team))

    def explain_draft(self, draft: str, origin: str, call: Call, user: str) -> DraftExplanation:
        """Return what would happen with a draft; raise a `RemitError` that lists all errors of the draft."""
        read = read_draft(self._hub, self.team, draft, self._environ)
        then = explanation(self._hub, origin, call, user, approving=_approving(read.team), change=read.change)
        return DraftExplanation(explanation=then, considered=read.considered, ignored=read.ignored)

    def advise(self, why: Fault, request: Request) -> Sequence[Advice]:
        """Return the settings that decided about a refused request, the most likely to change first."""
        keys = governing_keys(RefusedCase(why, request, self.team))
        if not keys:
            return ()
        lines = self._lines()
        return [self._advice(each, lines) for each in keys]

    def rule_of(self, request: Request, question: str) -> DeciderRule | None:
        """Return the rule that asked a question; None: it was no rule of the file."""
        place = matching_rule(self.team.rules, request)
        if place is None:
            return None
        rule = self.team.rules[place]
        if rule.then != "ask" or question_of(rule, request) != question:
            return None
        line = self._lines().get(("rules", place))
        return DeciderRule(number=place + 1, then=rule.then, file=self.team.file.name, line=line)

    def text(self) -> TeamText | None:
        """Return the team file without anything that looks like a secret."""
        try:
            return TeamText(file=self.team.file.name, text=without_secrets(read_text(self.team.file)))
        except RemitError:
            return None

    def _lines(self) -> dict[Place, int]:
        """Return the lines of the keys in the file as it is now; none if it cannot be read."""
        try:
            _, lines = parse_text(read_text(self.team.file), self.team.file)
        except RemitError:
            return {}
        return lines.of

    def _advice(self, key: GoverningKey, lines: Mapping[Place, int]) -> Advice:
        place, file = key.place, self.team.file.name
        nearest = next((place[:end] for end in range(len(place), 0, -1) if place[:end] in lines), None)
        value = value_at(msgspec.to_builtins(self.team, enc_hook=str), place)
        shown = "" if value is None or isinstance(value, dict) else text_of(value)
        return Advice(
            key=dotted(place),
            says=key.says,
            file=file,
            line=None if nearest is None else lines[nearest],
            is_set=nearest == place,
            value=shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}…",
        )


def _approving(team: Team) -> Approving:
    return Approving(team.approvals.allow, team.approvals.otherwise)
