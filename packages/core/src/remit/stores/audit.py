"""The audit chain of a store as it is stored, tampered rows included: what a connection reads, and its verification."""

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from remit.ports import StoreError
from remit.protocol.codec import encode
from remit.protocol.errors import Code, fault
from remit.protocol.records import ChainBreak, Kind, Removal
from remit.runtime.audit import GENESIS, AuditVerdict, ChainRow, RemovedRow, Unsigned, leaf, verify
from remit.runtime.audit.chain import ChainLink, Watch, intact_rows, watched
from remit.runtime.audit.verification import accepted_keys
from remit.runtime.signing import Checkpoint, VerifiedMark, read_key, sign_verified
from remit.stores.checkpoints import (
    EVERY,
    SECONDS,
    Mark,
    key_path,
    key_used_ms,
    newest_checkpoint,
    read_checkpoints,
    read_mark,
)
from remit.stores.connection import SqliteConnection, connect_reader, translate
from remit.stores.database import SqliteDatabase, at_once
from remit.stores.reader import Conditions
from remit.stores.schema import KINDS, check_version

T = TypeVar("T")

# In WAL mode a reader waits for a lock only while the file recovers from a crash.
BUSY_SECONDS = 5

# A hub that is busy, or had disk errors, writes checkpoints late: it retries after seconds, and checks after each
# batch of records whether one is due.
GRACE_SECONDS = 60.0
GRACE_ROWS = 10_000

# Clocks of machines that share a store may differ by minutes; more is a wrong clock.
SKEW_MS = 15 * 60_000

_read_break = msgspec.json.Decoder(ChainBreak).decode
_read_removal = msgspec.json.Decoder(Removal).decode

_NAMES: dict[int, str] = {number: kind.value for kind, number in KINDS.items()}


def kind_name(number: int) -> str:
    """Return the name of a kind by its number, also of one that no store writes."""
    return _NAMES.get(number, f"kind {number}")


class Linked(NamedTuple):
    """A row, and the digest of the row before it, which its own digest depends on."""

    previous: bytes
    row: ChainRow


class Proof(NamedTuple):
    """By what a chain is verified."""

    public_key: bytes | None = None
    """The key of the store, which must have signed the checkpoints unless others are *pinned*."""
    pinned: Collection[bytes] = ()
    """Keys each of which must have signed some of them."""
    anchors: Sequence[Checkpoint] = ()
    """Checkpoints that were kept elsewhere."""
    every: int = EVERY
    seconds: float = SECONDS
    """How often hubs sign: rows that stay unsigned for a minute longer are a finding."""
    start: Checkpoint | None = None
    """Up to where the chain was verified before."""
    watch: Watch | None = None

    def judge(
        self,
        rows: Iterable[ChainRow | RemovedRow],
        checkpoints: Sequence[Checkpoint | None],
        mark: Mark | None,
        *,
        since: Checkpoint | None,
        referenced: int,
        breaks: Sequence[tuple[int, ChainBreak]],
        removals: Sequence[tuple[int, Removal]],
        used_ms: int | None = None,
    ) -> AuditVerdict:
        """Return the verdict on rows after the checkpoint *since*, with what else the store says about them."""
        now_ms, patience_ms = time.time_ns() // 1_000_000, int((self.seconds + GRACE_SECONDS) * 1_000)
        since_ms = mark.since_ms if mark else 0
        return verify(
            watched(rows, self.watch),
            checkpoints,
            remembered=mark.number if mark else None,
            remembered_seq=mark.seq if mark else None,
            referenced=referenced,
            public_key=self.public_key,
            pinned=self.pinned,
            breaks=breaks,
            anchors=self.anchors,
            unsigned=Unsigned(now_ms - patience_ms, self.every + GRACE_ROWS, since_ms, now_ms + SKEW_MS),
            removals=removals,
            start=since,
            used_ms=None if used_ms is None else used_ms + patience_ms,
        )


# ── of either engine ──────────────────────────────────────────────────────────────────────────────────────────────────


