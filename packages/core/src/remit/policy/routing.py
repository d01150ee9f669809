"""The order in which agents are asked: by recent success, then by time, load and cost."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.errors import TABLE, Blame, Code, Fault

# Without news, old outcomes count half after two minutes: long enough to tell agents apart where calls are rare, short
# enough that a bad agent is tried again.
HALF_LIFE_S = 120.0
# Each outcome reduces the weight of those before it, so that about fifty are remembered and a long good past does not
# hide a bad present.
DISCOUNT = 0.98
# Qualities that differ by less than this are equal: with fifty outcomes, two draws for one agent differ by that much.
MARGIN = 0.1
# Between two equals, one that takes a thousand tokens more has to be a second faster.
SECONDS_PER_TOKEN = 0.001
# As in Envoy: five failures in a row, and 30 s for each ejection so far, at most ten times that.
EJECTED_AFTER = 5
EJECTED_S = 30.0
MOST_EJECTIONS = 10

Draw = Callable[[float, float], float]
"""A quality between 0 and 1, drawn from the beta distribution with these two parameters (`random.betavariate`)."""

# The callee could not take the call, and nothing was begun.
UNAVAILABLE = frozenset({Code.DELEGATION_UNAVAILABLE, Code.OVERLOADED, Code.RATE_LIMITED})


class TrackRecord(Struct, frozen=True, kw_only=True):
    """The track record of one agent at one capability; older outcomes count less."""

    successes: float = 0.0
    failures: float = 0.0
    latency_s: float = 0.0
    """The recent peak time; 0: unknown, so worth a try."""
    tokens: float = 0.0
    at: float = 0.0
    """When it was updated: in storage, when the agent was last heard of."""
    in_flight: int = 0
    in_a_row: int = 0
    ejections: int = 0
    ejected_until: float = float("-inf")

    @property
    def quality(self) -> float:
        """The probability of a success; one half if nothing is known."""
        return mean(self.successes + 1, self.failures + 1)

    @property
    def is_new(self) -> bool:
        """Whether nothing is known about it."""
        return not self.successes and not self.failures and not self.latency_s


class Candidate(Struct, frozen=True, kw_only=True):
    """An agent that could be asked, in its current state."""

    name: str
    track: TrackRecord = TrackRecord()
    wait_ms: int = 0
    """How long it must not be asked, because its breaker is open or its rate limit reached."""
    probe: bool = False
    """Whether to test its recovery with a call that another agent can answer if it fails."""


class Ranked(Struct, frozen=True, kw_only=True):
    """The place of an agent in the ranking for a capability, with the reasons."""

    name: str
    """The agent."""
    quality: float
    """The probability of a success; one half if nothing is known."""
    latency_ms: int
    """Its usual time for an answer."""
    tokens: int
    """Its usual tokens for an answer."""
    in_flight: int
    """How many calls it works on."""
    ago_ms: int | None = None
    """How long ago it was last heard of; None: never, as far as is known."""
    why: str
    """The reasons, in a sentence."""


def mean(successes: float, failures: float) -> float:
    """Return the mean of the distribution: the draw without chance."""
    return successes / (successes + failures)


def aged(track: TrackRecord, now: float) -> TrackRecord:
    """Return the track record decayed to now."""
    weight = 0.5 ** (max(0.0, now - track.at) / HALF_LIFE_S)
    return replace(
        track,
        successes=track.successes * weight,
        failures=track.failures * weight,
        latency_s=track.latency_s * weight,
        at=now,
    )


def begun(track: TrackRecord) -> TrackRecord:
    """Return the track record with one more call in flight."""
    return replace(track, in_flight=track.in_flight + 1)


def track_after_call(track: TrackRecord, failed: bool | None, seconds: float, tokens: int, now: float) -> TrackRecord:
    """Return the track record after a call; *failed* is None if the end says nothing about the callee."""
    if failed is None:
        return replace(track, in_flight=track.in_flight - 1)
    known = aged(track, now)
    counted = replace(
        known,
        successes=known.successes * DISCOUNT + (not failed),
        failures=known.failures * DISCOUNT + failed,
        in_flight=known.in_flight - 1,
    )
    if failed:
        # A fast failure says nothing good; a slow one counts as slow.
        return _ejected_if_often(replace(counted, latency_s=max(known.latency_s, seconds)), now)
    return replace(
        counted,
        # Up at once and down slowly (peak EWMA), so that one slow answer is enough to be careful.
        latency_s=max(seconds, (known.latency_s + seconds) / 2),
        tokens=tokens if not known.tokens else (known.tokens + tokens) / 2,
        in_a_row=0,
        ejections=max(0, known.ejections - 1),
    )


def overtaken(track: TrackRecord, seconds: float, now: float) -> TrackRecord:
    """Return the track record after a call that lost to a faster one: it takes at least that long."""
    known = aged(track, now)
    return replace(known, latency_s=max(known.latency_s, seconds), in_flight=known.in_flight - 1)


def rank(candidates: Sequence[Candidate], now: float, draw: Draw) -> tuple[Candidate, ...]:
    """Return the agents to ask, in order: the first choice, then the fallbacks.

    Agents that must not be asked now are left out, unless that is all of them. By chance (`draw`), little-known agents
    sometimes come first: this is how improvements are found.
    """
    ready = [each for each in candidates if not each.wait_ms]
    if not ready:
        return tuple(sorted(candidates, key=lambda each: each.wait_ms))
    tracks = [aged(each.track, now) for each in ready]
    drawn = [draw(track.successes + 1, track.failures + 1) for track in tracks]
    best = max(drawn)

    def place(index: int) -> tuple[bool, bool, int, float]:
        track = tracks[index]
        tier = int((best - drawn[index]) / MARGIN)
        return not ready[index].probe, track.ejected_until > now, tier, _cost(track)

    return tuple(ready[index] for index in sorted(range(len(ready)), key=place))


def explain(candidates: Sequence[Candidate], now: float) -> tuple[Ranked, ...]:
    """Return all candidates in their average order, those that must not be asked last, each with reasons."""
    waiting = sorted((each for each in candidates if each.wait_ms), key=lambda each: each.wait_ms)
    ready = rank([each for each in candidates if not each.wait_ms], now, mean)
    return tuple(_explained(each, now) for each in (*ready, *waiting))


def may_try_another(why: Fault, *, begun: bool, read_only: bool) -> bool:
    """Return whether another agent may be asked instead: nothing was begun, or it is repeatable and may succeed."""
    if why.code in UNAVAILABLE and not begun:
        return True
    return read_only and why.recoverable and (TABLE[why.code].blame is Blame.PEER or why.code in UNAVAILABLE)


def _cost(track: TrackRecord) -> float:
    return track.latency_s * (track.in_flight + 1) + track.tokens * SECONDS_PER_TOKEN


def _ejected_if_often(track: TrackRecord, now: float) -> TrackRecord:
    if track.in_a_row + 1 < EJECTED_AFTER:
        return replace(track, in_a_row=track.in_a_row + 1)
    ejections = min(track.ejections + 1, MOST_EJECTIONS)
    return replace(track, in_a_row=0, ejections=ejections, ejected_until=now + EJECTED_S * ejections)


def _explained(candidate: Candidate, now: float) -> Ranked:
    track = aged(candidate.track, now)
    if candidate.wait_ms:
        why = f"not called for {candidate.wait_ms} ms: it failed too often, or was asked too often"
    elif candidate.probe:
        why = "asked next, to see whether it has recovered"
    elif track.ejected_until > now:
        why = (
            f"asked last for {round((track.ejected_until - now) * 1_000)} ms: it failed {EJECTED_AFTER} times in a row"
        )
    elif track.successes + track.failures < 1:
        why = "little is known of it, so it is tried now and then"
    else:
        why = f"{track.quality:.0%} success, {track.latency_s * 1_000:.0f} ms, {track.in_flight} in progress"
        why += f", {track.tokens:.0f} tokens" if track.tokens else ""
    return Ranked(
        name=candidate.name,
        quality=track.quality,
        latency_ms=round(track.latency_s * 1_000),
        tokens=round(track.tokens),
        in_flight=track.in_flight,
        ago_ms=None if candidate.track.is_new else round(max(0.0, now - candidate.track.at) * 1_000),
        why=why,
    )
