"""With `encrypt`, no text of a user is readable in the database, and whoever destroys their key destroys the texts."""

from pathlib import Path

from aged_databases import AgedDatabase
from postgres_server import shared_server
from remit.ports.keys import HubKeys
from remit.ports.upkeep import Retention
from remit.protocol.envelope import ContextFilter
from remit_cluster.postgres.store import PostgresStore
from secret_texts import ask, now_ms, texts_of, write

KEYS = HubKeys(b"secret")


async def opened(database: AgedDatabase, *, encrypt: bool = True) -> PostgresStore:
    store = PostgresStore(database.url, key=database.key, encrypt=encrypt)
    await store.open()
    return store


async def written(folder: Path) -> AgedDatabase:
    database = AgedDatabase(await shared_server().database(), folder / "hub.key")
    await write(PostgresStore(database.url, key=database.key, encrypt=True))
    return database


async def stored_texts(database: AgedDatabase) -> str:
    return await texts_of(PostgresStore(database.url, key=database.key, encrypt=True))


async def dump(database: AgedDatabase) -> str:
    """Return everything that is in the database, as text; bytes also as the text that they may be."""
    names = await database.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'remit'")
    rows = [await database.sql(f"SELECT * FROM remit.{name}") for (name,) in names]
    assert len(rows) > 20
    return " ".join(
        each.decode(errors="replace") if isinstance(each, bytes) else str(each)
        for table in rows
        for row in table
        for each in row
    )


async def test_no_text_is_readable_in_any_table_and_all_of_it_through_the_store(tmp_path: Path) -> None:
    database = await written(tmp_path)
    wanted = ContextFilter(keywords=("answer to",), last_messages=2)
    store = await opened(database)
    messages = await store.messages("s-ann", wanted, now_ms=now_ms(), tokens=100_000)
    assert [each.text for each in messages] == ["secret answer to ann"] * 2
    assert (await store.verify()).ok
    await store.close()
    everything = await dump(database)
    assert "s-ann" in everything
    assert "secret" not in everything
    text = await stored_texts(database)
    assert all(f"secret {what} ann" in text for what in ("step of", "answer to", "fact of", "note of"))


async def test_switching_it_on_forgets_the_plain_words(tmp_path: Path) -> None:
    database = AgedDatabase(await shared_server().database(), tmp_path / "hub.key")
    plain = await opened(database, encrypt=False)
    for number in range(10):
        await ask(plain, f"a{number}", "ann")
    wanted = ContextFilter(keywords=("answer to",), last_messages=10)
    assert len(await plain.messages("s-ann", wanted, now_ms=now_ms(), tokens=100_000)) == 10
    await plain.close()
    assert await database.sql("SELECT 1 FROM remit.word LIMIT 1")
    store = await opened(database)
    await ask(store, "later", "ann")
    assert len(await store.messages("s-ann", wanted, now_ms=now_ms(), tokens=100_000)) == 10
    await store.close()
    assert await database.sql("SELECT 1 FROM remit.word LIMIT 1") == []


async def test_erasing_a_user_destroys_their_key_and_the_next_text_has_another(tmp_path: Path) -> None:
    database = await written(tmp_path)
    ((old,),) = await database.sql("SELECT id FROM remit.user_key WHERE by_user = 'ann'")
    store = await opened(database)
    exported = await database.with_upkeep(lambda upkeep: list(upkeep.kept_about("ann", KEYS)), now_ms())
    assert "secret answer to ann" in str(exported)
    done = await store.erase("ann")
    assert (done.rows, done.facts, done.refused) == (9, 1, ())
    assert await database.sql("SELECT id FROM remit.user_key WHERE by_user = 'ann'") == []
    # The hub that knows the old key does not use it any more.
    await ask(store, "again", "ann")
    ((new,),) = await database.sql("SELECT id FROM remit.user_key WHERE by_user = 'ann'")
    assert new != old
    verdict = await store.verify()
    assert (verdict.ok, verdict.removed) == (True, 9), verdict
    await store.close()
    assert (await stored_texts(database)).count("secret answer to ann") == 1
    assert await database.with_upkeep(lambda upkeep: upkeep.erase("bob", KEYS), now_ms())
    assert "bob" not in await stored_texts(database)


async def test_outlines_of_encrypted_texts_are_encrypted(tmp_path: Path) -> None:
    database = await written(tmp_path)
    later_ms = now_ms() + 1
    pruning = await database.with_upkeep(lambda upkeep: upkeep.prune(Retention(messages=0)), later_ms)
    assert pruning.texts == 18
    text = await stored_texts(database)
    assert "secret answer" not in text
    assert '"user":"ann"' in text
    assert '"user":"ann"' not in await dump(database)
    verdict = await database.verdict()
    assert (verdict.ok, verdict.removed) == (True, 18), verdict
