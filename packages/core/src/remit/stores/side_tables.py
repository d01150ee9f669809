"""What is kept beside records, the same for both engines: questions, commands, sealed values, notes, counters."""

import hashlib
from collections.abc import Sequence
from typing import cast

import msgspec

from remit.ports import FACTS, ControlAction, ControlCommand, Question, RunEpoch, SealedValue, SessionOwner
from remit.protocol.codec import encode
from remit.protocol.envelope import Note
from remit.stores.database import KEPT, KEPT_OPEN, NOW_MS, SqlChange, SqlConnection
from remit.stores.reader import owner
from remit.stores.schema import DAY_MS
from remit.stores.user_keys import NOBODY

_read_question = msgspec.json.Decoder(Question).decode


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def put(change: SqlChange, question: Question) -> Question:
    """Add a question unless it exists, encrypted if the store is; return the stored one.

    A question that is still open is that of the run that put it last.
    """
    added = await change.database.fetchval(
        "INSERT INTO remit.question (id, run, content, asked_ms, expires_ms, over_ms) VALUES ($1, $2, $3, $4, $5, $5)"
        " ON CONFLICT DO NOTHING RETURNING 1",
        *(question.id, question.request.run),
        await change.encrypted(question.request.remit.user, encode(question)),
        *(question.asked_ms, question.expires_ms),
    )
    if added:
        return question
    await change.database.execute(
        "UPDATE remit.question SET run = $2 WHERE id = $1 AND run <> $2 AND decision IS NULL",
        *(question.id, question.request.run),
    )
    stored = await change.database.fetchval("SELECT content FROM remit.question WHERE id = $1", question.id)
    return question if stored is None else _read_question(stored)


async def pending(database: SqlConnection, now_ms: int) -> list[Question]:
    """Return the questions that can still be answered, oldest first."""
    rows = await database.fetch(
        "SELECT content FROM remit.question WHERE decision IS NULL AND expires_ms > $1 ORDER BY asked_ms, number",
        now_ms,
    )
    return [_read_question(content) for (content,) in rows]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def add_control(
    change: SqlChange, run: str, action: ControlAction, by: str, reason: bytes, delegation: str
) -> int:
    """Store a command, whose reason is encrypted, and return its number."""
    seq: int = await change.database.fetchval("UPDATE remit.last_control SET seq = seq + 1 RETURNING seq")
    # Both are in one column: a hub of an earlier version ignores an action that it does not know, and would otherwise
    # cancel the whole run.
    packed = f"{action} {delegation}" if delegation else action
    sql = "INSERT INTO remit.control (seq, run, action, by_user, reason, at_ms) VALUES ($1, $2, $3, $4, $5, $6)"
    await change.database.execute(sql, seq, run, packed, by, reason, change.now_ms)
    return seq


def command(seq: int, run: str, packed: str, by: str, reason: str) -> ControlCommand:
    """Return a command from its columns, with its reason decrypted."""
    action, _, delegation = packed.partition(" ")
    return ControlCommand(seq, run, cast("ControlAction", action), by, reason, delegation)


async def last_control(database: SqlConnection) -> int:
    """Return the number of the newest command, 0 if there is none."""
    return await database.fetchval("SELECT seq FROM remit.last_control")


# ── sealed values ─────────────────────────────────────────────────────────────────────────────────────────────────────


# Well below the engines' limits of bound values; nearly every conversation has fewer.
_SEALED_AT_ONCE = 500


async def seal(change: SqlChange, scope: str, sealed: Sequence[SealedValue]) -> None:
    """Store values; the first of each token is kept, and `of_user` stays once it is set."""
    # One statement may change a row only once.
    first: dict[str, SealedValue] = {}
    for each in sealed:
        known = first.setdefault(each.token, each)
        if each.of_user and not known.of_user:
            first[each.token] = known._replace(of_user=True)
    values = sorted(first.values())
    for start in range(0, len(values), _SEALED_AT_ONCE):
        part = values[start : start + _SEALED_AT_ONCE]
        rows = ", ".join(f"($1, ${3 * n + 3}, ${3 * n + 4}, ${3 * n + 5}, $2)" for n in range(len(part)))
        await change.database.execute(
            f"INSERT INTO remit.sealed (scope, token, value, of_user, at_ms) VALUES {rows}"
            " ON CONFLICT (scope, token) DO UPDATE SET of_user = TRUE WHERE excluded.of_user AND NOT sealed.of_user",
            *(scope, change.now_ms, *(column for each in part for column in each)),
        )


