"""The tables of a SQLite store, and the migrations of older files."""

import time
from pathlib import Path

import apsw

from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind
from remit.runtime.ports import StoreError
from remit.stores.connection import SqliteConnection, write_lock

# Written into the file's header, so that another program's database is not taken for ours ("Rmit").
APPLICATION_ID = 0x526D6974

# The numbers of kinds; a number is never reused for another kind. `Kind.DELTA` is not stored and has none.
KINDS: dict[Kind, int] = {
    Kind.STARTED: 1,
    Kind.DELEGATION: 2,
    Kind.PROGRESS: 3,
    Kind.TOOL: 4,
    Kind.NOTICE: 5,
    Kind.RESULT: 6,
    Kind.REFUSED: 7,
    Kind.APPROVAL: 8,
    Kind.SHARED: 9,
    Kind.BREAK: 10,
    Kind.REMOVED: 11,
}

# The states of a request. A forgotten one is still listed, but its id may be used again.
RUNNING, FINISHED, FORGOTTEN = 0, 1, 2

# How long questions that are over and controls are kept.
DAY_MS = 24 * 3_600_000

# The step at place n takes a file from version n to n + 1. A step that was released is never changed.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE record (
        seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at_ms INTEGER NOT NULL, run TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL
    );
    CREATE INDEX record_run ON record (run);
    CREATE INDEX record_session ON record (session);

    -- The request's own text and its outcome are records: first_seq and last_seq point at them.
    CREATE TABLE request (
        first_seq INTEGER PRIMARY KEY, origin TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL,
        run TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, worker TEXT NOT NULL,
        lease_until_ms INTEGER NOT NULL, last_seq INTEGER, finished_ms INTEGER
    );
    CREATE UNIQUE INDEX request_key ON request (id, user, origin) WHERE state < 2;
    CREATE UNIQUE INDEX request_run ON request (run) WHERE state < 2;
    CREATE INDEX request_lease ON request (lease_until_ms) WHERE state = 0;
    CREATE INDEX request_finished ON request (finished_ms) WHERE state = 1;

    CREATE TABLE session (id TEXT PRIMARY KEY, user TEXT NOT NULL, agent TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE journal (run TEXT, step TEXT, value BLOB NOT NULL, PRIMARY KEY (run, step)) WITHOUT ROWID;
    -- A run that has ended is not taken up again.
    CREATE TRIGGER request_ended AFTER UPDATE OF state ON request WHEN new.state = 1
    BEGIN DELETE FROM journal WHERE run = new.run; END;
    CREATE TABLE fact (
        id INTEGER PRIMARY KEY, user TEXT NOT NULL, text TEXT NOT NULL, run TEXT NOT NULL, UNIQUE (user, text)
    );
    CREATE TABLE counter (
        key TEXT PRIMARY KEY, start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, total INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE cell (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;

    -- The last checkpoint: its file may lose lines, this row remembers how many there were.
    CREATE TABLE checkpoint (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, seq INTEGER NOT NULL);
    INSERT INTO checkpoint VALUES (1, 0, 0);
    """,
    """
    -- waiting: it has not begun. spared: how many epochs were no attempt. begun_seq: the record of the form in which it
    -- began, if that is another than was submitted.
    ALTER TABLE request ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE request ADD COLUMN spared INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE request ADD COLUMN begun_seq INTEGER;
    -- request_run has the others.
    CREATE INDEX request_forgotten ON request (run) WHERE state = 2;

    CREATE TABLE sealed (
        run TEXT, token TEXT, value BLOB NOT NULL, of_user INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (run, token)
    ) WITHOUT ROWID;
    CREATE INDEX sealed_at ON sealed (at_ms);
    CREATE TRIGGER request_forgotten AFTER UPDATE OF state ON request WHEN new.state = 2
    BEGIN DELETE FROM sealed WHERE run = new.run; DELETE FROM journal WHERE run = new.run; END;

    -- over_ms: when it was answered, or will be too late.
    CREATE TABLE question (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, text TEXT NOT NULL,
        request BLOB NOT NULL, editable BLOB NOT NULL, asked_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        over_ms INTEGER NOT NULL, decision BLOB
    );
    CREATE INDEX question_open ON question (asked_ms) WHERE decision IS NULL;
    CREATE INDEX question_over ON question (over_ms);
    CREATE INDEX question_run ON question (run) WHERE decision IS NULL;
    -- Nobody is asked for an answer that nobody wants any more.
    CREATE TRIGGER request_asks_no_more AFTER UPDATE OF state ON request WHEN new.state > 0
    BEGIN DELETE FROM question WHERE run = new.run AND decision IS NULL; END;

    -- A number is never given again, though the newest may be gone: a hub asks for what came after the last it saw.
    CREATE TABLE control (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, action TEXT NOT NULL, by TEXT NOT NULL,
        reason TEXT NOT NULL, at_ms INTEGER NOT NULL
    );
    CREATE INDEX control_at ON control (at_ms);
    """,
    """
    -- Values are kept for a conversation now; where none was chosen, for the run, as before.
    ALTER TABLE sealed RENAME COLUMN run TO scope;
    DROP TRIGGER request_forgotten;
    CREATE TRIGGER request_forgotten AFTER UPDATE OF state ON request WHEN new.state = 2
    BEGIN
        DELETE FROM sealed WHERE scope = new.run AND NOT EXISTS (SELECT 1 FROM session WHERE id = new.run);
        DELETE FROM journal WHERE run = new.run;
    END;

    -- An index over the record, brought up to date by whoever needs it: the records of a session up to seq are in
    -- message, and its messages up to words are in word.
    CREATE TABLE conversation (
        number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, words INTEGER NOT NULL
    );
    -- In the order of their ids, which are never given again: what replaces a message comes after it.
    CREATE TABLE message (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL, seq INTEGER NOT NULL,
        role INTEGER NOT NULL, at_ms INTEGER NOT NULL, tokens INTEGER NOT NULL, UNIQUE (conversation, seq)
    );
    CREATE INDEX message_newest ON message (conversation, id, role, at_ms, tokens, seq);
    CREATE VIRTUAL TABLE word USING fts5 (
        text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1'
    );
    INSERT INTO word (word, rank) VALUES ('usermerge', 2);

    CREATE TABLE note (
        id INTEGER PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
        by TEXT NOT NULL, UNIQUE (session, kind, text)
    );
    """,
    """
    -- What a run has done that did not succeed is known until its outcome is forgotten: one that tries it again need
    -- not do it again.
    DROP TRIGGER request_ended;
    """,
    """
    -- Steps with other devices (kind 9) are few among all records, and looked at by themselves. A program that does not
    -- know the kind would take them for tampered with: it is told by the version that the file is too new for it.
    CREATE INDEX record_shared ON record (seq) WHERE kind = 9;
    -- How far logs that are kept elsewhere were recorded here.
    CREATE TABLE transferred (source TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
    """,
    """
    -- signer: which key signs, as a hash that tells nothing of it. since_ms: when the first row after the last
    -- checkpoint was committed; 0: there is none. Breaks (kind 10) are looked at by themselves.
    ALTER TABLE checkpoint ADD COLUMN signer TEXT NOT NULL DEFAULT '';
    ALTER TABLE checkpoint ADD COLUMN since_ms INTEGER NOT NULL DEFAULT 0;
    UPDATE checkpoint SET since_ms = unixepoch() * 1000 WHERE seq < (SELECT coalesce(max(seq), 0) FROM record);
    CREATE INDEX record_break ON record (seq) WHERE kind = 10;
    -- The wall clock as it was last seen: what it jumped since then is told from time that passed.
    CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), seen_ms INTEGER NOT NULL);
    INSERT INTO clock VALUES (1, 0);
    """,
    """
    -- From here on, a row's digest is made from the digest of its content. A program that does not know that would take
    -- the rows for tampered with: it is told by the version that the file is too new for it.
    """,
    """
    -- What the chain needs of rows that were removed, or of which only an outline is kept. leaf: the digest of the
    -- content; empty for a row of version 6, whose digest was made without it. digest: the row's own, where the next
    -- row was kept. Statements about removals (kind 11) are looked at by themselves.
    CREATE TABLE removed (seq INTEGER PRIMARY KEY, leaf BLOB NOT NULL, digest BLOB);
    CREATE INDEX record_removal ON record (seq) WHERE kind = 11;
    -- Facts and notes are kept for a time; those that are there already, from now on.
    ALTER TABLE fact ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0;
    UPDATE fact SET at_ms = unixepoch() * 1000;
    ALTER TABLE note ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0;
    UPDATE note SET at_ms = unixepoch() * 1000;
    CREATE INDEX message_seq ON message (seq);
    -- When a hub last pruned by itself.
    CREATE TABLE upkeep (one INTEGER PRIMARY KEY CHECK (one = 1), pruned_ms INTEGER NOT NULL);
    INSERT INTO upkeep VALUES (1, 0);
    """,
    """
    -- The file was restored from a backup of backup_ms at restored_ms; what was accepted in between is not known.
    CREATE TABLE fence (
        one INTEGER PRIMARY KEY CHECK (one = 1), backup_ms INTEGER NOT NULL, restored_ms INTEGER NOT NULL
    );
    """,
    """
    -- The key of each user's texts, encrypted under the store's key; destroyed when the user is erased. The key of
    -- texts that belong to nobody is there as soon as the store is encrypted.
    CREATE TABLE user_key (id INTEGER PRIMARY KEY, user TEXT NOT NULL UNIQUE, wrapped BLOB NOT NULL);
    -- The runs of one user are listed, exported and erased.
    CREATE INDEX request_user ON request (user);
    """,
    """
    -- The form that the person is asked to fill in, as a JSON schema.
    ALTER TABLE question ADD COLUMN form BLOB;
    """,
)


def migrate(connection: SqliteConnection, path: Path, busy_seconds: float) -> None:
    """Migrate the file to the current version; several processes may start at once, and each step runs once."""
    if connection.pragma("page_count") == 0:
        # Only a new file can be made able to give free pages back.
        connection.pragma("auto_vacuum", 2)
    _use_wal(connection, busy_seconds)
    with write_lock(connection):
        version = _version(connection, path)
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            connection.execute(step)
            connection.pragma("user_version", number)
        if version == 0:
            connection.pragma("application_id", APPLICATION_ID)


def check_version(connection: SqliteConnection, path: Path) -> None:
    """Raise `StoreError` unless the file is ours and of the current version."""
    version = _version(connection, path)
    if version < len(MIGRATIONS):
        raise _unusable(
            f"{path} has version {version}, and this program reads version {len(MIGRATIONS)}",
            "Open it once with a hub that may write to it: that brings it up to date.",
        )


def _version(connection: SqliteConnection, path: Path) -> int:
    version: int = connection.pragma("user_version")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0]
    if tables and connection.pragma("application_id") != APPLICATION_ID:
        raise _unusable(f"{path} is the database of another program", "Give the store a file of its own.")
    if version > len(MIGRATIONS):
        raise _unusable(
            f"{path} has version {version}, which a newer program wrote; this one knows {len(MIGRATIONS)}",
            "Update this program, or use another file.",
        )
    return version


def _unusable(message: str, advice: str) -> StoreError:
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def _use_wal(connection: SqliteConnection, busy_seconds: float) -> None:
    # SQLite does not wait for the lock when the journal mode changes, so processes that start together must.
    give_up = time.monotonic() + busy_seconds
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)
