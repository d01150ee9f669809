"""The track records of agents, computed from the record."""

from collections.abc import Callable, Collection, Iterable

from remit.policy import routing
from remit.policy.breaker import FaultKey, counts_against, is_late, key_of
from remit.policy.limits import Limits
from remit.policy.routing import TrackRecord
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code
from remit.protocol.records import Record, Refusal

# About fifty outcomes of each agent are remembered, and an outcome is two records: this is enough for ten agents.
# Reading it takes 20 ms in a thread, and processing it 4.
NEWEST = 1_000

Tracks = dict[tuple[str, str], TrackRecord]
"""By capability and agent."""


def tracks(records: Iterable[Record], at: Callable[[int], float], running: Collection[str] = ()) -> Tracks:
    """Return each agent's track record by capability, as the caller of these calls would know it now.

    *at* returns the moment of a record on the clock of the tracks. Unfinished calls count as in flight only in runs
    that are *running*: how others end is not known.
    """
    found: Tracks = {}
    asked: dict[tuple[str, str], Request] = {}
    below: dict[tuple[str, str], set[FaultKey]] = {}
    answered: set[tuple[str, str]] = set()
    for record in records:
        match record.body:
            case Request() as request:
                asked[record.run, request.id] = request
            case Refusal(request=request, response=response):
                _note_fault(below, record.run, request, response)
            case Response() as response if (request := asked.pop((record.run, response.id), None)) is not None:
                _note_fault(below, record.run, request, response)
                known_below = below.pop((record.run, request.path), ())
                if request.capability is None:
                    continue
                place = record.run, _call_of(request.id)
                if response.ok:
                    answered.add(place)
                key = request.capability or "", request.target
                known = routing.begun(found.get(key, TrackRecord()))
                failed = _failed(known, request, response, known_below)
                found[key] = _ended(known, failed, response, at(record.at_ms), overtaken=place in answered)
            case _:
                pass
    for (run, _), request in asked.items():
        if run in running and request.capability is not None:
            key = request.capability or "", request.target
            found[key] = routing.begun(found.get(key, TrackRecord()))
    return found


def _note_fault(below: dict[tuple[str, str], set[FaultKey]], run: str, request: Request, response: Response) -> None:
    """Remember for a caller how one of its delegations failed."""
    if response.fault is not None and request.parent is not None:
        below.setdefault((run, request.parent), set()).add(key_of(response.fault))


def _failed(track: TrackRecord, request: Request, response: Response, below: Collection[FaultKey]) -> bool | None:
    """Return whether an outcome counts against the callee, as far as the record shows; None: it says nothing."""
    # A shared answer says nothing more about the agent that found it.
    if response.cache in ("hit", "similar"):
        return None
    return counts_against(
        response,
        passed_on=len(response.path) > 1 or (response.fault is not None and key_of(response.fault) in below),
        had_s=(request.remit.time_ms - response.queued_ms) / 1_000,
        # Cards are not recorded: for an agent without a success, the default time replaces the time of its card.
        usual_s=track.latency_s or Limits().delegation_time_ms / 1_000,
    )


def _ended(track: TrackRecord, failed: bool | None, response: Response, now: float, *, overtaken: bool) -> TrackRecord:
    seconds = (response.duration_ms - response.waited_ms) / 1_000
    is_overtaken = response.fault is not None and response.fault.code is Code.CANCELLED and overtaken
    if is_overtaken or is_late(response, failed):
        return routing.overtaken(track, seconds, now)
    return routing.track_after_call(track, failed, seconds, response.usage.total, now)


def _call_of(path: str) -> str:
    """Return the path of a call, given the path of one of its attempts: `run.2` for `run.2+1`."""
    call, _, attempt = path.rpartition("+")
    return call if attempt.isdecimal() else path
