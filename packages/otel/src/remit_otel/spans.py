"""Makes spans from records: one for every delegation, every refusal, every use of a tool and every call of a model.

Ids depend on the record alone, so that another hub, or the same hub after a restart, gives a span the same id.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from remit.protocol.codec import text_of
from remit.protocol.envelope import Request, Response, Usage
from remit.protocol.errors import Code, Fault
from remit.protocol.records import (
    Approval,
    Notice,
    Progress,
    Record,
    Refusal,
    ToolUse,
    outcome_in,
    request_in,
)
from remit.protocol.trace import is_sampled, place_of, span_id, trace_id
from remit.runtime.run_tree import Node, ToolRun, Tree
from remit_otel import names
from remit_otel.span import (
    MAX_TEXT_CHARS,
    Attributes,
    ModelCall,
    Span,
    SpanEvent,
    SpanKind,
    add_content,
    add_outcome,
    attempt_of,
    calls_of,
    links_of,
)

MS = 1_000_000
"""Nanoseconds in a millisecond: records have milliseconds, spans have nanoseconds."""

# OpenTelemetry's own limit for the events of a span.
MAX_EVENTS = 128
# Runs may wait for a person for days; one that was dropped is read from the store when it continues.
MAX_RUNS = 10_000
# Ended runs to remember: a record that arrives after the end of its run arrives soon after it.
MAX_ENDED = 1_000


class Role(Enum):
    """The kind of an agent, which its spans are named after."""

    AGENT = "agent"
    WORKFLOW = "workflow"
    PLANNER = "planner"


class AgentKind(NamedTuple):
    """Properties of an agent that its spans depend on."""

    role: Role = Role.AGENT
    elsewhere: bool = False
    """Whether it runs on another hub."""


_SOMEONE = AgentKind()


class Spans:
    """Makes spans of records, in the order in which they were committed, without a clock or a store.

    *describe* returns the properties of an agent; *content* adds texts to the spans; *ratio* is the share of the runs
    started here that is sampled. For a run that came from elsewhere, its sender has decided.
    """

    def __init__(
        self,
        hub: str,
        describe: Callable[[str], AgentKind] = lambda _: _SOMEONE,
        *,
        content: bool = False,
        ratio: float = 1.0,
    ) -> None:
        self._hub = hub
        self._describe = describe
        self._content = content
        self._ratio = ratio
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def unknown(self, records: Iterable[Record]) -> dict[str, int]:
        """Return the runs in these records that have no known start, each with the number of its first record."""
        first_seqs: dict[str, int] = {}
        begun: set[str] = set()
        for record in records:
            run = record.run
            if run in self._runs or run in begun or run in first_seqs or run in self._ended:
                continue
            if _root_of(record) is not None:
                begun.add(run)
            else:
                first_seqs[run] = record.seq
        return first_seqs

    def recall(self, run: str, records: Iterable[Record]) -> None:
        """Process the earlier records of an unknown run, without the spans that they complete."""
        self.fold(records)
        if run not in self._runs:
            self._forget(run)  # without its start its spans would have no parent

    def fold(self, records: Iterable[Record]) -> list[Span]:
        """Return the spans that these records complete."""
        return [span for record in records for span in self._take(record)]

    # ── one record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, record: Record) -> Iterable[Span]:
        run = self._runs.get(record.run)
        if run is None:
            root = _root_of(record)
            if root is None:
                return ()
            run = self._begin(root)
        if run.sampled:
            return self._follow(run, record)
        if outcome_in(record.run, record.body) is not None:
            self._forget(record.run)
        return ()

    def _begin(self, root: Request) -> "_Run":
        place = place_of(root.traceparent)
        run = self._runs[root.run] = _Run(
            trace_id(root.run, root.traceparent),
            None if place is None else place.span,
            is_sampled(root.run, root.traceparent, self._ratio),
        )
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return run

    def _forget(self, run: str) -> None:
        self._runs.pop(run, None)
        self._ended[run] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def _follow(self, run: "_Run", record: Record) -> Iterator[Span]:
        node = run.tree.feed(record)
        match record.body:
            case Request() as request:
                yield from self._plan(run, node.parent, request.created_ms or record.at_ms)
            case Response() as response if node.response is response:
                yield from self._end(run, node, record)
            case Refusal(request=request):
                yield from self._plan(run, node.parent, request.created_ms or record.at_ms)
                yield from self._end(run, node, record)
            case ToolUse(begun=False) if node.last_tool is not None and _is_open(node):
                yield self._tool(run, node.last_tool)
            case Progress() | Notice() | Approval() as body:
                self._note(run, node, body, record.at_ms)
            case _:
                pass

    def _end(self, run: "_Run", node: Node, record: Record) -> Iterator[Span]:
        if node.request is not None and node.response is not None:
            calls = calls_of(node.response)
            if not node.is_refused:
                yield from self._plan(run, node, record.at_ms)
                yield from (self._tool(run, each._replace(ended_ms=record.at_ms)) for each in node.running_tools)
                yield from (self._chat(run, node.request, number, call) for number, call in enumerate(calls))
            own = node.own.beyond(sum((call.usage for call in calls), Usage()))
            yield self._span(run, node, node.request, own, record.at_ms)
        if node.parent is None:
            # A delegation that was running when its hub stopped, and was not resumed, has no end of its own.
            for each in run.tree.nodes.values():
                if each.lost and each.request is not None:
                    yield self._span(run, each, each.request, each.own, record.at_ms)
            self._forget(record.run)
        elif node.fault is None:  # the next attempt says what was wrong with this one
            run.tree.forget(node)

    def _note(self, run: "_Run", node: Node, body: Progress | Notice | Approval, at_ms: int) -> None:
        """Add an event to the delegation that it is about, else to the nearest running one above it.

        If a person is asked, the delegation starts only if they agree.
        """
        is_early = isinstance(body, Approval) and node.request is None
        owner = node if is_early else next((each for each in node.lineage() if _is_open(each)), None)
        if owner is not None:
            events = run.events.setdefault(owner.path, _Events())
            events.append(SpanEvent(_EVENTS[type(body)], at_ms * MS, self._event_attributes(body)))

    # ── one span ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _span(self, run: "_Run", node: Node, request: Request, own: Usage, at_ms: int) -> Span:
        target, path, parent, remit = request.target, request.path, request.parent, request.remit
        callee = self._describe(target)
        operation = names.INVOKE_WORKFLOW if callee.role is Role.WORKFLOW else names.INVOKE_AGENT
        attempt, before = attempt_of(path)
        attributes: Attributes = self._within(operation, target, request.run, path) | {
            names.CONVERSATION: request.session or path,
            names.ORIGIN: request.origin,
            names.DEPTH: remit.depth,
            names.CHAIN: remit.chain,
            names.ATTEMPT: attempt,
            names.TOKENS_GRANTED: remit.tokens,
            names.TIME_GRANTED: remit.time_ms,
        }
        if callee.role is Role.WORKFLOW:
            attributes[names.WORKFLOW_NAME] = target
        if remit.cost is not None:
            attributes[names.COST_GRANTED] = remit.cost
        if request.via is not None:
            attributes[names.VIA] = request.via
        if request.capability is not None:
            attributes[names.CAPABILITY] = request.capability
        if request.reason:
            attributes[names.REASON] = request.reason[:MAX_TEXT_CHARS]
        if request.refined_by is not None:
            attributes[names.REFINED_BY] = request.refined_by
        previous = run.tree.nodes.get(before) if before is not None else None
        if previous is not None and previous.fault is not None:
            attributes[names.ROUTE_REASON] = previous.fault.code.value
        error = self._error(attributes, node.fault, is_known=node.response is not None)
        if node.response is not None:
            add_outcome(attributes, request, node.response, own, never_began=node.is_refused)
        if self._content:
            add_content(attributes, request, node.response)
        above = run.parent if parent is None else span_id(parent)
        events = run.events.pop(path, _NONE)
        start_ms = _start_ms(node, request)
        return Span(
            trace=run.trace,
            span=span_id(path),
            parent=above,
            parent_elsewhere=parent is None and above is not None,
            name=f"{operation} {target}",
            kind=_kind(request, callee, never_began=node.is_refused),
            start_ns=start_ms * MS,
            end_ns=max(start_ms, at_ms) * MS,
            attributes=attributes,
            error=error,
            events=tuple(events.newest),
            lost_events=events.count - len(events.newest),
            links=links_of(request, run.trace),
        )

    def _plan(self, run: "_Run", planner: Node | None, at_ms: int) -> Iterator[Span]:
        """Yield the span of an orchestrator's planning, once: it ends with its first delegation, or with its answer."""
        if planner is None or planner.request is None or planner.path in run.planned:
            return
        request = planner.request
        if self._describe(request.target).role is Role.PLANNER:
            run.planned.add(planner.path)
            start_ms = _start_ms(planner, request)
            yield Span(
                trace=run.trace,
                span=span_id(f"{request.path}#plan"),
                parent=span_id(request.path),
                name=f"{names.PLAN} {request.target}",
                start_ns=start_ms * MS,
                end_ns=max(start_ms, at_ms) * MS,
                attributes=self._within(names.PLAN, request.target, request.run, request.path),
            )

    def _chat(self, run: "_Run", request: Request, number: int, call: ModelCall) -> Span:
        path = request.path
        return Span(
            trace=run.trace,
            span=span_id(f"{path}#chat{number}"),
            parent=span_id(path),
            name=f"{names.CHAT} {call.model}",
            kind=SpanKind.CLIENT,
            start_ns=call.start_ms * MS,
            end_ns=call.end_ms * MS,
            attributes=self._within(names.CHAT, request.target, request.run, path) | call.attributes,
        )

    def _tool(self, run: "_Run", tool: ToolRun) -> Span:
        use = tool.use
        attributes = self._within(names.EXECUTE_TOOL, use.agent, use.delegation.partition(".")[0], use.delegation)
        attributes[names.TOOL_NAME] = use.tool
        attributes[names.TOOL_TYPE] = "function"
        if use.replayed:
            attributes[names.REPLAYED] = True
        if use.revealed:
            attributes[names.REVEALED] = use.revealed
        error = self._error(attributes, use.fault, is_known=not use.begun)
        if self._content and tool.input is not None:
            attributes[names.TOOL_ARGUMENTS] = text_of(tool.input)[:MAX_TEXT_CHARS]
        return Span(
            trace=run.trace,
            span=span_id(f"{use.delegation}#{tool.seq}"),
            parent=span_id(use.delegation),
            name=f"{names.EXECUTE_TOOL} {use.tool}",
            start_ns=tool.begun_ms * MS,
            end_ns=max(tool.begun_ms, tool.ended_ms or 0) * MS,
            attributes=attributes,
            error=error,
        )

    def _error(self, attributes: Attributes, fault: Fault | None, *, is_known: bool) -> str | None:
        """Add the code of a failure, and return its text; an end that was not recorded is one, too."""
        if fault is None and is_known:
            return None
        code = fault.code if fault is not None else Code.OUTCOME_UNKNOWN
        attributes[names.ERROR] = code.value
        # The message of a fault may quote content.
        return f"{code}: {fault.message[:MAX_TEXT_CHARS]}" if self._content and fault is not None else code.value

    def _within(self, operation: str, agent: str, run: str, path: str) -> Attributes:
        return {
            names.OPERATION: operation,
            names.PROVIDER: "remit",
            names.AGENT_NAME: agent,
            names.AGENT_ID: f"{agent}@{self._hub}",
            names.RUN: run,
            names.DELEGATION: path,
        }

    def _event_attributes(self, body: Progress | Notice | Approval) -> Attributes:
        attributes: Attributes = {}
        match body:
            case Progress(text=text):
                pass
            case Notice(text=text, code=code):
                if code is not None:
                    attributes[names.CODE] = code.value
            case Approval(agreed=agreed, edited=edited, by=by):
                text = body.question if agreed is None else body.reason
                if agreed is not None:
                    attributes[names.AGREED] = agreed
                if edited:
                    attributes[names.EDITED] = edited
                if self._content and by:
                    attributes[names.BY] = by
        if self._content and text:
            attributes[names.TEXT] = text[:MAX_TEXT_CHARS]
        return attributes


