"""What a hub says about a database that it cannot use, and how several hubs start at once."""

import asyncio
from pathlib import Path

import pytest

from postgres_server import PASSWORD, PostgresServer, shared_server
from remit.ports import StoreError
from remit_cluster.postgres.schema import MIGRATIONS
from remit_cluster.postgres.store import PostgresStore


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "hub.key"


async def complaint(url: str, key: Path) -> str:
    """Return what opening a store says, which must not contain the password."""
    store = PostgresStore(url, key=key)
    with pytest.raises(StoreError) as caught:
        await store.open()
    message = f"{caught.value} {caught.value.fault!r} {store!r}"
    assert PASSWORD not in message
    assert "pass%2F" not in message
    assert caught.value.fault.suggestion
    return caught.value.fault.message


async def sql(server: PostgresServer, url: str, statements: str) -> None:
    connection = await server.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def test_a_server_that_is_not_there_is_named(key: Path) -> None:
    message = await complaint("postgresql://ann:pass%2Fword@127.0.0.1:1/hub", key)
    assert message.startswith("postgresql://127.0.0.1:1/hub: the server cannot be reached")


async def test_a_wrong_password_and_a_database_that_does_not_exist_are_named(server: PostgresServer, key: Path) -> None:
    url = await server.database()
    wrong = server.url(url.rpartition("/")[2], password="pass/wrong")
    assert "the server refused the password" in await complaint(wrong, key)
    assert "the database does not exist" in await complaint(server.url("nowhere"), key)


async def test_an_address_that_is_invalid_is_not_repeated(key: Path) -> None:
    assert "the address is invalid" in await complaint("postgresql://ann:pass%2Fword@host:port:1/hub", key)


async def test_a_newer_schema_and_the_tables_of_another_program_are_left_alone(
    server: PostgresServer, key: Path
) -> None:
    newer, other = await server.database(), await server.database()
    store = PostgresStore(newer, key=key)
    await store.open()
    await store.close()
    await sql(server, newer, "UPDATE remit.store SET version = 99")
    message = await complaint(newer, key)
    assert f"has version 99, which a newer program wrote; this one knows {len(MIGRATIONS)}" in message
    await sql(server, other, "CREATE SCHEMA remit; CREATE TABLE remit.invoice (id int)")
    assert "its schema `remit` belongs to another program" in await complaint(other, key)


async def test_a_server_that_accepts_no_writes_is_named(server: PostgresServer, key: Path) -> None:
    url = await server.database()
    name = url.rpartition("/")[2]
    await sql(server, url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    message = await complaint(url, key)
    assert "the server accepts no writes: default_transaction_read_only is on" in message


async def test_a_database_in_another_encoding_is_named(server: PostgresServer, key: Path) -> None:
    url = await server.database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert "the encoding of the database is LATIN1, not UTF8" in await complaint(url, key)


async def test_a_user_without_the_right_to_create_tables_is_told(server: PostgresServer, key: Path) -> None:
    url = await server.database()
    name = url.rpartition("/")[2]
    await sql(server, url, f"CREATE ROLE guest_{name} LOGIN PASSWORD 'pass/word'")
    guest = server.url(name, user=f"guest_{name}", password="pass/word")
    assert "the user lacks a right" in await complaint(guest, key)


async def test_a_server_without_the_extension_for_words_is_told_what_to_install(
    server: PostgresServer, key: Path
) -> None:
    url = await server.database()
    await sql(server, url, f"ALTER DATABASE {url.rpartition('/')[2]} SET extension_control_path = '/nowhere'")
    assert "the server lacks the extension pg_trgm" in await complaint(url, key)


async def test_a_user_with_a_schema_alone_needs_an_administrator_for_the_extension(
    server: PostgresServer, key: Path
) -> None:
    """The administrator made the schema, gives no right to create anything else, and puts extensions elsewhere."""
    url = await server.database()
    name = url.rpartition("/")[2]
    await sql(server, url, f"CREATE ROLE clerk_{name} LOGIN PASSWORD 'pass/word'; CREATE SCHEMA tools")
    await sql(server, url, f"CREATE SCHEMA remit AUTHORIZATION clerk_{name}")
    clerk = server.url(name, user=f"clerk_{name}", password="pass/word")
    assert "the user may not create the extension pg_trgm" in await complaint(clerk, key)
    await sql(server, url, "CREATE EXTENSION pg_trgm SCHEMA tools; GRANT USAGE ON SCHEMA tools TO public")
    store = PostgresStore(clerk, key=key)
    await store.open()
    assert await store.incr("key", 1, 3_600_000) == 1
    await store.close()


async def test_all_hubs_need_the_same_key(server: PostgresServer, key: Path, tmp_path: Path) -> None:
    url = await server.database()
    first = PostgresStore(url, key=key)
    await first.open()
    assert "the key of" in await complaint(url, tmp_path / "missing.key")
    assert not (tmp_path / "missing.key").exists()
    (tmp_path / "other.key").write_text(f"remit-ed25519 {'ab' * 32}\n")
    (tmp_path / "other.key").chmod(0o600)
    assert "is not the key of this store" in await complaint(url, tmp_path / "other.key")
    (tmp_path / "same.key").write_bytes(key.read_bytes())
    (tmp_path / "same.key").chmod(0o600)
    second = PostgresStore(url, key=tmp_path / "same.key")
    await second.open()
    assert second.secret() == first.secret()
    await second.close()
    await first.close()


async def test_hubs_that_start_at_once_make_the_tables_once(server: PostgresServer, key: Path) -> None:
    url = await server.database()
    stores = [PostgresStore(url, key=key) for _ in range(6)]
    async with asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(store.open())
    totals = [await store.incr("key", 1, 3_600_000) for store in stores]
    assert totals == [1, 2, 3, 4, 5, 6]
    for store in stores:
        await store.close()
