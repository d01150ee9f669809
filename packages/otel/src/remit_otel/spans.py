"""Makes spans from records: one for every delegation, every refusal, every use of a tool and every call of a model.

Ids depend on the record alone, so that another hub, or the same hub after a restart, gives a span the same id.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from remit.protocol.codec import text_of
from remit.protocol.envelope import Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault
from remit.protocol.records import (
    Approval,
    ChainBreak,
    Delta,
    Notice,
    Progress,
    Record,
    Refusal,
    Removal,
    SharedStep,
    ToolUse,
    outcome_in,
    request_in,
)
from remit.protocol.trace import is_sampled, place_of, span_id, trace_id
from remit_otel import names
from remit_otel.span import (
    MAX_TEXT_CHARS,
    Attributes,
    Span,
    SpanEvent,
    SpanKind,
    add_content,
    add_outcome,
    added,
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
        found: dict[str, int] = {}
        begun: set[str] = set()
        for record in records:
            run = record.run
            if run in self._runs or run in begun or run in found or run in self._ended:
                continue
            if _root_of(record) is not None:
                begun.add(run)
            else:
                found[run] = record.seq
        return found

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
        if not run.sampled:
            if outcome_in(record.run, record.body) is not None:
                self._forget(record.run)
            return ()
        match record.body:
            case Request() as request:
                return self._open(run, request, record.at_ms)
            case Response() as response:
                return self._close(run, response, record.at_ms)
            case Refusal(request=request, response=response):
                return self._refuse(run, request, response, record.at_ms)
            case ToolUse() as use:
                return self._use(run, use, record)
            case Progress() | Notice() | Approval() as body:
                self._note(run, body, record.at_ms)
                return ()
            case Delta() | SharedStep() | ChainBreak() | Removal():
                return ()

    def _begin(self, root: Request) -> "_Run":
        place = place_of(root.traceparent)
        run = self._runs[root.run] = _Run(
            root,
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

    def _open(self, run: "_Run", request: Request, at_ms: int) -> Iterator[Span]:
        path, start_ms = request.path, request.created_ms or at_ms
        if (above := run.open.get(request.parent or "")) is not None:
            yield from self._plan(run, above, start_ms)
        if (known := run.open.get(path)) is not None:
            known.request = request  # a person edited it before its start, or it was started again
        else:
            run.open[path] = _Open(request, start_ms, run.early.pop(path, None))

    def _close(self, run: "_Run", response: Response, at_ms: int) -> Iterator[Span]:
        is_root = response.id == run.root.id
        ended = run.open.pop(run.root.run if is_root else response.id, None)
        if ended is not None:
            yield from self._plan(run, ended, at_ms)
            yield from (self._used(run, use._replace(end_ms=at_ms), ended=False) for use in ended.uses)
            yield from self._chats(run, ended, response)
            yield self._span(run, ended, response, at_ms)
            if (above := run.open.get(ended.request.parent or "")) is not None:
                above.below = added(above.below, response.usage)
        if is_root:
            # A delegation that was running when its hub stopped, and was not resumed, has no end of its own.
            yield from (self._span(run, each, None, at_ms) for each in run.open.values())
            self._forget(run.root.run)

    def _refuse(self, run: "_Run", request: Request, response: Response, at_ms: int) -> Iterator[Span]:
        start_ms = request.created_ms or at_ms
        if (above := run.open.get(request.parent or "")) is not None:
            yield from self._plan(run, above, start_ms)
        begun = _Open(request, start_ms, run.early.pop(request.path, None))
        yield self._span(run, begun, response, at_ms, never_began=True)
        if request.parent is None:
            self._forget(request.run)

    def _use(self, run: "_Run", use: ToolUse, record: Record) -> Iterator[Span]:
        user = run.open.get(use.delegation)
        if user is None:
            return
        if use.begun:
            user.uses.append(_Use(use, record.seq, record.at_ms, record.at_ms))
            return
        made = _Use(use, record.seq, record.at_ms - use.duration_ms, record.at_ms)
        same = [each for each in user.uses if each.use.tool == use.tool]
        if same and not use.replayed:
            # The same tool may run several times at once: take the one that began at the same time.
            begun = min(same, key=lambda each: abs(each.start_ms - made.start_ms))
            user.uses.remove(begun)
            made = made._replace(seq=begun.seq, start_ms=begun.start_ms, given=begun.use.input)
        yield self._used(run, made)

    def _note(self, run: "_Run", body: Progress | Notice | Approval, at_ms: int) -> None:
        event = SpanEvent(_EVENTS[type(body)], at_ms * MS, self._said(body))
        about = run.open.get(body.delegation)
        if about is None and isinstance(body, Approval):
            # The delegation starts only if the person agrees.
            run.early.setdefault(body.delegation, deque(maxlen=MAX_EVENTS)).append(event)
            return
        about = about or next((run.open[each] for each in _above(body.delegation) if each in run.open), None)
        if about is not None:
            about.noted += 1
            about.events.append(event)

    # ── one span ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _span(
        self, run: "_Run", begun: "_Open", response: Response | None, at_ms: int, *, never_began: bool = False
    ) -> Span:
        request = begun.request
        target, path, parent, remit = request.target, request.path, request.parent, request.remit
        who = self._describe(target)
        operation = names.INVOKE_WORKFLOW if who.role is Role.WORKFLOW else names.INVOKE_AGENT
        attempt, before = attempt_of(path)
        attributes: Attributes = {
            names.OPERATION: operation,
            names.PROVIDER: "remit",
            names.AGENT_NAME: target,
            names.AGENT_ID: f"{target}@{self._hub}",
            names.CONVERSATION: request.session or path,
            names.RUN: request.run,
            names.DELEGATION: path,
            names.ORIGIN: request.origin,
            names.DEPTH: remit.depth,
            names.CHAIN: remit.chain,
            names.ATTEMPT: attempt,
            names.TOKENS_GRANTED: remit.tokens,
            names.TIME_GRANTED: remit.time_ms,
        }
        if who.role is Role.WORKFLOW:
            attributes[names.WORKFLOW_NAME] = target
        if request.via is not None:
            attributes[names.VIA] = request.via
        if request.capability is not None:
            attributes[names.CAPABILITY] = request.capability
        if request.reason:
            attributes[names.REASON] = request.reason[:MAX_TEXT_CHARS]
        if request.refined_by is not None:
            attributes[names.REFINED_BY] = request.refined_by
        if before in run.failed:
            attributes[names.ROUTE_REASON] = run.failed[before]
        why = response.fault if response is not None else None
        code = why.code.value if why is not None else "" if response is not None else Code.OUTCOME_UNKNOWN.value
        if code:
            attributes[names.ERROR] = run.failed[path] = code
        if response is not None:
            add_outcome(attributes, request, response, begun.below, never_began=never_began)
        if self._content:
            add_content(attributes, request, response)
        above = run.parent if parent is None else span_id(parent)
        return Span(
            trace=run.trace,
            span=span_id(path),
            parent=above,
            parent_elsewhere=parent is None and above is not None,
            name=f"{operation} {target}",
            kind=_kind(request, who, never_began=never_began),
            start_ns=begun.start_ms * MS,
            end_ns=max(begun.start_ms, at_ms) * MS,
            attributes=attributes,
            error=self._worded(why) if why is not None else code or None,
            events=tuple(begun.events),
            lost_events=begun.noted - len(begun.events),
            links=links_of(request, run.trace),
        )

    def _plan(self, run: "_Run", planner: "_Open", at_ms: int) -> Iterator[Span]:
        """Yield the span of an orchestrator's planning, once: it ends with its first delegation, or with its answer."""
        request = planner.request
        if planner.planned or self._describe(request.target).role is not Role.PLANNER:
            return
        planner.planned = True
        yield Span(
            trace=run.trace,
            span=span_id(f"{request.path}#plan"),
            parent=span_id(request.path),
            name=f"{names.PLAN} {request.target}",
            start_ns=planner.start_ms * MS,
            end_ns=max(planner.start_ms, at_ms) * MS,
            attributes=self._within(names.PLAN, request.target, request.run, request.path),
        )

    def _chats(self, run: "_Run", begun: "_Open", response: Response) -> Iterator[Span]:
        """Yield the spans of the calls of a model."""
        request, path = begun.request, begun.request.path
        for number, call in enumerate(calls_of(response)):
            begun.below = added(begun.below, call.usage)
            yield Span(
                trace=run.trace,
                span=span_id(f"{path}#chat{number}"),
                parent=span_id(path),
                name=f"{names.CHAT} {call.model}",
                kind=SpanKind.CLIENT,
                start_ns=call.start_ms * MS,
                end_ns=call.end_ms * MS,
                attributes=self._within(names.CHAT, request.target, request.run, path) | call.attributes,
            )

    def _used(self, run: "_Run", made: "_Use", *, ended: bool = True) -> Span:
        use, given = made.use, made.given if made.given is not None else made.use.input
        attributes = self._within(names.EXECUTE_TOOL, use.agent, run.root.run, use.delegation)
        attributes[names.TOOL_NAME] = use.tool
        attributes[names.TOOL_TYPE] = "function"
        error = self._worded(use.fault) if use.fault is not None else None
        if use.replayed:
            attributes[names.REPLAYED] = True
        if use.revealed:
            attributes[names.REVEALED] = use.revealed
        if use.fault is not None:
            attributes[names.ERROR] = use.fault.code.value
        elif not ended:
            attributes[names.ERROR] = error = Code.OUTCOME_UNKNOWN.value
        if self._content and given is not None:
            attributes[names.TOOL_ARGUMENTS] = text_of(given)[:MAX_TEXT_CHARS]
        return Span(
            trace=run.trace,
            span=span_id(f"{use.delegation}#{made.seq}"),
            parent=span_id(use.delegation),
            name=f"{names.EXECUTE_TOOL} {use.tool}",
            start_ns=made.start_ms * MS,
            end_ns=max(made.start_ms, made.end_ms) * MS,
            attributes=attributes,
            error=error,
        )

    def _within(self, operation: str, agent: str, run: str, path: str) -> Attributes:
        return {
            names.OPERATION: operation,
            names.PROVIDER: "remit",
            names.AGENT_NAME: agent,
            names.AGENT_ID: f"{agent}@{self._hub}",
            names.RUN: run,
            names.DELEGATION: path,
        }

    def _said(self, body: Progress | Notice | Approval) -> Attributes:
        said: Attributes = {}
        match body:
            case Progress(text=text):
                pass
            case Notice(text=text, code=code):
                if code is not None:
                    said[names.CODE] = code.value
            case Approval(agreed=agreed, edited=edited, by=by):
                text = body.question if agreed is None else body.reason
                if agreed is not None:
                    said[names.AGREED] = agreed
                if edited:
                    said[names.EDITED] = edited
                if self._content and by:
                    said[names.BY] = by
        if self._content and text:
            said[names.TEXT] = text[:MAX_TEXT_CHARS]
        return said

    def _worded(self, why: Fault) -> str:
        # The message of a fault may quote content.
        return f"{why.code}: {why.message[:MAX_TEXT_CHARS]}" if self._content else why.code.value


