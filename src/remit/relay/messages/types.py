"""What two devices say to each other, inside the encryption: what is shared, questions, and what came of them."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from remit.protocol.envelope import Answer
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.remit import Count, Name
from remit.protocol.submission import Submission
from remit.relay.session.profile import MAX_ID, ControlEnvelope, Id

# More than anybody shares with one device; it bounds what is kept and shown of a claim.
MAX_OFFERED = 100
MAX_DESCRIPTION = 500


class QuestionMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="asks"):
    """Something for the agent that the other device shares."""

    id: Id
    """The sender's own, for what comes back."""
    session: Id
    """The conversation that it belongs to."""
    text: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    control: ControlEnvelope
    agent: Annotated[str, Meta(max_length=MAX_ID)] = ""
    """Which agent, where the other device shares several with this one."""
    request: Submission | None = None
    """All of it, where an agent of a hub asks, as a client of the other hub would; `text` is then for who looks on."""


class AnswerMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="answers"):
    """What the shared agent said."""

    to: Id
    session: Id
    text: str
    tokens: Count | None = None
    answer: Answer | None = None
    """All of it, where an agent of a hub asked; `text` is then empty."""


class DeclineMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="declines"):
    """Why there is no answer, and will be none."""

    to: Id
    session: Id
    code: str
    """As in the table of errors; one that is not known here is a failure."""
    reason: Annotated[str, Meta(max_length=2_000)] = ""
    status: Annotated[str, Meta(max_length=50)] = ""
    """How it ended, if it had begun; empty: it was refused."""
    tokens: Count | None = None
    """What was spent on it all the same."""


class WithdrawMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="withdraws"):
    """Nobody waits any more for the answer to a question; whoever works on it can stop."""

    to: Id
    session: Id


class AgentOffer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that a device says it shares."""

    name: Name
    """What it is shared as: the `agent` of a question."""
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] = ""


class OffersMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="offers"):
    """All that the device shares with the one that reads this, in place of what it said before."""

    agents: Annotated[tuple[AgentOffer, ...], Meta(max_length=MAX_OFFERED)]
    """Empty: nothing any more."""

    def __post_init__(self) -> None:
        if len({each.name for each in self.agents}) < len(self.agents):
            raise ValueError("an agent is offered twice")


PeerMessage = QuestionMessage | AnswerMessage | DeclineMessage | WithdrawMessage | OffersMessage

_decoder = msgspec.json.Decoder(PeerMessage)
write = msgspec.json.Encoder().encode


def decode_message(body: bytes) -> PeerMessage:
    """Return what another device said, or raise a `RemitError` that names the field."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = Problem("$", str(error)[:200])
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid message from peer", problems=(problem,))) from None
