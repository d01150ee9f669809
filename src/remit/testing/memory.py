"""A store that forgets when the process ends, for tests."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Body, Kind, Record
from remit.runtime.ports import Accepted, Expired, Known, Owner, RunSummary, StoreError, unknown_outcome

Listener = Callable[[list[Record]], None]


class _Submitted(Struct, kw_only=True):
    """A request and how far it is."""

    request: Request
    digest: bytes
    started_ms: int
    epoch: int
    worker: str
    lease_until_ms: int
    response: Response | None = None
    finished_ms: int = 0
    forgotten: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.request.origin, self.request.remit.user, self.request.id)


class _Window(NamedTuple):
    start_ms: int
    total: int


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore:
    """Everything a hub remembers, in plain lists and dicts; implements `remit.runtime.ports.Store`.

    What was appended counts as committed at once; closing it keeps everything for the next `open`.
    """

    full = False

    def __init__(self, *, wall_ms: Callable[[], int] = _wall_ms) -> None:
        self._wall_ms = wall_ms
        self._is_open = False
        self._records: list[Record] = []
        self._submitted: dict[str, _Submitted] = {}
        self._older: list[_Submitted] = []
        self._journal: dict[str, dict[str, bytes]] = {}
        self._sessions: dict[str, Owner] = {}
        self._facts: dict[str, dict[str, str]] = {}
        self._counters: dict[str, _Window] = {}
        self._cells: dict[str, tuple[int, bytes]] = {}
        self._awaited: dict[str, list[asyncio.Future[Response]]] = {}
        self._listeners: dict[object, Listener] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        record = Record(seq=len(self._records) + 1, kind=kind, at_ms=at_ms, run=run, session=session, body=body)
        self._records.append(record)
        if self._listeners:
            asyncio.get_running_loop().call_soon(self._tell, record)

    async def room(self) -> None:
        self._check_open()

    async def flush(self) -> None:
        self._check_open()

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._check_open()
        token = object()
        self._listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    def _tell(self, record: Record) -> None:
        for listener in list(self._listeners.values()):
            listener([record])

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, request: Request, digest: bytes, *, worker: str, lease_ms: int) -> Accepted | Known:
        self._check_open()
        now_ms = self._wall_ms()
        new = _Submitted(
            request=request,
            digest=digest,
            started_ms=request.created_ms or now_ms,
            epoch=1,
            worker=worker,
            lease_until_ms=now_ms + lease_ms,
        )
        if known := await self.find(request, digest):
            return known
        if request.run in self._submitted:
            self._older.append(self._submitted.pop(request.run))
        self._submitted[request.run] = new
        self.append(Kind.STARTED, new.started_ms, request.run, request.session or request.run, request)
        return Accepted(new.epoch)

    async def find(self, request: Request, digest: bytes) -> Known | None:
        self._check_open()
        key = (request.origin, request.remit.user, request.id)
        for known in self._submitted.values():
            if known.key == key and not known.forgotten:
                return Known(known.request.run, known.digest == digest, known.response)
        return None

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        self._check_open()
        known, now_ms = self._running(run), self._wall_ms()
        if known is None or known.lease_until_ms > now_ms:
            return None
        known.epoch += 1
        known.worker = worker
        known.lease_until_ms = now_ms + lease_ms
        return known.epoch

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        self._check_open()
        for known in self._submitted.values():
            if known.worker == worker and known.response is None:
                known.lease_until_ms = self._wall_ms() + lease_ms

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        self._check_open()
        known = self._running(run)
        if known is None or known.epoch != epoch:
            return False
        self._end(known, response, at_ms)
        known.forgotten = not keep
        return True

    async def wait(self, run: str) -> Response:
        self._check_open()
        known = self._submitted.get(run)
        if known is None or known.forgotten:
            raise StoreError(fault(Code.OUTCOME_UNKNOWN, f"no request was submitted here as run {run}"))
        if known.response is not None:
            return known.response
        outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(run, []).append(outcome)
        return await outcome

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[Expired]:
        self._check_open()
        now_ms = self._wall_ms()
        expired: list[Expired] = []
        for known in list(self._submitted.values()):
            if known.response is not None:
                known.forgotten |= known.finished_ms <= now_ms - keep_ms
            elif known.lease_until_ms > now_ms:
                continue
            elif known.epoch < max_attempts:
                expired.append(Expired(known.request.run, known.request))
            else:
                self._end(known, unknown_outcome(known.request, known.epoch), now_ms)
        return expired

    def _running(self, run: str) -> _Submitted | None:
        known = self._submitted.get(run)
        return known if known is not None and known.response is None else None

    def _end(self, known: _Submitted, response: Response, at_ms: int) -> None:
        run = known.request.run
        known.response, known.finished_ms = response, at_ms
        self._journal.pop(run, None)
        self.append(Kind.RESULT, at_ms, run, response.session or known.request.session or run, response)
        for outcome in self._awaited.pop(run, ()):
            if not outcome.done():
                outcome.set_result(response)

    # ── journal, counters, archive ────────────────────────────────────────────────────────────────────────────────────

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        known = self._running(run)
        if known is not None and known.epoch == epoch:
            self._journal.setdefault(run, {})[step] = value

    async def load(self, run: str) -> dict[str, bytes]:
        self._check_open()
        return dict(self._journal.get(run, {}))

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        self._check_open()
        now_ms = self._wall_ms()
        new = _Window(now_ms - now_ms % window_ms, n)
        old = self._counters.get(key)
        if old is not None and old.start_ms >= new.start_ms:
            new = _Window(old.start_ms, old.total + n)
        self._counters[key] = new
        return new.total

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        self._check_open()
        if self._cells.get(key, (0, b""))[0] != revision:
            return None
        self._cells[key] = (revision + 1, value)
        return revision + 1

    async def get(self, key: str) -> tuple[int, bytes] | None:
        self._check_open()
        return self._cells.get(key)

    async def owner(self, session: str) -> Owner | None:
        self._check_open()
        return self._sessions.get(session) or self._first_owner(session)

    async def session(self, session: str, user: str, agent: str) -> Owner:
        return self._sessions.setdefault(session, await self.owner(session) or Owner(user, agent))

    def _first_owner(self, session: str) -> Owner | None:
        for record in self._records:
            if record.session == session and isinstance(record.body, Request):
                return Owner(record.body.remit.user, record.body.target)
        return None

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        self._check_open()
        found = [
            record
            for record in self._records
            if record.seq > after and run in (None, record.run) and session in (None, record.session)
        ]
        return found[:limit]

    async def runs(self, *, user: str | None = None, limit: int = 50) -> list[RunSummary]:
        self._check_open()
        newest = reversed([*self._older, *self._submitted.values()])
        return [_summary(known) for known in newest if user in (None, known.request.remit.user)][:limit]

    def remember(self, user: str, run: str, facts: tuple[str, ...]) -> None:
        known = self._facts.setdefault(user, {})
        for text in facts:
            known.setdefault(text, run)

    async def facts(self, user: str) -> tuple[str, ...]:
        self._check_open()
        return tuple(self._facts.get(user, ()))

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the store is not open", suggestion="Open it first."))


def _summary(known: _Submitted) -> RunSummary:
    request = known.request
    return RunSummary(
        request.run, request.remit.user, request.target, request.objective, known.started_ms, known.response
    )
