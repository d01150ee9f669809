"""What a team file may say: every section and key, with its default and what it means.

The structs below are the one source: the loader checks files against them, editors complete from the JSON Schema that
is made of them, and `docs/team.md` is written from that schema.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct, field

from remit.agents.mcp.settings import MAX_OUTPUT, TIME_S
from remit.agents.toolbox import TOOL_ROUNDS
from remit.faces.team.values import (
    KEY_PATH,
    REVOKED_PATH,
    STORE_PATH,
    TRUSTED_PATH,
    AgentName,
    Between,
    Callee,
    Code,
    DeviceName,
    Duration,
    GatewayUrl,
    HeaderName,
    HostName,
    Kind,
    ModelName,
    Positive,
    PublicKey,
    Region,
    Run,
    Secret,
    StepName,
    Url,
    UserName,
    Variable,
    duration,
    duration_ms,
)
from remit.policy.breaker import BreakerSettings
from remit.policy.intent import DECISION_MS, Thresholds
from remit.policy.limits import Limits
from remit.policy.plan import MAX_ATTEMPTS, MAX_CONDITION, Share, Step, Workflow
from remit.policy.rules import Editable, Pattern, Rule
from remit.protocol.card import CONCURRENCY, QUEUE, AgentCard, Capability, Rate
from remit.protocol.envelope import ContextFilter
from remit.protocol.remit import Count
from remit.relay.frames import Constraints, Mode
from remit.runtime.brief import HISTORY_TOKENS
from remit.transports.credentials.algorithms import ALGORITHMS, Algorithm

_LIMITS = Limits()
_BREAKER = BreakerSettings()
_RULE = Rule(then="ask")
_THRESHOLDS = Thresholds()
_CARD = AgentCard(name="-")
_CAPABILITY = Capability(code="-")
_CONSTRAINTS = Constraints()


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a team file in which a key that is not known is an error."""


class StoreSection(Section, frozen=True, kw_only=True):
    """Where everything is recorded."""

    path: Annotated[str, Meta(min_length=1, description="The SQLite file, from the team file's folder.")] = STORE_PATH
    durability: Annotated[
        Literal["power", "process"],
        Meta(description="What an answer survives once it is given: a power cut, or the process being killed."),
    ] = "power"


class LimitsSection(Section, frozen=True, kw_only=True):
    """What no delegation may exceed."""

    max_depth: Annotated[Count, Meta(description="How deep agents may stand below the one that the user asks.")] = (
        _LIMITS.max_depth
    )
    max_chain: Annotated[Count, Meta(description="How many agents may stand between the user and a call.")] = (
        _LIMITS.max_chain
    )
    max_fan_out: Annotated[Count, Meta(description="How many delegations one agent may have under way at once.")] = (
        _LIMITS.max_fan_out
    )
    max_result_bytes: Annotated[Count, Meta(description="How large one answer may be, as JSON.")] = (
        _LIMITS.max_result_bytes
    )
    max_progress: Annotated[
        Count, Meta(description="How many progress reports one delegation may make; later ones are dropped.")
    ] = _LIMITS.max_progress
    grace: Annotated[
        Duration, Meta(description="How long a cancelled agent may take to clean up before it is abandoned.")
    ] = duration(_LIMITS.grace_ms)
    shared_scopes: Annotated[frozenset[str], Meta(description="Owner scopes that every user may refer to.")] = (
        _LIMITS.shared_scopes
    )


class BudgetsSection(Section, frozen=True, kw_only=True):
    """Time and tokens, unless an agent, a capability or a caller says less."""

    run_tokens: Annotated[Count, Meta(description="Tokens of a run: of the agent asked and all below it.")] = (
        _LIMITS.root_tokens
    )
    delegation_tokens: Annotated[Count, Meta(description="Tokens of one delegation whose caller says nothing.")] = (
        _LIMITS.delegation_tokens
    )
    context_tokens: Annotated[Count, Meta(description="Tokens of what a callee is shown of the conversation.")] = (
        _LIMITS.context_tokens
    )
    run_time: Annotated[Duration, Meta(description="Time of a run.")] = duration(_LIMITS.root_time_ms)
    delegation_time: Annotated[Duration, Meta(description="Time of one delegation whose caller says nothing.")] = (
        duration(_LIMITS.delegation_time_ms)
    )


