"""Records become spans: a fold, tried with records that are made by hand."""

import json
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Code, Request, Response, Status, Usage, fault
from remit.protocol.envelope import VERSION
from remit.protocol.records import Approval, Body, Delta, Kind, Notice, Progress, Record, Refusal, ToolUse
from remit.protocol.remit import Remit
from remit.protocol.trace import span_id
from remit_otel import names
from remit_otel.span import Span, SpanEvent, SpanKind, SpanLink
from remit_otel.spans import MAX_EVENTS, MAX_RUNS, MS, AgentKind, Role, Spans

RUN = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00-11111111111111111111111111111111-2222222222222222-01"
KINDS: dict[type[Body], Kind] = {
    Request: Kind.DELEGATION,
    Response: Kind.RESULT,
    Refusal: Kind.REFUSED,
    Progress: Kind.PROGRESS,
    Notice: Kind.NOTICE,
    ToolUse: Kind.TOOL,
    Approval: Kind.APPROVAL,
    Delta: Kind.DELTA,
}


def records(*events: tuple[int, Body], run: str = RUN) -> list[Record]:
    numbers = count(1)
    return [
        Record(seq=next(numbers), kind=KINDS[type(body)], at_ms=at_ms, run=run, session="s", body=body)
        for at_ms, body in events
    ]


def make_request(path: str = RUN, target: str = "boss", at_ms: int = 1_000, **more: Any) -> Request:
    """Return the request at a place of a run: of the root, or of something below it."""
    run, _, rest = path.partition(".")
    depth = rest.count(".") + 1 if rest else 0
    remit = Remit(
        user="u-1", depth=depth, max_depth=5, time_ms=30_000, tokens=8_000, chain=("boss@here",) if rest else ()
    )
    request = Request(
        version=VERSION,
        id=path if rest else "the sender's own",
        origin="boss" if rest else "user",
        target=target,
        remit=remit,
        objective="Sort",
        input={"n": 1},
        run=run,
        parent=path.rpartition(".")[0] if rest else None,
        session="s",
        created_ms=at_ms,
    )
    return replace(request, **more)


def ended(request: Request, **more: Any) -> Response:
    response = Response(
        version=VERSION, id=request.id, target=request.target, status=Status.SUCCESS, run=request.run, result="done"
    )
    return replace(response, **more)


def failed(request: Request, code: Code = Code.DELEGATION_FAILED, status: Status = Status.FAILED) -> Response:
    return ended(request, status=status, fault=fault(code, "the words of it"), result=None)


def one(spans: Iterable[Span]) -> Span:
    (span,) = spans
    return span


ROOT = make_request()
BEGUN = (1_000, ROOT)
DONE = (9_000, ended(ROOT))


# ── delegations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delegation_is_a_span_that_tells_to_whom_how_deep_by_whom_why_and_from_where() -> None:
    """C9."""
    child = make_request(
        f"{RUN}.1", "tax", at_ms=2_000, reason="it knows the rules", capability="TAX", refined_by="editor"
    )
    response = ended(
        child,
        usage=Usage(prompt=30, completion=12, overrun=5, estimated=True),
        duration_ms=500,
        queued_ms=20,
        confidence=1,
        cache="miss",
        agent_version="2.0",
        capability_version="1.1",
        path=("tax", "clerk"),
    )
    span = one(Spans("here").fold(records(BEGUN, (2_000, child), (2_500, response))))
    assert span == Span(
        trace=RUN,
        span=span_id(f"{RUN}.1"),
        parent=span_id(RUN),
        name="invoke_agent tax",
        kind=SpanKind.INTERNAL,
        start_ns=2_000 * MS,
        end_ns=2_500 * MS,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "remit",
            "gen_ai.agent.name": "tax",
            "gen_ai.agent.id": "tax@here",
            "gen_ai.agent.version": "2.0",
            "gen_ai.conversation.id": "s",
            "gen_ai.usage.input_tokens": 30,
            "gen_ai.usage.output_tokens": 12,
            "remit.tokens.input": 30,
            "remit.tokens.output": 12,
            "remit.run": RUN,
            "remit.delegation": f"{RUN}.1",
            "remit.origin": "boss",
            "remit.depth": 1,
            "remit.chain": ("boss@here",),
            "remit.reason": "it knows the rules",
            "remit.refined_by": "editor",
            "remit.capability": "TAX",
            "remit.capability.version": "1.1",
            "remit.attempt": 1,
            "remit.status": "success",
            "remit.cache": "miss",
            "remit.confidence": 1.0,
            "remit.tokens.granted": 8_000,
            "remit.tokens.left": 7_958,
            "remit.tokens.overrun": 5,
            "remit.tokens.estimated": True,
            "remit.time.granted_ms": 30_000,
            "remit.time.left_ms": 29_500,
            "remit.queued_ms": 20,
            "remit.path": ("tax", "clerk"),
        },
    )


