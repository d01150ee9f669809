"""The audit chain: each row contains the digest of the one before it, so that changes are noticed."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from remit.protocol.records import ChainBreak
from remit.runtime.signing import Checkpoint

GENESIS = bytes(32)

# The most findings reported for a chain that is broken everywhere; the first ones show where to look.
MAX_FINDINGS = 100
# This many suspect rows are compared with each other, so that judging a broken chain does not take hours.
MAX_SUSPECTS = 256
# This many deleted rows are searched for where the rest was renumbered to hide them.
MAX_GAP = 64

_sha256 = hashlib.sha256
_head = msgspec.msgpack.Encoder().encode


def link(previous: bytes, seq: int, kind: str, at_ms: int, run: str, session: str, body: bytes) -> bytes:
    """Return the digest of a row that follows the row with digest *previous*."""
    # The digest before has a fixed length and msgpack is self-delimiting, so no two rows hash the same bytes.
    return _sha256(previous + _head((seq, kind, at_ms, run, session)) + body).digest()


class ChainRow(NamedTuple):
    """A record as it is stored, with its stored digest."""

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
    """Rows were changed and everything after them was hashed again: the chain holds, a checkpoint does not."""
    UNSIGNED = "unsigned"
    """Rows stay after the last checkpoint for longer than a working hub leaves them there."""
    CHECKPOINT_FORGED = "checkpoint forged"
    CHECKPOINT_MISSING = "checkpoint missing"
    CHECKPOINT_ROW_MISSING = "checkpoint row missing"
    """The database's own row about its last checkpoint was deleted."""
    CHECKPOINTS_DISAGREE = "checkpoints disagree"
    """The database and the checkpoint file disagree about the last checkpoint."""
    KEY_SIGNED_NOTHING = "key signed nothing"
    """The pinned key signed no checkpoint of this record."""
    KEY_CHANGED = "key changed"
    """A break that the hub announced: it found another key, or none and made a new one."""
    BREAK_ANNOUNCED = "break announced"
    """A break that the hub announced: rows and checkpoints did not match when it opened the store."""
    ROLLED_BACK = "rolled back"
    """The record ends before a row that an anchor kept elsewhere has signed."""
    ANCHOR_MISMATCH = "anchor mismatch"
    """The record does not match what an anchor kept elsewhere has signed."""
    ANCHOR_FORGED = "anchor forged"
    """An anchor was not signed by the key of this record."""


# Findings whose numbers are checkpoint numbers.
_OF_CHECKPOINTS = frozenset(
    {Tampering.CHECKPOINT_FORGED, Tampering.CHECKPOINT_MISSING, Tampering.CHECKPOINTS_DISAGREE, Tampering.ANCHOR_FORGED}
)
# Findings about the record as a whole.
_OF_NOTHING = frozenset({Tampering.CHECKPOINT_ROW_MISSING, Tampering.KEY_SIGNED_NOTHING})
_SIGNED_OTHERWISE = "is signed by another key"
_ANNOUNCED = frozenset({Tampering.KEY_CHANGED, Tampering.BREAK_ANNOUNCED})


class AuditFinding(Struct, frozen=True, kw_only=True):
    """One place where the record was changed: rows *first* to *last*, or checkpoints of those numbers.

    Both are 0 where the finding has no place.
    """

    tampering: Tampering
    first: int
    last: int
    message: str

    def __str__(self) -> str:
        if self.tampering in _OF_NOTHING:
            return f"{self.tampering}: {self.message}"
        what = "" if self.tampering in _OF_CHECKPOINTS else "row "
        where = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"{self.tampering}: {what}{where}: {self.message}"


