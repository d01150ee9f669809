"""What an MCP host can read and offer its user: runs as resources, artifacts as content, capabilities as prompts."""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import quote, unquote

import mcp_types as types
from mcp import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from remit.ports import RunSummary
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import Artifact
from remit.protocol.errors import RemitError
from remit.protocol.files import File
from remit.protocol.records import outward
from remit_server.documents.api_values import PublicCard
from remit_server.documents.runs import record_line
from remit_server.mcp import arguments
from remit_server.mcp.host_delegations import Caller, HostDelegations


def file_block(file: File) -> types.ContentBlock:
    """Return a file as a content block: an image, a sound, a link, or an embedded resource."""
    if file.data is None:
        return types.ResourceLink(type="resource_link", name=file.name, uri=file.url or "", mime_type=file.media_type)
    packed = base64.b64encode(file.data).decode()
    match file.media_type.lower().partition("/")[0]:
        # A picture that is text, SVG, is not what hosts show as an image.
        case "image" if file.text is None:
            return types.ImageContent(type="image", data=packed, mime_type=file.media_type)
        case "audio":
            return types.AudioContent(type="audio", data=packed, mime_type=file.media_type)
        case _:
            pass
    uri = f"file:///{quote(file.name)}"
    text = file.text
    if text is None:
        blob = types.BlobResourceContents(uri=uri, blob=packed, mime_type=file.media_type)
        return types.EmbeddedResource(type="resource", resource=blob)
    whole = types.TextResourceContents(uri=uri, text=text, mime_type=file.media_type)
    return types.EmbeddedResource(type="resource", resource=whole)


RUNS = "remit://runs"
_BYTES = "application/octet-stream"


def uri_of(run: str, number: int) -> str:
    """Return the address of an artifact as a resource."""
    return f"{RUNS}/{quote(run, safe='')}/artifacts/{number}"


def artifact_block(run: str, number: int, artifact: Artifact) -> types.ContentBlock:
    """Return an artifact as a host shows it."""
    if artifact.type == "url" and isinstance(artifact.value, str):
        return types.ResourceLink(type="resource_link", name=artifact.label or artifact.value, uri=artifact.value)
    contents = artifact_contents(uri_of(run, number), artifact)
    if isinstance(contents, types.BlobResourceContents):
        kind = contents.mime_type or _BYTES
        if kind.startswith("image/"):
            return types.ImageContent(type="image", data=contents.blob, mime_type=kind)
        if kind.startswith("audio/"):
            return types.AudioContent(type="audio", data=contents.blob, mime_type=kind)
    return types.EmbeddedResource(type="resource", resource=contents)


def artifact_contents(uri: str, artifact: Artifact) -> types.TextResourceContents | types.BlobResourceContents:
    """Return an artifact as a resource: the bytes of a file, or JSON."""
    value: Any = artifact.value
    if artifact.type == "file" and isinstance(value, dict):
        # As agents that speak A2A send files: `raw` in Base64, `mediaType`, `filename`.
        given = cast("dict[str, Any]", value)
        raw, kind = given.get("raw"), given.get("mediaType")
        if isinstance(raw, str) and _is_base64(raw):
            kind = kind if isinstance(kind, str) and kind else _BYTES
            return types.BlobResourceContents(uri=uri, mime_type=kind, blob=raw)
    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text_of(value))


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


_JSON, _TEXT, _LINES = "application/json", "text/plain", "application/jsonl"
# What the versions before 2026-07-28 say of a resource that is not there.
_NO_RESOURCE = -32002
_URI = re.compile(r"remit://runs/([^/]{1,300})(?:/(answer|audit|artifacts/([0-9]{1,6})))?")
# A page of the audit log; the rest is read over HTTP.
MOST_RECORDS = 1_000

TEMPLATES = (
    types.ResourceTemplate(
        name="run",
        title="A run",
        uri_template=f"{RUNS}/{{run}}",
        description="The state of a delegation, and its outcome once it ended.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="answer",
        title="The answer of a run",
        uri_template=f"{RUNS}/{{run}}/answer",
        description="What the agent answered: a text, or data as JSON.",
    ),
    types.ResourceTemplate(
        name="artifact",
        title="An artifact of a run",
        uri_template=f"{RUNS}/{{run}}/artifacts/{{number}}",
        description="What belongs to the answer besides its text, counted from 0: the bytes of a file, or JSON.",
    ),
    types.ResourceTemplate(
        name="audit",
        title="The audit log of a run",
        uri_template=f"{RUNS}/{{run}}/audit",
        description="The records of a run, redacted, one JSON object per line.",
        mime_type=_LINES,
    ),
)


