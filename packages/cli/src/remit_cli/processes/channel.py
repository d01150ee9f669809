"""The frames that a hub and an agent in a separate process exchange."""

import struct
from typing import TypeVar

import msgspec
from msgspec import Raw

from remit.ports.brief import AvailableAgent
from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import encode, plain
from remit.protocol.envelope import ContextFilter, Forwarded, Json, Note, Request, Strategy
from remit.protocol.errors import Fault, RemitError
from remit.protocol.records import StepPlan
from remit.protocol.remit import Count

# Four times the largest envelope: room for the responses of a fan-out, but not for a data set.
MAX_FRAME_BYTES = 16 * 1024 * 1024

LENGTH = struct.Struct(">I")
"""The header of each frame: its length in bytes."""

NOT_SAYABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors that `pack` raises for a value that is not JSON, or too large."""

NULL = Raw(b"null")

T = TypeVar("T")


class ChannelFrame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="frame"):
    """A message on the channel."""


# ── from the hub to the process ───────────────────────────────────────────────────────────────────────────────────────


class RemainingBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The remaining budget of a delegation, as the hub counts it."""

    time_left_ms: int
    tokens_left: int
    kept_back: int = 0
    """Tokens that the agent keeps from those that it asks; they are not in `tokens_left`."""
    reported: int
    """Tokens that the process had reported as spent by then; later ones are not yet subtracted from `tokens_left`."""
    cost_left: int | None = None
    """Money in millionths; None: there is no limit."""


class StartFrame(ChannelFrame, frozen=True, kw_only=True, tag="start"):
    """The import path. Sent once; the process answers with `ReadyFrame` or `FailedFrame`."""

    path: tuple[str, ...]


class RunFrame(ChannelFrame, frozen=True, kw_only=True, tag="run"):
    """One delegation, with all that a brief knows without asking the hub; ends with `DoneFrame` or `FailedFrame`."""

    request: Request
    tools: frozenset[str]
    original_request: str
    traceparent: str
    delegates: tuple[AvailableAgent, ...]
    tool_cards: tuple[ToolCard, ...]
    account: RemainingBudget
    prompt: str = ""
    result_schema: Schema | None = None


class ReplyFrame(ChannelFrame, frozen=True, kw_only=True, tag="reply"):
    """The reply to an agent's request: a value or a fault."""

    number: int
    account: RemainingBudget
    value: Raw = NULL
    fault: Fault | None = None


ToProcess = StartFrame | RunFrame | ReplyFrame


# ── from the process to the hub ───────────────────────────────────────────────────────────────────────────────────────


class ReadyFrame(ChannelFrame, frozen=True, kw_only=True, tag="ready"):
    """The agent's code has been imported."""


class RequestFrame(ChannelFrame, frozen=True, kw_only=True):
    """A request that the agent waits for; one `ReplyFrame` with the same number answers it."""

    number: Count


class DelegateFrame(RequestFrame, frozen=True, kw_only=True, tag="delegate"):
    call: Raw
    """As the agent made it, valid or not: the hub decides whether to refuse it."""


class FanOutFrame(RequestFrame, frozen=True, kw_only=True, tag="fan_out"):
    calls: tuple[Raw, ...]


class CombineFrame(RequestFrame, frozen=True, kw_only=True, tag="combine"):
    calls: tuple[Raw, ...]
    strategy: Strategy


class ChainFrame(RequestFrame, frozen=True, kw_only=True, tag="chain"):
    calls: tuple[Raw, ...]
    forward: Forwarded = "result"


class UseToolFrame(RequestFrame, frozen=True, kw_only=True, tag="use"):
    tool: str
    arguments: dict[str, Json]


class PermitToolFrame(RequestFrame, frozen=True, kw_only=True, tag="permit"):
    """Asks whether the agent may use a tool of its own; `ToolEndedFrame` says what came of it."""

    tool: str
    arguments: dict[str, Json]
    question: str = ""
    repeatable: bool = False
    recorded: int | None = None


class ToolPermit(msgspec.Struct, frozen=True, kw_only=True):
    """The reply: the tool is used with these arguments, or was used before a restart, with this result."""

    arguments: dict[str, Json] | None = None
    value: Json = None


class ToolEndedFrame(RequestFrame, frozen=True, kw_only=True, tag="tool_ended"):
    """The end of the use that was permitted under the number *use*."""

    use: Count
    value: Json = None
    fault: Fault | None = None


class ConversationFrame(RequestFrame, frozen=True, kw_only=True, tag="conversation"):
    pass


class ForModelFrame(RequestFrame, frozen=True, kw_only=True, tag="for_model"):
    """Redact a value that the agent's model is to read."""

    value: Json
    tool: str


class FactsFrame(RequestFrame, frozen=True, kw_only=True, tag="facts"):
    pass