_GOES_ON = f"SELECT 1 FROM remit.request WHERE request.run = {{table}}.run AND {KEPT_OPEN}"


async def forget(database: SqlConnection, now_ms: int, before_ms: int) -> None:
    """Delete what is over: questions and commands after a day, and values whose run and session are gone.

    Such a run was never submitted, or its values came after its outcome was deleted, and the earlier ones with it.
    Values of a session stay as long as the session can be continued, and values of facts about a user as long as the
    facts.
    """
    for table, over in (("question", "over_ms"), ("control", "at_ms")):
        still = _GOES_ON.format(table=table)
        await database.execute(
            f"DELETE FROM remit.{table} WHERE {over} <= $1 AND NOT EXISTS ({still})", now_ms - DAY_MS
        )
    await database.execute(
        "DELETE FROM remit.sealed WHERE at_ms <= $1 AND NOT EXISTS"
        f" (SELECT 1 FROM remit.request WHERE request.run = sealed.scope AND {KEPT})"
        " AND NOT EXISTS (SELECT 1 FROM remit.session WHERE session.id = sealed.scope)"
        " AND NOT starts_with(sealed.scope, $2)",
        before_ms,
        FACTS,
    )


# ── notes, facts, counters ────────────────────────────────────────────────────────────────────────────────────────────


async def session(change: SqlChange, id: str, user: str, agent: str) -> SessionOwner:
    """Return the owner of a session; it becomes *user* and *agent* if it has none yet."""
    known = await owner(change.database, id) or SessionOwner(user, agent)
    # Also a session that was used before it was assigned: it will be continued, so its values are kept.
    await change.database.execute(
        "INSERT INTO remit.session (id, by_user, agent) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", id, *known
    )
    # Another hub may have been first.
    return await owner(change.database, id) or known


async def incr(change: SqlChange, key: str, n: int, window_ms: int) -> int:
    """Add *n* in the current window and return the window's total."""
    # The statement waits for other hubs that count with the same key. A clock behind that of another process counts in
    # the other's window, which is the later one.
    return await change.database.fetchval(_COUNT, key, n, window_ms)


_COUNT = f"""
    INSERT INTO remit.counter (key, start_ms, end_ms, total)
    SELECT $1, now - now % $3, now - now % $3 + $3, $2 FROM (SELECT {NOW_MS} AS now) AS clock WHERE TRUE
    ON CONFLICT (key) DO UPDATE SET
        total = excluded.total + CASE WHEN excluded.start_ms > counter.start_ms THEN 0 ELSE counter.total END,
        end_ms = greatest(counter.end_ms, excluded.end_ms), start_ms = greatest(counter.start_ms, excluded.start_ms)
    RETURNING total
"""


async def note(change: SqlChange, session: str, notes: Sequence[Note], of: RunEpoch) -> None:
    """Store notes of a conversation, each once and where it came last, encrypted if the store is."""
    if await change.is_replaced(of):
        return
    of_session = await owner(change.database, session)
    for each in notes:
        key = session, each.kind, *await _text(change, of_session.user if of_session else NOBODY, each.text)
        await change.database.execute(
            "DELETE FROM remit.note WHERE session = $1 AND kind = $2 AND digest = $3", *key[:3]
        )
        # Another hub may store the same at this moment.
        await change.database.execute(
            "INSERT INTO remit.note (session, kind, digest, text, by_agent, at_ms) VALUES ($1, $2, $3, $4, $5, $6)"
            " ON CONFLICT DO NOTHING",
            *(*key, each.by, change.now_ms),
        )


async def remember(change: SqlChange, user: str, facts: Sequence[str], of: RunEpoch) -> None:
    """Store facts about a user, each once, encrypted if the store is."""
    if await change.is_replaced(of):
        return
    await change.database.executemany(
        "INSERT INTO remit.fact (by_user, digest, text, run, at_ms) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
        [(user, *await _text(change, user, text), of.run, change.now_ms) for text in facts],
    )


async def _text(change: SqlChange, user: str, text: str) -> tuple[bytes, bytes]:
    """Return a text as it is stored, after a digest of that which is short enough for an index."""
    # The same text gives the same bytes, and the digest is made of what is stored: that of the text would tell it.
    raw = await change.encrypted(user, text.encode(errors="surrogatepass"))
    return hashlib.sha256(raw).digest(), raw