class BreakerSection(Section, frozen=True, kw_only=True):
    """When an agent that keeps failing is left alone, and for how long."""

    failures_in_a_row: Annotated[Positive, Meta(description="So many failures in a row are enough.")] = (
        _BREAKER.failures_in_a_row
    )
    failure_share: Annotated[
        float, Meta(gt=0, le=1, description="Or this share of the calls in a window, if there were enough of them.")
    ] = _BREAKER.failure_share
    at_least_calls: Annotated[Positive, Meta(description="A share of fewer calls than this says nothing.")] = (
        _BREAKER.at_least_calls
    )
    window: Annotated[Duration, Meta(description="The window in which the share is counted.")] = duration(
        _BREAKER.window_s * 1_000
    )
    open: Annotated[Duration, Meta(description="How long calls are refused, times the number of openings.")] = duration(
        _BREAKER.open_s * 1_000
    )
    max_open: Annotated[Duration, Meta(description="How long at most.")] = duration(_BREAKER.max_open_s * 1_000)

    def settings(self) -> BreakerSettings:
        """Return these settings as the runtime takes them."""
        return BreakerSettings(
            failures_in_a_row=self.failures_in_a_row,
            failure_share=self.failure_share,
            at_least_calls=self.at_least_calls,
            window_s=duration_ms(self.window) / 1_000,
            open_s=duration_ms(self.open) / 1_000,
            max_open_s=duration_ms(self.max_open) / 1_000,
        )


class AgentSection(Section, frozen=True, kw_only=True):
    """One agent: its code, or the model that it is, and what its team lets it do."""

    run: Annotated[
        Run | None,
        Meta(
            description="Its code, imported with the team file's folder on the path: a function, a `ModelAgent`, or an "
            "agent of a framework. An agent has this, `model`, `peer` or `card`."
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
    settings: Annotated[
        dict[str, Any],
        Meta(description="Settings of its model, such as `{ temperature = 0.2, max_retries = 0 }`."),
    ] = {}
    peer: Annotated[
        AgentName | None,
        Meta(description="The hub at which it lives: one of `[peers.NAME]` that has a `url`. It is asked over HTTP."),
    ] = None
    remote: Annotated[AgentName | None, Meta(description="What it is called there, if not the same.")] = None
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
        bool | None, Meta(description="`false` forbids every call, whatever `may_call` says.")
    ] = _CARD.allow_sub_agent_calls
    max_sub_agent_depth: Annotated[
        Count | None, Meta(description="How many levels of delegation may follow below it.")
    ] = _CARD.max_sub_agent_depth
    concurrency: Annotated[
        Positive | None,
        Meta(
            description=f"How many requests it works on at once; else {CONCURRENCY}, or twice the processors "
            "for an agent in processes of its own."
        ),
    ] = None
    queue: Annotated[Count, Meta(description="How many requests may wait for it.")] = QUEUE
    rate: Annotated[Rate | None, Meta(description="How often it may be asked: `{ calls = 10, seconds = 60 }`.")] = (
        _CARD.rate
    )
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
            time_ms=_ms(self.time),
            tokens=self.tokens,
            read_only=self.read_only,
            cache_ms=_ms(self.cache),
            cache_similar=self.cache_similar,
            public=self.public,
            hedge_ms=_ms(self.hedge),
            examples=self.examples,
            sees=self.sees,
            sees_fields=self.sees_fields,
        )

    def contradictions(self) -> dict[str, str]:
        """Return what does not go together with the rest, by key."""
        said = Capability(
            code="-",
            read_only=self.read_only,
            cache_ms=_ms(self.cache),
            cache_similar=self.cache_similar,
            hedge_ms=_ms(self.hedge),
        )
        return {field.removesuffix("_ms"): message for field, message in said.contradictions().items()}


class ToolSection(Section, frozen=True, kw_only=True):
    """A function that agents may use; its parameters are its schema."""

    run: Annotated[Run, Meta(description="Its code, imported with the team file's folder on the path.")]
    description: Annotated[str | None, Meta(description="What it does; else what its code says of itself.")] = None
    safe_to_repeat: Annotated[bool, Meta(description="Whether doing it twice does no harm.")] = False


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
    prefix: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="What stands before its tools' names, and a point; else its name. Empty: nothing does."),
    ] = None
    time: Annotated[Duration, Meta(description="Time for one use of a tool.")] = duration(TIME_S * 1_000)
    max_output: Annotated[
        Positive, Meta(description="Characters of a result that an agent is given; the rest is cut off.")
    ] = MAX_OUTPUT


class StepSection(Section, frozen=True, kw_only=True):
    """One step: who is asked for what, when, and what is done if that fails. It needs `agent`, `capability` or both."""

    name: Annotated[StepName, Meta(description="How other steps refer to it.")]
    agent: Annotated[AgentName | None, Meta(description="Who is asked: an agent, or another workflow.")] = None
    capability: Annotated[
        Code | None, Meta(description="What is asked for; without `agent`, whoever has it is found.")
    ] = None
    objective: Annotated[
        str,
        Meta(description="What is to be done; `{step}` and `{step.path}` stand for results. Else its title or name."),
    ] = ""
    input: Annotated[
        Any, Meta(description="What it is given; a text that is only a reference, `{step.path}`, becomes the value.")
    ] = None
    after: Annotated[
        tuple[StepName, ...], Meta(description="Steps that must have ended before, besides those that it refers to.")
    ] = ()
    when: Annotated[
        Annotated[str, Meta(max_length=MAX_CONDITION)] | None,
        Meta(description="A condition, `npv.value > 0 and not audit.failed`: if it does not hold, it is skipped."),
    ] = None
    fallback: Annotated[tuple[AgentName, ...], Meta(description="Agents that are asked in turn if it fails.")] = ()
    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)],
        Meta(description=f"How often each is asked where asking again may help, at most {MAX_ATTEMPTS} times."),
    ] = 1
    time: Annotated[Duration | None, Meta(description="Time for it; else as for any delegation.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for it; else as for any delegation.")] = None
    share: Annotated[
        Share | None, Meta(description="Instead of `tokens`, its part of the workflow's tokens: `0.25`.")
    ] = None
    optional: Annotated[bool, Meta(description="Whether the workflow succeeds without it.")] = False
    title: Annotated[
        str, Meta(description="What the user reads while it is at work; else its capability's `phrase`.")
    ] = ""
    context: Annotated[
        ContextFilter | None,
        Meta(
            description="What its callee sees of the conversation, by `last_messages`, `roles`, `keywords`, "
            "`max_age_seconds`, `include_summary`, `include_workspace`, `workspace_files` and `include_contents`."
        ),
    ] = None

    def step(self) -> Step:
        """Return the step as a workflow holds it."""
        said = {field: getattr(self, field) for field in self.__struct_fields__ if field not in ("input", "time")}
        # TOML has dates, JSON has not.
        return Step(**said, input=msgspec.to_builtins(self.input), time_ms=_ms(self.time))


class WorkflowSection(Section, frozen=True, kw_only=True):
    """A workflow: steps that are carried out in order, or side by side, when the agent of its name is asked."""

    description: Annotated[str, Meta(description="What it is for.")] = ""
    examples: Annotated[tuple[str, ...], Meta(description="What people say who want it.")] = ()
    result: Annotated[
        StepName | None, Meta(description="The step whose result is the workflow's; else all are told as one text.")
    ] = None
    narrate: Annotated[
        Literal["template", "model"],
        Meta(description="Who tells its results as one text: a template, or the orchestrator's model."),
    ] = "template"
    time: Annotated[Duration | None, Meta(description="Time for one request; else the caller's or the budget's.")] = (
        None
    )
    tokens: Annotated[Count | None, Meta(description="Tokens for one request; else the caller's or the budget's.")] = (
        None
    )
    steps: Annotated[
        tuple[StepSection, ...], Meta(description="The steps, in the order in which their results are told.")
    ] = ()

    def workflow(self, name: str) -> Workflow:
        """Return the workflow as a hub takes it."""
        return Workflow(
            name=name,
            description=self.description,
            steps=tuple(each.step() for each in self.steps),
            result=self.result,
            examples=self.examples,
        )


