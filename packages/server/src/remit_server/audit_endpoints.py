"""The endpoints of the audit log: its rows, one row with its digest, verification, and export."""

from collections.abc import AsyncGenerator, Callable

from msgspec import Struct

from remit.policy.reception import Permission, Sender
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Kind, Record, outward
from remit.runtime.ports import RecordFilter
from remit_server.access import OPERATION
from remit_server.audit_verification import AuditVerification, AuditVerifier
from remit_server.bodies import Receive, Scope, Send, headers_of
from remit_server.delegations import Delegations
from remit_server.documents.api import KINDS
from remit_server.documents.runs import RecordLine, record_line
from remit_server.operations import ApiRequest
from remit_server.parameters import parameter, refuse_unknown, words_of

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


class AuditEndpoints:
    """The endpoints of the audit log. All need the permission `read`."""

    def __init__(self, delegations: Delegations, wall_ms: Callable[[], int]) -> None:
        self._delegations = delegations
        self._store = delegations.hub.store
        self.verifier = AuditVerifier(self._store, wall_ms)

    async def rows(self, call: ApiRequest) -> AuditPage:
        """`GET /v1/audit`."""
        scope = call.scope
        after, limit = parameter(scope, "after", 0), min(parameter(scope, "limit", MOST), MOST)
        run = parameter(scope, "run", "")
        records = await self._store.records(run=run or None, after=after, limit=limit)
        last = records[-1].seq if len(records) == limit and records else None
        return AuditPage(records=await self._shown(call.sender, records), next=last)

    async def search(self, call: ApiRequest) -> FoundRecords:
        """`GET /v1/audit/search`."""
        scope = call.scope
        before, limit = parameter(scope, "before", 0), min(parameter(scope, "limit", PER_PAGE), MOST)
        wanted = _filter(scope)
        records, following = await self._store.listings.records(wanted, before=before or None, limit=max(limit, 1))
        return FoundRecords(records=await self._shown(call.sender, records), next=following)

    async def _shown(self, sender: Sender, records: list[Record]) -> tuple[RecordLine, ...]:
        """Return the records that a sender may see: an operator of one team sees the runs of that team."""
        if sender.targets is not None:
            seen = await self._delegations.visible_runs(sender, {each.run for each in records}, Permission.READ)
            records = [each for each in records if each.run in seen]
        return tuple(record_line(outward(each)) for each in records)

    async def row(self, call: ApiRequest) -> AuditRowView:
        """`GET /v1/audit/{seq}`."""
        said = call.named("seq")
        seq = int(said) if said.isascii() and said.isdecimal() and len(said) <= 15 else 0
        chain = self.verifier.chain()
        link = await chain.link(seq) if seq else None
        found = [each for each in await self._store.records(after=max(seq, 1) - 1, limit=1) if each.seq == seq]
        shown = await self._shown(call.sender, found)
        if link is None or len(shown) < len(found):
            raise RemitError(fault(Code.NOT_FOUND, f"no row `{said[:100]}` that {call.sender.name} may see"))
        newest = await chain.newest_checkpoint()
        return AuditRowView(
            record=shown[0] if shown else None,
            digest=link.digest,
            previous=link.previous,
            checkpoint=newest.seq if newest else None,
            is_signed=newest is not None and newest.seq >= seq,
        )

    async def verification(self, _: ApiRequest) -> AuditVerification:
        """`GET /v1/audit/verification`."""
        return await self.verifier.look()

    async def verify(self, _: ApiRequest) -> AuditVerification:
        """`POST /v1/audit/verification`."""
        return self.verifier.verify_whole()

    async def export(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/audit/export`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope, *scope[OPERATION].query)
        wanted = _filter(scope)
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


_EXPORT_HEADERS = [
    (b"content-type", b"application/x-ndjson"),
    (b"content-disposition", b'attachment; filename="remit-audit.jsonl"'),
    (b"cache-control", b"no-store"),
]


def _filter(scope: Scope) -> RecordFilter:
    return RecordFilter(
        run=parameter(scope, "run", "") or None,
        session=parameter(scope, "session", "") or None,
        kinds=frozenset(map(Kind, words_of(scope, "kind", KINDS))) or None,
        user=parameter(scope, "user", "") or None,
        agent=parameter(scope, "agent", "") or None,
        since_ms=parameter(scope, "since", 0) or None,
        until_ms=parameter(scope, "until", 0) or None,
    )
