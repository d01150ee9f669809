"""A hub and its collector: what it does arrives there, and whatever the collector does, the hub works on."""

import asyncio
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from collector import Collector, rejecting, values_of
from remit import Answer, Brief, Call, Capability, Code, Hub, Limits, RemitError, Step, Workflow
from remit.installed import install_command
from remit.protocol.trace import place_of, span_id
from remit_orchestrator import add_orchestrator, add_workflow
from remit_otel import exporter, names, send_telemetry
from waiting import PATIENCE_S, eventually

PARENT = "00-11111111111111111111111111111111-2222222222222222-01"


@pytest.fixture
def make_hub(tmp_path: Path) -> Callable[..., Hub]:
    return partial(Hub, store=tmp_path / "hub.db", durability="process")


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub(name="office")

    @hub.tool(safe_to_repeat=True)
    async def look(at: str) -> str:
        return at

    @hub.agent("tax", tools=["look"])
    async def tax(brief: Brief) -> str:
        brief.spend(prompt=3, completion=2)
        return await brief.use("look", at="x")

    @hub.agent("boss", may_call=["tax"])
    async def boss(brief: Brief) -> str:
        await brief.delegate("nobody", objective="x")
        return (await brief.delegate("tax", objective="work it out", reason="it knows")).unwrap()

    return hub


@asynccontextmanager
async def opened(hub: Hub) -> AsyncGenerator[Hub]:
    async with asyncio.timeout(PATIENCE_S), hub:
        yield hub


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """Return the trace, the span and the span above as they are written."""
    assert span.context is not None
    above = "" if span.parent is None else f"{span.parent.span_id:016x}"
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", above


# ── delivery ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_spans_and_figures_of_a_hub_are_at_its_collector_once_it_is_closed(hub: Hub) -> None:
    """C9."""
    with Collector() as collector:
        send_telemetry(hub, collector.endpoint, headers={"X-Key": "k1"})
        async with opened(hub):
            run = (await hub.ask("boss", "go", user="u-1")).run
        spans = {span.name: span for span in collector.spans}
        _, headers, _ = collector.bodies[0]
        metrics = collector.metrics
    assert len(spans) == len(collector.spans) == 4
    assert {name: span.parent for name, span in spans.items()} == {
        "invoke_agent boss": "",
        "invoke_agent nobody": span_id(run),
        "invoke_agent tax": span_id(run),
        "execute_tool look": span_id(f"{run}.2"),
    }
    assert {(span.trace, span.service, span.kind) for span in spans.values()} == {(run, "office", "INTERNAL")}
    assert [name for name, span in spans.items() if span.failed] == ["invoke_agent nobody"]
    tax = spans["invoke_agent tax"].attributes
    assert (tax[names.AGENT_ID], tax[names.DEPTH], tax[names.CHAIN]) == ("tax@office", 1, ["boss@office"])
    assert (tax[names.REASON], tax[names.INPUT_TOKENS]) == ("it knows", 3)
    assert (headers["x-key"], headers["content-type"]) == ("k1", "application/x-protobuf")
    assert set(metrics) == set(names.METRICS)
    refusals = metrics[names.REFUSALS].sum.data_points
    assert [(values_of(each.attributes)[names.ERROR], each.as_int) for each in refusals] == [("AGENT_NOT_FOUND", 1)]
    assert hub.metrics.lost_spans == 0


