"""Finds, exports and deletes what a SQLite store keeps about a user."""

from collections.abc import Iterator
from typing import Any

import msgspec

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind
from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError
from remit.stores.connection import SqliteConnection
from remit.stores.retention import NEVER_REMOVED
from remit.stores.schema import KINDS
from remit.stores.upkeep_port import Belongings, Deleted, Kept, scopes_of

_UNTOUCHED = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))

# ── whose is it ───────────────────────────────────────────────────────────────────────────────────────────────────────

# A run has one user: as its request says, or, if that is no longer known, its first record.
_USER_OF_BODY = f"""
    CASE WHEN kind IN ({KINDS[Kind.STARTED]}, {KINDS[Kind.DELEGATION]}) THEN CAST(body AS TEXT) ->> '$.remit.user'
    WHEN kind = {KINDS[Kind.REFUSED]} THEN CAST(body AS TEXT) ->> '$.request.remit.user'
    WHEN kind = {KINDS[Kind.SHARED]} THEN CAST(body AS TEXT) ->> '$.requester' END
"""
_RUNS = f"""
    SELECT json_group_array(run) FROM (
        SELECT run FROM request WHERE user = ?1
        UNION SELECT run FROM record WHERE kind = {KINDS[Kind.STARTED]} AND CAST(body AS TEXT) ->> '$.remit.user' = ?1
    )
"""
_ROWS = f"""
    SELECT seq FROM record WHERE seq BETWEEN ?1 AND ?2 AND kind NOT IN ({_UNTOUCHED})
    AND (run IN (SELECT value FROM json_each(?3)) OR ({_USER_OF_BODY}) = ?4) ORDER BY seq
"""
_SESSIONS = """
    SELECT json_group_array(session) FROM (
        SELECT id AS session FROM session WHERE user = ?1
        UNION SELECT DISTINCT session FROM record
        WHERE run IN (SELECT value FROM json_each(?2))
        AND session NOT IN (SELECT id FROM session WHERE user <> ?1)
    )
"""

_names = msgspec.json.Decoder(tuple[str, ...]).decode


def belongings(connection: SqliteConnection, user: str, keys: HubKeys) -> Belongings:
    """Return what belongs to a user; *keys* are those with which redacted values are encrypted."""
    ((of_runs,),) = connection.execute(_RUNS, (user,)).fetchall()
    ((of_sessions,),) = connection.execute(_SESSIONS, (user, of_runs)).fetchall()
    runs, sessions = _names(of_runs), _names(of_sessions)
    return Belongings(user, runs, sessions, scopes_of(user, runs, sessions, keys))


def rows_of(connection: SqliteConnection, first: int, last: int, runs: tuple[str, ...], user: str) -> list[int]:
    """Return the numbers of the rows between two numbers that belong to a user, whose runs these are."""
    return [seq for (seq,) in connection.execute(_ROWS, (first, last, _json(runs), user))]


def check_no_open_run(connection: SqliteConnection, user: str) -> None:
    """Raise `StoreError` while a run of a user is open."""
    found = connection.execute("SELECT run FROM request WHERE state = 0 AND user = ? LIMIT 1", (user,)).fetchone()
    if found is not None:
        raise open_run(found[0])


def open_run(run: str) -> StoreError:
    """Return the error for a user who cannot be erased yet."""
    message = f"run {run} of this user is not over"
    return StoreError(fault(Code.USER_HAS_OPEN_RUN, message, suggestion=f"Cancel it first: remit runs cancel {run}."))


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_AMONG = "IN (SELECT value FROM json_each(?))"


def delete(connection: SqliteConnection, of: Belongings) -> Deleted:
    """Delete what is kept about a user besides records."""
    runs, sessions = _json(of.runs), _json(of.sessions)
    connection.execute(f"DELETE FROM sealed WHERE scope {_AMONG}", (_json(of.scopes),))
    values = connection.changes()
    connection.execute("DELETE FROM main.fact WHERE user = ?", (of.user,))
    facts = connection.changes()
    for table, column, names in (
        ("note", "session", sessions),
        ("conversation", "session", sessions),
        ("session", "id", sessions),
        ("question", "run", runs),
        ("journal", "run", runs),
        ("control", "run", runs),
    ):
        connection.execute(f"DELETE FROM main.{table} WHERE {column} {_AMONG}", (names,))
    connection.execute("DELETE FROM request WHERE user = ?", (of.user,))
    # Whatever was encrypted under it cannot be read any more, wherever there are copies.
    connection.execute("DELETE FROM user_key WHERE user = ?", (of.user,))
    return Deleted(values, facts)


# ── exporting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def kept_about(connection: SqliteConnection, user: str, keys: HubKeys) -> Iterator[Kept]:
    """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
    of = belongings(connection, user, keys)
    runs, sessions = _json(of.runs), _json(of.sessions)
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()[0]
    full = _ROWS.replace("SELECT seq", "SELECT seq, kind, at_ms, run, session, CAST(body AS TEXT)", 1)
    for row in connection.execute(full, (0, last, runs, user)):
        yield kept_record(*row)
    for name, at_ms, run, text in connection.execute("SELECT user, at_ms, run, text FROM fact WHERE user = ?", (user,)):
        yield Kept("fact", {"user": name, "at_ms": at_ms, "run": run, "text": text})
    for session, kind, text, by, at_ms in connection.execute(
        f"SELECT session, kind, text, by, at_ms FROM note WHERE session {_AMONG}", (sessions,)
    ):
        yield Kept("note", {"session": session, "kind": kind, "text": text, "by": by, "at_ms": at_ms})
    for id, agent in connection.execute("SELECT id, agent FROM session WHERE user = ?", (user,)):
        yield Kept("session", {"id": id, "agent": agent})
    for id, run, origin, at_ms in connection.execute(
        "SELECT id, run, origin, finished_ms FROM request WHERE user = ?", (user,)
    ):
        yield Kept("request", {"id": id, "run": run, "origin": origin, "finished_ms": at_ms})
    for id, text, asked_ms in connection.execute(
        f"SELECT id, text, asked_ms FROM question WHERE run {_AMONG}", (runs,)
    ):
        yield Kept("question", {"id": id, "text": text, "asked_ms": asked_ms})
    rows = connection.execute(
        f"SELECT scope, token, value, at_ms FROM sealed WHERE scope {_AMONG}", (_json(of.scopes),)
    )
    for row in rows:
        yield kept_value(keys, *row)


def kept_record(seq: int, kind: int, at_ms: int, run: str, session: str, body: str | bytes) -> Kept:
    """Return a record from its columns."""
    told = {"seq": seq, "kind": _KIND_NAMES[kind], "at_ms": at_ms, "run": run, "session": session}
    return Kept("record", {**told, "body": msgspec.json.decode(body)})


_KIND_NAMES = {number: kind.value for kind, number in KINDS.items()}


def kept_value(keys: HubKeys, scope: str, token: str, value: bytes, at_ms: int) -> Kept:
    """Return a redacted value, decrypted, from its columns."""
    opened = keys.unlock(value, f"{scope} {token}")
    said = None if opened is None else _plain(opened)
    return Kept("value", {"scope": scope, "token": token, "value": said, "at_ms": at_ms})


def _plain(opened: bytes) -> Any:
    try:
        return msgspec.json.decode(opened)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return opened.decode(errors="replace")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