def test_the_cost_of_a_trace_adds_up_to_what_was_spent() -> None:
    root = make_request()
    root = replace(root, remit=replace(root.remit, cost=500))
    child = make_request(f"{RUN}.1", "tax", 1_500)
    below, whole = Usage(prompt=10, cost=70, priced=10), Usage(prompt=25, cost=100, priced=20)
    spans = Spans("here").fold(
        records((1_000, root), (1_500, child), (2_000, ended(child, usage=below)), (2_500, ended(root, usage=whole)))
    )
    costs = {span.name: [span.attributes.get(f"remit.{each}") for each in _MONEY] for span in spans}
    assert costs == {"invoke_agent tax": [70, None, 0], "invoke_agent boss": [30, 500, 5]}


_MONEY = ("cost", "cost.granted", "tokens.unpriced")


def test_calls_of_a_model_are_spans_and_the_tokens_of_a_trace_add_up_to_what_was_spent() -> None:
    """What a span says of tokens is in no other; the whole below an agent stands under a name of its own."""
    child = make_request(f"{RUN}.1", "tax", 2_000)
    call = {
        "at_ms": 2_100,
        "ms": 200,
        "input": 20,
        "output": 7,
        "cached": 5,
        "model": "gpt-5-mini-2026",
        "finish": "stop",
    }
    calls = [call, {"at_ms": 2_300, "ms": 50, "input": 6, "output": 3, "provider": "azure"}, {"unreadable": True}, 3]
    model = {"remit.model": {"name": "openai:gpt-5-mini", "calls": calls}}
    response = ended(child, usage=Usage(prompt=30, completion=12), metadata=model)
    root = ended(BEGUN[1], usage=Usage(prompt=100, completion=20))
    first, second, tax, boss = Spans("here").fold(records(BEGUN, (2_000, child), (2_500, response), (9_000, root)))
    assert (first.name, first.kind, first.parent, first.trace) == ("chat gpt-5-mini", SpanKind.CLIENT, tax.span, RUN)
    assert (first.start_ns, first.end_ns) == (2_100 * MS, 2_300 * MS)
    assert first.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "tax",
        "gen_ai.agent.id": "tax@here",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.response.model": "gpt-5-mini-2026",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "remit.run": RUN,
        "remit.delegation": f"{RUN}.1",
    }
    assert second.attributes[names.PROVIDER] == "azure"
    assert len({each.span for each in (first, second, tax, boss)}) == 4
    assert [tax.attributes[name] for name in (names.INPUT_TOKENS, names.ALL_INPUT)] == [4, 30]
    assert [boss.attributes[name] for name in (names.INPUT_TOKENS, names.ALL_INPUT)] == [70, 100]
    spans = (first, second, tax, boss)
    assert sum(int(str(each.attributes[names.INPUT_TOKENS])) for each in spans) == 100
    assert sum(int(str(each.attributes[names.OUTPUT_TOKENS])) for each in spans) == 20


