"""Plans what a removal changes in a sealed segment, and states it; the engines only write the plan."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from remit.protocol.codec import encode
from remit.protocol.records import ENVELOPE_TEXTS, Kind, Removal
from remit.runtime.audit import ChainRow, RemovedRow, follows, leaf, link
from remit.runtime.audit.chain import Outlines, newest, ranges, sign_removal
from remit.runtime.signing import Checkpoint, CheckpointKey

# A segment is removed in one transaction, which takes some 20 µs a row: with this many rows hubs wait for 0.2 s. A hub
# writes a checkpoint at least as often.
MOST_ROWS = 10_000


class SealedSegment(NamedTuple):
    """A range of whole rows up to a signed checkpoint."""

    first: int
    last: int
    seal: Checkpoint
    """The checkpoint that signed its last row."""
    sealed_ms: int
    """All of its rows were committed before this time."""

    @property
    def day(self) -> str:
        """The day on which it was sealed, in UTC."""
        return day_of(self.sealed_ms)


def segments(checkpoints: Iterable[Checkpoint | None], removals: Sequence[Removal] = ()) -> list[SealedSegment]:
    """Return the segments that the checkpoints seal, oldest first.

    A segment from which something was removed stays as it is. The others end with their day, or after `MOST_ROWS`.
    """
    fixed = {each.first: each.last for each in newest(removals)}
    sealed_segments: list[SealedSegment] = []
    begun: list[Checkpoint] = []
    first = 1

    def end() -> int:
        last = begun[-1]
        sealed_segments.append(SealedSegment(first, last.seq, last, last.at_ms))
        begun.clear()
        return last.seq + 1

    for seal in checkpoints:
        if seal is None or seal.seq < first or (begun and seal.seq <= begun[-1].seq):
            continue
        if begun and first not in fixed:
            last = begun[-1]
            if seal.seq - first >= MOST_ROWS or day_of(seal.at_ms) != day_of(last.at_ms) or last.seq + 1 in fixed:
                first = end()
        begun.append(seal)
        if first in fixed and seal.seq >= fixed[first]:
            first = end()
    if begun:
        end()
    return sealed_segments


def day_of(at_ms: int) -> str:
    """Return the day of a time, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(at_ms / 1_000))


# A removed row leaves about this many bytes: its number and the digest of its content.
LEFT_BYTES = 40
# A row has about this many bytes besides its texts: number, kind, time, digest, and entries in two indexes.
ROW_BYTES = 75


class ExpiredRows(NamedTuple):
    """The rows of a segment that the retention rule no longer keeps."""

    rule: str
    whole: bool
    """Whether the rows go, and not only their texts."""


class OfUser(NamedTuple):
    """The rows of a segment that belong to a user."""

    user: str
    runs: tuple[str, ...]
    subject: str


Selection = ExpiredRows | OfUser


class RemovedPart(NamedTuple):
    """What was removed from a segment, or would be."""

    rows: int = 0
    texts: int = 0
    bytes: int = 0
    refused: str = ""
    """Why the segment was left as it is."""


class VerifiedRow(NamedTuple):
    """A row that follows from the one before it."""

    row: ChainRow | RemovedRow
    digest: bytes
    leaf: bytes
    """The digest of its content; empty for a row of version 6."""


class SegmentChanges(NamedTuple):
    """The rows of a segment that a removal changes."""

    statement: Removal
    kept: Sequence[tuple[int, bytes, bytes | None]]
    """What the chain keeps: number, digest of the content, and the row's own digest where it is needed."""
    outlines: Sequence[tuple[bytes, int]]
    gone: Sequence[int]


def verified(
    segment: SealedSegment,
    rows: Iterable[ChainRow | RemovedRow],
    previous: bytes | None,
    accepted: Collection[str],
) -> Iterator[VerifiedRow]:
    """Yield the rows of a segment, or raise `ValueError` where they were tampered with.

    *previous* is the digest of the row before them. Its checkpoint must be signed by one of the keys *accepted*.
    """
    seal = segment.seal
    if not seal.is_genuine() or seal.key not in accepted:
        raise ValueError(f"checkpoint {seal.number} was not signed by the key of this store")
    if previous is None:
        raise ValueError("the row before them is missing")
    expected = segment.first
    for row in rows:
        if row.seq != expected:
            raise ValueError(f"row {expected} is missing")
        verified = _followed(previous, row)
        yield verified
        previous, expected = verified.digest, expected + 1
    if expected != segment.last + 1 or previous.hex() != seal.digest:
        raise ValueError(f"they do not match what checkpoint {seal.number} signed")


def _followed(previous: bytes, row: ChainRow | RemovedRow) -> VerifiedRow:
    """Return the row with its digests, or raise `ValueError` if it does not follow from the row before it."""
    if isinstance(row, RemovedRow):
        digest = link(previous, row.seq, row.leaf) if row.leaf else row.digest or b""
        return VerifiedRow(row, digest, row.leaf)
    if not follows(previous, row, row.seq):
        raise ValueError(f"row {row.seq} was changed")
    content = leaf(row.kind, row.at_ms, row.run, row.session, row.body)
    is_old = link(previous, row.seq, content) != row.digest
    return VerifiedRow(row, row.digest, b"" if is_old else content)


