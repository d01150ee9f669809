"""The names under which others find what is told of a delegation, each with its meaning.

Those that begin with `gen_ai.` are OpenTelemetry's, whose conventions for agents still change; those that begin with
`remit.` are ours.
"""

from typing import Final

# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
PLAN: Final = "plan"

OPERATIONS = {
    INVOKE_AGENT: "A delegation, or a refused one: `invoke_agent` and the name of the agent.",
    INVOKE_WORKFLOW: "The same, where a workflow is asked: `invoke_workflow` and its name.",
    PLAN: "The time that an orchestrator takes to find out what to do: `plan` and its name, within its delegation.",
    EXECUTE_TOOL: "An agent's use of a tool: `execute_tool` and the name of the tool, within the agent's delegation.",
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
    OPERATION: "What the span is: `invoke_agent`, `invoke_workflow`, `plan` or `execute_tool`.",
    PROVIDER: "`remit`.",
    AGENT_NAME: "Who is asked.",
    AGENT_ID: "The same with its hub, as it stands in chains: `tax-ai@office`.",
    AGENT_VERSION: "The version of the agent that answered.",
    WORKFLOW_NAME: "The workflow, where it is one that is asked.",
    CONVERSATION: "The callee's session.",
    INPUT_TOKENS: "Tokens that the callee and all below it were sent.",
    OUTPUT_TOKENS: "Tokens that they gave back.",
    TOOL_NAME: "The tool.",
    TOOL_TYPE: "`function`.",
    ERROR: "The code of the fault, where there is one; every refusal has one.",
    RUN: "The run: `remit runs show` takes it.",
    DELEGATION: "Its place in the run.",
    ORIGIN: "Who asks: `user`, or an agent.",
    VIA: "The hub or client that brought the request here.",
    DEPTH: "How deep the callee stands below the agent that the user asked.",
    CHAIN: "The agents between the user and the callee.",
    REASON: "Why the caller asks, in its words, redacted.",
    REFINED_BY: "Who put the request into its words.",
    CAPABILITY: "The capability that is asked for.",
    CAPABILITY_VERSION: "Its version.",
    ATTEMPT: "Which attempt at the same call it is, from 1 on.",
    ROUTE_REASON: "Why it went to this agent and not to the one before: the code with which that one failed.",
    STATUS: "How it ended: `success`, `partial`, `failed`, `timeout`, `refused` or `cancelled`.",
    CACHE: "`hit`: an earlier answer was given; `miss`: there was none.",
    CONFIDENCE: "How sure the callee is of its answer, from 0 to 1.",
    TOKENS_GRANTED: "The tokens that it could spend.",
    TOKENS_LEFT: "Those that it did not spend.",
    TOKENS_OVERRUN: "Those that it spent beyond its grant.",
    TOKENS_ESTIMATED: "Whether what it spent is an estimate.",
    TIME_GRANTED: "The milliseconds that it could take.",
    TIME_LEFT: "Those that it did not take.",
    QUEUED: "The milliseconds that it waited for a slot.",
    PATH: "The agents through which the answer came, where the callee handed the request on.",
    REPLAYED: "Whether the use of a tool was answered from the journal, after a restart.",
    REVEALED: "The kinds of personal data that a tool was given as they are; never the values.",
}

# Only if the team says so: what is said, and not only that it is.
CONTENT = {
    INPUT_MESSAGES: "Objective and input, redacted.",
    OUTPUT_MESSAGES: "The result, redacted.",
    TOOL_ARGUMENTS: "What a tool was given, redacted.",
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
    PROGRESS: "The agent says how far it is.",
    NOTICE: "Something that an operator should know: it overran, would not stop, was taken up again.",
    APPROVAL: "A person was asked, or has answered.",
}
EVENT_ATTRIBUTES = {
    TEXT: "What was said, redacted; only with `content`.",
    CODE: "The code of a notice that has one.",
    AGREED: "Whether the person agreed; not there while nobody has answered.",
    BY: "Who answered; only with `content`.",
    EDITED: "What they changed before agreeing.",
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
    DURATIONS: "How long delegations took, in seconds: a histogram, by agent.",
    ENDED: "Delegations that ended, by agent and `remit.status`.",
    REFUSALS: "Requests that were refused, by agent and `error.type`.",
    TOKENS: "Tokens spent, those of sub-agents included, by agent and `gen_ai.token.type`, `input` or `output`.",
    RUNNING: "Delegations under way, by agent.",
    QUEUED_NOW: "Delegations that wait for a slot, by agent.",
    BREAKER: "The breaker of each agent: 0, asked as usual; 1, tried out; 2, left alone.",
    LOST: "Spans that could not be delivered.",
}
