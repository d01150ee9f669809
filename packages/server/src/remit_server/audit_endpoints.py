"""The endpoints of the audit log: its rows, one row with its digest, verification, and export."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from threading import Event
from typing import Annotated, Literal, TypedDict

from msgspec import Struct

from remit.policy.reception import Permission, Sender
from remit.ports import RecordFilter, Store
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Kind, Record, outward
from remit.runtime.audit import AuditFinding, AuditVerdict
from remit.runtime.audit.chain import AuditedChain, KeepsChain
from remit.runtime.signing import Checkpoint
from remit_server.access import OPERATION
from remit_server.bodies import Receive, Scope, Send, headers_of
from remit_server.delegations import Delegations
from remit_server.documents.api import KINDS, ApiOperation, PageQuery, PageSize, Parameter, TimeQuery, parameters_of
from remit_server.documents.common import shown_as
from remit_server.documents.runs import RecordLine, record_line
from remit_server.operations import ApiRequest, answers, get, query_of, refuse_unknown, sends, words_in

# A reader who looks again and again causes no more verifications than this.
RECHECK_MS = 10_000
# Only a verification of the whole record notices that old rows were changed since the last one.
WHOLE_AGAIN_MS = 3_600_000
# Each hundredth row lets the event loop work, so that requests wait for a millisecond and not for five.
PAUSE_S = 0.0005


class VerifiedRecord(Struct, frozen=True, kw_only=True):
    """The result of a verification."""

    ok: bool
    text: str
    """The result in words, as `remit audit verify` prints it."""
    rows: int
    checkpoints: int
    """The number of valid checkpoints."""
    unprotected: int
    """Rows after the last checkpoint. Truncation there would go unnoticed."""
    findings: tuple[AuditFinding, ...]
    """Each place where the record was changed, at most 100."""
    announced: bool
    """Whether all findings are breaks that a hub announced, such as a new key."""
    keys: tuple[str, ...]
    """Public keys that signed it. Compare them with a copy kept elsewhere."""
    removed: int
    """Rows whose texts were removed on purpose, as signed statements in the record say."""
    since: int
    """The row up to which the server verified the record before; 0: all of it was verified now."""
    unchained: int
    """Records of several hubs that are durable and not in the chain yet."""
    at_ms: int
    took_ms: int


class VerificationProgress(Struct, frozen=True, kw_only=True):
    """How far a verification has come."""

    row: int
    of: int
    started_ms: int


class AuditVerification(Struct, frozen=True, kw_only=True):
    """The newest verification of the record, and the one that is running."""

    state: Literal["running", "done", "failed"]
    result: VerifiedRecord | None
    """The last result; None: there is none yet."""
    whole_ms: int | None
    """When the whole record was last verified; None: not since the server started."""
    progress: VerificationProgress | None
    """How far the running verification has come."""
    failure: str = ""
    """Why the last verification could not be done."""


class _Stopped(Exception):
    """The server stops."""


class AuditVerifier:
    """Verifies the record of one store, one verification at a time."""

    def __init__(self, store: Store, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._task: asyncio.Task[None] | None = None
        self._stopped = Event()
        self._row = self._of = self._started_ms = 0
        self._result: VerifiedRecord | None = None
        self._failure = ""
        self._head = -1
        """The newest row at the last verification."""
        self._start: Checkpoint | None = None
        """The checkpoint up to which the record is known to be intact."""
        self._whole_ms: int | None = None

    def chain(self) -> AuditedChain:
        """Return the chain of the store; raise a `RemitError` if the store has none."""
        if not isinstance(self._store, KeepsChain):
            raise RemitError(fault(Code.STORE_UNAVAILABLE, "the store of this hub has no audit chain"))
        return self._store.chain

    async def look(self) -> AuditVerification:
        """Return the newest verification; begin one if the record has grown since."""
        chain = self.chain()
        if not self._is_running() and self._is_due(await self._store.newest()):
            stale = self._whole_ms is None or self._wall_ms() - self._whole_ms > WHOLE_AGAIN_MS
            self._begin(chain, whole=stale)
        return self._state()

    def verify_whole(self) -> AuditVerification:
        """Begin to verify the whole record, unless a verification is running."""
        chain = self.chain()
        if not self._is_running():
            self._begin(chain, whole=True)
        return self._state()

    async def close(self) -> None:
        """Stop a running verification."""
        self._stopped.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _is_due(self, head: int) -> bool:
        if self._result is None:
            return not self._failure or self._wall_ms() - self._started_ms > RECHECK_MS
        return head != self._head and self._wall_ms() - self._result.at_ms > RECHECK_MS

    def _begin(self, chain: AuditedChain, *, whole: bool) -> None:
        start = None if whole else self._start
        self._row, self._of, self._started_ms = start.seq if start else 0, 0, self._wall_ms()
        self._task = asyncio.create_task(self._verify(chain, start))

    async def _verify(self, chain: AuditedChain, start: Checkpoint | None) -> None:
        try:
            self._of = head = await self._store.newest()
            newest = await chain.newest_checkpoint()  # before the rows are read, so that they lead to it
            verdict = await chain.verify(start=start, watch=self._watch)
        except _Stopped:
            return
        except RemitError as error:
            self._failure = error.fault.message
            return
        self._failure, self._head = "", head
        now_ms = self._wall_ms()
        self._result = _result(verdict, start, now_ms, now_ms - self._started_ms)
        if verdict.ok:
            self._start = newest
        if not verdict.since:
            self._whole_ms = now_ms

    def _watch(self, seq: int) -> None:
        if self._stopped.is_set():
            raise _Stopped
        self._row = seq
        time.sleep(PAUSE_S)

    def _state(self) -> AuditVerification:
        running = self._is_running()
        progress = VerificationProgress(row=self._row, of=max(self._of, self._row), started_ms=self._started_ms)
        return AuditVerification(
            state="running" if running else "failed" if self._failure else "done",
            result=self._result,
            whole_ms=self._whole_ms,
            progress=progress if running else None,
            failure="" if running else self._failure,
        )


def _result(verdict: AuditVerdict, start: Checkpoint | None, at_ms: int, took_ms: int) -> VerifiedRecord:
    earlier = start.number if start and verdict.since else 0
    return shown_as(
        VerifiedRecord,
        verdict,
        text=str(verdict),
        rows=verdict.since + verdict.rows,
        checkpoints=earlier + verdict.checkpoints,
        keys=verdict.keys or ((start.key,) if start and verdict.since else ()),
        at_ms=at_ms,
        took_ms=took_ms,
    )


MOST = 1_000
PER_PAGE = 100


class AuditPage(Struct, frozen=True, kw_only=True):
    """A page of the audit log, in order."""

    records: tuple[RecordLine, ...]
    next: int | None = None
    """The value of `after` for the next page; None if there is none yet."""


class FoundRecords(Struct, frozen=True, kw_only=True):
    """A page of records that a filter selects, newest first."""

    records: tuple[RecordLine, ...]
    next: int | None
    """The value of `before` for the next page; None if there is none.

    A page may be short, or empty, although there is a next one: the rows that one request looks at are limited.
    """


class AuditRowView(Struct, frozen=True, kw_only=True):
    """A row of the audit log, and its place in the chain."""

    record: RecordLine | None
    """None: the row was removed on purpose, and its digest is kept."""
    digest: str
    previous: str
    """The digest of the row before it; 64 zeros for the first."""
    checkpoint: int | None
    """The row that the newest checkpoint signs; None: there is no checkpoint yet."""
    is_signed: bool
    """Whether a checkpoint covers this row."""


class RecordQuery(TimeQuery, total=False):
    """Which records are wanted."""

    run: Annotated[str, Parameter(meaning="Only records of this run.")]
    session: Annotated[str, Parameter(meaning="Only records of this conversation.")]
    kind: Annotated[str, Parameter(meaning="Only records of these kinds.", some_of=KINDS)]
    user: Annotated[str, Parameter(meaning="Only records of this user's runs.")]
    agent: Annotated[str, Parameter(meaning="Only records about this agent.")]


class LogQuery(TypedDict, total=False):
    """Which page of the audit log is wanted, the oldest first."""

    after: Annotated[int, Parameter(meaning="Only records after this number.")]
    limit: PageSize
    run: Annotated[str, Parameter(meaning="Only records of this run.")]


_SEQ = Parameter(name="seq", place="path", meaning="The number of the row.")
_VERIFY = ApiOperation(method="POST", path="/v1/audit/verification", name="", summary="", needs=Permission.READ)


class AuditEndpoints:
    """The endpoints of the audit log. All need the permission `read`."""

    def __init__(self, delegations: Delegations, wall_ms: Callable[[], int]) -> None:
        self._delegations = delegations
        self._store = delegations.hub.store
        self.verifier = AuditVerifier(self._store, wall_ms)

    @answers(get("/v1/audit", *parameters_of(LogQuery), needs=Permission.READ))
    async def audit(self, call: ApiRequest) -> AuditPage:
        """The audit log, from its oldest record on."""
        query = call.query(LogQuery)
        limit = min(query.get("limit", MOST), MOST)
        records = await self._store.records(run=query.get("run"), after=query.get("after", 0), limit=limit)
        last = records[-1].seq if len(records) == limit and records else None
        return AuditPage(records=await self._shown(call.sender, records), next=last)

    @answers(get("/v1/audit/search", *parameters_of(PageQuery), *parameters_of(RecordQuery), needs=Permission.READ))
    async def search_audit(self, call: ApiRequest) -> FoundRecords:
        """The records of the audit log that a filter selects, newest first."""
        page, wanted = call.query(PageQuery), _filter(call.query(RecordQuery))
        before, limit = page.get("before") or None, min(page.get("limit", PER_PAGE), MOST)
        records, following = await self._store.listings.records(wanted, before=before, limit=max(limit, 1))
        return FoundRecords(records=await self._shown(call.sender, records), next=following)

    async def _shown(self, sender: Sender, records: list[Record]) -> tuple[RecordLine, ...]:
        """Return the records that a sender may see: an operator of one team sees the runs of that team."""
        if sender.targets is not None:
            seen = await self._delegations.visible_runs(sender, {each.run for each in records}, Permission.READ)
            records = [each for each in records if each.run in seen]
        return tuple(record_line(outward(each)) for each in records)

    @answers(get("/v1/audit/verification", needs=Permission.READ))
    async def verification(self, _: ApiRequest) -> AuditVerification:
        """Whether the audit log is intact.

        The first request verifies the whole log in the background, later ones what was recorded since.
        """
        return await self.verifier.look()

    @answers(_VERIFY)
    async def verify(self, _: ApiRequest) -> AuditVerification:
        """Verify the whole audit log again, in the background."""
        return self.verifier.verify_whole()

    @sends(get("/v1/audit/export", *parameters_of(RecordQuery), media="application/x-ndjson", needs=Permission.READ))
    async def export_audit(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """The audit log as JSON lines.

        The records, one JSON document per line, newest first.
        """
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope, *scope[OPERATION].query)
        wanted = _filter(query_of(scope, RecordQuery))
        await send({"type": "http.response.start", "status": 200, "headers": _EXPORT_HEADERS})
        async for lines in self._lines(sender, wanted):
            await send({"type": "http.response.body", "body": lines, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _lines(self, sender: Sender, wanted: RecordFilter) -> AsyncGenerator[bytes]:
        before: int | None = None
        while True:
            records, before = await self._store.listings.records(wanted, before=before)
            if shown := await self._shown(sender, records):
                yield b"".join(encode(line) + b"\n" for line in shown)
            if before is None:
                return

    # After the others: a number is any part of a path.
    @answers(get("/v1/audit/{seq}", _SEQ, needs=Permission.READ))
    async def audit_row(self, call: ApiRequest) -> AuditRowView:
        """One row of the audit log with its digest."""
        number = call.named("seq")
        seq = int(number) if number.isascii() and number.isdecimal() and len(number) <= 15 else 0
        chain = self.verifier.chain()
        link = await chain.link(seq) if seq else None
        records = [each for each in await self._store.records(after=max(seq, 1) - 1, limit=1) if each.seq == seq]
        shown = await self._shown(call.sender, records)
        if link is None or len(shown) < len(records):
            raise RemitError(fault(Code.NOT_FOUND, f"no row `{number[:100]}` that {call.sender.name} may see"))
        newest = await chain.newest_checkpoint()
        return AuditRowView(
            record=shown[0] if shown else None,
            digest=link.digest,
            previous=link.previous,
            checkpoint=newest.seq if newest else None,
            is_signed=newest is not None and newest.seq >= seq,
        )


_EXPORT_HEADERS = [
    (b"content-type", b"application/x-ndjson"),
    (b"content-disposition", b'attachment; filename="remit-audit.jsonl"'),
    (b"cache-control", b"no-store"),
]


def _filter(query: RecordQuery) -> RecordFilter:
    return RecordFilter(
        run=query.get("run"),
        session=query.get("session"),
        kinds=frozenset(map(Kind, words_in(query.get("kind", "")))) or None,
        user=query.get("user"),
        agent=query.get("agent"),
        since_ms=query.get("since") or None,
        until_ms=query.get("until") or None,
    )