class AuditVerdict(Struct, frozen=True, kw_only=True):
    """The result of verification; *unprotected* rows follow the last checkpoint, where a cut would not be noticed."""

    rows: int
    checkpoints: int
    unprotected: int
    findings: tuple[AuditFinding, ...] = ()
    keys: tuple[str, ...] = ()
    """The signer: compare it with a note kept elsewhere if the key file itself may have been replaced."""
    anchors: int = 0
    """How many anchors the record agrees with."""

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def announced(self) -> bool:
        """Whether all findings are breaks that a hub announced."""
        return not self.ok and all(finding.tampering in _ANNOUNCED for finding in self.findings)

    @property
    def other_key(self) -> bool:
        """Whether the only problem is that all checkpoints were validly signed by another key than the known one.

        This happens if the key was lost or replaced, and also if all checkpoints were forged.
        """
        return not self.ok and not self.keys and all(_SIGNED_OTHERWISE in each.message for each in self.findings)

    def __str__(self) -> str:
        found = _many(len(self.findings), "finding")
        if self.ok:
            state = "the record is whole"
        elif self.announced:
            state = f"the hub announced a break in the record ({found})"
        elif self.other_key:
            state = f"the record is consistent, but the known key did not sign it ({found})"
        else:
            state = f"the record was tampered with ({found})"
        counts = f"{_many(self.rows, 'row')}, {_many(self.checkpoints, 'checkpoint')}"
        lines = [f"{state}: {counts}, {_many(self.unprotected, 'row')} after the last"]
        lines += [f"  agrees with {_many(self.anchors, 'anchor')}"] if self.anchors else []
        lines += [f"  {finding}" for finding in self.findings]
        lines += [f"  signed by {key}" for key in self.keys]
        return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


class Unsigned(NamedTuple):
    """From when on unsigned rows are a finding: a working hub would have signed them by then."""

    due_ms: int
    """Rows committed before this time should be signed."""
    most: int
    """A hub never leaves more rows than this unsigned."""
    since_ms: int = 0
    """When the first row after the last checkpoint was committed, as far as the database knows; 0: unknown."""


def verify(
    rows: Iterable[ChainRow],
    checkpoints: Iterable[Checkpoint | None],
    *,
    remembered: int | None = 0,
    remembered_seq: int | None = None,
    referenced: int = 0,
    public_key: bytes | None = None,
    pinned: Collection[bytes] = (),
    breaks: Sequence[tuple[int, ChainBreak]] = (),
    anchors: Sequence[Checkpoint] = (),
    unsigned: Unsigned | None = None,
) -> AuditVerdict:
    """Judge a chain, oldest row first, by its digests, its checkpoints and the *anchors* that were kept elsewhere.

    *remembered* is the number of the last checkpoint that the database knows (None: its row about that is lost) and
    *remembered_seq* the row that it signed; *referenced* is the highest row that anything else in the database points
    at. The *pinned* keys, those of the anchors, or the *public_key* must have signed; without any of these, the first
    checkpoint's key is trusted. *breaks* are the rows in which hubs announced that the key changed, or that something
    did not match.
    """
    lines = list(checkpoints)
    keys = _Keys(pinned, anchors, public_key, lines, breaks)
    seals, findings = _judge_checkpoints(lines, remembered, keys)
    findings.extend(_judge_mark(lines, remembered, remembered_seq))
    findings += keys.findings(seals)
    sealed = max((seal.seq for seal in seals), default=0)
    reliable, forged = _judge_anchors(anchors, lines, keys)
    walk = _Walk(seals, reliable, sealed, unsigned)
    for row in rows:
        walk.step(row)
    walk.end(max(referenced, sealed))
    return AuditVerdict(
        rows=walk.count,
        checkpoints=len(seals),
        unprotected=max(0, walk.seq - sealed),
        findings=tuple([*findings, *forged, *walk.findings][:MAX_FINDINGS]),
        keys=tuple(dict.fromkeys(seal.key for seal in seals)),
        anchors=walk.anchored,
    )


