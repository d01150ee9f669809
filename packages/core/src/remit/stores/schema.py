"""The tables of a store: those that both engines have, and those of a SQLite file."""

import time
from pathlib import Path

import apsw

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.protocol.records import Kind
from remit.stores.connection import SqliteConnection, write_lock
from remit.stores.database import in_sqlite

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
KIND_OF = {number: kind for kind, number in KINDS.items()}

# The states of a request. A forgotten one is still listed, but its id may be used again.
RUNNING, FINISHED, FORGOTTEN = 0, 1, 2

# How long questions that are over and controls are kept.
DAY_MS = 24 * 3_600_000

# The tables that both engines have. A keyed one is stored in the order of its key in SQLite.
TABLES = """
    CREATE TABLE remit.session (id text PRIMARY KEY, by_user text NOT NULL, agent text NOT NULL) /* keyed */;
    -- What a run has done that did not succeed is known until its outcome is forgotten: one that tries it again need
    -- not do it again.
    CREATE TABLE remit.journal (run text, step text, value bytea NOT NULL, PRIMARY KEY (run, step)) /* keyed */;
    -- Texts are bytes: no type for texts can hold every character. digest: of the text as it is stored.
    CREATE TABLE remit.fact (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, by_user text NOT NULL, digest bytea NOT NULL,
        text bytea NOT NULL, run text NOT NULL, at_ms bigint NOT NULL, UNIQUE (by_user, digest)
    );
    CREATE TABLE remit.note (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session text NOT NULL, kind text NOT NULL,
        digest bytea NOT NULL, text bytea NOT NULL, by_agent text NOT NULL, at_ms bigint NOT NULL,
        UNIQUE (session, kind, digest)
    );
    CREATE TABLE remit.counter (
        key text PRIMARY KEY, start_ms bigint NOT NULL, end_ms bigint NOT NULL, total bigint NOT NULL
    ) /* keyed */;
    CREATE TABLE remit.cell (key text PRIMARY KEY, revision bigint NOT NULL, value bytea NOT NULL) /* keyed */;
    -- How far logs that are kept elsewhere were recorded here.
    CREATE TABLE remit.transferred (source text PRIMARY KEY, number bigint NOT NULL) /* keyed */;
    -- The scope is a conversation or, where none was chosen, a run.
    CREATE TABLE remit.sealed (
        scope text, token text, value bytea NOT NULL, of_user boolean NOT NULL, at_ms bigint NOT NULL,
        PRIMARY KEY (scope, token)
    ) /* keyed */;
    CREATE INDEX sealed_at ON remit.sealed (at_ms);
    -- over_ms: when it was answered, or will be too late.
    CREATE TABLE remit.question (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, run text NOT NULL,
        content bytea NOT NULL, asked_ms bigint NOT NULL, expires_ms bigint NOT NULL, over_ms bigint NOT NULL,
        decision bytea
    );
    CREATE INDEX question_open ON remit.question (asked_ms) WHERE decision IS NULL;
    CREATE INDEX question_over ON remit.question (over_ms);
    CREATE INDEX question_run ON remit.question (run) WHERE decision IS NULL;
    CREATE TABLE remit.control (
        seq bigint PRIMARY KEY, run text NOT NULL, action text NOT NULL, by_user text NOT NULL, reason bytea NOT NULL,
        at_ms bigint NOT NULL
    );
    CREATE INDEX control_at ON remit.control (at_ms);
    -- A command is numbered under this row's lock, and a number is never given again, though the newest may be gone: a
    -- hub that asks for what came after the last one misses none.
    CREATE TABLE remit.last_control (one smallint PRIMARY KEY CHECK (one = 1), seq bigint NOT NULL);
    INSERT INTO remit.last_control VALUES (1, 0);
    -- The key of each user's texts, encrypted under the store's key; destroyed when the user is erased. The key of
    -- texts that belong to nobody is there as soon as the store is encrypted.
    CREATE TABLE remit.user_key (id bigint PRIMARY KEY, by_user text NOT NULL UNIQUE, wrapped bytea NOT NULL);
    -- The store was restored from a backup of backup_ms at restored_ms; what was accepted in between is not known.
    CREATE TABLE remit.fence (
        one smallint PRIMARY KEY CHECK (one = 1), backup_ms bigint NOT NULL, restored_ms bigint NOT NULL
    );
"""

# Requests with what their records say of them, in the same columns for both engines.
RUNS = """
    CREATE {temporary} VIEW runs AS
    SELECT place, request.run, id, by_user, origin, worker, state, epoch, waiting, lease_until_ms, begun.session,
        CAST(begun.body AS TEXT) ->> '$.target' AS target,
        coalesce(CAST(begun.body AS TEXT) ->> '$.via', '') AS via,
        coalesce(CAST(begun.body AS TEXT) ->> '$.correlation', '') AS correlation,
        submitted.at_ms AS started_ms, begun.at_ms AS begun_ms, ended.at_ms AS ended_ms,
        CAST(ended.body AS TEXT) ->> '$.status' AS status,
        coalesce(CAST(ended.body AS TEXT) ->> '$.requires_followup', 0) AS asks_back,
        coalesce(last_seq, begun.seq) AS seq, begun.body AS begun_body, ended.body AS ended_body
    FROM request JOIN record AS submitted ON submitted.seq = place
    JOIN record AS begun ON begun.seq = coalesce(begun_seq, place) LEFT JOIN record AS ended ON ended.seq = last_seq;
"""

