"""A store after years: what opening, listing, reading and searching cost with millions of delegations in one file.

`python bench/years.py 10000000 [FOLDER]` writes so many delegations in the format of the store itself, and measures.
The file is kept in FOLDER, if one is given, and used again. Not part of `make bench`: ten million take half an hour and
10 GB. `--keep` puts the figures beside the others. A command costs Python and its imports first, so its time is also
given as a ratio to that of `remit --version`, and as CPU time, which does not depend on what else the machine does.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from harness import Figure, at_most, table
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter
from remit.protocol.records import Kind
from remit.runtime.audit import GENESIS, leaf, link
from remit.runtime.signing import encode_checkpoint, read_key, sign
from remit.stores.checkpoints import checkpoint_path, key_path
from remit.stores.connection import SqliteConnection, connect_writer
from remit.stores.schema import FORGOTTEN, KINDS
from remit.stores.sqlite import SqliteStore, verify_file
from remit_testing.samples import a_request, a_response
from run import keep

# A run is one root request and one delegation below it: two delegations, four records.
DELEGATIONS, RECORDS = 2, 4
BATCH = 2_500
USERS = 1_000
# So many messages stand in one conversation, in which keywords are searched.
CONVERSATION = 100_000
DAY_MS = 24 * 3_600_000
COLUMNS = "place, origin, by_user, id, digest, run, state, epoch, worker, lease_until_ms, last_seq, ended_ms"
LIMITS_S = {"opening": 1.0}
OTHERS_S = 0.5
# What is done once for a store, or for a long conversation.
ONCE = {"search, first time (builds the index)", "verify, full"}


def generate(path: Path, delegations: int) -> None:
    """Write runs as hubs write them: rows, requests, chain and checkpoints."""
    asyncio.run(_create_store(path))
    key = read_key(key_path(path))
    connection = connect_writer(path, "process", 5)
    connection.pragma("synchronous", "OFF")
    connection.pragma("cache_size", -200_000)
    root = replace(a_request("@NAME@"), run="@RUN@", objective="Sort the receipts of @NAME@ by their date, please")
    root = replace(root, session="@SESSION@", remit=replace(root.remit, user="@USER@"))
    answer = replace(a_response(root, "The receipts of @NAME@ are sorted: 14, the oldest of March."), run="@RUN@")
    templates = [
        (Kind.STARTED, encode(root)),
        (Kind.DELEGATION, encode(replace(root, parent="@RUN@", objective="List the receipts of @NAME@"))),
        (Kind.RESULT, encode(answer)),
        (Kind.RESULT, encode(replace(answer, session="@SESSION@"))),
    ]
    runs = delegations // DELEGATIONS
    start_ms = time.time_ns() // 1_000_000 - 3 * 365 * DAY_MS
    step_ms = 3 * 365 * DAY_MS / runs
    seq, digest, seals = 0, GENESIS, bytearray()
    began = time.monotonic()
    for first in range(0, runs, BATCH):
        rows: list[tuple[object, ...]] = []
        requests: list[tuple[object, ...]] = []
        for number in range(first, min(first + BATCH, runs)):
            at_ms = int(start_ms + number * step_ms)
            run = f"{at_ms:012x}{number:08x}"
            user = f"user-{number % USERS}"
            recent = number >= runs - CONVERSATION // 2
            session = "long-conversation" if recent else run
            begun = seq + 1
            for kind, template in templates:
                body = (
                    template.replace(b"@NAME@", run[-8:].encode())
                    .replace(b"@RUN@", run.encode())
                    .replace(b"@USER@", user.encode())
                    .replace(b"@SESSION@", session.encode())
                )
                seq += 1
                digest = link(digest, seq, leaf(kind, at_ms, run, session, body))
                rows.append((seq, KINDS[kind], at_ms, run, session, body, digest))
            requests.append((begun, "user", user, run, b"digest", run, FORGOTTEN, 1, "w", 0, seq, at_ms))
        connection.execute("BEGIN IMMEDIATE")
        _insert(connection, "INSERT INTO record VALUES", rows)
        columns = "place, origin, by_user, id, digest, run, state, epoch, worker, lease_until_ms, last_seq, ended_ms"
        _insert(connection, f"INSERT INTO request ({columns}) VALUES", requests)
        number = first // BATCH + 1
        seals += encode_checkpoint(sign(key, number=number, seq=seq, digest=digest, at_ms=int(rows[-1][2])))  # type: ignore[call-overload]
        connection.execute("UPDATE checkpoint SET number = ?, seq = ?", (number, seq))
        connection.execute("COMMIT")
        if first // BATCH % 40 == 0:
            connection.wal_checkpoint()
    checkpoint_path(path).write_bytes(bytes(seals))
    connection.close()
    print(f"{delegations:,} delegations, {seq:,} records in {time.monotonic() - began:.0f} s")


def _insert(connection: SqliteConnection, sql: str, rows: list[tuple[object, ...]]) -> None:
    width = len(rows[0])
    for start in range(0, len(rows), 500):
        some = rows[start : start + 500]
        places = ",".join(["(" + ",".join("?" * width) + ")"] * len(some))
        connection.execute(f"{sql} {places}", [value for row in some for value in row])


async def _create_store(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


def measure(path: Path, *, verify: bool) -> list[Figure]:
    """Return the seconds of what people do with such a store, and the CPU time of the commands."""
    measured: dict[str, float] = {}

    async def in_process() -> None:
        store = SqliteStore(path)
        began = time.perf_counter()
        await store.open()
        measured["opening"] = time.perf_counter() - began
        measured["sweep"] = await _timed(lambda: store.sweep(max_attempts=3, keep_ms=DAY_MS))
        (newest,) = await store.runs(limit=1)
        measured["the newest runs"] = await _timed(lambda: store.runs(limit=20))
        measured["runs of a user"] = await _timed(lambda: store.runs(user="user-7", limit=50))
        measured["runs of no user"] = await _timed(lambda: store.runs(user="nobody", limit=50))
        measured["run by its first digits"] = await _timed(lambda: store.runs(run=newest.run[:14], limit=2))
        measured["records of a run"] = await _timed(lambda: store.records(run=newest.run))
        measured["recent"] = await _timed(lambda: store.recent(1_000))
        wanted = ContextFilter(keywords=(newest.run[-8:],), last_messages=5)
        now_ms = time.time_ns() // 1_000_000

        async def search() -> object:
            return await store.messages("long-conversation", wanted, now_ms=now_ms, tokens=100_000)

        measured["search, first time (builds the index)"] = await _timed(search)
        measured["search"] = await _timed(search)
        await store.close()

    asyncio.run(in_process())
    if verify:
        measured["verify, full"] = _wall(lambda: verify_file(path, incremental=True))
        measured["verify, incremental"] = _wall(lambda: verify_file(path, incremental=True))
    figures = [
        Figure(
            name=name, value=seconds, unit="s", bound=None if name in ONCE else at_most(LIMITS_S.get(name, OTHERS_S))
        )
        for name, seconds in measured.items()
    ]
    remit = [sys.executable, "-m", "remit_cli"]
    floor_s = min(_process([*remit, "--version"])[0] for _ in range(3))
    floor_cpu = min(_process([*remit, "--version"])[1] for _ in range(3))
    for name, command in {
        "runs list": ["runs", "list"],
        "runs tree last": ["runs", "tree", "last"],
        "audit tail": ["audit", "tail"],
    }.items():
        times = [_process([*remit, *command, "--store", str(path)]) for _ in range(3)]
        took_s, cpu_s = (min(each) for each in zip(*times, strict=True))
        figures += [
            Figure(name=f"remit {name}", value=took_s, unit="s", bound=at_most(OTHERS_S)),
            Figure(name=f"remit {name}, against remit --version", value=took_s, floor=floor_s, unit="s"),
            Figure(name=f"remit {name}, CPU", value=cpu_s, floor=floor_cpu, unit="s"),
        ]
    return figures


async def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    await work()  # type: ignore[misc]
    return time.perf_counter() - began


def _process(command: list[str]) -> tuple[float, float]:
    """Return the seconds that a command takes, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = _wall(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _wall(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("delegations", type=int, help="how many to write, if there is no store yet")
    parser.add_argument("folder", type=Path, nargs="?", help="keep the store here (default: delete it)")
    parser.add_argument("--keep", action="store_true", help="keep the figures in results.json")
    parser.add_argument("--no-verify", action="store_true", help="do not verify the whole record, which takes minutes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = given.folder or Path(temporary)
        path = folder / "hub.db"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            generate(path, given.delegations)
        size = Figure(name="size of the file", value=path.stat().st_size / 2**30, unit="GiB")
        measured = [size, *measure(path, verify=not given.no_verify)]
    figures = [replace(each, name=f"{given.delegations:,} delegations: {each.name}") for each in measured]
    print(table(figures))
    if given.keep:
        keep(figures)


if __name__ == "__main__":
    main()
