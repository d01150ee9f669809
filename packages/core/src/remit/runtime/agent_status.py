"""What a hub shows of its agents and runs: load, breakers, rates, what runs have left, and how they ended."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from remit.policy.breaker import Phase
from remit.policy.budget import Window
from remit.policy.reception import peer_of
from remit.ports import Store
from remit.ports.remote import HostingHub, Remote
from remit.ports.text_reader import text_reader
from remit.protocol.envelope import Request, Response
from remit.protocol.records import Delegation, Kind, Record, Refusal, request_in
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.response import needs_wording
from remit.runtime.run_tree import Tree, delegations


class AgentStatus(NamedTuple):
    """The load and the breaker of an agent at one moment."""

    running: int
    queued: int
    breaker: Phase
    slots: int = 0
    """How many delegations it can work on at once."""
    free: int = 0
    """How many more it could start now."""
    probe_ms: int = 0
    """How long calls are refused, until one may test whether it has recovered; 0: calls are let through."""
    openings: int = 0
    """How often its breaker has opened of late."""
    rate_calls: int = 0
    """Calls in the current window of its rate limit."""
    rate_wait_ms: int = 0
    """How long its rate limit refuses calls."""
    is_remote: bool = False
    hosts: tuple[HostingHub, ...] = ()
    """The other hubs that host it, where that is known."""


class LiveRun(NamedTuple):
    """A run in progress here, and what it has left."""

    run: str
    user: str
    agent: str
    granted: int
    used: int
    left: int
    """Tokens that are neither spent nor reserved for delegations in progress."""
    cost: int | None
    """The money of the run, in millionths; None: there is no limit."""
    cost_used: int
    cost_left: int | None
    tokens_ended: int
    """The tokens, and the money, of its delegations that have ended: they are recorded already."""
    cost_ended: int
    time_left_ms: int
    delegations: int
    """How many of its delegations are in progress."""


def agent_status(parts: RuntimeContext) -> dict[str, AgentStatus]:
    """Return the current load and breaker of each agent."""
    ledger, transport, now = parts.ledger, parts.transport, parts.clock.now()
    queued = transport.queued()
    running = Counter(frame.card.name for frame in ledger.frames.values())
    statuses: dict[str, AgentStatus] = {}
    for name, entry in parts.registry.agents.items():
        breaker, rate = ledger.breakers.get(name), entry.card.rate
        window = ledger.windows.get(name, Window())
        is_current = rate is not None and now < window.start + rate.seconds
        statuses[name] = AgentStatus(
            running=running[name],
            queued=queued.get(name, 0) + (entry.agent.queued() if isinstance(entry.agent, Remote) else 0),
            breaker=ledger.phase(name),
            slots=entry.card.concurrency,
            free=transport.free(name),
            probe_ms=ledger.breaker_wait_ms(name, now),
            openings=0 if breaker is None else breaker.openings,
            rate_calls=window.calls if is_current else 0,
            rate_wait_ms=ledger.rate_wait_ms(entry.card, now),
            is_remote=isinstance(entry.agent, Remote),
            hosts=entry.agent.hosts() if isinstance(entry.agent, Remote) else (),
        )
    return statuses


def live_runs(parts: RuntimeContext) -> list[LiveRun]:
    """Return the runs in progress here, oldest first."""
    now, frames = parts.clock.now(), list(parts.ledger.frames.values())
    below, tokens, costs = Counter[str](), Counter[str](), Counter[str]()
    for frame in frames:
        below[frame.run.id] += 1
        tokens[frame.run.id] += frame.tokens_below
        costs[frame.run.id] += frame.cost_below
    return [
        LiveRun(
            run=frame.run.id,
            user=frame.request.remit.user,
            agent=frame.card.name,
            granted=frame.granted,
            used=frame.used,
            left=max(0, frame.left),
            cost=None if frame.purse is None else frame.purse.granted,
            cost_used=frame.usage().cost if frame.purse is None else frame.purse.spent,
            cost_left=None if frame.purse is None else max(0, frame.purse.left),
            tokens_ended=tokens[frame.run.id],
            cost_ended=costs[frame.run.id],
            time_left_ms=max(0, frame.time_left_ms(now)),
            delegations=below[frame.run.id],
        )
        for frame in frames
        if frame.parent is None
    ]


async def outcome_of(parts: RuntimeContext, run: str, *, raw: bool = True) -> Response | None:
    """Return the outcome of a run as its user gets it; None if it has not ended or was never submitted.

    Unless it is *raw*, tokens stand for personal values.
    """
    (summary, *_) = await parts.store.runs(run=run, limit=1) or [None]
    if summary is None or summary.run != run or summary.response is None:
        return None
    response = await parts.redactor.for_user(run, summary.response) if raw else summary.response
    if summary.via:
        response = response.outward()
    if not needs_wording(response):
        return response
    request = await request_of(parts, run) if summary.via else None
    if request is not None and peer_of(request) is not None:
        return response  # another hub words it for its own users
    return text_reader().for_user(response, parts.registry.cards)


async def request_of(parts: RuntimeContext, run: str, *, raw: bool = True) -> Request | None:
    """Return the root request of a run in the user's words, or with tokens; None if nothing is recorded."""
    (record, *_) = await parts.store.records(run=run, limit=1) or [None]
    request = request_in(record.body) if record is not None else None
    if request is None:
        return None
    return await parts.redactor.in_words_of_user(request.run, request) if raw else request


