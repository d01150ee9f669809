"""The hash chain of the record: its rows, its findings, and the removals that it covers."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import encode
from remit.protocol.records import Removal
from remit.runtime.signing import Checkpoint, CheckpointKey, is_signed

# The most findings reported for a chain that is broken everywhere; the first ones show where to look.
MAX_FINDINGS = 100


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
    DATED_AHEAD = "dated ahead"
    """Rows that no checkpoint signed are dated later than now."""
    CHECKPOINT_FORGED = "checkpoint forged"
    CHECKPOINT_MISSING = "checkpoint missing"
    CHECKPOINT_ROW_MISSING = "checkpoint row missing"
    """The database's own row about its last checkpoint was deleted."""
    CHECKPOINTS_DISAGREE = "checkpoints disagree"
    """The database and the checkpoint file disagree about the last checkpoint."""
    KEY_SIGNED_NOTHING = "key signed nothing"
    """A known key signed no checkpoint of this record, though it is older than the rows."""
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
    REMOVAL_FORGED = "removal forged"
    """A statement that rows were removed on purpose was not signed by the key of this record, or does not match it."""


# Findings whose numbers are checkpoint numbers.
_OF_CHECKPOINTS = frozenset(
    {Tampering.CHECKPOINT_FORGED, Tampering.CHECKPOINT_MISSING, Tampering.CHECKPOINTS_DISAGREE, Tampering.ANCHOR_FORGED}
)

# Findings about the record as a whole.
_OF_NOTHING = frozenset({Tampering.CHECKPOINT_ROW_MISSING, Tampering.KEY_SIGNED_NOTHING})

SIGNED_OTHERWISE = "is signed by another key"

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
    """How many rows were read."""
    checkpoints: int
    """How many signed checkpoints were checked."""
    unprotected: int
    """How many rows no checkpoint protects yet: no signature covers them."""
    findings: tuple[AuditFinding, ...] = ()
    """What is wrong; none: nothing is."""
    keys: tuple[str, ...] = ()
    """The signer: compare it with a note kept elsewhere if the key file itself may have been replaced."""
    anchors: int = 0
    """How many anchors the record agrees with."""
    removed: int = 0
    """How many rows were removed, at least their texts, as signed statements in the record say."""
    since: int = 0
    """The row up to which the record was verified before; 0: all of it was verified now."""
    unchained: int = 0
    """How many records are durable and not in the chain yet: several hubs share the store."""
    unprotected_since_ms: int = 0
    """The time of the first row that no signature covers, in milliseconds since 1970; 0: there is none."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
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
        return not self.ok and not self.keys and all(SIGNED_OTHERWISE in each.message for each in self.findings)

    def __str__(self) -> str:
        count = _many(len(self.findings), "finding")
        if self.ok:
            state = "the record is whole"
        elif self.announced:
            state = f"the hub announced a break in the record ({count})"
        elif self.other_key:
            state = f"the record is consistent, but the known key did not sign it ({count})"
        else:
            state = f"the record was tampered with ({count})"
        counts = f"{_many(self.rows, 'row')}, {_many(self.checkpoints, 'checkpoint')}"
        lines = [f"{state}: {counts}, {_many(self.unprotected, 'row')} after the last"]
        if self.unprotected:
            since = datetime.fromtimestamp(self.unprotected_since_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            lines.append(f"  no signature covers the last {_many(self.unprotected, 'row')}, since {since} UTC")
        lines += [f"  rows 1 to {self.since} were verified before, and only those after them now"] if self.since else []
        lines += [f"  {_many(self.removed, 'row')} pruned or erased, as the record says"] if self.removed else []
        lines += [f"  {_many(self.unchained, 'record')} not in the chain yet"] if self.unchained else []
        lines += [f"  agrees with {_many(self.anchors, 'anchor')}"] if self.anchors else []
        lines += [f"  {finding}" for finding in self.findings]
        lines += [f"  signed by {key}" for key in self.keys]
        return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


Removed = Literal["gone", "outlined"]


class RemovedRow(NamedTuple):
    """What is kept of a removed row for the chain."""

    seq: int
    leaf: bytes
    """The digest of its content; empty for a row of version 6, whose own digest was made without it."""
    digest: bytes | None
    """Its own digest, where that was kept."""
    outline: bytes | None = None
    """The digest of its outline; None if nothing of the content was kept."""


def signed_bytes(removal: Removal) -> bytes:
    """Return the bytes that the signature of a statement covers."""
    return b"remit audit removal\n" + encode(replace(removal, signature=""))


def sign_removal(key: CheckpointKey, removal: Removal) -> Removal:
    """Return the statement, signed with *key*."""
    draft = replace(removal, key=key.public.hex(), signature="")
    return replace(draft, signature=key.sign(signed_bytes(draft)).hex())


def is_genuine(removal: Removal) -> bool:
    """Return whether the owner of its key signed the statement."""
    return is_signed(signed_bytes(removal), removal.key, removal.signature)


class Outlines:
    """The digest of what is kept of a segment's outlined rows, in order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._any = False

    def add(self, seq: int, outline: bytes) -> None:
        self._any = True
        self._hash.update(seq.to_bytes(8) + outline)

    def digest(self) -> str:
        return self._hash.hexdigest() if self._any else ""


