"""Sums up the record: counts, tokens and times by hour, user, agent, capability and model.

Records are added one by one, in their order. So it makes no difference in how many pieces a record is read.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from msgspec import Struct

from remit.protocol.envelope import Request, Response, Usage
from remit.protocol.lifecycle import Status
from remit.protocol.records import Record, Refusal
from remit_server.documents.delegation_table import ModelUse, model_in

K = TypeVar("K")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# A week can be looked at by the hour; before that, a day is precise enough and takes a fraction of the memory.
HOURLY_MS = 8 * DAY_MS
# A sum takes about 500 bytes: 25 MB in all. Beyond that, the oldest days are forgotten.
MOST_SUMS = 50_000
# Delegations without an end: of killed hubs, or of runs that wait for a person. One takes about 300 bytes.
MOST_OPEN_RUNS = 20_000
MOST_FAULTS = 20

# Four classes of times for each doubling: the middle of one is at most 9 % off.
_PER_DOUBLING = 4


class SumKey(NamedTuple):
    """What a sum is about."""

    user: str
    agent: str
    capability: str
    model: str
    """The model as the record names it; empty: it does not."""
    root: str
    """The agent that the user asked."""
    via: str
    """The client or hub that sent the user's request."""


class CallsOf(NamedTuple):
    """Who called whom, in runs of which agent."""

    origin: str
    target: str
    root: str
    """The agent that the user asked."""


class Sums(Struct):
    """Counts, tokens and times; two of these can be added."""

    runs: int = 0
    delegations: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens that the provider read from its cache; a part of `prompt`."""
    total: int = 0
    """Tokens with those of all agents below."""
    overrun: int = 0
    cost: int = 0
    """The cost of `priced` tokens, in millionths of the team's currency."""
    priced: int = 0
    time_ms: int = 0
    codes: dict[str, int] = {}
    times: dict[int, int] = {}
    """How many delegations took how long, by class of time."""

    @property
    def tokens(self) -> int:
        """The tokens that the agents spent themselves."""
        return self.prompt + self.completion

    def add(self, other: "Sums") -> None:
        """Add other sums to these."""
        # Written out, because a table of a year adds tens of thousands of these.
        self.runs += other.runs
        self.delegations += other.delegations
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.refused += other.refused
        self.prompt += other.prompt
        self.completion += other.completion
        self.cached += other.cached
        self.total += other.total
        self.overrun += other.overrun
        self.cost += other.cost
        self.priced += other.priced
        self.time_ms += other.time_ms
        _add_to(self.codes, other.codes)
        _add_to(self.times, other.times)

    def percentile_ms(self, share: float) -> int | None:
        """Return the time within which this *share* of the delegations ended, to within 9 %; None if none did."""
        number = sum(self.times.values())
        if not number:
            return None
        wanted, seen = max(1, math.ceil(share * number)), 0
        for place in sorted(self.times):
            seen += self.times[place]
            if seen >= wanted:
                return typical_ms(place)
        raise AssertionError("all of them have been seen")


class Traffic(Struct):
    """How often one agent called another, and what became of it."""

    calls: int = 0
    failed: int = 0
    refused: int = 0
    tokens: int = 0
    time_ms: int = 0

    def add(self, other: "Traffic") -> None:
        """Add other traffic to this."""
        self.calls += other.calls
        self.failed += other.failed
        self.refused += other.refused
        self.tokens += other.tokens
        self.time_ms += other.time_ms


class PastFault(Struct, frozen=True, kw_only=True):
    """A delegation that failed or was refused."""

    at_ms: int
    run: str
    delegation: str
    origin: str
    root: str
    """The agent that the user asked."""
    user: str
    status: Status
    code: str
    message: str


class Period(Struct):
    """An hour or a day of the record."""

    start_ms: int
    span_ms: int
    sums: dict[SumKey, Sums] = {}
    traffic: dict[CallsOf, Traffic] = {}

    def add(self, other: "Period") -> None:
        """Add a period that lies within this one."""
        for key, sums in other.sums.items():
            self.sums.setdefault(key, Sums()).add(sums)
        for call, more in other.traffic.items():
            self.traffic.setdefault(call, Traffic()).add(more)


