"""The agents, what they can do, and the tools that they may use."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from remit.agents.mcp.settings import MAX_OUTPUT, TIME_S
from remit.agents.toolbox import TOOL_ROUNDS, Arguments
from remit.config.sections.base import Section
from remit.config.values import (
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
    Url,
    Variable,
    VariableName,
    duration,
    optional_ms,
)
from remit.protocol.card import CONCURRENCY, QUEUE, AgentCard, Authority, Capability, Rate
from remit.protocol.remit import Count
from remit.runtime.brief import HISTORY_TOKENS

_CARD = AgentCard(name="-")
_CAPABILITY = Capability(code="-")


class AgentSection(Section, frozen=True, kw_only=True):
    """One agent: its code, or the model that it is, and what its team lets it do."""

    run: Annotated[
        Run | None,
        Meta(
            description="Its code, imported with the team file's folder on the path: a function, a `ModelAgent`, or an "
            "agent of a framework. An agent has this, `model`, `peer`, `card` or `device`."
        ),
    ] = None
    model: Annotated[
        ModelName | None,
        Meta(
            description="The language model that it is, with the hub's tools: `provider:name` as pydantic-ai has it, "
            "or what the server at `base_url` calls it."
        ),
    ] = None
    base_url: Annotated[Url | None, Meta(description="A server that speaks OpenAI's protocol, for its model.")] = None
    api_key: Annotated[
        Secret | None, Meta(description="The key for its model; else the variable that the provider names counts.")
    ] = None
    max_tool_rounds: Annotated[
        Count, Meta(description="How often its model may use tools for one request before it has to answer.")
    ] = TOOL_ROUNDS
    max_output_tokens: Annotated[
        Positive | None, Meta(description="Tokens of one answer of its model; else 8192, and never more than are left.")
    ] = None
    history: Annotated[
        Count, Meta(description="Tokens of what its model is shown of what was said before in its session.")
    ] = HISTORY_TOKENS
    sub_agent_arguments: Annotated[
        Arguments,
        Meta(
            description="Which arguments of the tool `sub_agent` its model is told of: `short` (`agent_name`, `task`, "
            "`input`), which small models can use, or `full`."
        ),
    ] = "short"
    structured_answers: Annotated[
        bool,
        Meta(
            description="Whether its model can answer other agents with more than a text: summary, confidence, "
            "sources, facts, artifacts, and whether it asks back."
        ),
    ] = True
    settings: Annotated[
        dict[str, Any],
        Meta(description="Settings of its model, such as `{ temperature = 0.2, max_retries = 0 }`."),
    ] = {}
    peer: Annotated[
        AgentName | None,
        Meta(description="The hub at which it lives: one of `[peers.NAME]` that has a `url`. It is asked over HTTP."),
    ] = None
    remote: Annotated[
        AgentName | None,
        Meta(
            description="What it is called there, if not the same; on a `device`, what it is shared as, where that "
            "shares several with this one."
        ),
    ] = None
    card: Annotated[
        Url | None,
        Meta(description="Where its agent card is, for an agent that speaks A2A; see [a2a.md](a2a.md)."),
    ] = None
    card_token: Annotated[Secret | None, Meta(description="The token that it wants, if it wants one.")] = None
    card_keys: Annotated[tuple[PublicKey, ...], Meta(description="Keys of which one has to have signed its card.")] = ()
    card_hosts: Annotated[
        frozenset[HostName],
        Meta(description="Hosts that its card may lead to besides its own; also such as are not public."),
    ] = frozenset()
    device: Annotated[
        DeviceName | None,
        Meta(description="The device that shares it, by name or id; see [relay.md](relay.md). It is asked sealed."),
    ] = None
    max_hop_count: Annotated[
        Count,
        Meta(description="How many hops a task may have made to get to its `device`; 1 is from here to there."),
    ] = 2
    description: Annotated[str | None, Meta(description="What it is for; else what its code says of itself.")] = None
    prompt: Annotated[
        str, Meta(description="Instructions: what its model is told first, or what its code finds in the brief.")
    ] = _CARD.prompt
    version: Annotated[str, Meta(min_length=1, description="The version of the agent.")] = _CARD.version
    capabilities: Annotated[tuple[Code, ...], Meta(description="What it can do: codes of `[capabilities.CODE]`.")] = ()
    tools: Annotated[frozenset[AgentName], Meta(description="Tools that it may use.")] = _CARD.tools
    may_call: Annotated[frozenset[Callee], Meta(description='Agents that it may call; `"*"` names all of them.')] = (
        _CARD.may_call
    )
    allow_sub_agent_calls: Annotated[
        bool | None,
        Meta(
            description="`true` without `may_call`: it may call every agent of the team. "
            "`false` forbids every call, whatever `may_call` says."
        ),
    ] = _CARD.allow_sub_agent_calls
    max_sub_agent_depth: Annotated[
        Count | None, Meta(description="How many levels of delegation may follow below it.")
    ] = _CARD.max_sub_agent_depth
    authority: Annotated[
        Authority | None,
        Meta(
            description='With `"caller"` it has only those tools and targets that the agent which asks it has, too; '
            'with `"own"` its own. Else as `limits.authority` says.'
        ),
    ] = _CARD.authority
    concurrency: Annotated[
        Positive | None,
        Meta(
            description=f"How many requests it works on at once; else {CONCURRENCY}, or twice the processors "
            "for an agent in processes of its own, or 3 for one on a `device`."
        ),
    ] = None
    queue: Annotated[Count, Meta(description="How many requests may wait for it.")] = QUEUE
    rate: Annotated[
        Rate | None,
        Meta(
            description="How often it may be asked: `{ calls = 10, seconds = 60 }`; one on a `device` 30 times in 60 s "
            "unless this says otherwise."
        ),
    ] = _CARD.rate
    time: Annotated[Duration | None, Meta(description="Time for one request; else the caller's or the budget's.")] = (
        None
    )
    tokens: Annotated[Count | None, Meta(description="Tokens for one request; else the caller's or the budget's.")] = (
        _CARD.tokens
    )
    resumable: Annotated[
        bool, Meta(description="Whether its code may be run again after a restart, finished steps from the journal.")
    ] = _CARD.resumable
    isolation: Annotated[
        Literal["task", "process"], Meta(description="Whether it runs in the hub, or in processes that can be killed.")
    ] = _CARD.isolation
    env: Annotated[
        frozenset[VariableName],
        Meta(
            description="Variables of the environment that its process is given, besides PATH and the like, with "
            '`isolation = "process"`.'
        ),
    ] = frozenset()
    sandbox: Annotated[
        bool,
        Meta(
            description="Whether the system keeps its process from files, network and other processes; "
            "see [agents.md](agents.md)."
        ),
    ] = False
    reads: Annotated[tuple[str, ...], Meta(description="Files and folders that it may read in its sandbox.")] = ()
    writes: Annotated[tuple[str, ...], Meta(description="Files and folders that it may change in its sandbox.")] = ()
    network: Annotated[
        tuple[str, ...], Meta(description='Hosts that it may reach from its sandbox: `"api.example.com:443"`.')
    ] = ()
    sees: Annotated[frozenset[Kind], Meta(description="Kinds of personal data that reach it as they are.")] = _CARD.sees


class CapabilitySection(Section, frozen=True, kw_only=True):
    """Something that agents can do, by code."""

    version: Annotated[str, Meta(min_length=1, description="The version of the capability.")] = _CAPABILITY.version
    description: Annotated[str, Meta(description="What it is.")] = _CAPABILITY.description
    input_schema: Annotated[
        dict[str, Any] | str | None,
        Meta(description="JSON Schema of the input: a table, or a `.json` file from the team file's folder."),
    ] = None
    result_schema: Annotated[dict[str, Any] | str | None, Meta(description="JSON Schema of the result, likewise.")] = (
        None
    )
    time: Annotated[Duration | None, Meta(description="Time for one request.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for one request.")] = _CAPABILITY.tokens
    read_only: Annotated[bool, Meta(description="Whether it changes nothing.")] = _CAPABILITY.read_only
    cache: Annotated[
        Duration | None,
        Meta(description="How long an answer is good for who asks the same again; only if `read_only`."),
    ] = None
    cache_similar: Annotated[
        bool, Meta(description="Whether it is good too for who asks for the same in other words; only with `cache`.")
    ] = _CAPABILITY.cache_similar
    public: Annotated[bool, Meta(description="Whether what is kept of its answers is for all users alike.")] = (
        _CAPABILITY.public
    )
    hedge: Annotated[
        Duration | None,
        Meta(description="After how long another agent that has it is asked too; only if `read_only`."),
    ] = None
    examples: Annotated[tuple[str, ...], Meta(description="What people say who want it.")] = _CAPABILITY.examples
    phrase: Annotated[
        str, Meta(description='What users read while it is at work: `"Working out the financial side…"`.')
    ] = ""
    sees: Annotated[
        frozenset[Kind], Meta(description="Kinds of personal data that reach its agent as they are, when asked for it.")
    ] = _CAPABILITY.sees
    sees_fields: Annotated[
        frozenset[str], Meta(description="Fields of its input, by dotted path, that reach its agent as they are.")
    ] = _CAPABILITY.sees_fields

    def capability(self, code: str) -> Capability:
        """Return the capability as a card holds it, once its schemas are read."""
        return Capability(
            code=code,
            version=self.version,
            description=self.description,
            input_schema=_read(self.input_schema),
            result_schema=_read(self.result_schema),
            time_ms=optional_ms(self.time),
            tokens=self.tokens,
            read_only=self.read_only,
            cache_ms=optional_ms(self.cache),
            cache_similar=self.cache_similar,
            public=self.public,
            hedge_ms=optional_ms(self.hedge),
            examples=self.examples,
            sees=self.sees,
            sees_fields=self.sees_fields,
        )

    def contradictions(self) -> dict[str, str]:
        """Return what does not go together with the rest, by key."""
        said = Capability(
            code="-",
            read_only=self.read_only,
            cache_ms=optional_ms(self.cache),
            cache_similar=self.cache_similar,
            hedge_ms=optional_ms(self.hedge),
        )
        return {field.removesuffix("_ms"): message for field, message in said.contradictions().items()}


class ToolSection(Section, frozen=True, kw_only=True):
    """A function that agents may use; its parameters are its schema."""

    run: Annotated[Run, Meta(description="Its code, imported with the team file's folder on the path.")]
    description: Annotated[str | None, Meta(description="What it does; else what its code says of itself.")] = None
    safe_to_repeat: Annotated[bool, Meta(description="Whether doing it twice does no harm.")] = False
    sees: Annotated[
        frozenset[Kind] | dict[str, frozenset[Kind]],
        Meta(
            description='Kinds of personal data that it is given as they are: `["EMAIL"]`, or by parameter '
            '`{ email = ["EMAIL"] }`. Its agents get tokens, also for what it returns.'
        ),
    ] = frozenset()


class McpSection(Section, frozen=True, kw_only=True):
    """An MCP server whose tools agents may use, as `NAME.TOOL`; see [mcp.md](mcp.md). It has `command` or `url`."""

    command: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The program that starts it, found as a shell finds it, in the team file's folder."),
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="Its arguments.")] = ()
    env: Annotated[
        dict[str, Variable],
        Meta(
            description='Its environment, besides `PATH`, `HOME` and the like: plain texts, or `"$NAME"` for the value '
            "of that variable here."
        ),
    ] = {}
    url: Annotated[Url | None, Meta(description="Where it is, if it runs elsewhere and speaks streamable HTTP.")] = None
    token: Annotated[Secret | None, Meta(description="What proves this hub to a server that has a `url`.")] = None
    allow: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...],
        Meta(min_length=1, description="Its tools that agents may be given, by the names that it gives them."),
    ]
    safe_to_repeat: Annotated[frozenset[str], Meta(description="Those of them that do no harm if used twice.")] = (
        frozenset()
    )
    sees: Annotated[
        frozenset[Kind] | dict[str, frozenset[Kind] | dict[str, frozenset[Kind]]],
        Meta(
            description='Kinds of personal data that its tools are given as they are: `["EMAIL"]`, or by tool '
            '`{ find = ["EMAIL"] }`, or by tool and parameter `{ find = { email = ["EMAIL"] } }`.'
        ),
    ] = frozenset()
    prefix: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="What stands before its tools' names, and a point; else its name. Empty: nothing does."),
    ] = None
    time: Annotated[Duration, Meta(description="Time for one use of a tool.")] = duration(TIME_S * 1_000)
    max_output: Annotated[
        Positive, Meta(description="Characters of a result that an agent is given; the rest is cut off.")
    ] = MAX_OUTPUT


def _read(schema: dict[str, Any] | str | None) -> dict[str, Any] | None:
    if isinstance(schema, str):
        raise ValueError(f"the schema in {schema!r} has not been read")
    return schema
