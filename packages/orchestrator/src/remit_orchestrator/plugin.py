"""What the orchestrator brings to the core and to the `remit` command, as a plugin."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from remit.plugin import CommandSpec

if TYPE_CHECKING:
    from remit.hub.hub import Hub
    from remit.ports.brief import Agent
    from remit.protocol.card import AgentCard
    from remit_orchestrator.rule_reader import RuleReader


def routed_agent(hub: "Hub", card: "AgentCard", agent: "Agent") -> "Agent":
    """Return an agent that hands requests to others where that is better."""
    from remit_orchestrator.adding import routed

    return routed(hub, card, agent)


def sections() -> list[str]:
    """Return what is done with the orchestrator and the workflows of a team file."""
    return ["remit_orchestrator.section:ORCHESTRATION"]


def commands() -> Mapping[str, Mapping[str, CommandSpec]]:
    """Return the commands about the examples of capabilities."""
    line = "Check the examples of capabilities, and add more."
    return {"Decide": {"intents": CommandSpec("remit_orchestrator.commands.intents:intents", line)}}


def text_reader() -> "RuleReader":
    """Return what reads texts."""
    from remit_orchestrator.rule_reader import RuleReader

    return RuleReader()


def extensions() -> Mapping[str, str]:
    """Return what advises whether an agent should delegate a request."""
    return {"policy explain": "remit_orchestrator.commands.placing:placed"}
