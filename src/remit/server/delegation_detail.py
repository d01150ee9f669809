"""Puts together what the record shows of one delegation."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from remit.policy.redaction import kind_of
from remit.protocol.envelope import Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.records import Approval, Notice, Progress, Record, Refusal, ToolUse, outward
from remit.runtime.audit.stored_chain import KeepsChain
from remit.runtime.engine import Engine
from remit.runtime.recorded_verdicts import RecordedCase, recorded_verdicts
from remit.runtime.run_index import IndexedDelegation, RunIndex
from remit.server.delegation_views import (
    ApprovalView,
    AuditedRow,
    AuditedRows,
    BreakerThen,
    CallBelow,
    CarvedTime,
    CarvedTokens,
    DelegationDetail,
    OutcomeBefore,
    RemitView,
    SaidView,
    ToolUseView,
)
from remit.server.shown_views import ShownCase, redaction_tokens, shown_to
from remit.server.team_policy import TeamPolicy

# An operator looks at a few runs at a time; the index of a run with 10,000 delegations takes some 10 MB.
MOST_INDEXES = 4
# Each is read by itself; a delegation that reports more often is read in the audit log.
MOST_ROWS = 200
# The records before a request in which earlier outcomes of its callee are looked for, and how many are shown.
LOOK_BACK = 500
MOST_OUTCOMES = 10
# Rows whose digests are checked while a person waits: about 0.2 s.
MOST_AUDITED = 20_000


class DelegationDetails:
    """Reads delegations from the record. The runs that were read last are kept as indexes, without texts."""

    def __init__(self, hub: Engine, policy: TeamPolicy) -> None:
        self._hub = hub
        self._policy = policy
        self._indexes: OrderedDict[str, RunIndex] = OrderedDict()

    async def read(self, run: str, path: str, *, others: bool) -> DelegationDetail | None:
        """Return a delegation, or None if the run has none of that path.

        With *others* the reader may also read what was said in other runs of the same conversation.
        """
        index = await self._index(run)
        entry = index.of.get(path)
        if entry is None:
            entry, records = await self._waiting(index, run, path)
        else:
            records = await self._records(run, entry)
        if entry is None:
            return None
        return await self._detail(index, entry, records, others=others)

    async def _index(self, run: str) -> RunIndex:
        index = self._indexes.setdefault(run, RunIndex())
        self._indexes.move_to_end(run)
        if len(self._indexes) > MOST_INDEXES:
            self._indexes.popitem(last=False)
        store = self._hub.store
        await store.flush()
        while page := await store.records(run=run, after=index.last_seq):
            index.add(page)
        return index

    async def _records(self, run: str, entry: IndexedDelegation) -> list[Record]:
        """Return the records of a delegation: its request, its end, and as many others as are shown."""
        others = [seq for seq in entry.seqs if seq not in (entry.asked_seq, entry.ended_seq)]
        wanted = {entry.asked_seq, entry.ended_seq or entry.asked_seq, *others[-MOST_ROWS:]}
        found: list[Record] = []
        for seq in sorted(wanted):
            page = await self._hub.store.records(run=run, after=seq - 1, limit=1)
            found += [record for record in page if record.seq == seq]
        return found

    async def _waiting(self, index: RunIndex, run: str, path: str) -> tuple[IndexedDelegation | None, list[Record]]:
        """Return a call that waits for a person and so is not recorded as a request yet."""
        for question in await self._hub.pending():
            if question.request.path == path and question.request.run == run:
                entry = index.pending(question.request, question.asked_ms)
                return entry, await self._records(run, entry)
        return None, []

    async def _request_at(self, run: str, index: RunIndex, path: str | None) -> Request | None:
        entry = index.of.get(path) if path is not None else None
        if entry is None:
            return None
        for record in await self._hub.store.records(run=run, after=entry.asked_seq - 1, limit=1):
            return _request_in(record)
        return None

    async def _detail(
        self, index: RunIndex, entry: IndexedDelegation, records: Sequence[Record], *, others: bool
    ) -> DelegationDetail | None:
        hub, run = self._hub, entry.run
        request = entry.request or _first_request(records)
        if request is None:
            return None  # removed since it was indexed
        response = _first_response(records)
        fault = response.fault if response is not None and entry.refused is not None else None
        caller = await self._request_at(run, index, entry.parent)
        above = [await self._request_at(run, index, each.path) for each in index.above(entry)]
        lineage = [each for each in above if each is not None]
        shown, kept = await shown_to(
            hub,
            ShownCase(
                request=request,
                seq=entry.first_seq,
                at_ms=entry.asked_ms,
                caller=caller,
                filters=[each.context for each in (request, *lineage)],
                callers=[each.origin for each in (request, *lineage)],
                others=others,
            ),
        )
        approvals = [each for each in records if isinstance(each.body, Approval)]
        cards = hub.cards
        verdicts = recorded_verdicts(
            RecordedCase(
                request=request,
                entry=entry,
                run=index,
                limits=hub.settings.limits,
                guards=hub.settings.guards,
                card=cards.get(request.target),
                caller=cards.get(request.origin),
                parent=caller,
                fault=fault,
                approvals=[each.body for each in approvals if isinstance(each.body, Approval)],
                tokens=[kind_of(token) for _, token in redaction_tokens(request)],
            )
        )
        breaker = next(each for each in verdicts if each.guard == "breaker")
        rows = [each for each in records if each.seq]
        return DelegationDetail(
            run=run,
            path=entry.path,
            id=request.id,
            parent=entry.parent,
            state=_state(entry, approvals),
            origin=request.origin,
            target=request.target,
            user=request.remit.user,
            capability=request.capability,
            session=request.session,
            parent_session=request.parent_session,
            correlation=request.correlation,
            via=request.via,
            retry_of=request.retry_of,
            asked_ms=entry.asked_ms,
            ended_ms=entry.ended_ms,
            remit=_remit(index, entry, request, caller, response),
            shown=shown,
            held_back=kept,
            verdicts=verdicts,
            breaker=await self._breaker(entry, breaker.verdict, breaker.says, fault),
            response=None if response is None else response.outward(),
            advice=tuple(self._policy.advise(response.fault, request)) if response and response.fault else (),
            calls=tuple(map(_below, index.children(entry.path))),
            said=tuple(_said(records)),
            tools=tuple(_tool_uses(records)),
            approvals=tuple(_approvals(approvals)),
            audit=await self._audited(rows),
            left_out=len(entry.seqs) - len(rows),
        )

    async def _audited(self, records: Sequence[Record]) -> AuditedRows:
        """Return the rows of a delegation, with the verdict on the part of the record from its first to its last."""
        store, seqs = self._hub.store, [each.seq for each in records]
        intact: dict[int, bool] = {}
        says = "The hash chain of these rows was not checked."
        if seqs and isinstance(store, KeepsChain) and seqs[-1] - seqs[0] < MOST_AUDITED:
            intact = await store.chain.intact(seqs[0], seqs[-1])
            broken = [seq for seq, is_intact in intact.items() if not is_intact]
            where = f"rows {seqs[0]:,} to {seqs[-1]:,} of the record"
            says = f"Each of {where} follows from the row before it in the hash chain."
            if broken:
                says = f"Of {where}, row {broken[0]:,} does not follow from the row before it: the record was changed."
        elif seqs and isinstance(store, KeepsChain):
            says = "Too many rows lie between its first and its last one; the page Audit verifies the whole record."
        return AuditedRows(
            rows=tuple(
                AuditedRow(seq=each.seq, kind=each.kind, at_ms=each.at_ms, intact=intact.get(each.seq))
                for each in records
            ),
            intact=all(intact.values()) if intact else None,
            says=says,
        )

    async def _breaker(self, entry: IndexedDelegation, verdict: str, says: str, fault: Fault | None) -> BreakerThen:
        state: Literal["closed", "probing", "open", "not_asked"] = "closed"
        if verdict == "refuse":
            state, says = "open", f"open: {entry.target} had failed too often"
        elif verdict in ("not_asked", "unknown"):
            state, says = "not_asked", "the request was refused before the breaker was asked"
        elif entry.is_probe:
            state = "probing"
        before: list[OutcomeBefore] = []
        for record in await self._hub.store.records(after=max(0, entry.first_seq - LOOK_BACK - 1), limit=LOOK_BACK):
            match record.body:
                case Response(target=entry.target) as ended if record.seq < entry.first_seq:
                    code = ended.fault.code if ended.fault is not None else None
                    before.append(
                        OutcomeBefore(run=record.run, path=ended.id, at_ms=record.at_ms, status=ended.status, code=code)
                    )
                case _:
                    pass
        return BreakerThen(
            state=state,
            says=says,
            retry_after_ms=fault.retry_after_ms if fault is not None and state == "open" else None,
            before=tuple(reversed(before[-MOST_OUTCOMES:])),
        )


def _request_in(record: Record) -> Request | None:
    match record.body:
        case Request() as request:
            return request
        case Refusal(request=request):
            return request
        case _:
            return None


def _first_request(records: Sequence[Record]) -> Request | None:
    return next((request for each in records if (request := _request_in(each)) is not None), None)


def _first_response(records: Sequence[Record]) -> Response | None:
    return next((response for each in records if (response := _response_in(each)) is not None), None)


def _response_in(record: Record) -> Response | None:
    match record.body:
        case Response() as response:
            return response
        case Refusal(response=response):
            return response
        case _:
            return None


def _state(entry: IndexedDelegation, approvals: Sequence[Record]) -> str:
    if entry.status is not None:
        return str(entry.status)
    if entry.request is not None:
        return "asking"
    asked = approvals[-1].body if approvals else None
    return "asking" if isinstance(asked, Approval) and asked.agreed is None else "running"


def _remit(
    index: RunIndex, entry: IndexedDelegation, request: Request, caller: Request | None, response: Response | None
) -> RemitView:
    remit, usage = request.remit, response.usage if response is not None else Usage()
    below = [*index.children(entry.path)]
    used_below = sum(each.used if each.status is not None else each.tokens for each in below)
    left, time_left = None, None
    if caller is not None:
        beside = [each for each in index.beside(entry) if each.refused is None]
        held = sum(each.tokens if each.is_open_at(entry.first_seq) else each.used for each in beside)
        left = max(0, caller.remit.tokens - held)
        above = index.of.get(entry.parent or "")
        time_left = max(0, caller.remit.time_ms - (entry.asked_ms - above.asked_ms)) if above is not None else None
    return RemitView(
        tokens=CarvedTokens(
            caller=None if caller is None else caller.remit.tokens,
            left_before=left,
            granted=remit.tokens,
            used=None if response is None else usage.total,
            own=None if response is None else max(0, usage.total - sum(each.used for each in below)),
            below=used_below,
            given_back=None if response is None else max(0, remit.tokens - usage.total),
            overrun=usage.overrun,
        ),
        time_ms=CarvedTime(
            caller=None if caller is None else caller.remit.time_ms,
            left_before=time_left,
            granted=remit.time_ms,
            used=None if response is None else response.duration_ms,
            queued=0 if response is None else response.queued_ms,
            asked=0 if response is None else response.waited_ms,
        ),
        depth=remit.depth,
        max_depth=remit.max_depth,
        chain=remit.chain,
        context_tokens=remit.context_tokens,
        tools=None if remit.tools is None else tuple(sorted(remit.tools)),
        targets=None if remit.targets is None else tuple(sorted(remit.targets)),
        may_delegate=remit.may_delegate,
        priority=remit.priority,
    )


def _below(entry: IndexedDelegation) -> CallBelow:
    return CallBelow(
        path=entry.path,
        target=entry.target,
        tokens=entry.tokens,
        used=entry.used,
        status=entry.status,
        code=entry.refused,
    )


def _said(records: Sequence[Record]) -> Iterator[SaidView]:
    for record in records:
        match record.body:
            case Progress(text=text):
                yield SaidView(seq=record.seq, at_ms=record.at_ms, kind="progress", text=text)
            case Notice(text=text, code=code):
                yield SaidView(seq=record.seq, at_ms=record.at_ms, kind="notice", text=text, code=code)
            case _:
                pass


def _tool_uses(records: Sequence[Record]) -> Iterator[ToolUseView]:
    for record in records:
        match outward(record).body:
            case ToolUse(begun=False) as use:
                yield ToolUseView(
                    seq=record.seq,
                    at_ms=record.at_ms,
                    tool=use.tool,
                    input=use.input,
                    duration_ms=use.duration_ms,
                    replayed=use.replayed,
                    revealed=use.revealed,
                    fault=use.fault,
                )
            case _:
                pass


class _Asked(NamedTuple):
    at_ms: int
    body: Approval


def _approvals(records: Sequence[Record]) -> Iterator[ApprovalView]:
    """Yield the questions about a delegation, each with its answer."""
    asked: dict[str, _Asked] = {}
    answered: dict[str, _Asked] = {}
    for record in records:
        if isinstance(body := record.body, Approval):
            (asked if body.agreed is None else answered).setdefault(body.id, _Asked(record.at_ms, body))
    for id, question in {**answered, **asked}.items():
        answer = answered.get(id)
        decided = answer.body if answer is not None else question.body
        yield ApprovalView(
            id=id,
            question=question.body.question,
            asked_ms=question.at_ms,
            answered_ms=None if answer is None else answer.at_ms,
            agreed=decided.agreed,
            by=decided.by,
            reason=decided.reason,
            edited=decided.edited,
        )
