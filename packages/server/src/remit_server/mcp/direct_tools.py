"""Agents as MCP tools of their own: each takes the input of a capability, by the capability's own schema."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from remit.protocol.card import Capability
from remit.protocol.envelope import Json
from remit.protocol.remit import Name
from remit.runtime.schemas import schema_for_models
from remit_server.documents.api_values import PublicCard
from remit_server.mcp.arguments import FORMS, DelegateTask, read_arguments
from remit_server.mcp.host_delegations import EVERYONE, McpOffer

# Hosts and their models accept letters, digits, `_` and `-` in the name of a tool, and at most 64 of them.
LONGEST_NAME = 64
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


class AskDirectly(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of an agent whose input is not an object with a schema."""

    task: Annotated[
        str, Meta(min_length=1, description="What it should do, in full: it sees nothing of this conversation.")
    ]
    input: Annotated[Json, Meta(description="Data for the task, if there is any: any JSON value.")] = None
    session: Annotated[
        Name | None, Meta(description="The session of an earlier answer, to go on with that conversation.")
    ] = None


class DirectTool(Struct, frozen=True, kw_only=True):
    """A tool that asks one agent, for one of its capabilities if it has any."""

    name: str
    agent: str
    capability: str | None
    description: str
    input_schema: dict[str, Any]
    takes_input: bool
    """Whether the arguments are the input of the capability; if not, they are an `AskDirectly`."""
    reads_only: bool

    def task_of(self, arguments: dict[str, Any] | None) -> DelegateTask:
        """Return a call of this tool as a task for its agent, or raise a `RemitError` that names what is wrong.

        Arguments that are an input are checked by the hub, like the input of every request.
        """
        if self.takes_input:
            return DelegateTask(
                agent=self.agent, task=self.description, input=arguments or {}, capability=self.capability
            )
        parsed = read_arguments(arguments, AskDirectly)
        return DelegateTask(
            agent=self.agent, task=parsed.task, input=parsed.input, session=parsed.session, capability=self.capability
        )


def direct_tools(cards: Iterable[PublicCard], offer: McpOffer) -> dict[str, DirectTool]:
    """Return the tools of the offered agents, by name.

    An agent with several capabilities has a tool for each. A name that is already taken is not given twice, and an
    agent of just that name has it before others.
    """
    taken = {form.name for form in FORMS}
    offered = [card for card in cards if card.name in offer.tools or EVERYONE in offer.tools]
    tools = [tool for card in offered for tool in _tools_of(card) if tool.name not in taken]
    own = {tool.name: tool.agent for tool in tools if tool.agent == tool.name}
    by_name: dict[str, DirectTool] = {}
    for tool in tools:
        if own.get(tool.name, tool.agent) == tool.agent:
            by_name.setdefault(tool.name, tool)
    return by_name


def _tools_of(card: PublicCard) -> Sequence[DirectTool]:
    match card.capabilities:
        case ():
            return (_tool(card.name, card, None),)
        case (only,):
            return (_tool(card.name, card, only),)
        case several:
            return [_tool(f"{card.name}_{each.code}", card, each) for each in several]


def _tool(name: str, card: PublicCard, capability: Capability | None) -> DirectTool:
    about = card.description if capability is None else capability.description or card.description
    schema = None if capability is None else capability.input_schema
    takes_input = schema is not None and schema.get("type") == "object"  # MCP allows no other type of arguments
    return DirectTool(
        name=_FOREIGN.sub("_", name)[:LONGEST_NAME],
        agent=card.name,
        capability=None if capability is None else capability.code,
        description=" ".join(about.split()) or f"Ask {card.name}.",
        input_schema=schema if takes_input and schema is not None else schema_for_models(AskDirectly),
        takes_input=takes_input,
        reads_only=capability is not None and capability.read_only,
    )
