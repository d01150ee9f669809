"""The archive of a record: one compressed file of JSON lines for each sealed segment, with its proof."""

import gzip
import os
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from remit.protocol.codec import encode
from remit.runtime.audit import GENESIS, ChainRow, RemovedRow, follows, leaf, link
from remit.runtime.signing import Checkpoint
from remit.stores.connection import sync
from remit_cli.upkeep.removal import SealedSegment
from remit_cli.upkeep.store_upkeep import StoreUpkeep

_NAME = re.compile(r"(\d{12})-(\d{12})\.jsonl\.gz")
# Beyond this, a higher level saves 2 % and takes three times as long.
_LEVEL = 6


class ArchivedSegment(
    Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.archive-segment/1", forbid_unknown_fields=True
):
    """The first line of a file: which rows it holds, and the digests at both ends."""

    first: int
    last: int
    day: str
    before: str
    after: str


class ArchivedRow(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="schema",
    tag="remit.archive-row/1",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A row as it was hashed."""

    seq: int
    kind: str
    at_ms: int
    run: str
    session: str
    body: str
    base64: bool = False
    """Whether the body is not text, and written in Base64."""
    digest: str


class ArchivedRemoval(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="schema",
    tag="remit.archive-removed/1",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A row that was removed before: the digest of its content or, if that is empty, its own."""

    seq: int
    leaf: str
    digest: str = ""


class ArchivedCheckpoint(Checkpoint, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-checkpoint/1"):
    """A checkpoint that signed a row of the segment."""


Line = ArchivedSegment | ArchivedRow | ArchivedRemoval | ArchivedCheckpoint

_line_decoder: "msgspec.json.Decoder[Line]" = msgspec.json.Decoder(Line)


class ArchiveVerdict(NamedTuple):
    """The result of checking an archive."""

    segments: int = 0
    rows: int = 0
    removed: int = 0
    """Rows that had been removed when they were archived."""
    first: int = 0
    last: int = 0
    keys: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _name(segment: "SealedSegment | ArchivedSegment") -> str:
    return f"{segment.first:012}-{segment.last:012}.jsonl.gz"


def archive_segment(upkeep: StoreUpkeep, segment: SealedSegment, folder: Path) -> bool:
    """Write a segment into an archive; False: it is there already. A segment that does not verify is refused.

    The file gets its name once it is complete and on the disk.
    """
    path = folder / _name(segment)
    if path.exists():
        return False
    rows, before, checkpoints = upkeep.rows_to_archive(segment)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    seals = [each for each in checkpoints if each and segment.first <= each.seq <= segment.last]
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as raw:
            # Without a name and a time, so that the same segment is the same file.
            with gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
                for line in _lines(segment, rows, before, seals):
                    file.write(encode(line) + b"\n")
            raw.flush()
            os.fsync(raw.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync(folder)
    return True


def _lines(
    segment: SealedSegment,
    rows: Iterable[tuple[ChainRow | RemovedRow, bytes]],
    before: bytes,
    seals: Sequence[Checkpoint],
) -> Iterator[Line]:
    yield ArchivedSegment(
        first=segment.first, last=segment.last, day=segment.day, before=before.hex(), after=segment.seal.digest
    )
    for row, digest in rows:
        if isinstance(row, RemovedRow):
            yield ArchivedRemoval(seq=row.seq, leaf=row.leaf.hex(), digest="" if row.leaf else digest.hex())
        else:
            yield _archived(row)
    for seal in seals:
        yield ArchivedCheckpoint(**msgspec.structs.asdict(seal))


def _archived(row: ChainRow) -> ArchivedRow:
    try:
        body, is_binary = row.body.decode(), False
    except UnicodeDecodeError:
        body, is_binary = b64encode(row.body).decode(), True
    same = {name: getattr(row, name) for name in ("seq", "kind", "at_ms", "run", "session")}
    return ArchivedRow(**same, body=body, base64=is_binary, digest=row.digest.hex())


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

Stored = Callable[[int, int], Iterator[ChainRow | RemovedRow]]
"""Returns the rows of a store after a number and up to another, as far as it still has them."""


def verify_archive(folder: Path, *, keys: Collection[str] = (), stored: Stored | None = None) -> ArchiveVerdict:
    """Check an archive by itself, and against a store if one is given.

    The checkpoints must be signed by one of *keys*; without any, all by the same one.
    """
    verdict = ArchiveVerdict()
    signers: dict[str, None] = {}
    findings: list[str] = []
    files = sorted((int(name[1]), each) for each in folder.iterdir() if (name := _NAME.fullmatch(each.name)))
    if not files:
        findings.append(f"there is no segment in {folder}")
    previous: ArchivedSegment | None = None
    for _, path in files:
        try:
            segment = _check_file(path, stored, signers)
        except (ValueError, OSError, EOFError, zlib.error) as problem:
            findings.append(f"{path.name}: {problem}")
            previous = None
            continue
        header = segment.header
        if previous and header.first != previous.last + 1:
            findings.append(f"{path.name}: rows {previous.last + 1} to {header.first - 1} are not in the archive")
        elif previous and header.before != previous.after:
            findings.append(f"{path.name}: it does not continue {_name(previous)}")
        previous = header
        verdict = verdict._replace(
            segments=verdict.segments + 1,
            rows=verdict.rows + segment.rows,
            removed=verdict.removed + segment.removed,
            first=verdict.first or header.first,
            last=header.last,
        )
    strangers = [key for key in signers if key not in keys] if keys else list(signers)[1:]
    findings += [f"segments are signed by another key, {key}" for key in strangers]
    return verdict._replace(keys=tuple(signers), findings=tuple(findings))


class _Checked(NamedTuple):
    header: ArchivedSegment
    rows: int
    removed: int


def _check_file(path: Path, stored: Stored | None, signers: dict[str, None]) -> _Checked:
    """Return what a file holds, or raise `ValueError` where it is wrong; add the keys that signed to *signers*."""
    with gzip.open(path) as file:
        lines = map(_line_decoder.decode, file)
        header = next(lines, None)
        if not isinstance(header, ArchivedSegment) or _name(header) != path.name:
            raise ValueError("it does not begin with the segment that its name says")
        if header.first == 1 and header.before != GENESIS.hex():
            raise ValueError("the first row does not begin the chain")
        others = None if stored is None else stored(header.first - 1, header.last)
        previous, expected, removed = bytes.fromhex(header.before), header.first, 0
        seals: list[Checkpoint] = []
        digests: dict[int, str] = {}
        for line in lines:
            match line:
                case ArchivedSegment():
                    raise ValueError("it holds two segments")
                case ArchivedCheckpoint():
                    seals.append(line)
                case ArchivedRow() | ArchivedRemoval():
                    if line.seq != expected:
                        raise ValueError(f"row {expected} is missing")
                    previous, content = _digests(previous, line)
                    if others is not None:
                        _compare(line.seq, previous, content, next(others, None))
                    removed += isinstance(line, ArchivedRemoval)
                    digests[line.seq] = previous.hex()
                    expected += 1
    if expected != header.last + 1:
        raise ValueError(f"rows {expected} to {header.last} are missing")
    if previous.hex() != header.after:
        raise ValueError("its rows do not lead to the digest at its end")
    _check_seals(header, seals, digests)
    signers.update(dict.fromkeys(seal.key for seal in seals))
    return _Checked(header, expected - header.first, removed)


def _digests(previous: bytes, line: ArchivedRow | ArchivedRemoval) -> tuple[bytes, bytes]:
    """Return the digests of a row and of its content; the latter is empty for a row of version 6."""
    if isinstance(line, ArchivedRemoval):
        content = bytes.fromhex(line.leaf)
        return (link(previous, line.seq, content) if content else bytes.fromhex(line.digest)), content
    body = b64decode(line.body) if line.base64 else line.body.encode()
    row = ChainRow(line.seq, line.kind, line.at_ms, line.run, line.session, body, bytes.fromhex(line.digest))
    if not follows(previous, row, line.seq):
        raise ValueError(f"row {line.seq} was changed")
    content = leaf(row.kind, row.at_ms, row.run, row.session, row.body)
    return row.digest, content if link(previous, row.seq, content) == row.digest else b""


def _check_seals(header: ArchivedSegment, seals: Sequence[Checkpoint], digests: dict[int, str]) -> None:
    for seal in seals:
        if not seal.is_genuine():
            raise ValueError(f"the signature of checkpoint {seal.number} is wrong")
        if digests.get(seal.seq) != seal.digest:
            raise ValueError(f"its rows do not match what checkpoint {seal.number} signed")
    if not any(seal.seq == header.last for seal in seals):
        raise ValueError("no checkpoint signed its last row")


def _compare(seq: int, digest: bytes, content: bytes, other: ChainRow | RemovedRow | None) -> None:
    if other is None or other.seq != seq:
        raise ValueError(f"row {seq} is not in the store, and nothing of it either")
    if isinstance(other, RemovedRow) and content and other.leaf:
        same = other.leaf == content
    else:
        same = other.digest == digest
    if not same:
        raise ValueError(f"row {seq} is another one in the store")
