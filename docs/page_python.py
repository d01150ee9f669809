"""The pages of the Python API, from the source: every public name, grouped by topic."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from python_source import ClassText, FieldText, FunctionText, ValueText, read_class, read_name
from remit.agents.cards import RemoteOptions
from remit.ports.brief import CallOptions
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Call
from remit.protocol.submission import AskOptions
from remit_models.mcp.hub_servers import McpOptions
from remit_otel.hub_telemetry import TelemetryOptions
from remit_server.client.connection import SubmissionOptions
from remit_server.documents.api import ApprovalQuery, EventQuery, PageQuery, RunsQuery, SessionQuery
from remit_server.remote_agents import A2aOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A page, with its names in order."""

    title: str
    intro: str
    names: str
    module: str = "remit"
    options: Sequence[type] = ()
    """Classes of keyword arguments that functions on this page take."""


TOPICS = {
    "python-hub": Topic(
        title="Python: the hub",
        intro="A hub holds agents and tools, runs requests and records them: see [Agents](../how-to/agents.md).",
        names="Hub HubOptions AgentOptions Limits BreakerSettings Events SqliteStore Ranked",
        options=(AskOptions,),
    ),
    "python-agents": Topic(
        title="Python: agents",
        intro="What the code of an agent gets and returns, and what a team says of it.",
        names="Brief Answer Artifact File Source AgentCard Capability ToolCard Rate Sandbox",
        options=(CallOptions,),
    ),
    "python-team": Topic(
        title="Python: the team file",
        intro="A program reads a team file, and opens the hub that it describes: see [The team file](team.md). Or it "
        "gives a hub rules, as a team file does: see [Approvals](../how-to/approvals.md).",
        names="load_team hub_of Rule guard_of",
        module="remit_cli",
    ),
    "python-models": Topic(
        title="Python: models",
        intro="Agents of a language model: see [Agents of a language model](../how-to/llm-agents.md).",
        names="ModelAgent summarizer",
        module="remit_models",
    ),
    "python-server": Topic(
        title="Python: agents outside",
        intro="A hub is [served](../how-to/serving.md) to programs and other hubs, and asks agents elsewhere: "
        "at [other hubs](../how-to/remote-agents.md), and those that speak [A2A](../how-to/a2a-agents.md).",
        names="serve connect connect_a2a Exposure PublicAccess",
        module="remit_server",
        options=(RemoteOptions, A2aOptions),
    ),
    "python-orchestrator": Topic(
        title="Python: workflows and orchestrators of a hub",
        intro="Agents that delegate to others: see [Workflows](../how-to/workflows.md) and "
        "[Orchestrator](../how-to/orchestrator.md).",
        names="add_workflow add_orchestrator EntailmentModel",
        module="remit_orchestrator",
    ),
    "python-mcp": Topic(
        title="Python: MCP servers",
        intro="Tools of MCP servers for the agents of a hub: see [MCP servers](../how-to/mcp-servers.md).",
        names="add_mcp",
        module="remit_models.mcp",
        options=(McpOptions,),
    ),
    "python-telemetry": Topic(
        title="Python: telemetry",
        intro="Spans and metrics for OpenTelemetry: see [Tracing](tracing.md).",
        names="send_telemetry",
        module="remit_otel",
        options=(TelemetryOptions,),
    ),
    "python-requests": Topic(
        title="Python: requests and responses",
        intro="The two envelopes and what they carry: see [The remit](../explanation/remit.md).",
        names="Request Response Status Usage Remit Priority Call Handoff Handover ContextFilter View Message Note",
    ),
    "python-workflows": Topic(
        title="Python: workflows and combined answers",
        intro="Several agents, one answer: see [Workflows](../how-to/workflows.md) and "
        "[One answer of several](../how-to/aggregation.md).",
        names="Workflow Step Strategy Combined Blend Component Conflict ReportedValue",
    ),
    "python-policy": Topic(
        title="Python: guards, redaction, approvals",
        intro="What decides about a request: see [Guards](../explanation/guards.md), "
        "[Redaction](../explanation/redaction.md) and [Approvals](../how-to/approvals.md).",
        names="Guard Facts Verdict Allow ALLOW Ask Refuse refuse on_answer Rewrite Detector Finding "
        "Approver Question ShownQuestion view_of Decision AllowList InboxApprover deny first_of",
    ),
    "python-redaction": Topic(
        title="Python: detectors",
        intro="What finds personal data and secrets: see [Redaction](../explanation/redaction.md).",
        names="detector_pipeline",
        module="remit_redaction",
    ),
    "python-records": Topic(
        title="Python: records",
        intro="What is recorded of a run: see [Audit](../explanation/audit.md), and [Events](events.md) for the JSON.",
        names="Record Kind Delegation Progress ToolUse Notice Approval Refusal Delta SharedStep "
        "ChainBreak Removal AuditVerdict verify_file",
    ),
    "python-errors": Topic(
        title="Python: errors",
        intro="Between agents an error is a value, a `Fault` in the response; for programs it is a `RemitError`. "
        "[Error codes](errors.md) explains every code.",
        names="RemitError Fault Code Problem Origin SourceLine fault",
    ),
    "python-testing": Topic(
        title="Python: testing",
        intro="Fakes and conformance suites for your own tests: see [Testing](../how-to/testing.md).",
        names="MemoryStore ManualClock AgentConformance Behaviour StoreConformance TransportConformance",
        module="remit_testing",
    ),
    "python-client": Topic(
        title="Python: the client",
        intro="A program without a hub asks one over HTTP: see [The Python client](../how-to/client.md).",
        names="HubClient SyncHubClient RunEvent DEFAULT_TIMEOUT_S",
        module="remit_server.client",
        options=(SubmissionOptions, RunsQuery, ApprovalQuery, SessionQuery, PageQuery, EventQuery),
    ),
}

