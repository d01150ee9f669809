"""Sections for agents, their capabilities and tools, workflows and the orchestrator."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from remit.agents.cards import TOOL_ROUNDS, Arguments
from remit.ports.brief import HISTORY_TOKENS
from remit.protocol.card import CONCURRENCY, QUEUE, AgentCard, Authority, Capability, Rate
from remit.protocol.envelope import ContextFilter
from remit.protocol.orchestration import (
    DECISION_MS,
    ENTAILMENT_THRESHOLD,
    MAX_ATTEMPTS,
    MAX_CONDITION,
    THRESHOLDS,
    Share,
    Step,
    Thresholds,
    Workflow,
)
from remit.protocol.remit import Count
from remit_cli.config.values import (
    AgentName,
    Callee,
    Code,
    DeviceName,
    Duration,
    HostName,
    Kind,
    ModelName,
    Money,
    Positive,
    PublicKey,
    Run,
    SchemeAddress,
    Secret,
    Section,
    StepAfter,
    StepName,
    Url,
    VariableName,
    duration,
    in_code,
)
from remit_server.dialects.a2a.types import Binding

_CARD = AgentCard(name="-")
_CAPABILITY = Capability(code="-")


class AgentSection(Section, frozen=True, kw_only=True):
    """One agent: its code or its model, and what its team allows it to do."""

    run: Run | None = None
    """The agent's code, imported with the team file's folder on the path: a function, a `ModelAgent`, or an agent of a
    framework. An agent has one of `run`, `model`, `peer`, `card`, `device` and `address`."""
    model: ModelName | None = None
    """The language model behind the agent, which uses the hub's tools: `provider:name` as in pydantic-ai, or the
    model's name on the server at `base_url`."""
    priced_as: ModelName | None = None
    """The model whose price counts for the tokens of an agent that has no `model` and names none in its answer."""
    base_url: Url | None = None
    """The URL of an OpenAI-compatible server for the model."""
    api_key: Secret | None = None
    """The API key for the model (default: the provider's environment variable)."""
    max_tool_rounds: Count = TOOL_ROUNDS
    """How many rounds of tool calls the model may make for one request before it must answer."""
    max_output_tokens: Positive | None = None
    """Maximum tokens of one answer of the model (default: 8192, and never more than are left)."""
    history_tokens: Count = HISTORY_TOKENS
    """Tokens of earlier messages of the session that the model is given."""
    sub_agent_arguments: Arguments = "short"
    """Which arguments of the tool `sub_agent` the model is offered: `short` (`agent_name`, `task`, `input`), which
    small models can use, `relay` (these, and whether the agent's answer is given to the user as it is), or `full`."""
    structured_answers: bool = True
    """Whether the model can return more than a text to other agents: summary, confidence, sources, facts, artifacts,
    and whether it has a question."""
    settings: dict[str, Any] = {}
    """Settings of the model, such as `{ temperature = 0.2, max_retries = 0 }`."""
    peer: AgentName | None = None
    """The hub where the agent runs: one of `[peers.NAME]` that has a `url`. It is called over HTTP."""
    remote: AgentName | None = None
    """The agent's name there (default: the same). On a `device` that shares several agents with this one, the name
    under which it is shared."""
    card: Url | None = None
    """The URL of the agent card, for an agent that speaks A2A; see `remit docs a2a-agents`."""
    card_token: Secret | None = None
    """The token for the A2A agent, if it requires one."""
    card_keys: tuple[PublicKey, ...] = ()
    """Public keys, one of which must have signed the agent card."""
    card_hosts: frozenset[HostName] = frozenset()
    """Hosts that the agent card may refer to besides its own; they may be in a private network."""
    card_binding: Binding | None = None
    """How the A2A agent is called (default: the first binding of its card, in JSON before gRPC)."""
    card_streaming: bool = True
    """Whether answers of the A2A agent are streamed if it can; otherwise its tasks are polled."""
    card_notify: Url | None = None
    """A URL that the A2A agent notifies about every task of this hub."""
    card_notify_token: Secret | None = None
    """What the A2A agent sends there as `X-A2A-Notification-Token`."""
    device: DeviceName | None = None
    """The device that shares the agent, by name or id; see `remit docs shared-agents`. Calls are end-to-end
    encrypted."""
    address: SchemeAddress | None = None
    """The address of an agent that an installed plugin reaches, by its scheme: `weather://bern`."""
    max_hop_count: Count = 2
    """Maximum hops of a task on its way to the `device`; the hop from here to there is 1."""
    description: str | None = None
    """The purpose of the agent (default: the docstring of its code)."""
    prompt: str = _CARD.prompt
    """Instructions: the system prompt of the model; code reads them from the brief."""
    version: Annotated[str, Meta(min_length=1)] = _CARD.version
    """The version of the agent."""
    capabilities: tuple[Code, ...] = ()
    """The agent's capabilities: codes of `[capabilities.CODE]`."""
    tools: frozenset[AgentName] = _CARD.tools
    """Tools that the agent may use."""
    tool_rates: Annotated[
        dict[str, Rate],
        Meta(description="How often it may use a tool of its own: `{ search = { calls = 5, seconds = 60 } }`."),
    ] = {}
    may_call: frozenset[Callee] = _CARD.may_call
    """Agents that it may call; `"*"` means all."""
    allow_sub_agent_calls: bool | None = _CARD.allow_sub_agent_calls
    """`true` without `may_call`: it may call every agent of the team. `false` forbids every call, whatever `may_call`
    says."""
    hands_over_to: frozenset[AgentName] = _CARD.hands_over_to
    """Agents of `may_call` to which its model may hand the conversation over: they answer the user from then on."""
    max_sub_agent_depth: Count | None = _CARD.max_sub_agent_depth
    """Maximum levels of delegation below the agent."""
    recursive: bool = _CARD.recursive
    """Whether the agent may be called below itself; the limits on depth still hold."""
    authority: Authority | None = _CARD.authority
    """With `"caller"` the agent is limited to the tools and targets that its caller also has; with `"own"` it has its
    own (default: `limits.authority`)."""
    concurrency: Annotated[
        Positive | None,
        Meta(
            description=f"Maximum requests in progress at once (default: {CONCURRENCY}; for an agent in processes of "
            "its own, twice the number of processors; for one on a `device`, 3)."
        ),
    ] = None
    queue: Count = QUEUE
    """Maximum requests that may wait for the agent."""
    rate: Rate | None = _CARD.rate
    """How often the agent may be called: `{ calls = 10, seconds = 60 }` (default for an agent on a `device`: 30 times
    in 60 s)."""
    time: Duration | None = None
    """Time for one request (default: the caller's or the budget's)."""
    tokens: Count | None = _CARD.tokens
    """Tokens for one request (default: the caller's or the budget's)."""
    cost: Money | None = None
    """Money for one request: `"0.50 USD"` (default: it shares what its caller has)."""
    draws: bool = _CARD.draws
    """Whether it goes on with its caller's tokens, if any, once its own are spent."""
    resumable: bool = _CARD.resumable
    """Whether the agent's code may run again after a restart, with finished steps answered from the journal."""
    route: bool = False
    """Whether it is decided for each request if the agent answers it or another one that it may call; the metadata
    `handling` says why."""
    isolation: Literal["task", "process"] = _CARD.isolation
    """Whether the agent runs inside the hub (`task`), or in processes that can be killed (`process`)."""
    env: frozenset[VariableName] = frozenset()
    """Environment variables that are passed to its process besides `PATH` and the like, with `isolation =
    "process"`."""
    sandbox: bool = False
    """Whether the operating system keeps its process from files, network and other processes; see `remit docs
    isolation`."""
    reads: tuple[str, ...] = ()
    """Files and folders that the agent may read in its sandbox."""
    writes: tuple[str, ...] = ()
    """Files and folders that the agent may change in its sandbox."""
    network: tuple[str, ...] = ()
    """Hosts that the agent may reach from its sandbox: `"api.example.com:443"`."""
    sees: frozenset[Kind] = _CARD.sees
    """Kinds of personal data that the agent is given in clear."""
    clear: bool = _CARD.clear
    """Whether the agent's model gets what its tools and callees return in clear."""


