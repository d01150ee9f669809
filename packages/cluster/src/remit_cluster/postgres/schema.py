"""The tables of the PostgreSQL store and their versions."""

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.ports import StoreError
from remit.protocol.errors import Code, fault
from remit.stores.schema import TABLES
from remit_cluster.postgres.connection import DatabaseAddress, PgConnection

# Advisory locks are shared by everything in a database: "Rmit" and a number.
MIGRATING = 0x526D6974_00000001
CHAINING = 0x526D6974_00000002
UPKEEP = 0x526D6974_00000003

# The row of the chain in which a record of the table `record` is; no row if it is not chained yet.
SEQ = """
    JOIN LATERAL (
        SELECT chain.first + record.number - chain.number AS seq, chain.last FROM remit.chain
        WHERE chain.stream = record.stream AND chain.number <= record.number ORDER BY chain.number DESC LIMIT 1
    ) AS placed ON placed.seq <= placed.last
"""

# The step at place n takes a database from version n to n + 1. A step that was released is never changed.
MIGRATIONS: tuple[str, ...] = (
    f"""
    -- signer: which key signs, as a hash that tells nothing of it. number, seq: the last checkpoint. since_ms: when the
    -- first row after it was chained; 0: there is none.
    CREATE TABLE remit.store (
        one smallint PRIMARY KEY CHECK (one = 1), version integer NOT NULL, signer text NOT NULL DEFAULT '',
        number bigint NOT NULL DEFAULT 0, seq bigint NOT NULL DEFAULT 0, since_ms bigint NOT NULL DEFAULT 0
    );
    INSERT INTO remit.store (one, version) VALUES (1, 0);
    -- When a hub last pruned by itself.
    CREATE TABLE remit.upkeep (one smallint PRIMARY KEY CHECK (one = 1), pruned_ms bigint NOT NULL);
    INSERT INTO remit.upkeep VALUES (1, 0);

    -- Each opening of the store by a hub that writes is a stream. batch: the number of its last transaction; number:
    -- its last record; chained: its last record in the chain.
    CREATE TABLE remit.stream (
        id bigint PRIMARY KEY, opened_ms bigint NOT NULL, batch bigint NOT NULL, number bigint NOT NULL,
        chained bigint NOT NULL DEFAULT 0, closed boolean NOT NULL DEFAULT false
    );
    CREATE INDEX stream_open ON remit.stream (id) WHERE NOT closed;

    -- digest: of the content alone. tx: the transaction, which orders records of different streams.
    CREATE TABLE remit.record (
        stream bigint NOT NULL, number bigint NOT NULL, kind smallint NOT NULL, at_ms bigint NOT NULL,
        run text NOT NULL, session text NOT NULL, body bytea NOT NULL, digest bytea NOT NULL,
        tx xid8 NOT NULL DEFAULT pg_current_xact_id(), PRIMARY KEY (stream, number)
    );
    CREATE INDEX record_run ON remit.record (run);
    CREATE INDEX record_session ON remit.record (session, stream, number);
    -- Steps with other devices, breaks and statements about removals are looked at by themselves.
    CREATE INDEX record_shared ON remit.record (stream, number) WHERE kind = 9;
    CREATE INDEX record_break ON remit.record (stream, number) WHERE kind = 10;
    CREATE INDEX record_removal ON remit.record (stream, number) WHERE kind = 11;
    -- What the chain needs of rows that were removed, or of which only an outline is kept: 32 bytes for each row from
    -- first to last, the digest of its content.
    CREATE TABLE remit.removed (first bigint PRIMARY KEY, last bigint NOT NULL, leaves bytea NOT NULL);
    ALTER TABLE remit.removed ALTER COLUMN leaves SET STORAGE EXTERNAL;

    -- A piece of the chain: the records of a stream from number on are the rows first to last. digests has 32 bytes for
    -- each row, which do not compress.
    CREATE TABLE remit.chain (
        first bigint PRIMARY KEY, last bigint NOT NULL, stream bigint NOT NULL, number bigint NOT NULL,
        digests bytea NOT NULL
    );
    ALTER TABLE remit.chain ALTER COLUMN digests SET STORAGE EXTERNAL;
    CREATE UNIQUE INDEX chain_stream ON remit.chain (stream, number);
    CREATE TABLE remit.checkpoint (
        number bigint PRIMARY KEY, seq bigint NOT NULL, digest text NOT NULL, at_ms bigint NOT NULL, key text NOT NULL,
        signature text NOT NULL
    );

    -- The texts of a request and of its outcome are records: first, begun (if it began in another form) and last.
    CREATE TABLE remit.request (
        place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL, by_user text NOT NULL,
        origin text NOT NULL, digest bytea NOT NULL, run text NOT NULL, session text NOT NULL, target text NOT NULL,
        via text NOT NULL, correlation text NOT NULL, state smallint NOT NULL, epoch integer NOT NULL,
        worker text NOT NULL, lease_until_ms bigint NOT NULL, waiting boolean NOT NULL,
        spared integer NOT NULL DEFAULT 0, started_ms bigint NOT NULL, begun_ms bigint NOT NULL,
        ended_ms bigint, status text, asks_back boolean NOT NULL DEFAULT false,
        first_stream bigint NOT NULL, first_number bigint NOT NULL, begun_stream bigint NOT NULL,
        begun_number bigint NOT NULL, last_stream bigint, last_number bigint
    );
    CREATE UNIQUE INDEX request_key ON remit.request (id, by_user, origin) WHERE state < 2;
    CREATE UNIQUE INDEX request_run ON remit.request (run) WHERE state < 2;
    CREATE INDEX request_forgotten ON remit.request (run) WHERE state = 2;
    CREATE INDEX request_lease ON remit.request (lease_until_ms) WHERE state = 0;
    CREATE INDEX request_ended ON remit.request (ended_ms) WHERE state = 1;
    -- The runs of one user are listed, exported and erased.
    CREATE INDEX request_user ON remit.request (by_user);
    -- A heartbeat is one row, however many requests the worker has claimed.
    CREATE TABLE remit.worker (name text PRIMARY KEY, lease_until_ms bigint NOT NULL);
    {TABLES}
    -- An index over the record, brought up to date by whoever needs it. indexed: how far each stream was indexed.
    -- words: the messages up to this one are in word.
    CREATE TABLE remit.conversation (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session text NOT NULL UNIQUE,
        words bigint NOT NULL DEFAULT 0
    );
    CREATE TABLE remit.indexed (conversation bigint, stream bigint, number bigint NOT NULL,
        PRIMARY KEY (conversation, stream));
    CREATE TABLE remit.message (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, conversation bigint NOT NULL, seq bigint NOT NULL,
        role smallint NOT NULL, at_ms bigint NOT NULL, tokens integer NOT NULL, UNIQUE (conversation, seq)
    );
    CREATE INDEX message_newest ON remit.message (conversation, id);
    CREATE INDEX message_seq ON remit.message (seq);
    CREATE TABLE remit.word (id bigint PRIMARY KEY, conversation bigint NOT NULL, text text NOT NULL);
    CREATE INDEX word_text ON remit.word USING gin (text gin_trgm_ops);

    -- The records that are in the chain, with their rows there.
    CREATE VIEW remit.chained AS
    SELECT placed.seq, record.kind, record.at_ms, record.run, record.session, record.body
    FROM remit.record {SEQ};
    -- Requests with what their records say of them, in the same columns for both engines.
    CREATE VIEW remit.runs AS
    SELECT place, request.run, id, by_user, origin, request.worker, state, epoch, waiting,
        greatest(request.lease_until_ms, coalesce(worker.lease_until_ms, 0)) AS lease_until_ms, request.session, target,
        via, correlation, started_ms, begun_ms, ended_ms, status, asks_back, (
            SELECT CASE WHEN placed.seq <= placed.last THEN placed.seq END FROM (
                SELECT chain.first + coalesce(last_number, begun_number) - chain.number AS seq, chain.last
                FROM remit.chain WHERE chain.stream = coalesce(last_stream, begun_stream)
                    AND chain.number <= coalesce(last_number, begun_number) ORDER BY chain.number DESC LIMIT 1
            ) AS placed
        ) AS seq, begun.body AS begun_body, ended.body AS ended_body
    FROM remit.request
    JOIN remit.record AS begun ON begun.stream = begun_stream AND begun.number = begun_number
    LEFT JOIN remit.record AS ended ON ended.stream = last_stream AND ended.number = last_number
    LEFT JOIN remit.worker ON worker.name = request.worker AND request.worker <> '';
    """,
)