async def test_every_delegation_of_a_run_is_one_span_however_it_ends(make_hub: Callable[..., Hub]) -> None:
    """C9: the tree of spans is the tree of the record."""
    hub, kept = make_hub(limits=Limits(max_fan_out=3, grace_ms=50)), InMemorySpanExporter()
    send_telemetry(hub, exporter=kept)

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> Answer:
        match brief.objective:
            case "fail":
                raise ValueError("no")
            case "hang":
                await asyncio.Event().wait()
            case _:
                pass
        return Answer("ok", unfinished=("more",) if brief.objective == "part" else ())

    @hub.agent("middle", may_call=["leaf", "middle"])
    async def middle(brief: Brief) -> str:
        await brief.fan_out([Call(target="leaf", objective=each) for each in ("fine", "fail", "part")])
        await brief.fan_out([Call(target="leaf", objective=str(each)) for each in range(4)])
        await brief.delegate("leaf", objective="hang", deadline_ms=50)
        await brief.delegate("middle", objective="again")
        return "done"

    @hub.agent("boss", may_call=["middle"])
    async def boss(brief: Brief) -> Call:
        return Call(target="middle", objective="go")

    async with opened(hub):
        run = (await hub.ask("boss", "go", user="u-1")).run
        delegations = await hub.delegations(run)
    spans = {ids(span)[1]: span for span in kept.get_finished_spans()}
    assert {span_id(each.id): each.parent and span_id(each.parent) for each in delegations} == {
        id: ids(span)[2] or None for id, span in spans.items()
    }
    assert len(spans) == len(kept.get_finished_spans()) == 11
    for each in delegations:
        span = spans[span_id(each.id)]
        assert each.status is not None
        attributes = dict(span.attributes or {})
        assert (attributes[names.STATUS], span.status.is_ok) == (each.status, each.fault is None)
        assert (attributes[names.DEPTH], attributes[names.ORIGIN]) == (each.depth, each.origin)
        assert attributes.get(names.ERROR) == (each.fault and each.fault.code)


async def test_spans_arrive_while_the_hub_is_open(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "BATCH", 2)
    monkeypatch.setattr(exporter, "SEND_S", PATIENCE_S)
    with Collector() as collector:
        send_telemetry(hub, collector.endpoint, every_s=0.05)
        async with opened(hub):
            await hub.ask("boss", "go", user="u-1")
            await asyncio.to_thread(collector.wait, lambda: len(collector.spans) == 4 and collector.metrics)


async def test_a_hub_can_be_opened_again(hub: Hub) -> None:
    with Collector() as collector:
        send_telemetry(hub, collector.endpoint, metrics=False)
        for _ in range(2):
            async with opened(hub):
                await hub.ask("boss", "go", user="u-1")
        assert len(collector.spans) == 8
        assert collector.metrics == {}


async def test_workflows_and_orchestrators_have_spans_of_their_own_kind(make_hub: Callable[..., Hub]) -> None:
    hub, kept = make_hub(), InMemorySpanExporter()

    examples = ("work out my taxes", "how much tax do I owe")

    @hub.agent("tax", capabilities=[Capability(code="TAX", examples=examples, read_only=True)])
    async def tax(brief: Brief) -> str:
        return "40"

    add_workflow(hub, Workflow(name="year-end", steps=(Step(name="taxes", agent="tax"),)))
    add_orchestrator(hub)
    send_telemetry(hub, exporter=kept)
    async with opened(hub):
        assert (await hub.ask("year-end", "go", user="u-1")).ok
        assert (await hub.ask("orchestrator", "work out my taxes", user="u-1")).ok
    tree = {span.name: ids(span) for span in kept.get_finished_spans()}
    assert tree["invoke_workflow year-end"][2] == ""
    assert tree["plan orchestrator"][2] == tree["invoke_agent orchestrator"][1]


