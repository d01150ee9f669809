"""Guards that ask who may call whom, for which user, with which tools."""

from remit.policy.verdict import ALLOW, Facts, Verdict, refuse
from remit.protocol.codec import did_you_mean
from remit.protocol.envelope import NOBODY, Request
from remit.protocol.errors import Code


def known_target(request: Request, facts: Facts) -> Verdict:
    """The callee exists and offers what is asked of it."""
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
    """The team lets the caller call the callee, and so does every remit above."""
    if facts.caller is not None and not facts.caller.may_reach(request.target):
        if facts.caller.allow_sub_agent_calls is False:
            return refuse(Code.PERMISSION_DENIED, f"{request.origin} is not allowed to call other agents")
        return refuse(
            Code.PERMISSION_DENIED, f"{request.origin} may not call {request.target}: its `may_call` does not name it"
        )
    if facts.held is not None and facts.held.targets is not None and request.target not in facts.held.targets:
        return refuse(Code.PERMISSION_DENIED, f"the remit of {request.origin} does not let it call {request.target}")
    return ALLOW


def user(request: Request, facts: Facts) -> Verdict:
    """Session and references belong to the user for whom the remit acts."""
    owner = request.remit.user
    if facts.session_user is not None and facts.session_user != owner:
        return refuse(Code.USER_MISMATCH, "User ID mismatch - security violation: the session belongs to another user")
    if facts.session_agent is not None and facts.session_agent != request.target:
        return refuse(
            Code.PERMISSION_DENIED,
            f"session {request.session} is a conversation with another agent than {request.target}",
        )
    for reference in request.handoff.references if request.handoff else ():
        if reference.owner_scope != owner and reference.owner_scope not in facts.limits.shared_scopes:
            return refuse(
                Code.USER_MISMATCH,
                f"User ID mismatch - security violation: reference {reference.source_id} belongs to another user",
            )
    return ALLOW


def tools(request: Request, facts: Facts) -> Verdict:
    """The tools that the caller names are the callee's, and within the caller's own remit."""
    asked = facts.asked_tools
    if asked is None or facts.target is None:
        return ALLOW
    if excess := asked - facts.target.tools:
        return refuse(Code.TOOL_NOT_ALLOWED, f"{request.target} not authorized to use {_listed(excess)}")
    if facts.held is not None and facts.held.tools is not None and (excess := asked - facts.held.tools):
        return refuse(
            Code.TOOL_NOT_ALLOWED, f"{request.origin} cannot pass on {_listed(excess)}: its own remit does not name it"
        )
    return ALLOW


def _listed(names: frozenset[str]) -> str:
    return ("tool " if len(names) == 1 else "tools ") + ", ".join(sorted(names))
