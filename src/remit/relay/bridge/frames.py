"""The messages between Remit and a local agent: one request, one response, a line of JSON each (S3)."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Mode = Literal["manual", "semi_auto", "full_auto"]
Role = Literal["local_agent", "remote_agent", "user"]

REQUEST = "desktop.local_prompt.request"
RESPONSE = "desktop.local_prompt.response"


class ConversationTurn(Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Role
    text: str


class PromptConstraints(Struct, frozen=True, kw_only=True):
    """The limits of a local agent; Remit enforces all of them."""

    max_output_chars: int = 12_000
    allow_tool_use: bool = True
    max_history_turns: int = 6
    max_history_chars: int = 24_000
    max_tool_rounds: int = 3
    local_turn_timeout_ms: int = 120_000


class PromptRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=REQUEST):
    """The request for the next message to the remote agent."""

    request_id: str
    profile_id: str
    session_id: str
    turn_index: int
    mode: Mode
    objective: str
    remote_message: str = ""
    """The last message of the remote agent, verbatim; empty on the first turn."""
    history: tuple[ConversationTurn, ...] = ()
    history_summary: str = ""
    """A summary of the turns before `history`, if those are not all."""
    constraints: PromptConstraints


class PromptMetrics(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The costs of an answer, as far as the agent reports them."""

    latency_ms: int | None = None
    tokens: Annotated[int, Meta(ge=0)] | None = None
    tool_rounds: Annotated[int, Meta(ge=0)] | None = None


class PromptResponse(Struct, frozen=True, kw_only=True, tag_field="type", tag=RESPONSE):
    """The response of the agent to a request."""

    request_id: str
    status: Literal["ok", "error"]
    draft_message: str = ""
    reason: str = ""
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    """How sure it is of its draft; without it a person reviews the draft (S6)."""
    done: bool = False
    """Whether the objective is met, so that nothing more needs to be said."""
    metrics: PromptMetrics = PromptMetrics()