def test_a_run_is_a_trace_of_its_own_whose_root_has_nobody_above() -> None:
    span = one(Spans("here").fold(records(BEGUN, DONE)))
    assert (span.trace, span.span, span.parent, span.parent_elsewhere) == (RUN, span_id(RUN), None, False)
    assert (span.start_ns, span.end_ns, span.error) == (1_000 * MS, 9_000 * MS, None)


def test_a_run_that_came_from_elsewhere_goes_on_with_the_trace_that_it_came_with() -> None:
    root, child = replace(ROOT, traceparent=PARENT, via="north"), make_request(f"{RUN}.1")
    below, above = Spans("here").fold(records((1, root), (2, child), (3, ended(child)), (4, ended(root))))
    assert {below.trace, above.trace} == {"1" * 32}
    assert (above.parent, above.parent_elsewhere, above.kind) == ("2" * 16, True, SpanKind.SERVER)
    assert (below.parent, below.parent_elsewhere, below.kind) == (above.span, False, SpanKind.INTERNAL)
    assert above.attributes[names.VIA] == "north"


def test_a_call_of_an_agent_elsewhere_is_a_client_span_unless_it_never_left() -> None:
    spans = Spans("here", lambda name: AgentKind(elsewhere=name == "far"))
    sent, refused = make_request(f"{RUN}.1", "far"), make_request(f"{RUN}.2", "far")
    why = Refusal(request=refused, response=failed(refused, Code.MAX_DEPTH_EXCEEDED, Status.REFUSED))
    folded = spans.fold(records(BEGUN, (2, sent), (3, ended(sent)), (4, why)))
    assert [each.kind for each in folded] == [SpanKind.CLIENT, SpanKind.INTERNAL]


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMEOUT, Status.CANCELLED, Status.REFUSED])
def test_what_did_not_end_well_is_an_error_by_its_code_alone(status: Status) -> None:
    span = one(Spans("here").fold(records(BEGUN, (2_000, failed(ROOT, status=status)))))
    assert (span.error, span.attributes[names.ERROR]) == ("DELEGATION_FAILED", "DELEGATION_FAILED")
    assert span.attributes[names.STATUS] == status


def test_what_ended_in_part_is_no_error() -> None:
    span = one(Spans("here").fold(records(BEGUN, (2_000, ended(ROOT, status=Status.PARTIAL)))))
    assert (span.error, span.attributes[names.STATUS]) == (None, "partial")


@pytest.mark.parametrize("path", [RUN, f"{RUN}.1"])
def test_a_refusal_is_a_span_too(path: str) -> None:
    request = make_request(path, "nobody", at_ms=2_000)
    why = Refusal(request=request, response=failed(request, Code.AGENT_NOT_FOUND, Status.REFUSED))
    recorded = records((2_000, why)) if path == RUN else records(BEGUN, (2_000, why))
    span = one(Spans("here").fold(recorded))
    assert (span.name, span.error, span.span) == ("invoke_agent nobody", "AGENT_NOT_FOUND", span_id(path))
    assert span.attributes[names.STATUS] == "refused"
    assert names.TOKENS_LEFT not in span.attributes


def test_a_request_that_a_person_changed_begins_when_it_was_asked_and_is_told_as_it_was_carried_out() -> None:
    changed = replace(ROOT, target="other", created_ms=5_000)
    span = one(Spans("here").fold(records(BEGUN, (5_000, changed), (6_000, ended(changed)))))
    assert (span.name, span.start_ns) == ("invoke_agent other", 1_000 * MS)


def test_what_a_hub_left_behind_when_it_went_down_ends_with_its_run() -> None:
    child = make_request(f"{RUN}.1", "tax", at_ms=2_000)
    unknown = failed(ROOT, Code.OUTCOME_UNKNOWN)
    root, left = Spans("here").fold(records(BEGUN, (2_000, child), (8_000, unknown)))
    assert (root.name, left.name, left.error) == ("invoke_agent boss", "invoke_agent tax", "OUTCOME_UNKNOWN")
    assert (left.end_ns, left.attributes[names.ERROR]) == (8_000 * MS, "OUTCOME_UNKNOWN")


