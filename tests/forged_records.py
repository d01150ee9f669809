"""Changes to a stored record as somebody makes them who can write to the database and has not the key."""

from pathlib import Path

from remit.runtime.audit import GENESIS, leaf, link
from remit.stores.connection import connect_writer
from remit.stores.schema import KINDS

NAMES = {number: kind.value for kind, number in KINDS.items()}


def sql(path: Path, statements: str) -> None:
    """Run statements in the database."""
    connection = connect_writer(path, "process", 1)
    connection.execute(statements)
    connection.close()


def rehash(path: Path, *, at_ms: int | None = None) -> None:
    """Change a row, and make every digest anew, as someone does who knows how the chain is made."""
    connection = connect_writer(path, "process", 1)
    connection.execute(
        """UPDATE record SET body = '{"delegation":"id-one","agent":"prime","text":"x"}' WHERE seq = 3"""
    )
    if at_ms is not None:
        connection.execute("UPDATE record SET at_ms = ?", (at_ms,))
    previous = GENESIS
    for seq, kind, at, run, session, body in connection.execute(
        "SELECT seq, kind, at_ms, run, session, CAST(body AS BLOB) FROM record ORDER BY seq"
    ).fetchall():
        previous = link(previous, seq, leaf(NAMES[kind], at, run, session, body))
        connection.execute("UPDATE record SET digest = ? WHERE seq = ?", (previous, seq))
    connection.close()