class ConfirmFrame(RequestFrame, frozen=True, kw_only=True, tag="confirm"):
    question: str


class FillFrame(RequestFrame, frozen=True, kw_only=True, tag="fill"):
    question: str
    form: Schema


class MoreTokensFrame(RequestFrame, frozen=True, kw_only=True, tag="more_tokens"):
    wanted: Count


class AllowUnpricedFrame(RequestFrame, frozen=True, kw_only=True, tag="allow_unpriced"):
    model: str


class SampleFrame(RequestFrame, frozen=True, kw_only=True, tag="sample"):
    prompt: str
    system: str
    max_tokens: Count


class StateFrame(RequestFrame, frozen=True, kw_only=True, tag="state"):
    pass


class ChangeFrame(RequestFrame, frozen=True, kw_only=True, tag="change"):
    changes: dict[str, Json]


class OnceFrame(RequestFrame, frozen=True, kw_only=True, tag="once"):
    """Asks for the value that was stored before a restart, or sends the value to store now."""

    name: str
    value: tuple[Json, ...] = ()


class HistoryFrame(RequestFrame, frozen=True, kw_only=True, tag="history"):
    wanted: ContextFilter
    tokens: Count
    of: str | None = None


class WithdrawFrame(ChannelFrame, frozen=True, kw_only=True, tag="withdraw"):
    """The agent cancels a request. The reply still comes, once nothing of the request is running."""

    number: Count


class ProgressFrame(ChannelFrame, frozen=True, kw_only=True, tag="progress"):
    text: str
    partial: Raw = NULL
    plan: StepPlan | None = None


class SayFrame(ChannelFrame, frozen=True, kw_only=True, tag="say"):
    text: str


class ToolUsedFrame(ChannelFrame, frozen=True, kw_only=True, tag="used"):
    tool: str
    arguments: Raw = NULL
    duration_ms: Count = 0
    error: str | None = None


class NoteFrame(ChannelFrame, frozen=True, kw_only=True, tag="known"):
    note: Note


class KeepBackFrame(ChannelFrame, frozen=True, kw_only=True, tag="keep_back"):
    tokens: Count


class SpendFrame(ChannelFrame, frozen=True, kw_only=True, tag="spend"):
    prompt: Count = 0
    completion: Count = 0
    estimated: bool = False
    cache_write: Count = 0
    cache_read: Count = 0
    model: str = ""
    uncounted: Count = 0


class DoneFrame(ChannelFrame, frozen=True, kw_only=True, tag="done"):
    answer: Raw


class FailedFrame(ChannelFrame, frozen=True, kw_only=True, tag="failed"):
    fault: Fault
    trace: str = ""
    """The traceback of the agent's code. The hub logs it, because only the hub knows what must be redacted."""
    cause: Fault | None = None
    """The fault that the agent's code received and failed because of."""


AgentRequest = (
    DelegateFrame
    | FanOutFrame
    | CombineFrame
    | ChainFrame
    | UseToolFrame
    | PermitToolFrame
    | ToolEndedFrame
    | ConfirmFrame
    | FillFrame
    | MoreTokensFrame
    | AllowUnpricedFrame
    | SampleFrame
    | StateFrame
    | ChangeFrame
    | OnceFrame
    | ConversationFrame
    | HistoryFrame
    | FactsFrame
    | ForModelFrame
)
ToHub = (
    ReadyFrame
    | AgentRequest
    | WithdrawFrame
    | ProgressFrame
    | SayFrame
    | ToolUsedFrame
    | KeepBackFrame
    | NoteFrame
    | SpendFrame
    | DoneFrame
    | FailedFrame
)


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

read_by_process = msgspec.json.Decoder(ToProcess).decode
read_by_hub = msgspec.json.Decoder(ToHub).decode


def raw(value: object) -> Raw:
    """Return a value encoded for use inside a frame."""
    return Raw(encode(value))


def raw_of_agent(value: object) -> Raw:
    """Return an agent's value encoded for use inside a frame, or raise one of `NOT_SAYABLE`."""
    try:
        return Raw(encode(plain(value)))
    except RemitError as error:
        wrong = "; ".join(f"{problem.path}: {problem.message}" for problem in error.fault.problems)
        raise ValueError(wrong or error.fault.message) from error


def unraw(value: Raw, kind: type[T]) -> T:
    """Decode a value from inside a frame."""
    return msgspec.json.decode(value, type=kind)


def pack(frame: ChannelFrame) -> bytes:
    """Return the bytes of a frame, or raise one of `NOT_SAYABLE`."""
    payload = encode(frame)
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(f"{len(payload)} bytes, and at most {MAX_FRAME_BYTES} are taken")
    return LENGTH.pack(len(payload)) + payload
