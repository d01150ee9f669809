"""The files of a store belong to its owner alone."""

import os
import stat
from collections.abc import Generator
from pathlib import Path

import pytest

from remit.ports import StoreError
from remit.protocol.errors import Code
from remit.protocol.records import Kind
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import progress

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")


@pytest.fixture(params=[0o000, 0o002, 0o022])
def umask(request: pytest.FixtureRequest) -> Generator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


async def written(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    store.append(Kind.PROGRESS, 1, "run", "session", progress("text"))
    await store.flush()
    await store.close()


@pytest.mark.usefixtures("umask")
async def test_the_folder_that_a_store_makes_is_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / ".remit" / "hub.db"
    await written(path)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (path.parent, *path.parent.iterdir())}
    files = dict.fromkeys(["hub.db", "hub.db.key", "hub.db.checkpoints"], 0o600)
    assert modes == {".remit": 0o700} | files


async def test_a_folder_that_was_there_before_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    before = (tmp_path / "shared").stat().st_mode
    await written(tmp_path / "shared" / "hub.db")
    assert (tmp_path / "shared").stat().st_mode == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
async def test_a_key_that_others_can_read_or_replace_is_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "hub.db"
    await written(path)
    key = tmp_path / "hub.db.key"
    key.chmod(mode)
    with pytest.raises(StoreError) as caught:
        await SqliteStore(path).open()
    assert caught.value.fault.code is Code.STORE_UNAVAILABLE
    assert str(key) in caught.value.fault.message
    assert f"chmod 600 {key}" in caught.value.fault.suggestion
    assert verify_file(path).ok
    key.chmod(0o600)
    await written(path)
