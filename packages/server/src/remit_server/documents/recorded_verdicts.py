"""The verdict of each guard on a recorded request, with its reason in figures of the record."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from remit.policy.budget import FLOOR_MS, estimate_request
from remit.policy.guards import GUARDS, LAST
from remit.policy.limits import Limits
from remit.policy.verdict import Guard
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault
from remit.protocol.records import Approval
from remit.runtime.run_tree import Node, Tree

SCHEMA = "input_schema"
"""The name of the check of an input against the schema of its capability, between the guards and redaction."""

Recorded = Literal["allow", "rewrite", "ask", "refuse", "not_asked", "unknown"]


class RecordedVerdict(Struct, frozen=True, kw_only=True):
    """What a guard decided about a recorded request, as far as the record shows it."""

    guard: str
    verdict: Recorded
    """`not_asked`: an earlier guard had refused; `unknown`: the record does not show it."""
    says: str = ""
    """The reason, with figures."""
    code: Code | None = None
    """The error code if it refused."""
    from_record: bool = True
    """Whether the figures are in the record; if not, they are those of the present team file."""


class RecordedCase(NamedTuple):
    """A recorded request with what its record and the present team say about it."""

    request: Request
    node: Node
    seq: int
    """The number of its record; for a call that waits for a person, that of the next record."""
    tree: Tree
    limits: Limits
    guards: Sequence[Guard]
    """The hub's guards, in order, those of the team included."""
    card: AgentCard | None
    caller: AgentCard | None
    parent: Request | None
    fault: Fault | None = None
    """Why it was refused, if it was."""
    approvals: Sequence[Approval] = ()
    tokens: Sequence[str] = ()
    """The kinds of data that redaction replaced in it."""


def guard_name(guard: Guard) -> str:
    """Return a guard's name."""
    return getattr(guard, "__name__", repr(guard))


def guard_sentence(guard: Guard) -> str:
    """Return the condition that a guard checks."""
    return (guard.__doc__ or "").strip().partition("\n")[0]


def recorded_verdicts(case: RecordedCase) -> tuple[RecordedVerdict, ...]:
    """Return the verdict of each guard, in the order in which they are asked."""
    own = [guard_name(each) for each in case.guards[len(GUARDS) :]]
    names = [*map(guard_name, GUARDS), *own, SCHEMA, guard_name(LAST)]
    refusing = None if case.fault is None else refusing_guard(case.fault, own)
    verdicts: list[RecordedVerdict] = []
    refused = False
    for name in names:
        if refused:
            verdicts.append(RecordedVerdict(guard=name, verdict="not_asked"))
        elif case.fault is not None and name == refusing:
            verdicts.append(
                RecordedVerdict(guard=name, verdict="refuse", says=case.fault.message, code=case.fault.code)
            )
            refused = True
        elif case.fault is not None and refusing is None:
            verdicts.append(RecordedVerdict(guard=name, verdict="unknown", says=_NOT_BY_A_GUARD))
        elif name in _REASONS:
            verdicts.append(_REASONS[name](name, case))
        else:
            verdicts.append(_own(name, case))
    return tuple(verdicts)


_NOT_BY_A_GUARD = "refused before the guards or after them: the record does not show that this guard was asked"

# The guard that refuses with a code. What is not here is refused elsewhere: by the codec, a queue or the store.
GUARD_BY_CODE: dict[Code, str] = {
    Code.VERSION_UNSUPPORTED: "version",
    Code.AGENT_NOT_FOUND: "known_target",
    Code.CAPABILITY_NOT_FOUND: "known_target",
    Code.PERMISSION_DENIED: "permission",
    Code.USER_MISMATCH: "user",
    Code.MAX_DEPTH_EXCEEDED: "depth",
    Code.CHAIN_TOO_LONG: "chain",
    Code.LOOP_DETECTED: "loop",
    Code.CYCLE_DETECTED: "cycle",
    Code.NESTED_CALLS_FORBIDDEN: "nesting",
    Code.FAN_OUT_EXCEEDED: "fan_out",
    Code.MAX_DELEGATIONS_EXCEEDED: "delegations",
    Code.RECORD_LIMIT_EXCEEDED: "record",
    Code.TIMEOUT: "deadline",
    Code.TOOL_NOT_ALLOWED: "tools",
    Code.TOKEN_BUDGET_EXCEEDED: "tokens",
    Code.RATE_LIMITED: "rate",
    Code.DELEGATION_UNAVAILABLE: "breaker",
    Code.INPUT_VALIDATION_FAILED: SCHEMA,
    Code.DATA_MISSING_REQUIRED_INPUT: SCHEMA,
    Code.TOO_LARGE: "redaction",
}
_OF_PERMISSION = ("is not allowed to call other agents", "its `may_call` does not name it", "does not let it call")
_OF_SESSION = "is a conversation with another agent"