class CapabilitySection(Section, frozen=True, kw_only=True):
    """A capability of agents, by code."""

    version: Annotated[str, Meta(min_length=1)] = _CAPABILITY.version
    """The version of the capability."""
    description: str = _CAPABILITY.description
    """The purpose of the capability."""
    input_schema: dict[str, Any] | str | None = None
    """JSON Schema of the input: a table, or a `.json` file from the team file's folder."""
    result_schema: dict[str, Any] | str | None = None
    """JSON Schema of the result: a table, or a `.json` file from the team file's folder."""
    time: Duration | None = None
    """Time for one request."""
    tokens: Count | None = _CAPABILITY.tokens
    """Tokens for one request."""
    cost: Money | None = None
    """Money for one request: `"0.50 USD"`."""
    read_only: bool = _CAPABILITY.read_only
    """Whether the capability changes nothing."""
    cache: Duration | None = None
    """How long an answer is reused for equal requests; only if `read_only`."""
    cache_similar: bool = _CAPABILITY.cache_similar
    """Whether an answer is also reused for requests that ask the same in other words; only with `cache`."""
    public: bool = _CAPABILITY.public
    """Whether cached answers are shared between users."""
    hedge: Duration | None = None
    """How long to wait before a second agent with the capability is asked as well; only if `read_only`."""
    examples: tuple[str, ...] = _CAPABILITY.examples
    """Examples of what users say when they want it."""
    confirm: bool = _CAPABILITY.confirm
    """Whether a user has to agree each time before an orchestrator uses it, although it only reads. To what changes
    something a user always has to agree."""
    undo: str | None = _CAPABILITY.undo
    """The capability that undoes it, for users who want it taken back."""
    phrase: str = ""
    """What users read while it is in progress: `"Working out the financial side…"`."""
    sees: frozenset[Kind] = _CAPABILITY.sees
    """Kinds of personal data that its agent is given in clear when asked for it."""
    sees_fields: frozenset[str] = _CAPABILITY.sees_fields
    """Fields of its input, by dotted path, that its agent is given in clear."""

    def capability(self, code: str) -> Capability:
        """Return the capability as a card holds it; its schemas must have been read."""
        given = in_code(self, (each for each in Capability.__struct_fields__ if each != "code"))
        given["input_schema"] = _read_schema(self.input_schema)
        given["result_schema"] = _read_schema(self.result_schema)
        return Capability(code=code, **given)

    def contradictions(self) -> dict[str, str]:
        """Return the keys that contradict others, each with the reason."""
        capability = Capability(code="-", **in_code(self, ("read_only", "cache_ms", "cache_similar", "hedge_ms")))
        return {field.removesuffix("_ms"): message for field, message in capability.contradictions().items()}


