"""The delegations of a run by path: who asked whom when, what it was granted and used, and where the record has it."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from remit.policy.breaker import PROBE_NOTICE
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Notice, Progress, Record, Refusal, ToolUse


class IndexedDelegation(Struct, kw_only=True):
    """One delegation of a run, without its texts."""

    run: str
    path: str
    parent: str | None
    origin: str
    target: str
    tokens: int
    asked_ms: int
    asked_seq: int
    """The record with the request in its last form; for a refusal, the record of the refusal."""
    first_seq: int
    number: int
    """Its number among the calls of the run, from 1; 0 for the root."""
    number_of_caller: int
    """Its number among the calls of its caller's agent, from 1; 0 for the root."""
    seqs: list[int]
    """All of its records, in order."""
    refused: Code | None = None
    is_probe: bool = False
    """Whether it was let through while the breaker of its agent was open."""
    ended_seq: int | None = None
    ended_ms: int | None = None
    status: Status | None = None
    used: int = 0
    """The tokens that it spent, including those of the delegations below it."""
    request: Request | None = None
    """The request of a call that waits for a person: it is not recorded as such before somebody agrees."""

    def is_open_at(self, seq: int) -> bool:
        """Return whether it had begun and not ended when a record was written."""
        return self.refused is None and self.first_seq < seq and (self.ended_seq is None or self.ended_seq > seq)


class RunIndex:
    """The delegations of one run, extended with new records as they are read."""

    def __init__(self) -> None:
        self.of: dict[str, IndexedDelegation] = {}
        self.last_seq = 0
        """The last record that was added."""
        self._paths: dict[str, str] = {}
        """The paths of delegations by the ids of their requests."""
        self._children: dict[str, list[str]] = {}
        self._by_agent: dict[str, int] = {}
        self._early: dict[str, list[int]] = {}
        """Records about delegations whose request is not recorded yet."""

    def add(self, records: Iterable[Record]) -> None:
        """Add the next records of the run, in order."""
        for record in records:
            self.last_seq = record.seq
            match record.body:
                case Request() as request:
                    self._asked(request, record)
                case Refusal(request=request, response=response):
                    entry = self._asked(request, record)
                    entry.refused = response.fault.code if response.fault is not None else None
                    self._ended(entry, response, record)
                case Response(id=id) as response if (path := self._paths.get(id)) is not None:
                    entry = self.of[path]
                    entry.seqs.append(record.seq)
                    self._ended(entry, response, record)
                case Progress() | ToolUse() | Notice() | Approval() as event:
                    self._happened(event, record)
                case _:
                    pass

    def pending(self, request: Request, asked_ms: int) -> IndexedDelegation:
        """Return the entry of a call that waits for a person; it is not added."""
        path, seq = request.path, self.last_seq + 1
        of_caller = self._by_agent.get(request.origin, 0) + 1
        entry = _entry(request, asked_ms, seq, len(self.of), of_caller, self._early.get(path, []))
        entry.request = request
        return entry

    def children(self, path: str) -> Iterator[IndexedDelegation]:
        """Yield the delegations that a delegation asked for, in order."""
        return (self.of[each] for each in self._children.get(path, ()))

    def above(self, entry: IndexedDelegation) -> Iterator[IndexedDelegation]:
        """Yield the delegations above a delegation, from its caller up to the root."""
        parent = self.of.get(entry.parent) if entry.parent is not None else None
        while parent is not None:
            yield parent
            parent = self.of.get(parent.parent) if parent.parent is not None else None

    def beside(self, entry: IndexedDelegation) -> Iterator[IndexedDelegation]:
        """Yield the earlier calls of the same caller."""
        if entry.parent is not None:
            yield from (each for each in self.children(entry.parent) if each.first_seq < entry.first_seq)

    def _asked(self, request: Request, record: Record) -> IndexedDelegation:
        path = request.path
        entry = self.of.get(path)
        if entry is None:
            number = of_caller = 0
            if request.parent is not None:
                number = len(self.of) + (request.run not in self.of)
                of_caller = self._by_agent[request.origin] = self._by_agent.get(request.origin, 0) + 1
                self._children.setdefault(request.parent, []).append(path)
            seqs = self._early.pop(path, [])
            entry = self.of[path] = _entry(request, record.at_ms, record.seq, number, of_caller, seqs)
            self._paths[request.id] = path
        # A request that a person edited is recorded again, as it finally began.
        entry.asked_seq, entry.tokens, entry.target = record.seq, request.remit.tokens, request.target
        entry.seqs.append(record.seq)
        return entry

    def _ended(self, entry: IndexedDelegation, response: Response, record: Record) -> None:
        entry.ended_seq, entry.ended_ms = record.seq, record.at_ms
        entry.status, entry.used = response.status, response.usage.total

    def _happened(self, event: Progress | ToolUse | Notice | Approval, record: Record) -> None:
        entry = self.of.get(event.delegation)
        if entry is None:
            # A question about a call is recorded before the call itself.
            self._early.setdefault(event.delegation, []).append(record.seq)
            return
        entry.seqs.append(record.seq)
        if isinstance(event, Notice) and event.text == PROBE_NOTICE:
            entry.is_probe = True


def _entry(
    request: Request, asked_ms: int, seq: int, number: int, of_caller: int, seqs: list[int]
) -> IndexedDelegation:
    return IndexedDelegation(
        run=request.run,
        path=request.path,
        parent=request.parent,
        origin=request.origin,
        target=request.target,
        tokens=request.remit.tokens,
        asked_ms=asked_ms,
        asked_seq=seq,
        first_seq=seq,
        number=number,
        number_of_caller=of_caller,
        seqs=seqs,
    )