class _Keys:
    """The keys that may have signed, and those of them that are only valid because a hub announced the change."""

    def __init__(
        self,
        pinned: Collection[bytes],
        anchors: Sequence[Checkpoint],
        public_key: bytes | None,
        lines: Sequence[Checkpoint | None],
        breaks: Sequence[tuple[int, ChainBreak]],
    ) -> None:
        self._pinned = {key.hex() for key in pinned} or {anchor.key for anchor in anchors if anchor.is_genuine()}
        first = next((line.key for line in lines if line), None)
        trusted = self._pinned or ({public_key.hex()} if public_key else {first} if first else set[str]())
        self._breaks = breaks
        self.accepted = set(trusted)
        changes = [each for _, each in breaks if each.old_key and each.new_key]
        while more := {
            key
            for each in changes
            if {each.old_key, each.new_key} & self.accepted
            for key in (each.old_key, each.new_key)
            if key not in self.accepted
        }:
            self.accepted |= more

    def findings(self, seals: Sequence[Checkpoint]) -> list[AuditFinding]:
        signed = {seal.key for seal in seals}
        found = [
            AuditFinding(
                tampering=Tampering.KEY_SIGNED_NOTHING, first=0, last=0, message=f"{key} signed no checkpoint here"
            )
            for key in sorted(self._pinned - signed)
        ]
        for seq, each in self._breaks:
            if each.finding == Tampering.KEY_CHANGED:
                if not {each.old_key, each.new_key} <= self._pinned:
                    found.append(_finding(Tampering.KEY_CHANGED, seq, f"announced by the hub: {each.text}"))
            else:
                message = f"the hub found, when it opened the store: {each.finding}: {each.text}"
                found.append(_finding(Tampering.BREAK_ANNOUNCED, seq, message))
        return found


def _judge_checkpoints(
    checkpoints: Iterable[Checkpoint | None], remembered: int | None, keys: _Keys
) -> tuple[list[Checkpoint], list[AuditFinding]]:
    """Return the reliable checkpoints, and what is wrong with the others."""
    genuine: list[Checkpoint] = []
    findings: list[AuditFinding] = []
    expected = 1
    for place, checkpoint in enumerate(checkpoints, start=1):
        if checkpoint is None:
            findings.append(_finding(Tampering.CHECKPOINT_FORGED, expected, f"line {place} is not a valid checkpoint"))
            expected += 1
            continue
        number = checkpoint.number
        if number != expected:
            findings.append(_missing(expected, number - 1, f"checkpoint {number} stands where {expected} should"))
        if not checkpoint.is_genuine():
            findings.append(
                _finding(Tampering.CHECKPOINT_FORGED, number, f"the signature of checkpoint {number} is wrong")
            )
        elif checkpoint.key not in keys.accepted:
            message = f"checkpoint {number} {_SIGNED_OTHERWISE}, {checkpoint.key}"
            findings.append(_finding(Tampering.CHECKPOINT_FORGED, number, message))
        else:
            genuine.append(checkpoint)
        expected = number + 1
    if remembered is not None and expected <= remembered:
        findings.append(_missing(expected, remembered, f"the database knows of {remembered} checkpoints"))
    return genuine, findings


def _judge_mark(
    lines: Sequence[Checkpoint | None], remembered: int | None, remembered_seq: int | None
) -> Iterator[AuditFinding]:
    """Compare the database's note of the last checkpoint with the file."""
    if remembered is None:
        message = "the database's row about its last checkpoint was deleted"
        yield AuditFinding(tampering=Tampering.CHECKPOINT_ROW_MISSING, first=0, last=0, message=message)
        return
    if remembered_seq is None:
        return
    by_number = {line.number: line for line in lines if line}
    last = max(by_number, default=0)
    same = by_number.get(remembered)
    # A process that was killed between the line and the database's row leaves one extra line, never two.
    if last > remembered + 1:
        message = f"the file has {last} checkpoints, the database knows of {remembered}"
        yield AuditFinding(tampering=Tampering.CHECKPOINTS_DISAGREE, first=remembered + 1, last=last, message=message)
    elif same is not None and same.seq != remembered_seq:
        message = f"it signed row {same.seq} in the file, row {remembered_seq} in the database"
        yield _finding(Tampering.CHECKPOINTS_DISAGREE, remembered, message)


def _judge_anchors(
    anchors: Sequence[Checkpoint], lines: Sequence[Checkpoint | None], keys: _Keys
) -> tuple[list[Checkpoint], list[AuditFinding]]:
    """Return the reliable anchors, and the findings that need no look at the rows."""
    last = max((line.number for line in lines if line), default=0)
    reliable: list[Checkpoint] = []
    findings: list[AuditFinding] = []
    for anchor in anchors:
        number = anchor.number
        if not anchor.is_genuine():
            message = f"the signature of the anchor with number {number} is wrong"
            findings.append(_finding(Tampering.ANCHOR_FORGED, number, message))
        elif anchor.key not in keys.accepted:
            message = f"the anchor with number {number} is signed by another key, {anchor.key}"
            findings.append(_finding(Tampering.ANCHOR_FORGED, number, message))
        else:
            reliable.append(anchor)
            if number > last:
                findings.append(_missing(last + 1, number, f"an anchor is checkpoint {number}"))
    return reliable, findings