class RuleSection(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to calls that fit; the first rule that fits decides, and `*` stands for anything in a name."""

    then: Annotated[
        Literal["allow", "ask", "refuse"], Meta(description="Let the call pass, ask a person first, or refuse it.")
    ]
    from_: Annotated[Pattern, Meta(description="Who calls; `user` is the user.")] = field(
        default=_RULE.from_, name="from"
    )
    to: Annotated[Pattern, Meta(description="Who is called.")] = _RULE.to
    capability: Annotated[Pattern | None, Meta(description="For which capability.")] = _RULE.capability
    user: Annotated[Pattern, Meta(description="In whose name.")] = _RULE.user
    mentions: Annotated[
        tuple[Pattern, ...],
        Meta(description="Words of which at least one stands in the objective or the input, whatever their case."),
    ] = _RULE.mentions
    say: Annotated[str, Meta(description="The question that a person is asked, or the reason for the refusal.")] = (
        _RULE.say
    )
    edit: Annotated[frozenset[Editable], Meta(description="What the person may change before agreeing.")] = _RULE.edit


class ApprovalsSection(Section, frozen=True, kw_only=True):
    """Who answers when a person must agree to a call."""

    allow: Annotated[
        tuple[Between, ...],
        Meta(description='Calls that need no person: `"callee"` or `"caller -> callee"`; `*` stands for anything.'),
    ] = ()
    otherwise: Annotated[
        Literal["deny", "terminal", "inbox"],
        Meta(
            description="All other calls: refused, asked about on the terminal, or put into the inbox, "
            "where `remit pending` finds them. Where there is no terminal, it is the inbox."
        ),
    ] = "inbox"
    timeout: Annotated[Duration, Meta(description="How long a question waits for an answer.")] = duration(
        _LIMITS.approval_timeout_ms
    )


class RedactionSection(Section, frozen=True, kw_only=True):
    """Personal data and secrets, for which agents are given tokens instead."""

    enabled: Annotated[bool, Meta(description="Whether anything is redacted at all.")] = True
    kinds: Annotated[
        tuple[Kind, ...] | None, Meta(description="Built-in kinds that are looked for; all of them if it is not given.")
    ] = None
    regions: Annotated[
        tuple[Region, ...] | None, Meta(description="Countries whose telephone numbers are known without a prefix.")
    ] = None
    detectors: Annotated[
        tuple[Run, ...],
        Meta(description="Own detectors: each takes a text and returns what it found, a list of `remit.Finding`."),
    ] = ()
    patterns: Annotated[
        dict[Kind, Annotated[str, Meta(min_length=1)]],
        Meta(description="Own kinds, each by a regular expression (RE2: no look-around, no back-references)."),
    ] = {}
    key: Annotated[
        Secret | None,
        Meta(
            description="32 bytes in hexadecimal or Base64 that encrypt what was redacted; "
            "else a key beside the store is made and used."
        ),
    ] = None


class ContextSection(Section, frozen=True, kw_only=True):
    """What callees are shown of a conversation, and how its length is told."""

    tokens: Annotated[
        Literal["auto", "o200k_base", "cl100k_base", "estimate"],
        Meta(
            description="How tokens are counted: by the encoding of a family of models, which needs the extra "
            "`tokens`, by an estimate, or as exactly as what is installed can."
        ),
    ] = "auto"
    workspace: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The folder that callees may be told of, from the team file's folder."),
    ] = None
    summary_model: Annotated[
        ModelName | None,
        Meta(description="The model that makes summaries of conversations; else they are made without one."),
    ] = None
    summary_base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    summary_api_key: Annotated[Secret | None, Meta(description="The key for that model, as for an agent.")] = None


class OrchestratorSection(Section, frozen=True, kw_only=True):
    """An agent that finds out what a user wants, among all capabilities and workflows, and has it done."""

    name: Annotated[AgentName, Meta(description="What it is called.")] = "orchestrator"
    classifier: Annotated[
        Literal["words", "embeddings", "model"],
        Meta(
            description="How it tells what is wanted: by words; by meaning, which needs the extra `intent`; or by "
            "asking its `model`."
        ),
    ] = "words"
    model: Annotated[
        ModelName | None,
        Meta(description='The model of `classifier = "model"` and `narrate = "model"`, named as for an agent.'),
    ] = None
    base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    api_key: Annotated[Secret | None, Meta(description="The key for that model, as for an agent.")] = None
    settings: Annotated[dict[str, Any], Meta(description="Settings of that model, as for an agent.")] = {}
    narrate: Annotated[
        Literal["template", "model"],
        Meta(description="Who tells several results as one text: a template, or the model if it adds nothing."),
    ] = "template"
    cache: Annotated[
        Duration, Meta(description='How long a decision counts when a user says the same again; `"0s"`: not at all.')
    ] = duration(DECISION_MS)
    act: Annotated[Share, Meta(description="How sure it must be to act.")] = _THRESHOLDS.act
    also: Annotated[Share, Meta(description="How sure of a further thing that the same request asks for.")] = (
        _THRESHOLDS.also
    )
    offer: Annotated[Share, Meta(description="How sure that one of several options is meant, to offer them.")] = (
        _THRESHOLDS.offer
    )
    close: Annotated[Share, Meta(description="What share of the best an option must have to be offered beside it.")] = (
        _THRESHOLDS.close
    )
    nothing: Annotated[Share, Meta(description="Below this it says that nothing fits.")] = _THRESHOLDS.nothing
    time: Annotated[Duration | None, Meta(description="Time for one request; else that of a run.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for one request; else those of a run.")] = None

    def thresholds(self) -> Thresholds:
        """Return how sure it must be, as the orchestrator takes it."""
        return Thresholds(act=self.act, also=self.also, offer=self.offer, close=self.close, nothing=self.nothing)


class IdentitySection(Section, frozen=True, kw_only=True):
    """How this hub proves to others who it is, and what it keeps of others; see [credentials.md](credentials.md)."""

    key: Annotated[
        str, Meta(min_length=1, description="The file of its key, from the team file's folder: `remit keys init`.")
    ] = KEY_PATH
    trusted: Annotated[
        str, Meta(min_length=1, description="The file of further keys of peers: `remit keys trust`.")
    ] = TRUSTED_PATH
    revoked: Annotated[
        str, Meta(min_length=1, description="The file of credentials that no longer count: `remit keys revoke`.")
    ] = REVOKED_PATH


class PeerSection(Section, frozen=True, kw_only=True):
    """Another hub, under the name that it gives itself. It is known by its keys, or by a token that both share."""

    url: Annotated[Url | None, Meta(description="Where it is, if agents of it are asked.")] = None
    keys: Annotated[
        tuple[PublicKey, ...], Meta(description="Its public keys, oldest first; besides those in `[identity]` trusted.")
    ] = ()
    token: Annotated[Secret | None, Meta(description="A token that both hubs know; used where there are no keys.")] = (
        None
    )
    agents: Annotated[frozenset[Callee], Meta(description='Agents here that it may ask; `"*"` names all of them.')] = (
        frozenset()
    )
    users: Annotated[frozenset[UserName], Meta(description='Users for whom it may ask; `"*"` is anyone.')] = frozenset(
        {"*"}
    )


class ClientSection(Section, frozen=True, kw_only=True):
    """A program that asks over HTTP: known by a token of its own, or by tokens of its users' identity provider."""

    token: Annotated[Secret | None, Meta(description="Its token. A client has this or `issuer`.")] = None
    issuer: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The identity provider (OpenID Connect) of its users, as its tokens name it in `iss`."),
    ] = None
    audience: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="What a token for this hub holds in `aud`."),
    ] = None
    jwks: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The provider's public keys: an `https` address, or a file from the team file's folder."),
    ] = None
    algorithms: Annotated[
        tuple[Algorithm, ...], Meta(min_length=1, description="How the provider signs; nothing else counts.")
    ] = ALGORITHMS
    user_claim: Annotated[
        Annotated[str, Meta(min_length=1)], Meta(description="Which claim of a token names the user.")
    ] = "sub"
    operator: Annotated[bool, Meta(description="Whether it may see everyone's runs, the record and the figures.")] = (
        False
    )
    answers: Annotated[
        bool,
        Meta(
            description="Whether its users may answer through it, over MCP, what a person is asked about their own "
            "runs. Those of an operator may."
        ),
    ] = False
    agents: Annotated[frozenset[Callee], Meta(description='Agents that it may ask; `"*"` names all of them.')]
    users: Annotated[
        frozenset[UserName] | None,
        Meta(description='Users for whom it may ask, `"*"` is anyone; with `issuer`, all that the provider knows.'),
    ] = None