class ToolSection(Section, frozen=True, kw_only=True):
    """A function that agents may use; its parameters are its schema."""

    run: Run
    """The tool's code, imported with the team file's folder on the path."""
    description: str | None = None
    """The purpose of the tool (default: the docstring of its code)."""
    safe_to_repeat: bool = False
    """Whether running it twice does no harm."""
    sees: frozenset[Kind] | dict[str, frozenset[Kind]] = frozenset()
    """Kinds of personal data that the tool is given in clear: `["EMAIL"]`, or by parameter `{ email = ["EMAIL"] }`. Its
    agents get placeholders, also in its results."""
    clear: bool = False
    """Whether models get the tool's results in clear."""
    rate: Rate | None = None
    """How often all agents together may use it."""


def _read_schema(schema: dict[str, Any] | str | None) -> dict[str, Any] | None:
    if isinstance(schema, str):
        raise ValueError(f"the schema in {schema!r} has not been read")
    return schema


class StepSection(Section, frozen=True, kw_only=True):
    """One step: which agent is asked, when, and what happens if it fails. It needs `agent`, `capability` or both."""

    name: StepName
    """The name by which other steps refer to it."""
    agent: AgentName | None = None
    """The agent or workflow that is asked."""
    capability: Code | None = None
    """The capability that is asked for; without `agent`, an agent that has it is found."""
    objective: str = ""
    """The objective; `{step}` and `{step.path}` are replaced by results (default: the step's title or name)."""
    input: Any = None
    """The input; a text that is only a reference, `{step.path}`, is replaced by the value itself."""
    after: tuple[StepAfter, ...] = ()
    """Steps that must have ended before, besides those that it refers to; `a?` means: however `a` ended."""
    when: Annotated[str, Meta(max_length=MAX_CONDITION)] | None = None
    """A condition, such as `npv.value > 0 and not audit.failed`; if it is false, the step is skipped."""
    fallback: tuple[AgentName, ...] = ()
    """Agents that are asked in turn if the step fails."""
    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)],
        Meta(description=f"How often each agent is asked if a retry may help, at most {MAX_ATTEMPTS} times."),
    ] = 1
    time: Duration | None = None
    """Time for the step (default: as for any delegation)."""
    tokens: Count | None = None
    """Tokens for the step (default: as for any delegation)."""
    cost: Money | None = None
    """Money for the step: `"0.50 USD"` (default: as for any delegation)."""
    share: Share | None = None
    """The step's share of the workflow's tokens, such as `0.25`; replaces `tokens`."""
    optional: bool = False
    """Whether the workflow can succeed, and steps that refer to it can start, without it."""
    default: Any = None
    """The value of references to it if it was skipped, or if it failed and other steps continue without it."""
    title: str = ""
    """What the user reads while it is in progress (default: the capability's `phrase`)."""
    context: ContextFilter | None = None
    """What its callee sees of the conversation, by `last_messages`, `roles`, `keywords`, `max_age_seconds`,
    `include_summary`, `include_facts`, `include_workspace`, `workspace_files` and `include_contents`, and by `known`
    (default: all)."""
    files: bool = False
    """Whether its callee gets the files of the workflow's request."""

    def step(self) -> Step:
        """Return the step for a workflow."""
        fields = in_code(self, Step.__struct_fields__)
        # TOML has dates, JSON does not.
        fields["input"], fields["default"] = msgspec.to_builtins((self.input, self.default))
        return Step(**fields)


