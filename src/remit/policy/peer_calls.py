"""What the agents of a peer have under way here, or had done: fan-out and cycle for agents that this hub does not run.

An agent that lives elsewhere has no frame here. Its calls are grouped by its name, its user and its session, and by the
trace where it sends one.
"""

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from remit.policy import lineage
from remit.policy.limits import Limits
from remit.policy.reception import trace_of
from remit.policy.session_names import there
from remit.policy.verdict import Facts, Refuse
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Fault

# Each call rewrites the list of its group: this many take 40 kB. Older ones that are done are forgotten first.
MOST_CALLS = 256


class PeerCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a peer's agent, as long as it counts."""

    id: str
    key: str
    """What it asks for, as a digest."""
    trace: str = ""
    until_ms: int
    """When it is forgotten, also if the process that carried it out was killed."""
    done: bool = False
    """Whether it succeeded; else it is in progress."""


def group_of(request: Request) -> bytes:
    """Return whose calls are counted together: of one agent of a peer, for one user, in one session of that agent."""
    return hashlib.sha256(encode((request.via, request.origin, request.remit.user, request.parent_session))).digest()


def content_of(request: Request) -> bytes:
    """Return what a request asks for; white space and case alone make no difference."""
    objective = " ".join(request.objective.split()).casefold()
    return hashlib.sha256(encode((request.target, request.capability, objective, request.input))).digest()


def call_of(request: Request, key: str, now_ms: int, limits: Limits) -> PeerCall:
    """Return a request as a call that begins now."""
    # As long as it may take with a person to be asked: whoever carries it out says before that how it ended.
    lasts_ms = request.remit.time_ms + limits.approval_timeout_ms + limits.grace_ms
    return PeerCall(id=request.id, key=key, trace=trace_of(request.traceparent) or "", until_ms=now_ms + lasts_ms)


def current(calls: Iterable[PeerCall], now_ms: int) -> tuple[PeerCall, ...]:
    """Return the calls that still count."""
    return tuple(call for call in calls if call.until_ms > now_ms)


def objection(calls: Sequence[PeerCall], call: PeerCall, request: Request, limits: Limits) -> Fault | None:
    """Return why a call is refused: the same is in progress or done, or too many are in progress."""
    beside = [each for each in calls if each.trace == call.trace]
    under_way = sum(not each.done for each in beside)
    facts = Facts(
        target=None,
        held=request.remit,
        limits=limits,
        at_once=under_way + 1,
        repeated=any(each.key == call.key for each in beside),
    )
    # The agent is told its name as it says it.
    said = replace(request, origin=there(request.origin, request.via or ""))
    for guard in (lineage.cycle, lineage.fan_out):
        verdict = guard(said, facts)
        if isinstance(verdict, Refuse):
            return verdict.fault
    return None


def with_call(calls: Sequence[PeerCall], call: PeerCall) -> tuple[PeerCall, ...]:
    """Return the calls with one more; the oldest that are done make room."""
    surplus = len(calls) + 1 - MOST_CALLS
    kept: list[PeerCall] = []
    for each in calls:
        if surplus > 0 and each.done:
            surplus -= 1
        else:
            kept.append(each)
    return (*kept, call)


def ended(calls: Iterable[PeerCall], id: str, *, succeeded: bool, until_ms: int) -> tuple[PeerCall, ...]:
    """Return the calls after one of them has ended: one that did not succeed may be made again."""
    return tuple(
        replace(call, done=True, until_ms=until_ms) if call.id == id else call
        for call in calls
        if succeeded or call.id != id
    )
