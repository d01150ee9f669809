"""Exports rows as they were hashed, to verify the chain without this program."""

from collections.abc import Iterator
from typing import NamedTuple

from remit.runtime.audit import GENESIS, ChainRow
from remit.stores.connection import SqliteConnection
from remit.stores.reader import within
from remit.stores.schema import KINDS

_NAMES = {number: kind.value for kind, number in KINDS.items()}


class Linked(NamedTuple):
    """A row, and the digest of the row before it, which its own digest depends on."""

    previous: bytes
    row: ChainRow


def linked_rows(
    connection: SqliteConnection, *, run: str | None = None, profile: str | None = None, after: int = 0
) -> Iterator[Linked]:
    """Return the rows in order as they are stored, tampered ones included; optionally of one run or profile."""
    where, values = within(run=run, profile=profile)
    sql = _ROWS.format(where=f"seq > ? AND {where}")
    for previous, seq, number, at_ms, of_run, session, body, digest in connection.execute(sql, (after, *values)):
        kind = _NAMES.get(number, f"kind {number}")
        yield Linked(previous or GENESIS, ChainRow(seq, kind, at_ms, _text(of_run), _text(session), body, digest))


_ROWS = """
    SELECT (SELECT CAST(digest AS BLOB) FROM record AS before WHERE before.seq < record.seq ORDER BY seq DESC LIMIT 1),
        seq, kind, at_ms, CAST(run AS BLOB), CAST(session AS BLOB), CAST(body AS BLOB), CAST(digest AS BLOB)
    FROM record WHERE {where} ORDER BY seq
"""


def _text(raw: bytes) -> str:
    # A tampered row may contain invalid text; its digest does not match anyway.
    return raw.decode(errors="replace")


def before_newest(connection: SqliteConnection, count: int, run: str | None = None, profile: str | None = None) -> int:
    """Return the number before the newest *count* rows, optionally of one run or profile."""
    where, values = within(run=run, profile=profile)
    newest = f"SELECT seq FROM record WHERE {where} ORDER BY seq DESC LIMIT ?"
    sql = f"SELECT coalesce(min(seq) - 1, (SELECT max(seq) FROM record), 0) FROM ({newest})"
    return connection.execute(sql, (*values, count)).fetchall()[0][0]
