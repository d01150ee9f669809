"""Prompts for an MCP host: one for each capability that its user may ask for, with completion of their arguments."""

from collections.abc import Iterable
from urllib.parse import quote

import mcp_types as types
from mcp import MCPError

from remit.protocol.codec import text_of
from remit_server.documents.api_delegations import PublicCard
from remit_server.mcp.artifact_blocks import RUNS

# The protocol allows no more values in one completion.
MOST_VALUES = 100
# The prompt for any agent; an agent of that name has prompts for its capabilities alone.
ANY_AGENT = "delegate"
ATTACH = "attach"
"""The argument of every prompt that names a resource, whose content is part of the prompt."""

_TASK = types.PromptArgument(name="task", description="What it should do, in full.", required=False)
_ATTACH = types.PromptArgument(
    name=ATTACH,
    description="The address of a resource to attach, such as the answer of an earlier run.",
    required=False,
)


def _name(card: PublicCard, code: str) -> str:
    return f"{card.name}.{code}"


def prompts(cards: Iterable[PublicCard]) -> list[types.Prompt]:
    """Return the prompts: one for any agent, then one for each agent and each capability."""
    found = [
        types.Prompt(
            name=ANY_AGENT,
            title="Ask an agent",
            description="Ask an agent to do a task.",
            arguments=[
                types.PromptArgument(name="agent", description="The agent to ask.", required=True),
                types.PromptArgument(name="capability", description="One of its capabilities.", required=False),
                _TASK,
                _ATTACH,
            ],
        )
    ]
    for card in cards:
        if card.name != ANY_AGENT:
            about = " ".join(card.description.split()) or f"Ask {card.name} to do a task."
            found.append(types.Prompt(name=card.name, title=card.name, description=about, arguments=[_TASK, _ATTACH]))
        for each in card.capabilities:
            about = " ".join(each.description.split()) or f"Ask {card.name} for {each.code}."
            title = f"{card.name}: {each.code}"
            found.append(
                types.Prompt(name=_name(card, each.code), title=title, description=about, arguments=[_TASK, _ATTACH])
            )
    return found


def prompt(
    cards: Iterable[PublicCard], name: str, given: dict[str, str], attached: types.ContentBlock | None = None
) -> types.GetPromptResult:
    """Return one prompt with its arguments filled in, and what is attached to it; or raise an `MCPError`."""
    known = {card.name: card for card in cards}
    agent, capability = name, given.get("capability")
    if name == ANY_AGENT:
        agent = given.get("agent", "")
    else:
        capability = None
        for card in known.values():
            for each in card.capabilities:
                if _name(card, each.code) == name:
                    agent, capability = card.name, each.code
    card = known.get(agent)
    codes = () if card is None else tuple(each.code for each in card.capabilities)
    if card is None or (capability is not None and capability not in codes):
        what = "agent or capability" if name == ANY_AGENT else "prompt"
        raise MCPError(types.INVALID_PARAMS, f"no such {what}: see prompts/list and the tool list_agents")
    request = types.TextContent(type="text", text=_request(card, capability, given))
    return types.GetPromptResult(
        description=card.description or None,
        messages=[types.PromptMessage(role="user", content=each) for each in (attached, request) if each is not None],
    )


def attachment(contents: types.TextResourceContents | types.BlobResourceContents) -> types.ContentBlock:
    """Return a resource as a part of a prompt: what a model can look at or listen to as such, all else as it is."""
    kind = contents.mime_type or ""
    if isinstance(contents, types.BlobResourceContents):
        if kind.startswith("image/"):
            return types.ImageContent(type="image", data=contents.blob, mime_type=kind)
        if kind.startswith("audio/"):
            return types.AudioContent(type="audio", data=contents.blob, mime_type=kind)
    return types.EmbeddedResource(type="resource", resource=contents)


def _request(card: PublicCard, code: str | None, given: dict[str, str]) -> str:
    """Return the request that the user makes to the model of the host."""
    said = {name: value for name, value in given.items() if name not in ("agent", "capability", "task", ATTACH)}
    task = given.get("task", "").strip()
    with_code = "" if code is None else f" and capability `{code}`"
    lines = [f"Use the tool delegate_task with agent `{card.name}`{with_code}."]
    schema = next((each.input_schema for each in card.capabilities if each.code == code), None)
    if schema is not None:
        lines.append(f"Its `input` must fit this JSON schema: {text_of(schema)}")
    lines += [f"{name}: {value}" for name, value in said.items()]
    lines.append(f"The task: {task}" if task else "Ask me for the task first, unless it follows from our conversation.")
    return "\n\n".join(lines)


# ── completion ────────────────────────────────────────────────────────────────────────────────────────────────────────


def complete(cards: Iterable[PublicCard], runs: Iterable[str], params: types.CompleteRequestParams) -> types.Completion:
    """Return the values of an argument that begin as the user typed it; *runs* are ids for the resources of runs."""
    known = {card.name: card for card in cards}
    context = (params.context.arguments if params.context else None) or {}
    values = _values(known, runs, params.ref, params.argument.name, context)
    typed = params.argument.value.casefold()
    found = [each for each in dict.fromkeys(values) if each.casefold().startswith(typed)]
    return types.Completion(values=found[:MOST_VALUES], total=len(found), has_more=len(found) > MOST_VALUES)


def _values(
    known: dict[str, PublicCard],
    runs: Iterable[str],
    ref: types.PromptReference | types.ResourceTemplateReference,
    argument: str,
    context: dict[str, str],
) -> Iterable[str]:
    if isinstance(ref, types.ResourceTemplateReference):
        return runs if argument == "run" else ()
    agent = context.get("agent") if ref.name == ANY_AGENT else ref.name
    match argument:
        case "agent" if ref.name == ANY_AGENT:
            return known
        case "capability" if ref.name == ANY_AGENT:
            cards = [known[agent]] if agent in known else known.values()
            return [each.code for card in cards for each in card.capabilities]
        case "attach":
            return [f"{RUNS}/{quote(each, safe='')}/answer" for each in runs]
        case "task":
            return [
                example
                for card in known.values()
                for each in card.capabilities
                if agent in (card.name, _name(card, each.code), None)
                for example in each.examples
            ]
        case _:
            return ()
