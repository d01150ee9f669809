"""What a question to the user offers, as it is stored with the conversation until the reply comes."""

from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import Json


class Option(Struct, frozen=True, kw_only=True):
    """Something that was offered or said back, with exactly what is sent after a yes."""

    code: str
    words: str
    """What the user sees of it, without its values."""
    values: str = ""
    """Its values as they were shown."""
    text: str = ""
    input: Json = None
    stated: Json = None
    """The values of it that the user gave, to be remembered."""
    missing: tuple[str, ...] = ()
    lead: str = ""
    """The sentence that says which values were taken from before."""

    @property
    def shown(self) -> str:
        """What the user reads."""
        return f"{self.words} ({self.values})" if self.values else self.words


class OpenQuestion(Struct, frozen=True, kw_only=True):
    """A question to the user, as it is stored with the conversation."""

    kind: Literal["options", "fields"]
    question: str
    text: str
    options: tuple[Option, ...]
    preferred: bool = False
    """Whether the first option was said back, so that a yes is enough."""
    more: tuple[str, ...] = ()
    """Capabilities that are offered if it is none of these."""
    offered: dict[str, Json] = {}
    """Values from before for missing fields."""