class ServeSection(Section, frozen=True, kw_only=True):
    """How the hub is served over HTTP: `remit serve`; see [serving.md](serving.md)."""

    host: Annotated[str, Meta(min_length=1, description="The address that is listened at; `0.0.0.0` is all.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)], Meta(description="The port that is listened at; 0 is any that is free.")
    ] = 8_080
    agents: Annotated[
        frozenset[Callee], Meta(description='Agents that can be asked from outside; `"*"` names all of them.')
    ] = frozenset({"*"})
    drain: Annotated[
        Duration, Meta(description="How long a server that is told to end lets go on what is under way.")
    ] = "20s"
    connections: Annotated[Positive, Meta(description="How many connections may be open at once.")] = 900
    certificate: Annotated[
        str | None, Meta(description="The certificate for https, a PEM file from the team file's folder.")
    ] = None
    private_key: Annotated[str | None, Meta(description="The key of that certificate, a PEM file.")] = None


class A2aSection(Section, frozen=True, kw_only=True):
    """That the agents which are served speak A2A, too; see [a2a.md](a2a.md)."""

    agents: Annotated[
        frozenset[Callee], Meta(description='Agents that do, of those that are served; `"*"` names all of them.')
    ] = frozenset({"*"})
    default: Annotated[
        Callee | None, Meta(description="The agent whose card is at `/.well-known/agent-card.json`.")
    ] = None
    url: Annotated[
        Url | None, Meta(description="Where the server is reached from outside; else as each client addresses it.")
    ] = None
    require_remit: Annotated[
        bool, Meta(description="Whether clients have to use the extension that carries a remit.")
    ] = False
    push: Annotated[bool, Meta(description="Whether clients may have themselves notified.")] = True
    push_hosts: Annotated[
        frozenset[HostName],
        Meta(description="Hosts where they may be notified though these are not in the public network."),
    ] = frozenset()


class RelaySection(Section, frozen=True, kw_only=True):
    """The gateway over which this device reaches others, and they it; see [relay.md](relay.md)."""

    gateway: Annotated[GatewayUrl, Meta(description="Where the gateway is, as `remit relay` prints it.")]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description="What the gateway calls itself; else the host in `gateway`. Another gets no signature."),
    ] = None
    user: Annotated[
        Annotated[str, Meta(max_length=200)],
        Meta(description="In whose name this device asks; who is asked reads it. Empty: in that of the device alone."),
    ] = ""
    authority: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Whose certificates count for `wss`, a PEM file; else those that this machine trusts."),
    ] = None
    passphrase: Annotated[
        Secret | None,
        Meta(description="A passphrase that the device's key file needs besides; made with it, if at all."),
    ] = None


