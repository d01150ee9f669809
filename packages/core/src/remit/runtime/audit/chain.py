"""Follows the hash chain of the record row by row, and explains where it is broken."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from remit.runtime.audit.findings import MAX_FINDINGS, AuditFinding, Tampering
from remit.runtime.audit.removal import Coverage, Outlines, RemovedRow
from remit.runtime.signing import Checkpoint

GENESIS = bytes(32)

_sha256 = hashlib.sha256

_head = msgspec.msgpack.Encoder().encode


def leaf(kind: str, at_ms: int, run: str, session: str, body: bytes) -> bytes:
    """Return the digest of a row's content, wherever it stands in the chain."""
    # msgpack is self-delimiting, so no two rows hash the same bytes.
    return _sha256(_head((kind, at_ms, run, session)) + body).digest()


def link(previous: bytes, seq: int, content: bytes) -> bytes:
    """Return the digest of row *seq* with the leaf digest *content*, after the row with digest *previous*.

    The chain needs only the leaf digests, so that it can be extended and followed without the texts.
    """
    return _sha256(previous + seq.to_bytes(8) + content).digest()


def _link_of_version_6(previous: bytes, number: int, row: "ChainRow") -> bytes:
    """Return a row's digest as stores up to version 6 wrote it: without a leaf digest."""
    return _sha256(previous + _head((number, row.kind, row.at_ms, row.run, row.session)) + row.body).digest()


class ChainRow(NamedTuple):
    """A record as it is stored, with its stored digest."""

    seq: int
    kind: str
    at_ms: int
    run: str
    session: str
    body: bytes
    digest: bytes


# This many suspect rows are compared with each other, so that judging a broken chain does not take hours.
MAX_SUSPECTS = 256

# This many deleted rows are searched for where the rest was renumbered to hide them.
MAX_GAP = 64


class Unsigned(NamedTuple):
    """From when on unsigned rows are a finding: a working hub would have signed them by then."""

    due_ms: int
    """Rows committed before this time should be signed."""
    most: int
    """A hub never leaves more rows than this unsigned."""
    since_ms: int = 0
    """When the first row after the last checkpoint was committed, as far as the database knows; 0: unknown."""
    latest_ms: int | None = None
    """No clock of a hub is so far ahead: a later row is a finding. None: the time is not known."""


class _Suspect(NamedTuple):
    """A row that does not follow from the row before it."""

    row: ChainRow
    number: int
    previous: bytes


