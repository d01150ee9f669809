"""A user can be erased from a database so that the record stays whole, and gets everything that is kept about them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from aged_databases import NOW_MS, AgedDatabase, aged
from ages import DAY_MS, Clock, ask
from remit.protocol.codec import encode
from remit.protocol.errors import Code
from remit.protocol.records import Kind, Refusal
from remit.runtime.keys import HubKeys
from remit.runtime.ports import FACTS, SealedValue, StoreError
from remit.stores.retention import Erased, Retention
from remit.stores.store_upkeep import erase, prune, subject_of
from remit_testing.conformance import a_request, a_response

KEYS = HubKeys(b"secret")


async def erased(database: AgedDatabase, user: str) -> Erased:
    return await database.with_upkeep(lambda upkeep: erase(upkeep, user, KEYS))


async def exported(database: AgedDatabase, user: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for what, content in await database.with_upkeep(lambda upkeep: list(upkeep.kept_about(user, KEYS))):
        found.setdefault(what, []).append(encode(content).decode())
    return found


async def test_an_erased_user_is_gone_and_the_record_stays_whole(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    scope = f"{FACTS}{KEYS.digest(b'ann').hex()}"
    async with database.opened() as store:
        store.seal(scope, [SealedValue("<NAME_1>", KEYS.lock(b'"Ann"', f"{scope} <NAME_1>"), True)])
        refused = a_request("refused")
        refused = replace(refused, objective="of ann, too", remit=replace(refused.remit, user="ann"))
        body = Refusal(request=refused, response=a_response(refused, "no"))
        store.append(Kind.REFUSED, NOW_MS, "run-refused", "elsewhere", body)
    kept = await exported(database, "ann")
    assert {what: len(lines) for what, lines in kept.items()} == {
        **{"record": 10 * 2 * 3 + 1, "fact": 10, "note": 10, "session": 1, "request": 20},
        "value": len(kept["value"]),
    }
    assert '"value":"Ann"' in " ".join(kept["value"])
    assert "bob" not in str(kept)
    done = await erased(database, "ann")
    assert (done.rows, done.facts, done.refused) == (10 * 2 * 3 + 1, 10, ())
    verdict = await database.verdict()
    assert verdict.ok, verdict
    assert verdict.removed == done.rows
    async with database.opened() as store:
        records = " ".join(encode(record).decode() for record in await store.records(limit=10_000))
        said = f"{records} {await store.facts('ann')} {await store.notes('session of ann')}"
        assert len(await store.runs(limit=99)) == 21
    assert '"user":"ann"' not in said
    assert "session of ann" not in said
    assert "ann likes" not in said
    assert said.count("Please sort") == 21
    assert await database.with_upkeep(lambda upkeep: subject_of(upkeep.key, "ann")) == done.subject
    assert done.subject in said
    assert await exported(database, "ann") == {}


async def test_erasing_after_pruning_and_pruning_after_erasing(tmp_path: Path) -> None:
    database, clock = await aged(tmp_path), Clock(NOW_MS)
    await database.with_upkeep(lambda upkeep: prune(upkeep, Retention(messages=5 * DAY_MS)))
    async with database.opened(clock) as store:
        assert (await store.erase("ann")).rows == 60
        assert (await store.verify()).ok
    assert (await database.with_upkeep(lambda upkeep: prune(upkeep, Retention(records=5 * DAY_MS)))).rows == 36
    verdict = await database.verdict()
    assert (verdict.ok, verdict.removed) == (True, 96), verdict
    async with database.opened(clock) as store:
        await ask(store, clock, "later", user="ann")
    assert (await erased(database, "ann")).rows == 3
    assert (await database.verdict()).ok


async def test_a_user_with_an_open_run_is_not_erased(tmp_path: Path) -> None:
    database = await aged(tmp_path)
    with pytest.raises(StoreError, match="run run-open-one of this user is not over") as raised:
        await erased(database, "eve")
    assert raised.value.fault.code is Code.USER_HAS_OPEN_RUN
    assert (await exported(database, "eve"))["record"]