# As `remit.relay.profile` and `remit.relay.review` have them; those take longer to load than most commands may.
ReviewRule = Literal[
    "low_confidence",
    "first_contact",
    "money",
    "credentials",
    "personal_data",
    "links",
    "large_edit",
    "off_objective",
]
_RATE = Rate(30, 60)


class ProfileLimitsSection(Section, frozen=True, kw_only=True):
    """Where a run of a profile ends, whatever its agents say."""

    max_turns: Annotated[Positive, Meta(description="So many messages to the shared agent.")] = 8
    max_duration: Annotated[Duration, Meta(description="So long at work; while it is paused, no time passes.")] = "10m"
    max_failures: Annotated[Positive, Meta(description="So many failures in a row.")] = 3
    max_tokens: Annotated[
        Positive | None, Meta(description="So many tokens of the local agent; else no such limit.")
    ] = None


class ProfileRulesSection(Section, frozen=True, kw_only=True):
    """When a person looks at a draft first, in mode `semi_auto`."""

    off: Annotated[frozenset[ReviewRule], Meta(description="Rules that never ask.")] = frozenset()
    min_confidence: Annotated[Share, Meta(description="How sure of its draft the local agent has to be.")] = 0.7
    max_chars: Annotated[Positive, Meta(description="How long a draft may be.")] = 4_000
    min_shared_words: Annotated[
        Share, Meta(description="What share of its words the objective or the last reply has to hold.")
    ] = 0.1


class ProfileConstraintsSection(Section, frozen=True, kw_only=True):
    """What the local agent is held to in each turn."""

    max_output_chars: Annotated[Positive, Meta(description="Characters of a draft.")] = _CONSTRAINTS.max_output_chars
    allow_tool_use: Annotated[bool, Meta(description="Whether it may use tools.")] = _CONSTRAINTS.allow_tool_use
    max_history_turns: Annotated[Count, Meta(description="Turns that it is shown as they were said.")] = (
        _CONSTRAINTS.max_history_turns
    )
    max_history_chars: Annotated[Count, Meta(description="Characters of them.")] = _CONSTRAINTS.max_history_chars
    max_tool_rounds: Annotated[Count, Meta(description="How often it may use tools.")] = _CONSTRAINTS.max_tool_rounds
    turn_timeout: Annotated[Duration, Meta(description="Time for a turn: at most 120 s, without tools 60 s.")] = (
        duration(_CONSTRAINTS.local_turn_timeout_ms)
    )


class ProfileSection(Section, frozen=True, kw_only=True):
    """A local agent that may work with shared ones, and within what. It has `agent`, `run` or `acp`."""

    agent: Annotated[AgentName | None, Meta(description="An agent of this team.")] = None
    run: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="Or a program that takes and gives lines of JSON, with its arguments; see [relay.md](relay.md)."
        ),
    ] = None
    acp: Annotated[
        tuple[str, ...] | None,
        Meta(description="Or a program that speaks the Agent Client Protocol; needs the extra `acp`."),
    ] = None
    env: Annotated[
        dict[str, Variable],
        Meta(
            description="The environment of that program, besides `PATH`, `HOME` and the like: plain texts, or "
            '`"$NAME"` for the value of that variable here.'
        ),
    ] = {}
    allow_shared_agent_calls: Annotated[
        bool, Meta(description="Whether it may have to do with shared agents at all.")
    ] = False
    devices: Annotated[
        frozenset[DeviceName], Meta(description="The devices that it may call, by name or id; none if it is not given.")
    ] = frozenset()
    max_concurrent_shared_calls: Annotated[Positive, Meta(description="How many calls may be under way at once.")] = 3
    max_hop_count: Annotated[Count, Meta(description="How many agents a task may have passed on its way.")] = 2
    rate: Annotated[Rate, Meta(description="How often it may call each device: `{ calls = 30, seconds = 60 }`.")] = (
        _RATE
    )
    mode: Annotated[
        Mode,
        Meta(
            description="Whether a person agrees to each message (`manual`), to those that a rule asks about "
            "(`semi_auto`), or to none (`full_auto`); where a run does not say."
        ),
    ] = "manual"
    limits: Annotated[ProfileLimitsSection, Meta(description="Where a run ends.")] = ProfileLimitsSection()
    rules: Annotated[ProfileRulesSection, Meta(description="When a person looks first.")] = ProfileRulesSection()
    constraints: Annotated[ProfileConstraintsSection, Meta(description="What a turn may take.")] = (
        ProfileConstraintsSection()
    )