def refusing_guard(why: Fault, own: Sequence[str]) -> str | None:
    """Return the guard that refused with a fault; None if none did. *own* are the names of the team's own guards."""
    if why.code is Code.APPROVAL_DECLINED:
        return own[0] if own else None
    if why.code is Code.PERMISSION_DENIED:
        if _OF_SESSION in why.message:
            return "user"
        if not any(each in why.message for each in _OF_PERMISSION):
            return own[0] if own else "permission"
    return GUARD_BY_CODE.get(why.code)


# ── the reasons of those that allowed it ──────────────────────────────────────────────────────────────────────────────


def _allow(name: str, says: str, *, from_record: bool = True) -> RecordedVerdict:
    return RecordedVerdict(guard=name, verdict="allow", says=says, from_record=from_record)


def _version(name: str, case: RecordedCase) -> RecordedVerdict:
    return _allow(name, f"version {case.request.version} is supported")


def _known_target(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    offers = f" and offers {request.capability}" if request.capability else ""
    return _allow(name, f"{request.target} is registered{offers}")


def _permission(name: str, case: RecordedCase) -> RecordedVerdict:
    request, parent = case.request, case.parent
    if request.parent is None:
        return _allow(name, f"{request.origin} asked {request.target} directly; `may_call` is for agents")
    named = "" if case.caller is None else f"; its `may_call` is now: {_listed(case.caller.callees)}"
    bound = parent.remit.targets if parent is not None else None
    remit = "sets no bound on targets" if bound is None else f"names {_listed(bound)}"
    return _allow(name, f"{request.origin} may call {request.target}{named}; its remit {remit}", from_record=False)


def _user(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    count = len(request.handoff.references) if request.handoff is not None else 0
    references = f", and so do its {count} references" if count else ""
    return _allow(name, f"the session belongs to {request.remit.user}{references}")


def _depth(name: str, case: RecordedCase) -> RecordedVerdict:
    remit = case.request.remit
    return _allow(name, f"depth {remit.depth} of {min(remit.max_depth, case.limits.max_depth)}")


def _chain(name: str, case: RecordedCase) -> RecordedVerdict:
    return _allow(name, f"{_count(len(case.request.remit.chain), 'agent')} of {case.limits.max_chain} above it")


def _loop(name: str, case: RecordedCase) -> RecordedVerdict:
    chain = case.request.remit.chain
    where = f"not in the chain {' → '.join(chain)}" if chain else "the chain is empty"
    return _allow(name, f"{case.request.target} is {where}" if chain else where)


def _cycle(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    before = sum(each.agent == request.target for each in case.node.asked_before(case.seq))
    if not before:
        return _allow(name, f"the first call of {request.origin} to {request.target} in this delegation")
    return _allow(name, f"{_count(before, 'earlier call')} to {request.target}, none of them the same")


def _nesting(name: str, case: RecordedCase) -> RecordedVerdict:
    if case.parent is None:
        return _allow(name, "asked from outside: no agent delegates here")
    return _allow(name, f"the remit of {case.request.origin} allows delegation (`may_delegate`)")


def _fan_out(name: str, case: RecordedCase) -> RecordedVerdict:
    if case.parent is None:
        return _allow(name, "asked from outside: no agent delegates here")
    at_once = 1 + sum(each.is_open_at(case.seq) for each in case.node.asked_before(case.seq))
    return _allow(name, f"{at_once} of {case.limits.max_fan_out} at once")


def _delegations(name: str, case: RecordedCase) -> RecordedVerdict:
    request, limits = case.request, case.limits
    if case.parent is None:
        return _allow(name, "the root is not counted")
    requests = (each.request for each in case.tree.nodes_in_order() if 0 < each.first_seq < case.seq)
    earlier = [each.origin for each in requests if each and each.run == request.run and each.parent is not None]
    return _allow(
        name,
        f"call {len(earlier) + 1:,} of {limits.max_delegations:,} of the run, "
        f"{earlier.count(request.origin) + 1:,} of {limits.max_agent_delegations:,} of {request.origin}",
    )


def _record(name: str, case: RecordedCase) -> RecordedVerdict:
    limit = case.limits.max_record_bytes
    says = f"below the limit of {limit:,} bytes; how many there were is not recorded"
    return _allow(name, says, from_record=False)


def _deadline(name: str, case: RecordedCase) -> RecordedVerdict:
    return _allow(name, f"{case.request.remit.time_ms:,} ms granted, at least {FLOOR_MS} ms are needed")


def _tools(name: str, case: RecordedCase) -> RecordedVerdict:
    tools = case.request.remit.tools
    says = "the call names no tools" if tools is None else f"the remit names: {_listed(tools)}"
    return _allow(name, says)


def _tokens(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    needed = estimate_request(request)
    return _allow(name, f"the request takes about {needed:,} of {request.remit.tokens:,} tokens granted")


def _rate(name: str, case: RecordedCase) -> RecordedVerdict:
    rate = case.card.rate if case.card is not None else None
    if rate is None:
        return _allow(name, f"{case.request.target} has no rate limit", from_record=False)
    says = f"within {_count(rate.calls, 'call')} in {rate.seconds:g} s; how many there were is not recorded"
    return _allow(name, says, from_record=False)


def _breaker(name: str, case: RecordedCase) -> RecordedVerdict:
    target = case.request.target
    if case.node.is_probe:
        return _allow(name, f"half-open: this call was the probe of {target}")
    return _allow(name, f"closed: {target} was called as usual")


def _own(name: str, case: RecordedCase) -> RecordedVerdict:
    answered = [each for each in case.approvals if each.agreed is not None]
    if answered:
        last = answered[-1]
        return RecordedVerdict(guard=name, verdict="ask", says=f"{last.question} Approved by {last.by or 'a person'}.")
    if case.approvals:
        return RecordedVerdict(guard=name, verdict="ask", says=case.approvals[-1].question)
    return _allow(name, "no rule of the team objected")


def _schema(name: str, case: RecordedCase) -> RecordedVerdict:
    code = case.request.capability
    if code is None:
        return _allow(name, "no capability is named, so there is no schema")
    capability = case.card.capability(code) if case.card is not None else None
    if capability is None or capability.input_schema is None:
        return _allow(name, f"{code} has no input schema", from_record=False)
    return _allow(name, f"the input fits the schema of {code}")


def _redaction(name: str, case: RecordedCase) -> RecordedVerdict:
    unread = sum(file.text is None for file in case.request.files)
    besides = f"; {_count(unread, 'file')} not searched: no text" if unread else ""
    if not case.tokens:
        return _allow(name, f"no personal data or secrets were replaced{besides}")
    kinds = sorted(set(case.tokens))
    counted = ", ".join(f"{case.tokens.count(kind)} {kind}" for kind in kinds)
    return RecordedVerdict(guard=name, verdict="rewrite", says=f"replaced with tokens: {counted}{besides}")


_REASONS: dict[str, Callable[[str, RecordedCase], RecordedVerdict]] = {
    "version": _version,
    "known_target": _known_target,
    "permission": _permission,
    "user": _user,
    "depth": _depth,
    "chain": _chain,
    "loop": _loop,
    "cycle": _cycle,
    "nesting": _nesting,
    "fan_out": _fan_out,
    "delegations": _delegations,
    "record": _record,
    "deadline": _deadline,
    "tools": _tools,
    "tokens": _tokens,
    "rate": _rate,
    "breaker": _breaker,
    SCHEMA: _schema,
    "redaction": _redaction,
}


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
