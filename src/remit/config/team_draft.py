"""A draft of a team file beside the present team: which of its limits, rules and permissions would change a verdict."""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from remit.config.composition import differences, guards_of, option_of
from remit.config.load import load_team
from remit.config.sections.agents import AgentSection, CapabilitySection
from remit.config.team import Team
from remit.config.values import in_code
from remit.protocol.card import AgentCard, Capability
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.engine import Engine
from remit.runtime.preview import TeamChange

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