async def delegations_of(store: Store, run: str) -> list[Delegation]:
    """Return the delegations of a run: caller, callee, objective and outcome."""
    await store.flush()
    tree = Tree()
    while page := await store.records(run=run, after=tree.seq):
        for record in page:
            tree.feed(record)
    return delegations(tree)


# Seconds: from a function in the same process to an agent that thinks for minutes.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
# Agent names come from the team, but a refused request may name anything: unknown names share one label.
OTHERS = "(unknown)"
# A breaker as a number: closed, probing, open.
PHASES = {Phase.CLOSED: 0, Phase.PROBING: 1, Phase.OPEN: 2}


class HubMetrics:
    """Counts records. Everything that shows numbers of a hub reads these, so that all show the same."""

    def __init__(self, is_known: Callable[[str], bool], since_ms: int) -> None:
        self._is_known = is_known
        self.since_ms = since_ms
        self.ended: Counter[tuple[str, str]] = Counter()
        """Delegations that ended, by agent and status."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """Requests that were refused, by agent and code."""
        self.prompt: Counter[str] = Counter()
        self.completion: Counter[str] = Counter()
        """Tokens spent, those of sub-agents included, by agent."""
        self.times: dict[str, list[int]] = {}
        """How many delegations fell into each duration bucket and beyond the last, by agent."""
        self.spent_ms: Counter[str] = Counter()
        """Their total duration: an integer, so that adding loses nothing."""
        self.turned_away: Counter[str] = Counter()
        """Requests that a server refused before they reached the hub, by code; not all of them are recorded."""
        self.lost_spans = 0
        """Spans that were made and never delivered."""

    def count(self, records: Iterable[Record]) -> None:
        """Count committed records."""
        for record in records:
            match record.body:
                case Response() as response if record.kind is Kind.RESULT:
                    self._count(response)
                case Refusal(request=request, response=response) if response.fault is not None:
                    target = request.target if self._is_known(request.target) else OTHERS
                    self.refused[target, response.fault.code.value] += 1
                case _:
                    pass

    def _count(self, response: Response) -> None:
        agent = response.target
        self.ended[agent, response.status.value] += 1
        times = self.times.get(agent)
        if times is None:
            times = self.times[agent] = [0] * (len(BUCKETS) + 1)
        times[bisect_left(BUCKETS, response.duration_ms / 1_000)] += 1
        self.spent_ms[agent] += response.duration_ms
        self.prompt[agent] += response.usage.prompt
        self.completion[agent] += response.usage.completion
