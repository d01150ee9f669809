"""Documents of a team: its agents, its checks, its keys and its servers."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from remit.protocol.card import AgentCard, Authority
from remit.protocol.orchestration import Workflow
from remit_server.documents.common import AtMs


class Written(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.init/1"):
    """A created team. Printed by `remit init --json`."""

    folder: Annotated[str, Meta(description="The team's folder.")]
    files: Annotated[
        tuple[str, ...], Meta(description="The files that were written. Lines were added to .gitignore if it existed.")
    ]
    next: Annotated[tuple[str, ...], Meta(description="The commands to run next.")]


class TeamProblem(Struct, frozen=True, kw_only=True):
    """A problem in a team file or in an override."""

    where: Annotated[
        str, Meta(description="Location for people: `remit.toml:12 agents.clerk.run`, or the invalid variable or flag.")
    ]
    line: Annotated[int | None, Meta(description="Line in the file; null if it is not in the file.")] = None
    key: Annotated[str, Meta(description="The dotted key.")] = ""
    message: Annotated[str, Meta(description="The problem, and what was expected.")]


class Validation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.validation/1"):
    """Whether a team file is valid. Printed by `remit validate --json`."""

    ok: Annotated[bool, Meta(description="Whether the file is valid.")]
    file: Annotated[str, Meta(description="The team file.")]
    agents: Annotated[int, Meta(description="Number of agents, if the file is valid.")] = 0
    workflows: Annotated[int, Meta(description="Number of workflows.")] = 0
    tools: Annotated[int, Meta(description="Number of tools.")] = 0
    capabilities: Annotated[int, Meta(description="Number of capabilities.")] = 0
    rules: Annotated[int, Meta(description="Number of rules.")] = 0
    profiles: Annotated[int, Meta(description="Number of profiles (for work with shared agents).")] = 0
    shared: Annotated[int, Meta(description="Number of agents shared with other devices.")] = 0
    imported: Annotated[bool, Meta(description="Whether the agents' code was imported too.")] = True
    problems: Annotated[tuple[TeamProblem, ...], Meta(description="All problems.")] = ()
    warnings: Annotated[
        tuple[TeamProblem, ...], Meta(description="Valid settings that may not do what was intended.")
    ] = ()


class MisreadExample(Struct, frozen=True, kw_only=True):
    """An example that the others do not lead to."""

    capability: Annotated[str, Meta(description="The capability that has it.")]
    text: Annotated[str, Meta(description="The example.")]
    read_as: Annotated[str | None, Meta(description="The capability that it is read as; null: none.")]


class CloseCapabilities(Struct, frozen=True, kw_only=True):
    """Two capabilities whose examples are read as those of the other."""

    capabilities: Annotated[tuple[str, str], Meta(description="The two.")]
    misread: Annotated[int, Meta(description="How many examples of one are read as the other.")]


class FewExamples(Struct, frozen=True, kw_only=True):
    """A capability with too few examples."""

    capability: Annotated[str, Meta(description="The capability.")]
    examples: Annotated[int, Meta(description="How many it has.")]


class AskedBack(Struct, frozen=True, kw_only=True):
    """A request that was asked back."""

    text: Annotated[str, Meta(description="What the user wrote.")]
    meant: Annotated[str | None, Meta(description="The capability that was then carried out; null: none, or several.")]


class IntentsCheck(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.intents/1"):
    """How well the examples of a team tell its capabilities apart. Printed by `remit intents check --json`."""

    capabilities: Annotated[int, Meta(description="Number of capabilities.")]
    examples: Annotated[int, Meta(description="Number of examples.")]
    misread: Annotated[tuple[MisreadExample, ...], Meta(description="Examples that are read as another capability.")]
    close: Annotated[tuple[CloseCapabilities, ...], Meta(description="Capabilities that are too close to each other.")]
    few: Annotated[tuple[FewExamples, ...], Meta(description="Capabilities with fewer than three examples.")]
    asked_back: Annotated[tuple[AskedBack, ...], Meta(description="With `--log`: requests that were asked back.")] = ()


CheckGroup = Literal["program", "team", "store"]


class Check(Struct, frozen=True, kw_only=True):
    """One check of `remit doctor`."""

    state: Annotated[Literal["ok", "warning", "problem"], Meta(description="Result of the check.")]
    about: Annotated[str, Meta(description="What was checked.")]
    says: Annotated[str, Meta(description="What was found.")]
    todo: Annotated[str, Meta(description="What to do about it.")] = ""
    group: Annotated[CheckGroup, Meta(description="What it belongs to.")] = "program"


class Checkup(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.doctor/1"):
    """The state of this machine and this folder. Printed by `remit doctor --json`."""

    ok: Annotated[bool, Meta(description="Whether there is no problem; there may be warnings.")]
    checks: Annotated[tuple[Check, ...], Meta(description="All checks.")]


class AgentLine(Struct, frozen=True, kw_only=True):
    """An agent in a list."""

    name: Annotated[str, Meta(description="Its name.")]
    description: Annotated[str, Meta(description="What it is for.")]
    capabilities: Annotated[tuple[str, ...], Meta(description="Its capabilities, by code.")]
    may_call: Annotated[tuple[str, ...], Meta(description="Agents it may call; `*`: all.")]
    tools: Annotated[tuple[str, ...], Meta(description="Tools it may use.")]
    steps: Annotated[tuple[str, ...], Meta(description="The steps of a workflow; empty for other agents.")] = ()
    lives_at: Annotated[
        str,
        Meta(description="The hubs or device that run it, or the address of its A2A card; empty: runs here."),
    ] = ""


class Agents(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.agents/1"):
    """The agents of a team. Printed by `remit agents list --json`."""

    team: Annotated[str, Meta(description="The team's name.")]
    file: Annotated[str, Meta(description="The team file.")]
    agents: Annotated[tuple[AgentLine, ...], Meta(description="The agents in file order, then the workflows.")]


class AgentDetails(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.agent/1"):
    """The settings of one agent. Printed by `remit agents show --json`."""

    card: Annotated[AgentCard, Meta(description="Its card; absent fields have their defaults.")]
    run: Annotated[str | None, Meta(description="Its code, as named in the team file; null: not a code agent.")] = None
    model: Annotated[str | None, Meta(description="Its language model; null: not backed by a model.")] = None
    workflow: Annotated[Workflow | None, Meta(description="The workflow and its steps; null: not a workflow.")] = None
    peer: Annotated[str | None, Meta(description="The peer hub that runs it; null: no peer does.")] = None
    remote: Annotated[str | None, Meta(description="Its name there; null: the same.")] = None
    address: Annotated[
        str | None, Meta(description="Address of that hub or of its A2A card; null: runs here, or on a `device`.")
    ] = None
    device: Annotated[str | None, Meta(description="The device that shares it; null: no device.")] = None
    called_by: Annotated[tuple[str, ...], Meta(description="Agents that may call it; `user` is any external user.")]
    authority: Annotated[
        Authority, Meta(description="Source of its tools and targets when an agent calls it: its own, or its caller's.")
    ] = "own"
    time_ms: Annotated[int, Meta(description="Default time limit for one request.")]
    tokens: Annotated[
        int | None, Meta(description="Token budget for one request, unless its caller sets one; null: a fair share.")
    ]


class RankedAgent(Struct, frozen=True, kw_only=True):
    """The recent results of an agent for a capability."""

    agent: Annotated[str, Meta(description="Its name.")]
    quality: Annotated[float, Meta(description="Estimated success rate from recent calls, from 0 to 1; 0.5: unknown.")]
    latency_ms: Annotated[int, Meta(description="Worst recent latency; 0: unknown.")]
    tokens: Annotated[int, Meta(description="Tokens per successful call; 0: none or unknown.")]
    in_flight: Annotated[int, Meta(description="Calls in progress.")]
    last_seen_ms: Annotated[
        int | None,
        Meta(description="Last answer or failure, in milliseconds since 1970; null: not in the rows that were read."),
    ]
    why: Annotated[str, Meta(description="Why it has this rank.")]


class Ranking(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.ranking/1"):
    """The ranking of agents for a capability, with reasons. Printed by `remit agents show --capability CODE --json`."""

    capability: Annotated[str, Meta(description="The capability.")]
    at_ms: AtMs
    agents: Annotated[
        tuple[RankedAgent, ...], Meta(description="The agents that offer it: first choice, then fallbacks.")
    ]
    store: Annotated[str, Meta(description="The record file that the ranking is based on.")]


class Reloading(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.reload/1"):
    """A request to running hubs to apply the team file. Printed by `remit reload --json`."""

    file: Annotated[str, Meta(description="The team file.")]
    store: Annotated[str, Meta(description="The store through which the hubs are notified.")]
    number: Annotated[int, Meta(description="The number of the row that notifies them.")]


class OwnKey(Struct, frozen=True, kw_only=True):
    """A key of this hub."""

    public: Annotated[str, Meta(description="The public key, as peers enter it.")]
    fingerprint: Annotated[str, Meta(description="Fingerprint for two people to compare.")]
    state: Annotated[
        Literal["signs", "next", "old"],
        Meta(description="`signs`: in use; `next`: will sign next; `old`: still accepted."),
    ]
    signs_from_ms: AtMs
    accepted_until_ms: Annotated[int | None, Meta(description="When it stops being accepted; null: no end set.")] = None


class PeerKey(Struct, frozen=True, kw_only=True):
    """A key of another hub."""

    peer: Annotated[str, Meta(description="The peer that owns the key.")]
    public: Annotated[str, Meta(description="The public key.")]
    fingerprint: Annotated[str, Meta(description="Fingerprint for two people to compare.")]
    file: Annotated[str, Meta(description="The file that contains it.")]
    counts: Annotated[
        bool, Meta(description="Whether the key is in use: the team file must have a peer with this name.")
    ]


class KeysShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.keys/1"):
    """The current keys of this hub and its peers. Printed by all `remit keys` commands with `--json`."""

    file: Annotated[str, Meta(description="The file with this hub's key.")]
    keys: Annotated[tuple[OwnKey, ...], Meta(description="This hub's keys, oldest first; empty if it has none.")]
    peers: Annotated[tuple[PeerKey, ...], Meta(description="The keys of other hubs.")]
    revoked: Annotated[int, Meta(description="Number of revoked credentials.")]


class ServerUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.serving/1"):
    """A running server. Printed by `remit serve --json` when it accepts requests."""

    team: Annotated[str, Meta(description="The hub's name.")]
    address: Annotated[str, Meta(description="The address of the server.")]
    agents: Annotated[tuple[str, ...], Meta(description="The agents that can be called.")]
    token_file: Annotated[
        str | None, Meta(description="The file with the access token, if the team has no clients.")
    ] = None
    console: Annotated[str | None, Meta(description="The address of the console, if it is served.")] = None
    console_link: Annotated[
        str | None, Meta(description="A link that signs in one browser, once, if the team has no clients.")
    ] = None


class DevUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.dev/1"):
    """A team in the browser. Printed by `remit dev --json` when the console can be opened."""

    team: Annotated[str, Meta(description="The hub's name.")]
    address: Annotated[str, Meta(description="The address of the console.")]
    link: Annotated[str, Meta(description="A link that signs in one browser, once.")]
    folder: Annotated[str, Meta(description="The folder in which everything is kept.")]
    chat: Annotated[bool, Meta(description="Whether the chat demo runs; it needs the extra `relay`.")]


class ConsoleLink(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.console-link/1"):
    """A link that signs in one browser, once. Printed by `remit serve --link --json`."""

    url: Annotated[str, Meta(description="The link.")]
    expires_in_ms: Annotated[int, Meta(description="How long it can be used.")]


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool of an MCP server, as the server describes it."""

    name: Annotated[str, Meta(description="Its name on the server.")]
    tool: Annotated[str | None, Meta(description="Its name in the hub; null if it is not in `allow`.")]
    description: Annotated[str, Meta(description="The server's description.")] = ""
    input_schema: Annotated[dict[str, Any], Meta(description="JSON Schema of its input.")] = {}
    accepted: Annotated[
        str | None,
        Meta(description="What it said when it was accepted, if it has changed since and is held; else null."),
    ] = None
    suspicions: Annotated[
        tuple[str, ...], Meta(description="What in its texts looks like instructions to a model.")
    ] = ()


class McpTools(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.mcp-tools/1"):
    """The tools of an MCP server. Printed by `remit mcp --tools SERVER --json`."""

    server: Annotated[str, Meta(description="The server's name in the team file.")]
    tools: Annotated[tuple[McpTool, ...], Meta(description="Its tools, in the server's order.")]
    missing: Annotated[tuple[str, ...], Meta(description="Tools in `allow` that the server does not have.")] = ()
