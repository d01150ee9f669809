"""The guards of a hub and their order: structural first, rewriting last."""

from collections.abc import Iterable

from remit.policy import breaker, budget, lineage, permission, redaction
from remit.policy.verdict import Facts, Guard, Verdict
from remit.protocol.envelope import Request

GUARDS: tuple[Guard, ...] = (
    lineage.version,
    permission.known_target,
    permission.permission,
    permission.user,
    lineage.depth,
    lineage.chain,
    lineage.loop,
    lineage.cycle,
    lineage.nesting,
    lineage.fan_out,
    lineage.delegations,
    budget.record,
    budget.deadline,
    permission.tools,
    budget.tokens,
    budget.rate,
    breaker.breaker,
)

# Redaction comes after all other guards, a team's own included, and after the schemas: these judge the raw text, not
# tokens.
LAST: Guard = redaction.redaction


def passes_all(request: Request, facts: Facts) -> bool:
    """Return whether every one of `GUARDS` allows a request; if not, one of them may object.

    Nearly every request passes, so all are judged in one function: calling each guard costs four times as much.
    """
    remit, limits, card, caller, held = request.remit, facts.limits, facts.target, facts.caller, facts.held
    said = request.input or ""
    return (
        card is not None
        and request.version in facts.versions
        and (request.capability is None or card.capability(request.capability) is not None)
        and (caller is None or caller.may_reach(request.target))
        and (
            held is None
            or (
                held.may_delegate
                and facts.at_once <= limits.max_fan_out
                and (held.targets is None or request.target in held.targets)
            )
        )
        and facts.session_user is None
        and facts.session_agent is None
        and facts.asked_tools is None
        and request.handoff is None
        and not request.files
        and remit.depth <= remit.max_depth
        and remit.depth <= limits.max_depth
        and len(remit.chain) <= limits.max_chain
        and facts.address not in remit.chain
        and facts.delegations <= limits.max_delegations
        and facts.agent_delegations <= limits.max_agent_delegations
        and facts.record_bytes < limits.max_record_bytes
        and remit.time_ms >= budget.FLOOR_MS
        and not (facts.repeated or facts.overrun or facts.rate_wait_ms or facts.breaker_wait_ms)
        and remit.tokens > 0
        and isinstance(said, str)
        and 4 * (len(request.objective) + len(said)) <= remit.tokens
    )


def explain(request: Request, facts: Facts, guards: Iterable[Guard] = (*GUARDS, LAST)) -> list[tuple[str, Verdict]]:
    """Return the verdict of each guard on a request, by name, also after an objection."""
    return [(getattr(guard, "__name__", repr(guard)), guard(request, facts)) for guard in guards]
