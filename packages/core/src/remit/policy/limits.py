"""The limits that a team sets; every default in one place."""

from typing import Literal

from msgspec import Struct

from remit.protocol.card import Authority
from remit.protocol.remit import CONTEXT_TOKENS, MAX_DEPTH, ROOT_TIME_MS, ROOT_TOKENS

Overrun = Literal["run", "call"]
BeyondFanOut = Literal["queue", "refuse"]
AtRunLimit = Literal["stop", "ask"]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of every delegation of a hub, unless an agent, a capability or a caller sets less."""

    max_depth: int = MAX_DEPTH
    """How deep delegations may go below the agent that the user calls."""
    # Real chains seldom pass four; ten leaves room for a planner that calls planners.
    max_chain: int = 10
    """The most agents between the user and a callee."""
    max_fan_out: int = 3
    """The most delegations of one agent at once."""
    beyond_fan_out: BeyondFanOut = "queue"
    """What becomes of further calls of `map` and of the tool `sub_agent`: they wait for a place, or are refused."""
    # A run has 300 s. A model answers in 0.3 s at best, so an agent can get 1,000 answers one after another, and three
    # times as many with three in flight at once. Only code that calls code in a loop reaches these limits.
    max_agent_delegations: int = 1_000
    """The most delegations of one agent in a run."""
    max_delegations: int = 3_000
    """The most delegations of all agents of a run together."""
    # 3,000 delegations whose request and answer have 10 kB each, more than the 4,000 tokens that a callee is shown.
    max_record_bytes: int = 64 * 1_048_576
    """The most bytes that the records of one run may take in the store."""
    root_time_ms: int = ROOT_TIME_MS
    """The time of a run."""
    delegation_time_ms: int = 30_000
    """The time of a delegation, unless its caller sets it."""
    root_tokens: int = ROOT_TOKENS
    """The tokens of a run."""
    at_limit: AtRunLimit = "stop"
    """What happens when a run needs more tokens than it has, or a model without a price where money is limited: it
    stops, or a person is asked."""
    more_tokens: int | None = None
    """The tokens that a person's yes adds to a run. None: as many as it began with."""
    user_tokens_per_day: int | None = None
    """The most tokens of one user's runs in a day (UTC), on all hubs that share a store."""
    user_cost_per_day: int | None = None
    """The most money of one user's runs in a day (UTC), in millionths of `currency`."""
    root_cost: int | None = None
    """The money of a run, in millionths of `currency`. None: there is no limit."""
    delegation_cost: int | None = None
    """The money of a delegation, unless its caller sets it. None: it shares its caller's."""
    currency: str = "USD"
    """The currency of all costs."""
    delegation_tokens: int | None = None
    """The tokens of a delegation, unless its caller sets them. None: a fair share of what its caller has left."""
    overrun: Overrun = "run"
    """What is stopped when an agent spends more than it was granted: the whole run, or that call alone."""
    context_tokens: int = CONTEXT_TOKENS
    """The most tokens of conversation that a callee is shown."""
    max_result_bytes: int = 1_048_576
    """The most bytes of one answer."""
    max_progress: int = 1_000
    """The most progress reports of one delegation; later ones are dropped."""
    grace_ms: int = 3_000
    """How long a cancelled callee may take to clean up before it is abandoned."""
    approval_timeout_ms: int = 600_000
    """How long a person has to answer."""
    authority: Authority = "own"
    """Whether agents are by default limited to the tools and targets of their caller."""
    shared_scopes: frozenset[str] = frozenset({"public"})
    """Owner scopes that every user may refer to."""