async def migrate(connection: PgConnection, address: DatabaseAddress) -> None:
    """Migrate the database to the current version; several hubs may start at once, and each step runs once."""
    await check_server(connection, address)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
        version = await _version(connection, address)
        if version is None:
            await _make_schema(connection, address)
            version = 0
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            await connection.execute(step)
            await connection.execute("UPDATE remit.store SET version = $1", number)


async def check_version(connection: PgConnection, address: DatabaseAddress) -> None:
    """Raise `StoreError` unless the database is ours and of the current version."""
    version = await _version(connection, address)
    if version is None:
        raise _unusable(f"{address.name}: no hub has used this database yet", "Start a hub with this store once.")
    if version < len(MIGRATIONS):
        raise _unusable(
            f"{address.name} has version {version}, and this program reads version {len(MIGRATIONS)}",
            "Open it once with a hub that may write to it: that brings it up to date.",
        )


async def check_complete(connection: PgConnection, address: DatabaseAddress) -> None:
    """Raise `StoreError` while another store is being copied into the database."""
    if await connection.fetchval("SELECT to_regclass('remit.copying') IS NOT NULL"):
        raise _unusable(
            f"{address.name} is an unfinished copy of another store",
            "Go on with it: remit store copy FROM TO. Or drop its schema `remit`.",
        )


