"""The page about tracing: what it is for, and the tables of names, from the code."""

from collections.abc import Mapping

from remit.telemetry import names
from remit.telemetry.exporter import FLUSH_S, MAX_BYTES
from remit.telemetry.sinks import TIMEOUT_S

HEAD = """\
# Tracing

Every run is a trace, and every delegation a span in it, also where it leads through several hubs. The spans and the
figures of a hub ([Metrics](metrics.md)) go to an OpenTelemetry collector, and from there to whatever shows traces:
Jaeger, Tempo, Langfuse, Datadog and others. It needs the extra `otel`: `pip install 'remit[otel]'`.

## In a team file

```toml
[telemetry]
endpoint = "http://localhost:4318"
```

That is all, for every command and for `remit serve`. The address is that of a collector that takes OTLP over HTTP;
its port is 4318 as a rule. An empty `[telemetry]` takes the address from `OTEL_EXPORTER_OTLP_ENDPOINT`. Without the
section nothing is sent, whatever the environment says. [The team file](team.md#telemetry) has all keys; what a
collector wants as proof is a header, and a secret:

```toml
[telemetry]
endpoint = "https://otlp.example.com"
headers = { authorization = "$OTLP_AUTH" }  # the variable holds the whole value: "Bearer …"
service = "back-office"
sample = 0.1
```

## What it looks like

Each delegation is an `invoke_agent`, and each call of its model a `chat` below it, with provider, model, tokens and the
reason why it stopped, by OpenTelemetry's conventions for generative AI.
[Phoenix](https://github.com/Arize-ai/phoenix), for example, takes them as they are
(`endpoint = "http://localhost:6006"`), and adds up tokens and costs:

![A trace in Phoenix: two agents, each with the calls of its model, their tokens and costs](../images/phoenix.png)

The tokens of a span are in no span above or below it, so that a sum over a trace is what was spent. What an agent and
everything below it spent is `remit.tokens.input` and `remit.tokens.output` of its span.

## In Python

`hub.telemetry("http://localhost:4318")`, before the hub is opened, does the same, with the same words: `headers`,
`service`, `content`, `sample`, `metrics`, and `every_s` for how often metrics are sent. Instead of an address it
takes any exporter of OpenTelemetry's SDK:

```python
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from remit import Brief, Hub

hub, spans = Hub(), InMemorySpanExporter()
hub.telemetry(exporter=spans)

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

An exporter gets spans and no metrics; the hub shuts it down when it closes.

## Spans of your own

Inside an agent, `brief.traceparent` says where in the trace it stands. Spans that its code makes, or that a library
makes for it, go below it:

```python
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from remit import Brief, Hub

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
tracer, place = provider.get_tracer("mine"), TraceContextTextMapPropagator()

hub = Hub()
hub.telemetry(exporter=spans)

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

As the example shows, `traceparent` of `hub.ask` goes the other way: the run becomes part of a trace that your program
has begun.

## Across hubs

A request to another hub carries its place in the trace in the header `traceparent`, as W3C writes it. If that hub has
a collector of its own, or the same, its spans continue the trace: the caller's span is the client, the other hub's
the server. Clients of `remit serve` may send a `traceparent`, too.

- Whether a trace is sampled is decided where it begins, and holds everywhere: by `sample`, or by whoever sent
  `traceparent`.
- `baggage` and `tracestate` go along to every hub that the run asks, over HTTP and by A2A, unchanged. No hub reads
  them, they are in no record, and what is longer than 8192 and 512 characters stays behind. Agents by A2A that are no
  hub's get `traceparent` alone: what is said beside a request is not for strangers.
- A `traceparent` gives nobody a right. A request that comes back to a hub with the trace of a run that is under way
  there inherits that run's depth and chain, so that no loop is hidden by a detour.

## What is sent, and what is not

What is said is not sent: no objective, no input, no result, no text of an error, of progress or of a question. There
is one exception, the `reason` that a caller gives for a delegation. With `content = true` all of it is sent, up to
10,000 characters each. Either way it is what the record holds: redacted ([Redaction](../explanation/redaction.md)). The
user's name is never sent.

"""

TAIL = f"""\
## When the collector is down

The hub works on. Spans wait in memory, {MAX_BYTES // 2**20} MB of them at most; then the oldest give way. A
collector that says when to come back is asked again then, any other after pauses of 1 to 30 seconds; it has
{TIMEOUT_S:g} seconds to answer. The first time that something cannot be delivered is logged, once, and how much was
lost is the metric `{names.LOST}`, which `/metrics` of `remit serve` has as well, as `remit_spans_lost_total`. A hub
that closes takes {FLUSH_S:g} seconds at most to deliver the rest.

A run that a process left behind keeps its trace when another takes it up. What that process had made and not
delivered when it was killed is lost; `remit runs show` has it all the same, because the record is complete and spans
are only a view of it.

## What it costs

Spans are made of records after they are committed, in a thread, so that no delegation waits for them. A hop in
process takes two to two and a half times the processor's time if every one is traced, and a tenth more if its run is
not sampled; `bench/telemetry.py` measures both. Without `[telemetry]` nothing is done at all.

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
