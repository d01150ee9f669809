"""The agents and tools of a hub."""

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from remit.ports.agents import RegisteredAgent, Tool
from remit.ports.brief import Agent
from remit.ports.remote import OtherHubs, Remote
from remit.protocol.card import AgentCard, ToolCard
from remit.protocol.codec import checked
from remit.protocol.envelope import USER
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import LONGEST_NAME

# Names stand in chains (`agent@hub`), logs and addresses, so they hold nothing that needs quoting there.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Registry:
    """The agents and tools of one hub, by name."""

    def __init__(self, hub: str) -> None:
        if not NAME.fullmatch(hub):
            raise team_invalid(f"`{hub}` cannot be a hub's name: use letters, digits, `-`, `_` and `.`")
        self.hub = hub
        self.agents: dict[str, RegisteredAgent] = {}
        self.tools: dict[str, Tool] = {}
        self.other_hubs: OtherHubs | None = None
        """The hubs that share the store of this one; None: there are none."""

    def add(self, card: AgentCard, agent: Agent | Remote) -> None:
        """Register an agent under its card's name."""
        if not isinstance(card.name, str) or not NAME.fullmatch(card.name) or card.name == USER:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise team_invalid(
                f"`{card.name}` cannot be an agent's name: use letters, digits, `-`, `_` and `.`, and not `{USER}`"
            )
        if card.name in self.agents:
            raise team_invalid(f"there are two agents named `{card.name}`")
        address = f"{card.name}@{self.hub}"
        if len(address) > LONGEST_NAME:
            raise team_invalid(f"`{address}` is too long: use at most {LONGEST_NAME} characters for agent and hub")
        self.agents[card.name] = RegisteredAgent(_check_card(card), agent, address)

    def elsewhere(self, entry: RegisteredAgent) -> RegisteredAgent | None:
        """Return an agent of this hub as a call of it that was sent to other hubs needs it; None: there are no others.

        A request that is sent there again is not executed twice.
        """
        if self.other_hubs is None or isinstance(entry.agent, Remote):
            return None
        return entry._replace(card=replace(entry.card, resumable=True), agent=self.other_hubs.agent(entry.card.name))

    def cards(self) -> Iterator[AgentCard]:
        """Yield the cards of all agents."""
        return (entry.card for entry in self.agents.values())

    def replace(self, cards: Iterable[AgentCard]) -> None:
        """Replace the cards of the same names, all of them or none."""
        fresh = {card.name: _check_card(card) for card in cards}
        if missing := sorted(fresh.keys() - self.agents.keys()):
            raise team_invalid(f"there is no agent `{missing[0]}` whose card could be replaced")
        agents = self.agents | {name: self.agents[name]._replace(card=card) for name, card in fresh.items()}
        _refuse_missing(agents, self.tools)
        self.agents.update(agents)

    def describe(self, card: AgentCard) -> None:
        """Replace an agent's card before the team is complete."""
        self.agents[card.name] = self.agents[card.name]._replace(card=_check_card(card))

    def add_tool(self, tool: Tool) -> None:
        """Register a tool under its card's name."""
        if not NAME.fullmatch(tool.card.name):
            raise team_invalid(f"`{tool.card.name}` cannot be a tool's name: use letters, digits, `-`, `_` and `.`")
        if tool.card.name in self.tools:
            raise team_invalid(f"there are two tools named `{tool.card.name}`")
        self.tools[tool.card.name] = tool

    def describe_tool(self, card: ToolCard) -> None:
        """Replace a tool's card."""
        self.tools[card.name] = self.tools[card.name]._replace(card=card)

    def offering(self, capability: str) -> list[RegisteredAgent]:
        """Return the agents that offer a capability, in order of registration."""
        return [entry for entry in self.agents.values() if entry.card.capability(capability)]

    def check(self) -> None:
        """Refuse a team that names unknown agents or tools; report all of them at once."""
        _refuse_missing(self.agents, self.tools)


def _refuse_missing(agents: dict[str, RegisteredAgent], tools: dict[str, Tool]) -> None:
    problems = [
        Problem(f"{name}.{field}", f"there is no {kind} `{missing}`{did_you_mean(missing, known)}")
        for name, entry in agents.items()
        for field, kind, named, known in (
            ("may_call", "agent", entry.card.may_call - {"*"}, agents.keys()),
            ("tools", "tool", entry.card.tools, tools.keys()),
        )
        for missing in sorted(named - known)
    ]
    if problems:
        raise RemitError(fault(Code.TEAM_INVALID, "the team names unknown agents or tools", problems=tuple(problems)))


def _check_card(card: AgentCard) -> AgentCard:
    try:
        copy = checked(card)
    except RemitError as error:
        problems = tuple(Problem(each.path.replace("$", card.name, 1), each.message) for each in error.fault.problems)
        raise _not_valid(card, problems) from error
    contradictions = tuple(
        Problem(f"{card.name}.capabilities[{place}].{field}", message)
        for place, capability in enumerate(copy.capabilities)
        for field, message in capability.contradictions().items()
    )
    if contradictions:
        raise _not_valid(card, contradictions)
    return copy


def _not_valid(card: AgentCard, problems: tuple[Problem, ...]) -> RemitError:
    message = f"the card of agent `{card.name}` is not valid: {', '.join(each.path for each in problems)}"
    return RemitError(fault(Code.TEAM_INVALID, message, problems=problems))


def team_invalid(message: str) -> RemitError:
    """Return the error for an inconsistent team."""
    return RemitError(fault(Code.TEAM_INVALID, message))