# The step at place n takes a file from version n to n + 1. A step that was released is never changed.
MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE record (
        seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at_ms INTEGER NOT NULL, run TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL
    );
    CREATE INDEX record_run ON record (run);
    CREATE INDEX record_session ON record (session);
    -- Steps with other devices, breaks and statements about removals are few among all records, and are looked at by
    -- themselves.
    CREATE INDEX record_shared ON record (seq) WHERE kind = 9;
    CREATE INDEX record_break ON record (seq) WHERE kind = 10;
    CREATE INDEX record_removal ON record (seq) WHERE kind = 11;
    -- What the chain needs of rows that were removed, or of which only an outline is kept. leaf: the digest of the
    -- content. digest: the row's own, where the next row was kept.
    CREATE TABLE removed (seq INTEGER PRIMARY KEY, leaf BLOB NOT NULL, digest BLOB);

    -- The request's own text and its outcome are records: place and last_seq point at them, and begun_seq at the form
    -- in which it began, if that is another than was submitted. waiting: it has not begun. spared: how many epochs were
    -- no attempt.
    CREATE TABLE request (
        place INTEGER PRIMARY KEY, origin TEXT NOT NULL, by_user TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL,
        run TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, worker TEXT NOT NULL,
        lease_until_ms INTEGER NOT NULL, last_seq INTEGER, ended_ms INTEGER, waiting INTEGER NOT NULL DEFAULT 0,
        spared INTEGER NOT NULL DEFAULT 0, begun_seq INTEGER
    );
    CREATE UNIQUE INDEX request_key ON request (id, by_user, origin) WHERE state < 2;
    CREATE UNIQUE INDEX request_run ON request (run) WHERE state < 2;
    CREATE INDEX request_forgotten ON request (run) WHERE state = 2;
    CREATE INDEX request_lease ON request (lease_until_ms) WHERE state = 0;
    CREATE INDEX request_ended ON request (ended_ms) WHERE state = 1;
    -- The runs of one user are listed, exported and erased.
    CREATE INDEX request_user ON request (by_user);
    {RUNS.format(temporary="")}
    {in_sqlite(TABLES)}
    CREATE TRIGGER forgotten AFTER UPDATE OF state ON request WHEN new.state = 2
    BEGIN
        DELETE FROM sealed WHERE scope = new.run AND NOT EXISTS (SELECT 1 FROM session WHERE id = new.run);
        DELETE FROM journal WHERE run = new.run;
    END;
    -- Nobody is asked for an answer that nobody wants any more.
    CREATE TRIGGER request_asks_no_more AFTER UPDATE OF state ON request WHEN new.state > 0
    BEGIN DELETE FROM question WHERE run = new.run AND decision IS NULL; END;

    -- An index over the record, brought up to date by whoever needs it: the records of a session up to seq are in
    -- message, and its messages up to words are in word.
    CREATE TABLE conversation (
        number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL DEFAULT 0,
        words INTEGER NOT NULL DEFAULT 0
    );
    -- In the order of their ids, which are never given again: what replaces a message comes after it.
    CREATE TABLE message (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL, seq INTEGER NOT NULL,
        role INTEGER NOT NULL, at_ms INTEGER NOT NULL, tokens INTEGER NOT NULL, UNIQUE (conversation, seq)
    );
    CREATE INDEX message_newest ON message (conversation, id, role, at_ms, tokens, seq);
    CREATE INDEX message_seq ON message (seq);
    CREATE VIRTUAL TABLE word USING fts5 (
        text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1'
    );
    INSERT INTO word (word, rank) VALUES ('usermerge', 2);

    -- The last checkpoint: its file may lose lines, this row remembers how many there were. signer: which key signs, as
    -- a hash that tells nothing of it. since_ms: when the first row after it was committed; 0: there is none.
    CREATE TABLE checkpoint (
        one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, seq INTEGER NOT NULL,
        signer TEXT NOT NULL DEFAULT '', since_ms INTEGER NOT NULL DEFAULT 0
    );
    INSERT INTO checkpoint VALUES (1, 0, 0, '', 0);
    -- The wall clock as it was last seen: what it jumped since then is told from time that passed.
    CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), seen_ms INTEGER NOT NULL);
    INSERT INTO clock VALUES (1, 0);
    -- When a hub last pruned by itself.
    CREATE TABLE upkeep (one INTEGER PRIMARY KEY CHECK (one = 1), pruned_ms INTEGER NOT NULL);
    INSERT INTO upkeep VALUES (1, 0);
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
