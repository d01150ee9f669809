"""Sections for agents, their capabilities and their tools."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from remit.agents.cards import TOOL_ROUNDS, Arguments
from remit.protocol.card import CONCURRENCY, QUEUE, AgentCard, Authority, Capability, Confirmation, Rate
from remit.protocol.remit import Count
from remit.runtime.brief import HISTORY_TOKENS
from remit_cli.config.values import (
    AgentName,
    Callee,
    Code,
    DeviceName,
    Duration,
    HostName,
    Kind,
    ModelName,
    Positive,
    PublicKey,
    Run,
    Secret,
    Section,
    Url,
    VariableName,
    in_code,
)
from remit_server.dialects.a2a.types import Binding

_CARD = AgentCard(name="-")
_CAPABILITY = Capability(code="-")


class AgentSection(Section, frozen=True, kw_only=True):
    """One agent: its code or its model, and what its team allows it to do."""

    run: Annotated[
        Run | None,
        Meta(
            description="The agent's code, imported with the team file's folder on the path: a function, a "
            "`ModelAgent`, or an agent of a framework. An agent has one of `run`, `model`, "
            "`peer`, `card` and `device`."
        ),
    ] = None
    model: Annotated[
        ModelName | None,
        Meta(
            description="The language model behind the agent, which uses the hub's tools: `provider:name` as "
            "in pydantic-ai, or the model's name on the server at `base_url`."
        ),
    ] = None
    priced_as: Annotated[
        ModelName | None,
        Meta(
            description="The model whose price counts for the tokens of an agent that has no `model` and names "
            "none in its answer."
        ),
    ] = None
    base_url: Annotated[Url | None, Meta(description="The URL of an OpenAI-compatible server for the model.")] = None
    api_key: Annotated[
        Secret | None, Meta(description="The API key for the model (default: the provider's environment variable).")
    ] = None
    max_tool_rounds: Annotated[
        Count,
        Meta(description="How many rounds of tool calls the model may make for one request before it must answer."),
    ] = TOOL_ROUNDS
    max_output_tokens: Annotated[
        Positive | None,
        Meta(description="Maximum tokens of one answer of the model (default: 8192, and never more than are left)."),
    ] = None
    history_tokens: Annotated[
        Count, Meta(description="Tokens of earlier messages of the session that the model is given.")
    ] = HISTORY_TOKENS
    sub_agent_arguments: Annotated[
        Arguments,
        Meta(
            description="Which arguments of the tool `sub_agent` the model is offered: `short` (`agent_name`, "
            "`task`, `input`), which small models can use, or `full`."
        ),
    ] = "short"
    structured_answers: Annotated[
        bool,
        Meta(
            description="Whether the model can return more than a text to other agents: summary, confidence, "
            "sources, facts, artifacts, and whether it has a question."
        ),
    ] = True
    settings: Annotated[
        dict[str, Any],
        Meta(description="Settings of the model, such as `{ temperature = 0.2, max_retries = 0 }`."),
    ] = {}
    peer: Annotated[
        AgentName | None,
        Meta(
            description="The hub where the agent runs: one of `[peers.NAME]` that has a `url`. It is called over HTTP."
        ),
    ] = None
    remote: Annotated[
        AgentName | None,
        Meta(
            description="The agent's name there (default: the same). On a `device` that shares several agents "
            "with this one, the name under which it is shared."
        ),
    ] = None
    card: Annotated[
        Url | None,
        Meta(description="The URL of the agent card, for an agent that speaks A2A; see `remit docs a2a-agents`."),
    ] = None
    card_token: Annotated[Secret | None, Meta(description="The token for the A2A agent, if it requires one.")] = None
    card_keys: Annotated[
        tuple[PublicKey, ...], Meta(description="Public keys, one of which must have signed the agent card.")
    ] = ()
    card_hosts: Annotated[
        frozenset[HostName],
        Meta(description="Hosts that the agent card may refer to besides its own; they may be in a private network."),
    ] = frozenset()
    card_binding: Annotated[
        Binding | None,
        Meta(description="How the A2A agent is called (default: the first binding of its card, in JSON before gRPC)."),
    ] = None
    card_streaming: Annotated[
        bool,
        Meta(description="Whether answers of the A2A agent are streamed if it can; otherwise its tasks are polled."),
    ] = True
    card_notify: Annotated[
        Url | None, Meta(description="A URL that the A2A agent notifies about every task of this hub.")
    ] = None
    card_notify_token: Annotated[
        Secret | None, Meta(description="What the A2A agent sends there as `X-A2A-Notification-Token`.")
    ] = None
    device: Annotated[
        DeviceName | None,
        Meta(
            description="The device that shares the agent, by name or id; see `remit docs shared-agents`. Calls are "
            "end-to-end encrypted."
        ),
    ] = None
    max_hop_count: Annotated[
        Count,
        Meta(description="Maximum hops of a task on its way to the `device`; the hop from here to there is 1."),
    ] = 2
    description: Annotated[
        str | None, Meta(description="The purpose of the agent (default: the docstring of its code).")
    ] = None
    prompt: Annotated[
        str, Meta(description="Instructions: the system prompt of the model; code reads them from the brief.")
    ] = _CARD.prompt
    version: Annotated[str, Meta(min_length=1, description="The version of the agent.")] = _CARD.version
    capabilities: Annotated[
        tuple[Code, ...], Meta(description="The agent's capabilities: codes of `[capabilities.CODE]`.")
    ] = ()
    tools: Annotated[frozenset[AgentName], Meta(description="Tools that the agent may use.")] = _CARD.tools
    may_call: Annotated[frozenset[Callee], Meta(description='Agents that it may call; `"*"` means all.')] = (
        _CARD.may_call
    )
    allow_sub_agent_calls: Annotated[
        bool | None,
        Meta(
            description="`true` without `may_call`: it may call every agent of the team. `false` forbids "
            "every call, whatever `may_call` says."
        ),
    ] = _CARD.allow_sub_agent_calls
    max_sub_agent_depth: Annotated[Count | None, Meta(description="Maximum levels of delegation below the agent.")] = (
        _CARD.max_sub_agent_depth
    )
    recursive: Annotated[
        bool, Meta(description="Whether the agent may be called below itself; the limits on depth still hold.")
    ] = _CARD.recursive
    authority: Annotated[
        Authority | None,
        Meta(
            description='With `"caller"` the agent is limited to the tools and targets that its caller also '
            'has; with `"own"` it has its own (default: `limits.authority`).'
        ),
    ] = _CARD.authority
    concurrency: Annotated[
        Positive | None,
        Meta(
            description=f"Maximum requests in progress at once (default: {CONCURRENCY}; for an agent in processes of "
            "its own, twice the number of processors; for one on a `device`, 3)."
        ),
    ] = None
    queue: Annotated[Count, Meta(description="Maximum requests that may wait for the agent.")] = QUEUE
    rate: Annotated[
        Rate | None,
        Meta(
            description="How often the agent may be called: `{ calls = 10, seconds = 60 }` (default for an "
            "agent on a `device`: 30 times in 60 s)."
        ),
    ] = _CARD.rate
    time: Annotated[
        Duration | None, Meta(description="Time for one request (default: the caller's or the budget's).")
    ] = None
    tokens: Annotated[
        Count | None, Meta(description="Tokens for one request (default: the caller's or the budget's).")
    ] = _CARD.tokens
    draws: Annotated[
        bool,
        Meta(description="Whether it goes on with its caller's tokens, if any, once its own are spent."),
    ] = _CARD.draws
    resumable: Annotated[
        bool,
        Meta(
            description="Whether the agent's code may run again after a restart, with finished steps answered "
            "from the journal."
        ),
    ] = _CARD.resumable
    route: Annotated[
        bool,
        Meta(
            description="Whether it is decided for each request if the agent answers it or another one that it may "
            "call; the metadata `handling` says why."
        ),
    ] = False
    isolation: Annotated[
        Literal["task", "process"],
        Meta(
            description="Whether the agent runs inside the hub (`task`), or in processes that can be killed "
            "(`process`)."
        ),
    ] = _CARD.isolation
    env: Annotated[
        frozenset[VariableName],
        Meta(
            description="Environment variables that are passed to its process besides `PATH` and the like, "
            'with `isolation = "process"`.'
        ),
    ] = frozenset()
    sandbox: Annotated[
        bool,
        Meta(
            description="Whether the operating system keeps its process from files, network and other "
            "processes; see `remit docs isolation`."
        ),
    ] = False
    reads: Annotated[
        tuple[str, ...], Meta(description="Files and folders that the agent may read in its sandbox.")
    ] = ()
    writes: Annotated[
        tuple[str, ...], Meta(description="Files and folders that the agent may change in its sandbox.")
    ] = ()
    network: Annotated[
        tuple[str, ...], Meta(description='Hosts that the agent may reach from its sandbox: `"api.example.com:443"`.')
    ] = ()
    sees: Annotated[frozenset[Kind], Meta(description="Kinds of personal data that the agent is given in clear.")] = (
        _CARD.sees
    )


class CapabilitySection(Section, frozen=True, kw_only=True):
    """A capability of agents, by code."""

    version: Annotated[str, Meta(min_length=1, description="The version of the capability.")] = _CAPABILITY.version
    description: Annotated[str, Meta(description="The purpose of the capability.")] = _CAPABILITY.description
    input_schema: Annotated[
        dict[str, Any] | str | None,
        Meta(description="JSON Schema of the input: a table, or a `.json` file from the team file's folder."),
    ] = None
    result_schema: Annotated[
        dict[str, Any] | str | None,
        Meta(description="JSON Schema of the result: a table, or a `.json` file from the team file's folder."),
    ] = None
    time: Annotated[Duration | None, Meta(description="Time for one request.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for one request.")] = _CAPABILITY.tokens
    read_only: Annotated[bool, Meta(description="Whether the capability changes nothing.")] = _CAPABILITY.read_only
    cache: Annotated[
        Duration | None,
        Meta(description="How long an answer is reused for equal requests; only if `read_only`."),
    ] = None
    cache_similar: Annotated[
        bool,
        Meta(
            description="Whether an answer is also reused for requests that ask the same in other words; only "
            "with `cache`."
        ),
    ] = _CAPABILITY.cache_similar
    public: Annotated[bool, Meta(description="Whether cached answers are shared between users.")] = _CAPABILITY.public
    hedge: Annotated[
        Duration | None,
        Meta(
            description="How long to wait before a second agent with the capability is asked as well; only if "
            "`read_only`."
        ),
    ] = None
    examples: Annotated[tuple[str, ...], Meta(description="Examples of what users say when they want it.")] = (
        _CAPABILITY.examples
    )
    confirm: Annotated[
        Confirmation | None,
        Meta(
            description="When a user has to agree before an orchestrator has it done (default: never if `read_only`, "
            "else as `[orchestrator]` says)."
        ),
    ] = _CAPABILITY.confirm
    phrase: Annotated[
        str, Meta(description='What users read while it is in progress: `"Working out the financial side…"`.')
    ] = ""
    sees: Annotated[
        frozenset[Kind], Meta(description="Kinds of personal data that its agent is given in clear when asked for it.")
    ] = _CAPABILITY.sees
    sees_fields: Annotated[
        frozenset[str], Meta(description="Fields of its input, by dotted path, that its agent is given in clear.")
    ] = _CAPABILITY.sees_fields

    def capability(self, code: str) -> Capability:
        """Return the capability as a card holds it; its schemas must have been read."""
        said = in_code(self, (name for name in Capability.__struct_fields__ if name != "code"))
        said["input_schema"], said["result_schema"] = _read(self.input_schema), _read(self.result_schema)
        return Capability(code=code, **said)

    def contradictions(self) -> dict[str, str]:
        """Return the keys that contradict others, each with the reason."""
        said = Capability(code="-", **in_code(self, ("read_only", "cache_ms", "cache_similar", "hedge_ms")))
        return {field.removesuffix("_ms"): message for field, message in said.contradictions().items()}


class ToolSection(Section, frozen=True, kw_only=True):
    """A function that agents may use; its parameters are its schema."""

    run: Annotated[Run, Meta(description="The tool's code, imported with the team file's folder on the path.")]
    description: Annotated[
        str | None, Meta(description="The purpose of the tool (default: the docstring of its code).")
    ] = None
    safe_to_repeat: Annotated[bool, Meta(description="Whether running it twice does no harm.")] = False
    sees: Annotated[
        frozenset[Kind] | dict[str, frozenset[Kind]],
        Meta(
            description='Kinds of personal data that the tool is given in clear: `["EMAIL"]`, or by parameter '
            '`{ email = ["EMAIL"] }`. Its agents get placeholders, also in its results.'
        ),
    ] = frozenset()


def _read(schema: dict[str, Any] | str | None) -> dict[str, Any] | None:
    if isinstance(schema, str):
        raise ValueError(f"the schema in {schema!r} has not been read")
    return schema