def _missing(first: int, last: int, why: str) -> AuditFinding:
    return AuditFinding(tampering=Tampering.CHECKPOINT_MISSING, first=first, last=max(first, last), message=why)


def _finding(tampering: Tampering, place: int, message: str) -> AuditFinding:
    return AuditFinding(tampering=tampering, first=place, last=place, message=message)


class _Suspect(NamedTuple):
    """A row that does not follow from the row before it."""

    row: ChainRow
    number: int
    previous: bytes


class _Walk:
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
    ) -> None:
        self._seals = _by_row(seals)
        self._anchors = _by_row(anchors)
        self._sealed = 0
        self._signed = signed
        """The last row that a checkpoint signed."""
        self._unsigned = unsigned
        self._latest_ms = unsigned.since_ms if unsigned else 0
        self._overdue = 0
        self._rewritten = False
        self._previous = GENESIS
        # By how much the rows are numbered higher than when they were written.
        self._shift = 0
        self._group: list[_Suspect] = []
        self._groups: list[list[_Suspect]] = []
        self._pooled = 0
        self.seq = 0
        self.count = 0
        self.anchored = 0
        self.findings: list[AuditFinding] = []

    def step(self, row: ChainRow) -> None:
        self.count += 1
        if not self._group or self._explain(row):
            self._follow(row)
        if self._unsigned is not None:
            self._judge_age(row, self._unsigned)

    def _follow(self, row: ChainRow) -> None:
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
        """Report what only the end shows: *expected* is the lowest number that the last row may have."""
        self._close_group()
        pool = [suspect for group in self._groups for suspect in group]
        for group in self._groups:
            self._resolve(group, pool)
        if self.seq < expected:
            self._find(Tampering.TRUNCATED, self.seq + 1, expected, f"the record ends at row {self.seq}")
        for anchor in (each for some in self._anchors.values() for each in some if each.seq > self.seq):
            message = f"the record ends at row {self.seq}, and an anchor signed row {anchor.seq}"
            self._find(Tampering.ROLLED_BACK, self.seq + 1, anchor.seq, message)
        if self._unsigned is not None and self.seq - self._signed > self._unsigned.most:
            self._overdue = self.seq
        if self._overdue > self._signed:
            message = "no checkpoint signed them in time: the hub was killed, or they were rewritten"
            self._find(Tampering.UNSIGNED, self._signed + 1, self._overdue, message)
        self.findings.sort(key=lambda finding: finding.first)

    def _accept(self, number: int, digest: bytes) -> None:
        self.seq, self._previous = number, digest
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
        if self.seq > self._signed and self._latest_ms < unsigned.due_ms:
            self._overdue = self.seq

    def _suspect(self, row: ChainRow, number: int) -> None:
        self._group.append(_Suspect(row, number, self._previous))
        self.seq, self._previous = number, row.digest

    def _explain(self, row: ChainRow) -> bool:
        """Return whether *row* explains the suspects before it; if not, it is a suspect itself."""
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
            previous = own if own and follower and _fits(own, follower.row, follower.number) else row.digest

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
        return link(previous, number, row.kind, row.at_ms, row.run, row.session, row.body)
    except (TypeError, ValueError, OverflowError):
        return None


def _fits(previous: bytes, row: ChainRow, number: int) -> bool:
    return _digest(previous, row, number) == row.digest


def _is_home(previous: bytes, row: ChainRow, number: int, other: _Suspect) -> bool:
    """Return whether *other* was written at *number*, either with its own digest or with that of *row*."""
    return other.number != number and _digest(previous, other.row, number) in (other.row.digest, row.digest)


def _renumbered(before: ChainRow, row: ChainRow, number: int) -> int:
    """Return by how much both rows were renumbered downwards, or 0 if that does not explain them."""
    return next((gone for gone in range(1, MAX_GAP) if _fits(before.digest, row, number + gone)), 0)