@pytest.mark.parametrize(
    ("path", "before", "attempt"),
    [("npv~2", "npv", 2), ("npv~3", "npv~2", 3), ("2+1", "2", 2), ("2+2", "2+1", 3), ("npv~2+1", "npv~2", 3)],
)
def test_a_further_attempt_says_which_it_is_and_with_what_the_one_before_failed(
    path: str, before: str, attempt: int
) -> None:
    first, second = make_request(f"{RUN}.{before}"), make_request(f"{RUN}.{path}")
    late = failed(first, Code.TIMEOUT, Status.TIMEOUT)
    *_, span = Spans("here").fold(records(BEGUN, (2, first), (3, late), (4, second), (5, ended(second))))
    assert (span.attributes[names.ATTEMPT], span.attributes[names.ROUTE_REASON]) == (attempt, "TIMEOUT")


def test_a_step_whose_name_only_looks_like_a_further_attempt_is_a_first_one() -> None:
    step = make_request(f"{RUN}.tax~return")
    span = one(Spans("here").fold(records(BEGUN, (2, step), (3, ended(step)))))
    assert (span.attributes[names.ATTEMPT], names.ROUTE_REASON in span.attributes) == (1, False)


def test_a_request_that_repeats_another_is_linked_to_it_if_a_hub_made_its_id() -> None:
    other = "f" * 32
    for retry_of, linked in (
        (f"{RUN}.1", (SpanLink("1" * 32, span_id(f"{RUN}.1")),)),
        (f"{other}.2", (SpanLink(other, span_id(f"{other}.2")),)),
        ("by hand", ()),
    ):
        root = replace(ROOT, retry_of=retry_of, traceparent=PARENT)
        assert one(Spans("here").fold(records((1, root), (2, ended(root))))).links == linked


# ── workflows, orchestrators, tools ───────────────────────────────────────────────────────────────────────────────────


def test_a_workflow_is_named_as_one() -> None:
    span = one(Spans("here", lambda _: AgentKind(Role.WORKFLOW)).fold(records(BEGUN, DONE)))
    assert (span.name, span.attributes[names.WORKFLOW_NAME]) == ("invoke_workflow boss", "boss")


def test_an_orchestrator_plans_until_it_has_the_first_thing_done() -> None:
    spans = Spans("here", lambda name: AgentKind(Role.PLANNER if name == "boss" else Role.AGENT))
    one_, two = make_request(f"{RUN}.1", "tax", at_ms=1_300), make_request(f"{RUN}.2", "tag", at_ms=1_400)
    recorded = records(BEGUN, (1_300, one_), (1_400, two), (2_000, ended(one_)), (2_000, ended(two)), DONE)
    plan, *others = spans.fold(recorded)
    assert (plan.name, plan.parent) == ("plan boss", span_id(RUN))
    assert (plan.start_ns, plan.end_ns) == (1_000 * MS, 1_300 * MS)
    assert [each.name for each in others] == ["invoke_agent tax", "invoke_agent tag", "invoke_agent boss"]


def test_an_orchestrator_that_has_nothing_done_planned_all_the_time() -> None:
    plan, root = Spans("here", lambda _: AgentKind(Role.PLANNER)).fold(records(BEGUN, DONE))
    assert (plan.name, plan.end_ns, root.name) == ("plan boss", root.end_ns, "invoke_agent boss")
    refused = make_request(f"{RUN}.1", "x", at_ms=1_100)
    why = Refusal(request=refused, response=failed(refused))
    plan, *_ = Spans("here", lambda name: AgentKind(Role.PLANNER if name == "boss" else Role.AGENT)).fold(
        records(BEGUN, (1_100, why))
    )
    assert (plan.name, plan.end_ns) == ("plan boss", 1_100 * MS)


def use(tool: str = "look", **more: Any) -> ToolUse:
    return ToolUse(delegation=RUN, agent="boss", tool=tool, **more)


