"""What two devices say to each other, inside the encryption: questions to a shared agent, and what came of them."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.relay.profile import Control

Id = Annotated[str, Meta(min_length=1, max_length=256)]


class Asks(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="asks"):
    """Something for the agent that the other device shares."""

    id: Id
    """The sender's own, for what comes back."""
    session: Id
    """The conversation that it belongs to."""
    text: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    control: Control
    agent: Annotated[str, Meta(max_length=256)] = ""
    """Which agent, where the other device shares several with this one."""


class Answers(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="answers"):
    """What the shared agent said."""

    to: Id
    session: Id
    text: str
    tokens: Annotated[int, Meta(ge=0)] | None = None


class Declines(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="declines"):
    """Why there is no answer, and will be none."""

    to: Id
    session: Id
    code: str
    """As in the table of errors; one that is not known here is a failure."""
    reason: Annotated[str, Meta(max_length=2_000)] = ""


Letter = Asks | Answers | Declines

_decoder = msgspec.json.Decoder(Letter)
write = msgspec.json.Encoder().encode


def read(body: bytes) -> Letter:
    """Return what another device said, or raise a `RemitError` that names the field."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = Problem("$", str(error)[:200])
        raise RemitError(
            fault(Code.MALFORMED_ENVELOPE, "a device sent what is no letter", problems=(problem,))
        ) from None
