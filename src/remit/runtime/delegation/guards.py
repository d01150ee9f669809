"""Which guards judge a request, and in which order: structural first, rewriting last."""

from collections.abc import Iterable

from remit.policy import breaker, budget, lineage, permission, rate, redaction
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
    rate.rate,
    breaker.breaker,
)

# After every other guard, a team's own included, and after the schemas: they judge what was said, not the tokens.
LAST: Guard = redaction.redaction


def explain(request: Request, facts: Facts, guards: Iterable[Guard] = (*GUARDS, LAST)) -> list[tuple[str, Verdict]]:
    """Return what each guard says of a request, by name, also after an objection."""
    return [(getattr(guard, "__name__", repr(guard)), guard(request, facts)) for guard in guards]
