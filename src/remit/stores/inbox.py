"""Questions to people, in a SQLite file."""

import msgspec

from remit.protocol.codec import encode
from remit.protocol.records import read_request
from remit.runtime.ports import Question
from remit.stores.connection import SqliteConnection
from remit.stores.schema import DAY_MS
from remit.stores.user_keys import UserKeys

_read_names = msgspec.json.Decoder(frozenset[str]).decode

_COLUMNS = "id, text, request, editable, asked_ms, expires_ms, form"


def put(connection: SqliteConnection, question: Question, keys: UserKeys | None = None) -> Question:
    """Add a question unless it exists, with its texts encrypted if there are *keys*; return the stored one."""
    text: str | bytes = question.text
    request, editable = encode(question.request), encode(question.editable)
    form = None if question.form is None else encode(question.form)
    if keys is not None:
        user = question.request.remit.user
        text, request = keys.encrypt(user, question.text.encode()), keys.encrypt(user, request)
        form = None if form is None else keys.encrypt(user, form)
    connection.execute(
        f"INSERT INTO main.question ({_COLUMNS}, run, over_ms) VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
        (
            question.id,
            text,
            request,
            editable,
            question.asked_ms,
            question.expires_ms,
            form,
            question.request.run,
            question.expires_ms,
        ),
    )
    if connection.changes():
        return question
    return _question(*connection.execute(f"SELECT {_COLUMNS} FROM question WHERE id = ?", (question.id,)).fetchall()[0])


def decide(connection: SqliteConnection, question: str, decision: bytes, now_ms: int) -> bool:
    """Answer a question if it exists, is not answered and has not expired; *decision* is encrypted."""
    connection.execute(
        "UPDATE main.question SET decision = ?, over_ms = ? WHERE id = ? AND decision IS NULL AND expires_ms > ?",
        (decision, now_ms, question, now_ms),
    )
    return bool(connection.changes())


def withdraw(connection: SqliteConnection, question: str) -> None:
    """Delete a question; one that was answered stays, so that its answer is found after a restart."""
    connection.execute("DELETE FROM main.question WHERE id = ? AND decision IS NULL", (question,))


def forget(connection: SqliteConnection, now_ms: int) -> None:
    """Delete questions that were answered or expired a day ago, unless their run is still in progress."""
    connection.execute(
        "DELETE FROM main.question AS question WHERE over_ms <= ? AND NOT EXISTS"
        " (SELECT 1 FROM request WHERE request.run = question.run AND state < 2 AND state = 0)",
        (now_ms - DAY_MS,),
    )


def decision(connection: SqliteConnection, question: str) -> bytes | None:
    """Return the encrypted answer, if there is one."""
    found = connection.execute(
        "SELECT decision FROM question WHERE id = ? AND decision IS NOT NULL", (question,)
    ).fetchone()
    return found[0] if found else None


def pending(connection: SqliteConnection, now_ms: int) -> list[Question]:
    """Return the questions that can still be answered, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM question WHERE decision IS NULL AND expires_ms > ? ORDER BY asked_ms, number",
        (now_ms,),
    )
    return [_question(*row) for row in rows]


def _question(
    id: str, text: str, request: bytes, editable: bytes, asked_ms: int, expires_ms: int, form: bytes | None
) -> Question:
    return Question(
        id=id,
        text=text,
        request=read_request(request),
        editable=_read_names(editable),
        asked_ms=asked_ms,
        expires_ms=expires_ms,
        form=None if form is None else msgspec.json.decode(form),
    )
