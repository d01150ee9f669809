"""The metrics of a hub in the text format of Prometheus."""

from collections.abc import Iterable, Iterator

from remit.runtime.engine import Engine
from remit.runtime.metrics import BUCKETS, PHASES

TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """The metrics page of a hub."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self._figures = hub.figures  # counting starts here

    def page(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return "".join(f"{line}\n" for line in self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        figures = self._figures
        yield from _head("remit_delegations_total", "counter", "Delegations that ended, by agent and status.")
        yield from (
            _line("remit_delegations_total", n, agent=a, status=s) for (a, s), n in sorted(figures.ended.items())
        )
        yield from _head("remit_refusals_total", "counter", "Requests that were refused, by agent and code.")
        yield from (_line("remit_refusals_total", n, agent=a, code=c) for (a, c), n in sorted(figures.refused.items()))
        yield from _head(
            "remit_door_refusals_total", "counter", "Requests refused before they reached an agent, by reason."
        )
        yield from (_line("remit_door_refusals_total", n, reason=c) for c, n in sorted(figures.turned_away.items()))
        yield from _head("remit_tokens_total", "counter", "Tokens spent, including sub-agents, by agent.")
        for kind, spent in (("completion", figures.completion), ("prompt", figures.prompt)):
            yield from (_line("remit_tokens_total", n, agent=a, kind=kind) for a, n in sorted(spent.items()))
        yield from _head("remit_delegation_seconds", "histogram", "Duration of delegations.")
        for agent, times in sorted(figures.times.items()):
            total = 0
            for bound, number in zip((*BUCKETS, "+Inf"), times, strict=True):
                total += number
                yield _line("remit_delegation_seconds_bucket", total, agent=agent, le=bound)
            yield _line("remit_delegation_seconds_sum", figures.spent_ms[agent] / 1_000, agent=agent)
            yield _line("remit_delegation_seconds_count", total, agent=agent)
        yield from _head("remit_spans_lost_total", "counter", "Spans that could not be delivered to a collector.")
        yield f"remit_spans_lost_total {figures.lost_spans}"
        standing = self._hub.standing()
        yield from _head("remit_running", "gauge", "Running delegations.")
        yield from (_line("remit_running", each.running, agent=name) for name, each in standing.items())
        yield from _head("remit_queued", "gauge", "Delegations waiting for a slot.")
        yield from (_line("remit_queued", each.queued, agent=name) for name, each in standing.items())
        yield from _head("remit_breaker", "gauge", "Circuit breaker. 0: closed, 1: half-open, 2: open.")
        yield from (_line("remit_breaker", PHASES[each.breaker], agent=name) for name, each in standing.items())


def _head(name: str, kind: str, meaning: str) -> Iterable[str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _line(name: str, value: float, **labels: object) -> str:
    said = ",".join(f'{label}="{_escaped(str(each))}"' for label, each in labels.items())
    return f"{name}{{{said}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
