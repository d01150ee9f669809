"""Control commands between processes, in the SQLite file that they share."""

from typing import cast

from remit.runtime.ports import ControlAction, ControlCommand
from remit.stores.connection import SqliteConnection
from remit.stores.schema import DAY_MS


def packed(action: ControlAction, delegation: str) -> str:
    """Return an action as it is stored, with the delegation that it is about.

    Both are in one column: a hub of an earlier version ignores an action that it does not know, and would otherwise
    cancel the whole run.
    """
    return f"{action} {delegation}" if delegation else action


def unpacked(seq: int, run: str, action: str, by: str, reason: str) -> ControlCommand:
    """Return a command from its columns."""
    name, _, delegation = action.partition(" ")
    return ControlCommand(seq, run, cast("ControlAction", name), by, reason, delegation)


def add(connection: SqliteConnection, run: str, action: str, by: str, reason: str, now_ms: int) -> int:
    """Store a command and return its number."""
    sql = "INSERT INTO control (run, action, by, reason, at_ms) VALUES (?,?,?,?,?) RETURNING seq"
    return connection.execute(sql, (run, action, by, reason, now_ms)).fetchall()[0][0]


def forget(connection: SqliteConnection, now_ms: int) -> None:
    """Delete commands older than a day, which every hub has read, unless their run may still be resumed."""
    connection.execute(
        "DELETE FROM control WHERE at_ms <= ? AND NOT EXISTS"
        " (SELECT 1 FROM request WHERE request.run = control.run AND state < 2 AND state = 0)",
        (now_ms - DAY_MS,),
    )


def after(connection: SqliteConnection, number: int, run: str | None) -> list[ControlCommand]:
    """Return the commands after *number*, optionally about one run."""
    sql = "SELECT seq, run, action, by, reason FROM control WHERE seq > ?1 AND (?2 IS NULL OR run = ?2) ORDER BY seq"
    return [unpacked(*row) for row in connection.execute(sql, (number, run))]


def last(connection: SqliteConnection) -> int:
    """Return the number of the newest command, 0 if there is none."""
    return connection.execute("SELECT coalesce(max(seq), 0) FROM control").fetchall()[0][0]
