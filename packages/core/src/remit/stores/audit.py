"""Verifies the audit chain in a SQLite file, and exports its rows as they were hashed."""

import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from remit.protocol.codec import encode
from remit.protocol.errors import Code, fault
from remit.protocol.records import ChainBreak, Kind, Removal
from remit.runtime.audit import GENESIS, AuditVerdict, ChainRow, RemovedRow, Unsigned, leaf, verify
from remit.runtime.audit.stored_chain import Watch, watched
from remit.runtime.ports import StoreError
from remit.runtime.signing import Checkpoint, VerifiedMark, read_key, sign_verified
from remit.stores.checkpoints import (
    EVERY,
    SECONDS,
    key_path,
    key_used_ms,
    newest_checkpoint,
    read_checkpoints,
    read_mark,
)
from remit.stores.connection import SqliteConnection, connect_reader, translate
from remit.stores.records import FileQuery, within
from remit.stores.schema import KINDS, check_version

# In WAL mode a reader waits for a lock only while the file recovers from a crash.
BUSY_SECONDS = 5

# A hub that is busy, or had disk errors, writes checkpoints late: it retries after seconds, and checks after each
# batch of records whether one is due.
GRACE_SECONDS = 60.0
GRACE_ROWS = 10_000

# Clocks of machines that share a store may differ by minutes; more is a wrong clock.
SKEW_MS = 15 * 60_000

_BREAK = KINDS[Kind.BREAK]
_read_break = msgspec.json.Decoder(ChainBreak).decode
_REMOVED = KINDS[Kind.REMOVED]
_read_removal = msgspec.json.Decoder(Removal).decode

_KINDS: dict[int, str] = {number: kind.value for kind, number in KINDS.items()}


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
    known = None if pinned or anchors else _public_key(path)
    start = verified_before(path, known) if incremental and known else None
    try:
        connection = connect_reader(path, BUSY_SECONDS)
        try:
            check_version(connection, path)
            newest = newest_checkpoint(path)
            verdict = audit(
                path,
                known,
                pinned=pinned,
                anchors=anchors,
                every=checkpoint_every,
                seconds=checkpoint_seconds,
                start=start,
            )(connection)
            if incremental and known and verdict.ok and newest is not None:
                remember_verified(path, newest)
            return verdict
        finally:
            connection.close()
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error


def audit(
    path: Path,
    public_key: bytes | None,
    *,
    pinned: Collection[bytes] = (),
    anchors: Sequence[Checkpoint] = (),
    every: int = EVERY,
    seconds: float = SECONDS,
    start: Checkpoint | None = None,
    watch: Watch | None = None,
) -> FileQuery[AuditVerdict]:
    """Return the query that verifies the whole chain, or what comes after the checkpoint *start*."""

    def query(connection: SqliteConnection) -> AuditVerdict:
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
            now_ms, patience_ms = time.time_ns() // 1_000_000, int((seconds + GRACE_SECONDS) * 1_000)
            used_ms = key_used_ms(path)
            return verify(
                watched(chain_rows(connection, after), watch),
                checkpoints,
                remembered=mark.number if mark else None,
                remembered_seq=mark.seq if mark else None,
                referenced=connection.execute(_REFERENCED, (after,)).fetchall()[0][0],
                public_key=public_key,
                pinned=pinned,
                breaks=breaks(connection),
                anchors=anchors,
                unsigned=Unsigned(
                    now_ms - patience_ms, every + GRACE_ROWS, mark.since_ms if mark else 0, now_ms + SKEW_MS
                ),
                removals=removals(connection, after),
                start=since,
                used_ms=None if used_ms is None else used_ms + patience_ms,
            )
        finally:
            connection.execute("ROLLBACK")

    return query


_REFERENCED = """
    SELECT coalesce(max(max(place, coalesce(begun_seq, 0), coalesce(last_seq, 0))), 0) FROM request
    WHERE place > ?
"""


def _verified_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def verified_before(path: Path, public_key: bytes) -> Checkpoint | None:
    """Return the checkpoint up to which the record was verified before, if the store's key says so."""
    try:
        mark = msgspec.json.decode(_verified_path(path).read_bytes(), type=VerifiedMark)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return mark.checkpoint if mark.is_genuine(public_key) else None


