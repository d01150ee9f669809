"""The messages between two devices, inside the encryption: offers, questions, their receipts and their answers."""

from typing import Annotated, get_args

import msgspec
from msgspec import Meta, Struct

from remit.protocol.envelope import Answer
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.remit import Count, Name
from remit.protocol.submission import Submission
from remit_relay.session.file_rules import AttachedFile, FileRules
from remit_relay.session.profile import MAX_ID, ControlEnvelope, Id

# More than anybody shares with one device; it limits how much of a peer's list is stored and shown.
MAX_OFFERED = 100
MAX_DESCRIPTION = 500


class QuestionMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="asks"):
    """A question to the agent that the other device shares."""

    id: Id
    """Chosen by the sender, repeated in the answer."""
    session: Id
    """The conversation that it belongs to."""
    text: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    control: ControlEnvelope
    agent: Annotated[str, Meta(max_length=MAX_ID)] = ""
    """The name of the agent, if the other device shares several with this one."""
    request: Submission | None = None
    """The complete request, if an agent of a hub asks; `text` is then a summary for people."""
    receipt: bool = False
    """Whether the sender wants a `ReadReceipt`; devices of earlier versions do not know it."""
    files: tuple[AttachedFile, ...] = ()
    """The files of a person's run. What the receiver does not allow makes it decline the question."""


class AnswerMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="answers"):
    """The answer of the shared agent."""

    to: Id
    session: Id
    text: str
    tokens: Count | None = None
    answer: Answer | None = None
    """The complete answer, if an agent of a hub asked; `text` is then empty."""
    files: tuple[AttachedFile, ...] = ()
    """The files of the answer to a person's run."""


class DeclineMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="declines"):
    """The final refusal or failure of a question."""

    to: Id
    session: Id
    code: str
    """An error code; an unknown one counts as a failure."""
    reason: Annotated[str, Meta(max_length=2_000)] = ""
    status: Annotated[str, Meta(max_length=50)] = ""
    """The final status, if it was started; empty: it was refused."""
    tokens: Count | None = None
    """The tokens that were spent on it."""

    @property
    def recorded(self) -> str:
        """The reason for the record: the code, and no text that the other device can choose."""
        return self.code if self.code in Code.__members__ else "the other device declined it with an unknown code"


class WithdrawMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="withdraws"):
    """The sender no longer waits for an answer; work on the question can stop."""

    to: Id
    session: Id


class ReadReceipt(Struct, frozen=True, kw_only=True, tag_field="type", tag="read"):
    """The shared agent was given a question; its answer takes longer than a moment."""

    to: Id
    session: Id


class AgentOffer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shared agent, as announced by its device."""

    name: Name
    """Its shared name: the `agent` of a question."""
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] = ""
    files: FileRules | None = None
    """The files that it takes; None: none, as of every device that does not know of files."""


class OffersMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="offers"):
    """All agents that the sender shares with the receiver, replacing the previous list."""

    agents: Annotated[tuple[AgentOffer, ...], Meta(max_length=MAX_OFFERED)]
    """Empty: nothing is shared."""

    def __post_init__(self) -> None:
        if len({each.name for each in self.agents}) < len(self.agents):
            raise ValueError("duplicate agent name")


class RevocationMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="revokes"):
    """The sender has revoked the receiver, and takes no more messages of it; this is the last one."""


PeerMessage = (
    QuestionMessage | AnswerMessage | DeclineMessage | WithdrawMessage | ReadReceipt | OffersMessage | RevocationMessage
)

_decoder = msgspec.json.Decoder(PeerMessage)
_kinds = frozenset(str(kind.__struct_config__.tag) for kind in get_args(PeerMessage))
write = msgspec.json.Encoder().encode


class _Kind(Struct):
    type: str = ""


def is_of_later_version(body: bytes) -> bool:
    """Return whether a message that cannot be decoded is of a kind that this version does not know."""
    try:
        kind = msgspec.json.decode(body, type=_Kind).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return bool(kind) and kind not in _kinds


def decode_message(body: bytes) -> PeerMessage:
    """Decode a message of another device, or raise a `RemitError` that names the field."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = Problem("$", str(error)[:200])
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid message from peer", problems=(problem,))) from None