def ranges(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return ascending numbers as pairs of the first and the last of each range, one after another."""
    bounds: list[int] = []
    for number in numbers:
        if bounds and number == bounds[-1] + 1:
            bounds[-1] = number
        else:
            bounds += (number, number)
    return tuple(bounds)


def pairs(flat: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=False))


def newest(removals: Iterable[Removal]) -> list[Removal]:
    """Return the newest statement about each segment, in order; of those given, the later ones are newer."""
    return sorted({(each.first, each.last): each for each in removals}.values(), key=lambda each: each.first)


class Coverage:
    """Which rows genuine statements say to have been removed."""

    def __init__(self, removals: Iterable[Removal]) -> None:
        self.statements = newest(removals)
        ranges: list[tuple[int, int, Removed, int]] = []
        for place, each in enumerate(self.statements):
            ranges.extend((first, last, "gone", place) for first, last in pairs(each.gone))
            ranges.extend((first, last, "outlined", place) for first, last in pairs(each.outlined))
        self._ranges = sorted(ranges)
        self._firsts = [first for first, *_ in self._ranges]

    def of(self, seq: int) -> tuple[Removed, int] | None:
        """Return how a row was removed, and the place of the statement that says so."""
        place = bisect_right(self._firsts, seq) - 1
        if place < 0:
            return None
        _, last, how, statement = self._ranges[place]
        return (how, statement) if seq <= last else None


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
        digests: dict[int, list[str]] = {}
        for each in self._coverage.statements:
            for seq, digest in ((each.first - 1, each.before), (each.last, each.after)):
                if seq > start:
                    digests.setdefault(seq, []).append(digest)
        return digests

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
    by_row: dict[int, list[Checkpoint]] = {}
    for each in checkpoints:
        by_row.setdefault(each.seq, []).append(each)
    return by_row


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
    intact: dict[int, bool] = {}
    for row in rows:
        if isinstance(row, RemovedRow):
            before = row.digest or link(before, row.seq, row.leaf)
        else:
            intact[row.seq] = follows(before, row, row.seq)
            before = row.digest
    return intact


def _is_home(previous: bytes, row: ChainRow, number: int, other: _Suspect) -> bool:
    """Return whether *other* was written at *number*, either with its own digest or with that of *row*."""
    return other.number != number and _digest(previous, other.row, number) in (other.row.digest, row.digest)


def _renumbered(before: ChainRow, row: ChainRow, number: int) -> int:
    """Return by how much both rows were renumbered downwards, or 0 if that does not explain them."""
    return next((gone for gone in range(1, MAX_GAP) if follows(before.digest, row, number + gone)), 0)


Watch = Callable[[int], None]
"""Is told the number of a row that a verification has reached. An error that it raises ends the verification."""

# A row takes some 10 µs, so that whoever watches can let others work each millisecond.
WATCHED_ROWS = 100


def watched(rows: Iterable[ChainRow | RemovedRow], watch: Watch | None) -> Iterable[ChainRow | RemovedRow]:
    """Return the same rows; *watch* is told of each hundredth as it passes."""
    if watch is None:
        return rows

    def passing() -> Iterable[ChainRow | RemovedRow]:
        for place, row in enumerate(rows):
            if place % WATCHED_ROWS == 0:
                watch(row.seq)
            yield row

    return passing()


class ChainLink(NamedTuple):
    """A row's place in the chain."""

    previous: str
    """The digest of the row before it."""
    digest: str


class AuditedChain(Protocol):
    """The hash chain over the record of a store."""

    async def verify(self, *, start: Checkpoint | None = None, watch: Watch | None = None) -> AuditVerdict:
        """Verify the chain, or what comes after the checkpoint *start*, without keeping hubs from writing."""
        ...

    async def newest_checkpoint(self) -> Checkpoint | None: ...

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        """Return for the rows of a part of the record whether each follows from the row before it.

        Rows that were removed on purpose, and rows that are not in the chain yet, are left out.
        """
        ...

    async def link(self, seq: int) -> ChainLink | None:
        """Return the place of a row in the chain; None if there is no such row."""
        ...


@runtime_checkable
class KeepsChain(Protocol):
    """A store whose record is hash-chained and signed."""

    @property
    def chain(self) -> AuditedChain: ...
