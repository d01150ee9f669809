"""The page about tracing: what it is for, and the tables of names, from the code."""

from collections.abc import Mapping

from remit_otel import names
from remit_otel.exporter import FLUSH_S, MAX_BYTES
from remit_otel.sinks import TIMEOUT_S

HEAD = """\
# Tracing

Every run is a trace and every delegation a span, also across hubs. A hub sends its spans and [metrics](metrics.md) to
an OpenTelemetry collector, for Jaeger, Tempo, Langfuse, Datadog and others. Needs the extra `otel`:
`pip install '.[otel]'`.

## In a team file

```toml
[telemetry]
endpoint = "http://localhost:4318"
```

This is enough for every command and for `remit serve`. `endpoint` is a collector that takes OTLP over HTTP, usually at
port 4318. An empty `[telemetry]` takes the address from `OTEL_EXPORTER_OTLP_ENDPOINT`. Without the section nothing is
sent, whatever the environment says. [The team file](team.md#telemetry) has all keys. A collector's credential is a
header, and a secret:

```toml
[telemetry]
endpoint = "https://otlp.example.com"
headers = { authorization = "$OTLP_AUTH" }  # the variable holds the whole value: "Bearer …"
service = "back-office"
sample = 0.1
```

## What it looks like

Each delegation is a span `invoke_agent`, and each call of its model a `chat` below it, with provider, model, tokens and
stop reason, by OpenTelemetry's conventions for generative AI. [Phoenix](https://github.com/Arize-ai/phoenix), for
example, reads them as they are (`endpoint = "http://localhost:6006"`) and adds up tokens and costs:

![A trace in Phoenix: two agents, each with the calls of its model, their tokens and costs](../images/phoenix.png)

A span counts its own tokens only, so the sum over a trace is what was spent. `remit.tokens.input` and
`remit.tokens.output` include everything below the agent.

## In Python

`send_telemetry(hub, "http://localhost:4318")`, before the hub is opened, does the same. It takes `headers`, `service`,
`content`, `sample`, `metrics`, and `every_s`, the interval of metrics. Instead of an address it takes any exporter of
OpenTelemetry's SDK, which gets spans but no metrics, and is shut down with the hub:

```python
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from remit import Brief, Hub
from remit_otel import send_telemetry

hub, spans = Hub(), InMemorySpanExporter()
send_telemetry(hub, exporter=spans)

@hub.agent("tag-ai")
async def tag(brief: Brief) -> str:
    return "3 categories"

@hub.agent("prime-boss", may_call=["tag-ai"])
async def prime(brief: Brief) -> str:
    await brief.delegate("shredder", objective="Shred them")  # there is none
    return (await brief.delegate("tag-ai", objective="Categorize them", reason="it knows the chart")).result

with hub:
    response = hub.ask_sync("prime-boss", "Sort my receipts", user="u-1")

refused, asked, root = spans.get_finished_spans()
assert [span.name for span in (root, asked)] == ["invoke_agent prime-boss", "invoke_agent tag-ai"]
assert f"{root.context.trace_id:032x}" == response.run  # `remit runs show` takes it, too
assert asked.parent.span_id == root.context.span_id
assert asked.attributes["remit.chain"] == ("prime-boss@local",)
assert asked.attributes["remit.reason"] == "it knows the chart"
assert (refused.status.is_ok, refused.attributes["error.type"]) == (False, "AGENT_NOT_FOUND")
```

## Spans of your own

Inside an agent, `brief.traceparent` is the parent for spans that its code or a library makes. `traceparent` of
`hub.ask` makes the run part of a trace that your program has begun:

```python
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from remit import Brief, Hub
from remit_otel import send_telemetry

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
tracer, place = provider.get_tracer("mine"), TraceContextTextMapPropagator()

hub = Hub()
send_telemetry(hub, exporter=spans)

@hub.agent("tag-ai")
async def tag(brief: Brief) -> str:
    with tracer.start_as_current_span("ask the model", place.extract({"traceparent": brief.traceparent})):
        return "3 categories"

with hub:
    with tracer.start_as_current_span("handle the request"):
        above: dict[str, str] = {}
        place.inject(above)
        hub.ask_sync("tag-ai", "Sort my receipts", user="u-1", traceparent=above["traceparent"])

found = {span.name: span for span in spans.get_finished_spans()}
assert found["ask the model"].parent.span_id == found["invoke_agent tag-ai"].context.span_id
assert found["invoke_agent tag-ai"].parent.span_id == found["handle the request"].context.span_id
```

## Across hubs

A request to another hub has the W3C header `traceparent`. If that hub has a collector, its spans continue the trace:
the caller's span is the client, the other hub's the server. Clients of `remit serve` may send a `traceparent`, too.

- Whether a trace is sampled is decided where it begins: by `sample`, or by the sender of `traceparent`.
- `baggage` and `tracestate` are passed on unchanged to every hub that the run calls, over HTTP and by A2A, unless
  they are longer than 8192 and 512 characters. Hubs neither read nor record them. A2A agents that are not on a hub get
  `traceparent` only.
- A `traceparent` grants nothing. A request that returns to a hub with the trace of a run in progress there inherits
  that run's depth and chain, so a detour hides no loop.

## What is sent, and what is not

Texts are not sent: no objective, input, result, error message, progress or question, only the `reason` that a caller
gives for a delegation. With `content = true` all of them are sent, up to 10,000 characters each. Both are
[redacted](../explanation/redaction.md), as in the record. The user's name is never sent.

"""

TAIL = f"""\
## When the collector is down

The hub continues. Up to {MAX_BYTES // 2**20} MB of spans wait in memory; then the oldest are dropped. The hub tries
again when the collector says, or else after 1 to 30 seconds; each attempt has {TIMEOUT_S:g} seconds. The first failure
is logged. Lost spans are counted by the metric `{names.LOST}`, in `/metrics` `remit_spans_lost_total`. A closing hub
takes at most {FLUSH_S:g} seconds to deliver the rest.

A run that another process continues keeps its trace. Spans that a killed process had not delivered are lost; the record
is complete, and `remit runs show` has everything.

## What it costs

Spans are made in a thread from committed records, so no delegation waits for them. A traced hop in process takes two to
two and a half times the CPU time; a hop that is not sampled takes a tenth more (`bench/telemetry.py`). Without
`[telemetry]` nothing is done.

## Variables of OpenTelemetry that count

| variable | what it says |
|---|---|
"""

VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "where the collector is, if `endpoint` does not say it",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "the whole address for spans, likewise",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "the whole address for metrics, likewise",
    "OTEL_EXPORTER_OTLP_HEADERS": "headers for a collector that the environment names; for no other",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": "a file of certificates by which the collector is known",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "must be `http/protobuf`, if it is set and the environment names the collector",
    "OTEL_SERVICE_NAME": "the service, if `service` does not say it",
    "OTEL_RESOURCE_ATTRIBUTES": "further attributes of everything that is sent",
}


def tracing_page() -> str:
    """Return the page about tracing."""
    return HEAD + "\n".join(
        (
            _table("### Spans", "operation", names.OPERATIONS),
            _table("### Attributes", "attribute", names.ATTRIBUTES),
            _table("### Only with `content`", "attribute", names.CONTENT),
            _table("### Events", "event", names.EVENTS),
            _table("### Attributes of events", "attribute", names.EVENT_ATTRIBUTES),
            TAIL + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in VARIABLES.items()),
        )
    )


def _table(title: str, what: str, meanings: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in meanings.items()]
    return "\n".join((title, "", f"| {what} | meaning |", "|---|---|", *rows, ""))
