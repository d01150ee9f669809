"""The commands that a user's text may mean, the state of the dialogue that it is read in, and the port of its readers.

A reader proposes commands, best first; `gate` decides what is done about them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.envelope import Json
from remit.protocol.orchestration import Likelihood


class TextSpan(NamedTuple):
    """Where words stand in a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return the words."""
        return text[self.start : self.end]


class StartCapability(Struct, frozen=True, kw_only=True, tag=True):
    """Use a capability."""

    capability: str
    confidence: Likelihood
    span: TextSpan
    values: dict[str, Json] = {}
    """Fields that the words give, if the reader reads fields."""


class SetField(Struct, frozen=True, kw_only=True, tag=True):
    """Give a value for a field that was asked for, or do the last thing with another value: "and Paul?"."""

    field: str
    value: Json
    span: TextSpan


class Correct(Struct, frozen=True, kw_only=True, tag=True):
    """Do it with other values: "no, to my bank"."""

    span: TextSpan
    """The words with the values."""
    values: dict[str, Json] = {}


class TakeBack(Struct, frozen=True, kw_only=True, tag=True):
    """Undo what was done last."""

    span: TextSpan


class Choose(Struct, frozen=True, kw_only=True, tag=True):
    """Take one of the options of the open question."""

    option: int
    span: TextSpan


class Agree(Struct, frozen=True, kw_only=True, tag=True):
    """Agree to what was said back."""

    span: TextSpan


class Deny(Struct, frozen=True, kw_only=True, tag=True):
    """Refuse what was asked or said back."""

    span: TextSpan


class Repeat(Struct, frozen=True, kw_only=True, tag=True):
    """Do the last thing once more."""

    span: TextSpan


class AskAbout(Struct, frozen=True, kw_only=True, tag=True):
    """Ask what can be done."""

    span: TextSpan


class SmallTalk(Struct, frozen=True, kw_only=True, tag=True):
    """Greet or thank."""

    span: TextSpan


class NothingFits(Struct, frozen=True, kw_only=True, tag=True):
    """Ask for something that no capability does."""

    confidence: Likelihood
    """How surely nothing fits."""
    span: TextSpan


Command = (
    StartCapability
    | SetField
    | Correct
    | TakeBack
    | Choose
    | Agree
    | Deny
    | Repeat
    | AskAbout
    | SmallTalk
    | NothingFits
)


class PastTurn(Struct, frozen=True):
    """What a user said earlier, and what was done about it."""

    text: str
    capability: str = ""
    given: Json = None


class DialogueState(Struct, frozen=True, kw_only=True):
    """What a text is read with."""

    capabilities: tuple[Capability, ...]
    """What the user may ask for."""
    question: str = ""
    """The open question, as it was put; empty without one."""
    options: tuple[str, ...] = ()
    """The names of its options, as they were listed."""
    fields: Mapping[str, Json] = {}
    """Values that are known: of the last thing that was done, or of the one that the question is about."""
    last: tuple[PastTurn, ...] = ()
    """The last turns, the newest at the end."""


class Commands(Struct, frozen=True):
    """What a reader proposes for each piece of a text, best first."""

    by_piece: tuple[tuple[Command, ...], ...]
    notice: str = ""
    """Why another reader took the place of this one."""
    proposed: bool = False
    """Whether a model proposed it: what it wants to read at once needs a second reader's support."""


@runtime_checkable
class RequestReader(Protocol):
    """Reads what a user wants.

    It raises no error when it cannot read a text: it proposes `Nothing`, or says which other reader it used.
    """

    async def read(self, text: str, pieces: Sequence[TextSpan], state: DialogueState, brief: Brief) -> Commands:
        """Return the commands for each of the *pieces* of a text; every span lies in its piece."""
        ...


def starts(commands: Sequence[Command]) -> list[StartCapability]:
    """Return the capabilities that commands start, the surest first."""
    return sorted((each for each in commands if isinstance(each, StartCapability)), key=lambda each: -each.confidence)
