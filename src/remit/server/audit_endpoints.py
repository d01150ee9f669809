"""The endpoints of the audit log: its rows, one row with its digest, verification, and export."""

from collections.abc import AsyncGenerator, Callable

from msgspec import Struct

from remit.documents.runs import RecordLine, record_line
from remit.policy.reception import Permission, Sender
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Kind, Record, outward
from remit.runtime.ports import RecordFilter
from remit.server.audit_verification import AuditVerifier
from remit.server.bodies import Receive, Scope, Send, headers_of, read_optional_json, send_value
from remit.server.delegations import Delegations
from remit.server.parameters import parameter, refuse_unknown, wrong_parameter

MOST = 1_000
PER_PAGE = 100
_KINDS = [str(kind) for kind in Kind if kind is not Kind.DELTA]
_FILTERS = ("agent", "kind", "run", "session", "since", "until", "user")


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

    async def rows(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/audit`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope, "after", "limit", "run")
        after, limit = parameter(scope, "after", 0), min(parameter(scope, "limit", MOST), MOST)
        run = parameter(scope, "run", "")
        records = await self._store.records(run=run or None, after=after, limit=limit)
        last = records[-1].seq if len(records) == limit and records else None
        await send_value(send, AuditPage(records=await self._shown(sender, records), next=last))

    async def search(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/audit/search`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope, "before", "limit", *_FILTERS)
        before, limit = parameter(scope, "before", 0), min(parameter(scope, "limit", PER_PAGE), MOST)
        wanted = _filter(scope)
        records, following = await self._store.listings.records(wanted, before=before or None, limit=max(limit, 1))
        await send_value(send, FoundRecords(records=await self._shown(sender, records), next=following))

    async def _shown(self, sender: Sender, records: list[Record]) -> tuple[RecordLine, ...]:
        """Return the records that a sender may see: an operator of one team sees the runs of that team."""
        if sender.targets is not None:
            seen = await self._delegations.visible_runs(sender, {each.run for each in records}, Permission.READ)
            records = [each for each in records if each.run in seen]
        return tuple(record_line(outward(each)) for each in records)

    async def row(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/audit/{seq}`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope)
        said: str = scope["path_params"]["seq"]
        seq = int(said) if said.isascii() and said.isdecimal() and len(said) <= 15 else 0
        chain = self.verifier.chain()
        link = await chain.link(seq) if seq else None
        found = [each for each in await self._store.records(after=max(seq, 1) - 1, limit=1) if each.seq == seq]
        shown = await self._shown(sender, found)
        if link is None or len(shown) < len(found):
            raise RemitError(fault(Code.NOT_FOUND, f"no row `{said[:100]}` that {sender.name} may see"))
        newest = await chain.newest_checkpoint()
        view = AuditRowView(
            record=shown[0] if shown else None,
            digest=link.digest,
            previous=link.previous,
            checkpoint=newest.seq if newest else None,
            is_signed=newest is not None and newest.seq >= seq,
        )
        await send_value(send, view)

    async def verification(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET` and `POST /v1/audit/verification`."""
        headers = headers_of(scope)
        await self._delegations.sender(scope, headers)
        refuse_unknown(scope)
        if scope["method"] == "GET":
            await send_value(send, await self.verifier.look())
            return
        await read_optional_json(headers, receive)
        await send_value(send, self.verifier.verify_whole())

    async def export(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/audit/export`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope, *_FILTERS)
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
    kinds = _kinds(parameter(scope, "kind", ""))
    return RecordFilter(
        run=parameter(scope, "run", "") or None,
        session=parameter(scope, "session", "") or None,
        kinds=kinds or None,
        user=parameter(scope, "user", "") or None,
        agent=parameter(scope, "agent", "") or None,
        since_ms=parameter(scope, "since", 0) or None,
        until_ms=parameter(scope, "until", 0) or None,
    )


def _kinds(said: str) -> frozenset[Kind]:
    names = said.split(",") if said else []
    for name in names:
        if name not in _KINDS:
            hint = did_you_mean(name, _KINDS) or f"; known kinds: {', '.join(_KINDS)}"
            raise wrong_parameter("kind", f"unknown kind {name[:100]!r}{hint}")
    return frozenset(map(Kind, names))