class McpResources:
    """What a host may read: everything is of the caller's own user."""

    def __init__(self, delegations: HostDelegations) -> None:
        self._delegations = delegations

    async def listed(self, caller: Caller) -> list[types.Resource]:
        """Return the list of runs, then the newest runs and the answers of those that have one."""
        resources = [
            types.Resource(name="runs", title="Runs", uri=RUNS, description="The newest delegations.", mime_type=_JSON)
        ]
        for run in await self._delegations.newest(caller):
            uri, title = f"{RUNS}/{quote(run.run, safe='')}", f"{run.agent}: {run.objective[:100]}"
            resources.append(types.Resource(name=run.run, title=title, uri=uri, mime_type=_JSON))
            if run.response is not None and run.response.ok:
                answer = types.Resource(name=f"{run.run}/answer", title=f"{title} (answer)", uri=f"{uri}/answer")
                resources.append(answer)
            resources.append(
                types.Resource(
                    name=f"{run.run}/audit", title=f"{title} (audit log)", uri=f"{uri}/audit", mime_type=_LINES
                )
            )
        return resources

    async def read(
        self, uri: str, caller: Caller, version: str
    ) -> types.TextResourceContents | types.BlobResourceContents:
        """Return a resource, or raise an `MCPError` if the caller may not see it or it does not exist."""
        if uri == RUNS:
            runs = await self._delegations.newest(caller)
            questions = await self._delegations.questions_of([each.run for each in runs if each.response is None])
            return _contents(uri, _JSON, encode(arguments.delegations_result(runs, questions).data).decode())
        summary = await self.run_of(uri, caller, version)
        match = _URI.fullmatch(uri)
        assert match is not None, "only the address of a run has one"
        match match[2]:
            case "audit":
                return _contents(uri, _LINES, await self._audit(summary))
            case str() if match[3] is not None:
                response = await self._delegations.outcome(summary, caller)
                artifacts = () if response is None else response.artifacts
                if int(match[3]) >= len(artifacts):
                    raise _missing(uri, version)
                return artifact_contents(uri, artifacts[int(match[3])])
            case "answer":
                response = await self._delegations.outcome(summary, caller)
                if response is None or response.result is None:
                    raise _missing(uri, version)
                kind = _TEXT if isinstance(response.result, str) else _JSON
                return _contents(uri, kind, text_of(response.result))
            case _:
                return _contents(uri, _JSON, encode((await self._state(summary, caller)).data).decode())

    async def run_of(self, uri: str, caller: Caller, version: str) -> RunSummary:
        """Return the run that a resource is about, or raise an `MCPError`."""
        match = _URI.fullmatch(uri)
        try:
            if match is None:
                raise _missing(uri, version)
            return await self._delegations.find(unquote(match[1]), caller)
        except RemitError as error:
            raise _missing(uri, version) from error

    async def _state(self, summary: RunSummary, caller: Caller) -> arguments.McpToolResult:
        if (response := await self._delegations.outcome(summary, caller)) is not None:
            return arguments.ended_result(response)
        if questions := await self._delegations.questions(summary.run):
            return arguments.waiting(summary.run, summary.agent, questions[0])
        return arguments.under_way(summary.run, summary.agent)

    async def _audit(self, summary: RunSummary) -> str:
        records = await self._delegations.records(summary.run, MOST_RECORDS)
        return "".join(f"{encode(record_line(outward(each))).decode()}\n" for each in records)


def _contents(uri: str, kind: str, text: str) -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, mime_type=kind, text=text)


def _missing(uri: str, version: str) -> MCPError:
    code = types.INVALID_PARAMS if version in MODERN_PROTOCOL_VERSIONS else _NO_RESOURCE
    return MCPError(code, "no such resource", {"uri": uri[:300]})


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
    offered = [
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
            offered.append(types.Prompt(name=card.name, title=card.name, description=about, arguments=[_TASK, _ATTACH]))
        for each in card.capabilities:
            about = " ".join(each.description.split()) or f"Ask {card.name} for {each.code}."
            title = f"{card.name}: {each.code}"
            offered.append(
                types.Prompt(name=_name(card, each.code), title=title, description=about, arguments=[_TASK, _ATTACH])
            )
    return offered


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
    fields = {name: value for name, value in given.items() if name not in ("agent", "capability", "task", ATTACH)}
    task = given.get("task", "").strip()
    with_code = "" if code is None else f" and capability `{code}`"
    lines = [f"Use the tool delegate_task with agent `{card.name}`{with_code}."]
    schema = next((each.input_schema for each in card.capabilities if each.code == code), None)
    if schema is not None:
        lines.append(f"Its `input` must fit this JSON schema: {text_of(schema)}")
    lines += [f"{name}: {value}" for name, value in fields.items()]
    lines.append(f"The task: {task}" if task else "Ask me for the task first, unless it follows from our conversation.")
    return "\n\n".join(lines)


# ── completion ────────────────────────────────────────────────────────────────────────────────────────────────────────


def complete(cards: Iterable[PublicCard], runs: Iterable[str], params: types.CompleteRequestParams) -> types.Completion:
    """Return the values of an argument that begin as the user typed it; *runs* are ids for the resources of runs."""
    known = {card.name: card for card in cards}
    context = (params.context.arguments if params.context else None) or {}
    values = _values(known, runs, params.ref, params.argument.name, context)
    typed = params.argument.value.casefold()
    matches = [each for each in dict.fromkeys(values) if each.casefold().startswith(typed)]
    return types.Completion(values=matches[:MOST_VALUES], total=len(matches), has_more=len(matches) > MOST_VALUES)


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
