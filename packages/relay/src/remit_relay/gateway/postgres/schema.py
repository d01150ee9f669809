"""The tables of gateways in PostgreSQL and their versions."""

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError
from remit_cluster.postgres.connection import DatabaseAddress, PgConnection
from remit_cluster.postgres.schema import check_server

# Advisory locks are shared by everything in a database: "Rmgw" and a number.
MIGRATING = 0x526D6777_00000001
CLEANING = 0x526D6777_00000002

# The step at place n takes a database from version n to n + 1. A step that was released is never changed.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE remit_gateway.store (
        one smallint PRIMARY KEY CHECK (one = 1), version integer NOT NULL, cleaned_ms bigint NOT NULL DEFAULT 0
    );
    INSERT INTO remit_gateway.store (one, version) VALUES (1, 0);

    -- A running gateway, and what it added to the whole: all rows together say how much is stored. Row 0 has what
    -- gateways that are gone had added. So no two gateways ever write to the same counter.
    CREATE TABLE remit_gateway.gateway (
        id bigint PRIMARY KEY, lease_until_ms bigint NOT NULL DEFAULT 0, devices bigint NOT NULL DEFAULT 0,
        messages bigint NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0, kept bigint NOT NULL DEFAULT 0
    );
    INSERT INTO remit_gateway.gateway (id) VALUES (0);

    -- place: the last place of a message for the device. It is taken under this row's lock, which lasts until the
    -- commit, so places become visible in their order and without gaps. messages, size: what waits for the device.
    -- gateway, session: where it is connected, and how often it has connected. NULL: its connection has ended, and
    -- frames and octets are what was left of its rate limit at left_ms.
    CREATE TABLE remit_gateway.device (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
        is_open boolean NOT NULL DEFAULT true, seen_ms bigint NOT NULL, place bigint NOT NULL DEFAULT 0,
        messages bigint NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0, gateway bigint,
        session bigint NOT NULL DEFAULT 0, frames double precision NOT NULL DEFAULT 0,
        octets double precision NOT NULL DEFAULT 0, left_ms bigint NOT NULL DEFAULT 0, bundle bytea
    ) WITH (fillfactor = 70);
    CREATE TABLE remit_gateway.allowed (receiver bigint, sender text, PRIMARY KEY (receiver, sender));
    CREATE TABLE remit_gateway.message (
        receiver bigint, place bigint, sender bigint NOT NULL, number bigint NOT NULL, at_ms bigint NOT NULL,
        body bytea NOT NULL, PRIMARY KEY (receiver, place)
    );
    -- Encrypted bytes do not compress.
    ALTER TABLE remit_gateway.message ALTER COLUMN body SET STORAGE EXTERNAL;
    CREATE INDEX message_at ON remit_gateway.message (at_ms);
    -- number: the last one of a sender for a receiver; one that is not above it is a repeat. expired: the last number
    -- that was deleted because nobody fetched it, until the sender sends something new. messages, size: what waits.
    CREATE TABLE remit_gateway.pair (
        receiver bigint, sender bigint, number bigint NOT NULL, used_ms bigint NOT NULL,
        expired bigint NOT NULL DEFAULT 0, messages bigint NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (receiver, sender)
    ) WITH (fillfactor = 70);
    CREATE INDEX pair_expired ON remit_gateway.pair (sender) WHERE expired > 0;
    -- A key that was handed out leaves its digest, so that publishing it again does not bring it back.
    CREATE TABLE remit_gateway.one_time (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, device bigint NOT NULL, digest bytea NOT NULL, body bytea,
        used_ms bigint, UNIQUE (device, digest)
    );
    CREATE INDEX one_time_left ON remit_gateway.one_time (device, key) WHERE body IS NOT NULL;
    """,
    """
    -- A mailbox in which two devices meet to pair, and what they tell each other. Both are gone after minutes.
    CREATE TABLE remit_gateway.mailbox (
        number integer PRIMARY KEY, is_joined boolean NOT NULL DEFAULT false, is_ended boolean NOT NULL DEFAULT false,
        until_ms bigint NOT NULL
    );
    CREATE TABLE remit_gateway.note (
        mailbox integer REFERENCES remit_gateway.mailbox (number) ON DELETE CASCADE, side text, place integer,
        body bytea NOT NULL, PRIMARY KEY (mailbox, side, place)
    );
    """,
)


async def migrate(connection: PgConnection, address: DatabaseAddress) -> None:
    """Migrate the tables to the current version; several gateways may start at once, and each step runs once."""
    await check_server(connection, address)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
        version = await _version(connection, address)
        if version is None:
            try:
                await connection.execute("CREATE SCHEMA IF NOT EXISTS remit_gateway")
            except asyncpg.InsufficientPrivilegeError as error:
                raise address.translate(error) from None
            version = 0
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            await connection.execute(step)
            await connection.execute("UPDATE remit_gateway.store SET version = $1", number)


async def _version(connection: PgConnection, address: DatabaseAddress) -> int | None:
    """Return the version of the tables, None if there are none."""
    if not await connection.fetchval("SELECT to_regclass('remit_gateway.store') IS NOT NULL"):
        return None
    version = await connection.fetchval("SELECT version FROM remit_gateway.store")
    if not isinstance(version, int):
        raise _unusable(f"{address.name}: the row with the version of the gateway's tables was deleted", "Restore it.")
    if version > len(MIGRATIONS):
        raise _unusable(
            f"{address.name}: the gateway's tables have version {version}, which a newer program wrote; "
            f"this one knows {len(MIGRATIONS)}",
            "Update this program, or use another database.",
        )
    return version


def _unusable(message: str, advice: str) -> StoreError:
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
