"""The requests that the store in memory has accepted, and how they are listed."""

import time
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code
from remit.protocol.records import Kind, Notice, Record
from remit.runtime.clock import LEAST_JUMP_MS
from remit.runtime.ports import RunScope, RunState, RunSummary


def system_ms() -> int:
    """Return the time of the system's clock."""
    return time.time_ns() // 1_000_000


class SubmittedRun(Struct, kw_only=True):
    """A request and its progress."""

    request: Request
    """In the form in which it began; its key and run never change."""
    key: tuple[str, str, str]
    run: str
    digest: bytes
    started_ms: int
    epoch: int
    attempts: int = 1
    waiting: bool
    worker: str
    lease_until_ms: int
    response: Response | None = None
    finished_ms: int = 0
    kept_since_ms: int = 0
    """`finished_ms`, shifted with a clock that jumped."""
    forgotten: bool = False

    def status(self, now_ms: int) -> Literal["waiting", "running", "silent", "finished"]:
        if self.response is not None:
            return "finished"
        if self.waiting:
            return "waiting"
        return "silent" if self.lease_until_ms <= now_ms else "running"

    def is_in(self, scope: RunScope) -> bool:
        """Return whether a reader with that scope may see it."""
        request = self.request
        return (
            (scope.users is None or request.remit.user in scope.users)
            and (scope.agents is None or request.target in scope.agents)
            and scope.via in (None, request.via)
            and (scope.since_ms is None or self.started_ms >= scope.since_ms)
            and (scope.until_ms is None or self.started_ms < scope.until_ms)
        )

    def fits(self, user: str | None, run: str, correlation: str | None) -> bool:
        """Return whether it is of that user, has an id that begins with *run*, and that correlation id."""
        return (
            user in (None, self.request.remit.user)
            and self.run.startswith(run)
            and correlation in (None, self.request.correlation or self.run)
        )

    def is_part_of(self, run: str, user: str) -> bool:
        """Return whether another hub on the same store handed it over, as a call of *run*."""
        sender, of_user, id = self.key
        named = id == run or id.startswith(f"{run}.")
        return named and self.run != run and of_user == user and sender.count("@") > 1 and not self.forgotten

    def follow_clock(self, jump_ms: int, now_ms: int) -> None:
        """Shift its times with a clock that jumped."""
        if jump_ms > 0 and self.kept_since_ms <= now_ms - jump_ms + LEAST_JUMP_MS:
            self.kept_since_ms += jump_ms
        if jump_ms > 0 and 0 < self.lease_until_ms <= now_ms - jump_ms + LEAST_JUMP_MS:
            self.lease_until_ms += jump_ms
        if jump_ms < 0:
            self.kept_since_ms = min(self.kept_since_ms, now_ms)
        if jump_ms < 0 and self.lease_until_ms >= now_ms - jump_ms - LEAST_JUMP_MS:
            self.lease_until_ms += jump_ms

    def summary(self, now_ms: int) -> RunSummary:
        """Return it as `runs` lists it."""
        request = self.request
        return RunSummary(
            self.run,
            request.remit.user,
            request.target,
            request.objective,
            self.started_ms,
            self.response,
            self.status(now_ms),
            request.via or "",
            request.session or self.run,
            self.finished_ms or self.started_ms,
            request.correlation or self.run,
        )

    def state(self, records: Sequence[Record]) -> RunState:
        """Return it as `states` lists it; *records* are all that the store has."""
        request, response = self.request, self.response
        records = [record for record in records if record.run == self.run]
        kind = Kind.STARTED if response is None else Kind.RESULT
        last = [record for record in records if record.kind is kind and _of_root(record)][-1]
        asks_back = response is not None and response.requires_followup
        called_off = [
            record.at_ms
            for record in records
            if asks_back
            and record.seq > last.seq
            and isinstance(record.body, Notice)
            and record.body.code is Code.CANCELLED
        ]
        return RunState(
            self.run,
            request.id,
            request.remit.user,
            request.via or "",
            request.session or self.run,
            request.correlation or "",
            max(called_off, default=last.at_ms),
            last.seq,
            None if response is None else response.status,
            asks_back,
            bool(called_off),
        )


def before(run: str | None, known: Sequence[SubmittedRun]) -> Sequence[SubmittedRun]:
    """Return the runs that were submitted before *run*; all without one."""
    places = [place for place, each in enumerate(known) if run in (None, each.run)]
    return known if run is None else known[: places[-1] if places else 0]


def newly_submitted(
    request: Request, digest: bytes, worker: str, now_ms: int, lease_ms: int, *, waiting: bool
) -> SubmittedRun:
    """Return a request as it was submitted, claimed by *worker*."""
    return SubmittedRun(
        request=request,
        key=key_of(request),
        run=request.run,
        digest=digest,
        started_ms=request.created_ms or now_ms,
        epoch=1,
        waiting=waiting,
        worker=worker,
        lease_until_ms=now_ms + lease_ms,
    )


def key_of(request: Request) -> tuple[str, str, str]:
    """Return what identifies a request: its sender, user and id."""
    return (request.sender, request.remit.user, request.id)


def _of_root(record: Record) -> bool:
    return not isinstance(record.body, Response) or not record.body.id.startswith(f"{record.run}.")


def claimed_by(worker: str, runs: Iterable[SubmittedRun]) -> list[SubmittedRun]:
    """Return the unfinished runs that a worker has claimed."""
    return [each for each in runs if each.worker == worker and each.response is None]


def late_workers(runs: Iterable[SubmittedRun], now_ms: int, within_ms: int) -> list[str]:
    """Return the workers whose last lease ends *within_ms*."""
    leases: dict[str, int] = {}
    for known in runs:
        if known.worker and known.response is None:
            leases[known.worker] = max(leases.get(known.worker, 0), known.lease_until_ms)
    return [worker for worker, until_ms in leases.items() if now_ms < until_ms <= now_ms + within_ms]