# A field without a text of its own means what the field of the same name means there.
MEANT_AS: Mapping[str, type] = {
    "AskOptions": Call,
    "CallOptions": Call,
    "SubmissionOptions": Call,
    "AgentOptions": AgentCard,
    "RemoteOptions": AgentCard,
    "A2aOptions": AgentCard,
}
# The runtime makes these; programs do not.
MADE_BY_RUNTIME = ("Brief", "Events")
# Their methods are those of the port `Store`: a program hands them to a hub, and calls none.
STORES = ("SqliteStore", "MemoryStore")
# What programs use most comes first; the rest, mostly for servers and tools, in the order of the source.
FIRST = {
    "Hub": "agent add tool ask ask_sync stream events follow cancel outcome delegations pending decide reconfigure",
    "Brief": "delegate fan_out combine chain use confirm progress say input_as state update_state once note "
    "conversation history facts spend tokens_left more_tokens keep_back time_left_ms",
}
# From so many methods on, a class has a list of them.
MANY = 8
ELSEWHERE = {"Code": "Every code is on the page [Error codes](errors.md)."}

INDEX = """\
# Python API

Every public name, with the page that has its signature, its fields and their defaults. `import remit` loads nothing;
a name is loaded when it is first used. Modules that are not named here may change at any time;
[Write a plugin](../how-to/plugins.md#what-it-may-use) names those for plugins. A public name is removed one minor
version after it began to warn with a `DeprecationWarning` ([Releasing](../how-to/releasing.md)).

These pages are made from the source; `make docs` makes them anew.
"""


def python_pages() -> dict[str, str]:
    """Return every page of the Python API by its name, and the list of names."""
    return {"python": index_page(), **{name: topic_page(name) for name in TOPICS}}


def index_page() -> str:
    """Return the list of all public names."""
    parts = [INDEX]
    for page, topic in TOPICS.items():
        rows = [
            f"| [`{name}`]({page}.md#{_anchor(name)}) "
            f"| {_cell(_first_sentence(_read_text(name, topic.module).meaning))} |"
            for name in topic.names.split()
        ]
        heading = f"\n## {topic.title.removeprefix('Python: ').capitalize()}\n\n"
        parts += [heading, f"`from {topic.module} import …`\n\n", _table("name", "what it is", rows)]
    return "".join(parts)


def topic_page(page: str) -> str:
    """Return the page of one topic."""
    topic = TOPICS[page]
    head = (
        f"# {topic.title}\n\n{topic.intro} `from {topic.module} import …`. [Python API](python.md) lists all names.\n"
    )
    sections = [_section(_read_text(name, topic.module)) for name in topic.names.split()]
    return head + "".join(sections) + "".join(_section(read_class(each)) for each in topic.options)


@cache
def _read_text(name: str, module: str) -> ClassText | FunctionText | ValueText:
    # `remit` loads its names when they are used.
    homes: Mapping[str, Sequence[str]] = getattr(import_module(module), "_HOMES", {})
    return read_name(name, import_module(next((home for home, names in homes.items() if name in names), module)))


def _section(text: ClassText | FunctionText | ValueText) -> str:
    match text:
        case ValueText():
            return f"\n## {heading(text.name)}\n\n{_code(f'{text.name} = {text.definition}')}\n{text.meaning}\n"
        case FunctionText():
            return f"\n## {heading(text.name)}\n\n{_function(text)}"
        case ClassText():
            return f"\n## {text.name}\n\n" + "\n".join(part for part in _class(text) if part)