class SharedSection(Section, frozen=True, kw_only=True):
    """An agent of this team that other devices may ask: `remit share`; see [relay.md](relay.md)."""

    agent: Annotated[AgentName | None, Meta(description="The agent; else the one of the section's name.")] = None
    devices: Annotated[
        frozenset[DeviceName], Meta(description="The devices that may ask it, by name or id; none if it is not given.")
    ] = frozenset()
    max_concurrent_shared_calls: Annotated[
        Positive, Meta(description="How many of their questions are worked on at once.")
    ] = 3
    max_hop_count: Annotated[Count, Meta(description="How many agents a task may have passed on its way.")] = 2
    rate: Annotated[Rate, Meta(description="How often each device may ask: `{ calls = 30, seconds = 60 }`.")] = _RATE


class TelemetrySection(Section, frozen=True, kw_only=True):
    """Spans and metrics for an OpenTelemetry collector, with the extra `otel`; see [tracing.md](tracing.md)."""

    endpoint: Annotated[
        Url | None,
        Meta(
            description="Where the collector is: OTLP over HTTP, as in `http://localhost:4318`; "
            "else what `OTEL_EXPORTER_OTLP_ENDPOINT` says."
        ),
    ] = None
    headers: Annotated[
        dict[HeaderName, Annotated[str, Meta(min_length=1)]],
        Meta(description='Headers that it wants, each a text or a secret: `{ authorization = "$OTLP_AUTH" }`.'),
    ] = {}
    service: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The service that the spans are of; else `OTEL_SERVICE_NAME`, else the team's name."),
    ] = None
    content: Annotated[
        bool, Meta(description="Whether what is said goes along: objectives, inputs and results, redacted.")
    ] = False
    sample: Annotated[
        Share,
        Meta(description="The share of the runs that begin here that is traced; of others, who sent them decides."),
    ] = 1.0
    metrics: Annotated[bool, Meta(description="Whether metrics are sent, too.")] = True
    interval: Annotated[Duration, Meta(description="How often metrics are sent.")] = "60s"


class TeamFile(Section, frozen=True, kw_only=True):
    """The team of a Remit hub: its agents, and what holds for them."""

    name: Annotated[AgentName, Meta(description="The hub's name; it stands behind the `@` in chains.")] = "local"
    version: Annotated[Literal[1], Meta(description="The version of this format.")] = 1
    store: Annotated[StoreSection, Meta(description="Where everything is recorded.")] = StoreSection()
    limits: Annotated[LimitsSection, Meta(description="What no delegation may exceed.")] = LimitsSection()
    budgets: Annotated[BudgetsSection, Meta(description="Time and tokens.")] = BudgetsSection()
    breaker: Annotated[BreakerSection, Meta(description="When an agent that keeps failing is left alone.")] = (
        BreakerSection()
    )
    agents: Annotated[dict[AgentName, AgentSection], Meta(description="The agents, by name.")] = {}
    capabilities: Annotated[dict[Code, CapabilitySection], Meta(description="What agents can do, by code.")] = {}
    tools: Annotated[dict[AgentName, ToolSection], Meta(description="What agents may use, by name.")] = {}
    mcp: Annotated[dict[AgentName, McpSection], Meta(description="MCP servers whose tools agents use, by name.")] = {}
    workflows: Annotated[
        dict[AgentName, WorkflowSection], Meta(description="Steps that are carried out together, by name.")
    ] = {}
    orchestrator: Annotated[
        OrchestratorSection | None, Meta(description="The agent that users can ask for anything: `remit ask`.")
    ] = None
    glossary: Annotated[
        dict[str, str], Meta(description='The one term for each variant of it: `turnover = "revenue"`.')
    ] = {}
    rules: Annotated[tuple[RuleSection, ...], Meta(description="Which calls are refused or need a person.")] = ()
    approvals: Annotated[ApprovalsSection, Meta(description="Who answers when a person must agree.")] = (
        ApprovalsSection()
    )
    redaction: Annotated[RedactionSection, Meta(description="What agents do not get to see.")] = RedactionSection()
    context: Annotated[ContextSection, Meta(description="What callees are shown of a conversation.")] = ContextSection()
    identity: Annotated[IdentitySection, Meta(description="How this hub proves who it is.")] = IdentitySection()
    peers: Annotated[dict[AgentName, PeerSection], Meta(description="Other hubs, by name.")] = {}
    clients: Annotated[dict[AgentName, ClientSection], Meta(description="Programs that ask over HTTP, by name.")] = {}
    serve: Annotated[ServeSection, Meta(description="How the hub is served over HTTP.")] = ServeSection()
    a2a: Annotated[A2aSection | None, Meta(description="That the agents which are served speak A2A, too.")] = None
    relay: Annotated[RelaySection | None, Meta(description="The gateway between this device and others.")] = None
    profiles: Annotated[
        dict[AgentName, ProfileSection], Meta(description="Local agents that work with shared ones, by name.")
    ] = {}
    shared: Annotated[
        dict[AgentName, SharedSection], Meta(description="Agents that other devices may ask, by name.")
    ] = {}
    telemetry: Annotated[
        TelemetrySection | None, Meta(description="Where spans and metrics go, for OpenTelemetry.")
    ] = None


