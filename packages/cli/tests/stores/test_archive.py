"""An archive holds sealed segments with their proof, and can be checked by itself and against the store."""

import gzip
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ages import DAY_MS, START_MS, days, upkeep
from commands import popen
from remit.ports import StoreError
from remit.ports.upkeep import Retention
from remit.protocol.errors import Code
from remit.stores.audit import chain_rows
from remit.stores.connection import connect_reader, connect_writer
from remit.stores.sqlite import verify_file
from remit_cli.store_archive import ArchiveVerdict, archive_segment, verify_archive

NOW_MS = START_MS + 10 * DAY_MS
ARCHIVER = Path(__file__).with_name("archiver.py")


def archived(path: Path, folder: Path) -> int:
    with upkeep(path, NOW_MS) as store_upkeep:
        return sum(archive_segment(store_upkeep, segment, folder) for segment in store_upkeep.segments())


def checked(path: Path, folder: Path) -> ArchiveVerdict:
    connection = connect_reader(path, 1)
    try:
        return verify_archive(folder, stored=lambda after, last: chain_rows(connection, after, last))
    finally:
        connection.close()


def prune_with(path: Path, folder: Path) -> None:
    with upkeep(path, NOW_MS) as store_upkeep:
        store_upkeep.prune(
            Retention(records=5 * DAY_MS), archived=lambda each: archive_segment(store_upkeep, each, folder)
        )


async def test_an_archive_is_checked_by_itself_and_against_the_store_after_pruning(tmp_path: Path) -> None:
    """Y5: what was pruned can be proven from the archive."""
    path, folder = await days(tmp_path), tmp_path / "archive"
    assert archived(path, folder) == 10
    assert archived(path, folder) == 0
    whole = verify_file(path)
    verdict = verify_archive(folder)
    assert verdict == ArchiveVerdict(10, whole.rows, 0, 1, whole.rows, whole.keys)
    prune_with(path, folder)
    assert checked(path, folder) == verdict
    assert b"Please sort d0n0" in gzip.decompress((folder / "000000000001-000000000012.jsonl.gz").read_bytes())


async def test_pruning_archives_first(tmp_path: Path) -> None:
    path, folder = await days(tmp_path), tmp_path / "archive"
    prune_with(path, folder)
    verdict = checked(path, folder)
    assert (verdict.ok, verdict.segments, verdict.removed) == (True, 6, 0)
    # What comes later continues it, though the store has only the digests of what was before.
    archived(path, folder)
    verdict = checked(path, folder)
    assert (verdict.ok, verdict.segments) == (True, 11)


def change(folder: Path, old: str, new: str) -> None:
    file = min(folder.iterdir())
    text = gzip.decompress(file.read_bytes()).decode()
    assert old in text
    file.write_bytes(gzip.compress(text.replace(old, new).encode()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Please sort d0n1", "Please sort d0n2", "row 4 was changed"),
        ('"signature":"', '"signature":"00', "the signature of checkpoint 1 is wrong"),
        ('"last":12', '"last":11', "its name"),
    ],
)
async def test_a_changed_archive_is_found(tmp_path: Path, old: str, new: str, message: str) -> None:
    path, folder = await days(tmp_path), tmp_path / "archive"
    archived(path, folder)
    change(folder, old, new)
    (finding,) = verify_archive(folder).findings
    assert message in finding


async def test_a_file_that_is_gone_or_cut_off_is_found(tmp_path: Path) -> None:
    path, folder = await days(tmp_path), tmp_path / "archive"
    archived(path, folder)
    files = sorted(folder.iterdir())
    files[3].unlink()
    (finding,) = verify_archive(folder).findings
    assert "are not in the archive" in finding
    files[5].write_bytes(files[5].read_bytes()[:200])
    assert len(verify_archive(folder).findings) == 2


async def test_the_archive_of_another_store_does_not_match(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    path, other = await days(first), await days(second, runs=5)
    archived(path, tmp_path / "archive")
    assert not checked(other, tmp_path / "archive").ok
    assert not verify_archive(tmp_path / "archive", keys=["00"]).ok


async def test_what_does_not_verify_is_not_archived(tmp_path: Path) -> None:
    path = await days(tmp_path)
    connection = connect_writer(path, "process", 1)
    connection.execute("UPDATE record SET at_ms = 1 WHERE seq = 2")
    connection.close()
    with pytest.raises(StoreError, match="row 2 was changed") as caught:
        archived(path, tmp_path / "archive")
    assert caught.value.fault.code is Code.STORE_UNAVAILABLE


async def test_being_killed_leaves_only_whole_files(tmp_path: Path) -> None:
    """Y6: kill -9 in the middle of archiving and pruning leaves archive and store whole."""
    path, folder = await days(tmp_path), tmp_path / "archive"
    for kill in range(8):
        process = popen([sys.executable, str(ARCHIVER), str(path), str(NOW_MS), str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.015 * kill)  # anywhere in its work
        process.kill()
        process.communicate()
        if folder.exists() and any(folder.glob("*.gz")):
            assert checked(path, folder).ok
    prune_with(path, folder)
    assert checked(path, folder).segments == 6
