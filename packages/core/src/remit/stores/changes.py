"""Small writes of an open transaction, the same for both engines."""

import hashlib
from collections.abc import Sequence

from remit.protocol.envelope import Note
from remit.runtime.ports import RunEpoch, SessionOwner
from remit.stores.database import NOW_MS, SqlChange
from remit.stores.encryption import NOBODY
from remit.stores.reader import owner


async def session(change: SqlChange, id: str, user: str, agent: str) -> SessionOwner:
    """Return the owner of a session; it becomes *user* and *agent* if it has none yet."""
    found = await owner(change.database, id) or SessionOwner(user, agent)
    # Also a session that was used before it was assigned: it will be continued, so its values are kept.
    await change.database.execute(
        "INSERT INTO remit.session (id, by_user, agent) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", id, *found
    )
    # Another hub may have been first.
    return await owner(change.database, id) or found


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


async def cas(change: SqlChange, key: str, revision: int, value: bytes) -> int | None:
    """Write *value* if the key is still at *revision* (0: absent); return the new revision, or None if it moved."""
    if revision == 0:
        sql = "INSERT INTO remit.cell VALUES ($1, 1, $2) ON CONFLICT DO NOTHING RETURNING revision"
        return await change.database.fetchval(sql, key, value)
    sql = (
        "UPDATE remit.cell SET value = $3, revision = revision + 1 WHERE key = $1 AND revision = $2 RETURNING revision"
    )
    return await change.database.fetchval(sql, key, revision, value)


async def note(change: SqlChange, session: str, notes: Sequence[Note], of: RunEpoch) -> None:
    """Store notes of a conversation, each once and where it came last, encrypted if the store is."""
    if await change.is_replaced(of):
        return
    found = await owner(change.database, session)
    for each in notes:
        key = session, each.kind, *await _text(change, found.user if found else NOBODY, each.text)
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