_EVENTS = {Progress: names.PROGRESS, Notice: names.NOTICE, Approval: names.APPROVAL}


class _Events:
    """The newest events of a delegation, and how many there were."""

    def __init__(self) -> None:
        self.newest: deque[SpanEvent] = deque(maxlen=MAX_EVENTS)
        self.count = 0

    def append(self, event: SpanEvent) -> None:
        self.newest.append(event)
        self.count += 1


_NONE = _Events()


class _Run:
    """A running run, its place in a trace, and what its spans need besides its tree."""

    def __init__(self, trace: str, parent: str | None, sampled: bool) -> None:
        self.trace = trace
        self.parent = parent
        self.sampled = sampled
        self.tree = Tree()
        self.events: dict[str, _Events] = {}
        self.planned: set[str] = set()
        """Orchestrators whose planning has ended."""


def _root_of(record: Record) -> Request | None:
    """Return the root request of a run, if this is its record."""
    request = request_in(record.body)
    return request if request is not None and request.parent is None else None


def _kind(request: Request, who: AgentKind, *, never_began: bool) -> SpanKind:
    if request.parent is None and request.via is not None:
        return SpanKind.SERVER
    # A refused request has not left this hub.
    return SpanKind.CLIENT if who.elsewhere and not never_began else SpanKind.INTERNAL


def _is_open(node: Node) -> bool:
    return node.request is not None and node.response is None


def _start_ms(node: Node, request: Request) -> int:
    # If a person had to approve it first, the span includes that time.
    return min(node.known_ms, request.created_ms or node.known_ms)
