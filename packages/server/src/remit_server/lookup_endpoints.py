"""The read endpoints: agents, runs, metrics and readiness."""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator

from remit.policy.reception import Sender
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.runtime.engine import Engine
from remit.runtime.metrics import BUCKETS, PHASES
from remit.runtime.ports import Store, StoreError
from remit_server.delegations import Delegations
from remit_server.documents.api_delegations import AgentList, PublicCard
from remit_server.operations import ApiRequest

MOST = 1_000
PER_PAGE = 50


def public(card: AgentCard) -> PublicCard:
    """Return what others may know of an agent."""
    return PublicCard(
        name=card.name, version=card.version, description=card.description, capabilities=card.capabilities
    )


class LookupEndpoints:
    """The endpoints for agents and runs."""

    def __init__(self, delegations: Delegations) -> None:
        self._hub = delegations.hub
        self._exposed = delegations.exposed

    async def agents(self, call: ApiRequest) -> AgentList:
        """`GET /v1/agents`."""
        return AgentList(agents=tuple(map(public, self._cards(call.sender).values())))

    async def agent(self, call: ApiRequest) -> PublicCard:
        """`GET /v1/agents/{name}`."""
        name, known = call.named("name"), self._cards(call.sender)
        card = known.get(name)
        if card is None:
            why = f"no agent `{name[:100]}` is available to {call.sender.name}{did_you_mean(name, known)}"
            raise RemitError(fault(Code.AGENT_NOT_FOUND, why))
        return public(card)

    def _cards(self, sender: Sender) -> dict[str, AgentCard]:
        exposed = self._exposed()
        return {
            name: card
            for name, card in self._hub.cards.items()
            if name in exposed and (sender.targets is None or name in sender.targets)
        }


# A more frequent probe gets the last result: it must not keep the disk busy.
FRESH_S = 1.0

_PROBE = "remit/readyz"
# A request with one nested call writes some 80 KB of a SQLite log. A smaller probe finds room where no request does.
_PROBE_BYTES = 64 * 1024


class Readiness:
    """Probes the store by writing as much as a request does. Concurrent probes, and those within a second, share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._probe: asyncio.Task[bool] | None = None
        self._written_at = float("-inf")

    async def can_write(self, wait_s: float) -> bool:
        """Return whether the store wrote something lately, or does so within *wait_s*."""
        if time.monotonic() - self._written_at < FRESH_S:
            return True
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._write(wait_s))
        return await asyncio.shield(self._probe)

    async def _write(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                # It passes the writer, behind what is queued, and is durable on return. Emptied again, it leaves its
                # room to the next request. If another process probes at the same time, the store has written for that.
                revision, _ = await self._store.get(_PROBE) or (0, b"")
                written = await self._store.cas(_PROBE, revision, os.urandom(_PROBE_BYTES))
                if written is not None:
                    await self._store.cas(_PROBE, written, b"")
        except (StoreError, TimeoutError):
            return False
        self._written_at = time.monotonic()
        return True

    async def close(self) -> None:
        """Cancel a running probe."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})


TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """The metrics page of a hub."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self._figures = hub.metrics  # counting starts here

    def page(self, *, ready: bool) -> bytes:
        """Return the metrics in the text format of Prometheus; *ready*: what `/readyz` says."""
        return "".join(f"{line}\n" for line in self._lines(ready)).encode()

    def _lines(self, ready: bool) -> Iterator[str]:
        figures = self._figures
        yield from _head("remit_ready", "gauge", "Whether the server takes requests. 0: no, 1: yes.")
        yield f"remit_ready {int(ready)}"
        yield from _head("remit_delegations_total", "counter", "Delegations that ended, by agent and status.")
        yield from (
            _metric_line("remit_delegations_total", n, agent=a, status=s) for (a, s), n in sorted(figures.ended.items())
        )
        yield from _head("remit_refusals_total", "counter", "Requests that were refused, by agent and code.")
        yield from (
            _metric_line("remit_refusals_total", n, agent=a, code=c) for (a, c), n in sorted(figures.refused.items())
        )
        yield from _head(
            "remit_door_refusals_total", "counter", "Requests refused before they reached an agent, by reason."
        )
        yield from (
            _metric_line("remit_door_refusals_total", n, reason=c) for c, n in sorted(figures.turned_away.items())
        )
        yield from _head("remit_tokens_total", "counter", "Tokens spent, including sub-agents, by agent.")
        for kind, spent in (("completion", figures.completion), ("prompt", figures.prompt)):
            yield from (_metric_line("remit_tokens_total", n, agent=a, kind=kind) for a, n in sorted(spent.items()))
        yield from _head("remit_delegation_seconds", "histogram", "Duration of delegations.")
        for agent, times in sorted(figures.times.items()):
            total = 0
            for bound, number in zip((*BUCKETS, "+Inf"), times, strict=True):
                total += number
                yield _metric_line("remit_delegation_seconds_bucket", total, agent=agent, le=bound)
            yield _metric_line("remit_delegation_seconds_sum", figures.spent_ms[agent] / 1_000, agent=agent)
            yield _metric_line("remit_delegation_seconds_count", total, agent=agent)
        yield from _head("remit_spans_lost_total", "counter", "Spans that could not be delivered to a collector.")
        yield f"remit_spans_lost_total {figures.lost_spans}"
        standing = self._hub.agent_status()
        yield from _head("remit_running", "gauge", "Running delegations.")
        yield from (_metric_line("remit_running", each.running, agent=name) for name, each in standing.items())
        yield from _head("remit_queued", "gauge", "Delegations waiting for a slot.")
        yield from (_metric_line("remit_queued", each.queued, agent=name) for name, each in standing.items())
        yield from _head("remit_breaker", "gauge", "Circuit breaker. 0: closed, 1: half-open, 2: open.")
        yield from (_metric_line("remit_breaker", PHASES[each.breaker], agent=name) for name, each in standing.items())


def _head(name: str, kind: str, meaning: str) -> Iterable[str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _metric_line(name: str, value: float, **labels: object) -> str:
    said = ",".join(f'{label}="{_escaped(str(each))}"' for label, each in labels.items())
    return f"{name}{{{said}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
