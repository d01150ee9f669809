"""Resources for an MCP host: the runs of its user, their answers, and what the audit log has of them."""

import re
from urllib.parse import quote, unquote

import mcp_types as types
from mcp import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from remit.protocol.codec import encode, text_of
from remit.protocol.errors import RemitError
from remit.protocol.records import outward
from remit.runtime.ports import RunSummary
from remit_server.documents.runs import record_line
from remit_server.mcp import arguments
from remit_server.mcp.artifact_blocks import RUNS, artifact_contents
from remit_server.mcp.host_delegations import Caller, HostDelegations

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
        found = [
            types.Resource(name="runs", title="Runs", uri=RUNS, description="The newest delegations.", mime_type=_JSON)
        ]
        for run in await self._delegations.newest(caller):
            uri, title = f"{RUNS}/{quote(run.run, safe='')}", f"{run.agent}: {run.objective[:100]}"
            found.append(types.Resource(name=run.run, title=title, uri=uri, mime_type=_JSON))
            if run.response is not None and run.response.ok:
                answer = types.Resource(name=f"{run.run}/answer", title=f"{title} (answer)", uri=f"{uri}/answer")
                found.append(answer)
            found.append(
                types.Resource(
                    name=f"{run.run}/audit", title=f"{title} (audit log)", uri=f"{uri}/audit", mime_type=_LINES
                )
            )
        return found

    async def read(
        self, uri: str, caller: Caller, version: str
    ) -> types.TextResourceContents | types.BlobResourceContents:
        """Return a resource, or raise an `MCPError` if the caller may not see it or it does not exist."""
        if uri == RUNS:
            runs = await self._delegations.newest(caller)
            asked = await self._delegations.questions_of([each.run for each in runs if each.response is None])
            return _contents(uri, _JSON, encode(arguments.delegations_result(runs, asked).data).decode())
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
        found = _URI.fullmatch(uri)
        try:
            if found is None:
                raise _missing(uri, version)
            return await self._delegations.find(unquote(found[1]), caller)
        except RemitError as error:
            raise _missing(uri, version) from error

    async def _state(self, summary: RunSummary, caller: Caller) -> arguments.McpToolResult:
        if (response := await self._delegations.outcome(summary, caller)) is not None:
            return arguments.ended_result(response)
        if found := await self._delegations.questions(summary.run):
            return arguments.waiting(summary.run, summary.agent, found[0])
        return arguments.under_way(summary.run, summary.agent)

    async def _audit(self, summary: RunSummary) -> str:
        records = await self._delegations.records(summary.run, MOST_RECORDS)
        return "".join(f"{encode(record_line(outward(each))).decode()}\n" for each in records)


def _contents(uri: str, kind: str, text: str) -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, mime_type=kind, text=text)


def _missing(uri: str, version: str) -> MCPError:
    code = types.INVALID_PARAMS if version in MODERN_PROTOCOL_VERSIONS else _NO_RESOURCE
    return MCPError(code, "no such resource", {"uri": uri[:300]})
