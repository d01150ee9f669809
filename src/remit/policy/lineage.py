"""Guards that read the lineage alone: version, depth, chain, loop, cycle, nesting, fan-out, delegations."""

from remit.policy.verdict import ALLOW, Facts, Verdict, refuse
from remit.protocol.envelope import Request
from remit.protocol.errors import Code


def version(request: Request, facts: Facts) -> Verdict:
    """The envelope has a supported version."""
    if request.version in facts.versions:
        return ALLOW
    readable = ", ".join(facts.versions)
    return refuse(Code.VERSION_UNSUPPORTED, f"version {request.version!r} is not supported; supported: {readable}")


def depth(request: Request, facts: Facts) -> Verdict:
    """Within the depth limits of the remit and of this hub."""
    remit = request.remit
    if remit.depth <= remit.max_depth and remit.depth <= facts.limits.max_depth:
        return ALLOW
    reached = f"{remit.depth - 1}/{min(remit.max_depth, facts.limits.max_depth)}"
    return refuse(
        Code.MAX_DEPTH_EXCEEDED,
        f"Delegation depth limit reached ({reached}). Cannot delegate further. Return results to parent.",
        suggestion="If calls have to go deeper, have the team raise `max_depth`.",
    )


def chain(request: Request, facts: Facts) -> Verdict:
    """Within the limit of agents between the user and the callee."""
    length, limit = len(request.remit.chain), facts.limits.max_chain
    if length <= limit:
        return ALLOW
    return refuse(
        Code.CHAIN_TOO_LONG, f"Delegation chain too long ({length}/{limit}): {' -> '.join(request.remit.chain)}"
    )


def loop(request: Request, facts: Facts) -> Verdict:
    """The callee is not in the chain already, unless it may be called below itself."""
    if facts.address not in request.remit.chain or (facts.target is not None and facts.target.recursive):
        return ALLOW
    return refuse(
        Code.LOOP_DETECTED,
        f"{request.target} is already in the chain: {' -> '.join(request.remit.chain)} -> {facts.address}",
    )


def cycle(request: Request, facts: Facts) -> Verdict:
    """The caller does not repeat an earlier call to the same callee with the same input."""
    if not facts.repeated:
        return ALLOW
    return refuse(
        Code.CYCLE_DETECTED,
        f"Cycle detected: {request.origin} -> {request.target} with the same objective is already in progress or done.",
    )


def nesting(request: Request, facts: Facts) -> Verdict:
    """The caller's own remit allows delegation."""
    if facts.held is None or facts.held.may_delegate:
        return ALLOW
    return refuse(Code.NESTED_CALLS_FORBIDDEN, f"{request.origin} was asked without permission to delegate further")


def fan_out(request: Request, facts: Facts) -> Verdict:
    """Within the fan-out limit."""
    wanted, limit = facts.at_once, facts.limits.max_fan_out
    if facts.held is None or wanted <= limit:
        return ALLOW
    return refuse(
        Code.FAN_OUT_EXCEEDED,
        f"Too many concurrent delegates ({wanted}/{limit}). Choose the top {limit} most relevant agents.",
        suggestion="Ask the others after these have answered.",
    )


def delegations(request: Request, facts: Facts) -> Verdict:
    """Within the delegation limits of the run and of its caller."""
    limits = facts.limits
    if facts.delegations <= limits.max_delegations and facts.agent_delegations <= limits.max_agent_delegations:
        return ALLOW
    if facts.agent_delegations > limits.max_agent_delegations:
        name, limit, who = "max_agent_delegations", limits.max_agent_delegations, request.origin
    else:
        name, limit, who = "max_delegations", limits.max_delegations, "this run"
    return refuse(
        Code.MAX_DELEGATIONS_EXCEEDED, f"{who} has asked for {limit} delegations, as many as it may (`{name}`)"
    )