def remember_verified(path: Path, newest: Checkpoint) -> None:
    """Keep up to which checkpoint the record was verified, beside the store and signed with its key."""
    try:
        mark = sign_verified(read_key(key_path(path)), newest, time.time_ns() // 1_000_000)
        draft = _verified_path(path).with_suffix(f".{os.getpid()}.draft")
        draft.write_bytes(encode(mark))
        draft.replace(_verified_path(path))
    except (OSError, StoreError):
        return  # whoever may not write there verifies all of it again


def removals(connection: SqliteConnection, after: int = 0) -> list[tuple[int, Removal]]:
    """Return the statements after a row that rows were removed, with their own rows, oldest first."""
    found: list[tuple[int, Removal]] = []
    sql = f"SELECT seq, CAST(body AS BLOB) FROM main.record WHERE kind = {_REMOVED} AND seq > ? ORDER BY seq"
    for seq, body in connection.execute(sql, (after,)):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the row was edited, which its digest shows
            found.append((seq, _read_removal(body)))
    return found


def breaks(connection: SqliteConnection) -> list[tuple[int, ChainBreak]]:
    """Return the breaks that hubs announced, with their rows."""
    found: list[tuple[int, ChainBreak]] = []
    for seq, body in connection.execute(f"SELECT seq, CAST(body AS BLOB) FROM main.record WHERE kind = {_BREAK}"):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the row was edited, which its digest shows
            found.append((seq, _read_break(body)))
    return found


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
        kind = _KINDS.get(number, f"kind {number}")
        yield ChainRow(seq, kind, at_ms, _text(run), _text(session), body, digest)
    if gap is not None:
        yield gap
        yield from removed


def _removed_rows(connection: SqliteConnection, after: int, last: int) -> Iterator[RemovedRow]:
    for seq, content, digest, kept, number, at_ms, run, session, body in connection.execute(
        _REMOVED_ROWS, (after, last)
    ):
        kind = _KINDS.get(number, f"kind {number}")
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
    found = connection.execute(
        "SELECT CAST(digest AS BLOB) FROM record WHERE seq = ?1"
        " UNION ALL SELECT digest FROM removed WHERE seq = ?1 AND digest IS NOT NULL",
        (seq,),
    ).fetchone()
    return None if found is None else found[0]


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="surrogateescape")


def _public_key(path: Path) -> bytes | None:
    try:
        # Only the public half is used, so a key file that others can read is no reason not to verify.
        return read_key(key_path(path), private=False).public
    except OSError:
        return None


def newest_anchor(connection: SqliteConnection, path: Path) -> tuple[Checkpoint, int]:
    """Return the newest checkpoint and the number of rows after it, or raise `StoreError` if none is valid."""
    newest = newest_checkpoint(path)
    if newest is None:
        message = f"{path}: no checkpoint was written yet"
        advice = f"A hub writes one every {SECONDS:.0f} s while records come, and when it closes."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
    found = digest_of(connection, newest.seq)
    if not newest.is_genuine() or found is None or found.hex() != newest.digest:
        message = f"{path}: checkpoint {newest.number} does not match the record"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Check it with `remit audit verify`."))
    head: int = connection.execute("SELECT max(seq) FROM record").fetchall()[0][0]
    return newest, head - newest.seq


_NAMES = {number: kind.value for kind, number in KINDS.items()}


class Linked(NamedTuple):
    """A row, and the digest of the row before it, which its own digest depends on."""

    previous: bytes
    row: ChainRow


def linked_rows(
    connection: SqliteConnection, *, run: str | None = None, profile: str | None = None, after: int = 0
) -> Iterator[Linked]:
    """Return the rows in order as they are stored, tampered ones included; optionally of one run or profile."""
    where, values = within(after, run=run, profile=profile)
    sql = _CHAINED_ROWS.format(where=f"seq > ?1 AND {where}")
    for previous, seq, number, at_ms, of_run, session, body, digest in connection.execute(sql, values):
        kind = _NAMES.get(number, f"kind {number}")
        yield Linked(
            previous or GENESIS, ChainRow(seq, kind, at_ms, _shown_text(of_run), _shown_text(session), body, digest)
        )


_CHAINED_ROWS = """
    SELECT coalesce(
            (SELECT CAST(digest AS BLOB) FROM record AS before WHERE before.seq = record.seq - 1),
            (SELECT digest FROM removed WHERE removed.seq = record.seq - 1),
            (SELECT CAST(digest AS BLOB) FROM record AS before WHERE before.seq < record.seq ORDER BY seq DESC LIMIT 1)
        ),
        seq, kind, at_ms, CAST(run AS BLOB), CAST(session AS BLOB), CAST(body AS BLOB), CAST(digest AS BLOB)
    FROM main.record AS record WHERE {where} ORDER BY seq
"""


def _shown_text(raw: bytes) -> str:
    # A tampered row may contain invalid text; its digest does not match anyway.
    return raw.decode(errors="replace")


def before_newest(connection: SqliteConnection, count: int, run: str | None = None, profile: str | None = None) -> int:
    """Return the number before the newest *count* rows, optionally of one run or profile."""
    where, values = within(count, run=run, profile=profile)
    newest = f"SELECT seq FROM record WHERE {where} ORDER BY seq DESC LIMIT ?1"
    sql = f"SELECT coalesce(min(seq) - 1, (SELECT max(seq) FROM record), 0) FROM ({newest})"
    return connection.execute(sql, values).fetchall()[0][0]
