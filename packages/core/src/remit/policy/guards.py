"""The guards of a hub in the order in which they are asked, structural first, rewriting last; and how they judge."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from remit.policy.budget import FLOOR_MS, estimate_request
from remit.policy.limits import Limits
from remit.policy.reception import authority_of
from remit.policy.redaction import redaction
from remit.policy.verdict import ALLOW, GUARD_FAILED, Allow, Ask, Facts, Guard, Refuse, Rewrite, Verdict, refuse
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode
from remit.protocol.conditions import checked_condition, holds
from remit.protocol.envelope import NOBODY, Request
from remit.protocol.errors import Code
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import Tools, terms_of


def version(request: Request, facts: Facts) -> Verdict:
    """The envelope has a supported version."""
    if request.version in facts.versions:
        return ALLOW
    readable = ", ".join(facts.versions)
    return refuse(Code.VERSION_UNSUPPORTED, f"version {request.version!r} is not supported; supported: {readable}")


def known_target(request: Request, facts: Facts) -> Verdict:
    """The callee exists and offers the capability."""
    if facts.target is None and request.target == NOBODY:
        return refuse(Code.CAPABILITY_NOT_FOUND, f"no agent here offers `{request.capability}`")
    if facts.target is None:
        known = f"; known agents: {', '.join(sorted(facts.agents)) or 'none'}"
        near = did_you_mean(request.target, facts.agents)
        return refuse(Code.AGENT_NOT_FOUND, f"there is no agent `{request.target}`{near or known}")
    if request.capability is None or facts.target.capability(request.capability):
        return ALLOW
    offered = ", ".join(each.code for each in facts.target.capabilities) or "none"
    return refuse(
        Code.CAPABILITY_NOT_FOUND, f"{request.target} does not offer `{request.capability}`; it offers: {offered}"
    )


def permission(request: Request, facts: Facts) -> Verdict:
    """The team and every remit above let the caller call the callee."""
    if facts.caller is not None and not facts.caller.may_reach(request.target):
        if facts.caller.allow_sub_agent_calls is False:
            return refuse(
                Code.PERMISSION_DENIED,
                f"{request.origin} is not allowed to call other agents",
                suggestion=f"Do the work without them, or take `allow_sub_agent_calls = false` from {request.origin}.",
            )
        return refuse(
            Code.PERMISSION_DENIED,
            f"{request.origin} may not call {request.target}: its `may_call` does not name it",
            suggestion="Name the callee in the caller's `may_call`, or ask an agent that is named there.",
        )
    if facts.held is not None and facts.held.targets is not None and request.target not in facts.held.targets:
        return refuse(
            Code.PERMISSION_DENIED,
            f"the remit of {request.origin} does not let it call {request.target}",
            suggestion=f"Ask an agent that it names, or have the caller of {request.origin} add this one to `targets`.",
        )
    return ALLOW


def user(request: Request, facts: Facts) -> Verdict:
    """Session and references belong to the user of the remit."""
    owner = request.remit.user
    if facts.session_user is not None and facts.session_user != owner:
        return refuse(Code.USER_MISMATCH, "User ID mismatch - security violation: the session belongs to another user")
    if facts.session_agent is not None and facts.session_agent != request.target:
        return refuse(
            Code.PERMISSION_DENIED,
            f"session {request.session} is a conversation with another agent than {request.target}",
            suggestion=f"Leave the session out, or name one of {request.target}'s own.",
        )
    for reference in request.handoff.references if request.handoff else ():
        if reference.owner_scope != owner and reference.owner_scope not in facts.limits.shared_scopes:
            return refuse(
                Code.USER_MISMATCH,
                f"User ID mismatch - security violation: reference {reference.source_id} belongs to another user",
            )
    return ALLOW


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


def record(request: Request, facts: Facts) -> Verdict:
    """Within the record limit of the run."""
    taken, limit = facts.record_bytes, facts.limits.max_record_bytes
    if taken < limit:
        return ALLOW
    return refuse(Code.RECORD_LIMIT_EXCEEDED, record_limit(taken, limit))


def record_limit(taken: int, limit: int) -> str:
    """Return the sentence for a run that has reached its record limit."""
    return f"the records of this run take {taken:,} bytes of at most {limit:,} (`max_record_bytes`)"


def deadline(request: Request, facts: Facts) -> Verdict:
    """Enough time is left to be worth starting."""
    if request.remit.time_ms >= FLOOR_MS:
        return ALLOW
    return refuse(
        Code.TIMEOUT,
        f"only {request.remit.time_ms} ms are left for {request.target}; nothing was started",
        suggestion="Answer with what you have, or ask again with more time.",
    )


def tools(request: Request, facts: Facts) -> Verdict:
    """The named tools are the callee's, and within the caller's own remit."""
    limits = request.remit.tools
    if isinstance(limits, dict):
        if why := _malformed(limits):
            return refuse(Code.INPUT_VALIDATION_FAILED, why)
        if facts.judged_elsewhere is False:
            return refuse(
                Code.TOOL_NOT_ALLOWED,
                f"{request.target} cannot be held to conditions on the arguments of tools",
                suggestion="Ask an agent of this hub, or of one that gets the remit, or ask without conditions.",
            )
    wanted = facts.asked_tools
    if wanted is None or facts.target is None:
        return ALLOW
    # Another hub knows the tools of its agent.
    is_known = not (facts.judged_elsewhere and isinstance(limits, dict)) or bool(facts.target.tools)
    if is_known and (excess := wanted - facts.target.tools):
        return refuse(Code.TOOL_NOT_ALLOWED, f"{request.target} not authorized to use {_listed(excess)}")
    if excess := wanted - _passable(facts.caller, facts.target, facts.limits, wanted):
        why = f"{request.origin} does not have it, and {request.target} works with the authority of its caller"
        return refuse(Code.TOOL_NOT_ALLOWED, f"{request.target} not authorized to use {_listed(excess)}: {why}")
    if facts.held is not None and facts.held.tools is not None and (excess := wanted.difference(facts.held.tools)):
        return refuse(
            Code.TOOL_NOT_ALLOWED, f"{request.origin} cannot pass on {_listed(excess)}: its own remit does not name it"
        )
    return ALLOW


def _malformed(tools: Tools) -> str:
    """Return what is wrong with a condition on a tool's arguments; empty if all can be judged."""
    for name in tools:
        for terms in terms_of(tools, name):
            for path, condition in terms.items():
                try:
                    checked_condition(condition)
                except ValueError as error:
                    return f"tools.{name}.{path}: {error}"
    return ""


