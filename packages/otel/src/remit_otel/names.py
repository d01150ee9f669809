"""Names of spans, attributes, events and metrics, each with its meaning.

Names that begin with `gen_ai.` follow OpenTelemetry's conventions for agents, which still change; names that begin with
`remit.` are ours.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions that the names follow."""

# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
PLAN: Final = "plan"
CHAT: Final = "chat"

OPERATIONS = {
    INVOKE_AGENT: "A delegation, also a refused one: `invoke_agent` and the name of the agent.",
    INVOKE_WORKFLOW: "The same for a call of a workflow: `invoke_workflow` and its name.",
    PLAN: "The planning of an orchestrator: `plan` and its name; a child of its delegation.",
    CHAT: "A call of a model: `chat` and its name; a child of the agent's delegation.",
    EXECUTE_TOOL: "A tool call: `execute_tool` and the name of the tool; a child of the agent's delegation.",
}

# ── attributes ────────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_VERSION: Final = "gen_ai.agent.version"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
CONVERSATION: Final = "gen_ai.conversation.id"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
ERROR: Final = "error.type"

RUN: Final = "remit.run"
DELEGATION: Final = "remit.delegation"
ORIGIN: Final = "remit.origin"
VIA: Final = "remit.via"
DEPTH: Final = "remit.depth"
CHAIN: Final = "remit.chain"
REASON: Final = "remit.reason"
REFINED_BY: Final = "remit.refined_by"
CAPABILITY: Final = "remit.capability"
CAPABILITY_VERSION: Final = "remit.capability.version"
ATTEMPT: Final = "remit.attempt"
ROUTE_REASON: Final = "remit.route.reason"
STATUS: Final = "remit.status"
CACHE: Final = "remit.cache"
CONFIDENCE: Final = "remit.confidence"
TOKENS_GRANTED: Final = "remit.tokens.granted"
TOKENS_LEFT: Final = "remit.tokens.left"
ALL_INPUT: Final = "remit.tokens.input"
ALL_OUTPUT: Final = "remit.tokens.output"
TOKENS_OVERRUN: Final = "remit.tokens.overrun"
TOKENS_ESTIMATED: Final = "remit.tokens.estimated"
TIME_GRANTED: Final = "remit.time.granted_ms"
TIME_LEFT: Final = "remit.time.left_ms"
QUEUED: Final = "remit.queued_ms"
PATH: Final = "remit.path"
REPLAYED: Final = "remit.replayed"
REVEALED: Final = "remit.revealed"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"

