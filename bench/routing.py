"""Four agents offer one capability, and the best of them breaks half-way: routed with one fallback, against chance.

A simulation of the policy alone, with a clock of its own: calls come at random moments and overlap. Chance has the same
fallback. The last figures are what a decision costs, and what a hub that starts pays once to remember the past.
"""

import asyncio
import heapq
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from harness import Figure, at_least, at_most, best_of, main, sized
from remit.policy.routing import Candidate, TrackRecord, begun, rank, track_after_call
from remit.protocol.records import Kind
from remit.runtime.delegation.routing import NEWEST, RECALL_S, tracks
from remit.stores.connection import connect_reader
from remit.stores.database import ask
from remit.stores.records import FILE_PAGES
from remit.stores.sqlite import SqliteStore
from remit_testing.samples import a_request, a_response

CALLS, DECISIONS = sized((10_000, 2_000), (200, 20))
PER_SECOND = 5.0
SEED = 12


class Target(NamedTuple):
    """How often an agent succeeds, and how long it takes."""

    success: float
    seconds: float


# From a small, fast model to a large one that is slow and often busy.
TARGETS = {"best": Target(0.98, 0.3), "good": Target(0.96, 0.6), "slow": Target(0.95, 2.0), "poor": Target(0.7, 4.0)}

Choose = Callable[[dict[str, TrackRecord], float, Random], list[str]]


class Outcome(NamedTuple):
    """How many calls were answered, and how long one took on average, its fallback included."""

    success: float
    seconds: float


def routed(tracks: dict[str, TrackRecord], now: float, random: Random) -> list[str]:
    candidates = [Candidate(name=name, track=track) for name, track in tracks.items()]
    return [each.name for each in rank(candidates, now, random.betavariate)]


def by_chance(tracks: dict[str, TrackRecord], now: float, random: Random) -> list[str]:  # noqa: ARG001 - chance knows nothing
    return random.sample(list(tracks), k=len(tracks))


def attempt(name: str, half: bool, random: Random) -> tuple[bool, float]:
    """Return whether an agent fails a call, and after how long; broken, the best fails all, some of them late."""
    success, seconds = TARGETS[name]
    taken = seconds * random.lognormvariate(0, 0.3)
    if name == "best" and half:
        return True, random.choice((0.05, 2.0))
    return random.random() >= success, taken


def simulate(choose: Choose) -> Outcome:
    random = Random(SEED)
    tracks = {name: TrackRecord() for name in TARGETS}
    # When, in which order, what: a call that comes (nobody is asked yet), or an attempt that ends.
    events: list[tuple[float, int, float, str, bool, list[str]]] = []
    now = 0.0
    for number in range(CALLS):
        now += random.expovariate(PER_SECOND)
        events.append((now, number, now, "", False, []))
    half = now / 2
    succeeded, seconds, order = 0, 0.0, CALLS
    while events:
        now, _, since, callee, failed, rest = heapq.heappop(events)
        if callee:
            taken = now - since
            tracks[callee] = track_after_call(tracks[callee], failed, taken, 0, now)
            seconds += taken
            succeeded += not failed
            if not failed or not rest:
                continue
        names = rest or choose(tracks, now, random)[:2]
        tracks[names[0]] = begun(tracks[names[0]])
        failed, taken = attempt(names[0], now > half, random)
        order += 1
        heapq.heappush(events, (now + taken, order, now, names[0], failed, names[1:]))
    return Outcome(succeeded / CALLS, seconds / CALLS)


def decide() -> None:
    random = Random(SEED)
    tracks = {name: TrackRecord(successes=20, failures=1, latency_s=1, at=0.0) for name in TARGETS}
    for _ in range(DECISIONS):
        routed(tracks, 1.0, random)


async def fill(path: Path) -> None:
    """Write twice as many calls as are remembered, with inputs and results of the usual size."""
    store = SqliteStore(path, durability="process")
    await store.open()
    for number in range(sized(NEWEST, 50)):
        name = str(number)
        request = replace(a_request(name), target=f"agent-{number % 5}", capability="LOOK", input="x" * 2_000)
        store.append(Kind.DELEGATION, number, request.run, request.run, request)
        store.append(Kind.RESULT, number, request.run, request.run, a_response(request, "x" * 2_000))
    await store.close()


def remember() -> float:
    """Return how many seconds it takes to know how agents did before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hub.db"
        asyncio.run(fill(path))
        connection = connect_reader(path, 1)
        recent = partial(FILE_PAGES.recent, limit=NEWEST)
        try:
            return best_of(5, lambda: tracks(ask(connection, recent), float))
        finally:
            connection.close()


def measure() -> list[Figure]:
    ours, chance = simulate(routed), simulate(by_chance)
    return [
        Figure(name="routing: answered, best breaks", value=100 * ours.success, unit="%", bound=at_least(98)),
        Figure(name="routing: answered, by chance", value=100 * chance.success, unit="%"),
        Figure(
            name="routing: mean time, best breaks",
            value=1_000 * ours.seconds,
            floor=1_000 * chance.seconds,
            unit="ms",
            bound=at_most(0.5),
        ),
        Figure(name="routing: a decision among four", value=best_of(5, decide) / DECISIONS * 1e6, unit="µs"),
        Figure(
            name="routing: the past remembered", value=1_000 * remember(), unit="ms", bound=at_most(1_000 * RECALL_S)
        ),
    ]


if __name__ == "__main__":
    main(measure)
