"""The counters of a hub, computed from the record."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable

from remit.policy.breaker import Phase
from remit.protocol.envelope import Response
from remit.protocol.records import Kind, Record, Refusal

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