def test_a_use_of_a_tool_is_a_span_within_its_delegation() -> None:
    span = one(Spans("here").fold(records(BEGUN, (3_000, use(duration_ms=400, input={"at": "x"})))))
    assert (span.name, span.parent, span.kind) == ("execute_tool look", span_id(RUN), SpanKind.INTERNAL)
    assert (span.start_ns, span.end_ns) == (2_600 * MS, 3_000 * MS)
    assert span.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.provider.name": "remit",
        "gen_ai.agent.name": "boss",
        "gen_ai.agent.id": "boss@here",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "remit.run": RUN,
        "remit.delegation": RUN,
    }


def test_tools_at_work_at_once_are_told_apart_by_when_they_began() -> None:
    recorded = records(
        BEGUN,
        (2_000, use(begun=True, input="first")),
        (2_500, use(begun=True, input="second")),
        (2_600, use("other", duration_ms=10)),
        (3_000, use(duration_ms=500)),
        (3_100, use(duration_ms=1_100)),
    )
    spans = [each for each in Spans("here", content=True).fold(recorded) if each.name == "execute_tool look"]
    assert [each.attributes[names.TOOL_ARGUMENTS] for each in spans] == ["second", "first"]
    assert [each.start_ns // MS for each in spans] == [2_500, 2_000]
    assert len({each.span for each in spans}) == 2


def test_a_tool_that_was_refused_failed_or_never_ended_is_an_error() -> None:
    refused = use(fault=fault(Code.TOOL_NOT_ALLOWED, "no"))
    replayed = use(replayed=True)
    recorded = records(BEGUN, (2_000, refused), (2_100, replayed), (3_000, use(begun=True)), DONE)
    first, second, third, _ = Spans("here").fold(recorded)
    assert (first.error, first.attributes[names.ERROR]) == ("TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED")
    assert (second.error, second.attributes[names.REPLAYED]) == (None, True)
    assert (third.error, third.end_ns) == ("OUTCOME_UNKNOWN", 9_000 * MS)


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SAID: list[Body] = [
    Progress(delegation=RUN, agent="boss", text="half"),
    Notice(delegation=RUN, agent="boss", text="it overran", code=Code.TOKEN_BUDGET_EXCEEDED),
    Notice(delegation=RUN, agent="boss", text="odd"),
    Approval(delegation=RUN, agent="boss", id="q", question="May it?"),
    Approval(
        delegation=RUN, agent="boss", id="q", question="May it?", agreed=True, by="ann", reason="why not", edited=("x",)
    ),
]


def test_progress_notices_and_approvals_are_events_of_their_delegation() -> None:
    recorded = records(BEGUN, *((2_000, body) for body in SAID), (2_500, Delta(delegation=RUN, agent="boss", text="x")))
    spans = Spans("here")
    assert spans.fold(recorded) == []
    span = one(spans.fold(records(DONE)))
    at = 2_000 * MS
    assert span.events == (
        SpanEvent("remit.progress", at, {}),
        SpanEvent("remit.notice", at, {"remit.code": "TOKEN_BUDGET_EXCEEDED"}),
        SpanEvent("remit.notice", at, {}),
        SpanEvent("remit.approval", at, {}),
        SpanEvent("remit.approval", at, {"remit.approval.agreed": True, "remit.approval.edited": ("x",)}),
    )


def test_what_a_person_is_asked_before_a_delegation_begins_is_part_of_it() -> None:
    path = f"{RUN}.1"
    question = Approval(delegation=path, agent="tax", id="q", question="May it?")
    child = make_request(path, "tax", at_ms=5_000)
    span = one(Spans("here").fold(records(BEGUN, (2_000, question), (5_000, child), (6_000, ended(child)))))
    assert (span.start_ns, [each.name for each in span.events]) == (2_000 * MS, ["remit.approval"])
    why = Refusal(request=child, response=failed(child, Code.APPROVAL_DECLINED, Status.REFUSED))
    span = one(Spans("here").fold(records(BEGUN, (2_000, question), (5_000, why))))
    assert (span.start_ns, span.error, len(span.events)) == (2_000 * MS, "APPROVAL_DECLINED", 1)


def test_what_comes_after_the_end_of_a_delegation_is_told_of_the_nearest_above_it() -> None:
    child = make_request(f"{RUN}.1", "tax", at_ms=2_000)
    late = Notice(delegation=f"{RUN}.1.4", agent="x", text="came late")
    *_, root = Spans("here").fold(records(BEGUN, (2_000, child), (3_000, ended(child)), (3_100, late), DONE))
    assert [each.name for each in root.events] == ["remit.notice"]
    spans = Spans("here")
    spans.fold(records(BEGUN, DONE))
    assert spans.fold(records((9_500, late))) == []


def test_of_too_many_events_the_last_are_kept_and_the_others_counted() -> None:
    progress = [(2_000 + n, Progress(delegation=RUN, agent="boss", text=str(n))) for n in range(MAX_EVENTS + 10)]
    span = one(Spans("here").fold(records(BEGUN, *progress, DONE)))
    assert (len(span.events), span.lost_events, span.events[-1].at_ns) == (MAX_EVENTS, 10, progress[-1][0] * MS)


# ── content ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_said_goes_along_only_if_that_is_wanted() -> None:
    child = make_request(f"{RUN}.1", "tax")
    recorded = records(
        BEGUN, (2_000, child), (2_100, use(input="secret")), (3_000, failed(child)), *((2_000, b) for b in SAID), DONE
    )
    quiet = repr(Spans("here").fold(recorded))
    for text in ("Sort", "'n'", "secret", "the words of it", "half", "it overran", "May it?", "why not", "ann", "done"):
        assert text not in quiet
    tool, below, root = Spans("here", content=True).fold(recorded)
    assert tool.attributes[names.TOOL_ARGUMENTS] == "secret"
    assert below.error == "DELEGATION_FAILED: the words of it"
    assert json.loads(str(root.attributes[names.INPUT_MESSAGES])) == [
        {"role": "user", "parts": [{"type": "text", "content": "Sort"}, {"type": "text", "content": '{"n":1}'}]}
    ]
    assert json.loads(str(root.attributes[names.OUTPUT_MESSAGES])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "done"}], "finish_reason": "stop"}
    ]
    assert [each.attributes.get(names.TEXT) for each in root.events] == [
        "half", "it overran", "odd", "May it?", "why not",
    ]  # fmt: skip
    assert root.events[-1].attributes[names.BY] == "ann"


