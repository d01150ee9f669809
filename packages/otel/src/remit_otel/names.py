"""Names of spans, attributes, events and metrics, each with its meaning.

Names that begin with `gen_ai.` follow OpenTelemetry's conventions for agents, which still change; names that begin with
`remit.` are ours.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions that the names follow."""


class _Table(dict[str, str]):
    """Names with their meanings, as the documentation lists them."""

    def add(self, name: str, meaning: str) -> str:
        self[name] = meaning
        return name


# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATIONS: Final = _Table()
INVOKE_AGENT: Final = OPERATIONS.add(
    "invoke_agent", "A delegation, also a refused one: `invoke_agent` and the name of the agent."
)
INVOKE_WORKFLOW: Final = OPERATIONS.add(
    "invoke_workflow", "The same for a call of a workflow: `invoke_workflow` and its name."
)
PLAN: Final = OPERATIONS.add("plan", "The planning of an orchestrator: `plan` and its name; a child of its delegation.")
CHAT: Final = OPERATIONS.add("chat", "A call of a model: `chat` and its name; a child of the agent's delegation.")
EXECUTE_TOOL: Final = OPERATIONS.add(
    "execute_tool", "A tool call: `execute_tool` and the name of the tool; a child of the agent's delegation."
)

# ── attributes ────────────────────────────────────────────────────────────────────────────────────────────────────────

ATTRIBUTES: Final = _Table()
OPERATION: Final = ATTRIBUTES.add(
    "gen_ai.operation.name",
    "Operation of the span: `invoke_agent`, `invoke_workflow`, `plan`, `chat` or `execute_tool`.",
)
PROVIDER: Final = ATTRIBUTES.add("gen_ai.provider.name", "`remit`; at `chat`, the provider of the model.")
AGENT_NAME: Final = ATTRIBUTES.add("gen_ai.agent.name", "Name of the called agent.")
AGENT_ID: Final = ATTRIBUTES.add("gen_ai.agent.id", "The same with its hub, as in chains: `tax-ai@office`.")
AGENT_VERSION: Final = ATTRIBUTES.add("gen_ai.agent.version", "Version of the agent that answered.")
WORKFLOW_NAME: Final = ATTRIBUTES.add("gen_ai.workflow.name", "Name of the called workflow, if the callee is one.")
CONVERSATION: Final = ATTRIBUTES.add("gen_ai.conversation.id", "Session of the callee.")
INPUT_TOKENS: Final = ATTRIBUTES.add(
    "gen_ai.usage.input_tokens",
    "Input tokens of the span itself, and of none below it: the sum over a trace is what was spent.",
)
OUTPUT_TOKENS: Final = ATTRIBUTES.add("gen_ai.usage.output_tokens", "The same for output tokens.")
CACHED_TOKENS: Final = ATTRIBUTES.add(
    "gen_ai.usage.cache_read.input_tokens", "Those input tokens that the provider read from its cache."
)
REQUEST_MODEL: Final = ATTRIBUTES.add("gen_ai.request.model", "The model that was asked.")
RESPONSE_MODEL: Final = ATTRIBUTES.add("gen_ai.response.model", "The model that answered, as its provider names it.")
FINISH_REASONS: Final = ATTRIBUTES.add(
    "gen_ai.response.finish_reasons", "Why the model stopped: `stop`, `length`, `tool_call`, …"
)
ALL_INPUT: Final = ATTRIBUTES.add("remit.tokens.input", "Input tokens of the callee and everything below it.")
ALL_OUTPUT: Final = ATTRIBUTES.add("remit.tokens.output", "Output tokens of the callee and everything below it.")
TOOL_NAME: Final = ATTRIBUTES.add("gen_ai.tool.name", "Name of the tool.")
TOOL_TYPE: Final = ATTRIBUTES.add("gen_ai.tool.type", "`function`.")
ERROR: Final = ATTRIBUTES.add("error.type", "Error code, if the operation failed; every refusal has one.")
RUN: Final = ATTRIBUTES.add("remit.run", "Id of the run, for `remit runs show`.")
DELEGATION: Final = ATTRIBUTES.add("remit.delegation", "Path of the delegation in its run.")
ORIGIN: Final = ATTRIBUTES.add("remit.origin", "Caller: `user`, or an agent.")
VIA: Final = ATTRIBUTES.add("remit.via", "Hub or client that sent the request here.")
DEPTH: Final = ATTRIBUTES.add("remit.depth", "Depth of the callee; the agent that the user called has 0.")
CHAIN: Final = ATTRIBUTES.add("remit.chain", "Agents between the user and the callee.")
REASON: Final = ATTRIBUTES.add("remit.reason", "Reason that the caller gives for the delegation, redacted.")
REFINED_BY: Final = ATTRIBUTES.add("remit.refined_by", "Who rephrased the request.")
CAPABILITY: Final = ATTRIBUTES.add("remit.capability", "Requested capability.")
CAPABILITY_VERSION: Final = ATTRIBUTES.add("remit.capability.version", "Version of the capability.")
ATTEMPT: Final = ATTRIBUTES.add("remit.attempt", "Number of the attempt at the same call, starting at 1.")
ROUTE_REASON: Final = ATTRIBUTES.add(
    "remit.route.reason", "Error code of the previous agent, if the call was routed to this one instead."
)
STATUS: Final = ATTRIBUTES.add(
    "remit.status", "Outcome: `success`, `partial`, `failed`, `timeout`, `refused` or `cancelled`."
)
CACHE: Final = ATTRIBUTES.add("remit.cache", "`hit`: answered from the cache; `miss`: not in the cache.")
CONFIDENCE: Final = ATTRIBUTES.add("remit.confidence", "Confidence of the callee in its answer, from 0 to 1.")
TOKENS_GRANTED: Final = ATTRIBUTES.add("remit.tokens.granted", "Tokens granted.")
TOKENS_LEFT: Final = ATTRIBUTES.add("remit.tokens.left", "Granted tokens that were not spent.")
TOKENS_OVERRUN: Final = ATTRIBUTES.add("remit.tokens.overrun", "Tokens spent beyond the grant.")
TOKENS_ESTIMATED: Final = ATTRIBUTES.add("remit.tokens.estimated", "Whether the token usage is an estimate.")
TOKENS_UNPRICED: Final = ATTRIBUTES.add(
    "remit.tokens.unpriced", "Tokens of the callee and below whose price is unknown."
)
COST: Final = ATTRIBUTES.add(
    "remit.cost",
    "Cost of the span itself, in millionths of the team's currency: the sum over a trace is what was spent.",
)
COST_GRANTED: Final = ATTRIBUTES.add("remit.cost.granted", "Money granted, in millionths; absent: no limit.")
TIME_GRANTED: Final = ATTRIBUTES.add("remit.time.granted_ms", "Time granted, in milliseconds.")
TIME_LEFT: Final = ATTRIBUTES.add("remit.time.left_ms", "Granted time that was left, in milliseconds.")
QUEUED: Final = ATTRIBUTES.add("remit.queued_ms", "Time waited for a slot, in milliseconds.")
PATH: Final = ATTRIBUTES.add(
    "remit.path", "Agents that the answer passed through, if the callee handed the request on."
)
REPLAYED: Final = ATTRIBUTES.add(
    "remit.replayed", "Whether the tool call was answered from the journal, after a restart."
)
REVEALED: Final = ATTRIBUTES.add(
    "remit.revealed", "Kinds of personal data that the tool received unredacted; never the values."
)

