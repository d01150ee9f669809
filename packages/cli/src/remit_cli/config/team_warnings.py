"""Warnings about valid parts of a team file that may not do what the author meant."""

from collections.abc import Iterator, Mapping

from remit.policy.withheld import can_be_used, fields_asking, key_to_add
from remit.protocol.card import AgentCard, Sees, ToolCard
from remit.protocol.problems import WrongPart, did_you_mean
from remit_cli.config.code import parameters_of
from remit_cli.config.peers import unencrypted
from remit_cli.config.team import Team, TeamFile
from remit_cli.config.team_section import sections
from remit_redaction.pipeline import KINDS


def warnings_about(team: TeamFile, tools: Mapping[str, ToolCard] | None = None) -> Iterator[WrongPart]:
    """Return warnings; *tools* are those of the team's hub, or those that the source shows."""
    yield from unencrypted(team)
    yield from _unused_prices(team)
    if team.redaction.enabled:
        yield from _blind_tools(team, tools or {})
        yield from _blind_capabilities(team, tools or {})


def _unused_prices(team: TeamFile) -> Iterator[WrongPart]:
    """Warn about prices of models whose names are nearly those of the team's models: they are probably mistyped."""
    section = team.orchestrator
    named = [each.model or each.priced_as for each in team.agents.values()]
    named += [] if section is None else [section.model]
    used = {model for model in named if model is not None}
    known = used | {model.partition(":")[2] or model for model in used}
    for model in team.prices.keys() - known:
        if near := did_you_mean(model, sorted(known)):
            yield WrongPart(("prices", model), f"no agent of the team has this model{near}")


def tools_in_source(team: Team) -> dict[str, ToolCard]:
    """Return the tools of a team with the parameters in the source of their functions; nothing is imported."""
    return {
        name: ToolCard(
            name=name,
            input_schema={
                "properties": {
                    parameter: {"type": "boolean"} if kind == "bool" else {}
                    for parameter, kind in parameters_of(tool.run, team.folder).items()
                }
            },
            sees=tool.sees,
        )
        for name, tool in team.tools.items()
    }


def _blind_tools(team: TeamFile, tools: Mapping[str, ToolCard]) -> Iterator[WrongPart]:
    """Warn about tools with a parameter for a value that they will not see."""
    for name, section in team.tools.items():
        if section.sees or name not in tools:
            continue
        users = [agent for agent in team.agents.values() if name in agent.tools]
        for field, kind in fields_asking(tools[name].input_schema).items():
            if _is_found(team, kind) and not (users and all(kind in agent.sees for agent in users)):
                yield WrongPart(("tools", name), _caution_text("the tool", field, kind, key_to_add("tool", name, kind)))


def _blind_capabilities(team: TeamFile, tools: Mapping[str, ToolCard]) -> Iterator[WrongPart]:
    """Warn about capabilities with such a field, if no agent that has them can use a placeholder."""
    cards = _cards(team)
    known = {**_tools_of(team), **tools}
    for code, capability in team.capabilities.items():
        if not isinstance(capability.input_schema, dict):
            continue
        offering = [card for card in cards if code in team.agents[card.name].capabilities]
        for field, kind in fields_asking(capability.input_schema).items():
            if kind in capability.sees or field in capability.sees_fields or not _is_found(team, kind):
                continue
            if any(kind not in card.sees and not can_be_used(kind, card, cards, known) for card in offering):
                key = key_to_add("capability", code, kind)
                yield WrongPart(
                    ("capabilities", code), _caution_text("the agent that is asked for it", field, kind, key)
                )


def _caution_text(who: str, field: str, kind: str, key: str) -> str:
    return (
        f"`{field}` asks for a value of the kind {kind}, and {who} gets a token, because redaction is on. "
        f"If it needs the value, let it see that kind: {key}"
    )


def _is_found(team: TeamFile, kind: str) -> bool:
    looked_for = KINDS if team.redaction.kinds is None else team.redaction.kinds
    return kind in looked_for or kind in team.redaction.patterns


def _cards(team: TeamFile) -> list[AgentCard]:
    """Return the agents' cards as far as they are known without importing code."""
    return [
        AgentCard(
            name=name,
            tools=agent.tools,
            may_call=agent.may_call,
            allow_sub_agent_calls=agent.allow_sub_agent_calls,
            sees=agent.sees,
            capabilities=tuple(
                team.capabilities[code].capability(code) for code in agent.capabilities if code in team.capabilities
            ),
        )
        for name, agent in team.agents.items()
    ]


def _tools_of(team: TeamFile) -> dict[str, ToolCard]:
    """Return the kinds of personal data that each tool sees, as in the file."""
    seen: dict[str, Sees] = {name: tool.sees for name, tool in team.tools.items()}
    for each in sections():
        seen |= each.tools_see(team)
    return {name: ToolCard(name=name, input_schema={}, sees=sees) for name, sees in seen.items()}