def test_what_is_said_is_cut_before_it_is_written_down() -> None:
    root = replace(ROOT, objective="x" * 50_000, input=None)
    span = one(Spans("here", content=True).fold(records((1, root), (2, ended(root, result="y" * 50_000)))))
    (message,) = json.loads(str(span.attributes[names.INPUT_MESSAGES]))
    assert message["parts"] == [{"type": "text", "content": "x" * 10_000}]
    assert len(str(span.attributes[names.OUTPUT_MESSAGES])) < 11_000


# ── sampling, and what was not heard ──────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_not_sampled_leaves_no_span_and_nothing_behind() -> None:
    spans = Spans("here", ratio=0)
    child = make_request(f"{RUN}.1")
    recorded = records(BEGUN, (2, child), (2, use()), (3, ended(child)), (4, SAID[0]), DONE)
    assert spans.fold(recorded) == []
    assert spans.unknown(records((9_500, SAID[0]))) == {}
    refused = make_request(run="1" * 32, path="1" * 32)
    why = Refusal(request=refused, response=failed(refused))
    assert spans.fold(records((1, why), run="1" * 32)) == []


def test_whoever_sent_a_run_says_whether_it_is_sampled() -> None:
    for flags, ratio, number in (("00", 1.0, 0), ("01", 0.0, 1)):
        root = replace(ROOT, traceparent=PARENT[:-2] + flags)
        assert len(Spans("here", ratio=ratio).fold(records((1, root), (2, ended(root))))) == number