async def test_a_run_that_another_process_left_behind_keeps_its_trace(make_hub: Callable[..., Hub]) -> None:
    """Decision 4: what is taken up again goes on, also for who looks at the trace."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    def team() -> Hub:
        hub = make_hub()

        @hub.agent("slow", resumable=True)
        async def slow(brief: Brief) -> str:
            begun.set()
            await go_on.wait()
            return "done"

        return hub

    async with opened(team()) as first:
        call = asyncio.create_task(first.ask("slow", "go", user="u-1", traceparent=PARENT))
        await begun.wait()
    interrupted = await call
    second, kept = team(), InMemorySpanExporter()
    send_telemetry(second, exporter=kept)
    go_on.set()
    async with opened(second):
        await second.store.wait(interrupted.run)
    (span,) = kept.get_finished_spans()
    assert ids(span) == ("1" * 32, span_id(interrupted.run), "2" * 16)
    assert [each.name for each in span.events] == ["remit.notice"] * 2  # the hub closed; it was taken up again


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_an_agent_is_told_of_its_place_is_what_its_span_says(make_hub: Callable[..., Hub]) -> None:
    hub, kept, places = make_hub(), InMemorySpanExporter(), list[str]()

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        places.append(brief.traceparent)
        return "x"

    send_telemetry(hub, exporter=kept, sample=0)
    async with opened(hub):
        await hub.ask("a", "x", user="u-1")
        await hub.ask("a", "x", user="u-1", traceparent=PARENT)
        await hub.ask("a", "x", user="u-1", traceparent=PARENT[:-2] + "00")
    (span,) = kept.get_finished_spans()
    parents = [place for each in places if (place := place_of(each)) is not None]
    assert [(place.trace == "1" * 32, place.sampled) for place in parents] == [
        (False, False),
        (True, True),
        (True, False),
    ]
    assert parents[1].span == ids(span)[1]


async def test_a_traceparent_that_is_none_is_refused_by_name(hub: Hub) -> None:
    async with opened(hub):
        with pytest.raises(RemitError, match="traceparent") as refused:
            await hub.ask("boss", "x", user="u-1", traceparent="00-1-1-01")
    assert [each.path for each in refused.value.fault.problems] == ["traceparent"]


# ── a collector that is out of order ──────────────────────────────────────────────────────────────────────────────────


def warnings_in(log: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage() for each in log.records if each.levelno >= logging.WARNING and "spans" in each.getMessage()
    ]


async def test_spans_wait_for_a_collector_that_is_busy(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("PAUSE_S", "GATHER_S", "SEND_S"):
        monkeypatch.setattr(exporter, name, 0.01)
    with Collector() as collector:
        collector.answer = lambda number: (503, {"retry-after": "0"}, b"") if number < 4 else (200, {}, b"")
        send_telemetry(hub, collector.endpoint, metrics=False)
        async with opened(hub):
            await hub.ask("boss", "go", user="u-1")
            await asyncio.to_thread(collector.wait, lambda: collector.spans)
    assert (len(collector.spans), hub.metrics.lost_spans) == (4, 0)
    assert len(warnings_in(caplog)) == 1


async def test_what_a_collector_will_never_take_is_lost_and_counted_and_said_once(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    with Collector() as collector:
        collector.answer = lambda number: (400, {}, b"no")
        send_telemetry(hub, collector.endpoint)
        for _ in range(2):
            async with opened(hub):
                await hub.ask("boss", "go", user="u-1")
    assert hub.metrics.lost_spans == 8
    (first, second) = warnings_in(caplog)  # each opening may say so
    assert "answered with status 400" in first
    assert first == second


async def test_what_a_collector_takes_only_in_part_is_counted(hub: Hub) -> None:
    with Collector() as collector:
        collector.answer = lambda number: (200, {}, rejecting(1) if number == 1 else b"")
        send_telemetry(hub, collector.endpoint, metrics=False)
        async with opened(hub):
            await hub.ask("boss", "go", user="u-1")
    assert hub.metrics.lost_spans == 1


async def test_an_answer_that_is_none_counts_as_yes(hub: Hub) -> None:
    with Collector() as collector:
        collector.answer = lambda number: (200, {}, b"<html>fine</html>")
        send_telemetry(hub, collector.endpoint)
        async with opened(hub):
            await hub.ask("boss", "go", user="u-1")
    assert hub.metrics.lost_spans == 0


async def test_a_collector_leads_nobody_elsewhere(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Collector() as thief, Collector() as collector:
        collector.answer = lambda number: (307, {"location": f"{thief.endpoint}/v1/traces"}, b"")
        send_telemetry(hub, collector.endpoint, headers={"authorization": "Bearer my-very-own"})
        async with opened(hub):
            await hub.ask("boss", "go", user="u-1")
    assert (thief.request_count, hub.metrics.lost_spans) == (0, 4)
    assert (len(warnings_in(caplog)), "my-very-own" in caplog.text) == (1, False)


async def test_without_a_collector_memory_is_bounded_and_the_oldest_give_way(
    make_hub: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter, "MAX_BYTES", 15_000)
    for name in ("PAUSE_S", "GATHER_S", "SEND_S"):
        monkeypatch.setattr(exporter, name, 0.01)
    with Collector() as collector:
        out_of_order = True
        collector.answer = lambda number: (503, {}, b"") if out_of_order else (200, {}, b"")
        hub = make_hub()

        @hub.agent("a")
        async def a(brief: Brief) -> str:
            return "x"

        send_telemetry(hub, collector.endpoint, metrics=False)
        async with opened(hub):
            runs = [(await hub.ask("a", "x", user="u-1")).run for _ in range(100)]
            await eventually(lambda: hub.metrics.lost_spans >= 80)
            out_of_order = False
        arrived = [span.attributes[names.RUN] for span in collector.spans]
    assert 0 < len(arrived) <= 20
    assert arrived == runs[-len(arrived) :]
    assert hub.metrics.lost_spans == 100 - len(arrived)
    assert len(warnings_in(caplog)) == 1


async def test_a_collector_that_never_answers_keeps_no_hub_open(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("GATHER_S", "SEND_S"):
        monkeypatch.setattr(exporter, name, 0.01)
    monkeypatch.setattr(exporter, "FLUSH_S", 0.2)
    silent: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: silent.append(writer), "127.0.0.1", 0)
    async with server:
        send_telemetry(hub, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with opened(hub):
            await hub.ask("boss", "go", user="u-1")
            await eventually(lambda: bool(silent))
        for writer in silent:
            writer.close()
    assert hub.metrics.lost_spans == 4
    assert len(warnings_in(caplog)) == 1


async def test_nobody_at_the_address_keeps_no_hub_open(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as gone:
        endpoint = gone.endpoint
    send_telemetry(hub, endpoint)
    async with opened(hub):
        assert (await hub.ask("boss", "go", user="u-1")).ok
    assert hub.metrics.lost_spans == 4
    (warning,) = warnings_in(caplog)
    assert "cannot be reached" in warning


async def test_more_records_than_can_be_looked_at_are_lost_in_part_and_the_rest_is_right(
    make_hub: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "MAX_RECORDS", 10)
    monkeypatch.setattr(exporter, "GATHER_S", PATIENCE_S)
    hub, kept = make_hub(), InMemorySpanExporter()

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        return "x"

    send_telemetry(hub, exporter=kept)
    async with opened(hub):
        runs = [(await hub.ask("a", "x", user="u-1")).run for _ in range(30)]
    arrived = [ids(span)[0] for span in kept.get_finished_spans()]
    assert 0 < len(arrived) < 30
    assert arrived == runs[-len(arrived) :]
    assert hub.metrics.lost_spans > 0


# ── exporters of others ───────────────────────────────────────────────────────────────────────────────────────────────


class Failing(SpanExporter):
    """An exporter that does not do what it should."""

    def __init__(self, how: Callable[[], SpanExportResult]) -> None:
        self.how = how
        self.closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.how()

    def shutdown(self) -> None:
        self.closed = True
        raise ValueError("no")


def raising() -> SpanExportResult:
    raise ValueError("no")


@pytest.mark.parametrize("how", [raising, lambda: SpanExportResult.FAILURE])
async def test_an_exporter_that_fails_harms_nobody(hub: Hub, how: Callable[[], SpanExportResult]) -> None:
    failing = Failing(how)
    send_telemetry(hub, exporter=failing)
    async with opened(hub):
        assert (await hub.ask("boss", "go", user="u-1")).ok
    assert (hub.metrics.lost_spans, failing.closed) == (4, True)


# ── setting it up ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_the_extra_it_is_said_what_to_install(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sinks", "otlp", "sdk"):
        monkeypatch.delitem(sys.modules, f"remit_otel.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(RemitError, match=re.escape(install_command("otel"))) as refused:
        send_telemetry(hub, "http://localhost:4318")
    assert refused.value.fault.code is Code.TEAM_INVALID


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sample": 1.5}, "`sample` is a share"),
        ({"every_s": 0}, "`every_s`"),
        ({"endpoint": "localhost:4318"}, "invalid collector endpoint"),
        ({"endpoint": "http://x", "exporter": InMemorySpanExporter()}, "not both"),
        ({"environ": {}}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(hub: Hub, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RemitError, match=message):
        send_telemetry(hub, **wrong)


async def test_it_is_said_once_and_before_the_hub_is_opened(hub: Hub) -> None:
    async with opened(hub):
        with pytest.raises(RemitError, match="before the hub is opened"):
            send_telemetry(hub, "http://localhost:4318")
    send_telemetry(hub, "http://localhost:4318")
    with pytest.raises(RemitError, match="call `send_telemetry` once"):
        send_telemetry(hub, "http://localhost:4318")
