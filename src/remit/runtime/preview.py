"""The request that a call would make, and the facts that the guards would judge it by; nothing is started."""

from remit.policy.verdict import Facts, Sealing
from remit.protocol.codec import checked
from remit.protocol.envelope import USER, Call, Request
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import Admission
from remit.runtime.delegation.attempt import CallAttempt
from remit.runtime.delegation.draft import draft
from remit.runtime.frames import Frame, Run
from remit.runtime.root_request import AskOptions, root_request

# The run that the request would belong to.
PREVIEW_RUN = "explained"

_NONE: frozenset[str] = frozenset()


def preview(
    parts: RuntimeContext, admission: Admission, origin: str, call: Call, user: str, sealing: Sealing | None
) -> tuple[Request, Facts]:
    """Return what would be judged if *user* had asked *origin*, and *origin* nothing but this call.

    *origin* is an agent, or `user` for a request of the user's own.
    """
    call, limits, now = checked(call), parts.limits, parts.clock.now()
    target = call.target or ""
    entry = parts.registry.agents.get(target)
    if origin == USER:
        options = AskOptions(
            input=call.input,
            capability=call.capability,
            tools=call.tools,
            max_tokens=call.max_tokens,
            deadline_ms=call.deadline_ms,
        )
        request = root_request(target, call.objective, user, options, run=PREVIEW_RUN, created_ms=0, limits=limits)
        run = Run(request, 0, None, sealing)
        return request, admission.facts_of_root(request, run, entry, None, _NONE, now)
    asked = root_request(origin, "", user, {}, run=PREVIEW_RUN, created_ms=0, limits=limits)
    caller = Frame(asked, parts.registry.agents[origin], Run(asked, 0, None, sealing), None, now)
    attempt = CallAttempt(caller, call, None, None, hedge=False)
    attempt.entry, attempt.card, attempt.now = entry, entry.card if entry is not None else None, now
    attempt.caller = caller.card
    request = draft(caller, call, attempt.card, attempt.path, limits.root_time_ms, 0, limits)
    return request, admission.facts_of_call(attempt, request, repeated=False)
