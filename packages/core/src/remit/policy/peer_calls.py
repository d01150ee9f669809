"""Fan-out and cycle limits for peers' agents, which this hub does not run.

A remote agent has no frame here. Its calls are grouped by its name, its user and its session, and by the trace if it
sends one. Groups are kept in a fixed number of cells of the store, so that abandoned groups take no room.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.guards import cycle, fan_out
from remit.policy.limits import Limits
from remit.policy.reception import there, trace_of
from remit.policy.verdict import Facts, Refuse
from remit.protocol.codec import encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Fault

# Each call rewrites the cell of its group: this many of one group take 50 kB. Finished calls are dropped first.
MOST_CALLS = 256
# A thousand requests a second, each remembered for five minutes, are 75 in each cell.
CELL_DIGITS = 3
_GROUP_DIGITS = 32


class PeerCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a peer's agent, as long as it counts."""

    group: str
    """Its group, as a digest."""
    id: str
    run: str
    """The run that executes it."""
    key: str
    """What it asks for, as a digest."""
    trace: str = ""
    until_ms: int
    """When it is dropped, even if the process that executed it was killed."""
    done: bool = False
    """Whether it succeeded; else it is in progress."""


def group_of(request: Request) -> bytes:
    """Return the group of a call: one agent of a peer, one user, one session of that agent.

    Case, white space and Unicode forms make no other agent: not every program writes its own name alike.
    """
    agent, at, peer = " ".join(normalize("NFKC", request.origin).casefold().split()).rpartition("@")
    identity = (request.via, f"{agent.rstrip()}{at}{peer}", request.remit.user, request.parent_session)
    return hashlib.sha256(encode(identity)).digest()


def cell_of(group: str) -> str:
    """Return the cell of a group, given its digest; other groups may share it."""
    return f"calls {group[:CELL_DIGITS]}"


def content_of(request: Request) -> bytes:
    """Return what a request asks for; white space and case make no difference."""
    objective = " ".join(request.objective.split()).casefold()
    identity = (request.target, request.capability, objective, request.input)
    return hashlib.sha256(encode((*identity, request.files) if request.files else identity)).digest()


def call_of(request: Request, group: str, key: str, now_ms: int, limits: Limits) -> PeerCall:
    """Return a request as a call that begins now, given the digests of its group and of its content."""
    # As long as it may take including a person's answer; its executor reports the end before that.
    lasts_ms = request.remit.time_ms + limits.approval_timeout_ms + limits.grace_ms
    return PeerCall(
        group=group[:_GROUP_DIGITS],
        id=request.id,
        run=request.run,
        key=key,
        trace=trace_of(request.traceparent) or "",
        until_ms=now_ms + lasts_ms,
    )


def current(calls: Iterable[PeerCall], now_ms: int) -> tuple[PeerCall, ...]:
    """Return the calls that still count."""
    return tuple(call for call in calls if call.until_ms > now_ms)


def of_group(calls: Iterable[PeerCall], call: PeerCall) -> list[PeerCall]:
    """Return the calls of the same group."""
    return [each for each in calls if each.group == call.group]


def objection(calls: Iterable[PeerCall], call: PeerCall, request: Request, limits: Limits) -> Fault | None:
    """Return why a call is refused: the same is in progress or done, or too many are in progress."""
    group = of_group(calls, call)
    beside = [each for each in group if each.trace == call.trace]
    under_way, in_all = (sum(not each.done for each in several) for several in (beside, group))
    facts = Facts(
        target=None,
        held=request.remit,
        limits=limits,
        # The sender chooses its traces: together they have no more calls than can be stored.
        at_once=(under_way if in_all < MOST_CALLS else in_all) + 1,
        repeated=any(each.key == call.key for each in beside),
    )
    # The agent sees its name as it wrote it.
    judged = replace(request, origin=there(request.origin, request.via or ""))
    for guard in (cycle, fan_out):
        verdict = guard(judged, facts)
        if isinstance(verdict, Refuse):
            return verdict.fault
    return None


def with_call(calls: Sequence[PeerCall], call: PeerCall) -> tuple[PeerCall, ...]:
    """Return the calls with one more; the oldest finished calls of its group make room."""
    surplus = len(of_group(calls, call)) + 1 - MOST_CALLS
    kept: list[PeerCall] = []
    for each in calls:
        if surplus > 0 and each.done and each.group == call.group:
            surplus -= 1
        else:
            kept.append(each)
    return (*kept, call)


def calls_after_end(calls: Iterable[PeerCall], ends: Mapping[str, bool], *, until_ms: int) -> tuple[PeerCall, ...]:
    """Return the calls after some have ended, by run, with success or not: an unsuccessful call may be repeated.

    They are identified by run, not by request id: the sender chooses ids, and sending one again with other content must
    not end the first.
    """
    return tuple(
        replace(call, done=True, until_ms=until_ms) if call.run in ends else call
        for call in calls
        if ends.get(call.run, True)
    )


def in_doubt(calls: Iterable[PeerCall], call: PeerCall, known: Collection[str]) -> list[str]:
    """Return the runs in progress that block a call and whose state this process does not know."""
    beside = (each for each in of_group(calls, call) if each.trace == call.trace)
    return [each.run for each in beside if not each.done and each.run not in known]