def test_a_run_that_is_taken_up_again_goes_on_where_its_record_ends() -> None:
    root, done, going = (
        replace(ROOT, traceparent=PARENT),
        make_request(f"{RUN}.1", "done"),
        make_request(f"{RUN}.2", "going"),
    )
    before = records((1_000, root), (2_000, done), (3_000, ended(done)), (4_000, going))
    after = records((8_000, ended(going)), (9_000, ended(root)))
    spans = Spans("here")
    assert (spans.unknown(after), spans.unknown([*before, *after])) == ({RUN: 1}, {})
    spans.recall(RUN, before)
    assert spans.unknown(after) == {}
    folded = spans.fold(after)
    assert [each.name for each in folded] == ["invoke_agent going", "invoke_agent boss"]
    assert ({each.trace for each in folded}, folded[0].start_ns) == ({"1" * 32}, 1_000 * MS)


def test_a_run_whose_beginning_nobody_knows_has_no_spans_and_is_not_asked_for_again() -> None:
    spans = Spans("here")
    assert spans.fold(records(DONE)) == []
    spans.recall(RUN, [])
    assert spans.unknown(records(DONE)) == {}
    assert spans.fold(records((1, make_request(f"{RUN}.1")), DONE)) == []


def test_what_is_kept_of_runs_that_do_not_end_is_bounded() -> None:
    spans = Spans("here")
    for number in range(MAX_RUNS + 1):
        run = f"{number + 1:032x}"
        spans.fold(records((1, replace(make_request(run), id=run)), run=run))
    oldest, newest = f"{1:032x}", f"{MAX_RUNS + 1:032x}"
    progress = Progress(delegation="x", agent="x", text="x")
    assert spans.unknown(records((2, progress), run=oldest)) == {oldest: 1}
    assert spans.unknown(records((2, progress), run=newest)) == {}


def test_records_of_a_delegation_that_was_not_heard_of_are_passed_over() -> None:
    spans = Spans("here")
    child = make_request(f"{RUN}.1")
    recorded = records(BEGUN, (2, ended(child)), (3, replace(use(), delegation=f"{RUN}.7")))
    assert spans.fold(recorded) == []


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_name_that_is_used_has_a_meaning_and_every_meaning_a_use() -> None:
    one_, two = make_request(f"{RUN}.2"), make_request(f"{RUN}.2+1", reason="r", capability="C", refined_by="e")
    call = {"at_ms": 6, "ms": 1, "input": 2, "output": 3, "cached": 1, "model": "m-2", "finish": "stop"}
    full = ended(
        two,
        usage=Usage(overrun=1, estimated=True, cost=1),
        confidence=0.5,
        cache="hit",
        capability_version="1",
        path=("a", "b"),
        metadata={"remit.model": {"name": "m", "calls": [call]}},
    )
    root = replace(ROOT, via="north", traceparent=PARENT, remit=replace(ROOT.remit, cost=9))
    recorded = records(
        (1, root),
        *((2, body) for body in SAID),
        (3, use(replayed=True, input="x", revealed=("EMAIL",))),
        (4, one_),
        (5, failed(one_)),
        (6, two),
        (7, full),
        (8, ended(root)),
    )
    folded = Spans("here", lambda name: AgentKind(Role.WORKFLOW), content=True).fold(recorded)
    folded += Spans("here", lambda name: AgentKind(Role.PLANNER), content=True).fold(recorded)
    assert {name for span in folded for name in span.attributes} == {*names.ATTRIBUTES, *names.CONTENT}
    assert {event.name for span in folded for event in span.events} == set(names.EVENTS)
    used = {name for span in folded for event in span.events for name in event.attributes}
    assert used == set(names.EVENT_ATTRIBUTES)
    assert {str(span.attributes[names.OPERATION]) for span in folded} == set(names.OPERATIONS)