class ChainWalk:
    """Follows the chain row by row, and explains each place where it is broken.

    A row that does not follow from the one before it is suspect, and so are those after it, until a row explains what
    happened: a row that follows from the last suspect closes the group, whose rows were edited or reordered; a row that
    follows from the row before the suspects shows that they were inserted and the rest renumbered.
    """

    def __init__(
        self,
        seals: Sequence[Checkpoint],
        anchors: Sequence[Checkpoint] = (),
        signed: int = 0,
        unsigned: Unsigned | None = None,
        coverage: Coverage | None = None,
        start: Checkpoint | None = None,
    ) -> None:
        self._seals = _by_row(seals)
        self._anchors = _by_row(anchors)
        self._sealed = 0
        self._signed = signed
        """The last row that a checkpoint signed."""
        self._unsigned = unsigned
        self._latest_ms = unsigned.since_ms if unsigned else 0
        self._overdue = 0
        self._ahead: list[int] = []
        self.unsigned_since_ms = 0
        """The time of the first row that no checkpoint signed; 0: there is none."""
        self._rewritten = False
        self._previous = bytes.fromhex(start.digest) if start else GENESIS
        # By how much the rows are numbered higher than when they were written.
        self._shift = 0
        self._group: list[_Suspect] = []
        self._groups: list[list[_Suspect]] = []
        self._pooled = 0
        self.seq: int = start.seq if start else 0
        self._began = self.seq
        self.count = 0
        self._coverage = coverage or Coverage(())
        self._outlines = [Outlines() for _ in self._coverage.statements]
        self._stated = self._ends(self.seq)
        self.removed = 0
        self.anchored = 0
        self.findings: list[AuditFinding] = []

    def _ends(self, start: int) -> dict[int, list[str]]:
        """Return the digests that the statements about removals give for rows after *start*."""
        found: dict[int, list[str]] = {}
        for each in self._coverage.statements:
            for seq, digest in ((each.first - 1, each.before), (each.last, each.after)):
                if seq > start:
                    found.setdefault(seq, []).append(digest)
        return found

    def step(self, row: ChainRow | RemovedRow) -> None:
        self.count += 1
        if isinstance(row, RemovedRow):
            self._step_removed(row)
            return
        if not self._group or self._explain(row):
            self._follow(row)
        if self._unsigned is not None:
            self._judge_age(row, self._unsigned)

    def _step_removed(self, row: RemovedRow) -> None:
        """Follow the chain over a row of which only the digest of its content is kept."""
        self._close_group()
        number = row.seq - self._shift
        if number > self.seq + 1:
            self._find(Tampering.DELETED, self.seq + 1, number - 1, "the rows are gone")
        covered = self._coverage.of(row.seq)
        if row.outline is None and (covered is None or covered[0] != "gone"):
            self._find_next(Tampering.DELETED, number, "no signed statement says that it was removed")
        elif row.outline is not None and (covered is None or covered[0] != "outlined"):
            self._find_next(Tampering.EDITED, number, "no signed statement says that its texts were removed")
        else:
            self.removed += 1
            if row.outline is not None and covered:
                self._outlines[covered[1]].add(row.seq, row.outline)
        digest = link(self._previous, number, row.leaf) if row.leaf else row.digest or GENESIS
        if row.digest is not None and row.digest != digest:
            self._find(Tampering.EDITED, number, number, "its digests were changed")
            digest = row.digest
        self._accept(number, digest)

    def _follow(self, row: ChainRow) -> None:
        number = row.seq - self._shift
        if number <= self.seq:
            self._find(Tampering.INSERTED, number, number, f"row {row.seq} stands before the first row")
        elif number > self.seq + 1:
            self._find(Tampering.DELETED, self.seq + 1, number - 1, "the rows are gone")
            self._accept(number, row.digest)
        elif follows(self._previous, row, number):
            self._accept(number, row.digest)
        else:
            self._suspect(row, number)

    def end(self, expected: int) -> None:
        """Report what only the end shows: *expected* is the lowest number that the last row may have."""
        self._close_group()
        pool = [suspect for group in self._groups for suspect in group]
        for group in self._groups:
            self._resolve(group, pool)
        self._judge_outlines()
        if self.seq < expected:
            self._find(Tampering.TRUNCATED, self.seq + 1, expected, f"the record ends at row {self.seq}")
        for anchor in (each for some in self._anchors.values() for each in some if each.seq > self.seq):
            message = f"the record ends at row {self.seq}, and an anchor signed row {anchor.seq}"
            self._find(Tampering.ROLLED_BACK, self.seq + 1, anchor.seq, message)
        if self._unsigned is not None and self.seq - self._signed > self._unsigned.most:
            self._overdue = self.seq
        if self._ahead:
            message = "later than now, and no checkpoint signed them: a clock was wrong, or they were rewritten"
            self._find(Tampering.DATED_AHEAD, self._ahead[0], self._ahead[-1], message)
        if self._overdue > self._signed:
            message = "no checkpoint signed them in time: the hub was killed, or they were rewritten"
            self._find(Tampering.UNSIGNED, self._signed + 1, self._overdue, message)
        self.findings.sort(key=lambda finding: finding.first)

    def _judge_outlines(self) -> None:
        for each, kept in zip(self._coverage.statements, self._outlines, strict=True):
            # A part that was verified before is not read again.
            if each.outlines != kept.digest() and each.first > self._began and each.last <= self.seq:
                message = "what was kept of rows whose texts were removed was changed"
                self._find(Tampering.EDITED, each.first, each.last, message)

    def _accept(self, number: int, digest: bytes) -> None:
        self.seq, self._previous = number, digest
        for stated in self._stated.get(number, ()):
            if stated != digest.hex():
                message = "the record does not match what a statement about removed rows signed for this row"
                self._find(Tampering.REMOVAL_FORGED, number, number, message)
        for anchor in self._anchors.get(number, ()):
            if anchor.digest == digest.hex():
                self.anchored += 1
            else:
                message = f"the record does not match what the anchor with number {anchor.number} signed"
                self._find(Tampering.ANCHOR_MISMATCH, number, number, message)
        for seal in self._seals.get(number, ()):
            if self._rewritten:
                return
            if seal.digest == digest.hex():
                self._sealed = number
                continue
            self._rewritten = True
            message = f"the chain was rehashed: it does not match what checkpoint {seal.number} signed for row {number}"
            self._find(Tampering.REWRITTEN, self._sealed + 1, number, message)

    def _judge_age(self, row: ChainRow, unsigned: Unsigned) -> None:
        # A row may report something older, but was committed after the rows before it.
        if isinstance(row.at_ms, int) and row.at_ms > self._latest_ms:  # pyright: ignore[reportUnnecessaryIsInstance]
            self._latest_ms = row.at_ms
        if self.seq <= self._signed:
            return
        if self._latest_ms < unsigned.due_ms:
            self._overdue = self.seq
        if unsigned.latest_ms is not None and self._latest_ms > unsigned.latest_ms:
            self._ahead = [*self._ahead[:1], self.seq]
        self.unsigned_since_ms = self.unsigned_since_ms or self._latest_ms

    def _suspect(self, row: ChainRow, number: int) -> None:
        self._group.append(_Suspect(row, number, self._previous))
        self.seq, self._previous = number, row.digest

    def _explain(self, row: ChainRow) -> bool:
        """Return whether *row* explains the suspects before it; if not, it is a suspect itself."""
        group, number = self._group, row.seq - self._shift
        first, last = group[0], group[-1]
        alone = len(group) == 1
        if number != self.seq + 1 or follows(last.row.digest, row, number):
            self._close_group()
        elif alone and (own := _digest(first.previous, first.row, first.number)) and follows(own, row, number):
            self._find(Tampering.EDITED, first.number, first.number, "its digest was changed")
            self._previous = own
            self._group = []
        elif follows(first.previous, row, number - len(group)) and not follows(row.digest, first.row, number):
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
            if follows(previous, row, number):
                previous = row.digest  # only its neighbour was wrong
                continue
            home = next((each for each in pool if _is_home(previous, row, number, each)), None)
            if home is not None:
                self._find(Tampering.REORDERED, number, number, f"it holds another row; its own is at {home.number}")
                own = _digest(previous, home.row, number)
                previous = own or row.digest
                continue
            self._find(Tampering.EDITED, number, number, "its content was changed")
            follower = group[place + 1] if place + 1 < len(group) else None
            own = _digest(previous, row, number)
            previous = own if own and follower and follows(own, follower.row, follower.number) else row.digest

    def _find_next(self, tampering: Tampering, number: int, message: str) -> None:
        """Report a row, together with the rows before it of which the same was reported."""
        last = self.findings[-1] if self.findings else None
        if last and (last.tampering, last.message, last.last) == (tampering, message, number - 1):
            self.findings[-1] = msgspec.structs.replace(last, last=number)
        else:
            self._find(tampering, number, number, message)

    def _find(self, tampering: Tampering, first: int, last: int, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(AuditFinding(tampering=tampering, first=first, last=last, message=message))


def _by_row(checkpoints: Iterable[Checkpoint]) -> dict[int, list[Checkpoint]]:
    found: dict[int, list[Checkpoint]] = {}
    for each in checkpoints:
        found.setdefault(each.seq, []).append(each)
    return found


def _digest(previous: bytes, row: ChainRow, number: int) -> bytes | None:
    """Return the digest that the row would have at that place, or None if no store writes such values."""
    try:
        return link(previous, number, leaf(row.kind, row.at_ms, row.run, row.session, row.body))
    except (TypeError, ValueError, OverflowError):
        return None


def follows(previous: bytes, row: ChainRow, number: int) -> bool:
    """Return whether the row, at that place, has the digest of a row after the one with digest *previous*."""
    digest = _digest(previous, row, number)
    return digest == row.digest or (digest is not None and _link_of_version_6(previous, number, row) == row.digest)


def intact_rows(rows: Iterable[ChainRow | RemovedRow], before: bytes) -> dict[int, bool]:
    """Return for consecutive rows, of which the first comes after the one with digest *before*, which are intact."""
    found: dict[int, bool] = {}
    for row in rows:
        if isinstance(row, RemovedRow):
            before = row.digest or link(before, row.seq, row.leaf)
        else:
            found[row.seq] = follows(before, row, row.seq)
            before = row.digest
    return found


def _is_home(previous: bytes, row: ChainRow, number: int, other: _Suspect) -> bool:
    """Return whether *other* was written at *number*, either with its own digest or with that of *row*."""
    return other.number != number and _digest(previous, other.row, number) in (other.row.digest, row.digest)


def _renumbered(before: ChainRow, row: ChainRow, number: int) -> int:
    """Return by how much both rows were renumbered downwards, or 0 if that does not explain them."""
    return next((gone for gone in range(1, MAX_GAP) if follows(before.digest, row, number + gone)), 0)
