"""A user can be erased so that the record stays whole, and can have everything that is kept about them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from ages import DAY_MS, START_MS, Clock, ask, days, opened, upkeep
from commands import popen
from remit.protocol.codec import encode
from remit.protocol.error_table import TABLE
from remit.protocol.errors import Code
from remit.protocol.records import Kind, Refusal
from remit.runtime.keys import HubKeys
from remit.runtime.ports import FACTS, SealedValue, StoreError
from remit.stores.audit import FileChain
from remit.stores.connection import connect_reader
from remit.stores.database import at_once
from remit.stores.retention import Erased, Retention
from remit.stores.sqlite import verify_file
from remit.stores.store_upkeep import erase, prune, subject_of
from remit_testing.conformance import a_request, a_response

NOW_MS = START_MS + 10 * DAY_MS
PRUNER = Path(__file__).with_name("pruner.py")


def erased(path: Path, user: str) -> Erased:
    with upkeep(path, NOW_MS) as found:
        return erase(found, user, HubKeys(b"secret"))


def exported(path: Path, user: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with upkeep(path, NOW_MS) as kept:
        for what, content in kept.kept_about(user, HubKeys(b"secret")):
            found.setdefault(what, []).append(encode(content).decode())
    return found


async def contents(path: Path) -> str:
    async with opened(path, Clock(NOW_MS)) as store:
        records = " ".join(encode(record).decode() for record in await store.records(limit=10_000))
        return (
            f"{records} {await store.facts('ann')} {await store.notes('session of ann')} {await store.runs(limit=99)}"
        )


async def test_an_erased_user_is_gone_and_the_record_stays_whole(tmp_path: Path) -> None:
    """Y10: everything of a user goes, nothing of others, and that it was done is on record."""
    path = await days(tmp_path)
    async with opened(path, Clock(NOW_MS)) as store:
        keys = HubKeys(b"secret")
        scope = f"{FACTS}{keys.digest(b'ann').hex()}"
        store.seal(scope, [SealedValue("<NAME_1>", keys.lock(b'"Ann"', f"{scope} <NAME_1>"), True)])
    assert '"value":"Ann"' in " ".join(exported(path, "ann")["value"])
    done = erased(path, "ann")
    assert (done.rows, done.facts, done.refused) == (10 * 2 * 3, 10, ())
    verdict = verify_file(path)
    assert verdict.ok, verdict
    assert verdict.removed == done.rows
    said = await contents(path)
    assert '"user":"ann"' not in said
    assert "session of ann" not in said
    assert "ann likes" not in said
    assert said.count("Please sort") == 10 * 2 * 2 + 2  # bob's and eve's, in the records and in the list of runs
    assert done.subject in said
    connection = connect_reader(path, 1)
    stated = [each for _, each in at_once(FileChain(connection, path).removals())]
    with upkeep(path, NOW_MS) as found:
        assert {each.subject for each in stated} == {subject_of(found.key, "ann")} == {done.subject}
    connection.close()
    assert exported(path, "ann") == {}
    assert b"ann likes" not in path.read_bytes()
    with upkeep(path, NOW_MS) as found:
        found.rebuild()
    assert b"session of ann" not in path.read_bytes()


async def test_erasing_after_pruning_and_pruning_after_erasing(tmp_path: Path) -> None:
    path = await days(tmp_path)
    with upkeep(path, NOW_MS) as found:
        prune(found, Retention(messages=5 * DAY_MS))
    assert erased(path, "ann").rows == 60
    assert verify_file(path).ok
    with upkeep(path, NOW_MS) as found:
        assert prune(found, Retention(records=5 * DAY_MS)).rows == 36
    verdict = verify_file(path)
    assert (verdict.ok, verdict.removed) == (True, 96)
    async with opened(path, Clock(NOW_MS)) as store:
        await ask(store, Clock(NOW_MS), "later", user="ann")
    assert verify_file(path).ok
    assert erased(path, "ann").rows == 3
    assert verify_file(path).ok


async def test_a_user_with_an_open_run_is_not_erased(tmp_path: Path) -> None:
    path = await days(tmp_path)
    with pytest.raises(StoreError, match="run run-open-one of this user is not over") as raised:
        erased(path, "eve")
    assert (raised.value.fault.code, TABLE[raised.value.fault.code].status) == (Code.USER_HAS_OPEN_RUN, 409)
    assert exported(path, "eve")["record"]


async def test_a_user_gets_everything_that_is_kept_about_them_and_nothing_else(tmp_path: Path) -> None:
    """Y11: the export holds what the store holds about a user."""
    path = await days(tmp_path)
    found = exported(path, "ann")
    assert {what: len(lines) for what, lines in found.items()} == {
        "record": 60,
        "fact": 10,
        "note": 10,
        "session": 1,
        "request": 20,
        "value": 12,
    }
    everything = " ".join(line for lines in found.values() for line in lines)
    assert "d0n0" in everything
    assert "d0n1" not in everything
    assert exported(path, "nobody") == {}


async def test_a_request_that_was_refused_is_erased_with_its_user(tmp_path: Path) -> None:
    path = await days(tmp_path, days=2)
    request = a_request("refused")
    request = replace(request, remit=replace(request.remit, user="mia"))
    async with opened(path, Clock(NOW_MS)) as store:
        store.append(Kind.REFUSED, NOW_MS, "door", "door", Refusal(request=request, response=a_response(request)))
        store.append(
            Kind.REFUSED, NOW_MS, "door", "door", Refusal(request=a_request("b"), response=a_response(request))
        )
    assert erased(path, "mia").rows == 1
    assert verify_file(path).ok


@pytest.mark.processes
async def test_being_killed_leaves_the_record_whole_and_the_rest_is_erased_the_next_time(tmp_path: Path) -> None:
    """Y12: kill -9 in the middle of an erasure leaves a record that verifies."""
    path = await days(tmp_path)
    for kill in range(8):
        process = popen([sys.executable, str(PRUNER), "erase", str(path), str(NOW_MS)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.02 * kill)  # anywhere in its work
        process.kill()
        process.communicate()
        async with opened(path, Clock(NOW_MS)):
            pass
        assert verify_file(path).ok
    erased(path, "ann")
    assert verify_file(path).ok
    assert exported(path, "ann") == {}
