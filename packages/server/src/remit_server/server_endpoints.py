"""The endpoints about the server itself: its metrics, its readiness, and the description of its operations."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from remit.hub.hub import Hub
from remit.policy.reception import Permission
from remit.ports import Store, StoreError
from remit.runtime.agent_status import BUCKETS, PHASES
from remit_server.bodies import JSON, Receive, Scope, Send, headers_of, send_bytes
from remit_server.delegations import Delegations
from remit_server.figures_endpoints import WorkerMetrics
from remit_server.operations import get, sends

# A store that has not written for this long is not ready.
READY_S = 2.0
_PLAIN = "text/plain"
_TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)


class ServerEndpoints:
    """The endpoints about a server."""

    def __init__(
        self, delegations: Delegations, describe: Callable[[], bytes], workers: WorkerMetrics | None = None
    ) -> None:
        self._delegations = delegations
        self._describe = describe
        self._workers = workers
        self._metrics = MetricsPage(delegations.hub)
        self._document = b""
        self.readiness = Readiness(delegations.hub.store)

    @sends(get("/openapi.json", answer=dict[str, Any], failure=None, anyone=True))
    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """This document."""
        # The sources of the types are read for it: 0.1 s, in which other requests go on.
        self._document = self._document or await asyncio.to_thread(self._describe)
        await send_bytes(send, 200, self._document, ((b"content-type", JSON),))

    @sends(get("/metrics", media=_PLAIN, needs=Permission.METRICS))
    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """Metrics for Prometheus."""
        await self._delegations.sender(scope, headers_of(scope))
        page = self._metrics.page(ready=not await self._unready())
        if self._workers is not None:
            page = await self._workers.of_all(page)
        await send_bytes(send, 200, page, ((b"content-type", _TYPE),))

    def own_metrics(self) -> bytes:
        """Return the metrics of this process, for another worker of the same server."""
        return self._metrics.page(ready=not self._delegations.draining)

    @sends(get("/healthz", media=_PLAIN, failure=None, anyone=True))
    async def healthz(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """Whether the process is alive."""
        await send_bytes(send, 200, b"alive\n", _TEXT)

    @sends(get("/readyz", media=_PLAIN, also=((503, None),), failure=None, anyone=True))
    async def readyz(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """Whether the server accepts requests."""
        why = await self._unready()
        await send_bytes(send, 503 if why else 200, why or b"ready\n", _TEXT)

    async def _unready(self) -> bytes:
        """Return why the server takes no requests; empty: it takes them."""
        if self._delegations.draining:
            return b"going down\n"
        return b"" if await self.readiness.can_write(READY_S) else b"the store cannot write\n"


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


_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """The metrics page of a hub."""

    def __init__(self, hub: Hub) -> None:
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
    pairs = ",".join(f'{label}="{_escaped(str(each))}"' for label, each in labels.items())
    return f"{name}{{{pairs}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