def _passable(caller: AgentCard | None, callee: AgentCard, limits: Limits, wanted: frozenset[str]) -> frozenset[str]:
    """Return the requested tools that a caller can give its callee."""
    # An agent that passes on has no tools: its remit bounds what its callees may use.
    if caller is None or caller.passes_on or authority_of(callee, limits) == "own":
        return wanted
    return caller.tools


def _listed(names: frozenset[str]) -> str:
    return ("tool " if len(names) == 1 else "tools ") + ", ".join(sorted(names))


def tokens(request: Request, facts: Facts) -> Verdict:
    """The request itself fits into its budget, and the run has not overrun its own."""
    budget = request.remit.tokens
    if facts.overrun:
        return refuse(
            Code.TOKEN_BUDGET_EXCEEDED,
            "an agent of this run spent more than it was granted; nothing more is started",
            suggestion="Answer with what you have; a new run needs a larger budget.",
        )
    if budget == 0:
        return refuse(
            Code.TOKEN_BUDGET_EXCEEDED,
            f"no tokens are left for {request.target}",
            suggestion="Answer with what you have, or ask again with a larger budget.",
        )
    if request.remit.cost == 0:
        return refuse(
            Code.TOKEN_BUDGET_EXCEEDED,
            f"no money is left for {request.target}",
            suggestion="Answer with what you have, or ask again with a higher `max_cost`.",
        )
    # A token is at least one byte, and a character at most four bytes: short requests need no counting.
    given = request.input or ""
    if facts.counted or (
        isinstance(given, str) and not request.files and 4 * (len(request.objective) + len(given)) <= budget
    ):
        return ALLOW
    estimated = estimate_request(request)
    if estimated <= budget:
        return ALLOW
    return refuse(
        Code.TOKEN_BUDGET_EXCEEDED,
        f"Estimated tokens ({estimated}) exceeds budget ({budget}). Simplify task or increase budget.",
        suggestion="",  # the sentence of the employee dialect already says it
    )


def rate(request: Request, facts: Facts) -> Verdict:
    """Within the rate limit of the callee, or of the tool."""
    if not facts.rate_wait_ms:
        return ALLOW
    return (used_too_often if request.act == "tool" else asked_too_often)(request.target, facts.rate_wait_ms)


def asked_too_often(target: str, wait_ms: int) -> Refuse:
    """Return the refusal of a call beyond the callee's rate limit; the next may come after *wait_ms*."""
    return refuse(Code.RATE_LIMITED, f"{target} is asked too often", retry_after_ms=wait_ms)


def used_too_often(tool: str, wait_ms: int) -> Refuse:
    """Return the refusal of a use beyond the rate limit of a tool; the next may come after *wait_ms*."""
    return refuse(Code.RATE_LIMITED, f"tool {tool} is used too often", retry_after_ms=wait_ms)


def breaker(request: Request, facts: Facts) -> Verdict:
    """The callee's breaker is closed, or lets this call through as a probe."""
    if not facts.breaker_wait_ms:
        return ALLOW
    return refuse(
        Code.DELEGATION_UNAVAILABLE,
        f"{request.target} is temporarily unavailable",
        retry_after_ms=facts.breaker_wait_ms,
    )


