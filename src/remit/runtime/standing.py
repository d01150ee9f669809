"""How agents stand at their capabilities, as it follows from what was recorded."""

from collections.abc import Callable, Collection, Iterable

from remit.policy import routing
from remit.policy.breaker import is_failure
from remit.policy.routing import Track
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code
from remit.protocol.records import Record

# Of each agent some fifty outcomes are remembered, and an outcome is two records: this is enough for ten agents. It
# takes 20 ms in a thread to read it, and 4 to make sense of it.
NEWEST = 1_000

Tracks = dict[tuple[str, str], Track]
"""By capability and agent."""


def tracks(records: Iterable[Record], at: Callable[[int], float], running: Collection[str] = ()) -> Tracks:
    """Return how each agent did at each of its capabilities, as whoever made these calls would know it now.

    *at* gives the moment of a record on the clock that the tracks are for. What has not ended counts as in flight in
    those runs that are *running*: of others it is not known how they end.
    """
    found: Tracks = {}
    asked: dict[tuple[str, str], Request] = {}
    answered: set[tuple[str, str]] = set()
    for record in records:
        match record.body:
            case Request(capability=str()) as request:
                asked[record.run, request.id] = request
            case Response() as response if (request := asked.pop((record.run, response.id), None)) is not None:
                place = record.run, _call_of(request.id)
                if response.ok:
                    answered.add(place)
                key = request.capability or "", request.target
                known = routing.begun(found.get(key, Track()))
                found[key] = _ended(known, response, at(record.at_ms), overtaken=place in answered)
            case _:
                pass
    for (run, _), request in asked.items():
        if run in running:
            key = request.capability or "", request.target
            found[key] = routing.begun(found.get(key, Track()))
    return found


def _ended(track: Track, response: Response, now: float, *, overtaken: bool) -> Track:
    seconds = (response.duration_ms - response.waited_ms) / 1_000
    if response.fault is not None and response.fault.code is Code.CANCELLED and overtaken:
        return routing.overtaken(track, seconds, now)
    # What was found for another says nothing more about who found it.
    failed = None if response.cache in ("hit", "similar") else is_failure(response)
    return routing.ended(track, failed, seconds, response.usage.total, now)


def _call_of(path: str) -> str:
    """Return the place of a call, given that of one of the attempts at it: `run.2` for `run.2+1`."""
    call, _, attempt = path.rpartition("+")
    return call if attempt.isdecimal() else path
