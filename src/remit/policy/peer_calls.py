"""What the agents of a peer have under way here, or had done: fan-out and cycle for agents that this hub does not run.

An agent that lives elsewhere has no frame here. Its calls are grouped by its name, its user and its session, and by the
trace where it sends one. Groups are kept in a fixed number of cells of the store, so that groups nobody hears of any
more take no room.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from unicodedata import normalize

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

# Each call rewrites the cell of its group: this many of one group take 50 kB. Those that are done are forgotten first.
MOST_CALLS = 256
# A thousand requests a second, each remembered for five minutes, are 75 in each cell.
CELL_DIGITS = 3
_GROUP_DIGITS = 32


class PeerCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a peer's agent, as long as it counts."""

    group: str
    """Whose it is, as a digest."""
    id: str
    run: str
    """The run that carries it out."""
    key: str
    """What it asks for, as a digest."""
    trace: str = ""
    until_ms: int
    """When it is forgotten, also if the process that carried it out was killed."""
    done: bool = False
    """Whether it succeeded; else it is in progress."""


def group_of(request: Request) -> bytes:
    """Return whose calls are counted together: of one agent of a peer, for one user, in one session of that agent.

    Case, white space and forms of the same letters make no other agent: not every program writes its own name alike.
    """
    agent = " ".join(normalize("NFKC", request.origin).casefold().split())
    return hashlib.sha256(encode((request.via, agent, request.remit.user, request.parent_session))).digest()


def cell_of(group: str) -> str:
    """Return where the calls of a group are kept, given its digest: others may be kept there too."""
    return f"calls {group[:CELL_DIGITS]}"


def content_of(request: Request) -> bytes:
    """Return what a request asks for; white space and case alone make no difference."""
    objective = " ".join(request.objective.split()).casefold()
    return hashlib.sha256(encode((request.target, request.capability, objective, request.input))).digest()


def call_of(request: Request, group: str, key: str, now_ms: int, limits: Limits) -> PeerCall:
    """Return a request as a call that begins now, given the digests of its group and of what it asks for."""
    # As long as it may take with a person to be asked: whoever carries it out says before that how it ended.
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
    """Return the calls that are counted together with one."""
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
        # Traces are the sender's to choose: together they have no more calls than can be kept.
        at_once=(under_way if in_all < MOST_CALLS else in_all) + 1,
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
    """Return the calls with one more; the oldest of its group that are done make room."""
    surplus = len(of_group(calls, call)) + 1 - MOST_CALLS
    kept: list[PeerCall] = []
    for each in calls:
        if surplus > 0 and each.done and each.group == call.group:
            surplus -= 1
        else:
            kept.append(each)
    return (*kept, call)


def calls_after_end(calls: Iterable[PeerCall], ends: Mapping[str, bool], *, until_ms: int) -> tuple[PeerCall, ...]:
    """Return the calls after some have ended, by their runs, well or not: one that did not succeed may be made again.

    They are known by their runs, not by the ids of their requests: those are the sender's own, and whoever sends one
    again with another content must not end the first.
    """
    return tuple(
        replace(call, done=True, until_ms=until_ms) if call.run in ends else call
        for call in calls
        if ends.get(call.run, True)
    )


def in_doubt(calls: Iterable[PeerCall], call: PeerCall, known: Collection[str]) -> list[str]:
    """Return the runs in progress that stand in a call's way, and of which this process does not know how they are."""
    beside = (each for each in of_group(calls, call) if each.trace == call.trace)
    return [each.run for each in beside if not each.done and each.run not in known]
