"""The page of metrics: what a hub and a gateway tell Prometheus, and a hub an OpenTelemetry collector."""

import asyncio
import re
from collections.abc import Iterator, Mapping

from remit import Brief, Hub
from remit.runtime.agent_status import BUCKETS
from remit_otel import names
from remit_relay.gateway.exchange import GatewayMetrics
from remit_relay.gateway.ports import StoreSize
from remit_server.server_endpoints import MetricsPage
from remit_testing import MemoryStore

HEAD = """\
# Metrics

A hub counts what its record says, so that every figure agrees with `remit runs`. No metric holds a text, a user's name
or a run's id. [Running a hub for years](../how-to/deployment.md) has dashboards and alerts for them. This page is made
from the code; `make docs` makes it anew.

## A hub, for Prometheus

`GET /metrics` of `remit serve`, for clients with the permission `metrics`
([Serve agents over HTTP](../how-to/serving.md)). With several worker processes, whichever is asked answers for all.

"""

OTEL = """
The label `agent` is the name of an agent of the team; refused requests that name any other share the label
`(unknown)`. The buckets of the histogram end at {buckets} seconds.

## A hub, for OpenTelemetry

Sent to the collector of `[telemetry]` every 60 seconds, unless `metrics = false` ([Tracing](tracing.md)).

"""

GATEWAY = """
## A gateway, for Prometheus

`GET /metrics` of `remit relay`, for its own machine alone unless `--metrics-for` names others
([Gateways](relay-gateway-reference.md)). No figure is about a single device.

"""


def metrics_page() -> str:
    """Return the page of metrics."""
    buckets = f"{', '.join(f'{each:g}' for each in BUCKETS[:-1])} and {BUCKETS[-1]:g}"
    otel = _table("metric", names.METRICS)
    hub, gateway = _prometheus(asyncio.run(_hub_page())), _prometheus(_gateway_page())
    return HEAD + hub + OTEL.format(buckets=buckets) + otel + GATEWAY + gateway


async def _hub_page() -> str:
    """Return the metrics of a hub in which everything has happened once."""
    hub = Hub(store=MemoryStore())

    @hub.agent("a")
    async def agent(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return brief.text

    async with hub:
        page, figures = MetricsPage(hub), hub.metrics
        for counter, key in ((figures.ended, ("a", "success")), (figures.refused, ("a", "TIMEOUT"))):
            counter[key] += 1
        for counter in (figures.turned_away, figures.prompt, figures.completion, figures.spent_ms):
            counter["a"] += 1
        figures.times["a"] = [0] * (len(BUCKETS) + 1)
        return page.page(ready=True).decode()


def _gateway_page() -> str:
    metrics = GatewayMetrics()
    metrics.refuse("device", "full")
    nothing = StoreSize(devices=0, messages=0, queued_bytes=0, total_bytes=0)
    return metrics.page(nothing, max_bytes=0, connections=0, is_well=True)


def _prometheus(page: str) -> str:
    rows = "".join(_rows(page))
    return f"| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"


def _rows(page: str) -> Iterator[str]:
    for name, meaning in re.findall(r"^# HELP (\w+) (.+)$", page, re.MULTILINE):
        (kind,) = re.findall(rf"^# TYPE {name} (\w+)$", page, re.MULTILINE)
        sample = re.search(rf"^{name}(?:_bucket)?\{{(.*)\}} ", page, re.MULTILINE)
        labels = ", ".join(f"`{each}`" for each in re.findall(r'(\w+)="', sample[1] if sample else "") if each != "le")
        yield f"| `{name}` | {kind} | {labels} | {meaning} |\n"


def _table(what: str, meanings: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {meaning} |\n" for name, meaning in meanings.items()]
    return f"| {what} | meaning |\n|---|---|\n{''.join(rows)}"
