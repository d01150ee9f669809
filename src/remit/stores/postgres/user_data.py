"""Finds, exports and deletes what a PostgreSQL store keeps about a user."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from remit.protocol.codec import encode
from remit.protocol.records import Kind
from remit.runtime.keys import HubKeys
from remit.runtime.ports import Question
from remit.stores.postgres import messages
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.removal import NEVER, SEGMENT, SEQ_OF_SEGMENT
from remit.stores.postgres.user_keys import PREFIX_BYTES, prefix_of
from remit.stores.schema import KINDS
from remit.stores.upkeep_port import Belongings, Deleted, Kept, scopes_of
from remit.stores.user_data import kept_record, kept_value, open_run

_read_question = msgspec.json.Decoder(Question).decode

# ── whose is it ───────────────────────────────────────────────────────────────────────────────────────────────────────

# Where a body of each kind names its user. Other records belong to whoever's run it is.
_NAMED: dict[int, tuple[str, ...]] = {
    KINDS[Kind.STARTED]: ("remit", "user"),
    KINDS[Kind.DELEGATION]: ("remit", "user"),
    KINDS[Kind.REFUSED]: ("request", "remit", "user"),
    KINDS[Kind.SHARED]: ("requester",),
}
_NAMING = ", ".join(str(kind) for kind in _NAMED)

# Bodies in which the name of a user stands: the server cannot parse all of them, so this is confirmed by `_names_user`.
_HINT = f"kind IN ({_NAMING}) AND (position({{}} IN body) > 0 OR position({{}} IN body) > 0)"


# Bodies that are encrypted under the key of a user.
_ENCRYPTED = f"coalesce(substring(body FROM 1 FOR {PREFIX_BYTES}) = {{}}::bytea, false)"


def _hints(user: str) -> tuple[bytes, bytes]:
    name = encode(user)
    return b'"user":' + name, b'"requester":' + name


def _names_user(kind: int, body: bytes, user: str) -> bool:
    found: Any = msgspec.json.decode(body)
    for step in _NAMED[kind]:
        found = found.get(step, {})
    return bool(found == user)


async def belongings(connection: PgConnection, user: str, keys: HubKeys) -> Belongings:
    """Return what belongs to a user; *keys* are those with which redacted values are encrypted."""
    named = {run for (run,) in await connection.fetch("SELECT run FROM remit.request WHERE by_user = $1", user)}
    prefix = await prefix_of(connection, user)
    started = await connection.fetch(
        "SELECT run, kind, body FROM remit.record"
        f" WHERE kind = $1 AND ({_HINT.format('$2', '$3')} OR {_ENCRYPTED.format('$4')})",
        *(KINDS[Kind.STARTED], *_hints(user), prefix),
    )
    runs = tuple(sorted(named | {run for run, kind, body in started if _names_user(kind, body, user)}))
    rows = await connection.fetch(
        "SELECT id FROM remit.session WHERE by_user = $1 UNION"
        " SELECT session FROM remit.record WHERE run = ANY ($2::text[])"
        " AND session NOT IN (SELECT id FROM remit.session WHERE by_user <> $1)",
        *(user, list(runs)),
    )
    sessions = tuple(sorted(session for (session,) in rows))
    return Belongings(user, runs, sessions, scopes_of(user, runs, sessions, keys))


_OWN = f"(run = ANY ($5::text[]) OR {_ENCRYPTED.format('$6')})"
_ROWS = f"""
    SELECT {SEQ_OF_SEGMENT}, kind, CASE WHEN NOT {_OWN} THEN body END AS body {SEGMENT} AND kind NOT IN ({NEVER})
        AND ({_OWN} OR ({_HINT.format("$3", "$4")}))
