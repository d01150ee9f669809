"""A part of a request, and the condition under which it is done."""

from msgspec import Struct


class Condition(Struct, frozen=True):
    """A clause on which a part depends."""

    clause: str
    """What has to be found out: "it is positive"."""
    holds: bool = True
    """Whether the part is done if the clause holds, or if it does not."""
    said: str = ""
    """How the user said it: "if it is positive", "otherwise"."""


class RequestPart(Struct, frozen=True):
    """One of the things that a text asks for."""

    text: str
    """In the user's words, without what only says when it is to be done."""
    after: tuple[int, ...] = ()
    """The places of the parts that come before it in time."""
    condition: Condition | None = None
    sure: bool = True
    """Whether it begins like a request; if not, it is one only if the classifier is certain."""
    refers: bool = False
    """Whether it speaks of something in the part before ("book it")."""
    checks: bool = False
    """Whether it was made from a condition, which has to be found out first."""
    leads: bool = False
    """Whether it says what the user wants to do, and the next part what is to be done for it."""
    named: bool = False
    """Whether the text only names a capability: the classifier did not say which words ask for it."""
    full: str = ""
    """The text with what it refers to in the place of the pronoun."""
