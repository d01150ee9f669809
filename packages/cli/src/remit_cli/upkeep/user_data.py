"""Finds, exports and deletes what either engine keeps besides records: of a user, or of an age."""

from collections.abc import AsyncIterator, Collection
from typing import Any, Literal, NamedTuple

import msgspec

from remit.ports import FACTS, Question, StoreError
from remit.ports.keys import HubKeys
from remit.protocol.errors import Code, fault
from remit.stores.database import KEPT, OPEN, SqlConnection
from remit.stores.schema import KIND_OF

Ageing = Literal["values", "fact_values", "facts", "notes"]
"""What is kept for a time besides records: redacted values, those of facts, facts, and notes of conversations."""


class UserBelongings(NamedTuple):
    """The runs and sessions of a user, and all scopes of their redacted values."""

    user: str
    runs: tuple[str, ...]
    sessions: tuple[str, ...]
    scopes: tuple[str, ...]


class Deleted(NamedTuple):
    """What was deleted of a user besides records."""

    values: int
    facts: int


class Kept(NamedTuple):
    """One thing that is kept about a user."""

    what: str
    """`record`, `fact`, `note`, `session`, `request`, `question` or `value`."""
    content: dict[str, Any]


def _scopes_of(user: str, runs: tuple[str, ...], sessions: tuple[str, ...], keys: HubKeys) -> tuple[str, ...]:
    """Return the scopes of a user's redacted values; those of facts stand under a digest of the name."""
    facts = f"{FACTS}{keys.digest(user.encode(errors='surrogatepass')).hex()}"
    return tuple(sorted({*runs, *sessions, facts}))


_read_question = msgspec.json.Decoder(Question).decode

# ── of a user ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def belongings(database: SqlConnection, user: str, started: Collection[str], keys: HubKeys) -> UserBelongings:
    """Return what belongs to a user; *keys* are those with which redacted values are encrypted.

    A run has one user: as its request says, or, if that is no longer known, its first record. Those are *started*.
    """
    named = await database.fetch("SELECT run FROM remit.request WHERE by_user = $1", user)
    runs = tuple(sorted({run for (run,) in named}.union(started)))
    rows = await database.fetch(
        "SELECT id FROM remit.session WHERE by_user = $1 UNION"
        " SELECT session FROM remit.record WHERE run = ANY ($2::text[])"
        " AND session NOT IN (SELECT id FROM remit.session WHERE by_user <> $1)",
        *(user, list(runs)),
    )
    sessions = tuple(sorted(session for (session,) in rows))
    return UserBelongings(user, runs, sessions, _scopes_of(user, runs, sessions, keys))


async def check_no_open_run(database: SqlConnection, user: str) -> None:
    """Raise `StoreError` while a run of a user is open."""
    sql = f"SELECT run FROM remit.request WHERE by_user = $1 AND {OPEN} LIMIT 1"
    if (run := await database.fetchval(sql, user)) is not None:
        message = f"run {run} of this user is not over"
        advice = f"Cancel it first: remit runs cancel {run}."
        raise StoreError(fault(Code.USER_HAS_OPEN_RUN, message, suggestion=advice))


async def delete(database: SqlConnection, of: UserBelongings) -> Deleted:
    """Delete what is kept about a user besides records and the index of conversations."""
    runs, sessions = list(of.runs), list(of.sessions)
    values = await _deleted(database, "sealed", "scope", list(of.scopes))
    facts = await _deleted(database, "fact", "by_user", [of.user])
    for table, column, names in (
        ("note", "session", sessions),
        ("session", "id", sessions),
        ("question", "run", runs),
        ("journal", "run", runs),
        ("control", "run", runs),
        ("request", "by_user", [of.user]),
        # Whatever was encrypted under it cannot be read any more, wherever there are copies.
        ("user_key", "by_user", [of.user]),
    ):
        await _deleted(database, table, column, names)
    return Deleted(values, facts)


async def _deleted(database: SqlConnection, table: str, column: str, names: list[str]) -> int:
    return len(await database.fetch(f"DELETE FROM remit.{table} WHERE {column} = ANY ($1::text[]) RETURNING 1", names))


