"""Questions to people, commands between hubs and sealed values, in a PostgreSQL database."""

from collections.abc import Sequence

import msgspec

from remit.protocol.codec import encode
from remit.runtime.ports import FACTS, ControlCommand, Question, SealedValue
from remit.stores.controls import unpacked
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.user_keys import PgUserKeys
from remit.stores.schema import DAY_MS

_read_question = msgspec.json.Decoder(Question).decode

_RUNNING = "SELECT 1 FROM remit.request WHERE request.run = {table}.run AND state < 2 AND state = 0"


async def put(connection: PgConnection, question: Question, keys: PgUserKeys | None = None) -> Question:
    """Add a question unless it exists, encrypted if there are *keys*; return the stored one."""
    content = encode(question)
    if keys is not None:
        content = await keys.encrypt(connection, question.request.remit.user, content)
    added = await connection.fetchval(
        "INSERT INTO remit.question (id, run, content, asked_ms, expires_ms, over_ms) VALUES ($1, $2, $3, $4, $5, $5)"
        " ON CONFLICT DO NOTHING RETURNING 1",
        *(question.id, question.request.run, content, question.asked_ms, question.expires_ms),
    )
    if added:
        return question
    found = await connection.fetchval("SELECT content FROM remit.question WHERE id = $1", question.id)
    return question if found is None else _read_question(found)


async def decide(connection: PgConnection, question: str, decision: bytes, now_ms: int) -> bool:
    """Answer a question if it exists, is not answered and has not expired; *decision* is encrypted."""
    sql = (
        "UPDATE remit.question SET decision = $2, over_ms = $3"
        " WHERE id = $1 AND decision IS NULL AND expires_ms > $3 RETURNING 1"
    )
    return await connection.fetchval(sql, question, decision, now_ms) is not None


async def withdraw(connection: PgConnection, question: str) -> None:
    """Delete a question; one that was answered stays, so that its answer is found after a restart."""
    await connection.execute("DELETE FROM remit.question WHERE id = $1 AND decision IS NULL", question)


async def decision(connection: PgConnection, question: str) -> bytes | None:
    """Return the encrypted answer, if there is one."""
    return await connection.fetchval("SELECT decision FROM remit.question WHERE id = $1", question)


async def pending(connection: PgConnection, now_ms: int) -> list[Question]:
    """Return the questions that can still be answered, oldest first."""
    rows = await connection.fetch(
        "SELECT content FROM remit.question WHERE decision IS NULL AND expires_ms > $1 ORDER BY asked_ms, number",
        now_ms,
    )
    return [_read_question(content) for (content,) in rows]


async def add_control(connection: PgConnection, run: str, action: str, by: str, reason: bytes, now_ms: int) -> int:
    """Store a command and return its number."""
    return await connection.fetchval(
        "WITH next AS (UPDATE remit.last_control SET seq = seq + 1 RETURNING seq)"
        " INSERT INTO remit.control SELECT seq, $1, $2, $3, $4, $5 FROM next RETURNING seq",
        *(run, action, by, reason, now_ms),
    )


async def controls(connection: PgConnection, number: int, run: str | None) -> list[tuple[ControlCommand, bytes]]:
    """Return the commands after *number*, optionally about one run, each with its encrypted reason."""
    rows = await connection.fetch(
        "SELECT seq, run, action, by_user, reason FROM remit.control"
        " WHERE seq > $1 AND ($2::text IS NULL OR run = $2) ORDER BY seq",
        number,
        run,
    )
    return [(unpacked(seq, of_run, action, by, ""), reason) for seq, of_run, action, by, reason in rows]


async def last_control(connection: PgConnection) -> int:
    """Return the number of the newest command, 0 if there is none."""
    return await connection.fetchval("SELECT seq FROM remit.last_control")


async def seal(connection: PgConnection, scope: str, sealed: Sequence[SealedValue], now_ms: int) -> None:
    """Store values; the first of each token is kept, and `of_user` stays once it is set."""
    # One statement may change a row only once.
    first: dict[str, SealedValue] = {}
    for each in sealed:
        known = first.setdefault(each.token, each)
        if each.of_user and not known.of_user:
            first[each.token] = known._replace(of_user=True)
    values = sorted(first.values())
    await connection.execute(
        "INSERT INTO remit.sealed (scope, token, value, of_user, at_ms)"
        " SELECT $1, token, value, of_user, $5 FROM unnest($2::text[], $3::bytea[], $4::boolean[])"
        " AS new (token, value, of_user)"
        " ON CONFLICT (scope, token) DO UPDATE SET of_user = true WHERE excluded.of_user AND NOT sealed.of_user",
        *(scope, [each.token for each in values], [each.value for each in values]),
        *([each.of_user for each in values], now_ms),
    )


async def unseal(connection: PgConnection, scope: str) -> list[SealedValue]:
    """Return all values of a scope."""
    rows = await connection.fetch("SELECT token, value, of_user FROM remit.sealed WHERE scope = $1", scope)
    return [SealedValue(*row) for row in rows]


async def forget(connection: PgConnection, now_ms: int, before_ms: int) -> None:
    """Delete what is over: questions and commands after a day, and values whose run and session are gone.

    Values of a session stay as long as the session can be continued, and values of facts about a user as long as the
    facts.
    """
    await connection.execute(
        f"DELETE FROM remit.question WHERE over_ms <= $1 AND NOT EXISTS ({_RUNNING.format(table='question')})",
        now_ms - DAY_MS,
    )
    await connection.execute(
        f"DELETE FROM remit.control WHERE at_ms <= $1 AND NOT EXISTS ({_RUNNING.format(table='control')})",
        now_ms - DAY_MS,
    )
    await connection.execute(
        "DELETE FROM remit.sealed WHERE at_ms <= $1 AND NOT EXISTS"
        " (SELECT 1 FROM remit.request WHERE request.run = sealed.scope AND state < 2)"
        " AND NOT EXISTS (SELECT 1 FROM remit.session WHERE session.id = sealed.scope)"
        " AND NOT starts_with(sealed.scope, $2)",
        before_ms,
        FACTS,
    )
