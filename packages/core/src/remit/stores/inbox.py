"""Questions to people, commands between hubs and sealed values, the same for both engines."""

from typing import cast

import msgspec

from remit.protocol.codec import encode
from remit.runtime.ports import FACTS, ControlAction, ControlCommand, Question, SealedValue
from remit.stores.database import KEPT, KEPT_OPEN, SqlChange, SqlConnection
from remit.stores.schema import DAY_MS

_read_question = msgspec.json.Decoder(Question).decode


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def put(change: SqlChange, question: Question) -> Question:
    """Add a question unless it exists, encrypted if the store is; return the stored one."""
    added = await change.database.fetchval(
        "INSERT INTO remit.question (id, run, content, asked_ms, expires_ms, over_ms) VALUES ($1, $2, $3, $4, $5, $5)"
        " ON CONFLICT DO NOTHING RETURNING 1",
        *(question.id, question.request.run),
        await change.encrypted(question.request.remit.user, encode(question)),
        *(question.asked_ms, question.expires_ms),
    )
    if added:
        return question
    found = await change.database.fetchval("SELECT content FROM remit.question WHERE id = $1", question.id)
    return question if found is None else _read_question(found)


async def decide(database: SqlConnection, question: str, decision: bytes, now_ms: int) -> bool:
    """Answer a question if it exists, is not answered and has not expired; *decision* is encrypted."""
    sql = (
        "UPDATE remit.question SET decision = $2, over_ms = $3"
        " WHERE id = $1 AND decision IS NULL AND expires_ms > $3 RETURNING 1"
    )
    return await database.fetchval(sql, question, decision, now_ms) is not None


async def withdraw(database: SqlConnection, question: str) -> None:
    """Delete a question; one that was answered stays, so that its answer is found after a restart."""
    await database.execute("DELETE FROM remit.question WHERE id = $1 AND decision IS NULL", question)


async def decision(database: SqlConnection, question: str) -> bytes | None:
    """Return the encrypted answer, if there is one."""
    return await database.fetchval("SELECT decision FROM remit.question WHERE id = $1", question)


async def pending(database: SqlConnection, now_ms: int) -> list[Question]:
    """Return the questions that can still be answered, oldest first."""
    rows = await database.fetch(
        "SELECT content FROM remit.question WHERE decision IS NULL AND expires_ms > $1 ORDER BY asked_ms, number",
        now_ms,
    )
    return [_read_question(content) for (content,) in rows]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def add_control(
    database: SqlConnection, run: str, action: ControlAction, by: str, reason: bytes, delegation: str, now_ms: int
) -> int:
    """Store a command, whose reason is encrypted, and return its number."""
    seq: int = await database.fetchval("UPDATE remit.last_control SET seq = seq + 1 RETURNING seq")
    # Both are in one column: a hub of an earlier version ignores an action that it does not know, and would otherwise
    # cancel the whole run.
    packed = f"{action} {delegation}" if delegation else action
    sql = "INSERT INTO remit.control (seq, run, action, by_user, reason, at_ms) VALUES ($1, $2, $3, $4, $5, $6)"
    await database.execute(sql, seq, run, packed, by, reason, now_ms)
    return seq


async def controls(database: SqlConnection, number: int, run: str | None) -> list[tuple[ControlCommand, bytes]]:
    """Return the commands after *number*, optionally about one run, each with its encrypted reason."""
    rows = await database.fetch(
        "SELECT seq, run, action, by_user, reason FROM remit.control"
        " WHERE seq > $1 AND ($2::text IS NULL OR run = $2) ORDER BY seq",
        number,
        run,
    )
    return [(_command(*row), reason) for *row, reason in rows]


def _command(seq: int, run: str, packed: str, by: str) -> ControlCommand:
    action, _, delegation = packed.partition(" ")
    return ControlCommand(seq, run, cast("ControlAction", action), by, "", delegation)


async def last_control(database: SqlConnection) -> int:
    """Return the number of the newest command, 0 if there is none."""
    return await database.fetchval("SELECT seq FROM remit.last_control")


# ── sealed values ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def unseal(database: SqlConnection, scope: str) -> list[SealedValue]:
    """Return all values of a scope."""
    rows = await database.fetch("SELECT token, value, of_user FROM remit.sealed WHERE scope = $1", scope)
    return [SealedValue(token, value, bool(of_user)) for token, value, of_user in rows]


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