async def kept_besides(database: SqlConnection, of: UserBelongings, keys: HubKeys) -> AsyncIterator[Kept]:
    """Yield everything that is kept about a user besides records."""
    runs, sessions = list(of.runs), list(of.sessions)
    for name, at_ms, run, text in await database.fetch(
        "SELECT by_user, at_ms, run, text FROM remit.fact WHERE by_user = $1 ORDER BY id", of.user
    ):
        yield Kept("fact", {"user": name, "at_ms": at_ms, "run": run, "text": _readable(text)})
    for session, kind, text, by, at_ms in await database.fetch(
        "SELECT session, kind, text, by_agent, at_ms FROM remit.note WHERE session = ANY ($1::text[]) ORDER BY id",
        sessions,
    ):
        yield Kept("note", {"session": session, "kind": kind, "text": _readable(text), "by": by, "at_ms": at_ms})
    for id, agent in await database.fetch("SELECT id, agent FROM remit.session WHERE by_user = $1", of.user):
        yield Kept("session", {"id": id, "agent": agent})
    for id, run, origin, at_ms in await database.fetch(
        "SELECT id, run, origin, ended_ms FROM remit.request WHERE by_user = $1 ORDER BY place", of.user
    ):
        yield Kept("request", {"id": id, "run": run, "origin": origin, "finished_ms": at_ms})
    for id, content, asked_ms in await database.fetch(
        "SELECT id, content, asked_ms FROM remit.question WHERE run = ANY ($1::text[]) ORDER BY number", runs
    ):
        yield Kept("question", {"id": id, "text": _read_question(content).text, "asked_ms": asked_ms})
    for row in await database.fetch(
        "SELECT scope, token, value, at_ms FROM remit.sealed WHERE scope = ANY ($1::text[])", list(of.scopes)
    ):
        yield _kept_value(keys, *row)


def _readable(text: bytes) -> str:
    # A half of a character that is written as two cannot be written by itself.
    return text.decode(errors="surrogatepass").encode(errors="replace").decode()


def kept_record(seq: int, kind: int, at_ms: int, run: str, session: str, body: str | bytes) -> Kept:
    """Return a record from its columns."""
    columns = {"seq": seq, "kind": KIND_OF[kind].value, "at_ms": at_ms, "run": run, "session": session}
    return Kept("record", {**columns, "body": msgspec.json.decode(body)})


def _kept_value(keys: HubKeys, scope: str, token: str, value: bytes, at_ms: int) -> Kept:
    """Return a redacted value, decrypted, from its columns."""
    opened = keys.unlock(value, f"{scope} {token}")
    shown = None if opened is None else _plain(opened)
    return Kept("value", {"scope": scope, "token": token, "value": shown, "at_ms": at_ms})


def _plain(opened: bytes) -> Any:
    try:
        return msgspec.json.decode(opened)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return opened.decode(errors="replace")


# ── of an age ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# The conversations that a run which may still go on can be shown.
OPEN_SESSIONS = (
    f"SELECT other.session FROM remit.request JOIN remit.record AS other ON other.run = request.run WHERE {OPEN}"
)

# Each with the time before which they are no longer kept.
_AGEING: dict[Ageing, str] = {
    "values": f"""
        FROM remit.sealed WHERE at_ms <= $1 AND NOT starts_with(scope, '{FACTS}')
        AND scope NOT IN ({OPEN_SESSIONS})
        AND NOT EXISTS (SELECT 1 FROM remit.request WHERE request.run = sealed.scope AND {KEPT})
    """,
    "fact_values": f"""
        FROM remit.sealed WHERE at_ms <= $1 AND starts_with(scope, '{FACTS}')
        AND NOT EXISTS (SELECT 1 FROM remit.fact)
    """,
    "facts": "FROM remit.fact WHERE at_ms <= $1",
    "notes": f"FROM remit.note WHERE at_ms <= $1 AND session NOT IN ({OPEN_SESSIONS})",
}


async def count_aged(database: SqlConnection, what: Ageing, before_ms: int) -> int:
    """Return how many are older."""
    return await database.fetchval(f"SELECT count(*) {_AGEING[what]}", before_ms)


async def delete_aged(database: SqlConnection, what: Ageing, before_ms: int) -> int:
    """Delete what is older, and return how many there were."""
    return len(await database.fetch(f"DELETE {_AGEING[what]} RETURNING 1", before_ms))