# Sent only if the team turns `content` on.
CONTENT: Final = _Table()
INPUT_MESSAGES: Final = CONTENT.add("gen_ai.input.messages", "Objective and input, redacted.")
OUTPUT_MESSAGES: Final = CONTENT.add("gen_ai.output.messages", "The result, redacted.")
TOOL_ARGUMENTS: Final = CONTENT.add("gen_ai.tool.call.arguments", "Arguments of the tool call, redacted.")

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────

EVENTS: Final = _Table()
PROGRESS: Final = EVENTS.add("remit.progress", "Progress reported by the agent.")
NOTICE: Final = EVENTS.add(
    "remit.notice", "Something for the operator: the agent overran its budget, did not stop, or was resumed."
)
APPROVAL: Final = EVENTS.add("remit.approval", "An approval was requested, or decided.")

EVENT_ATTRIBUTES: Final = _Table()
TEXT: Final = EVENT_ATTRIBUTES.add("remit.text", "Text of the event, redacted; only with `content`.")
CODE: Final = EVENT_ATTRIBUTES.add("remit.code", "Error code of a notice, if it has one.")
AGREED: Final = EVENT_ATTRIBUTES.add(
    "remit.approval.agreed", "Whether the request was approved; absent while undecided."
)
BY: Final = EVENT_ATTRIBUTES.add("remit.approval.by", "Who decided; only with `content`.")
EDITED: Final = EVENT_ATTRIBUTES.add("remit.approval.edited", "Fields that were edited before the approval.")

# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────────────

METRICS: Final = _Table()
DURATIONS: Final = METRICS.add(
    "remit.delegation.duration", "Duration of delegations in seconds: a histogram, by agent."
)
ENDED: Final = METRICS.add("remit.delegations", "Finished delegations, by agent and `remit.status`.")
REFUSALS: Final = METRICS.add("remit.refusals", "Refused requests, by agent and `error.type`.")
TOKENS: Final = METRICS.add(
    "remit.tokens", "Tokens spent, including sub-agents, by agent and `gen_ai.token.type`: `input` or `output`."
)
RUNNING: Final = METRICS.add("remit.running", "Running delegations, by agent.")
QUEUED_NOW: Final = METRICS.add("remit.queued", "Delegations waiting for a slot, by agent.")
BREAKER: Final = METRICS.add("remit.breaker", "State of each agent's circuit breaker: 0, closed; 1, probing; 2, open.")
LOST: Final = METRICS.add("remit.spans.lost", "Spans that were not delivered.")

TOKEN_TYPE: Final = "gen_ai.token.type"
