"""Erases a user from a SQLite store, and exports what is kept about them."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind, Notice
from remit.runtime.keys import HubKeys
from remit.runtime.ports import FACTS, StoreError
from remit.runtime.signing import CheckpointKey
from remit.stores.connection import SqliteConnection, write_lock
from remit.stores.opening import STORE
from remit.stores.retention import NEVER_REMOVED, Erased
from remit.stores.schema import KINDS
from remit.stores.segments import SealedSegment
from remit.stores.transaction import Transaction
from remit.stores.upkeep import Upkeep, Wanted

_UNTOUCHED = ", ".join(str(KINDS[kind]) for kind in sorted(NEVER_REMOVED))


def subject_of(key: CheckpointKey, user: str) -> str:
    """Return the digest under which an erasure is recorded: whoever holds the key can check a name against it."""
    return blake2b(user.encode(), key=key.seed, digest_size=16, person=b"remit subject").hexdigest()


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


class _Belongings(NamedTuple):
    """The runs and sessions of a user, and all scopes of their redacted values, each as a JSON array."""

    user: str
    runs: str
    sessions: str
    scopes: str


def _belongings(connection: SqliteConnection, user: str, keys: HubKeys) -> _Belongings:
    ((runs,),) = connection.execute(_RUNS, (user,)).fetchall()
    ((sessions,),) = connection.execute(_SESSIONS, (user, runs)).fetchall()
    # The values of facts stand under a digest of the name.
    facts = f"{FACTS}{keys.digest(user.encode(errors='surrogatepass')).hex()}"
    named = {*msgspec.json.decode(runs, type=list[str]), *msgspec.json.decode(sessions, type=list[str]), facts}
    return _Belongings(user, runs, sessions, msgspec.json.encode(sorted(named)).decode())


# ── erasing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def erase(upkeep: Upkeep, user: str, keys: HubKeys) -> Erased:
    """Remove everything of a user, and record that it was done; doing it again completes what was interrupted.

    *keys* are those with which redacted values are encrypted. Raises `StoreError` while runs of the user are open.
    """
    _check_no_open_run(upkeep.connection, user)
    subject = subject_of(upkeep.key, user)
    upkeep.seal()  # so that everything of theirs is in a segment
    belongings = _belongings(upkeep.connection, user, keys)
    rows = 0
    refused: list[str] = []
    for segment in upkeep.segments():
        part = upkeep.remove(segment, _choice(segment, belongings, subject))
        rows += part.rows
        refused += [part.refused] if part.refused else []
    with write_lock(upkeep.connection):
        # What was submitted meanwhile would be lost with the rest.
        _check_no_open_run(upkeep.connection, user)
        values, facts = _delete(upkeep.connection, belongings)
        now_ms = upkeep.wall_ms()
        text = f"erased the user with the digest {subject}: {rows} records, {facts} facts, {values} redacted values"
        transaction = Transaction(upkeep.connection, now_ms, {}, keep_records=False)
        transaction.extend([(Kind.NOTICE, now_ms, STORE, STORE, Notice(delegation=STORE, agent="remit", text=text))])
        transaction.write()
        upkeep.connection.execute("UPDATE checkpoint SET since_ms = ? WHERE since_ms = 0", (now_ms,))
    upkeep.seal()
    upkeep.give_back()
    return Erased(subject, rows, facts, values, tuple(refused))


def _check_no_open_run(connection: SqliteConnection, user: str) -> None:
    found = connection.execute("SELECT run FROM request WHERE state = 0 AND user = ? LIMIT 1", (user,)).fetchone()
    if found is not None:
        message = f"run {found[0]} of this user is not over"
        advice = f"Cancel it first: remit runs cancel {found[0]}."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def _choice(segment: SealedSegment, of: _Belongings, subject: str) -> Callable[[SqliteConnection], Wanted]:
    def choose(connection: SqliteConnection) -> Wanted:
        rows = connection.execute(_ROWS, (segment.first, segment.last, of.runs, of.user))
        return Wanted("erased", "the user was erased", [seq for (seq,) in rows], subject=subject)

    return choose


def _delete(connection: SqliteConnection, of: _Belongings) -> tuple[int, int]:
    """Delete what is kept about a user besides records; return how many redacted values and facts there were."""
    among = "IN (SELECT value FROM json_each(?))"
    connection.execute(f"DELETE FROM sealed WHERE scope {among}", (of.scopes,))
    values = connection.changes()
    connection.execute("DELETE FROM main.fact WHERE user = ?", (of.user,))
    facts = connection.changes()
    for table, column, names in (
        ("note", "session", of.sessions),
        ("conversation", "session", of.sessions),
        ("session", "id", of.sessions),
        ("question", "run", of.runs),
        ("journal", "run", of.runs),
        ("control", "run", of.runs),
    ):
        connection.execute(f"DELETE FROM main.{table} WHERE {column} {among}", (names,))
    connection.execute("DELETE FROM request WHERE user = ?", (of.user,))
    # Whatever was encrypted under it cannot be read any more, wherever there are copies.
    connection.execute("DELETE FROM user_key WHERE user = ?", (of.user,))
    return values, facts


# ── exporting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Kept(NamedTuple):
    """One thing that is kept about a user."""

    what: str
    """`record`, `fact`, `note`, `session`, `request`, `question` or `value`."""
    content: dict[str, Any]


def kept_about(connection: SqliteConnection, user: str, keys: HubKeys) -> Iterator[Kept]:
    """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
    of = _belongings(connection, user, keys)
    among = "IN (SELECT value FROM json_each(?))"
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()[0]
    names = {number: kind.value for kind, number in KINDS.items()}
    full = _ROWS.replace("SELECT seq", "SELECT seq, kind, at_ms, run, session, CAST(body AS TEXT)", 1)
    for seq, kind, at_ms, run, session, body in connection.execute(full, (0, last, of.runs, user)):
        told = {"seq": seq, "kind": names[kind], "at_ms": at_ms, "run": run, "session": session}
        yield Kept("record", {**told, "body": msgspec.json.decode(body)})
    for name, at_ms, run, text in connection.execute("SELECT user, at_ms, run, text FROM fact WHERE user = ?", (user,)):
        yield Kept("fact", {"user": name, "at_ms": at_ms, "run": run, "text": text})
    for session, kind, text, by, at_ms in connection.execute(
        f"SELECT session, kind, text, by, at_ms FROM note WHERE session {among}", (of.sessions,)
    ):
        yield Kept("note", {"session": session, "kind": kind, "text": text, "by": by, "at_ms": at_ms})
    for id, agent in connection.execute("SELECT id, agent FROM session WHERE user = ?", (user,)):
        yield Kept("session", {"id": id, "agent": agent})
    for id, run, origin, at_ms in connection.execute(
        "SELECT id, run, origin, finished_ms FROM request WHERE user = ?", (user,)
    ):
        yield Kept("request", {"id": id, "run": run, "origin": origin, "finished_ms": at_ms})
    for id, text, asked_ms in connection.execute(
        f"SELECT id, text, asked_ms FROM question WHERE run {among}", (of.runs,)
    ):
        yield Kept("question", {"id": id, "text": text, "asked_ms": asked_ms})
    rows = connection.execute(f"SELECT scope, token, value, at_ms FROM sealed WHERE scope {among}", (of.scopes,))
    for scope, token, value, at_ms in rows:
        opened = keys.unlock(value, f"{scope} {token}")
        said = None if opened is None else _plain(opened)
        yield Kept("value", {"scope": scope, "token": token, "value": said, "at_ms": at_ms})


def _plain(opened: bytes) -> Any:
    try:
        return msgspec.json.decode(opened)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return opened.decode(errors="replace")