"""


async def rows_of(connection: PgConnection, first: int, last: int, runs: tuple[str, ...], user: str) -> list[int]:
    """Return the numbers of the rows between two numbers that belong to a user, whose runs these are."""
    rows = await connection.fetch(_ROWS, first, last, *_hints(user), list(runs), await prefix_of(connection, user))
    return sorted(seq for seq, kind, body in rows if body is None or _names_user(kind, body, user))


async def check_no_open_run(connection: PgConnection, user: str) -> None:
    """Raise `StoreError` while a run of a user is open."""
    sql = "SELECT run FROM remit.request WHERE by_user = $1 AND state < 2 AND state = 0 LIMIT 1"
    if (found := await connection.fetchval(sql, user)) is not None:
        raise open_run(found)


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def delete(connection: PgConnection, of: Belongings) -> Deleted:
    """Delete what is kept about a user besides records."""
    runs, sessions = list(of.runs), list(of.sessions)
    values = await _deleted(connection, "sealed", "scope", list(of.scopes))
    facts = await _deleted(connection, "fact", "by_user", [of.user])
    await messages.forget_conversations(connection, sessions)
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
        await _deleted(connection, table, column, names)
    return Deleted(values, facts)


async def _deleted(connection: PgConnection, table: str, column: str, names: list[str]) -> int:
    sql = f"WITH gone AS (DELETE FROM remit.{table} WHERE {column} = ANY ($1::text[]) RETURNING 1)"
    return await connection.fetchval(f"{sql} SELECT count(*) FROM gone", names)


# ── exporting ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# How many rows of the chain are searched at once.
_STEP = 10_000


async def kept_about(connection: PgConnection, user: str, keys: HubKeys) -> AsyncIterator[Kept]:
    """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
    of = await belongings(connection, user, keys)
    runs, sessions = list(of.runs), list(of.sessions)
    head: int = await connection.fetchval("SELECT coalesce(max(last), 0) FROM remit.chain")
    for first in range(1, head + 1, _STEP):
        found = await rows_of(connection, first, min(first + _STEP - 1, head), of.runs, user)
        for row in await connection.fetch(_RECORDS, first, min(first + _STEP - 1, head), found) if found else ():
            yield kept_record(*row)
    for name, at_ms, run, text in await connection.fetch(
        "SELECT by_user, at_ms, run, text FROM remit.fact WHERE by_user = $1 ORDER BY id", user
    ):
        yield Kept("fact", {"user": name, "at_ms": at_ms, "run": run, "text": _said(text)})
    for session, kind, text, by, at_ms in await connection.fetch(
        "SELECT session, kind, text, by_agent, at_ms FROM remit.note WHERE session = ANY ($1::text[]) ORDER BY id",
        sessions,
    ):
        yield Kept("note", {"session": session, "kind": kind, "text": _said(text), "by": by, "at_ms": at_ms})
    for id, agent in await connection.fetch("SELECT id, agent FROM remit.session WHERE by_user = $1", user):
        yield Kept("session", {"id": id, "agent": agent})
    for id, run, origin, at_ms in await connection.fetch(
        "SELECT id, run, origin, ended_ms FROM remit.request WHERE by_user = $1 ORDER BY place", user
    ):
        yield Kept("request", {"id": id, "run": run, "origin": origin, "finished_ms": at_ms})
    for id, content, asked_ms in await connection.fetch(
        "SELECT id, content, asked_ms FROM remit.question WHERE run = ANY ($1::text[]) ORDER BY number", runs
    ):
        yield Kept("question", {"id": id, "text": _read_question(content).text, "asked_ms": asked_ms})
    for row in await connection.fetch(
        "SELECT scope, token, value, at_ms FROM remit.sealed WHERE scope = ANY ($1::text[])", list(of.scopes)
    ):
        yield kept_value(keys, *row)


_RECORDS = f"""
    SELECT {SEQ_OF_SEGMENT} AS seq, kind, at_ms, run, session, body {SEGMENT}
        AND {SEQ_OF_SEGMENT} = ANY ($3::bigint[]) ORDER BY seq
"""


def _said(text: bytes) -> str:
    # A half of a character that is written as two cannot be written by itself.
    return text.decode(errors="surrogatepass").encode(errors="replace").decode()