class _Open(Struct):
    """A delegation that has not ended."""

    request: Request
    below: Usage = Usage()
    """The usage of the delegations below it that have ended."""
    model: ModelUse = ModelUse()


class _OpenRun(Struct):
    id: str
    """The id of its request, which its sender chose."""
    root: Request
    delegations: dict[str, _Open] = {}
    """By path."""
    continues: bool = False
    """Whether its root is a delegation of another run in this record, which another hub handed over to this one."""


class RecordFigures:
    """The sums of a record, from its first row to the last one added."""

    def __init__(self, *, most_sums: int = MOST_SUMS) -> None:
        self.periods: dict[tuple[int, int], Period] = {}
        """By start and span."""
        self.faults: dict[str, deque[PastFault]] = {}
        """The newest failures and refusals of each agent, oldest first."""
        self.after = 0
        """The number of the last row added."""
        self.through_ms = 0
        """The time of the newest row added."""
        self.from_ms = 0
        """Since when the sums are whole; 0: from the beginning of the record."""
        self._open: dict[str, _OpenRun] = {}
        self._most_sums = most_sums
        self._sums = 0
        self._day_ms = 0

    def add(self, record: Record) -> None:
        """Add the next row of the record."""
        self.after = record.seq
        self.through_ms = max(self.through_ms, record.at_ms)
        match record.body:
            case Request() as request:
                self._begin(record, request)
            case Response() as response:
                self._end(record, response)
            case Refusal(request=request, response=response):
                run = self._open.get(record.run)
                root = request if run is None or request.parent is None else run.root
                self._count(record, _Open(request), root, response)
            case _:
                pass

    def between(self, since_ms: int, until_ms: int) -> Iterator[Period]:
        """Yield the hours and days of which at least a part lies between two moments, oldest first."""
        for (start_ms, span_ms), period in sorted(self.periods.items()):
            if start_ms < until_ms and start_ms + span_ms > since_ms:
                yield period

    def _begin(self, record: Record, request: Request) -> None:
        if request.parent is None:
            run = self._open.pop(record.run, None) or self._run_of(request)
            run.delegations.setdefault(request.path, _Open(request))
            self._open[record.run] = run
            if len(self._open) > MOST_OPEN_RUNS:
                del self._open[next(iter(self._open))]
        elif (run := self._open.get(record.run)) is not None:
            # A request that a person edited is recorded again, as it finally began.
            if (opened := run.delegations.get(request.path)) is not None:
                opened.request = request
            else:
                run.delegations[request.path] = _Open(request)

    def _run_of(self, request: Request) -> _OpenRun:
        """Return a run that begins; the delegation that it continues, if any, is counted where it was asked for."""
        caller = self._open.get(request.id.partition(".")[0]) if request.via is not None else None
        handed_over = caller.delegations.get(request.id) if caller is not None else None
        if caller is None or handed_over is None or handed_over.request.target != request.target:
            return _OpenRun(request.id, request)
        return _OpenRun(request.id, caller.root, {request.path: handed_over}, continues=True)

    def _end(self, record: Record, response: Response) -> None:
        run = self._open.get(record.run)
        if run is None:
            return
        is_root = response.id == run.id
        opened = run.delegations.pop(record.run if is_root else response.id, None)
        if opened is None:
            return
        if len(response.path) <= 1:
            opened.model = model_in(response.metadata) or opened.model
        if is_root:
            del self._open[record.run]
            if run.continues:
                return
        above = run.delegations.get(opened.request.parent or "")
        if above is not None:
            above.below += response.usage
        self._count(record, opened, run.root, response)

    def _count(self, record: Record, opened: _Open, root: Request, response: Response) -> None:
        request, usage, period = opened.request, response.usage, self._period(record.at_ms)
        key = SumKey(
            request.remit.user, request.target, request.capability or "", opened.model.name, root.target, root.via or ""
        )
        sums = period.sums.get(key)
        if sums is None:
            sums = period.sums[key] = Sums()
            self._sums += 1
            self._forget_oldest()
        own = usage.beyond(opened.below)
        sums.delegations += 1
        sums.runs += request.parent is None
        sums.prompt += own.prompt + opened.model.beside
        sums.completion += own.completion
        sums.cached += min(opened.model.cached, own.prompt) + opened.model.beside
        sums.total += usage.total
        sums.overrun += usage.overrun
        sums.cost += own.cost
        sums.priced += own.priced + (opened.model.beside if own.cost else 0)
        traffic = period.traffic.setdefault(CallsOf(request.origin, request.target, root.target), Traffic())
        traffic.calls += 1
        traffic.tokens += usage.total
        match response.status:
            case Status.SUCCESS | Status.PARTIAL:
                sums.succeeded += 1
            case Status.FAILED | Status.TIMEOUT:
                sums.failed += 1
                traffic.failed += 1
            case Status.REFUSED:
                sums.refused += 1
                traffic.refused += 1
            case Status.CANCELLED:
                sums.cancelled += 1
        if response.fault is not None:
            code = response.fault.code.value
            sums.codes[code] = sums.codes.get(code, 0) + 1
            self._note_fault(record, request, root, response)
        # What was refused took no time, and an answer from the cache says nothing about the agent.
        if response.status is not Status.REFUSED and response.cache in ("none", "miss"):
            took_ms = max(0, response.duration_ms - response.waited_ms)
            sums.time_ms += took_ms
            traffic.time_ms += took_ms
            place = class_of(took_ms)
            sums.times[place] = sums.times.get(place, 0) + 1

    def _note_fault(self, record: Record, request: Request, root: Request, response: Response) -> None:
        assert response.fault is not None
        shown_fault = response.fault.outward()
        newest = self.faults.setdefault(request.target, deque(maxlen=MOST_FAULTS))
        newest.append(
            PastFault(
                at_ms=record.at_ms,
                run=record.run,
                delegation=request.path,
                origin=request.origin,
                root=root.target,
                user=request.remit.user,
                status=response.status,
                code=shown_fault.code.value,
                message=shown_fault.message,
            )
        )

    def _period(self, at_ms: int) -> Period:
        day_ms = at_ms - at_ms % DAY_MS
        if day_ms > self._day_ms:
            self._day_ms = day_ms
            self._merge_hours()
        span_ms = HOUR_MS if at_ms >= self._day_ms - HOURLY_MS else DAY_MS
        start_ms = at_ms - at_ms % span_ms
        period = self.periods.get((start_ms, span_ms))
        if period is None:
            period = self.periods[start_ms, span_ms] = Period(start_ms, span_ms)
        return period

    def _merge_hours(self) -> None:
        """Merge the hours that are long past into days."""
        for start_ms, span_ms in list(self.periods):
            if span_ms == HOUR_MS and start_ms < self._day_ms - HOURLY_MS:
                hour = self.periods.pop((start_ms, span_ms))
                day_ms = start_ms - start_ms % DAY_MS
                day = self.periods.setdefault((day_ms, DAY_MS), Period(day_ms, DAY_MS))
                before = len(day.sums)
                day.add(hour)
                self._sums += len(day.sums) - before - len(hour.sums)

    def _forget_oldest(self) -> None:
        while self._sums > self._most_sums and len(self.periods) > 1:
            oldest = self.periods.pop(min(self.periods))
            self._sums -= len(oldest.sums)
            self.from_ms = max(self.from_ms, oldest.start_ms + oldest.span_ms)


def _add_to(mine: dict[K, int], more: dict[K, int]) -> None:
    for key, number in more.items():
        mine[key] = mine.get(key, 0) + number


def class_of(ms: int) -> int:
    """Return the class of a time."""
    return 0 if ms < 1 else 1 + math.floor(_PER_DOUBLING * math.log2(ms))


def typical_ms(place: int) -> int:
    """Return the middle of a class of times."""
    return 0 if place == 0 else round(2 ** ((place - 0.5) / _PER_DOUBLING))


def summed(periods: Iterator[Period], wanted: Callable[[SumKey], bool]) -> Sums:
    """Return the sums of what is wanted."""
    total = Sums()
    for period in periods:
        for key, sums in period.sums.items():
            if wanted(key):
                total.add(sums)
    return total