class StoredChain(ABC):
    """The chain of a store, as a connection reads it."""

    name: str
    """The store, for people to read."""

    @abstractmethod
    async def head(self) -> tuple[int, bytes]:
        """Return the number and the digest of the last row."""

    @abstractmethod
    async def digest_at(self, seq: int) -> bytes | None:
        """Return the digest of a row, also of a removed one; None if it is not known."""

    @abstractmethod
    async def mark(self) -> Mark | None:
        """Return the database's row about its last checkpoint; None if it was deleted."""

    @abstractmethod
    async def checkpoints(self) -> list[Checkpoint | None]:
        """Return all checkpoints in order, None for each that is none."""

    @abstractmethod
    async def newest_checkpoint(self) -> Checkpoint | None: ...

    @abstractmethod
    async def rows(self, first: int, last: int) -> Iterable[ChainRow | RemovedRow]:
        """Return the rows from *first* to *last* in order; of removed rows, what the chain needs of them."""

    @abstractmethod
    async def linked(self, after: int, limit: int, run: str | None = None, profile: str | None = None) -> list[Linked]:
        """Return the next rows, optionally of one run or profile, each with the digest before it."""

    @abstractmethod
    async def verify(self, by: Proof) -> AuditVerdict:
        """Verify the whole chain, or what comes after `by.start`; hubs may keep writing meanwhile."""

    @abstractmethod
    async def _of_kind(self, kind: Kind, after: int) -> Iterable[tuple[int, bytes]]:
        """Return the rows of a kind after one, with their bodies as they are stored."""

    async def breaks(self) -> list[tuple[int, ChainBreak]]:
        """Return the breaks that hubs announced, with their rows."""
        return _decode_rows(await self._of_kind(Kind.BREAK, 0), _read_break)

    async def removals(self, after: int = 0) -> list[tuple[int, Removal]]:
        """Return the statements after a row that rows were removed, with their own rows, oldest first."""
        return _decode_rows(await self._of_kind(Kind.REMOVED, after), _read_removal)

    async def accepted(self, public_key: bytes) -> set[str]:
        """Return the keys that may have signed: the known one, and those whose change a hub announced."""
        return accepted_keys(public_key, await self.checkpoints(), await self.breaks())

    async def newest_anchor(self) -> tuple[Checkpoint, int]:
        """Return the newest checkpoint and the number of rows after it, or raise `StoreError` if none is valid."""
        newest = await self.newest_checkpoint()
        if newest is None:
            message = f"{self.name}: no checkpoint was written yet"
            advice = f"A hub writes one every {SECONDS:.0f} s while records come, and when it closes."
            raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
        digest = await self.digest_at(newest.seq)
        if not newest.is_genuine() or digest is None or digest.hex() != newest.digest:
            message = f"{self.name}: checkpoint {newest.number} does not match the record"
            raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Check it with `remit audit verify`."))
        return newest, (await self.head())[0] - newest.seq

    async def verify_beside(self, path: Path, by: Proof, *, incremental: bool) -> AuditVerdict:
        """Verify the chain by the key beside the store's file at *path*, unless keys or anchors are given.

        With *incremental*, only what came after the checkpoint up to which this was done before is verified. How far is
        kept beside the file, signed with the store's key, which is needed for it.
        """
        known = None if by.pinned or by.anchors else _public_key(path)
        start = _verified_before(path, known) if incremental and known else None
        newest = await self.newest_checkpoint() if incremental else None
        verdict = await self.verify(by._replace(public_key=known, start=start))
        if incremental and known and verdict.ok and newest is not None:
            _remember_verified(path, newest)
        return verdict

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        """Return which rows of a part of the record follow from the row before them."""
        before = await self.digest_at(first - 1) or GENESIS
        return intact_rows(await self.rows(first, last), before)

    async def link(self, seq: int) -> ChainLink | None:
        """Return the place of a row in the chain."""
        digest, previous = await self.digest_at(seq), await self.digest_at(seq - 1) or GENESIS
        return None if digest is None or seq < 1 else ChainLink(previous.hex(), digest.hex())


def _decode_rows(rows: Iterable[tuple[int, bytes]], read: Callable[[bytes], T]) -> list[tuple[int, T]]:
    decoded: list[tuple[int, T]] = []
    for seq, body in rows:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the row was edited, which its digest shows
            decoded.append((seq, read(body)))
    return decoded


class SqlChain:
    """The chain of an open store: `remit.runtime.audit.chain.AuditedChain`."""

    def __init__(
        self, read: Callable[[Callable[[StoredChain], Awaitable[Any]]], Awaitable[Any]], by: Callable[[], Proof]
    ) -> None:
        """*read* returns the result of a query of the chain; *by* needs an open store."""
        self._query, self._by = read, by

    async def verify(self, *, start: Checkpoint | None = None, watch: Watch | None = None) -> AuditVerdict:
        by = self._by()._replace(start=start, watch=watch)
        return await self._query(lambda chain: chain.verify(by))

    async def newest_checkpoint(self) -> Checkpoint | None:
        return await self._query(lambda chain: chain.newest_checkpoint())

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        return await self._query(lambda chain: chain.intact(first, last))

    async def link(self, seq: int) -> ChainLink | None:
        return await self._query(lambda chain: chain.link(seq))