_EVENTS = {Progress: names.PROGRESS, Notice: names.NOTICE, Approval: names.APPROVAL}


class _Use(NamedTuple):
    """A use of a tool; its input may be in the record of its start alone."""

    use: ToolUse
    seq: int
    start_ms: int
    end_ms: int
    given: Json = None


class _Open:
    """A running delegation."""

    __slots__ = ("below", "events", "noted", "planned", "request", "start_ms", "uses")

    def __init__(self, request: Request, start_ms: int, early: deque[SpanEvent] | None) -> None:
        self.request = request
        self.events: deque[SpanEvent] = deque(maxlen=MAX_EVENTS) if early is None else early
        self.noted = len(self.events)
        """Number of events, including those beyond the limit."""
        # If a person had to approve it first, the span includes that time.
        self.start_ms = min(start_ms, self.events[0].at_ns // MS) if self.events else start_ms
        self.uses: list[_Use] = []  # running tools whose start was recorded
        self.planned = False
        self.below = Usage()
        """What the spans below it have spent."""


class _Run:
    """A running run, and its place in a trace."""

    __slots__ = ("early", "failed", "open", "parent", "root", "sampled", "trace")

    def __init__(self, root: Request, trace: str, parent: str | None, sampled: bool) -> None:
        self.root = root
        self.trace = trace
        self.parent = parent
        self.sampled = sampled
        self.open: dict[str, _Open] = {}
        self.early: dict[str, deque[SpanEvent]] = {}
        """Events of delegations that have not started."""
        self.failed: dict[str | None, str] = {}
        """Codes of failed delegations: the reason why another agent was called instead."""


def _root_of(record: Record) -> Request | None:
    """Return the root request of a run, if this is its record."""
    request = request_in(record.body)
    return request if request is not None and request.parent is None else None


def _kind(request: Request, who: AgentKind, *, never_began: bool) -> SpanKind:
    if request.parent is None and request.via is not None:
        return SpanKind.SERVER
    # A refused request has not left this hub.
    return SpanKind.CLIENT if who.elsewhere and not never_began else SpanKind.INTERNAL


def _above(path: str) -> Iterator[str]:
    """Yield the paths of the ancestors, nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