class WorkflowSection(Section, frozen=True, kw_only=True):
    """A workflow: steps that run in order or in parallel when the agent of the same name is asked."""

    description: str = ""
    """The purpose of the workflow."""
    examples: tuple[str, ...] = ()
    """Examples of what users say when they want it."""
    result: StepName | None = None
    """The step whose result is the workflow's (default: all results as one text)."""
    compare: tuple[StepName, ...] = ()
    """Steps that check each other, `["a", "b"]`: contradictions between their results are told (default: only those
    between steps that ask the same)."""
    narrate: Literal["template", "model"] = "template"
    """What combines the results into one text: a template, or the orchestrator's model."""
    time: Duration | None = None
    """Time for one request (default: the caller's or the budget's)."""
    tokens: Count | None = None
    """Tokens for one request (default: the caller's or the budget's)."""
    steps: tuple[StepSection, ...] = ()
    """The steps, in the order of their results in the answer."""

    def workflow(self, name: str) -> Workflow:
        """Return the workflow for the hub."""
        return Workflow(
            name=name,
            description=self.description,
            steps=tuple(each.step() for each in self.steps),
            result=self.result,
            compare=self.compare,
            examples=self.examples,
        )


class ConflictsSection(Section, frozen=True, kw_only=True):
    """The second reader of results, which looks for contradictions after the rules: a `model`, or an `onnx` file."""

    model: ModelName | None = None
    """The language model that reads the results, named as for an agent."""
    base_url: Url | None = None
    """The server of that model, as for an agent."""
    api_key: Secret | None = None
    """The API key for that model, as for an agent."""
    settings: dict[str, Any] = {}
    """Settings of that model, as for an agent."""
    onnx: Annotated[str, Meta(min_length=1)] | None = None
    """In place of `model`: an entailment model (ONNX), relative to the team file's folder, with its `tokenizer.json`
    beside it. It needs the extra `intent`."""
    labels: tuple[str, ...] = ()
    """The names of its outputs in their order, one of them `contradiction` (default: `id2label` of the `config.json`
    beside it)."""
    threshold: Share = ENTAILMENT_THRESHOLD
    """How probable a contradiction has to be to be pointed out by that model."""


class EncoderSection(Section, frozen=True, kw_only=True):
    """The files of a sentence encoder, with their SHA-256 digests."""

    onnx: str
    """The path of the model (ONNX)."""
    onnx_sha256: str
    """Its SHA-256."""
    tokenizer: str
    """The path of its `tokenizer.json`."""
    tokenizer_sha256: str
    """Its SHA-256."""


class OrchestratorSection(Section, frozen=True, kw_only=True):
    """An agent that finds the capability or workflow that a user asks for, and delegates to it."""

    name: AgentName = "orchestrator"
    """The name of the orchestrator."""
    reader: Literal["embeddings", "ngrams", "model"] | None = None
    """What reads users' texts: `embeddings` (default where the extra `intent` is installed and knows the language),
    `ngrams` (any language, nothing to install), or the `model`."""
    language: str = "en"
    """The language of users: `en`, `de`, or the path of a file of phrases."""
    encoder: EncoderSection | None = None
    """Another sentence encoder, for other languages: `onnx` and `tokenizer`, with `onnx_sha256` and
    `tokenizer_sha256`."""
    model: ModelName | None = None
    """The model for `reader = "model"` and `narrate = "model"`, named as for an agent."""
    base_url: Url | None = None
    """The server of that model, as for an agent."""
    api_key: Secret | None = None
    """The API key for that model, as for an agent."""
    settings: dict[str, Any] = {}
    """Settings of that model, as for an agent."""
    narrate: Literal["template", "model"] = "template"
    """What makes one text of several results: a template, or the model, as far as they support it."""
    conflicts: ConflictsSection | None = None
    """A second reader that looks for contradictions as well, in the results of the orchestrator and of all workflows: a
    `model`, with `base_url`, `api_key` and `settings`; or `onnx`, with `labels` and `threshold` (default: rules
    alone)."""
    cache: Duration = duration(DECISION_MS)
    """How long a decision is reused when a user repeats a request; `"0s"` disables it."""
    do: Share = THRESHOLDS.do
    """How sure it has to be to use a capability that is `read_only` at once."""
    say_back: Share = THRESHOLDS.say_back
    """How sure it has to be to say back what it would do, for a yes."""
    far: Share = THRESHOLDS.far
    """How surely nothing fits before it says that it may not be able to do it."""
    time: Duration | None = None
    """Time for one request (default: that of a run)."""
    tokens: Count | None = None
    """Tokens for one request (default: those of a run)."""

    def thresholds(self) -> Thresholds:
        """Return the confidence thresholds for the orchestrator."""
        return Thresholds(**in_code(self, Thresholds.__struct_fields__))