# ── of a SQLite file ──────────────────────────────────────────────────────────────────────────────────────────────────


def verify_file(
    path: str | os.PathLike[str],
    *,
    public_key: bytes | Collection[bytes] | None = None,
    anchors: Sequence[Checkpoint] = (),
    checkpoint_every: int = EVERY,
    checkpoint_seconds: float = SECONDS,
    incremental: bool = False,
) -> AuditVerdict:
    """Verify the audit chain in a file, which need not be open; nothing is written, and no secret key is needed.

    With *incremental*, only what came after the checkpoint up to which this was done before is verified. How far is
    kept beside the file, signed with the store's key, which is needed for it.

    The checkpoints must be signed by *public_key* (of several, each must have signed some); if it is not given, by the
    keys of the *anchors*; else by the key beside the file; and if that is not there, all by the same. Rows that
    stay unsigned for longer than *checkpoint_seconds* and a minute are a finding.
    """
    path = Path(path)
    pinned = (public_key,) if isinstance(public_key, bytes) else tuple(public_key or ())
    by = Proof(pinned=pinned, anchors=anchors, every=checkpoint_every, seconds=checkpoint_seconds)
    try:
        connection = connect_reader(path, BUSY_SECONDS)
        try:
            check_version(connection, path)
            return at_once(FileChain(connection, path).verify_beside(path, by, incremental=incremental))
        finally:
            connection.close()
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error


class FileChain(StoredChain):
    """The chain in a SQLite file."""

    def __init__(self, connection: SqliteConnection, path: Path) -> None:
        self._connection, self._path = connection, path
        self.name = str(path)

    async def head(self) -> tuple[int, bytes]:
        sql = "SELECT seq, CAST(digest AS BLOB) FROM main.record ORDER BY seq DESC LIMIT 1"
        row = self._connection.execute(sql).fetchone()
        return (row[0], row[1]) if row else (0, GENESIS)

    async def digest_at(self, seq: int) -> bytes | None:
        return digest_of(self._connection, seq)

    async def mark(self) -> Mark | None:
        return read_mark(self._connection)

    async def checkpoints(self) -> list[Checkpoint | None]:
        return read_checkpoints(self._path)

    async def newest_checkpoint(self) -> Checkpoint | None:
        return newest_checkpoint(self._path)

    async def rows(self, first: int, last: int) -> Iterable[ChainRow | RemovedRow]:
        return chain_rows(self._connection, first - 1, last)

    async def _of_kind(self, kind: Kind, after: int) -> Iterable[tuple[int, bytes]]:
        sql = f"SELECT seq, CAST(body AS BLOB) FROM main.record WHERE kind = {KINDS[kind]} AND seq > ? ORDER BY seq"
        return [(seq, body) for seq, body in self._connection.execute(sql, (after,))]

    async def linked(self, after: int, limit: int, run: str | None = None, profile: str | None = None) -> list[Linked]:
        wanted = Conditions(after, limit).of(run, profile=profile)
        rows = await SqliteDatabase(self._connection).fetch(_LINKED.format(where=wanted), *wanted.values)
        return [
            Linked(previous or GENESIS, ChainRow(seq, kind_name(kind), at_ms, _text_of(of), _text_of(session), *rest))
            for previous, seq, kind, at_ms, of, session, *rest in rows
        ]

    async def verify(self, by: Proof) -> AuditVerdict:
        path, connection, start = self._path, self._connection, by.start
        # Others may keep writing. The rows of these checkpoints were committed before the snapshot that is taken next.
        checkpoints = read_checkpoints(path)
        connection.execute("BEGIN")
        try:
            # What was verified before must still lead to where it led then.
            known = start and digest_of(connection, start.seq)
            since = start if start and known and known.hex() == start.digest else None
            after = since.seq if since else 0
            mark = read_mark(connection)
            number = mark.number if mark else sys.maxsize
            # So were the rows of checkpoints written in between, as far as the snapshot contains them.
            between = read_checkpoints(path)[len(checkpoints) :]
            checkpoints += [each for each in between if each is None or each.number <= number]
            return by.judge(
                chain_rows(connection, after),
                checkpoints,
                mark,
                since=since,
                referenced=connection.execute(_REFERENCED, (after,)).fetchall()[0][0],
                breaks=await self.breaks(),
                removals=await self.removals(after),
                used_ms=key_used_ms(path),
            )
        finally:
            connection.execute("ROLLBACK")


