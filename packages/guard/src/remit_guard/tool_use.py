"""What an agent of a coding tool is about to do with one of its tools, and what it is answered."""

from typing import Any, cast

from msgspec import Struct

# What is recorded of a text among the arguments that nothing judges: files are long, and a session uses many.
TEXT_CHARACTERS = 400
MOST_ITEMS = 20


class GuardedUse(Struct, frozen=True, kw_only=True):
    """A use of a tool, before it happens."""

    id: str = ""
    """The id that the coding tool gives it; empty: it gives none."""
    tool: str
    arguments: dict[str, Any]
    command: str = ""
    """What a shell would run; empty: the tool is no shell."""
    changes: bool = False
    """Whether it may change something."""


class UseVerdict(Struct, frozen=True, kw_only=True):
    """Whether a tool may be used."""

    refused: str = ""
    """Why not, as a sentence for the model; empty: it may."""
    arguments: dict[str, Any] | None = None
    """The arguments as a person has changed them; None: they are as they were."""


def shortened(value: Any) -> Any:
    """Return arguments for the record, with the beginning of each long text and list."""
    match value:
        case str():
            return value if len(value) <= TEXT_CHARACTERS else f"{value[:TEXT_CHARACTERS]}…"
        case list():
            return [shortened(each) for each in cast("list[Any]", value)[:MOST_ITEMS]]
        case dict():
            pairs = list(cast("dict[str, Any]", value).items())[:MOST_ITEMS]
            return {name[:TEXT_CHARACTERS]: shortened(each) for name, each in pairs}
        case _:
            return value