ATTRIBUTES = {
    OPERATION: "Operation of the span: `invoke_agent`, `invoke_workflow`, `plan`, `chat` or `execute_tool`.",
    PROVIDER: "`remit`; at `chat`, the provider of the model.",
    AGENT_NAME: "Name of the called agent.",
    AGENT_ID: "The same with its hub, as in chains: `tax-ai@office`.",
    AGENT_VERSION: "Version of the agent that answered.",
    WORKFLOW_NAME: "Name of the called workflow, if the callee is one.",
    CONVERSATION: "Session of the callee.",
    INPUT_TOKENS: "Input tokens of the span itself, and of none below it: the sum over a trace is what was spent.",
    OUTPUT_TOKENS: "The same for output tokens.",
    CACHED_TOKENS: "Those input tokens that the provider read from its cache.",
    REQUEST_MODEL: "The model that was asked.",
    RESPONSE_MODEL: "The model that answered, as its provider names it.",
    FINISH_REASONS: "Why the model stopped: `stop`, `length`, `tool_call`, …",
    ALL_INPUT: "Input tokens of the callee and everything below it.",
    ALL_OUTPUT: "Output tokens of the callee and everything below it.",
    TOOL_NAME: "Name of the tool.",
    TOOL_TYPE: "`function`.",
    ERROR: "Error code, if the operation failed; every refusal has one.",
    RUN: "Id of the run, for `remit runs show`.",
    DELEGATION: "Path of the delegation in its run.",
    ORIGIN: "Caller: `user`, or an agent.",
    VIA: "Hub or client that sent the request here.",
    DEPTH: "Depth of the callee; the agent that the user called has 0.",
    CHAIN: "Agents between the user and the callee.",
    REASON: "Reason that the caller gives for the delegation, redacted.",
    REFINED_BY: "Who rephrased the request.",
    CAPABILITY: "Requested capability.",
    CAPABILITY_VERSION: "Version of the capability.",
    ATTEMPT: "Number of the attempt at the same call, starting at 1.",
    ROUTE_REASON: "Error code of the previous agent, if the call was routed to this one instead.",
    STATUS: "Outcome: `success`, `partial`, `failed`, `timeout`, `refused` or `cancelled`.",
    CACHE: "`hit`: answered from the cache; `miss`: not in the cache.",
    CONFIDENCE: "Confidence of the callee in its answer, from 0 to 1.",
    TOKENS_GRANTED: "Tokens granted.",
    TOKENS_LEFT: "Granted tokens that were not spent.",
    TOKENS_OVERRUN: "Tokens spent beyond the grant.",
    TOKENS_ESTIMATED: "Whether the token usage is an estimate.",
    TIME_GRANTED: "Time granted, in milliseconds.",
    TIME_LEFT: "Granted time that was left, in milliseconds.",
    QUEUED: "Time waited for a slot, in milliseconds.",
    PATH: "Agents that the answer passed through, if the callee handed the request on.",
    REPLAYED: "Whether the tool call was answered from the journal, after a restart.",
    REVEALED: "Kinds of personal data that the tool received unredacted; never the values.",
}

# Sent only if the team turns `content` on.
CONTENT = {
    INPUT_MESSAGES: "Objective and input, redacted.",
    OUTPUT_MESSAGES: "The result, redacted.",
    TOOL_ARGUMENTS: "Arguments of the tool call, redacted.",
}

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────

PROGRESS: Final = "remit.progress"
NOTICE: Final = "remit.notice"
APPROVAL: Final = "remit.approval"

TEXT: Final = "remit.text"
CODE: Final = "remit.code"
AGREED: Final = "remit.approval.agreed"
BY: Final = "remit.approval.by"
EDITED: Final = "remit.approval.edited"

EVENTS = {
    PROGRESS: "Progress reported by the agent.",
    NOTICE: "Something for the operator: the agent overran its budget, did not stop, or was resumed.",
    APPROVAL: "An approval was requested, or decided.",
}
EVENT_ATTRIBUTES = {
    TEXT: "Text of the event, redacted; only with `content`.",
    CODE: "Error code of a notice, if it has one.",
    AGREED: "Whether the request was approved; absent while undecided.",
    BY: "Who decided; only with `content`.",
    EDITED: "Fields that were edited before the approval.",
}

# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DURATIONS: Final = "remit.delegation.duration"
ENDED: Final = "remit.delegations"
REFUSALS: Final = "remit.refusals"
TOKENS: Final = "remit.tokens"
RUNNING: Final = "remit.running"
QUEUED_NOW: Final = "remit.queued"
BREAKER: Final = "remit.breaker"
LOST: Final = "remit.spans.lost"

TOKEN_TYPE: Final = "gen_ai.token.type"

METRICS = {
    DURATIONS: "Duration of delegations in seconds: a histogram, by agent.",
    ENDED: "Finished delegations, by agent and `remit.status`.",
    REFUSALS: "Refused requests, by agent and `error.type`.",
    TOKENS: "Tokens spent, including sub-agents, by agent and `gen_ai.token.type`: `input` or `output`.",
    RUNNING: "Running delegations, by agent.",
    QUEUED_NOW: "Delegations waiting for a slot, by agent.",
    BREAKER: "State of each agent's circuit breaker: 0, closed; 1, probing; 2, open.",
    LOST: "Spans that were not delivered.",
}