class Team(TeamFile, frozen=True, kw_only=True):
    """A team as it was read: what its file and the overrides say, its schemas loaded, and where the file is."""

    file: Path
    overrides: tuple[str, ...] = ()
    """What was said on the command line, and counts more than the file."""

    @property
    def folder(self) -> Path:
        """Where relative paths begin, and agents' code is found."""
        return self.file.parent

    @property
    def workspace(self) -> Path | None:
        """The folder that callees may be told of."""
        return None if self.context.workspace is None else self.folder / self.context.workspace

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        return self.folder / self.store.path

    @property
    def everyone(self) -> tuple[str, ...]:
        """Whoever can be asked: its agents, its workflows and its orchestrator."""
        return (*self.agents, *self.workflows, *([] if self.orchestrator is None else [self.orchestrator.name]))

    def settled_limits(self) -> Limits:
        """Return limits, budgets and the time for approvals as the runtime takes them."""
        limits, budgets = self.limits, self.budgets
        return Limits(
            max_depth=limits.max_depth,
            max_chain=limits.max_chain,
            max_fan_out=limits.max_fan_out,
            root_time_ms=duration_ms(budgets.run_time),
            delegation_time_ms=duration_ms(budgets.delegation_time),
            root_tokens=budgets.run_tokens,
            delegation_tokens=budgets.delegation_tokens,
            context_tokens=budgets.context_tokens,
            max_result_bytes=limits.max_result_bytes,
            max_progress=limits.max_progress,
            grace_ms=duration_ms(limits.grace),
            approval_timeout_ms=duration_ms(self.approvals.timeout),
            shared_scopes=limits.shared_scopes,
        )


def _ms(text: str | None) -> int | None:
    return None if text is None else duration_ms(text)


def _read(schema: dict[str, Any] | str | None) -> dict[str, Any] | None:
    if isinstance(schema, str):
        raise ValueError(f"the schema in {schema!r} has not been read")
    return schema


# ── for editors ───────────────────────────────────────────────────────────────────────────────────────────────────────


def team_schema() -> dict[str, Any]:
    """Return the JSON Schema of a team file (draft 2020-12), from which editors complete and check."""
    schema = cast("dict[str, Any]", _as_editors_read(msgspec.json.schema(TeamFile)))
    definitions = schema["$defs"]
    kinds = ("run", "model", "peer", "card")
    definitions[AgentSection.__name__]["oneOf"] = [{"required": [kind]} for kind in kinds]
    definitions[StepSection.__name__]["anyOf"] = [{"required": ["agent"]}, {"required": ["capability"]}]
    definitions[WorkflowSection.__name__]["required"] = ["steps"]
    definitions[McpSection.__name__]["oneOf"] = [{"required": ["command"]}, {"required": ["url"]}]
    definitions[ProfileSection.__name__]["oneOf"] = [{"required": [kind]} for kind in ("agent", "run", "acp")]
    # Not every editor follows a reference at the very top.
    file = definitions.pop(TeamFile.__name__) | {"title": "remit.toml"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **file, "$defs": definitions}


def _as_editors_read(schema: object) -> object:
    r"""Return a schema without null, which TOML cannot say, and whose patterns end with `$`: ECMA-262 knows no `\Z`."""
    if isinstance(schema, list):
        return [_as_editors_read(each) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _as_editors_read(each) for name, each in cast("dict[str, object]", schema).items()}
    if isinstance(pattern := plain.get("pattern"), str):
        plain["pattern"] = pattern.replace(r"\Z", "$")
    if "default" in plain and (plain["default"] is None or isinstance(plain["default"], dict)):
        del plain["default"]
    options = plain.get("anyOf")
    if isinstance(options, list):
        left = [each for each in cast("list[dict[str, object]]", options) if each != {"type": "null"}]
        if len(left) == 1:
            del plain["anyOf"]
            return {**left[0], **plain}
        plain["anyOf"] = left
    return plain
