"""What a hub and an agent in a process of its own say to each other, frame by frame."""

import struct
from typing import TypeVar

import msgspec
from msgspec import Raw

from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import encode, plain
from remit.protocol.envelope import ContextFilter, HandOn, Json, Note, Request, Strategy
from remit.protocol.errors import Fault, RemitError
from remit.protocol.remit import Count
from remit.runtime.brief import Delegate as Delegated

# Four times the largest envelope: room for a fan-out's responses, and still no data set.
MAX_FRAME_BYTES = 16 * 1024 * 1024

LENGTH = struct.Struct(">I")
"""What stands before each frame: its length in bytes."""

NOT_SAYABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What `pack` raises for a value that is not JSON, or too much of it."""

NULL = Raw(b"null")

T = TypeVar("T")


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="frame"):
    """One thing said on the channel."""


# ── from the hub to the process ───────────────────────────────────────────────────────────────────────────────────────


class Account(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a delegation has left, as the hub counts it."""

    time_left_ms: int
    tokens_left: int
    heard: int
    """Tokens that the process had reported as spent by then; what it reported later is not yet off `tokens_left`."""


class Start(Frame, frozen=True, kw_only=True, tag="start"):
    """Where to import from; said once, answered with `Ready` or `Failed`."""

    path: tuple[str, ...]


class Run(Frame, frozen=True, kw_only=True, tag="run"):
    """One delegation, with all that a brief answers without asking; answered with `Done` or `Failed`."""

    request: Request
    tools: frozenset[str]
    original_request: str
    traceparent: str
    delegates: tuple[Delegated, ...]
    tool_cards: tuple[ToolCard, ...]
    account: Account
    prompt: str = ""
    result_schema: Schema | None = None


class Reply(Frame, frozen=True, kw_only=True, tag="reply"):
    """What came of a wish: a value, or why there is none."""

    number: int
    account: Account
    value: Raw = NULL
    fault: Fault | None = None


ToProcess = Start | Run | Reply


# ── from the process to the hub ───────────────────────────────────────────────────────────────────────────────────────


class Ready(Frame, frozen=True, kw_only=True, tag="ready"):
    """The agent's code is imported."""


class Numbered(Frame, frozen=True, kw_only=True):
    """Something that the agent waits for; its number is answered by one `Reply`."""

    number: Count


class Delegate(Numbered, frozen=True, kw_only=True, tag="delegate"):
    call: Raw
    """As the agent made it, right or wrong: to refuse it is up to the hub."""


class FanOut(Numbered, frozen=True, kw_only=True, tag="fan_out"):
    calls: tuple[Raw, ...]


class Combine(Numbered, frozen=True, kw_only=True, tag="combine"):
    calls: tuple[Raw, ...]
    strategy: Strategy


class Chain(Numbered, frozen=True, kw_only=True, tag="chain"):
    calls: tuple[Raw, ...]
    hand_on: HandOn = "result"


class Use(Numbered, frozen=True, kw_only=True, tag="use"):
    tool: str
    arguments: dict[str, Json]


class Conversation(Numbered, frozen=True, kw_only=True, tag="conversation"):
    pass


class Facts(Numbered, frozen=True, kw_only=True, tag="facts"):
    pass


class Confirm(Numbered, frozen=True, kw_only=True, tag="confirm"):
    question: str


class State(Numbered, frozen=True, kw_only=True, tag="state"):
    pass


class Change(Numbered, frozen=True, kw_only=True, tag="change"):
    changes: dict[str, Json]


class Once(Numbered, frozen=True, kw_only=True, tag="once"):
    """Asks what was found out before a restart; or says what was found out now."""

    name: str
    found: tuple[Json, ...] = ()


class History(Numbered, frozen=True, kw_only=True, tag="history"):
    wanted: ContextFilter
    tokens: Count
    of: str | None = None


class Withdraw(Frame, frozen=True, kw_only=True, tag="withdraw"):
    """The agent no longer wants what it wished for; the reply comes all the same, once nothing of it is left."""

    number: Count


class Progress(Frame, frozen=True, kw_only=True, tag="progress"):
    text: str
    partial: Raw = NULL


class Say(Frame, frozen=True, kw_only=True, tag="say"):
    text: str


class Used(Frame, frozen=True, kw_only=True, tag="used"):
    tool: str
    arguments: Raw = NULL
    duration_ms: Count = 0
    error: str | None = None


class Known(Frame, frozen=True, kw_only=True, tag="known"):
    note: Note


class Spend(Frame, frozen=True, kw_only=True, tag="spend"):
    prompt: Count = 0
    completion: Count = 0
    estimated: bool = False


class Done(Frame, frozen=True, kw_only=True, tag="done"):
    answer: Raw


class Failed(Frame, frozen=True, kw_only=True, tag="failed"):
    fault: Fault
    trace: str = ""
    """Where the agent's code failed; the hub logs it, because only the hub knows what must not be shown."""
    cause: Fault | None = None
    """The fault that the agent's code was given and failed because of."""


Wish = Delegate | FanOut | Combine | Chain | Use | Confirm | State | Change | Once | Conversation | History | Facts
ToHub = Ready | Wish | Withdraw | Progress | Say | Used | Known | Spend | Done | Failed


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

read_by_process = msgspec.json.Decoder(ToProcess).decode
read_by_hub = msgspec.json.Decoder(ToHub).decode


def raw(value: object) -> Raw:
    """Return a value as it stands inside a frame."""
    return Raw(encode(value))


def raw_of_agent(value: object) -> Raw:
    """Return what an agent gives as it stands inside a frame, or raise one of `NOT_SAYABLE` that says why not."""
    try:
        return Raw(encode(plain(value)))
    except RemitError as error:
        wrong = "; ".join(f"{problem.path}: {problem.message}" for problem in error.fault.problems)
        raise ValueError(wrong or error.fault.message) from error


def unraw(value: Raw, kind: type[T]) -> T:
    """Read a value that stood inside a frame."""
    return msgspec.json.decode(value, type=kind)


def pack(frame: Frame) -> bytes:
    """Return a frame as it is sent, or raise one of `NOT_SAYABLE`."""
    payload = encode(frame)
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(f"{len(payload)} bytes, and at most {MAX_FRAME_BYTES} are taken")
    return LENGTH.pack(len(payload)) + payload
