"""What an agent of a coding tool is about to do with one of its tools, and what it is answered."""

from typing import Any

from msgspec import Struct

from remit.policy.budget import amounts
from remit_server.documents.common import GuardedSessionUse

# What is recorded of a text among the arguments: files are long, and a session uses many.
TEXT_CHARACTERS = 400


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


def use_in_words(use: GuardedSessionUse, currency: str) -> str:
    """Return what a session has used of its limits, for people."""
    tokens = f"{use.tokens:,} of {use.token_limit:,} tokens"
    if use.cost is None or use.cost_limit is None:
        return tokens
    used, limit = amounts(use.cost, use.cost_limit)
    return f"{tokens} and {used} of {limit} {currency}"
