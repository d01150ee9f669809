"""Verification of the chain in a SQLite file, while others may go on writing to it."""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from remit.runtime.audit import AuditVerdict, Row, verify
from remit.runtime.signing import read_key
from remit.stores.checkpoints import key_path, read_checkpoints
from remit.stores.connection import Connection, connect_reader
from remit.stores.faults import translate
from remit.stores.reader import Query
from remit.stores.schema import KINDS, check_version

# In WAL mode a reader waits for a lock only while the file recovers from a crash.
BUSY_SECONDS = 5

_KINDS: dict[int, str] = {number: kind.value for kind, number in KINDS.items()}


def verify_file(path: str | os.PathLike[str], *, public_key: bytes | None = None) -> AuditVerdict:
    """Judge the audit chain in a file that nobody need have open; nothing is written, and the secret key is not needed.

    The checkpoints must be signed by *public_key*; if it is not given, by the key beside the file, and if that is not
    there, all by the same.
    """
    path = Path(path)
    try:
        connection = connect_reader(path, BUSY_SECONDS)
        try:
            check_version(connection, path)
            return audit(path, public_key or _public_key(path))(connection)
        finally:
            connection.close()
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error


def audit(path: Path, public_key: bytes | None) -> Query[AuditVerdict]:
    """Return the query that judges the whole chain."""

    def query(connection: Connection) -> AuditVerdict:
        # Others may go on writing. The rows of these checkpoints were committed before the snapshot that is taken next.
        checkpoints = read_checkpoints(path)
        connection.execute("BEGIN")
        try:
            remembered, referenced = connection.execute(_MARKS).fetchall()[0]
            # And so were those of the checkpoints that came in between, as far as the snapshot knows of them.
            between = read_checkpoints(path)[len(checkpoints) :]
            checkpoints += [each for each in between if each is None or each.number <= remembered]
            return verify(
                _rows(connection), checkpoints, remembered=remembered, referenced=referenced, public_key=public_key
            )
        finally:
            connection.execute("ROLLBACK")

    return query


_MARKS = """
    SELECT number, (
        SELECT coalesce(max(max(first_seq, coalesce(begun_seq, 0), coalesce(last_seq, 0))), 0) FROM request
    ) FROM checkpoint
"""

# Read as bytes, because a row that was tampered with may hold text that is none.
_ROWS = """
    SELECT seq, kind, at_ms, CAST(run AS BLOB), CAST(session AS BLOB), CAST(body AS BLOB), CAST(digest AS BLOB)
    FROM record ORDER BY seq
"""


def _rows(connection: Connection) -> Iterator[Row]:
    for seq, number, at_ms, run, session, body, digest in connection.execute(_ROWS):
        kind = _KINDS.get(number, f"kind {number}")
        yield Row(seq, kind, at_ms, _text(run), _text(session), body, digest)


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="surrogateescape")


def _public_key(path: Path) -> bytes | None:
    try:
        # Only its public half is used, so that others can read the file is no reason not to verify.
        return read_key(key_path(path), private=False).public
    except OSError:
        return None
