"""The authority and budget that travel with a request; every hop can only narrow it."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from remit.protocol.conditions import Condition

# The agent that the user talks to is at depth 0; five below it was enough for every design we read.
MAX_DEPTH = 5
ROOT_TIME_MS = 300_000
# A turn of a coding agent takes some 200,000; a run that costs more than a few euros is rather a mistake.
ROOT_TOKENS = 1_000_000
CONTEXT_TOKENS = 4_000

# Integers up to here survive every JSON implementation unchanged.
MAX_INTEGER = 2**53 - 1

Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
# Names end up in logs and terminals: one that could break a line or control the terminal is invalid.
NAME_RULE = "control characters are not allowed in a name"
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z"
LONGEST_NAME = 200
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
Names = Annotated[frozenset[Name], Meta(max_length=1_000)]
Chain = Annotated[tuple[Name, ...], Meta(max_length=100)]
Terms = Annotated[dict[Name, Condition], Meta(max_length=100)]
"""Conditions on the arguments of a tool, by name or path (`to.iban`): all hold."""
Tools = (
    Names | Annotated[dict[Name, Terms | Annotated[tuple[Terms, ...], Meta(max_length=100)]], Meta(max_length=1_000)]
)
"""Names of tools, or by name the conditions on their arguments; several for one tool hold together."""


class Priority(StrEnum):
    """The order in which requests to a busy agent are served."""

    HIGH = "HIGH"
    """First in queues."""
    NORMAL = "NORMAL"
    """The default."""
    LOW = "LOW"
    """Last in queues."""


URGENCY: dict[Priority, int] = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2}


def lesser(one: Priority, other: Priority) -> Priority:
    """Return the less urgent of two priorities."""
    return min(one, other, key=URGENCY.__getitem__)


class Grant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The rights of a verified credential: a bound on whatever the request claims."""

    user: Name
    """The user for whom everything is done."""
    depth: Count
    """How deep the callee is; the agent that the user calls has 0."""
    max_depth: Count
    """How deep delegations may go."""
    time_ms: Count
    """The time that is left, in milliseconds."""
    tokens: Count
    """The tokens that may be spent."""
    cost: Count | None = None
    """The money that may be spent, in millionths of the team's currency; None: there is no limit."""
    chain: Chain = ()
    """The agents between the user and the callee, as `agent@hub`."""
    tools: Tools | None = None
    """The tools that it may use, with conditions on their arguments; None: no bound."""
    targets: Names | None = None
    """The agents that may be called; None: no bound."""
    may_delegate: bool = True
    """Whether the callee may call others."""


class Remit(Grant, frozen=True, kw_only=True):
    """What a callee may do and spend, for which user, and by which chain of callers.

    `time_ms` is the time that was left when the remit was made: a clock reading is never sent. `tools` and `targets`
    bound what the callee's own card allows; None sets no further bound. `chain` holds the `agent@hub` addresses above
    the callee.
    """

    context_tokens: Count = CONTEXT_TOKENS
    """The most tokens of conversation that the callee is shown."""
    priority: Priority = Priority.NORMAL
    """Its place in queues."""

    def narrow(
        self,
        *,
        caller: str,
        time_ms: int,
        tokens: int,
        max_depth: int | None = None,
        context_tokens: int | None = None,
        tools: Tools | None = None,
        targets: frozenset[str] | None = None,
        may_delegate: bool = True,
        priority: Priority | None = None,
        cost: int | None = None,
    ) -> "Remit":
        """Return the remit of a callee of *caller*, the holder of this one: never more than this one has."""
        # Written out, because every hop pays for it: `min` and `max` would cost three times as much.
        granted = tokens if tokens < self.tokens else self.tokens
        granted = granted if granted > 0 else 0
        left_ms = time_ms if time_ms < self.time_ms else self.time_ms
        deepest = self.max_depth
        if max_depth is not None and max_depth < deepest:
            deepest = max_depth if max_depth > 0 else 0
        context = self.context_tokens
        if context_tokens is not None and context_tokens < context:
            context = context_tokens if context_tokens > 0 else 0
        return Remit(
            user=self.user,
            depth=self.depth + 1,
            max_depth=deepest,
            time_ms=left_ms if left_ms > 0 else 0,
            tokens=granted,
            chain=(*self.chain, caller),
            context_tokens=context if context < granted else granted,
            tools=self.tools if tools is None else meet_tools(self.tools, tools),
            targets=self.targets if targets is None else meet(self.targets, targets),
            may_delegate=self.may_delegate and may_delegate,
            priority=self.priority if priority is None else lesser(self.priority, priority),
            cost=None if cost is None and self.cost is None else lower(self.cost, cost and max(0, cost)),
        )

    def within(self, other: "Remit") -> bool:
        """Return whether this remit allows nothing that *other* does not, for the same user at the same place."""
        return (
            (self.user, self.depth, self.chain) == (other.user, other.depth, other.chain)
            and self.max_depth <= other.max_depth
            and self.time_ms <= other.time_ms
            and self.tokens <= other.tokens
            and self.context_tokens <= other.context_tokens
            and (other.tools is None or (self.tools is not None and tools_within(self.tools, other.tools)))
            and (other.targets is None or (self.targets is not None and self.targets <= other.targets))
            and (other.may_delegate or not self.may_delegate)
            and (other.cost is None or (self.cost is not None and self.cost <= other.cost))
            and URGENCY[self.priority] <= URGENCY[other.priority]
        )


def lower(one: int | None, other: int | None) -> int | None:
    """Return the lower of two bounds; None sets no bound."""
    if one is None:
        return other
    return one if other is None or one < other else other


def meet(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """Return what both bounds allow; None sets no bound."""
    if one is None:
        return other
    if other is None:
        return one
    return one & other


def terms_of(tools: Tools | None, name: str) -> tuple[Terms, ...]:
    """Return the conditions on the arguments of a tool; none if it may be used with any."""
    if not isinstance(tools, dict) or not (terms := tools.get(name)):
        return ()
    return (terms,) if isinstance(terms, dict) else terms


def meet_tools(one: Tools | None, other: Tools | None) -> Tools | None:
    """Return what both bounds allow: the conditions of both hold; None sets no bound."""
    if not isinstance(one, dict) and not isinstance(other, dict):
        return meet(one, other)
    if one is None or other is None:
        return other if one is None else one
    for narrower, wider in ((one, other), (other, one)):
        if tools_within(narrower, wider):
            return narrower
    both: dict[str, Terms | tuple[Terms, ...]] = {}
    for name in one:
        if name in other:
            terms = terms_of(one, name)
            both[name] = (*terms, *(each for each in terms_of(other, name) if each not in terms))
    return both


def tools_within(one: Tools, other: Tools) -> bool:
    """Return whether *one* names no other tools than *other*, and all of its conditions."""
    return all(name in other and all(each in terms_of(one, name) for each in terms_of(other, name)) for name in one)
