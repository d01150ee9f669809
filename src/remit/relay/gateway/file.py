"""The one file of a gateway: its tables, and how it is opened."""

from collections.abc import Callable
from pathlib import Path

from remit.stores.connection import Durability, SqliteConnection, connect_writer

SCHEMA_VERSION = 2
# What is looked at often stands before the body, which may fill many pages.
_MESSAGE = """
CREATE TABLE message (
    place INTEGER PRIMARY KEY,
    receiver INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX message_of ON message (receiver);
"""
_SCHEMA = """
CREATE TABLE device (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    is_open INTEGER NOT NULL DEFAULT 1,
    bundle BLOB,
    seen_ms INTEGER NOT NULL
);
CREATE TABLE allowed (
    receiver INTEGER NOT NULL,
    sender TEXT NOT NULL,
    PRIMARY KEY (receiver, sender)
) WITHOUT ROWID;
{message}
-- The last number of each sender for each receiver: what is not above it was put before. And the last one of those that
-- were deleted because nobody fetched them, until something new is put.
CREATE TABLE pair (
    receiver INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    number INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    expired INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (receiver, sender)
) WITHOUT ROWID;
CREATE INDEX pair_expired ON pair (sender) WHERE expired > 0;
-- A key that was handed out leaves its digest, so that publishing it again does not bring it back.
CREATE TABLE one_time (
    key INTEGER PRIMARY KEY,
    device INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB,
    used_ms INTEGER,
    UNIQUE (device, digest)
);
CREATE INDEX one_time_left ON one_time (device) WHERE body IS NOT NULL;
"""
# Of what an older version has queued nobody knows since when: since now, then.
_FROM_1 = """
ALTER TABLE message RENAME TO message_1;
DROP INDEX message_of;
{message}
INSERT INTO message SELECT place, receiver, sender, number, {now_ms}, body FROM message_1;
DROP TABLE message_1;
ALTER TABLE pair ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
CREATE INDEX pair_expired ON pair (sender) WHERE expired > 0;
"""
# Folding the log into the file less often than SQLite would: most messages are gone again before it comes to that.
_CHECKPOINT_PAGES = 4_000


def open_file(path: Path, durability: Durability, wall_ms: Callable[[], int]) -> SqliteConnection:
    """Return a gateway's file, brought up to date; nobody else can open it meanwhile."""
    connection = connect_writer(path, durability, busy_seconds=1.0)
    try:
        # Alone with its file, SQLite needs no shared memory for its log; and a second gateway is refused.
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
        connection.execute("BEGIN IMMEDIATE")
        version = connection.pragma("user_version")
        if version == 0:
            connection.execute(_SCHEMA.format(message=_MESSAGE))
        elif version == 1:
            connection.execute(_FROM_1.format(message=_MESSAGE, now_ms=wall_ms()))
        elif version != SCHEMA_VERSION:
            raise OSError(f"it was written by another version of Remit ({version}, this one writes {SCHEMA_VERSION})")
        connection.pragma("user_version", SCHEMA_VERSION)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection
