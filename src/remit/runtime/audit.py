"""The audit chain: each row seals the one before it, so that what was done to one shows."""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from remit.runtime.signing import Checkpoint

GENESIS = bytes(32)

# What is told of a chain that is broken everywhere; the first findings say where to look.
MAX_FINDINGS = 100
# So many suspect rows are compared with each other, so that a broken chain is not judged for hours.
MAX_SUSPECTS = 256
# So many deleted rows are looked for where the rest was numbered down to hide them.
MAX_GAP = 64

_sha256 = hashlib.sha256
_head = msgspec.msgpack.Encoder().encode


def link(previous: bytes, seq: int, kind: str, at_ms: int, run: str, session: str, body: bytes) -> bytes:
    """Return the digest of a row that follows the row with digest *previous*."""
    # The digest before has a fixed length and msgpack ends where it says, so no two rows are hashed as the same bytes.
    return _sha256(previous + _head((seq, kind, at_ms, run, session)) + body).digest()


class Row(NamedTuple):
    """A record as it is stored, and the digest that was stored with it."""

    seq: int
    kind: str
    at_ms: int
    run: str
    session: str
    body: bytes
    digest: bytes


# ── verification ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Tampering(StrEnum):
    """What was done to the record."""

    EDITED = "edited"
    DELETED = "deleted"
    INSERTED = "inserted"
    REORDERED = "reordered"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"
    """Rows were changed and everything after them hashed anew: the chain holds, a checkpoint does not."""
    CHECKPOINT_FORGED = "checkpoint forged"
    CHECKPOINT_MISSING = "checkpoint missing"


class Finding(Struct, frozen=True, kw_only=True):
    """One place where the record is not what was written: rows *first* to *last*, or checkpoints of those numbers."""

    tampering: Tampering
    first: int
    last: int
    message: str

    def __str__(self) -> str:
        what = "" if self.tampering in (Tampering.CHECKPOINT_FORGED, Tampering.CHECKPOINT_MISSING) else "row "
        where = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"{self.tampering}: {what}{where}: {self.message}"


