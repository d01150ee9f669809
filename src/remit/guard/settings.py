"""What the sub-agents of a coding tool may do in one session."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

AtLimit = Literal["ask", "stop", "warn"]
Positive = Annotated[int, Meta(ge=1)]


class KindLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one kind of sub-agent."""

    tokens: Positive
    """Tokens of one sub-agent of this kind, with all below it."""


class GuardSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one session of a tool."""

    # A public report has 5.4 billion tokens in one task; two million are a long day of one person's work.
    tokens: Positive = 2_000_000
    """Tokens of the session and all of its sub-agents."""
    depth: Positive = 4
    """Levels of sub-agents below the session."""
    at_once: Positive = 6
    """Sub-agents of one agent that run at once."""
    time_ms: Positive = 7_200_000
    """How long sub-agents are started."""
    # The first request of a sub-agent with its instructions and tools; less would let a burst begin what cannot go on.
    reserve: Positive = 20_000
    """Tokens that are set aside for each sub-agent when it starts."""
    ask_at: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """The share of the tokens at which a person is asked whether more sub-agents may start."""
    at_limit: AtLimit = "ask"
    """At the limit of tokens: ask a person before each further sub-agent, start nothing more, or go on and say so."""
    cached: bool = False
    """Whether tokens count that the model's provider reads from a cache."""
    kinds: dict[str, KindLimits] = {}
    """Limits of kinds of sub-agents, by the name that the tool gives them."""
