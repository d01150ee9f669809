"""Guards of permission: who may call whom, for which user, with which tools."""

from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.policy.verdict import ALLOW, Facts, Verdict, refuse
from remit.protocol.card import AgentCard, Authority
from remit.protocol.envelope import NOBODY, Request
from remit.protocol.errors import Code
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import Remit, meet


class Powers(NamedTuple):
    """The tools and the callees that an agent may use; None sets no bound."""

    tools: frozenset[str] | None
    targets: frozenset[str] | None


_NOTHING: frozenset[str] = frozenset()


def authority_of(card: AgentCard, limits: Limits) -> Authority:
    """Return whose tools and targets an agent has when another calls it."""
    return card.authority or limits.authority


def powers_of(card: AgentCard | None, remit: Remit) -> Powers:
    """Return an agent's own powers: what its card and its remit both name.

    Without a *card* it is the top of the run: a user, who is bound by the remit alone, or an agent on another hub, of
    which only the remit is known.
    """
    if card is None:
        unsaid = _NOTHING if remit.chain else None
        return Powers(
            unsaid if remit.tools is None else remit.tools, unsaid if remit.targets is None else remit.targets
        )
    callees = card.callees
    targets = remit.targets if "*" in callees else meet(callees, remit.targets)
    return Powers(meet(card.tools, remit.tools), targets)


def within(remit: Remit, powers: Powers) -> Remit:
    """Return a remit that is cut to these powers."""
    tools, targets = meet(remit.tools, powers.tools), meet(remit.targets, powers.targets)
    return remit if (tools, targets) == (remit.tools, remit.targets) else replace(remit, tools=tools, targets=targets)


def received(request: Request, card: AgentCard, limits: Limits) -> Request:
    """Return a root request, cut to its caller's powers if the caller is an agent on another hub."""
    if not request.remit.chain or authority_of(card, limits) == "own":
        return request
    remit = within(request.remit, powers_of(None, request.remit))
    return request if remit is request.remit else replace(request, remit=remit)


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


def tools(request: Request, facts: Facts) -> Verdict:
    """The named tools are the callee's, and within the caller's own remit."""
    asked = facts.asked_tools
    if asked is None or facts.target is None:
        return ALLOW
    if excess := asked - facts.target.tools:
        return refuse(Code.TOOL_NOT_ALLOWED, f"{request.target} not authorized to use {_listed(excess)}")
    if excess := asked - _passable(facts.caller, facts.target, facts.limits, asked):
        why = f"{request.origin} does not have it, and {request.target} works with the authority of its caller"
        return refuse(Code.TOOL_NOT_ALLOWED, f"{request.target} not authorized to use {_listed(excess)}: {why}")
    if facts.held is not None and facts.held.tools is not None and (excess := asked - facts.held.tools):
        return refuse(
            Code.TOOL_NOT_ALLOWED, f"{request.origin} cannot pass on {_listed(excess)}: its own remit does not name it"
        )
    return ALLOW


def _passable(caller: AgentCard | None, callee: AgentCard, limits: Limits, asked: frozenset[str]) -> frozenset[str]:
    """Return the requested tools that a caller can give its callee."""
    # An agent that passes on has no tools: its remit bounds what its callees may use.
    if caller is None or caller.passes_on or authority_of(callee, limits) == "own":
        return asked
    return caller.tools


def _listed(names: frozenset[str]) -> str:
    return ("tool " if len(names) == 1 else "tools ") + ", ".join(sorted(names))