def _class(text: ClassText) -> Iterator[str]:
    """Yield the parts of a class."""
    yield f"{_prose(text.meaning)}\n" if text.meaning else ""
    if text.name in ELSEWHERE:
        yield f"{ELSEWHERE[text.name]}\n"
        return
    if text.init is not None and text.name not in MADE_BY_RUNTIME:
        yield _code(text.init.signature.replace("def __init__(", f"{text.name}(", 1).removesuffix(": ..."))
        yield _further(text.init)
        yield f"{_prose(text.init.meaning)}\n" if text.init.meaning else ""
    if text.name in STORES:
        yield "Give it to a hub: `Hub(store=…)`. Its methods are those of the port `Store`, which the hub calls.\n"
        return
    yield _fields(text)
    properties = [f"| `{each.name}` | {_type(each)} | {_cell(each.meaning)} |" for each in text.properties]
    yield _table("property", "type", properties, "meaning")
    suite = [each.name for each in text.methods if each.name.startswith("test_")]
    if suite:
        yield f"{len(suite)} tests, which pytest runs in your subclass. It fills in what is abstract.\n"
    methods = [each for each in text.methods if each.name not in suite]
    methods.sort(key=lambda each: _rank_of(text.name, each.name))
    if len(methods) >= MANY:
        at = _anchor(text.name)
        rows = [f"| [`{m.name}`](#{at}{m.name}) | {_cell(_first_sentence(m.meaning))} |" for m in methods]
        yield _table("method", "what it does", rows)
    for each in methods:
        yield f"### {text.name}.{each.name}\n\n{_function(each)}"


def _rank_of(kind: str, method: str) -> int:
    first = FIRST.get(kind, "").split()
    return first.index(method) if method in first else len(first)


def _function(text: FunctionText) -> str:
    further = f"\n{_further(text)}" if text.options else ""
    meaning = f"\n{_prose(text.meaning)}\n" if text.meaning else ""
    return f"{_code(text.signature)}{meaning}{further}"


def _further(text: FunctionText) -> str:
    return f"*options* are those of [{text.options}](#{_anchor(text.options)}).\n" if text.options else ""


def read_fields(kind: type) -> list[FieldText]:
    """Return the fields of a class, each with its meaning."""
    return _explained(read_class(kind))


def _explained(text: ClassText) -> list[FieldText]:
    described_as = MEANT_AS.get(text.name)
    meant = {} if described_as is None else {each.name: each.meaning for each in read_class(described_as).fields}
    return [replace(each, meaning=each.meaning or meant.get(each.name, "")) for each in text.fields]


def _fields(text: ClassText) -> str:
    """Return the table of fields; of an enum, that of its values."""
    is_enum = all(not each.kind for each in text.fields)
    has_defaults = any(each.default is not None for each in text.fields)
    rows: list[str] = []
    for each in _explained(text):
        meaning = _cell(each.meaning)
        if is_enum:
            rows.append(f"| `{each.name}` | `{_escaped(each.default or '')}` | {meaning} |")
        elif has_defaults:
            default = "" if each.default is None else f"`{_escaped(each.default)}`"
            rows.append(f"| `{each.name}` | {_type(each)} | {default} | {meaning} |")
        else:
            rows.append(f"| `{each.name}` | {_type(each)} | {meaning} |")
    if is_enum:
        return _table("member", "value", rows, "meaning")
    return _table("field", "type", rows, *(("default", "meaning") if has_defaults else ("meaning",)))


def _table(first: str, second: str, rows: Sequence[str], *others: str) -> str:
    if not rows:
        return ""
    columns = (first, second, *others)
    return "\n".join((f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows)) + "\n"


def _code(text: str) -> str:
    # Not `python`: a signature is no example that could be run.
    return f"```py\n{_quoted(text)}\n```\n"


def _type(each: FieldText) -> str:
    return f"`{_escaped(each.kind)}`" if each.kind else ""


def _quoted(code: str) -> str:
    """Return code with the quotes of the source, where `ast` has written others."""
    return code if '"' in code else code.replace("'", '"')


def _escaped(code: str) -> str:
    return _quoted(code).replace("|", "\\|")


def _prose(docstring: str) -> str:
    """Return a docstring in which a paragraph about three parameters or more is a list of them."""
    return "\n\n".join(_listed(paragraph) for paragraph in docstring.split("\n\n"))


def _listed(paragraph: str) -> str:
    sentences = re.split(r"(?<=[.;]) (?=\*\w+\* )", " ".join(paragraph.split()))
    before = sentences.pop(0) if not sentences[0].startswith("*") else ""
    if len(sentences) < 3 or paragraph.startswith(" "):
        return paragraph
    items = "\n".join(f"- {each.removesuffix(';')}" for each in sentences)
    return f"{before}\n\n{items}" if before else items


def _cell(text: str) -> str:
    """Return a text as one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _first_sentence(text: str) -> str:
    paragraph = text.split("\n\n", maxsplit=1)[0].replace("\n", " ")
    return re.split(r"(?<=[.]) (?=[A-Z`*])", paragraph)[0]


def heading(name: str) -> str:
    """Return the heading of a name: two names that differ in case alone would have the same address."""
    return {"ALLOW": "ALLOW, the value", "fault": "fault, the function"}.get(name, name)


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading(name).lower()).replace(" ", "-")