def plan(
    segment: SealedSegment,
    selection: Selection,
    chosen: Collection[int],
    rows: Sequence[VerifiedRow],
    *,
    before: bytes,
    outline: Callable[[Kind, bytes], bytes],
    key: CheckpointKey,
    at_ms: int,
) -> tuple[RemovedPart, SegmentChanges]:
    """Return what removing the *chosen* rows changes, with the signed statement that says so.

    *rows* are all rows of the segment, *before* is the digest of the row before them, and *outline* returns what is
    kept of a body without its texts.
    """
    shortens = isinstance(selection, ExpiredRows) and not selection.whole
    going, shortened = (frozenset[int](), frozenset(chosen)) if shortens else (frozenset(chosen), frozenset[int]())
    gone: list[int] = []
    new: list[int] = []
    outlined: list[int] = []
    kept: list[tuple[int, bytes, bytes | None]] = []
    outlines: list[tuple[bytes, int]] = []
    seal = Outlines()
    freed = 0
    absent = {row.seq for row, _, _ in rows if isinstance(row, RemovedRow) and row.outline is None}
    leaving = absent | going
    for row, digest, content in rows:
        seq, known = row.seq, row.outline if isinstance(row, RemovedRow) else None
        if seq in absent:
            gone.append(seq)
        elif seq in going:
            gone.append(seq)
            new.append(seq)
            # The row after it, and whoever compares a checkpoint, needs its own digest.
            needed = seq == segment.last or seq + 1 not in leaving or not content
            kept.append((seq, content, digest if needed else None))
            freed += ROW_BYTES - LEFT_BYTES + (_length(row) if isinstance(row, ChainRow) else LEFT_BYTES)
        elif known is not None:
            outlined.append(seq)
            seal.add(seq, known)
        elif seq in shortened and isinstance(row, ChainRow):
            body = outline(Kind(row.kind), row.body)
            outlined.append(seq)
            seal.add(seq, leaf(row.kind, row.at_ms, row.run, row.session, body))
            kept.append((seq, content, None if content else digest))
            outlines.append((body, seq))
            freed += len(row.body) - len(body) - LEFT_BYTES
    statement = Removal(
        why="pruned" if isinstance(selection, ExpiredRows) else "erased",
        rule=selection.rule if isinstance(selection, ExpiredRows) else "the user was erased",
        first=segment.first,
        last=segment.last,
        before=before.hex(),
        after=segment.seal.digest,
        gone=ranges(gone),
        outlined=ranges(outlined),
        outlines=seal.digest(),
        subject="" if isinstance(selection, ExpiredRows) else selection.subject,
        at_ms=at_ms,
        key="",
    )
    part = RemovedPart(rows=len(new), texts=len(outlines), bytes=max(0, freed))
    return part, SegmentChanges(sign_removal(key, statement), kept, outlines, new)


def _length(row: ChainRow) -> int:
    return len(row.body) + 2 * len(row.run) + 2 * len(row.session)


# ── what stays of a record without its texts ──────────────────────────────────────────────────────────────────────────

# They say what happened to the record itself.
NEVER_REMOVED = frozenset({Kind.BREAK, Kind.REMOVED})

# The texts in the other kinds of records; notices and steps with other devices have none that people wrote.
_TEXTS: dict[Kind, tuple[str, ...]] = {
    Kind.PROGRESS: ("text", "finished", "unfinished"),
    Kind.TOOL: ("input",),
    Kind.APPROVAL: ("question", "reason"),
}
# Of those, the ones that a record cannot be without.
_NEEDED = ("text", "question")
_ENVELOPES = frozenset({Kind.STARTED, Kind.DELEGATION, Kind.RESULT})
HAVING_TEXTS = (*sorted(_ENVELOPES), Kind.REFUSED, *_TEXTS)


def outline_of(kind: Kind, raw: bytes) -> bytes:
    """Return the body of a record without its texts: who, when, how it ended and what it cost."""
    body: dict[str, Any] = msgspec.json.decode(raw)
    if kind in _ENVELOPES:
        return encode(_without_texts(body))
    if kind is Kind.REFUSED:
        return encode({part: _without_texts(envelope) for part, envelope in body.items()})
    texts = _TEXTS.get(kind, ())
    kept = {name: value for name, value in body.items() if name not in texts}
    return encode(_with_bare_fault(kept) | {name: "" for name in texts if name in _NEEDED})


def _without_texts(envelope: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in envelope.items() if name not in ENVELOPE_TEXTS}
    return _with_bare_fault(kept)


def _with_bare_fault(body: dict[str, Any]) -> dict[str, Any]:
    # The sentences of a fault may quote what was said; its code says how it ended.
    why: dict[str, Any] | None = body.get("fault")
    return body if why is None else body | {"fault": {"code": why["code"], "message": ""}}
