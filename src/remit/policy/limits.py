"""The limits a team sets; every default in one place."""

from msgspec import Struct

from remit.protocol.card import Authority
from remit.protocol.remit import CONTEXT_TOKENS, MAX_DEPTH, ROOT_TIME_MS, ROOT_TOKENS


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for every delegation of a hub unless an agent, a capability or a caller says less."""

    max_depth: int = MAX_DEPTH
    # Real chains seldom pass four; ten leaves room for a planner that calls planners.
    max_chain: int = 10
    max_fan_out: int = 3
    # A run has 300 s. A model answers in 0.3 s at best, so an agent can ask for 1,000 answers one after another, and
    # three times as many with three under way at once. Code that asks code is what meets these, in a loop.
    max_agent_delegations: int = 1_000
    """Delegations that one agent may ask for in a run."""
    max_delegations: int = 3_000
    """Delegations that all agents of a run together may ask for."""
    # 3,000 delegations whose request and answer have 10 kB each, more than the 4,000 tokens that a callee is shown.
    max_record_bytes: int = 64 * 1_048_576
    """What the records of one run may take in the store."""
    root_time_ms: int = ROOT_TIME_MS
    delegation_time_ms: int = 30_000
    root_tokens: int = ROOT_TOKENS
    delegation_tokens: int = 8_000
    context_tokens: int = CONTEXT_TOKENS
    max_result_bytes: int = 1_048_576
    """More than this in one answer is a flood, not an answer."""
    max_progress: int = 1_000
    """Progress reports that one delegation may make; later ones are dropped."""
    grace_ms: int = 3_000
    """How long a cancelled callee may take to clean up before it is abandoned."""
    approval_timeout_ms: int = 600_000
    authority: Authority = "own"
    """Whether agents that do not say otherwise are cut to the tools and targets of the agent that asks them."""
    shared_scopes: frozenset[str] = frozenset({"public"})
    """Owner scopes that every user may refer to."""
