"""A team's policy for its server: calls explained, refusals with the line that decides, drafts compared."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from remit.protocol.card import AgentCard, Capability
from remit.protocol.codec import text_of
from remit.protocol.envelope import Call, Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.engine import Engine
from remit.runtime.preview import TeamChange
from remit_cli.config.checks import without_secrets
from remit_cli.config.composition import PresentTeam, differences, guards_of, option_of
from remit_cli.config.line_numbers import Place, dotted, value_at
from remit_cli.config.load import load_team, parse_text, read_text
from remit_cli.config.refusal_advice import GoverningKey, RefusedCase, governing_keys
from remit_cli.config.rules import matching_rule, question_of
from remit_cli.config.sections.agents import AgentSection, CapabilitySection
from remit_cli.config.team import Team
from remit_cli.config.values import in_code
from remit_server.delegation_views import Advice
from remit_server.documents.api_values import DeciderRule
from remit_server.documents.verdicts import Approving, Explanation, GuardLine, explanation, guard_lines
from remit_server.policy_endpoints import DraftExplanation, TeamText

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


# What of a draft counts: these sections, and these keys of agents and capabilities that the hub has.
_SECTIONS = ("limits", "budgets", "breaker", "rules", "approvals")
_OF_AGENTS = (
    *("may_call", "allow_sub_agent_calls", "max_sub_agent_depth", "recursive", "authority"),
    *("rate", "time", "tokens", "draws", "tools", "sees"),
)
_OF_CAPABILITIES = ("time", "tokens", "read_only", "sees", "sees_fields")


class TeamDraft(NamedTuple):
    """A draft that was read, and how it differs from the present team."""

    team: Team
    """The present team with everything of the draft that counts."""
    change: TeamChange
    considered: tuple[str, ...]
    ignored: tuple[str, ...]


def read_draft(hub: Engine, team: Team, text: str, environ: Mapping[str, str] = os.environ) -> TeamDraft:
    """Return a draft, or raise a `RemitError` that lists its errors as `remit validate` does.

    No code that it names is imported, and no file is opened.
    """
    try:
        new = load_team(
            team.file,
            overrides=team.overrides,
            environ=environ,
            secrets=False,
            serving=False,
            code=False,
            draft=text,
        )
    except RemitError as error:
        why = error.fault
        message = f"the draft of {team.file.name} is invalid"
        how = "Correct the lines that are named; the present team was not changed."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=why.problems, suggestion=how)) from error
    now = _considered(team, new)
    change = TeamChange(now.settled_limits(), [*_cards(hub, team, now)], guards_of(now))
    return TeamDraft(now, change, differences(team, now), differences(now, new))


def _considered(old: Team, new: Team) -> Team:
    known = old.agents.keys() | old.workflows.keys() | {"*"}
    agents: dict[str, AgentSection] = dict(old.agents)
    for name in old.agents.keys() & new.agents.keys():
        changes = {key: getattr(new.agents[name], key) for key in _OF_AGENTS}
        changes["may_call"] &= known
        agents[name] = replace(old.agents[name], **changes)
    capabilities: dict[str, CapabilitySection] = dict(old.capabilities)
    for code in old.capabilities.keys() & new.capabilities.keys():
        changes = {key: getattr(new.capabilities[code], key) for key in _OF_CAPABILITIES}
        capabilities[code] = replace(old.capabilities[code], **changes)
    sections = {section: getattr(new, section) for section in _SECTIONS}
    return replace(old, agents=agents, capabilities=capabilities, **sections)


def _cards(hub: Engine, old: Team, now: Team) -> Iterator[AgentCard]:
    """Yield the cards that differ from those of the hub."""
    tools = frozenset(hub.tool_cards)
    for name, card in hub.cards.items():
        capabilities = tuple(_capability(each, old, now) for each in card.capabilities)
        changed = replace(card, capabilities=capabilities)
        agent = now.agents.get(name)
        if agent is not None and agent != old.agents[name]:
            said = in_code(agent, map(option_of, _OF_AGENTS))
            said["tools"] &= tools
            changed = replace(changed, **said)
        if changed != card:
            yield changed


def _capability(offered: Capability, old: Team, now: Team) -> Capability:
    section = now.capabilities.get(offered.code)
    if section is None or section == old.capabilities[offered.code]:
        return offered
    return replace(offered, **in_code(section, map(option_of, _OF_CAPABILITIES)))