GUARDS: tuple[Guard, ...] = (
    version,
    known_target,
    permission,
    user,
    depth,
    chain,
    loop,
    cycle,
    nesting,
    fan_out,
    delegations,
    record,
    deadline,
    tools,
    tokens,
    rate,
    breaker,
)


def tool(request: Request, facts: Facts) -> Verdict:
    """The tool exists, and both the agent's card and its remit name it."""
    if facts.tool is not None:
        return ALLOW
    return refuse(Code.TOOL_NOT_ALLOWED, f"Agent {request.origin} not authorized to use tool {request.target}")


def arguments(request: Request, _: Facts) -> Verdict:
    """The arguments meet the conditions of the remit on the tool; one that is missing or of another kind does not."""
    for terms in terms_of(request.remit.tools, request.target):
        for path, condition in terms.items():
            if holds(checked_condition(condition), request.input, path, every=True) is not True:
                return refuse(
                    Code.TOOL_NOT_ALLOWED,
                    f"the remit of {request.origin} allows tool {request.target} only where `{path}` is "
                    f"{encode(condition).decode()[:_SHOWN]}",
                    suggestion=f"Keep to it, or have the caller of {request.origin} allow more in `tools`.",
                )
    return ALLOW


# A list in a condition may have a thousand values.
_SHOWN = 200

# The same for each use of a tool. It runs within the time, the chain and the depth of its agent, which were judged.
TOOL_GUARDS: tuple[Guard, ...] = (tool, record)


def guards_of_use(team: Iterable[Guard]) -> tuple[Guard, ...]:
    """Return the guards of a use whose arguments are known; *team* are the team's own.

    The remit refuses before a person is asked, and again what a guard of the team made of the arguments.
    """
    return (*TOOL_GUARDS, arguments, rate, *team, arguments)


# Redaction comes after all other guards, a team's own included, and after the schemas: these judge the raw text, not
# tokens.
LAST: Guard = redaction


def judge(request: Request, facts: Facts, guards: Iterable[Guard]) -> Rewrite | Refuse | Ask:
    """Ask each guard in turn; the first objection stands, and rewrites are passed on."""
    struck: Mapping[str, str | int] = {}
    for guard in guards:
        verdict = guard(request, facts)
        if verdict is ALLOW:
            continue
        match verdict:
            case Allow():
                continue
            case Rewrite(request=rewritten, struck=more, answer=content):
                struck = {**struck, **more} if more else struck
                if not _says_the_same(request, rewritten):
                    message = (
                        "a guard rewrote more than the content: a request's route is fixed, and its remit only narrows"
                    )
                    return refuse(Code.PERMISSION_DENIED, message, suggestion="Correct the guard.")
                if facts.answer is not None:
                    # The result is in both, and either may have been changed.
                    same = rewritten.input is request.input
                    content = content or facts.answer
                    content = content if same else replace(content, result=rewritten.input)
                    facts, rewritten = replace(facts, answer=content), replace(rewritten, input=content.result)
                request = rewritten
            case Ask(question=question) if question in facts.approved:
                continue
            case (Refuse() | Ask()) as objection:
                return objection
            case _:  # guards come from users too, and anything but a verdict is not an approval
                return refuse(
                    Code.PERMISSION_DENIED,
                    f"a guard returned an invalid verdict of type {type(verdict).__name__}",
                    suggestion=GUARD_FAILED,
                )
    return Rewrite(request, struck, facts.answer)


def _says_the_same(request: Request, rewritten: Request) -> bool:
    """Return whether only the content differs and no one may do more than before."""
    return rewritten.remit.within(request.remit) and all(
        getattr(request, field) == getattr(rewritten, field) for field in _ROUTE
    )


_ROUTE = ("version", "id", "origin", "target", "capability", "run", "parent", "session", "parent_session", "handover")


def passes_again(request: Request, facts: Facts) -> bool:
    """Return whether all `GUARDS` allow a request that differs from one that they allowed in nothing but its text.

    The fast path of most calls. The guards that read route, cards and limits decide as before; what the others read is
    judged here at once: to call each of them would cost a tenth of a delegation. If not, one of them may object.
    """
    remit, limits = request.remit, facts.limits
    return (
        not (facts.repeated or facts.overrun or facts.rate_wait_ms or facts.breaker_wait_ms)
        and facts.at_once <= limits.max_fan_out
        and facts.delegations <= limits.max_delegations
        and facts.agent_delegations <= limits.max_agent_delegations
        and facts.record_bytes < limits.max_record_bytes
        and remit.time_ms >= FLOOR_MS
        and 0 < remit.tokens >= 4 * len(request.objective)
    )


def explain(request: Request, facts: Facts, guards: Iterable[Guard] = (*GUARDS, LAST)) -> list[tuple[str, Verdict]]:
    """Return the verdict of each guard on a request, by name, also after an objection."""
    return [(getattr(guard, "__name__", repr(guard)), guard(request, facts)) for guard in guards]