async def check_server(connection: PgConnection, address: DatabaseAddress) -> None:
    """Raise `StoreError` unless the server is one that can hold a store."""
    row = await connection.fetchrow(
        "SELECT current_setting('server_encoding'), pg_is_in_recovery(),"
        " current_setting('transaction_read_only'), current_setting('server_version_num')::int"
    )
    assert row
    encoding, standby, read_only, version = row
    if encoding != "UTF8":
        raise _unusable(
            f"{address.name}: the encoding of the database is {encoding}, not UTF8",
            "Create another one: createdb --encoding UTF8 --template template0 NAME",
        )
    if standby or read_only == "on":
        why = "it is a standby server" if standby else "default_transaction_read_only is on"
        raise _unusable(
            f"{address.name}: the server accepts no writes: {why}",
            "Give the address of the primary server; a read-only store is not enough.",
        )
    # Transaction ids of 64 bits came with version 13.
    if version < 130_000:
        raise _unusable(f"{address.name}: the server has version {version // 10_000}", "Use PostgreSQL 13 or newer.")


async def _make_schema(connection: PgConnection, address: DatabaseAddress) -> None:
    try:
        # Only if it is missing: even IF NOT EXISTS needs the right to create.
        if await connection.fetchval("SELECT to_regnamespace('remit') IS NULL"):
            await connection.execute("CREATE SCHEMA remit")
    except asyncpg.InsufficientPrivilegeError as error:
        raise address.translate(error) from None
    try:
        if await connection.fetchval(_TRIGRAMS_IN) is None:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except asyncpg.InsufficientPrivilegeError:
        raise _unusable(
            f"{address.name}: the user may not create the extension pg_trgm, which finds words in conversations",
            "Let an administrator run CREATE EXTENSION pg_trgm in this database, or GRANT CREATE ON DATABASE … TO …",
        ) from None
    except (asyncpg.UndefinedFileError, asyncpg.FeatureNotSupportedError):
        raise _unusable(
            f"{address.name}: the server lacks the extension pg_trgm, which finds words in conversations",
            "Install it on the server: it is part of PostgreSQL's contrib modules (Debian: postgresql-contrib).",
        ) from None

    # An administrator may have put it into a schema of its own.
    await connection.execute(
        "SELECT set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''),"
        " quote_ident($1)), true)",
        await connection.fetchval(_TRIGRAMS_IN),
    )


_TRIGRAMS_IN = (
    "SELECT nspname::text FROM pg_extension JOIN pg_namespace AS place ON place.oid = extnamespace"
    " WHERE extname = 'pg_trgm'"
)


async def _version(connection: PgConnection, address: DatabaseAddress) -> int | None:
    """Return the version of the database, None if it has no tables of ours."""
    row = await connection.fetchrow(
        "SELECT to_regnamespace('remit') IS NOT NULL, to_regclass('remit.store') IS NOT NULL,"
        " EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace('remit'))"
    )
    assert row
    _, ours, filled = row
    if not ours and filled:
        raise _unusable(
            f"{address.name}: its schema `remit` belongs to another program", "Give the store a database of its own."
        )
    if not ours:
        return None
    try:
        version = await connection.fetchval("SELECT version FROM remit.store")
    except asyncpg.UndefinedColumnError:
        raise _unusable(
            f"{address.name}: its schema `remit` belongs to another program", "Give the store a database of its own."
        ) from None
    if not isinstance(version, int):
        raise _unusable(f"{address.name}: the row with its version was deleted", "Restore a backup.")
    if version > len(MIGRATIONS):
        raise _unusable(
            f"{address.name} has version {version}, which a newer program wrote; this one knows {len(MIGRATIONS)}",
            "Update this program, or use another database.",
        )
    return version


def _unusable(message: str, advice: str) -> StoreError:
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