_REFERENCED = """
    SELECT coalesce(max(max(place, coalesce(begun_seq, 0), coalesce(last_seq, 0))), 0) FROM request
    WHERE place > ?
"""
_LINKED = """
    SELECT coalesce(
            (SELECT CAST(digest AS BLOB) FROM record AS before WHERE before.seq = record.seq - 1),
            (SELECT digest FROM removed WHERE removed.seq = record.seq - 1),
            (SELECT CAST(digest AS BLOB) FROM record AS before WHERE before.seq < record.seq ORDER BY seq DESC LIMIT 1)
        ),
        seq, kind, at_ms, CAST(run AS BLOB), CAST(session AS BLOB), CAST(body AS BLOB), CAST(digest AS BLOB)
    FROM main.record AS record WHERE seq > $1 AND {where} ORDER BY seq LIMIT $2
"""


def _text_of(raw: bytes) -> str:
    # A tampered row may contain invalid text; its digest does not match anyway.
    return raw.decode(errors="replace")


def _verified_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _verified_before(path: Path, public_key: bytes) -> Checkpoint | None:
    """Return the checkpoint up to which the record was verified before, if the store's key says so."""
    try:
        mark = msgspec.json.decode(_verified_path(path).read_bytes(), type=VerifiedMark)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return mark.checkpoint if mark.is_genuine(public_key) else None


def _remember_verified(path: Path, newest: Checkpoint) -> None:
    """Keep up to which checkpoint the record was verified, beside the store and signed with its key."""
    try:
        mark = sign_verified(read_key(key_path(path)), newest, time.time_ns() // 1_000_000)
        draft = _verified_path(path).with_suffix(f".{os.getpid()}.draft")
        draft.write_bytes(encode(mark))
        draft.replace(_verified_path(path))
    except (OSError, StoreError):
        return  # whoever may not write there verifies all of it again


# Read as bytes, because a tampered row may contain invalid text.
_ROWS = """
    SELECT seq, kind, at_ms, CAST(run AS BLOB), CAST(session AS BLOB), CAST(body AS BLOB), CAST(digest AS BLOB)
    FROM main.record WHERE seq > ? AND seq <= ? ORDER BY seq
"""
_REMOVED_ROWS = """
    SELECT removed.seq, leaf, removed.digest, record.seq IS NOT NULL, kind, at_ms,
        CAST(run AS BLOB), CAST(session AS BLOB), CAST(body AS BLOB)
    FROM removed LEFT JOIN main.record AS record ON record.seq = removed.seq
    WHERE removed.seq > ? AND removed.seq <= ? ORDER BY removed.seq
"""


def chain_rows(
    connection: SqliteConnection, after: int = 0, last: int = sys.maxsize
) -> Iterator[ChainRow | RemovedRow]:
    """Return the rows after *after*, up to *last*, in order; of removed rows, what the chain needs of them."""
    removed = _removed_rows(connection, after, last)
    gap = next(removed, None)
    for seq, number, at_ms, run, session, body, digest in connection.execute(_ROWS, (after, last)):
        while gap is not None and gap.seq < seq:
            yield gap
            gap = next(removed, None)
        if gap is not None and gap.seq == seq:
            yield gap._replace(digest=digest)
            gap = next(removed, None)
            continue
        kind = kind_name(number)
        yield ChainRow(seq, kind, at_ms, _text(run), _text(session), body, digest)
    if gap is not None:
        yield gap
        yield from removed


def _removed_rows(connection: SqliteConnection, after: int, last: int) -> Iterator[RemovedRow]:
    for seq, content, digest, kept, number, at_ms, run, session, body in connection.execute(
        _REMOVED_ROWS, (after, last)
    ):
        kind = kind_name(number)
        yield RemovedRow(seq, bytes(content), digest, _leaf(kind, at_ms, run, session, body) if kept else None)


def _leaf(kind: str, at_ms: int, run: bytes, session: bytes, body: bytes) -> bytes:
    try:
        return leaf(kind, at_ms, _text(run), _text(session), body)
    except (TypeError, ValueError, OverflowError):  # no store writes such values
        return b""


def digest_of(connection: SqliteConnection, seq: int) -> bytes | None:
    """Return the digest of a row, also of a removed one; None if it is not known."""
    if seq == 0:
        return GENESIS
    row = connection.execute(
        "SELECT CAST(digest AS BLOB) FROM record WHERE seq = ?1"
        " UNION ALL SELECT digest FROM removed WHERE seq = ?1 AND digest IS NOT NULL",
        (seq,),
    ).fetchone()
    return None if row is None else row[0]


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="surrogateescape")


def _public_key(path: Path) -> bytes | None:
    try:
        # Only the public half is used, so a key file that others can read is no reason not to verify.
        return read_key(key_path(path), private=False).public
    except OSError:
        return None