class AuditVerdict(Struct, frozen=True, kw_only=True):
    """What verification found; *unprotected* rows stand after the last checkpoint, where a cut would not be seen."""

    rows: int
    checkpoints: int
    unprotected: int
    findings: tuple[Finding, ...] = ()
    keys: tuple[str, ...] = ()
    """Who signed: to be compared with a note kept elsewhere, if the key file itself may have been replaced."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        state = (
            "the record is whole"
            if self.ok
            else f"the record was tampered with ({_many(len(self.findings), 'finding')})"
        )
        counts = f"{_many(self.rows, 'row')}, {_many(self.checkpoints, 'checkpoint')}"
        lines = [f"{state}: {counts}, {_many(self.unprotected, 'row')} after the last"]
        lines += [f"  {finding}" for finding in self.findings]
        lines += [f"  signed by {key}" for key in self.keys]
        return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def verify(
    rows: Iterable[Row],
    checkpoints: Iterable[Checkpoint | None],
    *,
    remembered: int = 0,
    referenced: int = 0,
    public_key: bytes | None = None,
) -> AuditVerdict:
    """Judge a chain, oldest row first, by its digests and its checkpoints.

    *remembered* is the number of the last checkpoint that the database knows of, *referenced* the highest row that
    anything else in it points at. Without *public_key* the first checkpoint's key is taken for the right one.
    """
    seals, findings = _judge_checkpoints(checkpoints, remembered, public_key)
    sealed = max((seal.seq for seal in seals), default=0)
    walk = _Walk({seal.seq: seal for seal in seals})
    for row in rows:
        walk.step(row)
    walk.end(max(referenced, sealed))
    return AuditVerdict(
        rows=walk.count,
        checkpoints=len(seals),
        unprotected=max(0, walk.seq - sealed),
        findings=tuple([*findings, *walk.findings][:MAX_FINDINGS]),
        keys=tuple(dict.fromkeys(seal.key for seal in seals)),
    )


def _judge_checkpoints(
    checkpoints: Iterable[Checkpoint | None], remembered: int, public_key: bytes | None
) -> tuple[list[Checkpoint], list[Finding]]:
    """Return the checkpoints that can be relied on, and what is wrong with the others."""
    genuine: list[Checkpoint] = []
    findings: list[Finding] = []
    key = public_key.hex() if public_key else None
    expected = 1
    for place, checkpoint in enumerate(checkpoints, start=1):
        if checkpoint is None:
            findings.append(_finding(Tampering.CHECKPOINT_FORGED, expected, f"line {place} of the checkpoints is none"))
            expected += 1
            continue
        key = key or checkpoint.key
        number = checkpoint.number
        if number != expected:
            findings.append(_missing(expected, number - 1, f"checkpoint {number} stands where {expected} should"))
        if not checkpoint.is_genuine():
            findings.append(
                _finding(Tampering.CHECKPOINT_FORGED, number, f"the signature of checkpoint {number} is wrong")
            )
        elif checkpoint.key != key:
            message = f"checkpoint {number} is signed by another key, {checkpoint.key}"
            findings.append(_finding(Tampering.CHECKPOINT_FORGED, number, message))
        else:
            genuine.append(checkpoint)
        expected = number + 1
    if expected <= remembered:
        findings.append(_missing(expected, remembered, f"the database knows of {remembered} checkpoints"))
    return genuine, findings


def _missing(first: int, last: int, why: str) -> Finding:
    return Finding(tampering=Tampering.CHECKPOINT_MISSING, first=first, last=max(first, last), message=why)


def _finding(tampering: Tampering, place: int, message: str) -> Finding:
    return Finding(tampering=tampering, first=place, last=place, message=message)


class _Suspect(NamedTuple):
    """A row that does not follow from the row before it."""

    row: Row
    number: int
    previous: bytes


class _Walk:
    """Follows the chain row by row, and explains each place where it does not hold.

    A row that does not follow from the one before it is suspect, and so are those after it, until a row tells what
    happened: one that follows from the last suspect closes the group, whose rows were edited or reordered; one that
    follows from the row before the suspects says that they were inserted and the rest renumbered.
    """

    def __init__(self, seals: dict[int, Checkpoint]) -> None:
        self._seals = seals
        self._sealed = 0
        self._rewritten = False
        self._previous = GENESIS
        # How much higher the rows are numbered than they were when they were written.
        self._shift = 0
        self._group: list[_Suspect] = []
        self._groups: list[list[_Suspect]] = []
        self._pooled = 0
        self.seq = 0
        self.count = 0
        self.findings: list[Finding] = []

    def step(self, row: Row) -> None:
        self.count += 1
        if self._group and not self._explain(row):
            return
        number = row.seq - self._shift
        if number <= self.seq:
            self._find(Tampering.INSERTED, number, number, f"row {row.seq} stands before the first row")
        elif number > self.seq + 1:
            self._find(Tampering.DELETED, self.seq + 1, number - 1, "the rows are gone")
            self._accept(number, row.digest)
        elif _fits(self._previous, row, number):
            self._accept(number, row.digest)
        else:
            self._suspect(row, number)

    def end(self, expected: int) -> None:
        """Tell of what only the end shows: *expected* is the least number that the last row must have."""
        self._close_group()
        pool = [suspect for group in self._groups for suspect in group]
        for group in self._groups:
            self._resolve(group, pool)
        if self.seq < expected:
            self._find(Tampering.TRUNCATED, self.seq + 1, expected, f"the record ends at row {self.seq}")
        self.findings.sort(key=lambda finding: finding.first)

    def _accept(self, number: int, digest: bytes) -> None:
        self.seq, self._previous = number, digest
        seal = self._seals.get(number)
        if seal is None or self._rewritten:
            return
        if seal.digest == digest.hex():
            self._sealed = number
        else:
            self._rewritten = True
            message = (
                f"the chain was hashed anew: it does not lead to what checkpoint {seal.number} signed for row {number}"
            )
            self._find(Tampering.REWRITTEN, self._sealed + 1, number, message)

    def _suspect(self, row: Row, number: int) -> None:
        self._group.append(_Suspect(row, number, self._previous))
        self.seq, self._previous = number, row.digest

    def _explain(self, row: Row) -> bool:
        """Say whether *row* explains the suspects before it; if not, it is one itself."""
        group, number = self._group, row.seq - self._shift
        first, last = group[0], group[-1]
        alone = len(group) == 1
        if number != self.seq + 1 or _fits(last.row.digest, row, number):
            self._close_group()
        elif alone and (own := _digest(first.previous, first.row, first.number)) and _fits(own, row, number):
            self._find(Tampering.EDITED, first.number, first.number, "its digest was changed")
            self._previous = own
            self._group = []
        elif _fits(first.previous, row, number - len(group)) and not _fits(row.digest, first.row, number):
            self._find(
                Tampering.INSERTED, first.row.seq, last.row.seq, "the rows after it were renumbered to make room"
            )
            self._shift += len(group)
            self.seq, self._previous = first.number - 1, first.previous
            self._group = []
        elif alone and (gone := _renumbered(last.row, row, number)):
            self._find(Tampering.DELETED, first.number, first.number + gone - 1, "the rows after them were renumbered")
            self._shift -= gone
            self.seq, self._previous = number - 1 + gone, last.row.digest
            self._group = []
        else:
            self._suspect(row, number)
            return False
        return True

    def _close_group(self) -> None:
        if not self._group:
            return
        if self._pooled + len(self._group) <= MAX_SUSPECTS:
            self._groups.append(self._group)
            self._pooled += len(self._group)
        else:
            first, last = self._group[0].number, self._group[-1].number
            self._find(Tampering.EDITED, first, last, "none of them follows from the row before it")
        self._group = []

    def _resolve(self, group: list[_Suspect], pool: list[_Suspect]) -> None:
        previous = group[0].previous
        for place, (row, number, _) in enumerate(group):
            if _fits(previous, row, number):
                previous = row.digest  # only its neighbour was not what it should be
                continue
            home = next((each for each in pool if _is_home(previous, row, number, each)), None)
            if home is not None:
                self._find(Tampering.REORDERED, number, number, f"it holds another row; its own is at {home.number}")
                own = _digest(previous, home.row, number)
                previous = own or row.digest
                continue
            self._find(Tampering.EDITED, number, number, "its content is not what was written")
            follower = group[place + 1] if place + 1 < len(group) else None
            own = _digest(previous, row, number)
            previous = own if own and follower and _fits(own, follower.row, follower.number) else row.digest

    def _find(self, tampering: Tampering, first: int, last: int, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(tampering=tampering, first=first, last=last, message=message))


def _digest(previous: bytes, row: Row, number: int) -> bytes | None:
    """Return the digest that the row would have at that place, or None if its values are such as no store writes."""
    try:
        return link(previous, number, row.kind, row.at_ms, row.run, row.session, row.body)
    except (TypeError, ValueError, OverflowError):
        return None


def _fits(previous: bytes, row: Row, number: int) -> bool:
    return _digest(previous, row, number) == row.digest


def _is_home(previous: bytes, row: Row, number: int, other: _Suspect) -> bool:
    """Say whether *other* is what was written at *number*, be it with its own digest or with that of *row*."""
    return other.number != number and _digest(previous, other.row, number) in (other.row.digest, row.digest)


def _renumbered(before: Row, row: Row, number: int) -> int:
    """Return by how much both rows were numbered down, or 0 if that does not explain them."""
    return next((gone for gone in range(1, MAX_GAP) if _fits(before.digest, row, number + gone)), 0)
